"""How an instruction's operands become values: registers, constants, and the input modifiers.

Negate, absolute value, halves by op_sel, DPP and SDWA, and on the way out scale and clamp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.spec.isa.operands import Operand
from rawgpu.amd.spec.isa.small_floats import small_floats
from rawgpu.virtual.meaning import LaneOps, NotInEngine, Raw, Typed
from rawgpu.virtual.meaning_small import Evaluator

VECTOR_FORMATS = frozenset(
    (
        "vop1", "vop2", "vopc", "vop3", "vop3sd", "vop3p", "vopd", "mfma", "mfma_scale", "vinterp",
        "ds", "flat", "global", "scratch", "mubuf", "mtbuf", "ldsdir", "exp",
    )
)  # fmt: skip
SOURCES = {"a": 0, "b": 1, "c": 2}
VCC, EXEC = 106, 126
SHARED_BASE, SHARED_LIMIT, PRIVATE_BASE, PRIVATE_LIMIT = 235, 236, 237, 238


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What differs between families, and between launches, in executing an instruction."""

    family: str
    wave: int
    m0: int
    null: int
    zeroes_high_half: bool
    """16-bit results of the old formats clear the upper half of the register."""
    dx10_clamp: bool = True
    apertures: tuple[int, int] = (1 << 48, 2 << 48)
    message_returns: bool = False
    """Message numbers from 128 on give a value."""
    swizzles_linear_buffers: bool = False
    """Only the add-thread-id bit, not the swizzle bits alone, marks a scratch buffer."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a memory instruction points: base + lanes + offset.

    `base`: a 64-bit scalar or None. `lanes`: with a base 32 bits a lane, else 64; None for none.
    For LDS and scratch `lanes` has 32 bits and so has `base`.
    """

    space: str
    base: Raw
    lanes: Raw
    offset: int


class Machine(Protocol):
    """The registers and memory of a wave, in one engine."""

    flushed_widths: frozenset[int]

    @property
    def ops(self) -> LaneOps: ...
    @property
    def arithmetic(self) -> LaneOps:
        """`ops`, rounding as the mode has it."""
        ...

    @property
    def saturates_small(self) -> bool:
        """The mode's FP16_OVFL: conversions to 8-bit floats keep to numbers."""
        ...

    def read_s(self, index: int) -> Raw: ...
    def write_s(self, index: int, value: Raw) -> None: ...
    def read_v(self, index: int) -> Raw: ...
    def write_v(self, index: int, value: Raw, mask: Raw) -> None:
        """Lanes where `mask`; None: all lanes."""
        ...

    def read_scc(self) -> Raw: ...
    def write_scc(self, value: Raw) -> None: ...
    def exec_mask(self) -> Raw:
        """Which lanes are on, a condition a lane; None where all are known to be."""
        ...

    def mask_of_bits(self, bits: Raw) -> Raw: ...
    def bits_of_mask(self, mask: Raw) -> Raw: ...
    def lane_ids(self) -> Raw: ...
    def spread(self, value: Raw) -> Raw:
        """A scalar in all lanes."""
        ...

    def first(self, value: Raw) -> Raw:
        """A value that is the same in all lanes, as a scalar."""
        ...

    def own(self, value: Raw) -> Raw:
        """A value that later writes of registers do not change."""
        ...

    def permute(self, value: Raw, lanes: Raw) -> Raw: ...
    def pick(self, value: Raw, lanes: list[int]) -> Raw:
        """Lanes by constant numbers."""
        ...

    def on_rows(
        self, function: Callable[..., Sequence[Raw]], groups: Sequence[Sequence[Raw]]
    ) -> list[Raw]:
        """Rows that a function of NumPy arrays makes of groups of rows; each a register's lanes."""
        ...

    def constant_mask(self, lanes: list[bool]) -> Raw: ...
    def lane(self, value: Raw, number: Raw) -> Raw: ...
    def with_lane(self, value: Raw, number: Raw, scalar: Raw) -> Raw: ...
    def first_active(self) -> Raw: ...
    def load(self, address: Address, bits: int, *, signed: bool) -> list[Raw]: ...
    def store(self, address: Address, bits: int, words: list[Raw]) -> None: ...
    def load_scalar(self, address: Address, bits: int, *, signed: bool) -> list[Raw]: ...
    def atomic(self, address: Address, what: str, values: list[Typed]) -> Typed: ...
    def program_counter(self, pc: int) -> Raw: ...
    def set_mode(self, field: int, count: int, value: int) -> None: ...
    def set_mode_bits(self, offset: int, count: int, value: Raw) -> None: ...
    def hardware_register(self, number: int) -> Raw: ...
    def clock(self) -> Raw: ...
    def message(self, kind: int) -> Raw: ...


