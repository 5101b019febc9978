"""Random sequences, many in a program, in both engines: `python -m tests.amd.virtual.wave_batch`.

Lifting has a cost for each program, so a program holds a hundred sequences. It begins with branches
to all of them, which makes each a place where a wave can start.

`… gfx1100 32 20000` runs so many, of one family; without arguments 20,000 of each.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from rawgpu.amd.spec.isa import formats
from rawgpu.amd.spec.isa.decoder import decoder_for
from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.virtual.dispatch import Dispatch
from rawgpu.amd.virtual.lift_groups import Exit
from rawgpu.amd.virtual.lift_library import LIBRARY
from rawgpu.amd.virtual.lift_run import NativeRunner
from rawgpu.amd.virtual.wave import Wave
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.amd.virtual.wave_state import WaveState, Word, facts_of
from rawgpu.errors import DecodeError, EncodingError
from tests.amd.virtual.wave_random import dispatch_for, instruction, values
from tests.amd.virtual.wave_rig import Arena, services

FAMILIES = [
    ("gfx1100", "gfx11", 32),
    ("gfx1100", "gfx11", 64),
    ("gfx1201", "gfx12", 32),
    ("gfx942", "gfx942", 64),
    ("gfx90a", "gfx90a", 64),
]
LENGTH = 6
TOGETHER = 100
"""Sequences of one program."""
MEMORY_SHARE = 0.15
"""How many instructions are loads, stores and atomics."""
LANE_BYTES = 64
"""Of each memory, a lane's own: the order of lanes is open where they meet."""
OFFSET_ROW, PRIVATE_ROW, ADDRESS_ROW, BASE_SCALAR = 28, 29, 30, 12
"""Registers that hold addresses, and that no sequence writes."""
LDS_BYTES = 64 * LANE_BYTES + 1024
MEMORY_FORMATS = ("ds", "global", "scratch", "smem")
NO_SADDR = {"gfx9": 0x7F, "gfx10": 0x7D, "gfx11": 0x7C}
FLOAT_MODES = (0xF0, 0xF0, 0x00, 0xC0, 0x30)
"""Denormals kept, flushed, and one of each."""
REFUSED = ("lds_", "gws", "permute", "swizzle", "append", "consume", "tr_", "transpose", "block")


def _no_saddr(lineage: Sequence[str]) -> int:
    return next(NO_SADDR[name] for name in lineage if name in NO_SADDR)


def memory_instruction(rng: random.Random, family: str, wave: int) -> MachineInstruction:
    """A load, store or atomic that stays where its lane may go."""
    decoder = decoder_for(family, wave)
    while True:
        name = rng.choice(MEMORY_FORMATS)
        encoding = formats.picture(name, decoder.lineage)
        assert encoding is not None
        values_ = dict.fromkeys(encoding.widths, 0)
        for register in ("vdst", "data", "data0", "data1", "vdata", "sdata", "vsrc"):
            if register in values_:
                values_[register] = rng.randrange(6) * 2
        values_["op"] = rng.getrandbits(encoding.widths["op"])
        offset = rng.randrange(0, 32, 4)
        if name == "smem":
            values_["sbase"] = BASE_SCALAR // 2
            values_["imm" if "imm" in values_ else "soffset"] = 1 if "imm" in values_ else 124
            values_["offset"] = offset
        elif name == "ds":
            values_ |= {"addr": OFFSET_ROW, "offset0": offset}
        else:
            address = "addr" if "addr" in values_ else "vaddr"
            scalar = rng.random() < 0.5
            values_[address] = OFFSET_ROW if scalar else ADDRESS_ROW
            values_["saddr"] = BASE_SCALAR if scalar else _no_saddr(decoder.lineage)
            if name == "scratch":
                values_ |= {address: PRIVATE_ROW, "saddr": _no_saddr(decoder.lineage), "sve": 1}
            values_["offset"] = offset
            if rng.random() < 0.5:
                values_ |= {"glc": 1, "sc0": 1, "th": 1}  # the old value of an atomic
        values_ = {k: v for k, v in values_.items() if k in encoding.widths}
        try:
            data = encoding.to_bytes(values_)
            made = decoder.decode(data + bytes(16), 0)
        except (DecodeError, EncodingError):
            continue
        if _stays(made) and made.size == len(data):
            return made


def _stays(made: MachineInstruction) -> bool:
    meaning = made.meaning
    if not any(word in meaning for word in ("load", "store", "atomic")):
        return False
    if any(word in made.name or word in meaning for word in REFUSED):
        return False
    if "addtid" in made.name or "stride64" in made.name or "2addr" in made.name:
        return False
    if made.form.row.format == "smem" and "buffer" in made.name:
        return False
    for role, operand in made.operands.items():
        if operand.kind in ("agpr", "special"):
            return False
        if role in ("d", "data", "data2") and operand.index + operand.registers > BASE_SCALAR:
            return False
    return True


