"""One instruction of a wave, for either engine: operands in, meaning, results out.

`Execution` evaluates an instruction's meaning (`rawgpu.virtual.meaning`) between a machine's
registers. The machine is the interpreter's (`wave_interpret.py`) or the lifter's (`lift_wave.py`);
both keep `Machine`. Words on lanes and memory are in `wave_words.py`, operands in
`wave_operands.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.virtual.wave_operands import VECTOR_FORMATS, Facts, Machine
from rawgpu.amd.virtual.wave_products import MatrixWords
from rawgpu.describe.semantics import Statement, parse
from rawgpu.virtual.meaning import NotInEngine, Raw, Typed

IGNORED = frozenset(
    (
        "wait", "idle", "prefetch", "sleep", "cache_control", "barrier_leave", "trap", "halt",
        "barrier", "barrier_signal", "barrier_wait", "end",
    )
)  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """What an instruction does besides results: a flow word and its argument.

    `kind`: "branch" (argument: a condition, or None for always), "jump" (64-bit address), "end",
    "barrier", "sleep", "wait", "cache", "trap", "halt", "barrier_signal", "barrier_wait", "next".
    """

    kind: str = "next"
    argument: Any = None


class Execution(MatrixWords):
    """Executes decoded instructions on a machine."""

    def __init__(self, machine: Machine, facts: Facts) -> None:
        super().__init__(machine, facts)
        self.outcome = Outcome()

    def execute(self, instruction: MachineInstruction, pc: int) -> Outcome:
        """Run the instruction at `pc`. Raises NotInEngine by name; then nothing was written."""
        self.outcome = Outcome()
        self.pc, self.next_pc = pc, pc + instruction.size
        if instruction.parts:
            self._execute_parts(instruction)
        else:
            self._begin(instruction)
            self._store(dict(self.run(self._statements(instruction))))
        return self.outcome

    def _statements(self, instruction: MachineInstruction) -> tuple[Statement, ...]:
        if not instruction.meaning:
            raise NotInEngine(instruction.name)
        return parse(instruction.meaning)

    def _execute_parts(self, instruction: MachineInstruction) -> None:
        """Dual issue: both read before either writes."""
        pending = []
        for part in instruction.parts:
            self._begin(part)
            results = dict(self.run(self._statements(part)))
            pending.append((part, {k: self._own(v) for k, v in results.items()}))
        for part, results in pending:
            self._begin(part)
            self._store(results)

    def _own(self, value: Typed) -> Typed:
        return Typed(value.kind, value.bits, self.machine.own(value.raw))

    def _begin(self, instruction: MachineInstruction) -> None:
        self.instruction = instruction
        self.vector = instruction.format in VECTOR_FORMATS
        self.saturate = bool(instruction.get("clamp"))
        self.half_mode = None
        self.flush = self.machine.flushed_widths
        self.arithmetic = self.machine.arithmetic
        self.saturates_small = self.machine.saturates_small

    # Results.

    def _store(self, results: Mapping[str, Typed]) -> None:
        if len(results) > 1:
            results = {target: self._own(value) for target, value in results.items()}
        operands = self.instruction.operands
        for target, value in results.items():
            if target == "scc":
                self.machine.write_scc(self.scalar_truth(value))
            elif target == "exec":
                self._write_exec(value)
            elif target == "vcc":
                self._write_mask(106, value)
            elif target in operands:
                self._write(target, value)

    def _write_exec(self, value: Typed) -> None:
        if not self.vector:
            self._write_words(126, value, self.facts.wave)
            return
        operand = self.instruction.operands.get("d")
        if operand is not None and operand.kind == "sgpr":  # CDNA writes both
            self._write_mask(operand.index, value)
        self._write_mask(126, value)

    def _write_words(self, index: int, value: Typed, bits: int) -> None:
        if index == self.facts.null:
            return
        for i, word in enumerate(self.words_of(value, max(1, bits // 32))):
            self.machine.write_s(index + i, self.machine.first(word))

    def _write_mask(self, index: int, value: Typed) -> None:
        """A condition of each lane into a lane mask; lanes that are off give 0."""
        lanes = self.machine.spread(self.truth(value))
        mask = self.machine.exec_mask()
        if mask is not None:
            lanes = self.ops.both(lanes, mask)
        raw = self.machine.bits_of_mask(lanes)
        self._write_words(index, Typed("u", self.facts.wave, raw), self.facts.wave)

    def _write(self, role: str, value: Typed) -> None:
        operand = self.instruction.operands[role]
        type_ = self.instruction.form.types.get(role)
        is_mask = type_ is None or type_.base == "m"
        if operand.kind == "sgpr":
            if self.vector and is_mask:
                self._write_mask(operand.index, value)
            else:
                self._write_words(operand.index, self.finished(value), operand.bits)
            return
        if operand.kind not in ("vgpr", "agpr"):
            raise NotInEngine(f"a result in {operand.text}")
        index = operand.index + (256 if operand.kind == "agpr" else 0)
        mask = self.write_mask()
        if self.instruction.kind == "sdwa" and role == "d":
            value = self._sdwa_result(index, value, operand.bits)
            self.machine.write_v(index, self.as_bits(value, 32), mask)
        elif operand.bits == 8 and self._has_op_sel():
            self._write_byte(index, self.instruction.get("op_sel") >> 2, value, mask)
        elif operand.bits == 16:
            self._write_half(index, operand.half or 0, self.finished(value), mask)
        else:
            words = self.words_of(self.finished(value), operand.registers)
            for i, word in enumerate(words):
                self.machine.write_v(index + i, word, mask)

    def _write_half(self, index: int, half: int, value: Typed, mask: Raw) -> None:
        new = self.ops.resize(self.as_bits(value, 16), 16, 32, signed=False)
        narrow_row = self.instruction.row.format in ("vop1", "vop2") or not self._has_op_sel()
        if self.facts.zeroes_high_half and narrow_row and not half:
            self.machine.write_v(index, new, mask)
            return
        keep = self.ops.const("u", 32, 0xFFFF if half else 0xFFFF0000)
        old = self.ops.binary("and", 32, self.machine.read_v(index), keep)
        if half:
            new = self.ops.binary("shl", 32, new, self.ops.const("u", 32, 16))
        self.machine.write_v(index, self.ops.binary("or", 32, old, new), mask)

    def _write_byte(self, index: int, byte: int, value: Typed, mask: Raw) -> None:
        old = Typed("u", 32, self.machine.read_v(index))
        places = (Typed("n", 0, 8 * byte), Typed("n", 0, 8))
        new = self.word_insert(old, self.view("u", 32, value), *places)
        self.machine.write_v(index, new.raw, mask)

    def _has_op_sel(self) -> bool:
        return "op_sel" in self.instruction.form.encoding.pieces

    # Flow: an outcome, and no value.

    def call(self, word: str, arguments: list[ast.expr]) -> Typed:
        if word == "branch_if":
            (condition,) = map(self.value, arguments)
            always = condition.kind == "n"
            if not always:
                self.outcome = Outcome("branch", self.scalar_truth(condition))
            elif condition.raw:
                self.outcome = Outcome("branch")
            return Typed("n", 0, 0)
        if word == "jump":
            (target,) = map(self.value, arguments)
            self.outcome = Outcome("jump", self.machine.first(self.as_bits(target, 64)))
            return Typed("n", 0, 0)
        if word in IGNORED:
            kind = {"idle": "next", "prefetch": "next", "cache_control": "cache"}.get(word, word)
            argument = self.value(arguments[0]) if arguments else None
            self.outcome = Outcome(kind, argument)
            return Typed("n", 0, 0)
        return super().call(word, arguments)

    def branch_target(self, instruction: MachineInstruction, pc: int) -> int:
        """Where a branch of this form leads."""
        offset = instruction.get("simm16")
        signed = offset - 0x10000 if offset & 0x8000 else offset
        return pc + instruction.size + 4 * signed

    def word_set_mode(self, field: Typed, value: Typed) -> Typed:
        self.machine.set_mode(int(field.raw), 4, int(value.raw))
        return Typed("n", 0, 0)

    def word_write_hardware(self, register: Typed, value: Typed) -> Typed:
        number, offset, size = _hardware_field(int(register.raw))
        if number != 1:
            raise NotInEngine(f"s_setreg of hardware register {number}")
        self.machine.set_mode_bits(offset, size, self.machine.first(self.as_bits(value, 32)))
        return Typed("n", 0, 0)

    def word_read_hardware(self, register: Typed) -> Typed:
        number, offset, size = _hardware_field(int(register.raw))
        raw = self.machine.hardware_register(number)
        moved = self._u("lshr", 32, raw, offset)
        return Typed("u", 32, self._u("and", 32, moved, (1 << size) - 1))

    def word_clock(self) -> Typed:
        return Typed("u", 64, self.machine.clock())

    word_real_time = word_clock

    def word_message(self, kind: Typed) -> Typed:
        return Typed("u", 32, self.machine.message(int(kind.raw)))


def _hardware_field(imm: int) -> tuple[int, int, int]:
    """Register, first bit and count of a hwreg operand."""
    return imm & 63, imm >> 6 & 31, (imm >> 11 & 31) + 1
