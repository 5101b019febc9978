"""A kernel's buffers: their addresses, and what is kept in registers instead."""

from __future__ import annotations

import math

from frontend.dtype import DType
from frontend.instructions import indices
from frontend.instructions.indices import Env, Spot
from frontend.instructions.ir import BITS, Builder, Value
from frontend.instructions.memory import memory_kind
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.index import Index, Var

BASE_BYTES = 64
"""Every buffer begins at a multiple of this: results, temporaries and a block's own memory."""


class Buffers:
    """The slots of one kernel; staged panels are added as they are made."""

    def __init__(self, b: Builder, kernel: ln.Kernel) -> None:
        self.b = b
        self.slots = list(kernel.slots)
        self.registers: dict[int, Value] = {}
        """The values of slots that are registers, in this round of the outer loops."""
        self._pointers: dict[int, Value] = {}
        self._arguments = {slot: i for i, slot in enumerate(kernel.buffers)}

    def add_scratch(self, dtype: DType, size: int) -> int:
        """The slot of a new buffer of the block's own, padded so that a full vector may be read."""
        self.slots.append(ln.Slot(ln.Role.SCRATCH, dtype, size))
        return len(self.slots) - 1

    def kind(self, slot: int) -> str:
        """The instruction type of an element in memory."""
        return memory_kind(self.slots[slot].dtype)

    def size_bytes(self, slot: int) -> int:
        """Bytes of an element."""
        return BITS[self.kind(slot)] // 8

    def pointer(self, slot: int) -> Value:
        """The address of the first element."""
        made = self._pointers.get(slot)
        if made is None:
            if self.slots[slot].role is ln.Role.SCRATCH:
                size = self.slots[slot].size * self.size_bytes(slot) + 64
                made = self.b.scratch(f"s{slot}", size)
            else:
                made = self.b.pointer(self._arguments[slot])
            self._pointers[slot] = made
        return made

    def address(self, slot: int, index: Index, env: Env) -> Value:
        """The address of `slot[index]`, at the first lane."""
        value, constant = indices.total(self.b, index, env)
        if value is None:
            value = self.b.const("i64", 0)
        return self.b.address(self.pointer(slot), value, self.size_bytes(slot), constant)

    def alignment(self, slot: int, index: Index, env: Env) -> int:
        """Bytes, a power of two up to BASE_BYTES, that divide the address of `slot[index]`."""
        found = BASE_BYTES // self.size_bytes(slot)
        constant = index.constant
        for atom, c in index.terms:
            value = env.get(atom) if isinstance(atom, Var) else None
            if isinstance(value, int):
                constant += c * value
            else:
                found = math.gcd(found, c)
        return math.gcd(found, constant) * self.size_bytes(slot)

    def addresses(self, slot: int, index: Index, spot: Spot) -> Value:
        """The address of `slot[index]` in each lane, by 32-bit offsets from a common address.

        The index in bytes must be narrow (`indices.is_narrow`).
        """
        b, size = self.b, self.size_bytes(slot)
        common, own = indices.apart(index, spot)
        offsets = b.cast("zext", indices.narrow(b, own * size, spot), "i64")
        return b.address(self.address(slot, common, spot.env), offsets, 1)

    def always_inside(self, load: ex.Load) -> bool:
        """Whether the index cannot leave the buffer, so that reading needs no condition."""
        return load.index.low >= 0 and load.index.high < self.slots[load.slot].size
