"""A decoded instruction, and the form it is written in. `decoder.py` makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rawgpu.amd.spec.isa.operands import Operand, OperandType
from rawgpu.describe.encoding import Encoding, Instruction

Table = Sequence[Operand | None]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an operand is found: a table, and the bits that index it.

    `extra` is one more bit of the word, put at `extra_at` of the index after being flipped by
    `flip`: which half of a register, which register file. Where `only_if` is given, the operand is
    there only if that bit is set: the old value that an atomic gives back on request.
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
    only_if: int | None = None

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
    literal_type: OperandType | None = None  # of a literal that is always there
    pick: Callable[[int], str | None] | None = None  # the variant that these bits ask for
    variants: dict[str, Form | None] = field(default_factory=dict)
    ready: bool = False

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
            (carry, scale), `a` `b` `c` sources, `k` literal; memory: `address` `data` `data2`
            `base` `soffset`.
        parts: the two halves of a dual-issue instruction; empty for all others.
    """

    form: Form
    word: int
    operands: dict[str, Operand]
    parts: tuple[MachineInstruction, ...] = ()

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

    @property
    def offset(self) -> int:
        """The constant offset of a memory instruction, in bytes; signed where the format's is.

        For LDS instructions of two addresses, read `offset0` and `offset1` instead.
        """
        pieces = self.form.encoding.pieces
        if "offset1" in pieces:
            return self.get("offset0") | self.get("offset1") << 8
        if "offset" not in pieces:
            return 0
        value, width = self.get("offset"), self.form.encoding.widths["offset"]
        signed = self.format in ("global", "scratch", "smem") or width == 24
        return value - (1 << width) if signed and value >> width - 1 else value

    def encode(self) -> bytes:
        """The bytes, built from operands and modifiers."""
        values = self.values
        for slot in self.form.slots:
            operand = self.operands.get(slot.role)
            if operand is None or self.form.literal_field is None:
                continue
            if operand.kind == "literal":
                values[self.form.literal_field] = int(operand.text, 16)
        return self.form.encoding.to_bytes(values)
