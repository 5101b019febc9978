"""C types in memory: integers, bytes, structs and arrays of them, and the fields they stand in."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rawgpu.describe.field import EncodingError
from rawgpu.describe.value import DeclarationError, Value, show

WIDTHS = {"B": 1, "H": 2, "I": 4, "Q": 8, "b": 1, "h": 2, "i": 4, "q": 8}


class Codec:
    """How values of one C type stand in memory: size and alignment in bytes, and both ways."""

    size: int
    align: int

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def decode(self, raw: bytes) -> Any:
        raise NotImplementedError


class ScalarCodec(Codec):
    """An integer, an enumeration or flags. An unheard-of number stays a plain int: it is data."""

    def __init__(self, code: str, kind: type) -> None:
        if code not in WIDTHS:
            raise DeclarationError(f"{code!r} is none of the C codes {' '.join(WIDTHS)}")
        self.size = self.align = WIDTHS[code]
        self.code = code
        self.kind = kind
        self._struct = struct.Struct("<" + code)

    def encode(self, value: Any) -> bytes:
        try:
            return self._struct.pack(value)
        except struct.error:
            bits = f"{8 * self.size} {'signed' if self.code.islower() else 'unsigned'} bits"
            raise EncodingError(f"is {show(value)}, and has {bits}") from None

    def decode(self, raw: bytes) -> Any:
        return self.typed(self._struct.unpack(raw)[0])

    def typed(self, number: int) -> Any:
        """`number` as the field's type, if the type has it."""
        if self.kind is int:
            return number
        try:
            return self.kind(number)
        except ValueError:
            return number


class BytesCodec(Codec):
    """Characters or other bytes; shorter ones are filled up with zeros."""

    def __init__(self, size: int) -> None:
        self.size, self.align = size, 1

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray)) or len(value) > self.size:
            raise EncodingError(f"is {value!r}, not at most {self.size} bytes")
        return bytes(value).ljust(self.size, b"\0")

    def decode(self, raw: bytes) -> Any:
        return raw


class NestedCodec(Codec):
    """A Struct or a Union."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.size, self.align = kind.about.size, kind.about.align

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, self.kind):
            raise EncodingError(f"is {value!r}, no {self.kind.__name__}")
        return bytes(value.encode())

    def decode(self, raw: bytes) -> Any:
        return self.kind.decode(raw)


class ArrayCodec(Codec):
    """A fixed number of items in a row; fewer are filled up with zeros."""

    def __init__(self, item: Codec, count: int) -> None:
        self.item, self.count = item, count
        self.size, self.align = item.size * count, item.align

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (tuple, list)) or len(value) > self.count:
            raise EncodingError(f"is {value!r}, not at most {self.count} items")
        return b"".join(map(self.item.encode, value)).ljust(self.size, b"\0")

    def decode(self, raw: bytes) -> Any:
        step = self.item.size
        return tuple(self.item.decode(raw[i : i + step]) for i in range(0, len(raw), step))


@dataclass(frozen=True, kw_only=True)
class Member:
    """One field of a struct, where it stands."""

    name: str
    offset: int
    codec: Codec
    points: Pointer | None = None

    @property
    def size(self) -> int:
        return self.codec.size


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """What a 64-bit address field points to: `count` items, or as many as the field `count` says.

    `item` is a Struct, a C code, or `bytes`. The recorder saves that memory before and after.
    """

    item: Any
    count: str | int = 1
    per: int = 1
    default: Any = None

    @property
    def item_size(self) -> int:
        if isinstance(self.item, str):
            return WIDTHS[self.item]
        return 1 if self.item is bytes else int(self.item.about.size)

    def size_bytes(self, owner: Value) -> int:
        """How many bytes the pointer of `owner` covers."""
        count = self.count if isinstance(self.count, int) else getattr(owner, self.count)
        return self.item_size * (int(count) // self.per)

    def decode(self, raw: bytes) -> Any:
        """The items in `raw`: a tuple of values, or bytes."""
        if self.item is bytes:
            return raw
        if isinstance(self.item, str):
            return struct.unpack(f"<{len(raw) // self.item_size}{self.item}", raw)
        return ArrayCodec(NestedCodec(self.item), len(raw) // self.item_size).decode(raw)


class Flat:
    """A struct of nothing but integers, packed at once: an eighth of the time, field by field."""

    def __init__(self, members: Iterable[Member], size: int) -> None:
        text, at = "<", 0
        self.kinds: list[tuple[str, Any]] = []
        for member in members:
            assert isinstance(member.codec, ScalarCodec)
            text += "x" * (member.offset - at) + member.codec.code
            at = member.offset + member.size
            kind = member.codec.kind
            self.kinds.append((member.name, None if kind is int else member.codec))
        self._struct = struct.Struct(text + "x" * (size - at))

    def encode(self, values: dict[str, Any]) -> bytes | None:
        """The bytes; None if some value does not fit, for the slower way to say which."""
        try:
            return self._struct.pack(*[values[name] for name, _ in self.kinds])
        except (struct.error, TypeError):
            return None

    def decode(self, raw: bytes) -> dict[str, Any]:
        numbers = self._struct.unpack(raw)
        return {
            name: number if codec is None else codec.typed(number)
            for (name, codec), number in zip(self.kinds, numbers, strict=True)
        }


def flat_or_none(members: tuple[Member, ...], size: int) -> Flat | None:
    """The fast way for these members, if each is an integer and none lies behind the next."""
    plain = all(isinstance(member.codec, ScalarCodec) for member in members)
    places = [member.offset for member in members]
    return Flat(members, size) if plain and places == sorted(places) else None
