"""Kernels to instructions: loops in order, the innermost tile written out, sums in registers.

The order of work inside one nest:

1. grid and sequential output loops (`_open`); a split that does not divide runs its last round on
   its own, with the inner loop shortened, so no element is ever masked out of a full tile;
2. accumulators for every point of the tile, then the reduction loops, which carry them;
3. the tile: unrolled and vector loops written out, each expression computed once for the points
   that share it (`points.py` enumerates, `Values` computes);
4. partial sums of a reduction axis inside the tile are combined in a fixed tree; then the stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frontend.dtype import int32 as _INT32
from frontend.graph.node import Op
from frontend.instructions import arith
from frontend.instructions.ir import BITS, Builder, Region, Value
from frontend.instructions.memory import compute_kind
from frontend.instructions.points import Piece, Point, points
from frontend.instructions.values import Values
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops import stages
from frontend.loops.index import Index, Var
from frontend.loops.machine import Machine

Extents = dict[str, int]
_TILE = (ln.Kind.UNROLL, ln.Kind.VECTOR)
_ARG = (Op.ARGMAX, Op.ARGMIN)


def lower(kernel: ln.Kernel, machine: Machine) -> tuple[Region, int]:
    """The kernel's instructions and the number of its grid blocks."""
    lowering = _Lowering(kernel, machine)
    lowering.run()
    return lowering.b.finish(), lowering.blocks


class _Lowering:
    def __init__(self, kernel: ln.Kernel, machine: Machine) -> None:
        self.kernel = kernel
        self.machine = machine
        self.b = Builder()
        self.values = Values(self.b, kernel, machine)
        self.blocks = 1

    def run(self) -> None:
        outer = ln.apply(self.kernel.outer, (), self.kernel.outer_steps)
        extents = {v.name: v.extent for v in self.kernel.outer}
        self._grid(outer)
        self._open(outer, 0, extents, lambda _: self._nests(outer))

    def _nests(self, outer: ln.Loops) -> None:
        for nest in self.kernel.nests:
            _Nest(self, nest, outer.values).run()
            if len(self.kernel.nests) > 1:
                self.b.fence()

    def _grid(self, loops: ln.Loops) -> None:
        """Give each grid loop its place in the linear block number."""
        grid = [lo for lo in loops.order if lo.kind is ln.Kind.GRID]
        if not grid:
            return
        assert self.blocks == 1, "one group of grid loops a kernel"
        position = self.b.grid_index()
        for loop in reversed(grid):
            extent = loop.var.extent
            bound = self.b.const("i64", extent)
            inner_most = self.blocks * extent == _grid_size(grid)
            value = position if inner_most else self.b.op("urem", position, bound)
            position = self.b.op("udiv", position, bound)
            self.values.env[loop.var] = value
            self.blocks *= extent

    def _open(
        self, loops: ln.Loops, at: int, extents: Extents, body: Callable[[Extents], None]
    ) -> None:
        """Open the grid and output loops from number `at` on; `body` runs inside them all."""
        loop = loops.order[at] if at < len(loops.order) else None
        if loop is None or loop.reduce or loop.kind in _TILE:
            body(extents)
            return
        self._round(loops, loop, extents, lambda inside: self._open(loops, at + 1, inside, body))

    def _round(
        self, loops: ln.Loops, loop: ln.Loop, extents: Extents, body: Callable[[Extents], None]
    ) -> None:
        """Run `body` in the full rounds of `loop`, then in the shorter last one."""
        full, rest, inner, factor = rounds(loops, loop, extents)
        if loop.kind is ln.Kind.GRID:
            self._grid_round(loop, full, rest, inner, factor, extents, body)
            return
        if full:
            inside = extents | {inner: factor} if inner else extents
            self._repeat(loop.var, full, lambda: body(inside))
        if rest:
            assert inner is not None
            self.values.env[loop.var] = full
            body(extents | {inner: rest})

    def _repeat(self, var: Var, count: int, body: Callable[[], None]) -> None:
        if count == 1:
            self.values.env[var] = 0
            body()
            return
        with self.b.loop(self.b.const("i64", 0), self.b.const("i64", count), 1) as loop:
            self.values.env[var] = loop.index
            body()

    def _grid_round(
        self,
        loop: ln.Loop,
        full: int,
        rest: int,
        inner: str | None,
        factor: int,
        extents: Extents,
        body: Callable[[Extents], None],
    ) -> None:
        inside = extents | {inner: factor} if inner else extents
        if not rest:
            body(inside)
            return
        assert inner is not None
        value = self.values.env[loop.var]
        assert isinstance(value, Value)
        bound = self.b.const("i64", full)
        if full:
            with self.b.when(self.b.compare("icmp", "slt", value, bound)):
                body(inside)
        with self.b.when(self.b.compare("icmp", "eq", value, bound)):
            self.values.env[loop.var] = full
            body(extents | {inner: rest})
        self.values.env[loop.var] = value


