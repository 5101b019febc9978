"""How results are stored: one element, neighbours or a scatter, plain or added to memory."""

from __future__ import annotations

from frontend.instructions import indices
from frontend.instructions.buffers import Buffers
from frontend.instructions.indices import Spot
from frontend.instructions.ir import Value
from frontend.instructions.memory import from_memory, to_memory
from frontend.instructions.points import Piece
from frontend.instructions.values import Values
from frontend.loops import nest as ln

LEAST_STREAMED_BYTES = 16
"""Vectors below that are no faster past the caches."""


def store(values: Values, s: ln.Store, spot: Spot, *, streaming: bool = False) -> None:
    """Carry out a store at a spot; lanes past the end are left alone.

    `streaming`: past the caches, where that can be.
    """
    buffers = values.buffers
    if buffers.slots[s.slot].role is ln.Role.REGISTER:
        buffers.registers[s.slot] = values.at(s.value, spot)
        return
    if s.position is not None:
        _store_at_position(values, s, spot)
        return
    value = to_memory(values.b, values.at(s.value, spot), buffers.slots[s.slot].dtype)
    _put(values, s, value, spot, streaming=streaming)


def _store_at_position(values: Values, s: ln.Store, spot: Spot) -> None:
    assert s.position is not None and s.var is not None
    b, buffers = values.b, values.buffers
    position = values.position(s.position, spot)
    assert position.lanes == 1, "a scatter's position is the same in all lanes"
    with b.when(b.compare("icmp", "ult", position, b.const("i64", s.var.extent))):
        value = to_memory(b, values.fresh().at(s.value, spot), buffers.slots[s.slot].dtype)
        _put(values, s, value, spot.binding(s.var, position))


def _put(values: Values, s: ln.Store, value: Value, spot: Spot, *, streaming: bool = False) -> None:
    buffers = values.buffers
    b, piece, step = buffers.b, spot.piece, indices.step(s.index, spot)
    size = buffers.size_bytes(s.slot)
    if piece is not None and step not in (0, 1):
        assert not s.add, s
        mask = indices.active(b, piece) if piece.active < piece.lanes else b.const("i1", 1)
        if values.wide_lanes or not indices.is_narrow(s.index * size):
            where = indices.lanes(b, s.index, spot)
            addresses = b.address(buffers.pointer(s.slot), where, size)
        else:
            addresses = buffers.addresses(s.slot, s.index, spot)
        b.scatter(b.splat(value, piece.lanes), addresses, mask, align=size)
        return
    address = buffers.address(s.slot, s.index, spot.env)
    if piece is None or step == 0:
        assert value.lanes == 1, (s.index, value)
    else:
        value = b.splat(value, piece.lanes)
        if piece.active < piece.lanes:
            _put_active(buffers, s, value, address, piece)
            return
    if s.add:
        old = b.load(value.kind, value.lanes, address, align=size)
        value = _added(buffers, s.slot, value, old)
    elif streaming and (whole := value.lanes * size) >= LEAST_STREAMED_BYTES:
        if buffers.alignment(s.slot, s.index, spot.env) % whole == 0:
            b.store(value, address, align=whole, streaming=True)
            return
    b.store(value, address, align=size)


def _put_active(buffers: Buffers, s: ln.Store, value: Value, address: Value, piece: Piece) -> None:
    """Store the lanes that exist."""
    b, size = buffers.b, buffers.size_bytes(s.slot)
    if piece.active == 1:
        # LLVM 22 writes four bytes for a masked store of one narrow lane that was truncated
        value = b.extract(value, 0)
        if s.add:
            value = _added(buffers, s.slot, value, b.load(value.kind, 1, address, align=size))
        b.store(value, address, align=size)
        return
    mask = indices.active(b, piece)
    if s.add:
        old = b.masked_load(value.kind, piece.lanes, address, mask, align=size)
        value = _added(buffers, s.slot, value, old)
    b.masked_store(value, address, mask, align=size)


def _added(buffers: Buffers, slot: int, raw: Value, old: Value) -> Value:
    b, dtype = buffers.b, buffers.slots[slot].dtype
    x, y = from_memory(b, old, dtype), from_memory(b, raw, dtype)
    total = b.op("fadd" if dtype.is_float else "add", x, y)
    return to_memory(b, total, dtype)
