"""Machine instructions as data: bit pictures, instruction rows, and the tables that find a row.

An `Encoding` is written like the picture in a vendor's manual, high bits first, dwords in memory
order and separated by a bar:

    VOP3 = Encoding("110101 op:10 clamp op_sel:4 abs:3 vdst:8 | neg:3 omod:2 src2:9 src1:9 src0:9")

Ones and zeros are fixed bits, `-:4` are bits that must be zero, a bare name is one bit, and
`name[2:1]` places bits 2 and 1 of a field whose other bits stand elsewhere. `pack` refuses a value
that is too wide and `unpack` refuses a set bit that no field names: nothing is masked silently.

An `Instruction` is a row: a name, a format, its opcode in every generation, its operands and its
meaning, an expression of the words in `describe.semantics`. `Dispatch` finds the row of a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rawgpu.errors import DecodeError, EncodingError

T = TypeVar("T")

_BITS = re.compile(r"[01]+")
_FIELD = re.compile(
    r"(?P<name>-|[a-z_][a-z0-9_]*)(?:\[(?P<hi>\d+)(?::(?P<lo>\d+))?\])?(?::(?P<n>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bits `shift`..`shift+width-1` of the word hold bits `at`.. of a field."""

    shift: int
    width: int
    at: int = 0

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1


