"""The state of a wave, in memory that the interpreter and native code share; and how it begins.

One block a wave: scalar registers, a few words of the machine's own (`Word`), vector registers. The
interpreter sees NumPy arrays over it, lifted code loads and stores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any

import numpy as np

from rawgpu.amd.spec.waves import WaveTraits, wave_traits
from rawgpu.amd.virtual.dispatch import Dispatch, Services
from rawgpu.amd.virtual.wave_operands import Facts
from rawgpu.virtual.schedule import Chance

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
    """Wave instructions executed by native code: all, and those of VECTOR_FORMATS times 2**32."""


SCALAR_SAMPLES, LOAD_SAMPLES, STORE_SAMPLES = 640, 768, 896
"""Byte offsets of `SAMPLES` words each: addresses that native code accessed, of some instructions.

A store's has its bytes less one in the uppermost byte.
"""
SAMPLES = 16
SAMPLE_WORDS = slice(SCALAR_SAMPLES // 8, STORE_SAMPLES // 8 + SAMPLES)
assert STORE_SAMPLES + 8 * SAMPLES == VECTOR_OFFSET


def aligned_bytes(size_bytes: int) -> Any:
    """Zeros at a multiple of 64, as an array."""
    whole = np.zeros(size_bytes + 64, np.uint8)
    skip = -whole.ctypes.data % 64
    return whole[skip : skip + size_bytes]


def words_of(array: Any) -> memoryview:
    """An array's elements, faster to get and set one by one."""
    return memoryview(array)


def state_bytes(lanes: int) -> int:
    """How much memory a wave's registers take."""
    return VECTOR_OFFSET + VECTORS * lanes * 4


class WaveState:
    """Registers. `s` and `v` are views of the block."""

    def __init__(self, lanes: int, block: Any = None) -> None:
        """`block`: `state_bytes` bytes at a multiple of 64, an array; a new one if not given."""
        self.lanes = lanes
        self.block = aligned_bytes(state_bytes(lanes)) if block is None else block
        self.address = int(self.block.ctypes.data)
        self.s: Any = self.block[: SGPRS * 4].view(np.uint32)
        self.words = words_of(self.block[:VECTOR_OFFSET].view(np.uint64))
        self.v: Any = self.block[VECTOR_OFFSET:].view(np.uint32).reshape(VECTORS, lanes)

    def get(self, word: Word) -> int:
        return self.words[word // 8]

    def put(self, word: Word, value: int) -> None:
        self.words[word // 8] = value & ((1 << 64) - 1)

    @property
    def exec_bits(self) -> int:
        low = int(self.s[EXEC])
        return low | int(self.s[EXEC + 1]) << 32 if self.lanes == 64 else low


def facts_of(dispatch: Dispatch) -> Facts:
    return _facts(dispatch.generation, dispatch.wave_size, dispatch.dx10_clamp, dispatch.apertures)


@lru_cache(maxsize=256)
def _facts(generation: str, wave: int, dx10_clamp: bool, apertures: tuple[int, int]) -> Facts:
    traits = wave_traits(generation)
    return Facts(
        family=traits.family,
        wave=wave,
        m0=traits.m0,
        null=traits.null,
        zeroes_high_half=traits.zeroes_high_half,
        dx10_clamp=dx10_clamp or traits.always_clamps,
        apertures=apertures,
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


def waves_of(items: int, lanes: int) -> int:
    return -(-items // lanes)


@lru_cache(maxsize=1024)
def item_ids(
    size: tuple[int, int, int], lanes: int, ids: int, *, packed: bool
) -> tuple[Any, tuple[int, ...]]:
    """What a group's waves start with: v0 and following as (waves, rows, lanes), and EXEC of each.

    `size`: work-items in each dimension. `ids`: `Dispatch.item_ids`.
    """
    x, y, z = size
    waves = waves_of(x * y * z, lanes)
    flat = np.arange(waves * lanes).reshape(waves, lanes)
    parts = [flat % x, flat // x % y, flat // (x * y)]
    if packed:
        row = parts[0] | parts[1] << 10 | parts[2] << 20
        parts = [row if ids == 2 else row & 0xFFFFF]
    else:
        parts = parts[: ids + 1]
    rows = np.ascontiguousarray(np.stack(parts, axis=1).astype(np.uint32))
    counts = (min(lanes, x * y * z - lanes * wave) for wave in range(waves))
    return rows, tuple((1 << count) - 1 for count in counts)


def begin_wave(
    state: WaveState, dispatch: Dispatch, place: GroupPlace, wave: int, slot: int
) -> None:
    """Registers as the hardware sets them; all others keep what they had."""
    traits = wave_traits(dispatch.generation)
    set_group(state, dispatch, traits, place, wave, slot)
    rows, masks = item_ids(
        place.size, dispatch.wave_size, dispatch.item_ids, packed=traits.packed_ids
    )
    mask = masks[wave]
    state.v[: rows.shape[1]] = rows[wave]
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


def registers_of(state: WaveState, dispatch: Dispatch) -> tuple[int, bytes, bytes]:
    """EXEC, the scalar registers and the vector registers that a wave was given."""
    return state.exec_bits, state.s.tobytes(), state.v[: dispatch.vgprs].tobytes()


POISON_BYTES = 1 << 20
POISONED_SCALARS = TTMP + 16


@cache
def poison_block() -> Any:
    """Bytes for registers and LDS that nobody set, `POISON_BYTES` and as many again as are read."""
    once = np.frombuffer(Chance("poison").bytes(POISON_BYTES), np.uint8)
    return np.concatenate([once, once])


def poison_at(services: Services) -> int:
    """Where in the block this launch's poison begins."""
    return services.chance.word() % POISON_BYTES & -64


def poisoned_rows(dispatch: Dispatch) -> tuple[int, int]:
    """How many vector registers and accumulators were allocated."""
    plain = dispatch.accumulator_offset or dispatch.vgprs
    plain = min(plain, dispatch.vgprs, 256)
    return plain, min(dispatch.vgprs - plain, 256)


def poison(state: WaveState, dispatch: Dispatch, services: Services) -> None:
    """Registers hold what nobody put there."""
    words = poison_block()[poison_at(services) :].view(np.uint32)
    state.s[:POISONED_SCALARS] = words[:POISONED_SCALARS]
    for first, count in zip((0, 256), poisoned_rows(dispatch), strict=True):
        rows = words[: count * state.lanes].reshape(count, state.lanes)
        state.v[first : first + count] = rows
