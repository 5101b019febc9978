"""Packets: commands in a ring, declared as classes.

    class Pm4(Packet, header=Header(opcode=(15, 8), count=(29, 16), bias=2, fixed={(31, 30): 3})):
        pass

    class ReleaseMem(Pm4, opcode=0x49, dwords=8, source="soc15d.h, PACKET3_RELEASE_MEM"):
        event: EventType = dw(1, 5, 0)
        address: int = dw64(3)

A family (`Pm4`) says how dword 0 tells the opcode and the length; each of its packets where its
fields are. `dwords` counts the header too, which is dword 0. A packet that ends in `tail` has any
length. To change a packet for a generation, declare a subclass that restates only what moved:
`case ReleaseMem(address=a)` matches both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    dw,
    dw64,
    readers,
    tail,
)
from rawgpu.describe.generation import Table
from rawgpu.describe.value import DeclarationError, Value, annotations_of, show

Data = bytes | bytearray | memoryview | Sequence[int]
"""A ring's contents: bytes, or dwords as ints."""

Range = tuple[int, int]
"""Bits of dword 0, high first."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """How dword 0 of a family of packets says which packet this is, and how long.

    The opcode, an optional second opcode, and bits that are the same in all. The length in dwords
    is the count's value plus `bias`, where the header has a count; `single` is the count that means
    one dword. Without a count, the packet's declaration says how long it is.
    """

    opcode: Range
    sub_opcode: Range | None = None
    count: Range | None = None
    bias: int = 0
    single: int | None = None
    fixed: Mapping[Range, int] = field(default_factory=dict)

    def key_mask(self) -> int:
        """The bits that tell packets apart."""
        return sum(_mask(range_) for range_ in self._key_ranges())

    def owned(self) -> int:
        """All bits of dword 0 that packets may not use for fields."""
        return self.key_mask() | (_mask(self.count) if self.count else 0)

    def key(self, opcode: int, sub_opcode: int) -> int:
        """Dword 0 of a packet, without count and fields."""
        parts = {self.opcode: opcode, **self.fixed}
        if self.sub_opcode is not None:
            parts[self.sub_opcode] = sub_opcode
        elif sub_opcode:
            raise DeclarationError("this header has no second opcode")
        word = 0
        for (high, low), value in parts.items():
            if not 0 <= value < 1 << (high - low + 1):
                raise DeclarationError(f"opcode {value:#x} does not fit bits {high}:{low}")
            word |= value << low
        return word

    def with_length(self, dwords: int) -> int:
        """The count's bits, in place, for a packet of `dwords`; 0 if the header has no count."""
        if self.count is None:
            return 0
        high, low = self.count
        value = dwords - self.bias
        if dwords == 1 and self.single is not None:
            value = self.single
        elif value == self.single or not 0 <= value < 1 << (high - low + 1):
            raise EncodingError(f"a packet of {dwords} dwords: bits {high}:{low} cannot count them")
        return value << low

    def length(self, word: int) -> int | None:
        """How many dwords the packet has that begins with `word`; None if the header is silent."""
        if self.count is None:
            return None
        value = (word & _mask(self.count)) >> self.count[1]
        return 1 if value == self.single else value + self.bias

    def owns(self, word: int) -> bool:
        """Whether the bits that are the same in all packets are so in `word`."""
        return all((word & _mask(r)) >> r[1] == value for r, value in self.fixed.items())

    def _key_ranges(self) -> Iterator[Range]:
        yield self.opcode
        if self.sub_opcode is not None:
            yield self.sub_opcode
        yield from self.fixed


def _mask(range_: Range) -> int:
    high, low = range_
    return ((1 << (high - low + 1)) - 1) << low