class Operands(Evaluator):
    """Looks names up in registers."""

    def __init__(self, machine: Machine, facts: Facts) -> None:
        super().__init__(machine.ops)
        self.machine, self.facts = machine, facts
        self.small_formats = small_floats(facts.family)
        self.instruction: MachineInstruction
        self.vector = False
        self.half_mode: int | None = None
        self.pc = self.next_pc = 0

    def lookup(self, name: str) -> Typed:
        operand = self.instruction.operands.get(name)
        if operand is not None and name != "address":
            if self.half_mode is not None and operand.bits >= 32:
                return self._packed_part(name, operand)
            return self._modified(name, operand)
        state: Callable[[], Typed] | None = getattr(self, f"state_{name}", None)
        if state is None:
            raise NotInEngine(f"{self.instruction.name}: {name}")
        return state()

    # States.

    def state_scc(self) -> Typed:
        return Typed("b", 1, self.machine.read_scc())

    def _mask(self, index: int) -> Typed:
        return self._scalar(index, self.facts.wave)

    def state_vcc(self) -> Typed:
        mask = self._mask(VCC)
        return Typed("b", 1, self.machine.mask_of_bits(mask.raw)) if self.vector else mask

    def state_exec(self) -> Typed:
        return self._mask(EXEC)

    def state_m0(self) -> Typed:
        return self._scalar(self.facts.m0, 32)

    def state_pc(self) -> Typed:
        return Typed("u", 64, self.machine.program_counter(self.next_pc))

    def state_lane(self) -> Typed:
        return Typed("u", 32, self.machine.lane_ids())

    def state_imm(self) -> Typed:
        pieces = self.instruction.form.encoding.pieces
        field = next(name for name in ("simm16", "ssrc1", "ssrc0") if name in pieces)
        return Typed("n", 0, self.instruction.get(field))

    def state_offset0(self) -> Typed:
        return Typed("n", 0, self.instruction.get("offset0"))

    def state_offset1(self) -> Typed:
        return Typed("n", 0, self.instruction.get("offset1"))

    def _is_zero(self, index: int) -> Typed:
        mask = self._mask(index)
        zero = self.ops.const("u", mask.bits, 0)
        return Typed("b", 1, self.ops.compare("eq", mask.bits, mask.raw, zero))

    def state_vccz(self) -> Typed:
        return self._is_zero(VCC)

    def state_execz(self) -> Typed:
        return self._is_zero(EXEC)

    def scalar_truth(self, value: Typed) -> Raw:
        if value.kind == "n":
            value = self.solid(value)
        return self.machine.first(self.truth(value))

    # Registers and constants.

    def _scalar(self, index: int, bits: int) -> Typed:
        if index == self.facts.null:
            return self.const("u", bits, 0) if bits <= 64 else self._zeros(bits)
        if bits <= 32:
            raw = self.machine.read_s(index)
            return Typed("u", bits, self.ops.resize(raw, 32, bits, signed=False))
        words = [self.machine.read_s(index + i) for i in range(bits // 32)]
        if bits == 64:
            return Typed("u", 64, self.joined(words[0], words[1]))
        return Typed("w", bits, words)

    def _zeros(self, bits: int) -> Typed:
        return Typed("w", bits, [self.ops.const("u", 32, 0)] * (bits // 32))

    def _vector(self, operand: Operand) -> Typed:
        index = operand.index + (256 if operand.kind == "agpr" else 0)
        if operand.bits <= 32:
            raw = self.machine.read_v(index)
            if operand.half:
                raw = self._u("lshr", 32, raw, 16)
            return Typed("u", operand.bits, self.ops.resize(raw, 32, operand.bits, signed=False))
        words = [self.machine.read_v(index + i) for i in range(operand.registers)]
        if operand.bits == 64:
            return Typed("u", 64, self.joined(words[0], words[1]))
        return Typed("w", operand.bits, words)

    def fetched(self, operand: Operand) -> Typed:
        """An operand before modifiers; one of an odd width as the register that holds it."""
        if operand.bits < 32 and operand.bits not in (8, 16):
            operand = replace(operand, bits=32)
        if operand.kind in ("vgpr", "agpr"):
            return self._vector(operand)
        if operand.kind == "sgpr":
            return self._scalar(operand.index, operand.bits)
        if operand.kind in ("constant", "literal"):
            if operand.bits > 64:
                low = self.const("u", 32, operand.value & 0xFFFFFFFF).raw
                return Typed("w", operand.bits, [low] * (operand.bits // 32))
            return self.const("u", operand.bits, operand.value)
        if operand.kind == "special":
            return self._special(operand)
        raise NotInEngine(f"operand {operand.text}")

    def _special(self, operand: Operand) -> Typed:
        states = {251: self.state_vccz, 252: self.state_execz, 253: self.state_scc}
        if operand.index in states:
            raw = self.ops.bool_to_int(states[operand.index]().raw, operand.bits)
            return Typed("u", operand.bits, raw)
        shared, private = self.facts.apertures
        last = (1 << 32) - 1
        numbers = {
            SHARED_BASE: shared, SHARED_LIMIT: shared + last,
            PRIVATE_BASE: private, PRIVATE_LIMIT: private + last,
        }  # fmt: skip
        if operand.index not in numbers:
            raise NotInEngine(operand.text)
        return self.const("u", operand.bits, numbers[operand.index])

    # Modifiers.

    def _modified(self, role: str, operand: Operand) -> Typed:
        inst, place = self.instruction, SOURCES.get(role)
        if inst.kind == "sdwa" and place in (0, 1) and operand.bits in (8, 16):
            # The selection is made from the whole register.
            wide = self._sdwa_source(self.fetched(replace(operand, bits=32)), place)
            value = self.view("u", operand.bits, wide)
        elif operand.bits == 8 and operand.kind == "vgpr" and place == 0:
            value = self.word_byte(self.fetched(replace(operand, bits=32)), self._byte_pick())
        else:
            value = self.fetched(operand)
        if place is not None and inst.format.startswith("vopd"):
            return self.signed(value, bool(inst.get(f"neg{inst.format[-1]}") >> place & 1), False)
        if place is None or not self.vector:
            return value
        if inst.kind.endswith(("dpp", "dpp8")) and role == "a":
            value = self._dpp(value)
        if inst.kind == "sdwa" and place < 2 and value.bits not in (8, 16):
            value = self._sdwa_source(value, place)
        if inst.format == "vop3p":
            return self._packed_signs(role, place, value)
        negate, absolute = inst.get("neg") >> place & 1, inst.get("abs") >> place & 1
        negate |= inst.get(f"src{place}_neg")
        absolute |= inst.get(f"src{place}_abs")
        return self.signed(value, bool(negate), bool(absolute))

    def _byte_pick(self) -> Typed:
        """The byte of a source of 8 bits: op_sel, its bits reversed in what began as VOP1."""
        chosen = self.instruction.get("op_sel") & 3
        if self.instruction.row.format == "vop1":
            chosen = chosen >> 1 | (chosen & 1) << 1
        return Typed("n", 0, chosen)

    def signed(self, value: Typed, negate: bool, absolute: bool) -> Typed:
        """The sign bit changed."""
        if not (negate or absolute) or value.kind == "w":
            return value
        bits, raw = value.bits, value.raw
        if absolute:
            raw = self._u("and", bits, raw, (1 << (bits - 1)) - 1)
        if negate:
            raw = self._u("xor", bits, raw, 1 << (bits - 1))
        return Typed("u", bits, raw)

    def _packed_signs(self, role: str, place: int, value: Typed) -> Typed:
        """Signs of both halves, for packed sources that are taken whole."""
        type_ = self.instruction.form.types[role]
        if not type_.is_float or type_.element != 16 or value.bits != 32:
            return value
        flip = 0
        if self.instruction.get("neg") >> place & 1:
            flip |= 0x8000
        if self.instruction.get("neg_hi") >> place & 1:
            flip |= 0x80000000
        return Typed("u", 32, self._u("xor", 32, value.raw, flip)) if flip else value

    def _packed_part(self, role: str, operand: Operand) -> Typed:
        """The half, or word, of a packed operand that the part being computed reads."""
        value, part = self.fetched(operand), self.half_mode
        assert part is not None
        place = SOURCES.get(role)
        pick, negate = part, 0
        if place is not None:
            field = "op_sel_hi" if part else "op_sel"
            pick = self.instruction.get(field) >> place & 1
            negate = self.instruction.get("neg_hi" if part else "neg") >> place & 1
        width = operand.bits // 2
        if width == 16:
            chosen = self.word_half(value, Typed("n", 0, pick))
        else:
            chosen = Typed("u", 32, self.words_of(value, 2)[pick])
        return self.signed(chosen, bool(negate), False)

    # DPP and SDWA.

    def _dpp(self, value: Typed) -> Typed:
        """Lanes moved; a lane without a source gets 0, or is not written (`write_mask`)."""
        sources, valid = self._dpp_lanes()
        raws = value.raw if value.kind == "w" else [value.raw]
        out = []
        for raw in raws:
            moved = self.machine.pick(self.machine.spread(raw), sources)
            out.append(self._zero_where_invalid(moved, value.bits, sources, valid))
        return Typed(value.kind, value.bits, out if value.kind == "w" else out[0])

    def _zero_where_invalid(
        self, moved: Raw, bits: int, sources: list[int], valid: list[bool]
    ) -> Raw:
        live = None if all(valid) else self.machine.constant_mask(valid)
        mask = self.machine.exec_mask()
        if mask is not None and not self._fetches_inactive():
            on = self.machine.pick(mask, sources)
            live = on if live is None else self.ops.both(live, on)
        if live is None:
            return moved
        return self.ops.select(live, moved, self.ops.const("u", min(bits, 64), 0))

    def _fetches_inactive(self) -> bool:
        inst = self.instruction
        if inst.kind.endswith("dpp8"):
            return bool(inst.word & 0x1FF == 0xEA)
        return bool(inst.get("fi"))

    def _dpp_lanes(self) -> tuple[list[int], list[bool]]:
        inst, wave = self.instruction, self.facts.wave
        if inst.kind.endswith("dpp8"):
            packed = inst.get("dpp_lanes")
            return [(i & ~7) + (packed >> 3 * (i & 7) & 7) for i in range(wave)], [True] * wave
        return dpp_lanes(inst.get("dpp_ctrl"), wave)

    def write_mask(self) -> Raw:
        """Which lanes a vector result goes to; None: all."""
        mask = self.machine.exec_mask()
        inst = self.instruction
        if not inst.kind.endswith("dpp"):
            return mask
        wave = self.facts.wave
        sources, valid = self._dpp_lanes()
        rows, banks = inst.get("row_mask"), inst.get("bank_mask")
        on = [bool(rows >> (i >> 4 & 3) & 1 and banks >> (i >> 2 & 3) & 1) for i in range(wave)]
        if not inst.get("bound_ctrl"):
            on = [a and b for a, b in zip(on, valid, strict=True)]
            if mask is not None and not self._fetches_inactive():
                mask = self.ops.both(mask, self.machine.pick(mask, sources))
        if all(on):
            return mask
        fixed = self.machine.constant_mask(on)
        return fixed if mask is None else self.ops.both(mask, fixed)

    def _sdwa_source(self, value: Typed, place: int) -> Typed:
        select = self.instruction.get(f"src{place}_sel")
        sext = self.instruction.get(f"src{place}_sext")
        if select == 6 or value.bits < 32 or value.kind == "w":
            width = value.bits
        else:
            width = 8 if select < 4 else 16
        if width == value.bits:
            return value
        low = 8 * select if select < 4 else 16 * (select - 4)
        moved = Typed("i" if sext else "u", 32, self._u("lshr", 32, value.raw, low))
        part = self.view("i" if sext else "u", width, moved)
        return Typed("u", 32, self.as_bits(part, 32))

    def _sdwa_result(self, index: int, value: Typed, bits: int) -> Typed:
        select, unused = self.instruction.get("dst_sel"), self.instruction.get("dst_unused")
        value = self.finished(value)
        word = Typed("u", 32, self.as_bits(value, 32))
        if bits == 16:
            word = self.view("u", 32, self.view("u", 16, word))
        if select == 6:
            return word
        width = 8 if select < 4 else 16
        low = 8 * select if select < 4 else 16 * (select - 4)
        if unused == 2:
            old = Typed("u", 32, self.machine.read_v(index))
            return self.word_insert(old, word, Typed("n", 0, low), Typed("n", 0, width))
        part = self.view("u", width, word) if unused == 0 else self.view("i", width, word)
        if unused == 1:
            part = Typed("i", width, part.raw)
        return Typed("u", 32, self._u("shl", 32, self.as_bits(part, 32), low))

    # Output modifiers.

    def finished(self, value: Typed) -> Typed:
        """A result after scale and clamp."""
        if value.kind != "f":
            return value
        inst = self.instruction
        omod = inst.get("omod")
        if omod:
            factor = self.fconst(value, (1.0, 2.0, 4.0, 0.5)[omod])
            raw = self.arithmetic.binary("fmul", value.bits, value.raw, factor)
            value = self.f(value.bits, raw)
        if not inst.get("clamp") or inst.format == "vopc":
            return value
        one, zero = self.fconst(value, 1.0), self.fconst(value, 0.0)
        above = self.ops.compare("olt", value.bits, one, value.raw)
        inside = self.ops.compare("olt", value.bits, zero, value.raw)
        raw = self.ops.select(inside, value.raw, zero)
        if not self.facts.dx10_clamp:
            raw = self.ops.select(self._isnan(value), value.raw, raw)
        return self.f(value.bits, self.ops.select(above, one, raw))


def dpp_lanes(control: int, wave: int) -> tuple[list[int], list[bool]]:
    """The source lane of each lane, and whether there is one. Source: RDNA3 ISA, DPP_CTRL."""
    sources, valid = [], []
    for i in range(wave):
        row, at = i & ~15, i & 15
        ok = True
        if control < 0x100:
            source = (i & ~3) + (control >> 2 * (i & 3) & 3)
        elif 0x101 <= control <= 0x10F:  # row_shl: from the lanes above
            amount = control & 15
            ok, source = at + amount < 16, row + (at + amount & 15)
        elif 0x111 <= control <= 0x11F:  # row_shr
            amount = control & 15
            ok, source = at >= amount, row + (at - amount & 15)
        elif 0x121 <= control <= 0x12F:  # row_ror
            source = row + (at - (control & 15) & 15)
        elif control in (0x130, 0x134, 0x138, 0x13C):
            step = 1 if control in (0x130, 0x134) else -1
            ok = 0 <= i + step < wave or control in (0x134, 0x13C)
            source = (i + step) % wave
        elif control == 0x140:
            source = row + 15 - at
        elif control == 0x141:
            source = (i & ~7) + 7 - (i & 7)
        elif control in (0x142, 0x143):
            size = 16 if control == 0x142 else 32
            ok, source = i >= size, max((i & ~(size - 1)) - 1, 0)
        elif 0x150 <= control < 0x160:
            source = row + (control & 15)
        elif 0x160 <= control < 0x170:
            source = row + (at ^ control & 15)
        else:
            raise NotInEngine(f"dpp_ctrl {control:#x}")
        sources.append(source)
        valid.append(ok)
    return sources, valid
