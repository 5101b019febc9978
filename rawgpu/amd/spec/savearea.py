"""The context save area: where the waves of a queue are when it is off the hardware.

One part for each XCC, in a row:

    header | control stack, growing down | waves, growing up | debugger's part

The control stack says, from its top, how many registers waves have (a state) and that there is a
wave. Waves lie below `wave_end` in the order of the control stack, the first highest. From its
highest address down, a wave is: local memory, if it is the first of its group; 16 trap registers;
16 hardware registers; scalar registers; vector registers.

Source: ROCdbgapi, src/architecture.cpp and src/queue.cpp, which reads these areas of real cards;
linux 6.12 amdkfd/cwsr_trap_handler_gfx*.asm, which write them; uapi/linux/kfd_ioctl.h for the head.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

HEADER = struct.Struct("<6IQ2I")
"""`kfd_context_save_area_header`: offset and size of the control stack, end and size of the waves,
and what the debugger uses."""
PM4_WORDS = 2
"""Of the control stack's top: the packet that restores the rest."""
REGISTER_BYTES, TRAP_REGISTERS, HARDWARE_REGISTERS = 4, 16, 16
PC_LO, PC_HI, EXEC_LO, EXEC_HI, STATUS, EXCEPTIONS = 1, 2, 3, 4, 5, 6
"""Places among the hardware registers."""
IS_EVENT, IS_STATE = 1 << 30, 1 << 31

Area: TypeAlias = "bytes | memoryview"
Bits: TypeAlias = tuple[int, int]
"""Highest and lowest."""


def take(word: int, bits: Bits) -> int:
    """The value of some bits."""
    high, low = bits
    return word >> low & (1 << high - low + 1) - 1


@dataclass(frozen=True, kw_only=True)
class WaveRecords:
    """How waves are saved."""

    state_words: int
    """Of a state in the control stack; the fields below are of its first."""
    vgprs: Bits = (5, 0)
    sgprs: Bits | None
    """In blocks of 16, 16 of which are the trap registers; None: always 128."""
    lds: Bits
    """In blocks of 512 bytes."""
    wave32: Bits | None
    vgpr_units: Mapping[int, tuple[int, ...]] = field(hash=False)
    """Registers that one step of `vgprs` may stand for, by lanes: what fits the area is right."""
    first_wave: int
    """Bit of a wave's word: it is the first of its group."""
    gap_bytes: int = 0
    """Above each wave."""
    illegal_instruction: int
    memory_violation: int
    """Bits of the register at `EXCEPTIONS`."""


RECORDS_GFX9 = WaveRecords(
    state_words=1,
    sgprs=(8, 6),
    lds=(17, 9),
    wave32=None,
    vgpr_units={64: (8, 4)},
    first_wave=17,
    gap_bytes=64,
    illegal_instruction=11,
    memory_violation=8,
)
RECORDS_GFX10 = WaveRecords(
    state_words=2,
    sgprs=None,
    lds=(17, 10),
    wave32=(24, 24),
    vgpr_units={32: (8, 16, 12), 64: (4, 8, 6)},
    first_wave=12,
    illegal_instruction=11,
    memory_violation=8,
)
RECORDS_GFX12 = WaveRecords(
    state_words=2,
    sgprs=None,
    lds=(17, 10),
    wave32=(24, 24),
    vgpr_units={32: (8, 16, 12), 64: (4, 8, 6)},
    first_wave=12,
    illegal_instruction=6,
    memory_violation=4,
)


@dataclass(frozen=True, kw_only=True)
class SavedWave:
    """One wave, as far as anybody asked."""

    pc: int
    exec: int
    status: int
    illegal_instruction: bool
    memory_violation: bool


@dataclass(frozen=True, kw_only=True)
class WaveToSave:
    """What the virtual GPU writes. `sgprs` and `vgprs` are bytes."""

    pc: int
    exec: int
    lanes: int
    sgprs: bytes
    vgprs: bytes
    lds: bytes
    first: bool
    status: int = 0
    exceptions: int = 0


def waves_of(area: Area, control_bytes: int, records: WaveRecords) -> list[SavedWave]:
    """The waves in one XCC's part of an area; none where it does not keep to any known layout."""
    stack, stack_bytes, end, wave_bytes = HEADER.unpack_from(area)[:4]
    bottom = end - wave_bytes
    if stack + stack_bytes > control_bytes or not control_bytes <= bottom <= end <= len(area):
        return []
    words = struct.unpack_from(f"<{stack_bytes // 4}I", area, stack)
    for choice in range(max(map(len, records.vgpr_units.values()))):
        found = _walk(area, words, bottom, end, records, choice)
        if found is not None:
            return found
    return []


