"""Bit fields: where a value lies inside a packet or a register, and what may stand there.

A field knows its bits, counted from bit 0 of the whole; the unit in which the hardware counts; and
its type: an int, a bool, an enumeration or a set of flags. Nothing is masked silently: a value that
does not fit is an EncodingError, a set bit that no field names a DecodeError.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rawgpu import errors
from rawgpu.describe.value import DeclarationError, show
from rawgpu.errors import EncodingError as EncodingError


class DecodeError(errors.DecodeError):
    """Bits that no declaration explains. `offset` is where, in dwords, where that is known."""

    def __init__(self, message: str, *, offset: int | None = None, hint: str | None = None) -> None:
        self.reason = message
        where = "" if offset is None else f" (at dword {offset})"
        super().__init__(message + where, hint=hint)
        self.offset = offset

    def at(self, offset: int) -> DecodeError:
        """The same error, with its place."""
        return DecodeError(self.reason, offset=offset, hint=self.hint)


class Missing(enum.Enum):
    """Says that a field has no default."""

    MISSING = 0


MISSING = Missing.MISSING


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field. The stored number is `value // unit + bias`, in bits `low` to `low + width - 1`.

    A value that is no multiple of `unit` is refused, and so is one other than `const`, if set.
    """

    low: int
    width: int
    unit: int = 1
    bias: int = 0
    signed: bool = False
    default: Any = MISSING
    const: int | None = None
    name: str = ""
    kind: type = int
    tail: bool = False
    """Whether this is the rest of a packet of varying length; `low`, `width` are its count's."""
    start: int = 0
    """Of a tail: its first dword."""

    @property
    def mask(self) -> int:
        """The field's bits, in place."""
        return ((1 << self.width) - 1) << self.low

    def place(self) -> str:
        """The bits as a manual writes them: `2[7:0]` is bits 7 to 0 of dword 2."""
        dword, low = divmod(self.low, 32)
        high = low + self.width - 1
        return f"{dword}[{high}:{low}]" if high != low else f"{dword}[{low}]"

    def named(self, name: str, kind: Any) -> Field:
        """This field under its name and type; DeclarationError where they do not go together."""
        if self.tail:
            return replace(self, name=name)
        if not isinstance(kind, type) or not issubclass(kind, int):
            raise DeclarationError(f"{name}: a bit field is an int, a bool or an int enumeration")
        if kind is bool and self.width != 1:
            raise DeclarationError(f"{name}: a bool has one bit, not {self.width}")
        field = replace(self, name=name, kind=kind)
        if issubclass(kind, enum.Enum):
            for member in kind:
                if not 0 <= int(member.value) < 1 << self.width:
                    raise DeclarationError(f"{name}: {show(member)} has more than its bits")
        if self.const is not None:
            field = replace(field, default=field.typed(self.const))
        if field.default is not MISSING:
            try:
                field.encode(field.default)
            except EncodingError as error:
                raise DeclarationError(f"the default does not fit: {error.message}") from None
        return field

    def typed(self, value: int) -> Any:
        """`value` as the field's type; DecodeError if an enumeration lacks it."""
        kind: Any = self.kind
        if kind is int:
            return value
        if issubclass(kind, enum.Flag) and value & ~flag_bits(kind):
            unnamed = value & ~flag_bits(kind)
            raise DecodeError(f"{self.name} has bits {unnamed:#x} that {kind.__name__} lacks")
        try:
            return kind(value)
        except ValueError:
            raise DecodeError(f"{self.name} is {value:#x}, no {kind.__name__}") from None

    def encode(self, value: Any) -> int:
        """`value` in place, to be combined with the other fields."""
        if not isinstance(value, int):
            try:
                value = value.__index__()  # a NumPy integer
            except AttributeError:
                raise EncodingError(f"{self.name} is {value!r}, not an integer") from None
        number = int(value)
        if self.const is not None and number != self.const:
            raise EncodingError(f"{self.name} is always {self.const:#x}, not {number:#x}")
        if self.unit != 1:
            number, rest = divmod(number, self.unit)
            if rest:
                raise EncodingError(f"{self.name} is {show(value)}, no multiple of {self.unit}")
        number += self.bias
        low, high = 0, 1 << self.width
        if self.signed:
            low, high = -high // 2, high // 2
        if not low <= number < high:
            raise EncodingError(
                f"{self.name} is {show(value)}, and {self.width} bits hold "
                f"{show((low - self.bias) * self.unit)} to "
                f"{show((high - 1 - self.bias) * self.unit)}"
            )
        return (number & ((1 << self.width) - 1)) << self.low

    def decode(self, whole: int, *, strict: bool = True) -> Any:
        """The value that stands in `whole`. Not strict: what the type lacks stays a plain int."""
        number = whole >> self.low & ((1 << self.width) - 1)
        if self.signed and number >> (self.width - 1):
            number -= 1 << self.width
        number = (number - self.bias) * self.unit
        if self.const is not None and number != self.const and strict:
            raise DecodeError(f"{self.name} is {number:#x}, and {self.const:#x} is the only value")
        if self.kind is int:
            return number
        try:
            return self.typed(number)
        except DecodeError:
            if strict:
                raise
            return number


