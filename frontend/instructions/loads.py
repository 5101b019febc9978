"""How an element, or a vector of them, is read: by the vector loop's place in the index.

No part in it: one scalar for all lanes. Step 1: neighbours. Step -1: neighbours reversed. Steps 2
to 4: whole rows, and their lanes picked out. Otherwise a gather, unless an unrolled loop runs along
the buffer: then a square of vectors is loaded along that loop and transposed in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from frontend.instructions import indices
from frontend.instructions.buffers import Buffers
from frontend.instructions.indices import Env, Spot
from frontend.instructions.ir import Value
from frontend.instructions.memory import from_memory
from frontend.instructions.points import Piece
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.index import Var

LINE_BYTES = 64
"""What one prefetch brings, at least."""


class Loads:
    """Reads buffers at spots of one tile. `extents`: how far its loops run.

    `ahead_bytes`: how far ahead rows of a slot are prefetched.
    """

    def __init__(
        self,
        buffers: Buffers,
        tile: Sequence[ln.Loop],
        extents: Mapping[str, int],
        *,
        shuffles: bool,
        ahead_bytes: Mapping[int, int],
    ) -> None:
        self._buffers, self._tile, self._extents = buffers, tile, extents
        self._ahead_bytes = ahead_bytes
        self._shuffles = shuffles
        self._b = buffers.b
        self._squares: dict[tuple[object, ...], list[Value]] = {}

    def __call__(self, e: ex.Load, spot: Spot) -> Value:
        slot = self._buffers.slots[e.slot]
        if slot.role is ln.Role.REGISTER:
            return self._buffers.registers[e.slot]
        piece, step = spot.piece, indices.step(e.index, spot)
        if piece is None or step == 0:
            raw = self._scalar(e, spot)
        elif step == 1:
            raw = self._row(e, spot, piece)
        else:
            raw = (
                self._transposed(e, spot, piece, step)
                or self._reversed(e, spot, piece, step)
                or self._every(e, spot, piece, step)
                or self._gather(e, spot, piece)
            )
        return from_memory(self._b, raw, slot.dtype)

    def _invariant(self, e: ex.Load) -> bool:
        """Whether nothing writes the buffer while the kernel runs."""
        return self._buffers.slots[e.slot].role is ln.Role.INPUT

    def _scalar(self, e: ex.Load, spot: Spot) -> Value:
        b, held = self._b, self._buffers
        kind, size = held.kind(e.slot), held.size_bytes(e.slot)
        address = held.address(e.slot, e.index, spot.env)
        if spot.predicate is None or held.always_inside(e):
            return b.load(kind, 1, address, align=size, invariant=self._invariant(e))
        position = indices.scalar(b, e.index, spot.env)
        inside = b.compare("icmp", "ult", position, b.const("i64", held.slots[e.slot].size))
        safe = b.select(inside, address, held.pointer(e.slot))
        return b.load(kind, 1, safe, align=size)

    def _row(self, e: ex.Load, spot: Spot, piece: Piece) -> Value:
        b, held = self._b, self._buffers
        if not self._shuffles and (partial := self._of_lanes(e, spot, piece, masked_only=True)):
            return partial
        kind, size = held.kind(e.slot), held.size_bytes(e.slot)
        address = held.address(e.slot, e.index, spot.env)
        mask = None if held.always_inside(e) else spot.predicate
        padded = held.slots[e.slot].role is ln.Role.SCRATCH
        if piece.active < piece.lanes and not padded:
            active = indices.active(b, piece)
            mask = active if mask is None else b.op("and", mask, active)
        if mask is None:
            ahead = self._ahead_bytes.get(e.slot)
            if ahead and piece.start * size % LINE_BYTES == 0:
                b.prefetch(held.address(e.slot, e.index + ahead // size, spot.env))
            return b.load(kind, piece.lanes, address, align=size, invariant=self._invariant(e))
        return b.masked_load(kind, piece.lanes, address, mask, align=size)

    def _reversed(self, e: ex.Load, spot: Spot, piece: Piece, step: int | None) -> Value | None:
        """Neighbours in descending order."""
        partial = spot.predicate is not None or piece.active < piece.lanes
        if step != -1 or partial or not self._shuffles:
            return None
        held = self._buffers
        address = held.address(e.slot, e.index - (piece.lanes - 1), spot.env)
        row = self._b.load(
            held.kind(e.slot),
            piece.lanes,
            address,
            align=held.size_bytes(e.slot),
            invariant=self._invariant(e),
        )
        return self._b.shuffle(row, row, range(piece.lanes - 1, -1, -1))

    def _every(self, e: ex.Load, spot: Spot, piece: Piece, step: int | None) -> Value | None:
        """Every second to fourth element: whole rows, and their lanes picked out.

        Reads up to `step` - 1 elements past the last one needed, which the padding of buffers
        allows.
        """
        if step not in (2, 3, 4) or spot.predicate is not None or not self._shuffles:
            return None
        b, count = self._b, piece.lanes
        kind, size = self._buffers.kind(e.slot), self._buffers.size_bytes(e.slot)
        needed = (piece.active - 1) * step + 1
        picked: Value | None = None
        for number in range(step):
            first = number * count
            if first >= needed:
                break
            address = self._buffers.address(e.slot, e.index + first, spot.env)
            if first + count <= (piece.active - 1) * step + step:
                row = b.load(kind, count, address, align=size, invariant=self._invariant(e))
            else:
                mask = indices.active(b, Piece(0, count, needed - first))
                row = b.masked_load(kind, count, address, mask, align=size)
            picks = [
                count + i * step - first if first <= i * step < first + count else i
                for i in range(count)
            ]
            picked = b.shuffle(picked or row, row, picks)
        return picked

    def _of_lanes(
        self, e: ex.Load, spot: Spot, piece: Piece, *, masked_only: bool = False
    ) -> Value | None:
        """One element for each lane by 32-bit offsets, where they reach.

        A lane that should not read reads the first element: what is done under a predicate is
        dropped where that does not hold, and so is what lanes past the end compute.
        """
        b, held = self._b, self._buffers
        kind, size = held.kind(e.slot), held.size_bytes(e.slot)
        mask = None if held.always_inside(e) else spot.predicate
        if piece.active < piece.lanes and held.slots[e.slot].role is not ln.Role.SCRATCH:
            active = indices.active(b, piece)
            mask = active if mask is None else b.op("and", mask, active)
        offset = e.index * size
        if not indices.is_narrow(offset) or (masked_only and mask is None):
            return None
        if mask is None:
            addresses = held.addresses(e.slot, e.index, spot)
        else:
            inside = b.select(mask, indices.narrow(b, offset, spot), b.const("i32", 0))
            offsets = b.cast("zext", b.splat(inside, piece.lanes), "i64")
            addresses = b.address(held.pointer(e.slot), offsets, 1)
        return b.gather(kind, addresses, b.const("i1", 1, piece.lanes), align=size)

    def _gather(self, e: ex.Load, spot: Spot, piece: Piece) -> Value:
        b, held = self._b, self._buffers
        if not self._shuffles and (found := self._of_lanes(e, spot, piece)):
            return found
        size = held.size_bytes(e.slot)
        mask = b.const("i1", 1, piece.lanes)
        if piece.active < piece.lanes:
            mask = indices.active(b, piece)
        if spot.predicate is not None and not held.always_inside(e):
            mask = b.op("and", mask, spot.predicate)
        where = indices.lanes(b, e.index, spot)
        addresses = b.address(held.pointer(e.slot), where, size)
        return b.gather(held.kind(e.slot), addresses, mask, align=size)

    def _transposed(self, e: ex.Load, spot: Spot, piece: Piece, step: int | None) -> Value | None:
        """A column of a square that is loaded by rows along an unrolled loop."""
        partial = spot.predicate is not None or piece.active < piece.lanes
        if partial or step is None or not self._shuffles:
            return None
        for at, loop in enumerate(self._tile):
            c = spot.point[at]
            if isinstance(c, Piece) or e.index.coefficient(loop.var) != 1:
                continue
            first = c - c % piece.lanes
            if first + piece.lanes > self._extents.get(loop.name, loop.var.extent):
                continue
            key = (e, first, *(p for i, p in enumerate(spot.point) if i != at))
            if key not in self._squares:
                along = spot.binding(loop.var, first)
                self._squares[key] = self._square(e, along.env, spot.vector, piece)
            return self._squares[key][c - first]
        return None

    def _square(self, e: ex.Load, env: Env, vector: Var | None, piece: Piece) -> list[Value]:
        """Rows of a square, one for each lane, turned so that each holds a column."""
        b, count = self._b, piece.lanes
        kind, size = self._buffers.kind(e.slot), self._buffers.size_bytes(e.slot)
        assert vector is not None
        rows = []
        for j in range(count):
            address = self._buffers.address(e.slot, e.index, {**env, vector: piece.start + j})
            rows.append(b.load(kind, count, address, align=size))
        bit = 1
        while bit < count:
            for i in range(count):
                if not i & bit:
                    low, high = rows[i], rows[i | bit]
                    picks = [count + (c ^ bit) if c & bit else c for c in range(count)]
                    rows[i] = b.shuffle(low, high, picks)
                    picks = [count + c if c & bit else c | bit for c in range(count)]
                    rows[i | bit] = b.shuffle(low, high, picks)
            bit *= 2
        return rows