def _walk(
    area: Area, words: tuple[int, ...], bottom: int, end: int, records: WaveRecords, choice: int
) -> list[SavedWave] | None:
    """The waves, if one step of VGPRs is the unit of that number; None if they do not fit so."""
    state, at, found = 0, end, []
    for word in _entries(words, records):
        if word & IS_STATE:
            state = word
            continue
        top = at - records.gap_bytes
        if word >> records.first_wave & 1:
            top -= 512 * take(state, records.lds)
        registers = top - REGISTER_BYTES * (TRAP_REGISTERS + HARDWARE_REGISTERS)
        at = registers - _register_bytes(state, records, choice)
        if at < bottom:
            return None
        found.append(_wave(area, registers, records))
    return found if at == bottom else None


def _entries(words: tuple[int, ...], records: WaveRecords) -> Iterator[int]:
    """States and waves; events, and the further words of states, are passed over."""
    at = PM4_WORDS
    while at < len(words):
        word = words[at]
        if word & IS_EVENT:
            at += 1
            continue
        yield word
        at += records.state_words if word & IS_STATE else 1


def _register_bytes(state: int, records: WaveRecords, choice: int) -> int:
    lanes = 32 if records.wave32 is not None and take(state, records.wave32) else 64
    units = records.vgpr_units[lanes]
    vgprs = (take(state, records.vgprs) + 1) * units[min(choice, len(units) - 1)]
    sgprs = 128 if records.sgprs is None else 16 * take(state, records.sgprs)
    return REGISTER_BYTES * (sgprs + vgprs * lanes)


def _wave(area: Area, registers: int, records: WaveRecords) -> SavedWave:
    words = struct.unpack_from(f"<{HARDWARE_REGISTERS}I", area, registers)
    return SavedWave(
        pc=words[PC_HI] << 32 | words[PC_LO],
        exec=words[EXEC_HI] << 32 | words[EXEC_LO],
        status=words[STATUS],
        illegal_instruction=bool(words[EXCEPTIONS] >> records.illegal_instruction & 1),
        memory_violation=bool(words[EXCEPTIONS] >> records.memory_violation & 1),
    )


def saved(waves: list[WaveToSave], control_bytes: int, records: WaveRecords) -> bytes:
    """One XCC's part of an area with these waves in it, header first."""
    words, pieces = [0] * PM4_WORDS, []
    for wave in waves:
        state = IS_STATE | _state_of(wave, records) | len(wave.lds) // 512 << records.lds[1]
        words += [state] + [0] * (records.state_words - 1)
        words.append(int(wave.first) << records.first_wave)
        pieces.append(_record(wave, records))
    stack = struct.pack(f"<{len(words)}I", *words)
    body = b"".join(reversed(pieces))
    end = control_bytes + len(body)
    at = control_bytes - len(stack)
    header = HEADER.pack(at, len(stack), end, len(body), 0, 0, 0, 0, 0)
    return header.ljust(at, b"\0") + stack + body


def _state_of(wave: WaveToSave, records: WaveRecords) -> int:
    unit = records.vgpr_units[wave.lanes][0]
    state = len(wave.vgprs) // (REGISTER_BYTES * wave.lanes) // unit - 1
    if records.sgprs is not None:
        state |= len(wave.sgprs) // (16 * REGISTER_BYTES) << records.sgprs[1]
    if records.wave32 is not None:
        state |= int(wave.lanes == 32) << records.wave32[1]
    return state


def _record(wave: WaveToSave, records: WaveRecords) -> bytes:
    registers = [0] * HARDWARE_REGISTERS
    registers[PC_LO], registers[PC_HI] = wave.pc & 0xFFFFFFFF, wave.pc >> 32
    registers[EXEC_LO], registers[EXEC_HI] = wave.exec & 0xFFFFFFFF, wave.exec >> 32
    registers[STATUS], registers[EXCEPTIONS] = wave.status, wave.exceptions
    return b"".join(
        (
            wave.vgprs,
            wave.sgprs,
            struct.pack(f"<{HARDWARE_REGISTERS}I", *registers),
            bytes(REGISTER_BYTES * TRAP_REGISTERS),
            wave.lds if wave.first else b"",
            bytes(records.gap_bytes),
        )
    )
