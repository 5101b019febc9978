"""Kernel requests and structs in memory, laid out as C does it.

    class AllocMemory(Request, magic="K", nr=0x16, source="kfd_ioctl.h 1.17"):
        va_addr: U64
        size: U64
        handle: U64 = 0  # out
        flags: Annotated[AllocFlags, "I"]

Offsets, sizes and the ioctl number are computed. A field is a scalar (`U32`, or an enumeration with
its C code as above), another Struct, a Union, an array (`Annotated[tuple[int, ...], "I", 4]`,
`Annotated[tuple[Range, ...], 7]`) or bytes (`Annotated[bytes, 64]`). A version that appends fields
is a subclass, one that gives padding a meaning says `rename={"pad": "flags"}` and declares the new
name; a set of requests per version is a row (`abi.py`). A base class without fields holds what all
structs of a header have in common.

Some requests end in an array of any length (`flexible`), point to memory (`pointer`), or answer in
another layout than they ask in (`answer`).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self, dataclass_transform, get_args, get_origin

from rawgpu.describe import evidence as ledger
from rawgpu.describe.codec import (
    ArrayCodec,
    BytesCodec,
    Codec,
    Flat,
    Member,
    NestedCodec,
    Pointer,
    ScalarCodec,
    flat_or_none,
)
from rawgpu.describe.field import EncodingError
from rawgpu.describe.value import DeclarationError, Value, annotations_of, show

U8 = Annotated[int, "B"]
U16 = Annotated[int, "H"]
U32 = Annotated[int, "I"]
U64 = Annotated[int, "Q"]
I32 = Annotated[int, "i"]
I64 = Annotated[int, "q"]


def pointer(item: Any, *, count: str | int = 1, per: int = 1, default: Any = None) -> Any:
    """A U64 field that holds the address of `count` items, a number or a field's name.

    Where the field counts something smaller, `per` of them make an item.
    """
    return Pointer(item=item, count=count, per=per, default=default)


class Special(enum.Enum):
    """What a field is that is not simply the next in line."""

    FLEXIBLE = "flexible"
    ANSWER = "answer"


def flexible(*, default: Any = ()) -> Any:
    """Says that `attrs: tuple[Attribute, ...]` is an array of any length at the end."""
    return Special.FLEXIBLE


def answer(*, default: Any = None) -> Any:
    """The layout in which the kernel answers, over the same bytes as the question.

    None in a request; what the kernel wrote in a reply. A virtual kernel answers with
    `request.replace(out=...)`.
    """
    return Special.ANSWER


@dataclass(frozen=True, kw_only=True)
class About:
    """What a struct was declared with, and its layout."""

    name: str
    c: str
    """Its name in the vendor's header."""
    size: int
    align: int
    members: tuple[Member, ...]
    flexible: Member | None = None
    answer: Member | None = None
    flat: Flat | None = None
    """The fast way to pack it, if it has one."""
    magic: int = 0
    nr: int = 0
    direction: str = ""
    number: int = 0
    source: str = ""
    evidence: str = ledger.NONE_YET


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the structs of one header have in common, stated once by a base without fields.

    `c` is the pattern of their C names, with the class's name in snake case for `{}`.
    """

    c: str = ""
    source: str = ""
    evidence: str = ledger.NONE_YET
    magic: str = ""


def codec_of(owner: str, hint: Any) -> Codec:
    """The codec for an annotation."""
    notes: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, (Struct, Union)) and not notes:
        return NestedCodec(hint)
    if hint is bytes and len(notes) == 1:
        return BytesCodec(notes[0])
    if get_origin(hint) is tuple:
        kind = get_args(hint)[0]
        code = [notes.pop(0)] if notes and isinstance(notes[0], str) else []
        item = codec_of(owner, Annotated[(kind, *code)] if code else kind)
        count = 1
        for length in notes:
            count *= length
        return ArrayCodec(item, count)
    if isinstance(hint, type) and issubclass(hint, int) and len(notes) == 1:
        return ScalarCodec(notes[0], hint)
    raise DeclarationError(f"{owner}: {hint!r} {notes} is no C type; see the module's docstring")


def _up(value: int, align: int) -> int:
    return (value + align - 1) & -align


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    eq_default=True,
    field_specifiers=(pointer, flexible, answer),
)
class Struct(Value):
    """A C struct. Subclasses append fields, as newer versions of a kernel do."""

    about: ClassVar[About]
    _family: ClassVar[Family] = Family()

    def __init_subclass__(
        cls,
        *,
        c: str = "",
        source: str = "",
        evidence: str = "",
        rename: Mapping[str, str] | None = None,
    ) -> None:
        if not hasattr(cls, "about") and not annotations_of(cls):
            cls._family = Family(c=c, source=source, evidence=evidence)
            return
        cls.about = _lay_out(cls, c, source, evidence, rename or {}, {})
        ledger.enter("struct", cls.__name__, cls.__module__, cls.about.source, cls.about.evidence)

    def encode(self) -> bytes:
        """The bytes that the kernel sees."""
        about = self.about
        values = self.__dict__
        if about.flat is not None and (packed := about.flat.encode(values)) is not None:
            return packed
        raw = bytearray(about.size)
        for member in about.members:
            try:
                raw[member.offset : member.offset + member.size] = member.codec.encode(
                    values[member.name]
                )
            except EncodingError as error:
                raise EncodingError(f"{about.name}.{member.name} {error.message}") from None
        if about.flexible is not None:
            raw += b"".join(map(about.flexible.codec.encode, values[about.flexible.name]))
        if about.answer is not None and values[about.answer.name] is not None:
            raw[: about.answer.size] = about.answer.codec.encode(values[about.answer.name])
        return bytes(raw)

    @classmethod
    def decode(cls, raw: bytes | bytearray | memoryview, *, reply: bool = False) -> Self:
        """The struct in `raw`. Of fewer bytes the rest is zero, as kernels take it.

        With `reply`, the field declared as `answer` is decoded too.
        """
        about = cls.about
        raw = bytes(raw)
        if len(raw) < about.size:
            raw = raw.ljust(about.size, b"\0")
        if about.flat is not None:
            return cls._from(about.flat.decode(raw[: about.size]))
        values = {m.name: m.codec.decode(raw[m.offset : m.offset + m.size]) for m in about.members}
        if about.flexible is not None:
            codec, rest = about.flexible.codec, raw[about.size :]
            whole = ArrayCodec(codec, 0).decode(rest[: len(rest) // codec.size * codec.size])
            values[about.flexible.name] = whole
        if about.answer is not None:
            wanted = raw[: about.answer.size] if reply else None
            values[about.answer.name] = (
                None if wanted is None else about.answer.codec.decode(wanted)
            )
        return cls._from({name: values[name] for name in cls._names})

    def answered(self, raw: bytes | bytearray | memoryview) -> Self:
        """This struct after the kernel left `raw` in its place.

        Where question and answer have the same bytes, the question stays what it was.
        """
        about = self.about
        if about.answer is None:
            return self.decode(raw)
        wanted = bytes(raw[: about.answer.size])
        return self.replace(**{about.answer.name: about.answer.codec.decode(wanted)})

    def pointers(self) -> Iterator[tuple[Member, int, int]]:
        """Each pointer field that is not 0, with the address and the bytes it covers."""
        for member in self.about.members:
            if member.points is not None:
                address, size = self.__dict__[member.name], member.points.size_bytes(self)
                if address and size:
                    yield member, address, size


def _lay_out(
    cls: type[Struct],
    c: str,
    source: str,
    evidence: str,
    rename: Mapping[str, str],
    facts: Mapping[str, Any],
) -> About:
    """Compute the layout of `cls` from its annotations, after the members of its parent."""
    base: About | None = getattr(cls, "about", None)
    members = {member.name: member for member in base.members} if base is not None else {}
    at = max((m.offset + m.size for m in members.values()), default=0)
    align = base.align if base is not None else 1
    ends: dict[Special, Member | None] = {
        Special.FLEXIBLE: base.flexible if base is not None else None,
        Special.ANSWER: base.answer if base is not None else None,
    }
    defaults = dict(cls._defaults)
    places = {}
    for old, new in rename.items():
        if old not in members:
            raise DeclarationError(f"{cls.__name__} renames {old}, which it never had")
        places[new] = members.pop(old)
        defaults.pop(old, None)
    for name, hint in annotations_of(cls).items():
        given = cls.__dict__.get(name)
        where = f"{cls.__name__}.{name}"
        if hasattr(Struct, name) or name in members:
            raise DeclarationError(f"{where}: the name is taken")
        if name in cls.__dict__:
            delattr(cls, name)
        if isinstance(given, Special):
            codec = codec_of(where, get_args(hint)[0])  # of tuple[X, ...], and of X | None
            start = _up(at, codec.align) if given is Special.FLEXIBLE else 0
            ends[given] = Member(name=name, offset=start, codec=codec)
            align = max(align, codec.align)
            defaults[name] = () if given is Special.FLEXIBLE else None
            continue
        points = given if isinstance(given, Pointer) else None
        given = points.default if points is not None else given
        codec = codec_of(where, hint)
        old_place = places.get(name)
        start = _up(at, codec.align) if old_place is None else old_place.offset
        if old_place is not None and old_place.size != codec.size:
            raise DeclarationError(f"{where} has {codec.size} bytes, not {old_place.size}")
        members[name] = Member(name=name, offset=start, codec=codec, points=points)
        at = max(at, start + codec.size)
        align = max(align, codec.align)
        if given is not None:
            _check_default(where, codec, given)
            defaults[name] = given
    special = [member for member in ends.values() if member is not None]
    reply = ends[Special.ANSWER]
    size = _up(max(at, reply.size if reply is not None else 0), align)
    cls._names = (*members, *(member.name for member in special))
    cls._defaults = defaults
    family = cls._family
    return About(
        name=cls.__name__,
        c=c or (base.c if base is not None else family.c.format(snake(cls.__name__))),
        size=size,
        align=align,
        members=tuple(members.values()),
        flexible=ends[Special.FLEXIBLE],
        answer=reply,
        flat=None if special else flat_or_none(tuple(members.values()), size),
        source=source or (base or family).source,
        evidence=evidence or (base or family).evidence or ledger.NONE_YET,
        **facts,
    )


def snake(name: str) -> str:
    """`CreateQueue` as C writes it: `create_queue`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _check_default(where: str, codec: Codec, value: Any) -> None:
    try:
        codec.encode(value)
    except EncodingError as error:
        raise DeclarationError(f"{where}: the default {error.message}") from None


