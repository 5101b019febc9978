"""Random instruction sequences, to compare the two engines of waves."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from rawgpu.amd.spec.isa import formats
from rawgpu.amd.spec.isa.decoder import decoder_for
from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.virtual.dispatch import Dispatch
from rawgpu.amd.virtual.lift_kernel import Exit
from rawgpu.amd.virtual.lift_run import LIBRARY, MixedWave, NativeRunner
from rawgpu.amd.virtual.wave import Wave
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.amd.virtual.wave_state import WaveState, Word, facts_of
from rawgpu.errors import DecodeError, EncodingError
from tests.amd.virtual.wave_rig import Arena, services

FORMATS = ("sop1", "sop2", "sopc", "sopk", "vop1", "vop2", "vopc", "vop3", "vop3p", "vopd")
# Memory, flow and modes are tested by kernels; what a NaN's payload is, is not modelled.
EXCLUDED = (
    "load", "store", "atomic", "jump", "branch", "end()", "barrier", "sleep", "message", "halt",
    "trap", "hardware", "set_mode", "clock", "real_time", "pc", "lds_", "cache", "allocate",
    "wmma", "mfma", "move_relative", "fp8", "bf8", "truth_table", "cube", "trig",
)  # fmt: skip
END = 0xBFB00000, 0xBF810000
REGISTERS = 12


def is_plain(instruction: MachineInstruction) -> bool:
    meanings = [part.meaning for part in instruction.parts or (instruction,)]
    if not all(meanings) or any(word in m for m in meanings for word in EXCLUDED):
        return False
    for part in instruction.parts or (instruction,):
        for operand in part.operands.values():
            if operand.kind == "sgpr" and not (
                operand.index + operand.registers <= 16 or operand.index in (106, 124, 125)
            ):
                return False
            if operand.kind == "vgpr" and operand.index + operand.registers > 32:
                return False
            if operand.kind in ("agpr", "special"):
                return False
    return True


def _source(rng: random.Random, wide: bool) -> int:
    kind = rng.randrange(10)
    if kind < 6 and wide:
        return 256 + rng.randrange(REGISTERS)
    if kind < 8:
        return rng.randrange(REGISTERS)
    return rng.choice([106, 128 + rng.randrange(80), 240 + rng.randrange(9)])


def instruction(rng: random.Random, family: str, wave: int) -> MachineInstruction:
    """A random instruction on the first registers."""
    decoder = decoder_for(family, wave)
    while True:
        name = rng.choice(FORMATS)
        if name == "vopd" and "gfx11" not in decoder.lineage:
            continue
        encoding = formats.picture(name, decoder.lineage)
        assert encoding is not None
        values: dict[str, int] = {}
        for field, width in encoding.widths.items():
            if field.startswith(("src", "ssrc")):
                values[field] = _source(rng, width == 9)
            elif "dst" in field or field.startswith("vsrc"):
                values[field] = rng.randrange(REGISTERS)
            elif field in ("op", "opx", "opy", "simm16"):
                values[field] = rng.getrandbits(width)
            elif field in ("neg", "abs", "op_sel", "op_sel_hi", "neg_hi"):
                values[field] = rng.getrandbits(width) if rng.random() < 0.3 else 0
                if field == "op_sel_hi":
                    values[field] = 7
            else:
                values[field] = int(rng.random() < 0.1) if width <= 2 else 0
            if width < values[field].bit_length():
                values[field] &= (1 << width) - 1
        try:
            made = decoder.decode(encoding.to_bytes(values) + bytes(16), 0)
        except (DecodeError, EncodingError):
            continue
        if is_plain(made) and made.size == encoding.bits // 8:
            return made


def sequence(rng: random.Random, family: str, wave: int, length: int) -> list[MachineInstruction]:
    return [instruction(rng, family, wave) for _ in range(length)]


def _values(rng: np.random.Generator, count: int) -> Any:
    """Registers: numbers of all kinds, few of them NaN."""
    words = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    floats = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)
    small = rng.integers(0, 64, count, dtype=np.uint32)
    pick = rng.integers(0, 4, count)
    return np.where(pick == 0, words, np.where(pick == 1, small, floats.view(np.uint32)))


def dispatch_for(generation: str, wave: int, entry: int) -> Dispatch:
    return Dispatch(
        generation=generation, kernel_va=entry, entry_va=entry, groups=(1, 1, 1),
        group_size=(wave, 1, 1), wave_size=wave, user_sgprs=(),
        group_id_sgprs=(False, False, False), group_info_sgpr=False, item_ids=0, vgprs=64,
        sgprs=104, float_mode=0xF0, ieee=False, dx10_clamp=True, lds_bytes=0,
    )  # fmt: skip


def both(
    code: list[MachineInstruction], generation: str, wave: int, seed: int, *, full: bool
) -> tuple[WaveState, WaveState, dict[str, int]]:
    """The state after the code, interpreted and lifted; and what was not lifted."""
    arena = Arena(1 << 20)
    end = END[0] if facts_of(dispatch_for(generation, wave, 0)).family >= "gfx11" else END[1]
    if not generation.startswith("gfx1"):
        end = END[1]
    data = b"".join(i.encode() for i in code) + end.to_bytes(4, "little")
    entry = arena.put(data + bytes(4096), 4096)
    dispatch = dispatch_for(generation, wave, entry)
    facts = facts_of(dispatch)
    rng = np.random.default_rng(seed)
    scalars, vectors = _values(rng, 128), _values(rng, 64 * wave).reshape(64, wave)
    mask = (1 << wave) - 1 if full else int(rng.integers(1, 1 << 31)) * 0x1_0001 & (1 << wave) - 1

    def fresh() -> WaveState:
        state = WaveState(wave)
        state.s[:] = scalars
        state.v[:64] = vectors
        state.s[126], state.s[127] = mask & 0xFFFFFFFF, mask >> 32
        state.put(Word.MODE, 0xF0)
        return state

    fetched = Code(facts.family, wave, arena)
    first, second = fresh(), fresh()
    empty = np.zeros(0, np.uint8)
    made = services(seed)
    assert Wave(first, fetched, empty, facts, dispatch, arena, made).run(10_000) == "end"
    hot = Dispatch(**{**vars(dispatch), "groups": (1000, 1, 1)})
    lifted = LIBRARY.find(fetched, hot, facts, entry_full=full)
    assert lifted is not None
    runner = NativeRunner(lifted, fetched, facts, dispatch, arena, made)
    for word, value in ((Word.DELTA, arena.delta), (Word.LIMIT, arena.limit)):
        second.put(word, value)
    second.put(Word.CODE, entry)
    mixed = MixedWave(runner, second, runner._wave(second))
    while (kind := mixed.run(1)) != "end":
        assert kind == "slice", (kind, Exit)
    return first, second, lifted.not_lifted
