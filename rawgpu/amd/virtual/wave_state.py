"""The state of a wave, in memory that the interpreter and native code share; and how it begins.

One block a wave: scalar registers, a few words of the machine's own (`Word`), vector registers. The
interpreter sees NumPy arrays over it, lifted code loads and stores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from rawgpu.amd.spec.waves import WaveTraits, wave_traits
from rawgpu.amd.virtual.dispatch import Dispatch, Services
from rawgpu.amd.virtual.wave_operands import Facts

SGPRS = 128
EXEC, VCC = 126, 106
TTMP = 108
VECTOR_OFFSET = 1024
VECTORS = 512
"""256 vector registers, then 256 accumulators."""


class Word(IntEnum):
    """Byte offsets of 64-bit words after the scalar registers."""

    SCC = 512
    PC = 520
    """Offset of the next instruction from the start of the code."""
    FUEL = 528
    """Back edges until native code returns."""
    DELTA = 536
    LIMIT = 544
    LDS = 552
    LDS_BYTES = 560
    SCRATCH = 568
    """The GPU address of this wave's scratch."""
    MODE = 576
    FAULT_PC = 584
    FAULT_ADDRESS = 592
    CODE = 600
    """The GPU address of the code."""
    COUNT = 608
    """Wave instructions executed by native code."""


class WaveState:
    """Registers. `s` and `v` are views of the block."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.block = np.zeros(VECTOR_OFFSET + VECTORS * lanes * 4 + 64, np.uint8)
        skip = -self.block.ctypes.data % 64
        self.address = self.block.ctypes.data + skip
        body = self.block[skip:]
        self.s: Any = body[: SGPRS * 4].view(np.uint32)
        self.words: Any = body[:VECTOR_OFFSET].view(np.uint64)
        end = VECTOR_OFFSET + VECTORS * lanes * 4
        self.v: Any = body[VECTOR_OFFSET:end].view(np.uint32).reshape(VECTORS, lanes)

    def get(self, word: Word) -> int:
        return int(self.words[word // 8])

    def put(self, word: Word, value: int) -> None:
        self.words[word // 8] = value & ((1 << 64) - 1)

    @property
    def exec_bits(self) -> int:
        low = int(self.s[EXEC])
        return low | int(self.s[EXEC + 1]) << 32 if self.lanes == 64 else low


def facts_of(dispatch: Dispatch) -> Facts:
    traits = wave_traits(dispatch.generation)
    return Facts(
        family=traits.family,
        wave=dispatch.wave_size,
        m0=traits.m0,
        null=traits.null,
        zeroes_high_half=traits.zeroes_high_half,
        dx10_clamp=dispatch.dx10_clamp or traits.always_clamps,
        apertures=dispatch.apertures,
        message_returns=traits.message_returns,
        swizzles_linear_buffers=traits.swizzles_linear_buffers,
    )


@dataclass(frozen=True)
class GroupPlace:
    """Where a work-group is: its ids, and how many work-items it has in each dimension."""

    ids: tuple[int, int, int]
    size: tuple[int, int, int]

    @property
    def items(self) -> int:
        x, y, z = self.size
        return x * y * z


def place_of(dispatch: Dispatch, number: int) -> GroupPlace:
    """The `number`th group of a dispatch, x running fastest."""
    counts, at = dispatch.groups, []
    for count in counts:
        number, rest = divmod(number, count)
        at.append(rest)
    size = [
        partial if partial and i == count - 1 else full
        for i, count, partial, full in zip(
            at, counts, dispatch.partial, dispatch.group_size, strict=True
        )
    ]
    ids = [a + b for a, b in zip(at, dispatch.start, strict=True)]
    return GroupPlace((ids[0], ids[1], ids[2]), (size[0], size[1], size[2]))


def item_ids(dispatch: Dispatch, place: GroupPlace, wave: int) -> tuple[Any, int]:
    """v0 to v2 of a wave as an array of three rows, and EXEC."""
    lanes = dispatch.wave_size
    flat = np.arange(wave * lanes, (wave + 1) * lanes)
    live = flat < place.items
    x, y, _ = place.size
    rows = np.stack([flat % x, flat // x % y, flat // (x * y)]).astype(np.uint32)
    count = int(live.sum())
    return rows, (1 << count) - 1


def begin_wave(
    state: WaveState, dispatch: Dispatch, place: GroupPlace, wave: int, slot: int
) -> None:
    """Registers as the hardware sets them; all others keep what they had."""
    traits = wave_traits(dispatch.generation)
    set_group(state, dispatch, traits, place, wave, slot)
    rows, mask = item_ids(dispatch, place, wave)
    if traits.packed_ids:
        rows = rows[0] | rows[1] << 10 | rows[2] << 20
        state.v[0] = rows if dispatch.item_ids == 2 else rows & 0xFFFFF
    else:
        state.v[: dispatch.item_ids + 1] = rows[: dispatch.item_ids + 1]
    state.s[EXEC], state.s[EXEC + 1] = mask & 0xFFFFFFFF, mask >> 32
    state.put(Word.SCC, 0)
    state.put(Word.PC, 0)
    state.put(Word.MODE, dispatch.float_mode)


def set_group(
    state: WaveState,
    dispatch: Dispatch,
    traits: WaveTraits,
    place: GroupPlace,
    wave: int,
    slot: int,
) -> None:
    """The scalar registers that say which group this is, and its scratch."""
    at = len(dispatch.user_sgprs)
    state.s[:at] = dispatch.user_sgprs
    if traits.ids_in_traps:
        state.s[TTMP + 9] = place.ids[0]
        state.s[TTMP + 7] = place.ids[1] & 0xFFFF | place.ids[2] << 16
        state.s[TTMP + 6] = 0
        state.s[TTMP + 8] = wave << 25
    else:
        for wanted, number in zip(dispatch.group_id_sgprs, place.ids, strict=True):
            if wanted:
                state.s[at] = number
                at += 1
    waves = dispatch.waves_per_group
    if dispatch.group_info_sgpr:
        state.s[at] = (wave == 0) << 31 | waves
        at += 1
    offset = slot * dispatch.scratch_wave_bytes
    if dispatch.scratch_enabled and not traits.architected_scratch:
        state.s[at] = offset
    state.put(Word.SCRATCH, dispatch.scratch_base + offset)


def poison(state: WaveState, dispatch: Dispatch, services: Services) -> None:
    """Registers hold what nobody put there."""
    state.s[: TTMP + 16] = np.frombuffer(services.chance.bytes((TTMP + 16) * 4), np.uint32)
    count = dispatch.vgprs
    size = count * state.lanes * 4
    rows = np.frombuffer(services.chance.bytes(size), np.uint32).reshape(count, state.lanes)
    state.v[:count] = rows