def steady(made: MachineInstruction) -> bool:
    """Whether the registers that hold addresses keep their values."""
    for part in made.parts or (made,):
        for role, operand in part.operands.items():
            writes = role in ("d", "co") or "; a = " in part.meaning
            last = operand.index + operand.registers
            if writes and operand.kind == "sgpr" and BASE_SCALAR < last <= 16:
                return False
            if writes and operand.kind == "vgpr" and last > OFFSET_ROW:
                return False
    return True


def sequence(rng: random.Random, family: str, wave: int) -> list[MachineInstruction]:
    found: list[MachineInstruction] = []
    while len(found) < LENGTH:
        make = memory_instruction if rng.random() < MEMORY_SHARE else instruction
        made = make(rng, family, wave)
        if steady(made):
            found.append(made)
    return found


Seen: TypeAlias = list[tuple[str, Any]]
"""All that a sequence can have changed, by name."""


@dataclass
class Program:
    """Sequences as one piece of code."""

    data: bytes
    starts: list[int]
    """Offset of each sequence."""


def _sopp(family: str, wave: int, name: str, simm16: int = 0) -> bytes:
    decoder = decoder_for(family, wave)
    _, opcode = decoder.rows[f"sopp:{name}"]
    picture = formats.picture("sopp", decoder.lineage)
    assert picture is not None
    return picture.to_bytes({"op": opcode, "simm16": simm16 & 0xFFFF})


