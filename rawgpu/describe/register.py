"""Registers: a word at an offset, with named bit fields.

    class COMPUTE_NUM_THREAD_X(Register, offset=0xB81C, source="gfx11.json"):
        NUM_THREAD_FULL: int = at(15, 0)
        NUM_THREAD_PARTIAL: int = at(31, 16)

Fields are 0 unless given. Long tables use `register("NAME", 0xB81C, "FULL 15:0, PARTIAL 31:16")`.
A generation that moves a register or a field declares a subclass that restates only that; it keeps
the register's name.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, dataclass_transform

from rawgpu.describe import evidence as ledger
from rawgpu.describe.field import (
    MISSING,
    DecodeError,
    EncodingError,
    Field,
    bits,
    check_layout,
    collect,
    readers,
)
from rawgpu.describe.generation import Table
from rawgpu.describe.value import DeclarationError, Value, annotations_of


def at(
    high: int,
    low: int | None = None,
    *,
    unit: int = 1,
    bias: int = 0,
    signed: bool = False,
    default: Any = 0,
    const: int | None = None,
) -> Any:
    """Bits `high` down to `low` of a register; 0 where nothing else is said."""
    return bits(high, low, unit=unit, bias=bias, signed=signed, default=default, const=const)


@dataclass(frozen=True, kw_only=True)
class About:
    """What a register class was declared with."""

    name: str
    offset: int
    """In bytes, from the start of its space."""
    width: int
    fields: tuple[Field, ...]
    known: int
    """The bits that fields name."""
    source: str
    evidence: str


@dataclass_transform(
    kw_only_default=True, frozen_default=True, eq_default=True, field_specifiers=(at, bits)
)
class Register(Value):
    """The base of all registers; see the module's docstring."""

    about: ClassVar[About]
    _fields: ClassVar[tuple[Field, ...]] = ()
    _readers: ClassVar[tuple[tuple[str, int, int, Field | None], ...]] = ()

    def __init_subclass__(
        cls,
        *,
        offset: int | None = None,
        width: int | None = None,
        name: str = "",
        source: str = "",
        evidence: str = ledger.NONE_YET,
        drop: Iterable[str] = (),
    ) -> None:
        base: About | None = getattr(cls, "about", None)
        if offset is None and base is not None:
            offset = base.offset
        if offset is None or offset < 0:
            raise DeclarationError(f"{cls.__name__} needs an offset in bytes")
        width = width or (base.width if base is not None else 32)
        fields = tuple(collect(cls, cls._fields, annotations_of(cls), drop))
        hidden = [item.name for item in fields if hasattr(Register, item.name)]
        if hidden:
            raise DeclarationError(f"{cls.__name__}: no field may be called {', '.join(hidden)}")
        cls._fields = fields
        cls._names = tuple(item.name for item in fields)
        cls._defaults = {f.name: f.default for f in fields if f.default is not MISSING}
        cls._readers = readers(fields)
        cls.about = About(
            name=name or (base.name if base is not None else cls.__name__),
            offset=offset,
            width=width,
            fields=fields,
            known=check_layout(cls.__name__, fields, width),
            source=source,
            evidence=evidence,
        )
        ledger.enter("register", cls.__name__, cls.__module__, source, evidence)

    def encode(self) -> int:
        """The register's value."""
        whole = 0
        try:
            for item in self._fields:
                whole |= item.encode(self.__dict__[item.name])
        except EncodingError as error:
            raise EncodingError(f"{self.about.name}.{error.message}") from None
        return whole

    @classmethod
    def mask_of(cls, *names: str) -> int:
        """The bits of these fields, in place; KeyError for a name that is no field."""
        masks = {item.name: item.mask for item in cls._fields}
        mask = 0
        for name in names:
            mask |= masks[name]
        return mask

    @classmethod
    def decode(cls, value: int, *, strict: bool = True) -> Self:
        """The fields of `value`. Not strict: bits that no field names are left out."""
        about = cls.about
        if value >> about.width:
            raise DecodeError(f"{about.name} has {about.width} bits, not the value {value:#x}")
        if value & ~about.known and strict:
            raise DecodeError(
                f"{about.name} has set bits that no field names: {value & ~about.known:#x}"
            )
        try:
            return cls._from(
                {
                    name: value >> low & mask if item is None else item.decode(value, strict=strict)
                    for name, low, mask, item in cls._readers
                }
            )
        except DecodeError as error:
            raise DecodeError(f"{about.name}.{error.message}") from None


_ROW = re.compile(r"(\w+) (\d+)(?::(\d+))?$")


def register(
    name: str,
    offset: int,
    fields: str = "",
    *,
    width: int = 32,
    source: str,
    evidence: str = ledger.NONE_YET,
    module: str,
) -> type[Register]:
    """A register class from one line of a table: `register("DIM", 0xB804, "X 15:0, READY 16")`.

    No fields at all: the register is one number, and its only field is `value`.
    """
    body: dict[str, Any] = {"__module__": module}
    hints: dict[str, Any] = {}
    for part in [part.strip() for part in fields.split(",") if part.strip()]:
        row = _ROW.match(part)
        if row is None:
            raise DeclarationError(f"{name}: {part!r} is no field like 'NAME 7:0'")
        high = int(row[2])
        hints[row[1]] = int
        body[row[1]] = at(high, int(row[3]) if row[3] else high)
    if not hints:
        hints["value"] = int
        body["value"] = at(width - 1, 0)
    body["__annotations__"] = hints
    options = {"offset": offset, "width": width, "source": source, "evidence": evidence}
    return types.new_class(name, (Register,), options, lambda space: space.update(body))


class RegisterSet(Table[type[Register]]):
    """The registers of one generation, found by name or by offset in bytes."""

    def __init__(self, name: str, items: Iterable[type[Register]], *, source: str = "") -> None:
        super().__init__(name, items, source=source)
        self._by_offset = {item.about.offset: item for item in self}

    def key_of(self, item: type[Register]) -> Any:
        return item.about.name

    def named(self, name: str) -> type[Register]:
        """The register called `name`; KeyError if this generation has none."""
        return self._items[name]

    def at(self, offset: int) -> type[Register]:
        """The register at `offset` bytes; DecodeError if this generation has none there."""
        try:
            return self._by_offset[offset]
        except KeyError:
            raise DecodeError(f"{self.name} has no register at {offset:#x}") from None

    def offset(self, register: type[Register] | str) -> int:
        """Where this generation has the register that `register`, or a parent row's, names."""
        name = register if isinstance(register, str) else register.about.name
        return self._items[name].about.offset
