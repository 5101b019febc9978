"""From bytes to instructions and back, by the tables of this package.

    decoder = Decoder("gfx11", wave=32)
    instruction = decoder.decode(code, offset)
    instruction.name, instruction.format        "v_add_f32", "vop2"
    instruction.operands["a"]                   Operand(kind="sgpr", index=3, bits=32, …)
    instruction.row.meaning                     "f32(a) + f32(b)"
    instruction.encode()                        the same bytes

A row of the tables has a *form* for each way to write it: VOP2 in 32 bits or in the 64 of VOP3, with
a literal, with DPP or SDWA behind it. Forms are made when first met. `decode/disasm.py` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from rawgpu.amd.spec.isa import formats
from rawgpu.amd.spec.isa.operands import (
    LITERAL,
    SCALARS,
    VGPR_BASE,
    Operand,
    OperandType,
    constant,
    literal,
    operand_type,
    scalar_table,
    vector_table,
)
from rawgpu.describe.encoding import DecodeError, Dispatch, Encoding, Instruction

Table = Sequence[Operand | None]

DPP, DPP8, DPP8_FI, SDWA = 0xFA, 0xE9, 0xEA, 0xF9


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an operand is found: a table, and the bits that index it.

    `extra` is one more bit of the word, put at `extra_at` of the index after being flipped by
    `flip`: which half of a register, which register file.
    """

    role: str
    type: OperandType
    table: Table
    field: str
    shift: int
    mask: int
    scale: int = 0  # index << scale: fields that count in pairs or fours
    extra: int | None = None
    extra_at: int = 9
    flip: int = 0

    def index(self, word: int) -> int:
        at = (word >> self.shift & self.mask) << self.scale
        if self.extra is not None:
            at |= ((word >> self.extra & 1) ^ self.flip) << self.extra_at
        return at


@dataclass(slots=True)
class Form:
    """A row, in one way to write it, for one family and wave size."""

    row: Instruction
    name: str
    format: str
    kind: str  # "e32", "e64", "dpp", "dpp8", "sdwa", or "" where there is one way only
    encoding: Encoding
    slots: tuple[Slot, ...]
    types: Mapping[str, OperandType]
    fixed: Mapping[str, Operand] = field(default_factory=dict)
    literal_field: str | None = None
    pick: Callable[[int], str | None] | None = None
    variants: dict[str, Form | None] = field(default_factory=dict)
    owner: Decoder | None = None

    @property
    def size(self) -> int:
        return self.encoding.bits // 8


@dataclass(slots=True)
class MachineInstruction:
    """A decoded instruction.

    Attributes:
        form: how it is written; `form.row` is its row in the tables.
        word: its bits, little-endian.
        operands: by role, in the order of assembly text. Roles: `d` result, `co` second result
            (carry, scale), `a` `b` `c` sources, `k` literal; memory: `address` `data` `data2` `base`
            `offset`.
    """

    form: Form
    word: int
    operands: dict[str, Operand]

    @property
    def row(self) -> Instruction:
        return self.form.row

    @property
    def name(self) -> str:
        """LLVM's mnemonic, without `_e32` and the like."""
        return self.form.name

    @property
    def format(self) -> str:
        return self.form.format

    @property
    def kind(self) -> str:
        return self.form.kind

    @property
    def meaning(self) -> str:
        return self.form.row.meaning

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.form.encoding.bits // 8

    @property
    def values(self) -> dict[str, int]:
        """Every field of the bit picture, by name."""
        encoding = self.form.encoding
        return {name: encoding.get(self.word, name) for name in encoding.pieces}

    @property
    def modifiers(self) -> dict[str, int]:
        """The fields that are neither opcode nor operand, where they are not zero."""
        taken = {slot.field for slot in self.form.slots} | {"op", self.form.literal_field}
        return {k: v for k, v in self.values.items() if v and k not in taken}

    def get(self, name: str) -> int:
        """A field's value; 0 where this form has no such field."""
        return self.form.encoding.get(self.word, name) if name in self.form.encoding.pieces else 0

    def encode(self) -> bytes:
        """The bytes, built from operands and modifiers."""
        values = self.values
        for slot in self.form.slots:
            operand = self.operands[slot.role]
            if operand.kind == "literal" and self.form.literal_field:
                literal_bits = int(operand.text, 16)
                values[self.form.literal_field] = literal_bits & 0xFFFFFFFF
        return self.form.encoding.to_bytes(values)
