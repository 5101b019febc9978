"""The interpreter's machine: registers as NumPy arrays, memory through `GpuMemory`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from rawgpu.amd.virtual.dispatch import Client, Dispatch, GpuMemory, Services
from rawgpu.amd.virtual.wave_memory import WaveMemory
from rawgpu.amd.virtual.wave_operands import Address, Facts
from rawgpu.amd.virtual.wave_state import EXEC, WaveState, Word
from rawgpu.virtual.directed import DirectedLanes
from rawgpu.virtual.interpret import NumpyLanes
from rawgpu.virtual.meaning import NotInEngine, Raw

LANES = NumpyLanes()


def flushed_widths(mode: int) -> frozenset[int]:
    """The float widths at which MODE flushes denormals."""
    out = set()
    if mode >> 4 & 3 != 3:
        out.add(32)
    if mode >> 6 & 3 != 3:
        out |= {16, 64}
    return frozenset(out)


@cache
def rounding_lanes(single: int, others: int) -> NumpyLanes:
    """Arithmetic that rounds float32 and the other widths in these directions."""
    if not single and not others:
        return LANES
    return DirectedLanes({16: others, 32: single, 64: others})


FP16_OVERFLOW_BIT = 23


class InterpreterMachine(WaveMemory):
    """`Machine` over a `WaveState`."""

    def __init__(
        self,
        state: WaveState,
        lds: Any,
        facts: Facts,
        dispatch: Dispatch,
        memory: GpuMemory,
        services: Services,
    ) -> None:
        super().__init__(state, lds, facts, dispatch, memory)
        self.ops = LANES
        self.services = services
        self._lane_ids = np.arange(state.lanes, dtype=np.uint32)
        self.take_mode(state.get(Word.MODE))

    def read_s(self, index: int) -> Raw:
        return self.state.s[index : index + 1].copy()

    def write_s(self, index: int, value: Raw) -> None:
        self.state.s[index] = value[0]

    def read_v(self, index: int) -> Raw:
        return self.state.v[index]

    def write_v(self, index: int, value: Raw, mask: Raw) -> None:
        if mask is None:
            self.state.v[index] = value
        else:
            np.copyto(self.state.v[index], value, where=mask)

    def read_scc(self) -> Raw:
        return np.array([self.state.get(Word.SCC) != 0])

    def write_scc(self, value: Raw) -> None:
        self.state.put(Word.SCC, int(value[0]))

    def exec_mask(self) -> Raw:
        words = self.state.s[EXEC : EXEC + self.state.lanes // 32]
        if (words == 0xFFFFFFFF).all():
            return None
        return np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)

    def mask_of_bits(self, bits: Raw) -> Raw:
        parts = np.ascontiguousarray(bits).view(np.uint8)
        return np.unpackbits(parts, bitorder="little").astype(np.bool_)

    def bits_of_mask(self, mask: Raw) -> Raw:
        kind = np.uint32 if self.state.lanes == 32 else np.uint64
        return np.packbits(mask, bitorder="little").view(kind)

    def lane_ids(self) -> Raw:
        return self._lane_ids

    def spread(self, value: Raw) -> Raw:
        return np.broadcast_to(value, (self.state.lanes,)) if len(value) == 1 else value

    def first(self, value: Raw) -> Raw:
        return value[:1]

    def own(self, value: Raw) -> Raw:
        if isinstance(value, list):
            return [part.copy() for part in value]
        return value.copy() if isinstance(value, np.ndarray) else value

    def permute(self, value: Raw, lanes: Raw) -> Raw:
        return value[self.spread(lanes)]

    def pick(self, value: Raw, lanes: list[int]) -> Raw:
        return value[lanes]

    def on_rows(
        self, function: Callable[..., Sequence[Raw]], groups: Sequence[Sequence[Raw]]
    ) -> list[Raw]:
        empty = np.zeros((0, self.state.lanes), np.uint32)
        return list(function(*(np.stack(rows) if rows else empty for rows in groups)))

    def constant_mask(self, lanes: list[bool]) -> Raw:
        return np.array(lanes)

    def lane(self, value: Raw, number: Raw) -> Raw:
        return value[number]

    def with_lane(self, value: Raw, number: Raw, scalar: Raw) -> Raw:
        changed = value.copy()
        changed[number] = scalar
        return changed

    def first_active(self) -> Raw:
        bits = self.state.exec_bits
        return np.array([(bits & -bits).bit_length() - 1 if bits else 0], np.uint32)

    # What only an interpreter can ask for: numbers.

    def number(self, value: Raw) -> int:
        """A scalar as a Python integer."""
        return int(value[0])

    def store_scalar(self, address: Address, words: Sequence[Raw]) -> None:
        va = int(address.base[0]) + address.offset & ~3
        self.memory.write(
            va, b"".join(int(w[0]).to_bytes(4, "little") for w in words), Client.SCALAR
        )

    # The rest of the machine.

    def program_counter(self, pc: int) -> Raw:
        return np.array([pc], np.uint64)

    def set_mode(self, field: int, count: int, value: int) -> None:
        self.set_mode_bits(field, count, np.array([value], np.uint32))

    def set_mode_bits(self, offset: int, count: int, value: Raw) -> None:
        ones = (1 << count) - 1
        mode = self.state.get(Word.MODE) & ~(ones << offset) | (int(value[0]) & ones) << offset
        self.state.put(Word.MODE, mode)
        self.take_mode(mode)

    def take_mode(self, mode: int) -> None:
        self.flushed_widths = flushed_widths(mode)
        self.arithmetic = rounding_lanes(mode & 3, mode >> 2 & 3)
        self.saturates_small = bool(mode >> FP16_OVERFLOW_BIT & 1)

    def hardware_register(self, number: int) -> Raw:
        if number == 1:
            return np.array([self.state.get(Word.MODE)], np.uint32)
        if number in (20, 21):  # flat scratch, low and high
            return np.array(
                [self.state.get(Word.SCRATCH) >> 32 * (number - 20) & 0xFFFFFFFF], np.uint32
            )
        if number == 29:  # shader cycles
            return np.array([self.services.clock() & 0xFFFFF], np.uint32)
        return np.zeros(1, np.uint32)

    def clock(self) -> Raw:
        return np.array([self.services.clock() & ((1 << 64) - 1)], np.uint64)

    def message(self, kind: int) -> Raw:
        if self.facts.message_returns and kind >= 128:
            if kind == 131:  # real time
                return self.clock()
            raise NotInEngine(f"s_sendmsg_rtn {kind}")
        self.services.message(kind, int(self.state.s[self.facts.m0]))
        return np.zeros(1, np.uint32)

    def load_scalar_bytes(self, va: int, size_bytes: int) -> bytes:
        return self.memory.read(va, size_bytes, Client.SCALAR)