def _grid_size(grid: Sequence[ln.Loop]) -> int:
    return math.prod(loop.var.extent for loop in grid)


def rounds(loops: ln.Loops, loop: ln.Loop, extents: Extents) -> tuple[int, int, str | None, int]:
    """(full rounds, elements of a shorter last round, inner loop, its extent in a full round)."""
    name = loops.outer_of.get(loop.name)
    if name is None:
        return extents.get(loop.name, loop.var.extent), 0, None, 0
    _, inner, factor = loops.splits[name]
    full, rest = divmod(extents[name], factor)
    return full, rest, inner, factor


def _adds_nothing(r: ln.Reduction, value: ex.Expr) -> bool:
    """Whether folding `value` in leaves every result as it is."""
    if r.kind in _ARG or not isinstance(value, ex.Constant):
        return False
    return value.value == ln.identity(r.kind, r.dtype)


@dataclass
class _Accumulators:
    """Partial results in registers: (reduction, tile point) → its components."""

    held: dict[tuple[int, Point], tuple[Value, ...]]

    def flat(self) -> list[Value]:
        return [v for parts in self.held.values() for v in parts]

    def refill(self, flat: Sequence[Value]) -> None:
        at = 0
        for key, parts in self.held.items():
            self.held[key] = tuple(flat[at : at + len(parts)])
            at += len(parts)