def program(sequences: Sequence[Sequence[MachineInstruction]], family: str, wave: int) -> Program:
    end = _sopp(family, wave, "s_endpgm")
    bodies = [b"".join(i.encode() for i in code) + end for code in sequences]
    head_bytes = 4 * len(bodies) + 4
    starts, at = [], head_bytes
    for body in bodies:
        starts.append(at)
        at += len(body)
    head = b"".join(
        _sopp(family, wave, "s_cbranch_scc1", (start - 4 * (number + 1)) // 4)
        for number, start in enumerate(starts)
    )
    return Program(head + end + b"".join(bodies), starts)


@dataclass
class Found:
    """What differs after a sequence: empty where nothing does."""

    seed: int
    where: str
    code: list[MachineInstruction]


@dataclass
class Batch:
    """Random sequences in an arena, with the memory that they access."""

    generation: str
    family: str
    wave: int
    seeds: Sequence[int]
    codes: list[list[MachineInstruction]] = field(default_factory=list)
    """Made from the seeds where none are given."""
    full: bool = True
    mode: int = 0xF0

    def __post_init__(self) -> None:
        family, wave = self.family, self.wave
        self.codes = self.codes or [
            sequence(random.Random(f"{family} {wave} {seed}"), family, wave) for seed in self.seeds
        ]
        self.arena = Arena(2 << 20)
        made = program(self.codes, family, wave)
        self.starts = made.starts
        self.entry = self.arena.put(made.data + bytes(4096), 4096)
        self.room = self.wave * LANE_BYTES + 1024
        self.data = self.arena.space(self.room, 4096)
        self.private = self.wave * 2 * LANE_BYTES
        self.scratch = self.arena.space(self.private + 4096, 4096)
        base = dispatch_for(self.generation, wave, self.entry, full=self.full)
        self.dispatch = Dispatch(
            **{
                **vars(base), "float_mode": self.mode, "lds_bytes": LDS_BYTES,
                "scratch_base": self.scratch, "scratch_wave_bytes": self.private,
                "scratch_waves": 1,
            }
        )  # fmt: skip

    def _fill(self, state: WaveState, seed: int) -> None:
        rng = np.random.default_rng(seed)
        wave = self.wave
        state.s[:] = values(rng, 128)
        state.v[:64] = values(rng, 64 * wave).reshape(64, wave)
        lanes = np.arange(wave, dtype=np.uint64) * np.uint64(LANE_BYTES)
        state.v[OFFSET_ROW] = lanes
        state.v[PRIVATE_ROW] = rng.integers(0, LANE_BYTES // 4, wave) * 4
        where = lanes + np.uint64(self.data)
        state.v[ADDRESS_ROW] = where & np.uint64(0xFFFFFFFF)
        state.v[ADDRESS_ROW + 1] = where >> np.uint64(32)
        state.s[BASE_SCALAR], state.s[BASE_SCALAR + 1] = self.data & 0xFFFFFFFF, self.data >> 32
        mask = (1 << wave) - 1
        if not self.full:
            mask &= int(rng.integers(1, 1 << 31)) * 0x1_0001
        state.s[126], state.s[127] = mask & 0xFFFFFFFF, mask >> 32
        state.put(Word.MODE, self.mode)
        state.put(Word.SCC, seed & 1)
        state.put(Word.SCRATCH, self.scratch)
        self._memory(seed)

    def _memory(self, seed: int) -> None:
        data = np.random.default_rng(seed + 1).integers(0, 256, self.room, dtype=np.uint8)
        self.arena.view(self.data, np.uint8, self.room)[:] = data
        private = np.resize(data[::-1], self.private)
        self.arena.view(self.scratch, np.uint8, self.private)[:] = private
        self.lds_before = data[: min(len(data), LDS_BYTES)]

    def _seen(self, state: WaveState, lds: Any) -> Seen:
        memory = self.arena.view(self.data, np.uint32, self.room // 4)
        scratch = self.arena.view(self.scratch, np.uint32, self.private // 4)
        return [
            ("scc", np.array([state.get(Word.SCC) & 1], np.uint32)), ("s", state.s.copy()),
            ("v", state.v[:64].copy()), ("lds", lds[:LDS_BYTES].view(np.uint32).copy()),
            ("memory", memory.copy()), ("scratch", scratch.copy()),
        ]  # fmt: skip

    def interpret(self) -> list[Seen]:
        facts = facts_of(self.dispatch)
        fetched = Code(facts.family, self.wave, self.arena)
        seen = []
        for seed, start in zip(self.seeds, self.starts, strict=True):
            state, lds = WaveState(self.wave), np.zeros(LDS_BYTES + 64, np.uint8)
            self._fill(state, seed)
            lds[: len(self.lds_before)] = self.lds_before
            own = services(seed)
            wave = Wave(state, fetched, lds[:LDS_BYTES], facts, self.dispatch, self.arena, own)
            wave.pc = self.entry + start
            assert wave.run(1000) == "end"
            seen.append(self._seen(state, lds))
        return seen

    def lift(self) -> list[Seen]:
        lifted = LIBRARY.find(self.dispatch, self.arena, at_once=True)
        assert lifted is not None
        self.not_lifted = lifted.not_lifted
        runner = NativeRunner(lifted, self.dispatch, self.arena, services(0))
        seen = []
        for seed, start in zip(self.seeds, self.starts, strict=True):
            state = runner.begin_alone(lambda own, seed=seed: self._fill(own, seed))  # type: ignore[misc]
            state.put(Word.PC, start)
            lds = runner.place.lds
            lds[:LDS_BYTES] = 0
            lds[: len(self.lds_before)] = self.lds_before
            while (why := runner.call()) is not Exit.END:
                if why is Exit.INTERPRET and runner.interpret() == "end":
                    break
            seen.append(self._seen(state, lds))
        runner.close()
        return seen

    def differences(self) -> list[Found]:
        rows = zip(self.seeds, self.codes, self.interpret(), self.lift(), strict=True)
        compared = [(seed, code, *difference(first, second)) for seed, code, first, second in rows]
        return [Found(seed, where, code) for seed, code, where, _ in compared if where]


def difference(first: Seen, second: Seen) -> tuple[str, bool]:
    """Where two states differ, in words; and whether only between NaN and NaN."""
    where, nan = "", True
    for (name, x), (_, y) in zip(first, second, strict=True):
        unequal = x != y
        if not unequal.any():
            continue
        wrong = unequal & ~(is_nan(x) & is_nan(y)) if name != "scc" else unequal
        place = tuple(np.argwhere(wrong if wrong.any() else unequal)[0].tolist())
        if not where or (nan and wrong.any()):
            where = f"{name}{list(place)}: {x[place]:#x}, lifted {y[place]:#x}"
        nan &= not wrong.any()
    return where, nan


def is_nan(words: Any) -> Any:
    """A NaN of float32, of either half, or the upper word of one of float64."""
    single = (words & 0x7FFFFFFF) > 0x7F800000
    low, high = (words & 0x7FFF) > 0x7C00, (words >> 16 & 0x7FFF) > 0x7C00
    return single | low | high | ((words & 0x7FFFFFFF) >= 0x7FF00000)


def is_infinite(words: Any) -> Any:
    """An infinity of float32, of either half, or the upper word of one of float64."""
    halves = ((words & 0x7FFF) == 0x7C00) | ((words >> 16 & 0x7FFF) == 0x7C00)
    return halves | ((words & 0x7FFFFFFF) == 0x7F800000) | ((words & 0x7FFFFFFF) == 0x7FF00000)


# Which of several NaN.

SIGNS = "neg", "neg_hi", "src0_neg", "src1_neg"
FUSED = "fma", "mac", "mad", "dot"


def is_open(last: MachineInstruction, before: Seen, first: Seen, second: Seen) -> bool:
    """Whether the instruction reads several NaN wherever its results differ, or a negated or
    subtracted one, or one together with a constant, or a constant that is one. What a fused one
    multiplies may be infinity and 0, which gives a NaN of its own.

    Then either may come out, or either sign, or a signalling one: LLVM makes a subtraction of a sum
    with a negated number, changes the order of operands, and evaluates what has constants: what
    adds 0, or a denormal that is flushed, it leaves out. Ruling that out would cost more than the
    arithmetic.
    """
    scalars, vectors = dict(before)["s"], dict(before)["v"]
    differ = dict(first)["v"] != dict(second)["v"]
    lanes = np.argwhere(differ.any(axis=0))[:, 0]
    if not len(lanes) and (dict(first)["s"] != dict(second)["s"]).any():
        lanes = np.zeros(1, np.int64)  # a result that is the same for all lanes
    signs = sum(part.get(name) for part in last.parts or (last,) for name in SIGNS)
    signs += any("_sub" in part.name for part in last.parts or (last,))
    for lane in lanes:
        seen = 0
        for part in last.parts or (last,):
            for role, operand in part.operands.items():
                if operand.kind == "vgpr" and role != "co":
                    rows = vectors[operand.index : operand.index + operand.registers]
                    moved = part.kind.endswith(("dpp", "dpp8")) and role == "a"
                    read = rows if moved else rows[:, lane]
                    seen += bool(is_nan(read).any())
                    seen += any(name in part.name for name in FUSED) and bool(
                        is_infinite(read).any()
                    )
                elif operand.kind == "sgpr" and role != "co":
                    words = scalars[operand.index : operand.index + operand.registers]
                    seen += bool(is_nan(words).any())
                elif operand.kind in ("constant", "literal"):
                    seen += 1 + bool(is_nan(np.uint32(operand.value & 0xFFFFFFFF)))
        if seen < 2 and not (seen and signs):
            return False
    return bool(len(lanes))


def writer(code: Sequence[MachineInstruction], first: Seen, second: Seen) -> int:
    """Number of the instruction that wrote the registers that differ; the last one if none did.

    A longer program is compiled anew, so an earlier choice among NaN may come out otherwise in it.
    """
    differ = (dict(first)["v"] != dict(second)["v"]).any(axis=1)
    for number in range(len(code) - 1, -1, -1):
        for part in code[number].parts or (code[number],):
            d = part.operands.get("d")
            if d is not None and d.kind == "vgpr" and differ[d.index : d.index + d.registers].any():
                return number
    return len(code) - 1


def judge(batch: Batch, found: Found) -> str:
    """What is wrong with the first instruction whose results differ; empty if only a NaN is open.

    Later ones may differ in anything, since the NaN may have gone into other results.
    """
    count = len(found.code)
    parts = Batch(
        batch.generation, batch.family, batch.wave, [found.seed] * (count + 1),
        [found.code[:n] for n in range(count + 1)], batch.full, batch.mode,
    )  # fmt: skip
    first, second = parts.interpret(), parts.lift()
    for n in range(1, count + 1):
        where, nan = difference(first[n], second[n])
        if where:
            at = writer(found.code[:n], first[n], second[n])
            last = found.code[at]
            nan |= last.kind == "sdwa"  # which may store a part of one
            if nan and is_open(last, first[at], first[n], second[n]):
                return ""
            return f"{found.seed} {last.name}: {where}"
    return f"{found.seed}: {found.where}, and no part of it differs"


@dataclass
class Report:
    """What came of many sequences."""

    ran: int = 0
    open: int = 0
    """In how many a NaN was open, so that what follows could not be compared."""
    wrong: list[str] = field(default_factory=list)


def run(generation: str, family: str, wave: int, seeds: range) -> Report:
    report = Report()
    for start in range(seeds.start, seeds.stop, TOGETHER):
        part = range(start, min(start + TOGETHER, seeds.stop))
        rng = random.Random(start)
        batch = Batch(
            generation, family, wave, part, full=rng.random() < 0.5, mode=rng.choice(FLOAT_MODES)
        )
        report.ran += len(part)
        for found in batch.differences():
            what = judge(batch, found)
            report.open += not what
            report.wrong += [what] if what else []
    return report


def main() -> int:
    wanted = [f for f in FAMILIES if len(sys.argv) < 3 or sys.argv[1:3] == [f[0], str(f[2])]]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20_000
    failed = False
    for generation, family, wave in wanted:
        began = time.process_time()
        report = run(generation, family, wave, range(count))
        print(
            f"{generation}, waves of {wave}: {report.ran} sequences, {len(report.wrong)} wrong, "
            f"{report.open} with an open NaN, {time.process_time() - began:.0f} s"
        )
        print(*report.wrong, sep="\n", end="\n" if report.wrong else "", flush=True)
        failed |= bool(report.wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