class Union:
    """A C union: one of its members when built, each of them when read.

        class Payload(Union):
            memory: MemoryFault = MemoryFault()
            signal: SignalAge = SignalAge()

    `Payload(signal=SignalAge(age=3)).signal.age`. Kept as its bytes; none given: all zero. Without
    `c`, C has no name for it, and its members stand in the struct around it.
    """

    about: ClassVar[About]
    _codecs: ClassVar[dict[str, Codec]] = {}
    raw: bytes

    def __init_subclass__(cls, *, c: str = "") -> None:
        hints = annotations_of(cls)
        cls._codecs = {name: codec_of(f"{cls.__name__}.{name}", h) for name, h in hints.items()}
        align = max(codec.align for codec in cls._codecs.values())
        cls.about = About(
            name=cls.__name__,
            c=c,
            size=_up(max(codec.size for codec in cls._codecs.values()), align),
            align=align,
            members=tuple(Member(name=n, offset=0, codec=k) for n, k in cls._codecs.items()),
        )
        for name in hints:
            if name in cls.__dict__:
                delattr(cls, name)

    def __init__(self, **given: Any) -> None:
        if len(given) > 1 or not given.keys() <= self._codecs.keys():
            known = ", ".join(self._codecs)
            raise TypeError(f"{type(self).__name__} takes one of {known}, not {', '.join(given)}")
        raw = b""
        for name, value in given.items():
            raw = self._codecs[name].encode(value)
        self.__dict__["raw"] = raw.ljust(self.about.size, b"\0")
        self.__dict__["_given"] = next(iter(given), "")

    def __getattr__(self, name: str) -> Any:
        codec = type(self)._codecs.get(name)
        if codec is None:
            raise AttributeError(f"{type(self).__name__} has no member {name}")
        return codec.decode(self.raw[: codec.size])

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        given = self.__dict__["_given"]
        if given:
            return f"{type(self).__name__}({given}={show(getattr(self, given))})"
        return f"{type(self).__name__}({self.raw.hex() if any(self.raw) else ''})"

    def encode(self) -> bytes:
        return self.raw

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        new = cls()
        new.__dict__["raw"] = bytes(raw).ljust(cls.about.size, b"\0")[: cls.about.size]
        return new