class _Nest:
    """Lowers one nest inside the loops that are open already."""

    def __init__(self, owner: _Lowering, nest: ln.Nest, outer: dict[Var, Index]) -> None:
        self.owner, self.b, self.values = owner, owner.b, owner.values
        self.loops = ln.apply(nest.axes, nest.reduce, nest.steps)
        self.source = nest
        self.outer = outer
        stages.check(nest, self.loops, self.values.slots, outer)
        self.rename = {**outer, **self.loops.values}
        self.accumulators = _Accumulators({})
        self.staged: dict[ex.Load, ex.Load] = {}
        self._substitute()

    def _substitute(self) -> None:
        change = ex.Substitution(self.rename, self.staged)
        self.reductions = [(r, change(r.value)) for r in self.source.reductions]
        self.inner = [self._renamed(s, change) for s in self.source.inner]
        self.stores = [self._renamed(s, change) for s in self.source.stores]
        self.lanes = self._vector_lanes()

    def _vector_lanes(self) -> int:
        """Lanes of a full vector, by the widest element that differs from lane to lane."""
        vector = next((lo.var for lo in self.loops.order if lo.kind is ln.Kind.VECTOR), None)
        if vector is None:
            return 1
        roots = [value for _, value in self.reductions]
        roots += [s.value for s in (*self.inner, *self.stores)]
        varying = [e.dtype for e in ex.walk(tuple(roots)) if vector in e.variables]
        bits = max((BITS[compute_kind(d)] for d in varying if d.kind != "b"), default=8)
        return self.owner.machine.lanes(bits)

    def _renamed(self, s: ln.Store, change: ex.Substitution) -> ln.Store:
        position = None if s.position is None else change(s.position)
        index = s.index.substitute(self.rename)
        return ln.Store(s.slot, index, change(s.value), s.add, s.var, position)

    def run(self) -> None:
        if any(lo.kind is ln.Kind.GRID for lo in self.loops.order):
            self.owner._grid(self.loops)
        extents = {v.name: v.extent for v in (*self.source.axes, *self.source.reduce)}
        self._outputs(0, extents)

    def _outputs(self, at: int, extents: Extents) -> None:
        order = self.loops.order
        name = order[at].name if at < len(order) else ""
        for stage in self.loops.stages:
            if stage.at == name:
                self._stage(stage, extents)
        if at == len(order) or order[at].reduce or order[at].kind in _TILE:
            self._body(at, extents)
            return
        self.owner._round(
            self.loops, order[at], extents, lambda inside: self._outputs(at + 1, inside)
        )

    # --- staging ---------------------------------------------------------------------------------

    def _stage(self, stage: ln.Stage, extents: Extents) -> None:
        """Copy what the loops inside read of one buffer, and read the copy from then on."""
        dtype = self.owner.kernel.slots[stage.slot].dtype
        panel = self.values.add_scratch(dtype, stages.panel_size(stage, self.loops))
        copy = stages.copy_of(stage, self.source, self.loops, self.outer, extents, panel)
        self.b.fence()
        _Nest(self.owner, copy.nest, {}).run()
        self.b.fence()
        self.staged |= copy.reads
        self._substitute()

    # --- reductions and tiles --------------------------------------------------------------------

    def _body(self, at: int, extents: Extents) -> None:
        order = self.loops.order
        first_tile = next((i for i in range(at, len(order)) if order[i].kind in _TILE), len(order))
        self.tile = order[first_tile:]
        self.outputs = [lo for lo in self.tile if not lo.reduce]
        self.scans_lanes = bool(self.source.ordered) and any(lo.reduce for lo in self.tile)
        if not self.source.reduce:
            self.values.begin(self.tile, extents)
            self._store_all(self.stores, self._points(self.tile, extents))
            return
        self._start(extents)
        self._reduce(at, first_tile, extents)
        if self.stores:
            self._finish(extents)

    def _lanes(self, point: Point) -> int:
        return next((c.lanes for c in point if isinstance(c, Piece)), 1)

    def _start(self, extents: Extents) -> None:
        b = self.b
        held: dict[tuple[int, Point], tuple[Value, ...]] = {}
        everywhere = [p for wide in self._variants(extents) for p in self._points(self.tile, wide)]
        for i, (r, value) in enumerate(self.reductions):
            first = ln.identity(r.kind, value.dtype if r.kind in _ARG else r.dtype)
            for point in everywhere:
                key = (i, self._key(point))
                lanes = 1 if self.scans_lanes else self._lanes(point)
                init = b.const(
                    compute_kind(value.dtype if r.kind in _ARG else r.dtype), first, lanes
                )
                held[key] = (init, b.const("i32", 0, lanes)) if r.kind in _ARG else (init,)
        self.accumulators = _Accumulators(held)

    def _variants(self, extents: Extents) -> list[Extents]:
        """The tile's extents in every round of the reduction loops, full or shorter."""
        variants = [dict(extents)]
        for loop in self.tile:
            if loop.reduce and loop.name not in extents:
                sizes = sorted(self._sizes(loop.name, extents), reverse=True)
                variants = [v | {loop.name: size} for v in variants for size in sizes]
        return variants

    def _sizes(self, name: str, extents: Extents) -> set[int]:
        """The extents that a loop, or what was split into loops, can have."""
        if name in extents:
            return {extents[name]}
        for whole, (outer, inner, factor) in self.loops.splits.items():
            if name in (outer, inner):
                sizes = self._sizes(whole, extents)
                if name == outer:
                    return {-(-size // factor) for size in sizes}
                full = {factor} if any(size >= factor for size in sizes) else set()
                return full | {size % factor for size in sizes if size % factor}
        return {self.loops.extent(name)}

    def _points(self, tile: Sequence[ln.Loop], extents: Extents) -> list[Point]:
        return points(self.loops, tile, extents, self.lanes, masked=self.owner.machine.masked)

    def _key(self, point: Point) -> Point:
        """A point without its active lanes: a shorter last round adds to the same accumulators."""
        if self.scans_lanes:  # one running value, whatever lanes the round has
            return tuple(c for lo, c in zip(self.tile, point, strict=True) if not lo.reduce)
        return tuple(Piece(c.start, c.lanes, c.lanes) if isinstance(c, Piece) else c for c in point)

    def _reduce(self, at: int, first_tile: int, extents: Extents) -> None:
        if at == first_tile:
            self._update(extents)
            return
        loop = self.loops.order[at]
        full, rest, inner, factor = rounds(self.loops, loop, extents)
        inside = extents | {inner: factor} if inner else extents
        if loop.kind is ln.Kind.CHAIN:
            for i in range(full):
                self.values.env[loop.var] = i
                self._reduce(at + 1, first_tile, inside)
        elif full == 1:
            self.values.env[loop.var] = 0
            self._reduce(at + 1, first_tile, inside)
        elif full:
            zero, stop = self.b.const("i64", 0), self.b.const("i64", full)
            with self.b.loop(zero, stop, 1, self.accumulators.flat()) as opened:
                self.values.env[loop.var] = opened.index
                self.accumulators.refill(opened.carried)
                self._reduce(at + 1, first_tile, inside)
                opened.next = self.accumulators.flat()
            self.accumulators.refill(opened.results)
        if rest:
            assert inner is not None
            self.values.env[loop.var] = full
            self._reduce(at + 1, first_tile, extents | {inner: rest})

    def _update(self, extents: Extents) -> None:
        self.values.begin(self.tile, extents)
        for point in self._points(self.tile, extents):
            running: list[Value] = []
            for i, (r, value) in enumerate(self.reductions):
                key = (i, self._key(point))
                old = self.accumulators.held[key]
                if self.scans_lanes:
                    piece = next(c for c in point if isinstance(c, Piece))
                    lanes = self.b.splat(self.values.at(value, point), piece.lanes)
                    running.append(self._scanned(r, old[0], lanes))
                    carried = self.b.extract(running[-1], piece.active - 1)
                    self.accumulators.held[key] = (carried,)
                    continue
                self.accumulators.held[key] = self._fold(r, old, value, point)
                running.append(self.accumulators.held[key][0])
            if self.source.inner:
                self.values.set_accumulated(running)
                self._store_all(self.inner, [point])

    def _fold(
        self, r: ln.Reduction, old: tuple[Value, ...], value: ex.Expr, point: Point
    ) -> tuple[Value, ...]:
        b = self.b
        if isinstance(value, ex.Masked) and _adds_nothing(r, value.otherwise):
            holds = self.values.holds(value, point)
            with self.values.assuming(holds):
                new = self._fold(r, old, value.value, point)
            return tuple(b.select(holds, n, o) for n, o in zip(new, old, strict=True))
        if r.kind in _ARG:
            assert r.axis is not None
            position = ex.IndexValue(self.rename[r.axis], _INT32)
            new = self.values.at(value, point), self.values.at(position, point)
            kept = self._merge_arg(r, value, old, new, first_wins=True)
            return self._only_active(kept, old, point)
        fused = self._fused(r, old[0], value, point)
        if fused is None:
            name = arith.combine_name(r.kind, r.dtype)
            fused = b.op(name, old[0], self.values.at(value, point))
        return self._only_active((fused,), old, point)

    def _fused(self, r: ln.Reduction, old: Value, value: ex.Expr, point: Point) -> Value | None:
        """A sum of products of floats as one fused instruction."""
        if (
            r.kind is Op.SUM
            and r.dtype.is_float
            and isinstance(value, ex.Alu)
            and value.op is Op.MUL
        ):
            a, b = (self.values.at(part, point) for part in value.args)
            return self.b.fma(a, b, old)
        return None

    def _scanned(self, r: ln.Reduction, before: Value, x: Value) -> Value:
        """Running values of the lanes of `x`, after the running value `before`.

        Each of log2(lanes) rounds adds the lane 1, 2, 4, … before, where there is one.
        """
        b, lanes = self.b, x.lanes
        name = arith.combine_name(r.kind, r.dtype)
        nothing = b.const(x.kind, ln.identity(r.kind, r.dtype), lanes)
        distance = 1
        while distance < lanes:
            moved = b.shuffle(nothing, x, [lanes + i - distance for i in range(lanes)])
            x = b.op(name, moved, x)
            distance *= 2
        return b.op(name, before, x)

    def _only_active(
        self, new: tuple[Value, ...], old: tuple[Value, ...], point: Point
    ) -> tuple[Value, ...]:
        """Lanes past the end of a reduction axis keep their old value."""
        for loop, c in zip(self.tile, point, strict=True):
            if isinstance(c, Piece) and loop.reduce and c.active < c.lanes:
                mask = self.values.active(c)
                return tuple(self.b.select(mask, n, o) for n, o in zip(new, old, strict=True))
        return new

    def _merge_arg(
        self,
        r: ln.Reduction,
        value: ex.Expr,
        old: tuple[Value, ...],
        new: tuple[Value, ...],
        *,
        first_wins: bool,
    ) -> tuple[Value, ...]:
        """The better of two (value, position) pairs.

        NaN beats all. Among equal values the lower position wins; `first_wins`: `old` has it.
        """
        b = self.b
        (x, i), (y, j) = old, new
        greater = "gt" if r.kind is Op.ARGMAX else "lt"
        if value.dtype.is_float:
            better = b.compare("fcmp", f"u{greater}", y, x)
            better = b.op("and", better, b.compare("fcmp", "ord", x, x))
            same = b.compare("fcmp", "oeq", x, y)
            both_nan = b.op("and", b.compare("fcmp", "uno", x, x), b.compare("fcmp", "uno", y, y))
            same = b.op("or", same, both_nan)
        else:
            sign = "s" if value.dtype.kind == "i" else "u"
            better = b.compare("icmp", sign + greater, y, x)
            same = b.compare("icmp", "eq", x, y)
        if not first_wins:
            earlier = b.compare("icmp", "slt", j, i)
            better = b.op("or", better, b.op("and", same, earlier))
        return b.select(better, y, x), b.select(better, j, i)

    def _finish(self, extents: Extents) -> None:
        """Combine what the tile held apart, then store."""
        combined: dict[tuple[int, Point], Value] = {}
        groups: dict[tuple[int, Point], list[tuple[Value, ...]]] = {}
        for (i, point), parts in self.accumulators.held.items():
            kept = tuple(c for lo, c in zip(self.tile, point, strict=True) if not lo.reduce)
            groups.setdefault((i, kept), []).append(parts)
        across = any(lo.reduce and lo.kind is ln.Kind.VECTOR for lo in self.tile)
        for (i, kept), partial in groups.items():
            combined[i, kept] = self._combine(i, partial, across)
        self.values.begin(self.outputs, extents)
        for point in self._points(self.outputs, extents):
            key = self._key(point)
            self.values.set_accumulated([combined[i, key] for i in range(len(self.reductions))])
            self._store_all(self.stores, [point])

    def _combine(self, i: int, parts: list[tuple[Value, ...]], across: bool) -> Value:
        r, value = self.reductions[i]
        widest = max(p[0].lanes for p in parts)
        narrow = [p for p in parts if p[0].lanes < widest]
        parts = [p for p in parts if p[0].lanes == widest]
        while len(parts) > 1:
            half = (len(parts) + 1) // 2
            merged = [
                self._merge(r, value, a, c)
                for a, c in zip(parts[:half], parts[half:], strict=False)
            ]
            parts = merged + parts[len(merged) : half]
        whole = self._across(r, value, parts[0]) if across else parts[0]
        for p in narrow:
            whole = self._merge(r, value, whole, self._across(r, value, p))
        if r.kind in _ARG:
            return self.b.cast("sext", whole[1], "i64")
        return whole[0]

    def _merge(
        self, r: ln.Reduction, value: ex.Expr, a: tuple[Value, ...], c: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        if r.kind in _ARG:
            return self._merge_arg(r, value, a, c, first_wins=False)
        return (self.b.op(arith.combine_name(r.kind, r.dtype), a[0], c[0]),)

    def _across(
        self, r: ln.Reduction, value: ex.Expr, parts: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """One result from all lanes."""
        b = self.b
        if r.kind not in _ARG:
            return (b.combine(arith.combine_name(r.kind, r.dtype), parts[0]),)
        while parts[0].lanes > 1:
            half = parts[0].lanes // 2
            low = tuple(b.shuffle(p, p, range(half)) for p in parts)
            high = tuple(b.shuffle(p, p, range(half, 2 * half)) for p in parts)
            parts = self._merge_arg(r, value, low, high, first_wins=False)
        return parts

    # --- stores ----------------------------------------------------------------------------------

    def _store_all(self, stores: Sequence[ln.Store], where: Sequence[Point]) -> None:
        """All values first, then all stores: loads of a tile are not held up by its stores."""
        where = list(where)
        if self.source.ordered or any(s.position is not None or s.add for s in stores):
            for point in where:
                for store in stores:
                    self.values.store(store, point)
            return
        for store in stores:
            for point in where:
                self.values.at(store.value, point)
        for store in stores:
            for point in where:
                self.values.store(store, point)
