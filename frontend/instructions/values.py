"""Expressions to instructions at one point of a tile: index arithmetic, loads, masks, stores.

The vector loop's place in an index decides how a load is made: no part, one scalar for all lanes;
step 1, neighbours; step -1, neighbours reversed; otherwise a gather, unless an unrolled loop runs
along the buffer: then a square of vectors is loaded along that loop and transposed in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from frontend.dtype import DType
from frontend.instructions import arith
from frontend.instructions.ir import BITS, Builder, Value
from frontend.instructions.memory import compute_kind, from_memory, memory_kind, to_memory
from frontend.instructions.points import Piece, Point
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.heuristic import Machine
from frontend.loops.index import Condition, Index, InRange, Quotient, Remainder, Var


class Values:
    """Computes expressions. `env` holds every open loop's variable: a constant or a value."""

    def __init__(self, b: Builder, kernel: ln.Kernel, machine: Machine) -> None:
        self.b = b
        self.machine = machine
        self.slots = list(kernel.slots)
        self.env: dict[Var, int | Value] = {}
        self.registers: dict[int, Value] = {}
        self._pointers: dict[int, Value] = {}
        self._arguments = {slot: i for i, slot in enumerate(kernel.buffers)}
        self._tile: Sequence[ln.Loop] = ()
        self._extents: dict[str, int] = {}
        self._tile_vars: dict[Var, int] = {}
        self._memo: dict[tuple[Any, ...], Value] = {}
        self._squares: dict[tuple[object, ...], list[Value]] = {}
        self._accumulated: list[Value] = []
        self._needs_accumulated: dict[int, bool] = {}
        self._predicate: Value | None = None
        self._bound: tuple[int, ...] = ()
        self._kept: list[ex.Expr] = []

    def begin(self, tile: Sequence[ln.Loop], extents: dict[str, int]) -> None:
        """Start a tile: forget what was computed for another. `extents`: how far its loops run."""
        self._tile = tile
        self._extents = extents
        self._tile_vars = {lo.var: i for i, lo in enumerate(tile)}
        self._memo.clear()
        self._squares.clear()
        self._needs_accumulated.clear()
        self._kept.clear()
        self._accumulated = []

    def set_accumulated(self, values: list[Value]) -> None:
        """The reductions' values at the point that comes next."""
        self._accumulated = values
        # expressions that hold a reduction's value are not shared between points
        self._memo = {k: v for k, v in self._memo.items() if not self._needs_accumulated.get(k[0])}

    def add_scratch(self, dtype: DType, size: int) -> int:
        """The slot of a new buffer of the block's own, padded so that a full vector may be read."""
        self.slots.append(ln.Slot(ln.Role.SCRATCH, dtype, size))
        return len(self.slots) - 1

    # --- points ----------------------------------------------------------------------------------

    def _enter(self, point: Point) -> Piece | None:
        piece = None
        for loop, c in zip(self._tile, point, strict=True):
            if isinstance(c, Piece):
                piece = c if c.lanes > 1 else None
                self.env[loop.var] = c.start
            else:
                self.env[loop.var] = c
        return piece

    def _vector_var(self) -> Var | None:
        return next((lo.var for lo in self._tile if lo.kind is ln.Kind.VECTOR), None)

    def active(self, piece: Piece) -> Value:
        """The mask of the lanes that exist."""
        lanes = self.b.iota("i32", piece.lanes)
        return self.b.compare("icmp", "slt", lanes, self.b.const("i32", piece.active))

    def at(self, e: ex.Expr, point: Point) -> Value:
        """The value of `e`: a scalar if it is the same in all lanes."""
        self._enter(point)
        return self._value(e, point)

    def _value(self, e: ex.Expr, point: Point) -> Value:
        key = (
            id(e),
            id(self._predicate),
            self._bound,
            *(point[i] for v, i in self._tile_vars.items() if v in e.variables),
        )
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._compute(e, point)
            self._kept.append(e)
            self._needs_accumulated[id(e)] = isinstance(e, ex.Accumulated) or any(
                self._needs_accumulated.get(id(p), False) for p in e.parts
            )
        return found

    def _compute(self, e: ex.Expr, point: Point) -> Value:
        if isinstance(e, ex.Load):
            return self._load(e, point)
        if isinstance(e, ex.Constant):
            return self.b.const(compute_kind(e.dtype), e.value)
        if isinstance(e, ex.IndexValue):
            return self._index_value(e, point)
        if isinstance(e, ex.Alu):
            return self._alu(e, point)
        if isinstance(e, ex.Masked):
            return self._masked(e, point)
        if isinstance(e, ex.Lookup):
            return self._lookup(e, point)
        assert isinstance(e, ex.Accumulated), e
        return self._accumulated[e.number]

    def _alu(self, e: ex.Alu, point: Point) -> Value:
        args = tuple(self._value(a, point) for a in e.args)
        return arith.emit(self.b, e.op, e.dtype, args, e.args[-1].dtype)

    # --- indices ---------------------------------------------------------------------------------

    def _sum(self, index: Index) -> tuple[Value | None, int]:
        """(value, constant) of an index, the vector variable at its piece's first lane."""
        b = self.b
        total, constant = None, index.constant
        for atom, c in index.terms:
            if isinstance(atom, Var):
                value = self.env[atom]
                if isinstance(value, int):
                    constant += c * value
                    continue
            else:
                value = self._divided(atom)
                if isinstance(value, int):
                    constant += c * value
                    continue
            part = b.op("mul", value, b.const("i64", c))
            total = part if total is None else b.op("add", total, part)
        return total, constant

    def _divided(self, atom: Quotient | Remainder) -> Value | int:
        b = self.b
        value, constant = self._sum(atom.index)
        if value is None:
            return constant // atom.by if isinstance(atom, Quotient) else constant % atom.by
        # unsigned division of a shifted, never negative number
        shift = max(0, -(atom.index.low // atom.by)) if atom.index.low < 0 else 0
        whole = b.op("add", value, b.const("i64", constant + shift * atom.by))
        by = b.const("i64", atom.by)
        if isinstance(atom, Remainder):
            return b.op("urem", whole, by)
        return b.op("sub", b.op("udiv", whole, by), b.const("i64", shift))

    def _scalar(self, index: Index) -> Value:
        value, constant = self._sum(index)
        if value is None:
            return self.b.const("i64", constant)
        return self.b.op("add", value, self.b.const("i64", constant))

    def _step(self, index: Index) -> int | None:
        """How `index` moves from lane to lane; None if not evenly."""
        var = self._vector_var()
        held = (self.env.get(v) for v in index.variables())
        if any(isinstance(value, Value) and value.lanes > 1 for value in held):
            return None
        return 0 if var is None else index.coefficient(var)

    def _lanes_of(self, index: Index, piece: Piece, kind: str = "i64") -> Value:
        """One index for each lane."""
        step = self._step(index)
        if step is not None:
            first = self._scalar(index)
            first = first if kind == "i64" else self.b.cast("itrunc", first, kind)
            return self.b.op("add", first, self.b.iota(kind, piece.lanes, 0, step))
        total: Value = self.b.const("i64", index.constant, piece.lanes)
        for atom, c in index.terms:
            total = self.b.op("add", total, self._atom_lanes(atom, c, piece))
        return total if kind == "i64" else self.b.cast("itrunc", total, kind)

    def _atom_lanes(self, atom: Var | Quotient | Remainder, c: int, piece: Piece) -> Value:
        b = self.b
        factor = b.const("i64", c)
        if isinstance(atom, Var):
            held = self.env[atom]
            if isinstance(held, Value):
                return b.op("mul", held, factor)
            if atom == self._vector_var():
                return b.op("mul", b.iota("i64", piece.lanes, piece.start), factor)
            return b.const("i64", held * c)
        inner = self._lanes_of(atom.index, piece)
        shift = -(atom.index.low // atom.by) if atom.index.low < 0 else 0
        by = b.const("i64", atom.by)
        inner = b.op("add", inner, b.const("i64", shift * atom.by))
        if isinstance(atom, Remainder):
            return b.op("mul", b.op("urem", inner, by), factor)
        quotient = b.op("sub", b.op("udiv", inner, by), b.const("i64", shift))
        return b.op("mul", quotient, factor)

    def _varies(self, index: Index) -> bool:
        return self._step(index) != 0

    def _index_value(self, e: ex.IndexValue, point: Point) -> Value:
        kind = compute_kind(e.dtype)
        integer = kind if kind[0] == "i" and kind != "i1" else "i64"
        piece = self._enter(point)
        if piece is not None and self._varies(e.index):
            value = self._lanes_of(e.index, piece, integer)
        else:
            value = self._scalar(e.index)
            value = value if integer == "i64" else self.b.cast("itrunc", value, integer)
        if e.dtype.is_float:
            value = self.b.cast("sitofp", value, kind)
        return value

    # --- conditions ------------------------------------------------------------------------------

    def _condition(self, condition: Condition, piece: Piece | None) -> Value:
        b = self.b
        if piece is not None and self._varies(condition.index):
            value = self._lanes_of(condition.index, piece)
        else:
            value = self._scalar(condition.index)
        if isinstance(condition, InRange):
            # as unsigned, a negative index is beyond every extent
            return b.compare("icmp", "ult", value, b.const("i64", condition.extent, value.lanes))
        by = condition.by
        low = condition.index.low
        shift = -(low // by) * by if low < 0 else 0
        rest = b.op("urem", b.op("add", value, b.const("i64", shift)), b.const("i64", by))
        return b.compare("icmp", "eq", rest, b.const("i64", 0))

    def holds(self, e: ex.Masked, point: Point) -> Value:
        """Whether all conditions of `e` hold: one bit, or one a lane."""
        piece = self._enter(point)
        holds = self._condition(e.conditions[0], piece)
        for condition in e.conditions[1:]:
            holds = self.b.op("and", holds, self._condition(condition, piece))
        return holds

    @contextmanager
    def assuming(self, holds: Value) -> Iterator[None]:
        """Within it, nothing is read where `holds` is false."""
        before = self._predicate
        self._predicate = holds if before is None else self.b.op("and", before, holds)
        yield
        self._predicate = before

    def _masked(self, e: ex.Masked, point: Point) -> Value:
        return self._under(self.holds(e, point), e.value, e.otherwise, point)

    def _under(
        self, holds: Value, value: ex.Expr, otherwise: ex.Expr | None, point: Point
    ) -> Value:
        """`value` where `holds`, reading nothing elsewhere."""
        with self.assuming(holds):
            inside = self._value(value, point)
        if otherwise is None:
            outside = self.b.const(inside.kind, 0)
        else:
            outside = self._value(otherwise, point)
        return self.b.select(holds, inside, outside)

    def _lookup(self, e: ex.Lookup, point: Point) -> Value:
        b = self.b
        position = self._position(e.position, point)
        holds = b.compare("icmp", "ult", position, b.const("i64", e.var.extent))
        self.env[e.var] = b.select(holds, position, b.const("i64", 0))
        before = self._bound
        self._bound = (*before, id(position))
        value = self._under(holds, e.value, None, point)
        self._bound = before
        del self.env[e.var]
        return value

    def _position(self, e: ex.Expr, point: Point) -> Value:
        position = self._value(e, point)
        if position.kind != "i64":
            widen = "sext" if e.dtype.is_signed else "zext"
            position = self.b.cast(widen, position, "i64")
        return position

    # --- loads -----------------------------------------------------------------------------------

    def pointer(self, slot: int) -> Value:
        made = self._pointers.get(slot)
        if made is None:
            s = self.slots[slot]
            if s.role is ln.Role.SCRATCH:
                size = s.size * BITS[memory_kind(s.dtype)] // 8 + 64
                made = self.b.scratch(f"s{slot}", size)
            else:
                made = self.b.pointer(self._arguments[slot])
            self._pointers[slot] = made
        return made

    def _where(self, slot: int, index: Index) -> tuple[Value, int]:
        """(address, bytes an element) of `slot[index]`, the vector variable at its first lane."""
        size = BITS[memory_kind(self.slots[slot].dtype)] // 8
        value, constant = self._sum(index)
        base = self.pointer(slot)
        if value is None:
            return self.b.address(base, self.b.const("i64", 0), size, constant), size
        return self.b.address(base, value, size, constant), size

    def _load(self, e: ex.Load, point: Point) -> Value:
        slot = self.slots[e.slot]
        if slot.role is ln.Role.REGISTER:
            return self.registers[e.slot]
        piece = self._enter(point)
        step = self._step(e.index)
        if piece is None and step is None:  # a looked-up position outside any vector loop
            step = 0
        if step == 0 or piece is None:
            raw = self._load_scalar(e)
        elif step == 1:
            raw = self._load_row(e, piece)
        else:
            raw = (
                self._transposed(e, point, piece)
                or self._reversed(e, piece, step)
                or self._every(e, piece, step)
                or self._load_gather(e, piece)
            )
        return from_memory(self.b, raw, slot.dtype)

    def _load_scalar(self, e: ex.Load) -> Value:
        kind = memory_kind(self.slots[e.slot].dtype)
        invariant = self.slots[e.slot].role is ln.Role.INPUT
        address, size = self._where(e.slot, e.index)
        if self._predicate is None or self._always_inside(e):
            return self.b.load(kind, 1, address, align=size, invariant=invariant)
        position = self._scalar(e.index)
        inside = self.b.compare(
            "icmp", "ult", position, self.b.const("i64", self.slots[e.slot].size)
        )
        safe = self.b.select(inside, address, self.pointer(e.slot))
        return self.b.load(kind, 1, safe, align=size)

    def _always_inside(self, e: ex.Load) -> bool:
        """Whether the index cannot leave the buffer, so that reading needs no condition."""
        return e.index.low >= 0 and e.index.high < self.slots[e.slot].size

    def _load_row(self, e: ex.Load, piece: Piece) -> Value:
        kind = memory_kind(self.slots[e.slot].dtype)
        role = self.slots[e.slot].role
        address, size = self._where(e.slot, e.index)
        mask = None if self._always_inside(e) else self._predicate
        if piece.active < piece.lanes and role is not ln.Role.SCRATCH:
            active = self.active(piece)
            mask = active if mask is None else self.b.op("and", mask, active)
        if mask is None:
            return self.b.load(
                kind, piece.lanes, address, align=size, invariant=role is ln.Role.INPUT
            )
        return self.b.masked_load(kind, piece.lanes, address, mask, align=size)

    def _reversed(self, e: ex.Load, piece: Piece, step: int | None) -> Value | None:
        """Neighbours in descending order."""
        if not self.machine.shuffles or step != -1 or self._predicate is not None or piece.active < piece.lanes:
            return None
        kind = memory_kind(self.slots[e.slot].dtype)
        address, size = self._where(e.slot, e.index - (piece.lanes - 1))
        invariant = self.slots[e.slot].role is ln.Role.INPUT
        row = self.b.load(kind, piece.lanes, address, align=size, invariant=invariant)
        return self.b.shuffle(row, row, range(piece.lanes - 1, -1, -1))

    def _every(self, e: ex.Load, piece: Piece, step: int | None) -> Value | None:
        """Every second to fourth element: whole rows, and their lanes picked out.

        Reads up to `step` - 1 elements past the last one needed, which the padding of buffers
        allows.
        """
        if step not in (2, 3, 4) or self._predicate is not None or not self.machine.shuffles:
            return None
        b, lanes = self.b, piece.lanes
        kind = memory_kind(self.slots[e.slot].dtype)
        invariant = self.slots[e.slot].role is ln.Role.INPUT
        needed = (piece.active - 1) * step + 1
        picked: Value | None = None
        for number in range(step):
            first = number * lanes
            if first >= needed:
                break
            address, size = self._where(e.slot, e.index + first)
            if first + lanes <= (piece.active - 1) * step + step:
                row = b.load(kind, lanes, address, align=size, invariant=invariant)
            else:
                mask = self.active(Piece(0, lanes, needed - first))
                row = b.masked_load(kind, lanes, address, mask, align=size)
            picks = [
                lanes + i * step - first if first <= i * step < first + lanes else i
                for i in range(lanes)
            ]
            picked = b.shuffle(picked or row, row, picks)
        return picked

    def _load_gather(self, e: ex.Load, piece: Piece) -> Value:
        kind = memory_kind(self.slots[e.slot].dtype)
        size = BITS[kind] // 8
        mask = (
            self.active(piece) if piece.active < piece.lanes else self.b.const("i1", 1, piece.lanes)
        )
        if self._predicate is not None and not self._always_inside(e):
            mask = self.b.op("and", mask, self._predicate)
        addresses = self.b.address(self.pointer(e.slot), self._lanes_of(e.index, piece), size)
        return self.b.gather(kind, addresses, mask, align=size)

    def _transposed(self, e: ex.Load, point: Point, piece: Piece) -> Value | None:
        """A column of a square that is loaded by rows along an unrolled loop."""
        if not self.machine.shuffles:
            return None
        if self._predicate is not None or piece.active < piece.lanes or self._step(e.index) is None:
            return None
        for at, loop in enumerate(self._tile):
            c = point[at]
            if isinstance(c, Piece) or e.index.coefficient(loop.var) != 1:
                continue
            first = c - c % piece.lanes
            if first + piece.lanes > self._unrolled(loop):
                continue
            key = (id(e), first, *(p for i, p in enumerate(point) if i != at))
            if key not in self._squares:
                self._squares[key] = self._square(e, loop.var, first, piece)
                self._kept.append(e)
            self.env[loop.var] = c
            return self._squares[key][c - first]
        return None

    def _unrolled(self, loop: ln.Loop) -> int:
        """How far the loop runs in this tile."""
        return self._extents.get(loop.name, loop.var.extent)

    def _square(self, e: ex.Load, along: Var, first: int, piece: Piece) -> list[Value]:
        b, lanes = self.b, piece.lanes
        kind = memory_kind(self.slots[e.slot].dtype)
        size = BITS[kind] // 8
        vector = self._vector_var()
        assert vector is not None
        rows = []
        for j in range(lanes):
            self.env[along], self.env[vector] = first, piece.start + j
            address, _ = self._where(e.slot, e.index)
            rows.append(b.load(kind, lanes, address, align=size))
        self.env[vector] = piece.start
        bit = 1
        while bit < lanes:
            for i in range(lanes):
                if not i & bit:
                    low, high = rows[i], rows[i | bit]
                    picks = [lanes + (c ^ bit) if c & bit else c for c in range(lanes)]
                    rows[i] = b.shuffle(low, high, picks)
                    picks = [lanes + c if c & bit else c | bit for c in range(lanes)]
                    rows[i | bit] = b.shuffle(low, high, picks)
            bit *= 2
        return rows

    # --- stores ----------------------------------------------------------------------------------

    def store(self, s: ln.Store, point: Point) -> None:
        """Carry out a store at a point; lanes past the end are left alone."""
        slot = self.slots[s.slot]
        if slot.role is ln.Role.REGISTER:
            self.registers[s.slot] = self.at(s.value, point)
            return
        if s.position is not None:
            self._store_at_position(s, point)
            return
        value = to_memory(self.b, self.at(s.value, point), slot.dtype)
        self._put(s, value, point, None)

    def _store_at_position(self, s: ln.Store, point: Point) -> None:
        assert s.position is not None and s.var is not None
        self._enter(point)
        position = self._position(s.position, point)
        assert position.lanes == 1, "a scatter's position is the same in all lanes"
        with self.b.when(
            self.b.compare("icmp", "ult", position, self.b.const("i64", s.var.extent))
        ):
            value = to_memory(self.b, self.at(s.value, point), self.slots[s.slot].dtype)
            self.env[s.var] = position
            self._put(s, value, point, None)
            del self.env[s.var]
        self._memo.clear()  # what was computed inside the branch is not known outside

    def _put(self, s: ln.Store, value: Value, point: Point, mask: Value | None) -> None:
        b, slot = self.b, self.slots[s.slot]
        piece = self._enter(point)
        step = self._step(s.index)
        if piece is None or step == 0:
            assert value.lanes == 1, (s.index, value)
            address, size = self._where(s.slot, s.index)
            if s.add:
                value = self._added(value, b.load(value.kind, 1, address, align=size), slot)
            b.store(value, address, align=size)
            return
        value = b.splat(value, piece.lanes)
        mask = self.active(piece) if piece.active < piece.lanes else None
        if step != 1:
            size = BITS[value.kind] // 8
            assert not s.add, s
            addresses = b.address(self.pointer(s.slot), self._lanes_of(s.index, piece), size)
            b.scatter(value, addresses, mask or b.const("i1", 1, piece.lanes), align=size)
            return
        address, size = self._where(s.slot, s.index)
        if piece.active == 1:
            # LLVM 22 writes four bytes for a masked store of one narrow lane that was truncated
            value, mask = b.extract(value, 0), None
        if mask is None:
            if s.add:
                old = b.load(value.kind, value.lanes, address, align=size)
                value = self._added(value, old, slot)
            b.store(value, address, align=size)
            return
        if s.add:
            old = b.masked_load(value.kind, piece.lanes, address, mask, align=size)
            value = self._added(value, old, slot)
        b.masked_store(value, address, mask, align=size)

    def _added(self, raw: Value, old: Value, slot: ln.Slot) -> Value:
        x, y = from_memory(self.b, old, slot.dtype), from_memory(self.b, raw, slot.dtype)
        total = self.b.op("fadd" if slot.dtype.is_float else "add", x, y)
        return to_memory(self.b, total, slot.dtype)