class Encoding:
    """A bit picture. `bits` is its size; `fields` its names, in the picture's order."""

    __slots__ = ("bits", "fixed_mask", "fixed_value", "known_mask", "picture", "pieces", "widths")

    def __init__(self, picture: str) -> None:
        self.picture = picture
        self.pieces: dict[str, tuple[Piece, ...]] = {}
        self.fixed_mask = self.fixed_value = 0
        self.bits = 0
        for dword in picture.split("|"):
            self._read_dword(dword.split())
        self.widths = {
            name: max(p.at + p.width for p in pieces) for name, pieces in self.pieces.items()
        }
        for name, pieces in self.pieces.items():
            covered = sum(p.mask << p.at for p in pieces)
            if covered != (1 << self.widths[name]) - 1:
                raise ValueError(f"{picture!r}: the pieces of {name} overlap or leave a gap")
        self.known_mask = self.fixed_mask
        for pieces in self.pieces.values():
            for piece in pieces:
                self.known_mask |= piece.mask << piece.shift

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.pieces)

    @property
    def size_bytes(self) -> int:
        return self.bits // 8

    def _read_dword(self, tokens: Sequence[str]) -> None:
        parts = [self._read_token(token) for token in tokens]
        width = sum(n for _, n, _, _ in parts)
        if width % 32:
            raise ValueError(f"{self.picture!r}: {' '.join(tokens)!r} has {width} bits")
        shift = self.bits + width
        for name, n, at, value in parts:
            shift -= n
            if name == "":
                self.fixed_mask |= ((1 << n) - 1) << shift
                self.fixed_value |= value << shift
            elif name != "-":
                self.pieces[name] = (*self.pieces.get(name, ()), Piece(shift, n, at))
        self.bits += width

    def _read_token(self, token: str) -> tuple[str, int, int, int]:
        """Name ("" for fixed bits), width, lowest bit of the field, and fixed value."""
        if _BITS.fullmatch(token):
            return "", len(token), 0, int(token, 2)
        match = _FIELD.fullmatch(token)
        if match is None:
            raise ValueError(f"{self.picture!r}: cannot read {token!r}")
        if match["hi"] is not None:
            hi, lo = int(match["hi"]), int(match["lo"] or match["hi"])
            return match["name"], hi - lo + 1, lo, 0
        return match["name"], int(match["n"] or 1), 0, 0

    def extended(self, picture: str) -> Encoding:
        """This picture with more dwords behind it."""
        return Encoding(f"{self.picture} | {picture}")

    def matches(self, word: int) -> bool:
        return word & self.fixed_mask == self.fixed_value

    def get(self, word: int, name: str) -> int:
        value = 0
        for piece in self.pieces[name]:
            value |= (word >> piece.shift & piece.mask) << piece.at
        return value

    def unpack(self, word: int) -> dict[str, int]:
        """The value of every field. Raises `DecodeError` where bits are set that none names."""
        if word & self.fixed_mask != self.fixed_value:
            raise DecodeError(f"{word:#x} is not of the form {self.picture!r}")
        unknown = word & ~self.known_mask
        if unknown:
            bits = [i for i in range(unknown.bit_length()) if unknown >> i & 1]
            raise DecodeError(f"{word:#x}: no field of {self.picture!r} names its bits {bits}")
        return {name: self.get(word, name) for name in self.pieces}

    def pack(self, values: Mapping[str, int]) -> int:
        """The word in which every field has its value; fields not given are zero."""
        word = self.fixed_value
        for name, value in values.items():
            pieces = self.pieces.get(name)
            if pieces is None:
                raise EncodingError(f"{self.picture!r} has no field {name!r}")
            if not 0 <= value < 1 << self.widths[name]:
                raise EncodingError(f"{name} = {value:#x} does not fit {self.widths[name]} bits")
            for piece in pieces:
                word |= (value >> piece.at & piece.mask) << piece.shift
        return word

    def to_bytes(self, values: Mapping[str, int]) -> bytes:
        return self.pack(values).to_bytes(self.bits // 8, "little")

    def __repr__(self) -> str:
        return f"Encoding({self.picture!r})"


@dataclass(frozen=True, slots=True)
class Column:
    """What an instruction is called and its opcode, from one generation on; None where it ends."""

    opcode: int | None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Opcodes:
    """The opcode columns of a row, keyed by the generation that introduced each."""

    columns: Mapping[str, Column]

    def at(self, lineage: Iterable[str]) -> Column | None:
        """The column in force: that of the nearest ancestor that has one. Newest first."""
        for generation in lineage:
            column = self.columns.get(generation)
            if column is not None:
                return column if column.opcode is not None else None
        return None


def op(**since: int | str | None) -> Opcodes:
    """Opcode columns: `op(gfx9=0x01, gfx10=0x03, gfx12=None)`.

    A number holds from that generation on, for it and its descendants; None ends the instruction.
    `"0x14 global_load_dword"` gives the name that it has there as well, until the next column.
    """
    columns = {}
    for generation, entry in since.items():
        if isinstance(entry, str):
            number, _, name = entry.partition(" ")
            columns[generation] = Column(int(number, 0), name or None)
        else:
            columns[generation] = Column(entry)
    return Opcodes(columns)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A row. `meaning` is empty where it is not modelled: running it raises by name.

    `format` names the bit picture; vendors key theirs by it. `operands` is the vendor's notation
    for what is read and written. `flags` are words that a vendor's decoder knows.
    """

    name: str
    format: str
    opcodes: Opcodes
    operands: str
    meaning: str = ""
    flags: frozenset[str] = field(default=frozenset())


def row(
    name: str, format_: str, opcodes: Opcodes, operands: str, meaning: str = "", flags: str = ""
) -> Instruction:
    """A row as tables write it; `flags` are words."""
    return Instruction(name, format_, opcodes, operands, meaning, frozenset(flags.split()))


@dataclass(slots=True)
class Dispatch(Generic[T]):
    """Finds what a word is: (mask, value) → payload, by a table over the word's leading bits.

    `lead_shift` and `lead_bits` say where the leading bits stand in the first dword. Two entries
    that one word could match are an error when the table is built.
    """

    lead_shift: int = 23
    lead_bits: int = 9
    _table: list[list[tuple[int, dict[int, T]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._table = [[] for _ in range(1 << self.lead_bits)]

    def add(self, mask: int, value: int, payload: T) -> None:
        lead_mask = (1 << self.lead_bits) - 1
        fixed, want = mask >> self.lead_shift & lead_mask, value >> self.lead_shift & lead_mask
        for lead, bucket in enumerate(self._table):
            if lead & fixed != want & fixed:
                continue
            for other_mask, entries in bucket:
                both = mask & other_mask
                for other_value, other in entries.items():
                    if (value ^ other_value) & both == 0 and self._meets(
                        lead, other_mask, other_value
                    ):
                        raise ValueError(f"one word is both {payload!r} and {other!r}")
            for other_mask, entries in bucket:
                if other_mask == mask:
                    entries[value] = payload
                    break
            else:
                bucket.append((mask, {value: payload}))

    def _meets(self, lead: int, mask: int, value: int) -> bool:
        lead_mask = (1 << self.lead_bits) - 1
        fixed = mask >> self.lead_shift & lead_mask
        return lead & fixed == value >> self.lead_shift & fixed

    def find(self, word: int) -> T | None:
        """The payload whose bits match, or None."""
        for mask, entries in self._table[word >> self.lead_shift & ((1 << self.lead_bits) - 1)]:
            found = entries.get(word & mask)
            if found is not None:
                return found
        return None