@dataclass(frozen=True, kw_only=True)
class About:
    """What a packet class was declared with."""

    name: str
    header: Header
    opcode: int
    sub_opcode: int
    dwords: int
    """Its length, or the dwords before its tail."""
    fields: tuple[Field, ...]
    tail: Field | None
    source: str
    evidence: str
    key: int
    known: int
    """Every bit that the header or a field owns."""
    const_mask: int
    """Bits of dword 0 that the key or a constant field fixes, and what they are."""
    const_value: int


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    eq_default=True,
    field_specifiers=(bits, dw, dw64, tail),
)
class Packet(Value):
    """The base of all packets; see the module's docstring."""

    about: ClassVar[About]
    _header: ClassVar[Header | None] = None
    _fields: ClassVar[tuple[Field, ...]] = ()
    _readers: ClassVar[tuple[tuple[str, int, int, Field | None], ...]] = ()

    def __init_subclass__(
        cls,
        *,
        header: Header | None = None,
        opcode: int | None = None,
        sub_opcode: int | None = None,
        dwords: int | None = None,
        source: str = "",
        evidence: str = ledger.NONE_YET,
        drop: Iterable[str] = (),
    ) -> None:
        if header is not None:
            cls._header = header
        fields = tuple(collect(cls, cls._fields, annotations_of(cls), drop))
        cls._fields = fields
        cls._names = tuple(item.name for item in fields)
        cls._defaults = {f.name: f.default for f in fields if f.default is not MISSING}
        hidden = [name for name in cls._names if hasattr(Packet, name)]
        if hidden:
            raise DeclarationError(f"{cls.__name__}: no field may be called {', '.join(hidden)}")
        base: About | None = getattr(cls, "about", None)
        if opcode is None and base is not None:
            opcode = base.opcode
            sub_opcode = base.sub_opcode if sub_opcode is None else sub_opcode
        if opcode is None:
            return  # a family: its packets have opcodes
        cls.about = cls._declare(opcode, sub_opcode or 0, dwords, source, evidence)
        ledger.enter("packet", cls.__name__, cls.__module__, source, evidence)

    @classmethod
    def _declare(
        cls, opcode: int, sub_opcode: int, dwords: int | None, source: str, evidence: str
    ) -> About:
        header = cls._header
        if header is None:
            raise DeclarationError(f"{cls.__name__} has an opcode but its family has no header")
        tails = [item for item in cls._fields if item.tail]
        fields = tuple(item for item in cls._fields if not item.tail)
        base: About | None = getattr(cls, "about", None)
        if len(tails) > 1:
            raise DeclarationError(f"{cls.__name__} has two tails")
        if tails:
            if dwords not in (None, tails[0].start):
                raise DeclarationError(f"{cls.__name__}: leave `dwords` out, the tail says it")
            dwords = tails[0].start
        elif dwords is None and base is not None:
            dwords = base.dwords
        if dwords is None or dwords < 1:
            raise DeclarationError(f"{cls.__name__} needs a length in dwords, the header included")
        if tails and header.count is None and not tails[0].width:
            raise DeclarationError(f"{cls.__name__}: nothing says how long the tail is")
        counted = tuple(item for item in tails if item.width)
        known = check_layout(cls.__name__, fields + counted, 32 * dwords, header.owned())
        key = header.key(opcode, sub_opcode)
        const_mask, const_value = header.key_mask(), key
        for item in fields:
            if item.const is not None and item.low < 32:
                const_mask |= item.mask & 0xFFFFFFFF
                const_value |= item.encode(item.const) & 0xFFFFFFFF
        if not tails:
            header.with_length(dwords)
        cls._readers = readers(fields)
        return About(
            name=cls.__name__,
            header=header,
            opcode=opcode,
            sub_opcode=sub_opcode,
            dwords=dwords,
            fields=fields,
            tail=tails[0] if tails else None,
            source=source,
            evidence=evidence,
            key=key,
            known=known,
            const_mask=const_mask,
            const_value=const_value,
        )

    def encode(self) -> list[int]:
        """The packet as dwords, ready to be put into a ring."""
        data = self.pack()
        return list(struct.unpack(f"<{len(data) // 4}I", data))

    def pack(self) -> bytes:
        """The packet as bytes."""
        about = self.about
        values = self.__dict__
        whole = about.key
        try:
            for (name, low, mask, plain), item in zip(self._readers, about.fields, strict=True):
                value = values[name]
                if plain is None and type(value) is int and 0 <= value <= mask:
                    whole |= value << low
                else:
                    whole |= item.encode(value)
            dwords = about.dwords
            rest = b""
            if about.tail is not None:
                rest = self._pack_tail(about.tail)
                whole |= _count_bits(about.tail, len(rest) // 4)
                dwords += len(rest) // 4
            whole |= about.header.with_length(dwords)
        except EncodingError as error:
            raise EncodingError(f"{about.name}.{error.message}") from None
        return whole.to_bytes(4 * about.dwords, "little") + rest

    def _pack_tail(self, item: Field) -> bytes:
        words = self.__dict__[item.name]
        try:
            return struct.pack(f"<{len(words)}I", *words)
        except (struct.error, TypeError) as error:
            raise EncodingError(f"{item.name} are not 32-bit dwords: {error}") from None

    @property
    def dwords(self) -> int:
        """This packet's length, header included."""
        about = self.about
        extra = len(self.__dict__[about.tail.name]) if about.tail is not None else 0
        return about.dwords + extra

    @classmethod
    def decode(cls, data: Data, *, strict: bool = True) -> Self:
        """The packet that `data` is, all of it. Not strict: unexplained bits are left out.

        Raises DecodeError for another packet's header, a wrong length, or bits no field names.
        """
        raw = to_bytes(data)
        about = cls.about
        if len(raw) < 4 * about.dwords:
            raise DecodeError(f"{about.name} has {about.dwords} dwords, here are {len(raw) // 4}")
        word = int.from_bytes(raw[:4], "little")
        if word & about.const_mask != about.const_value:
            raise DecodeError(f"{word:#010x} is no header of {about.name}")
        return cls._decode(raw, word, strict)

    @classmethod
    def _decode(cls, raw: bytes | memoryview, word: int, strict: bool) -> Self:
        """The packet in `raw`, whose header is known to be this class's."""
        about = cls.about
        fixed_bytes = 4 * about.dwords
        if len(raw) != fixed_bytes and (about.tail is None or len(raw) < fixed_bytes):
            raise DecodeError(
                f"{about.name} has {about.dwords} dwords, its header says {len(raw) // 4}"
            )
        whole = int.from_bytes(raw[:fixed_bytes], "little")
        unknown = whole & ~about.known
        if unknown and strict:
            raise DecodeError(f"{about.name} has set bits that no field names: {_places(unknown)}")
        values: dict[str, Any] = {}
        try:
            for name, low, mask, item in cls._readers:
                if item is None:
                    values[name] = whole >> low & mask
                else:
                    values[name] = item.decode(whole, strict=strict)
        except DecodeError as error:
            raise DecodeError(f"{about.name}.{error.message}") from None
        if about.tail is not None:
            rest = raw[fixed_bytes:]
            values[about.tail.name] = struct.unpack(f"<{len(rest) // 4}I", rest)
        return cls._from(values)

    @classmethod
    def _length(cls, raw: bytes | memoryview, word: int) -> int:
        """The packet's dwords, by its header or its own count; `raw` begins with the packet."""
        about = cls.about
        length = about.header.length(word)
        if length is not None:
            return length
        if about.tail is None:
            return about.dwords
        if len(raw) < 4 * about.dwords:
            raise DecodeError(f"{about.name} is cut off: {len(raw) // 4} dwords of {about.dwords}")
        whole = int.from_bytes(raw[: 4 * about.dwords], "little")
        return about.dwords + int(about.tail.decode(whole))


def _count_bits(item: Field, count: int) -> int:
    """The count of a tail's dwords, in place."""
    if not item.width:
        return 0
    return item.encode(count)


def _places(unknown: int) -> str:
    found = []
    dword = 0
    while unknown:
        if unknown & 0xFFFFFFFF:
            found.append(f"dword {dword} & {unknown & 0xFFFFFFFF:#x}")
        unknown >>= 32
        dword += 1
    return ", ".join(found)


def to_bytes(data: Data) -> bytes | memoryview:
    """`data` as bytes; dwords become little-endian bytes."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return memoryview(data).cast("B")
    if hasattr(data, "tobytes"):  # array.array, numpy.ndarray
        return bytes(data.tobytes())
    return struct.pack(f"<{len(data)}I", *data)


@dataclass(frozen=True)
class Undecoded:
    """Dwords that no packet of a set explains, with the reason; where decoding is not strict."""

    words: tuple[int, ...]
    reason: str

    @property
    def dwords(self) -> int:
        return len(self.words)

    def encode(self) -> list[int]:
        return list(self.words)

    def __repr__(self) -> str:
        return f"Undecoded({' '.join(f'{word:08x}' for word in self.words)}: {self.reason})"


class PacketSet(Table[type[Packet]]):
    """The packets that one engine of one generation understands.

    Two packets with the same opcodes are told apart by constant fields of dword 0.
    """

    def __init__(self, name: str, packets: Iterable[type[Packet]], *, source: str = "") -> None:
        super().__init__(name, packets, source=source)
        self._families: list[tuple[Header, int, dict[int, list[type[Packet]]]]] = []
        for packet in self:
            self._add(packet)

    def key_of(self, item: type[Packet]) -> Any:
        about = item.about
        return (about.const_mask, about.const_value)

    def name_of(self, item: type[Packet]) -> str:
        return item.__name__

    def _add(self, packet: type[Packet]) -> None:
        header = packet.about.header
        family = next((item for item in self._families if item[0] == header), None)
        if family is None:
            family = (header, header.key_mask(), {})
            self._families.append(family)
        by_key = family[2]
        same = by_key.setdefault(packet.about.key, [])
        for other in same:
            both = packet.about.const_mask & other.about.const_mask
            if packet.about.const_value & both == other.about.const_value & both:
                raise DeclarationError(
                    f"{self.name}: nothing tells {packet.__name__} and {other.__name__} apart"
                )
        same.append(packet)

    def _find(self, word: int) -> type[Packet] | None:
        for _, mask, by_key in self._families:
            for packet in by_key.get(word & mask, ()):
                if word & packet.about.const_mask == packet.about.const_value:
                    return packet
        return None

    def decode_at(self, data: Data, dword: int = 0) -> Packet:
        """The packet that begins at `dword` of `data`; its `dwords` says where the next one is."""
        packet, _ = self._step(memoryview(to_bytes(data)), dword, strict=True)
        assert isinstance(packet, Packet)
        return packet

    def measure(self, data: Data, dword: int = 0) -> int:
        """The length in dwords of the packet at `dword`, of which only the first may be there.

        For engines that fetch: a packet with its own count needs the dwords up to that count.
        """
        view = memoryview(to_bytes(data))
        word = int.from_bytes(view[4 * dword : 4 * dword + 4], "little")
        packet = self._find(word)
        if packet is None:
            raise self._unheard_of(word, dword)
        return packet._length(view[4 * dword :], word)

    def walk(self, data: Data, *, strict: bool = True) -> Iterator[tuple[int, Packet | Undecoded]]:
        """Each packet of `data` with the dword at which it begins.

        Not strict: what cannot be decoded comes out as `Undecoded`, up to where the header says
        that the next packet begins, or to the end where no header says so.
        """
        view = memoryview(to_bytes(data))
        end = len(view) // 4
        at = 0
        while at < end:
            packet, length = self._step(view, at, strict=strict)
            yield at, packet
            at += length

    def decode(self, data: Data) -> Iterator[Packet]:
        """Each packet of `data`; DecodeError at the first that cannot be decoded."""
        for _, packet in self.walk(data):
            assert isinstance(packet, Packet)
            yield packet

    def _step(self, view: memoryview, at: int, *, strict: bool) -> tuple[Packet | Undecoded, int]:
        begin = 4 * at
        word = int.from_bytes(view[begin : begin + 4], "little")
        packet = self._find(word)
        length = None
        try:
            if packet is None:
                raise self._unheard_of(word, at)
            length = packet._length(view[begin:], word)
            if begin + 4 * length > len(view):
                here = len(view) // 4 - at
                raise DecodeError(f"{packet.__name__} of {length} dwords is cut off after {here}")
            return packet._decode(view[begin : begin + 4 * length], word, strict), length
        except DecodeError as error:
            if strict:
                raise error if error.offset is not None else error.at(at) from None
            return self._undecoded(view, at, length, error)

    def _undecoded(
        self, view: memoryview, at: int, length: int | None, error: DecodeError
    ) -> tuple[Undecoded, int]:
        left = len(view) // 4 - at
        word = int.from_bytes(view[4 * at : 4 * at + 4], "little")
        for header, _, _ in self._families:
            if length is None and header.owns(word):
                length = header.length(word)
        length = min(length or left, left)
        words = struct.unpack(f"<{length}I", view[4 * at : 4 * (at + length)])
        return Undecoded(words, error.reason), length

    def _unheard_of(self, word: int, at: int) -> DecodeError:
        headers = [header for header, _, _ in self._families]
        for header in headers:
            if header.owns(word) and (header.fixed or len(headers) == 1):
                opcode = (word & _mask(header.opcode)) >> header.opcode[1]
                which = f"opcode {opcode:#x}"
                if header.sub_opcode is not None:
                    sub_opcode = (word & _mask(header.sub_opcode)) >> header.sub_opcode[1]
                    which += f", sub-opcode {sub_opcode:#x}"
                return DecodeError(f"{self.name} has no packet with {which}", offset=at)
        return DecodeError(f"{word:#010x} begins no packet of {self.name}", offset=at)


def describe(packet: type[Packet]) -> str:
    """A packet's declaration as text: its fields with their bits, and its source."""
    about = packet.about
    more = "+" if about.tail is not None else ""
    lines = [f"{about.name}: opcode {about.opcode:#x}, {about.dwords}{more} dwords"]
    for item in about.fields:
        note = f" = {show(item.const)}" if item.const is not None else ""
        lines.append(f"  {item.place():10} {item.name}: {item.kind.__name__}{note}")
    if about.tail is not None:
        lines.append(f"  {about.tail.start}...       {about.tail.name}")
    lines.append(f"  source: {about.source}")
    return "\n".join(lines)
