"""What an instruction's operand can be: registers, constants, literals; and its name in assembly.

Operands are interned: a table per operand type maps the code in the instruction to one `Operand`,
so decoding is a shift, a mask and a look-up. Read `decoder.py` next.

An operand type is a word of the rows' notation: `f32`, `u16`, `f16x2` (two halves in a register),
`b128`, `m` (a lane mask: one scalar register per 32 lanes), `w:f32x8` (that many registers in
wave32, half as many in wave64).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

_TYPE = re.compile(r"(?P<wave>w:)?(?P<base>m|(?:bf|fp|[fiub])(?P<width>\d+))(?:x(?P<count>\d+))?")


@dataclass(frozen=True, slots=True)
class OperandType:
    """An operand type, its wave size settled. `bits` is the whole, `element` the base's width."""

    token: str
    base: str
    element: int
    bits: int

    @property
    def is_float(self) -> bool:
        return self.base.startswith(("f", "bf"))

    @property
    def is_half(self) -> bool:
        """A 16-bit value, that is one half of a 32-bit register."""
        return self.bits == 16

    @property
    def registers(self) -> int:
        return max(1, -(-self.bits // 32))


@cache
def operand_type(token: str, wave: int) -> OperandType:
    """The type that `token` names on waves of `wave` lanes."""
    match = _TYPE.fullmatch(token)
    if match is None:
        raise ValueError(f"{token!r} is no operand type")
    if match["base"] == "m":
        return OperandType(token, "m", wave, wave)
    element, count = int(match["width"]), int(match["count"] or 1)
    base = match["base"]
    bits = element * count
    if match["wave"] and wave == 64:
        bits //= 2
    return OperandType(token, base, element, bits)


@dataclass(slots=True)
class Operand:
    """One operand.

    Attributes:
        kind: "vgpr", "agpr", "sgpr" (also VCC, EXEC, M0, trap registers and null, by their number),
            "constant", "literal", "special" (`vccz`, apertures … by their source code), "off".
        index: number of the first register; the source code of a special.
        bits: size of the value.
        value: bits of a constant or literal at the operand's own type; 0 for registers.
        half: 1 where a 16-bit value is the high half of its register, 0 where it is the low half,
            None where the operand is no 16-bit value.
        text: its name in assembly, without `.l` and `.h`.
        code: what the instruction's field holds.
    """

    kind: str
    index: int
    bits: int
    value: int
    half: int | None
    text: str
    code: int

    @property
    def registers(self) -> int:
        return max(1, -(-self.bits // 32))


FLOATS: Mapping[int, tuple[float, str]] = {
    240: (0.5, "0.5"),
    241: (-0.5, "-0.5"),
    242: (1.0, "1.0"),
    243: (-1.0, "-1.0"),
    244: (2.0, "2.0"),
    245: (-2.0, "-2.0"),
    246: (4.0, "4.0"),
    247: (-4.0, "-4.0"),
    248: (0.15915494309189532, "0.15915494"),
}
"""Inline constants that are floats; 248 is 1/(2π), truncated at every width."""

INVERSE_TWO_PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}

SPECIAL: Mapping[int, str] = {
    235: "src_shared_base",
    236: "src_shared_limit",
    237: "src_private_base",
    238: "src_private_limit",
    239: "src_pops_exiting_wave_id",
    251: "src_vccz",
    252: "src_execz",
    253: "src_scc",
    254: "src_lds_direct",
}

LITERAL = 255
VGPR_BASE = 256


def float_bits(value: float, type_: OperandType) -> int:
    """The bits of inline constant `value` as an operand of `type_` sees them."""
    width = type_.element if type_.is_float else min(type_.bits, 64)
    if type_.token in ("i16x2", "u16x2", "b16x2"):
        width = 32
    if type_.base == "bf16":
        return int.from_bytes(struct.pack("<f", value), "little") >> 16
    if value == FLOATS[248][0]:
        return INVERSE_TWO_PI.get(width, INVERSE_TWO_PI[32])
    letter, size = {16: ("e", "<H"), 64: ("d", "<Q")}.get(width, ("f", "<I"))
    bits: int = struct.unpack(size, struct.pack(f"<{letter}", value))[0]
    return bits


@dataclass(frozen=True, slots=True)
class ScalarNames:
    """How a family names scalar registers beyond the numbered ones."""

    numbered: int  # s0 .. s(numbered-1)
    single: Mapping[int, str]
    pair: Mapping[int, str]

    def name(self, code: int, registers: int) -> str | None:
        """The name of `registers` scalar registers from `code`; None where there are none."""
        if registers == 1:
            special = self.single.get(code)
        elif code in NULL and self.single.get(code) == "null":
            return "null"
        else:
            special = self.pair.get(code) if registers == 2 else None
        if special is not None:
            return special
        if registers > 1 and code % (2 if registers == 2 else 4):
            return None  # tuples are aligned
        for prefix, first, last in (("s", 0, self.numbered - 1), ("ttmp", 108, 123)):
            if first <= code <= last and code + registers - 1 <= last:
                at = code - first
                return f"{prefix}{at}" if registers == 1 else f"{prefix}[{at}:{at + registers - 1}]"
        return None


NULL = (124, 125)

_COMMON = {106: "vcc_lo", 107: "vcc_hi", 126: "exec_lo", 127: "exec_hi"}
_PAIRS = {106: "vcc", 126: "exec"}

SCALARS: Mapping[str, ScalarNames] = {
    "gfx9": ScalarNames(
        102,
        {
            102: "flat_scratch_lo",
            103: "flat_scratch_hi",
            104: "xnack_mask_lo",
            105: "xnack_mask_hi",
            124: "m0",
            **_COMMON,
        },
        {102: "flat_scratch", 104: "xnack_mask", **_PAIRS},
    ),
    "gfx10": ScalarNames(106, {124: "m0", 125: "null", **_COMMON}, _PAIRS),
    "gfx11": ScalarNames(106, {124: "null", 125: "m0", **_COMMON}, _PAIRS),
}


def vector_name(prefix: str, index: int, registers: int) -> str:
    return f"{prefix}{index}" if registers == 1 else f"{prefix}[{index}:{index + registers - 1}]"


def vector_table(prefix: str, type_: OperandType, half: int | None) -> list[Operand | None]:
    """Operands for the 256 codes of a vector register field.

    Where tuples must begin at an even register (`Trait.EVEN_TUPLES`), others decode all the same,
    as LLVM's disassembler has it; running them is for the machine to refuse.
    """
    kind = "vgpr" if prefix == "v" else "agpr"
    registers = type_.registers
    return [
        Operand(kind, i, type_.bits, 0, half, vector_name(prefix, i, registers), i)
        if i + registers <= 256
        else None
        for i in range(256)
    ]


def scalar_table(names: ScalarNames, type_: OperandType, half: int | None) -> list[Operand | None]:
    """Operands for the 128 codes of a scalar register field."""
    table: list[Operand | None] = []
    for code in range(128):
        name = names.name(code, type_.registers)
        table.append(
            None if name is None else Operand("sgpr", code, type_.bits, 0, half, name, code)
        )
    return table


def constant(code: int, type_: OperandType) -> Operand | None:
    """The inline constant that source code `code` stands for; None if it is none."""
    mask = (1 << max(type_.bits, 32 if type_.element == 16 and type_.bits == 32 else 0)) - 1
    if 128 <= code <= 192:
        return Operand("constant", 0, type_.bits, code - 128, None, str(code - 128), code)
    if 193 <= code <= 208:
        return Operand("constant", 0, type_.bits, (192 - code) & mask, None, str(192 - code), code)
    if code in FLOATS:
        value, text = FLOATS[code]
        if code == 248 and type_.bits == 64:
            text = "0.15915494309189532"
        return Operand("constant", 0, type_.bits, float_bits(value, type_), None, text, code)
    if code in SPECIAL:
        return Operand("special", code, type_.bits, 0, None, SPECIAL[code], code)
    return None


def literal(value: int, type_: OperandType) -> Operand:
    """A literal of 32 bits, or 64 where the family has them, as an operand of `type_` sees it."""
    bits = value
    if type_.bits == 64 and value >> 32 == 0:
        if type_.is_float and type_.element == 64:
            bits = value << 32
        elif type_.base.startswith("i") and value >> 31:
            bits = value | 0xFFFFFFFF << 32
    elif type_.bits < 32:
        bits = value & (1 << type_.bits) - 1
    return Operand("literal", 0, type_.bits, bits, None, f"{value:#x}", LITERAL)