_DIRECTIONS = {"": 0, "W": 1, "R": 2, "RW": 3}


class Request(Struct):
    """An ioctl: a struct with a type letter, a number and a direction, as the user process sees it.

    `W`: the kernel reads the struct; `R`: it writes it; `RW`: both. The ioctl number follows.
    """

    def __init_subclass__(
        cls,
        *,
        magic: str = "",
        nr: int | None = None,
        direction: str | None = None,
        c: str = "",
        source: str = "",
        evidence: str = "",
        rename: Mapping[str, str] | None = None,
    ) -> None:
        base: About | None = getattr(cls, "about", None)
        if base is None and nr is None:
            cls._family = Family(c=c, source=source, evidence=evidence, magic=magic)
            return
        if base is not None:
            magic = magic or chr(base.magic)
            nr = base.nr if nr is None else nr
            direction = base.direction if direction is None else direction
        magic = magic or cls._family.magic
        direction = "RW" if direction is None else direction
        if direction not in _DIRECTIONS or len(magic) != 1 or nr is None or not 0 <= nr < 256:
            raise DeclarationError(f"{cls.__name__} needs magic, nr (0 to 255) and direction")
        facts = {"magic": ord(magic), "nr": nr, "direction": direction}
        about = _lay_out(cls, c, source, evidence, rename or {}, facts)
        number = ioctl_number(direction, ord(magic), nr, about.size)
        cls.about = replace(about, number=number)
        ledger.enter("request", cls.__name__, cls.__module__, about.source, about.evidence)

    @property
    def number(self) -> int:
        """The number to pass to ioctl; its size part counts a flexible array."""
        about = self.about
        if about.flexible is None:
            return about.number
        count = len(self.__dict__[about.flexible.name])
        size = about.size + count * about.flexible.size
        return ioctl_number(about.direction, about.magic, about.nr, size)


def ioctl_number(direction: str, magic: int, nr: int, size: int) -> int:
    """The number of an ioctl as asm-generic/ioctl.h builds it: x86-64, AArch64, RISC-V."""
    if not 0 <= size < 1 << 14:
        raise EncodingError(f"an ioctl argument has at most 16383 bytes, not {size}")
    return _DIRECTIONS[direction] << 30 | size << 16 | magic << 8 | nr


def split_number(number: int) -> tuple[str, int, int, int]:
    """Direction, type letter, number and size in bytes of an ioctl number."""
    direction = {value: key for key, value in _DIRECTIONS.items()}[number >> 30 & 3]
    return direction, number >> 8 & 0xFF, number & 0xFF, number >> 16 & 0x3FFF


def describe(kind: type[Struct]) -> str:
    """A struct's layout as text."""
    about = kind.about
    head = f"{about.name}: {about.size} bytes"
    if isinstance(kind, type) and issubclass(kind, Request):
        head += f", {about.direction} {chr(about.magic)!r} {about.nr:#x} = {about.number:#010x}"
    lines = [f"  {m.offset:#06x} {m.size:4} {m.name}" for m in about.members]
    return "\n".join([head, *lines, f"  source: {about.source}"])
