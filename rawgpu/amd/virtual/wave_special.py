"""Words for what depends on M0 or MODE while the wave runs, for LDS without a register, and others.

Those that need numbers known while executing are the interpreter's alone (`_running`).
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.spec.isa.operands import Operand
from rawgpu.amd.virtual.wave_operands import Address
from rawgpu.amd.virtual.wave_words import WaveWords
from rawgpu.virtual.meaning import NotInEngine, Raw, Typed

INDEX_MODE_BIT = 27
"""Of MODE: vector registers are indexed by M0."""

LIMITS = {"vgpr": 256, "sgpr": 106}


class SpecialWords(WaveWords):
    """Words beyond lanes and memory."""

    def _running(self, name: str) -> Any:
        """A method of the interpreter's machine, which has numbers where the lifter has names."""
        found = getattr(self.machine, name, None)
        if found is None:
            raise NotInEngine(name)
        return found

    def _number_now(self, x: Typed) -> int:
        return int(self._running("number")(self.as_bits(x, 32)))

    # Registers by number. Source: RDNA3 ISA, V_MOVRELS_B32 and its like.

    def _offset(self, low: int, count: int) -> int:
        return self._number_now(self.state_m0()) >> low & ((1 << count) - 1)

    def _read_at(self, role: str, offset: int) -> Typed:
        """Beyond the last register, register 0."""
        operand = self.instruction.operands[role]
        if operand.index + offset + operand.registers > LIMITS[operand.kind]:
            offset = -operand.index
        return self.fetched(_moved_operand(operand, offset))

    def _write_at(self, role: str, offset: int, value: Typed) -> Typed:
        """Writes at once, if there is such a register; gives what stands in the named one then."""
        operand = self.instruction.operands[role]
        at, words = operand.index + offset, self.words_of(value, operand.registers)
        if at + operand.registers > LIMITS[operand.kind]:
            return self.fetched(operand)
        for number, word in enumerate(words):
            if operand.kind == "sgpr":
                self.machine.write_s(at + number, self.machine.first(word))
            else:
                self.machine.write_v(at + number, self.machine.spread(word), self.write_mask())
        return self.fetched(operand)

    def word_move_relative_source(self, a: Typed) -> Typed:
        return self._read_at("a", self._offset(0, 32))

    def word_move_relative_destination(self, a: Typed) -> Typed:
        return self._write_at("d", self._offset(0, 32), a)

    def word_move_relative_both(self, a: Typed) -> Typed:
        offset = self._offset(0, 32)
        return self._write_at("d", offset, self._own_row(self._read_at("a", offset)))

    def word_move_relative_each(self, a: Typed) -> Typed:
        value = self._own_row(self._read_at("a", self._offset(0, 10)))
        return self._write_at("d", self._offset(16, 10), value)

    def word_swap_relative(self, a: Typed) -> Typed:
        source, target = self._offset(0, 10), self._offset(16, 10)
        first = self._own_row(self._read_at("a", source))
        second = self._own_row(self._read_at("d", target))
        self._write_at("a", source, second)
        return self._write_at("d", target, first)

    def _own_row(self, value: Typed) -> Typed:
        return Typed(value.kind, value.bits, self.machine.own(value.raw))

    def word_index_registers(self, index: Typed, mode: Typed) -> Typed:
        """Turn the indexing of vector registers on. Source: Vega ISA, S_SET_GPR_IDX_ON."""
        self.machine.set_mode_bits(INDEX_MODE_BIT, 1, self.ops.const("u", 32, 1))
        self._put_m0(0, 8, self._number_now(index))
        self._put_m0(12, 4, int(mode.raw))
        return Typed("n", 0, 0)

    def word_index_registers_off(self) -> Typed:
        self.machine.set_mode_bits(INDEX_MODE_BIT, 1, self.ops.const("u", 32, 0))
        return Typed("n", 0, 0)

    def word_set_register_index(self, index: Typed) -> Typed:
        self._put_m0(0, 8, self._number_now(index))
        return Typed("n", 0, 0)

    def word_set_index_mode(self, mode: Typed) -> Typed:
        self._put_m0(12, 4, int(mode.raw))
        return Typed("n", 0, 0)

    def _put_m0(self, low: int, count: int, number: int) -> None:
        old, ones = self._number_now(self.state_m0()), (1 << count) - 1
        new = old & ~(ones << low) | (number & ones) << low
        self.machine.write_s(self.facts.m0, self.ops.const("u", 32, new))

    # Bits.

    def packed_truth_table(self, arguments: list[ast.expr]) -> Typed:
        """The table stands where other instructions have sign bits. Source: CDNA4 ISA, V_BITOP3."""
        get, ops = self.instruction.get, self.ops
        if "omod" not in self.instruction.form.encoding.pieces:
            raise NotInEngine("truth_table of two sources")
        table = get("neg") | get("abs") << 3 | get("omod") << 6
        operands = self.instruction.operands
        bits = operands["a"].bits
        a, b, c = (self.as_bits(self.fetched(operands[role]), bits) for role in "abc")
        ones = ops.const("u", bits, (1 << bits) - 1)
        result = ops.const("u", bits, 0)
        for entry in range(8):
            if not table >> entry & 1:
                continue
            term = ones
            for raw, bit in ((a, 4), (b, 2), (c, 1)):
                part = raw if entry & bit else ops.binary("xor", bits, raw, ones)
                term = ops.binary("and", bits, term, part)
            result = ops.binary("or", bits, result, term)
        return Typed("u", bits, result)

    # Lanes.

    def _exchanged(self, x: Typed, y: Typed, size: Typed, upper: bool) -> Typed:
        step, wave = int(size.raw), self.facts.wave
        move = -step if upper else step
        sources = [(i + move) % wave for i in range(wave)]
        moved = self.machine.pick(self.machine.spread(y.raw), sources)
        here = self.machine.constant_mask([bool(i & step) == upper for i in range(wave)])
        return Typed("u", 32, self.ops.select(here, moved, self.machine.spread(x.raw)))

    def word_upper_from(self, x: Typed, y: Typed, size: Typed) -> Typed:
        return self._exchanged(x, y, size, True)

    def word_lower_from(self, x: Typed, y: Typed, size: Typed) -> Typed:
        return self._exchanged(x, y, size, False)

    # Memory.

    def state_lane_address(self) -> Typed:
        """Base and constant, and four bytes for each lane before this one."""
        lanes = self._u("shl", 32, self.machine.lane_ids(), 2)
        inst = self.instruction
        if inst.format == "ds":
            base = self._u("and", 32, self.state_m0().raw, 0xFFFF)
            lanes = self.ops.binary("add", 32, lanes, self.machine.spread(base))
            return Typed("a", 64, Address("lds", None, lanes, inst.offset))
        base = self.fetched(inst.operands["base"]).raw if "base" in inst.operands else None
        if base is None:
            lanes = self.ops.resize(lanes, 32, 64, signed=False)
        return Typed("a", 64, Address("global", base, lanes, inst.offset))

    def _to_lds(self, address: Typed, bits: Typed, signed: bool) -> Typed:
        """Each lane's value to LDS, at M0 and the constant, lane after lane.

        Source: CDNA3 ISA, section 9.3.2 (M0 holds the offset into LDS).
        """
        size = int(bits.raw)
        words = self.machine.load(address.raw, size, signed=signed)
        step = max(4, size // 8)
        lanes = self._u("mul", 32, self.machine.lane_ids(), step)
        base = self._u("and", 32, self.state_m0().raw, 0xFFFF)
        lanes = self.ops.binary("add", 32, lanes, self.machine.spread(base))
        target = Address("lds", None, lanes, self.instruction.offset)
        self.machine.store(target, 8 * step, [self.machine.spread(word) for word in words])
        return Typed("n", 0, 0)

    def word_load_lds(self, address: Typed, bits: Typed) -> Typed:
        return self._to_lds(address, bits, False)

    def word_load_lds_signed(self, address: Typed, bits: Typed) -> Typed:
        return self._to_lds(address, bits, True)

    def _load(self, address: Typed, bits: Typed, signed: bool) -> Typed:
        """As everywhere, but for buffer loads whose bit sends them to LDS."""
        inst = self.instruction
        if inst.format == "mubuf" and inst.get("lds"):
            self._to_lds(address, bits, signed)
            return self.fetched(inst.operands["d"])
        return super()._load(address, bits, signed)

    def word_lds_append(self, step: Typed) -> Typed:
        old = self._running("append")(self.instruction.offset + self._offset(0, 16), int(step.raw))
        return Typed("u", 32, old)

    def word_store_scalar(self, address: Typed, bits: Typed, value: Typed) -> Typed:
        words = self.words_of(value, int(bits.raw) // 32)
        self._running("store_scalar")(address.raw, words)
        return Typed("n", 0, 0)

    def scalar_atomic(self, what: str, address: Typed, values: list[Typed]) -> Typed:
        """One operation for the wave; the old value only where GLC asks for it."""
        role = self.instruction.operands["d"]
        old = self._running("atomic_scalar")(address.raw, what, values)
        if not self.instruction.get("glc"):
            return self.fetched(role)
        if role.bits == old.bits:
            return Typed("u", old.bits, old.raw)
        kept = self.words_of(self.fetched(role), role.registers)
        fresh = self.words_of(old, old.bits // 32)
        words: list[Raw] = [*fresh, *kept[len(fresh) :]]
        if len(words) == 2:
            return Typed("u", 64, self.joined(words[0], words[1]))
        return Typed("w", 32 * len(words), words)

    def _block(self) -> tuple[int, Any]:
        mask = self._number_now(self.state_m0())
        return mask, self.instruction.operands["d" if "d" in self.instruction.operands else "data"]

    def word_load_block(self, address: Typed) -> Typed:
        """Register n from 4 * n on, for the bits of M0. Source: LLVM 22, block VGPR spills."""
        mask, operand = self._block()
        words = self.words_of(self.fetched(operand), 32)
        for number in range(32):
            if mask >> number & 1:
                part = self.moved(address, 4 * number)
                words[number] = self.machine.load(part.raw, 32, signed=False)[0]
        return Typed("w", 1024, words)

    def word_store_block(self, address: Typed) -> Typed:
        mask, operand = self._block()
        words = self.words_of(self.fetched(operand), 32)
        for number in range(32):
            if mask >> number & 1:
                part = self.moved(address, 4 * number)
                self.machine.store(part.raw, 32, [self.machine.spread(words[number])])
        return Typed("n", 0, 0)


def indexed(instruction: MachineInstruction, m0: int) -> MachineInstruction:
    """The instruction as M0 has it while registers are indexed: bits 15:12 choose operands."""
    if instruction.format not in ("vop1", "vop2", "vopc", "vop3", "vop3p"):
        return instruction
    offset, chosen = m0 & 255, m0 >> 12
    operands = dict(instruction.operands)
    for bit, role in enumerate("abcd"):
        operand = operands.get(role)
        if chosen >> bit & 1 and operand is not None and operand.kind == "vgpr":
            operands[role] = _moved_operand(operand, offset)
    return replace(instruction, operands=operands)


def _moved_operand(operand: Operand, offset: int) -> Operand:
    return replace(operand, index=operand.index + offset)
