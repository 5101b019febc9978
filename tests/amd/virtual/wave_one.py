"""One instruction, or a few, on chosen registers: made from fields, run by both engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rawgpu.amd.spec.isa import formats
from rawgpu.amd.spec.isa.decoder import decoder_for
from rawgpu.amd.spec.isa.formats import LINEAGE
from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.spec.isa.tables import ROWS
from rawgpu.amd.virtual.dispatch import Dispatch
from rawgpu.amd.virtual.lift_library import LIBRARY
from rawgpu.amd.virtual.wave import Wave
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.amd.virtual.wave_state import WaveState, Word, facts_of
from rawgpu.describe.encoding import Instruction
from tests.amd.virtual.wave_random import END, dispatch_for, run_natively
from tests.amd.virtual.wave_rig import Arena, services


def row_of(name: str, family: str) -> tuple[Instruction, int]:
    """The row that a family calls `name`, and its opcode there."""
    for row in ROWS:
        for generation in LINEAGE[family]:
            column = row.opcodes.columns.get(generation)
            if column is None:
                continue
            if column.opcode is not None and (column.name or row.name) == name:
                return row, column.opcode
            break
    raise AssertionError(f"{family} has no {name}")


def made(
    name: str, family: str, wave: int, *, format_: str | None = None, **fields: int
) -> MachineInstruction:
    """The instruction `name` with these fields of its bit picture, the others 0.

    In another format than its row's, `op` must be given.
    """
    row, opcode = row_of(name, family)
    picture = formats.picture(format_ or row.format, LINEAGE[family])
    assert picture is not None
    values = dict.fromkeys(picture.widths, 0) | {"op": opcode} | fields
    data = picture.to_bytes(values)
    found = decoder_for(family, wave).decode(data + bytes(16), 0)
    assert found.name == name, (found.name, name)
    return found


def _ready(code: list[MachineInstruction], generation: str, wave: int) -> tuple[Any, ...]:
    arena = Arena(1 << 20)
    end = (
        END[0] if "gfx11" in LINEAGE[facts_of(dispatch_for(generation, wave, 0)).family] else END[1]
    )
    data = b"".join(i.encode() for i in code) + end.to_bytes(4, "little")
    entry = arena.put(data + bytes(4096), 4096)
    dispatch = dispatch_for(generation, wave, entry)
    return arena, entry, dispatch


def _state(
    wave: int, s: Mapping[int, int], v: Mapping[int, Any], exec_bits: int, mode: int
) -> WaveState:
    state = WaveState(wave)
    for index, number in s.items():
        state.s[index] = number
    for index, lanes in v.items():
        state.v[index] = lanes
    state.s[126], state.s[127] = exec_bits & 0xFFFFFFFF, exec_bits >> 32
    state.put(Word.MODE, mode)
    return state


def can_be_lifted(code: list[MachineInstruction], generation: str, wave: int) -> bool:
    """Whether native code takes the kernel at all; what is left to the interpreter may be some."""
    arena, _, dispatch = _ready(code, generation, wave)
    return LIBRARY.find(dispatch, arena, at_once=True) is not None


def run(
    code: list[MachineInstruction],
    generation: str,
    wave: int,
    *,
    s: Mapping[int, int] | None = None,
    v: Mapping[int, Any] | None = None,
    exec_bits: int | None = None,
    mode: int = 0xF0,
    lifted: bool = False,
    lds_bytes: int = 0,
) -> WaveState:
    """The wave's state after the code. Vector registers from 256 on are accumulators."""
    arena, _, dispatch = _ready(code, generation, wave)
    dispatch = Dispatch(**{**vars(dispatch), "lds_bytes": lds_bytes, "float_mode": mode})
    facts = facts_of(dispatch)
    mask = (1 << wave) - 1 if exec_bits is None else exec_bits
    state = _state(wave, s or {}, v or {}, mask, mode)
    fetched, chance = Code(facts.family, wave, arena), services(0)
    if not lifted:
        lds = np.zeros(lds_bytes, np.uint8)
        assert Wave(state, fetched, lds, facts, dispatch, arena, chance).run(10_000) == "end"
        return state
    full = mask == (1 << wave) - 1
    launch = Dispatch(**{**vars(dispatch), "group_size": (wave if full else wave - 1, 1, 1)})

    def fill(own: WaveState) -> None:
        own.s[:], own.v[:] = state.s, state.v
        own.put(Word.MODE, mode)

    return run_natively(launch, arena, fill)[0]
