"""Random instructions, and one wave run natively, to compare the two engines of waves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from rawgpu.amd.spec.isa import formats
from rawgpu.amd.spec.isa.decoder import decoder_for
from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.virtual.dispatch import Dispatch
from rawgpu.amd.virtual.lift_groups import Exit
from rawgpu.amd.virtual.lift_library import LIBRARY
from rawgpu.amd.virtual.lift_run import NativeRunner
from rawgpu.amd.virtual.wave_state import WaveState
from rawgpu.describe.encoding import Encoding
from rawgpu.errors import DecodeError, EncodingError
from tests.amd.virtual.wave_rig import Arena, services

FORMATS = ("sop1", "sop2", "sopc", "sopk", "vop1", "vop2", "vopc", "vop3", "vop3p", "vopd")
# Memory is added in `wave_batch.py`; flow and modes are tested by kernels.
EXCLUDED = (
    "load", "store", "atomic", "jump", "branch", "end()", "barrier", "sleep", "message", "halt",
    "trap", "hardware", "set_mode", "clock", "real_time", "pc", "lds_", "cache", "allocate",
    "wmma", "mfma", "relative", "index_",
)  # fmt: skip
END = 0xBFB00000, 0xBF810000
REGISTERS = 12


def is_plain(instruction: MachineInstruction) -> bool:
    meanings = [part.meaning for part in instruction.parts or (instruction,)]
    if not all(meanings) or any(word in m for m in meanings for word in EXCLUDED):
        return False
    for part in instruction.parts or (instruction,):
        if "; a = " in part.meaning and part.operands["a"].kind != "vgpr":
            return False  # a swap with what is no register
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


CONTROLS = (*range(0, 256, 37), 0x101, 0x107, 0x111, 0x11F, 0x121, 0x140, 0x141, 0x153)
"""Patterns of DPP that every family has."""


def _extension(
    rng: random.Random, name: str, lineage: tuple[str, ...], values: dict[str, int]
) -> bytes:
    """Lane moves or sub-dword access for some of the short formats: the dword that follows."""
    if name not in ("vop1", "vop2", "vopc") or rng.random() < 0.6:
        return b""
    kind = rng.choice(("dpp", "dpp8") if "gfx11" in lineage else ("dpp", "sdwa"))
    text = formats.extension("sdwa_compare" if kind == "sdwa" and name == "vopc" else kind, lineage)
    assert text is not None
    values["src0"] = {"sdwa": 249, "dpp": 250, "dpp8": 233}[kind]
    encoding = Encoding(text)
    own: dict[str, int] = {}
    for field, width in encoding.widths.items():
        own[field] = rng.getrandbits(width)
        if field in ("dpp_src0", "sdwa_src0"):
            own[field] = rng.randrange(REGISTERS)
        elif field.endswith("_sel"):
            own[field] = rng.randrange(7)
        elif field in ("s0", "s1", "sd", "sdst", "omod"):
            own[field] = 0
    own |= {"dpp_ctrl": rng.choice(CONTROLS), "dst_unused": rng.randrange(3)}
    return encoding.to_bytes({field: own[field] for field in encoding.widths})


def _is_sound(made: MachineInstruction) -> bool:
    """No lane moves or parts of what has 64 bits or is a half: the assembler refuses most."""
    if made.kind not in ("dpp", "dpp8", "sdwa"):
        return True
    if made.kind == "sdwa" and (made.get("src0_sext") or made.get("src1_sext")):
        if any(type_.base.startswith(("f", "bf")) for type_ in made.form.types.values()):
            return False  # the sign of a part is extended for integers only
    return all(operand.bits == 32 for operand in made.operands.values() if operand.kind == "vgpr")


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
        longer = _extension(rng, name, decoder.lineage, values)
        try:
            data = encoding.to_bytes(values) + longer
            made = decoder.decode(data + bytes(16), 0)
        except (DecodeError, EncodingError):
            continue
        if is_plain(made) and made.size == len(data) and _is_sound(made):
            return made


def values(rng: np.random.Generator, count: int) -> Any:
    """Registers: numbers of all kinds, few of them NaN."""
    words = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    floats = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)
    small = rng.integers(0, 64, count, dtype=np.uint32)
    pick = rng.integers(0, 4, count)
    return np.where(pick == 0, words, np.where(pick == 1, small, floats.view(np.uint32)))


def dispatch_for(generation: str, wave: int, entry: int, *, full: bool = True) -> Dispatch:
    """A launch of one wave; unless it is `full` the lifter may not take EXEC to be all ones."""
    return Dispatch(
        generation=generation, kernel_va=entry, entry_va=entry, groups=(1, 1, 1),
        group_size=(wave if full else wave - 1, 1, 1), wave_size=wave, user_sgprs=(),
        group_id_sgprs=(False, False, False), group_info_sgpr=False, item_ids=0, vgprs=64,
        sgprs=104, float_mode=0xF0, ieee=False, dx10_clamp=True, lds_bytes=0,
    )  # fmt: skip


def run_natively(
    dispatch: Dispatch, arena: Arena, fill: Callable[[WaveState], None], seed: int = 0
) -> tuple[WaveState, dict[str, int]]:
    """One wave lifted, with registers that `fill` sets: its state, and what was not lifted."""
    lifted = LIBRARY.find(dispatch, arena, at_once=True)
    assert lifted is not None
    runner = NativeRunner(lifted, dispatch, arena, services(seed))
    state = runner.begin_alone(fill)
    while (why := runner.call()) is not Exit.END:
        if why is Exit.INTERPRET:
            runner.interpret()
    return state, lifted.not_lifted