def flag_bits(kind: type[enum.Flag]) -> int:
    """All bits that members of `kind` name."""
    bits = 0
    for member in kind.__members__.values():
        bits |= int(member.value)
    return bits


def bits(
    high: int,
    low: int | None = None,
    *,
    unit: int = 1,
    bias: int = 0,
    signed: bool = False,
    default: Any = MISSING,
    const: int | None = None,
) -> Any:
    """Bits `high` down to `low` of the whole; one bit if `low` is left out.

    `unit` and `bias` convert: what is stored is `value // unit + bias`. `const` is the only value.
    """
    low = high if low is None else low
    if not 0 <= low <= high:
        raise DeclarationError(f"bits {high}:{low} are no range, high first")
    return Field(
        low=low,
        width=high - low + 1,
        unit=unit,
        bias=bias,
        signed=signed,
        default=default,
        const=const,
    )


def dw(
    dword: int,
    high: int = 31,
    low: int = 0,
    *,
    unit: int = 1,
    bias: int = 0,
    signed: bool = False,
    default: Any = MISSING,
    const: int | None = None,
) -> Any:
    """Bits `high` down to `low` of one dword: `dw(1, 7, 0)`; the whole dword: `dw(1)`."""
    if not 0 <= low <= high <= 31:
        raise DeclarationError(f"bits {high}:{low} are no range of a dword, high first")
    base = 32 * dword
    return bits(
        base + high,
        base + low,
        unit=unit,
        bias=bias,
        signed=signed,
        default=default,
        const=const,
    )


def dw64(
    dword: int,
    high: int = 63,
    low: int = 0,
    *,
    unit: int = 1,
    bias: int = 0,
    signed: bool = False,
    default: Any = MISSING,
    const: int | None = None,
) -> Any:
    """A value across `dword` (its low half) and the next: `dw64(2)`, `dw64(2, 47, 8, unit=256)`.

    With `unit`, `low` says where the stored number begins: an address whose two low bits mean
    something else is `dw64(1, 63, 2, unit=4)`.
    """
    if not 0 <= low <= high <= 63:
        raise DeclarationError(f"bits {high}:{low} are no range of a quadword, high first")
    base = 32 * dword
    return bits(
        base + high,
        base + low,
        unit=unit,
        bias=bias,
        signed=signed,
        default=default,
        const=const,
    )


def tail(
    dword: int,
    *,
    count: tuple[int, int, int] | None = None,
    bias: int = 0,
    unit: int = 1,
    default: Any = MISSING,
) -> Any:
    """All dwords from `dword` to the packet's end, as a tuple of ints.

    Where the header does not say how long the packet is, `count=(dword, high, low)` is where it
    does: what stands there is `len(tail) // unit + bias`.
    """
    low, width = 0, 0
    if count is not None:
        where: Field = dw(*count)
        low, width = where.low, where.width
    return Field(
        low=low, width=width, bias=bias, unit=unit, default=default, tail=True, start=dword
    )


def check_layout(owner: str, fields: Iterable[Field], size_bits: int, taken: int = 0) -> int:
    """Raise DeclarationError for bits outside `size_bits` or in two fields; return all bits in use.

    `taken` are bits that a header owns.
    """
    used = taken
    seen: list[Field] = []
    for field in fields:
        if field.mask >> size_bits:
            raise DeclarationError(
                f"{owner}.{field.name} at {field.place()} lies outside {size_bits} bits"
            )
        if field.mask & used:
            others = [other.name for other in seen if other.mask & field.mask] or ["the header"]
            raise DeclarationError(
                f"{owner}.{field.name} at {field.place()} overlaps {', '.join(others)}"
            )
        used |= field.mask
        seen.append(field)
    return used


def collect(
    cls: type, inherited: Sequence[Field], hints: dict[str, Any], drop: Iterable[str]
) -> Iterator[Field]:
    """The fields of `cls`: the parent's, less `drop`, with those that its body moves or adds."""
    own: dict[str, Field] = {}
    for name, kind in hints.items():
        field = cls.__dict__.get(name)
        if not isinstance(field, Field):
            raise DeclarationError(
                f"{cls.__name__}.{name} has no place: use dw, dw64, bits or tail"
            )
        try:
            own[name] = field.named(name, kind)
        except DeclarationError as error:
            raise DeclarationError(f"{cls.__name__}.{error}") from None
        delattr(cls, name)
    gone = set(drop)
    for field in inherited:
        if field.name in gone:
            gone.remove(field.name)
        else:
            yield own.pop(field.name, field)
    if gone:
        raise DeclarationError(
            f"{cls.__name__} drops {', '.join(sorted(gone))}, which it never had"
        )
    yield from own.values()


def readers(fields: Iterable[Field]) -> tuple[tuple[str, int, int, Field | None], ...]:
    """Name, shift and mask of each field; the field itself where that is not all there is to it."""
    rows = []
    for field in fields:
        plain = field.kind is int and field.unit == 1 and not field.bias
        plain = plain and not field.signed and field.const is None
        rows.append((field.name, field.low, (1 << field.width) - 1, None if plain else field))
    return tuple(rows)
