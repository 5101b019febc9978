"""Requests and structs: C layout, ioctl numbers, versions, and what each refuses."""

from __future__ import annotations

import ctypes
from enum import IntEnum, IntFlag
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawgpu.describe.abi import Abi, answer_to
from rawgpu.describe.field import EncodingError
from rawgpu.describe.request import (
    I32,
    U8,
    U16,
    U32,
    U64,
    Request,
    Struct,
    Union,
    answer,
    describe,
    flexible,
    ioctl_number,
    pointer,
    split_number,
)
from rawgpu.describe.value import DeclarationError

SOURCE = "a made-up header"


class Flags(IntFlag):
    READ = 1
    WRITE = 2


class Kind(IntEnum):
    RED = 1


class MadeUp(Request, magic="X", c="x_{}_args", source=SOURCE):
    """A family."""


class Range(Struct, source=SOURCE):
    start: U64 = 0
    length: U16 = 0


class Wide(Struct, source=SOURCE):
    value: U64 = 0


class Narrow(Struct, source=SOURCE):
    low: U32 = 0
    high: U32 = 0


class Either(Union):
    wide: Wide = Wide()
    narrow: Narrow = Narrow()


class MapMemory(MadeUp, nr=0x4A):
    handle: U32
    flags: Annotated[Flags, "I"]
    address: U64
    mapped_bytes: U64 = 0


class Mixed(MadeUp, nr=1, direction="W"):
    first: U8
    second: U64
    kind: Annotated[Kind, "H"] = Kind.RED
    signed: I32 = -1
    ranges: Annotated[tuple[Range, ...], 2] = ()
    table: Annotated[tuple[int, ...], "H", 2, 3] = ()
    name: Annotated[bytes, 5] = b""
    either: Either = Either()


class Attribute(Struct, source=SOURCE):
    type: U32
    value: U32


class SetAttributes(MadeUp, nr=2):
    count: U32
    attributes: tuple[Attribute, ...] = flexible()


class MakeOut(Struct, source=SOURCE):
    handle: U32 = 0


class Make(MadeUp, nr=3):
    size: U64
    out: MakeOut | None = answer()


class Wait(MadeUp, nr=4):
    events: U64 = pointer(Attribute, count="count")
    count: U32


class Queue(MadeUp, nr=5):
    ring: U64
    priority: U32 = 0
    pad: U32 = 0


class Queue2(Queue):
    engine: U32 = 0
    percentage: U32 = 0
    spare: U64 = 0


class Queue3(Queue2, rename={"spare": "metadata"}):
    metadata: U64 = 0  # in the place of `spare`


V1 = Abi("1", [MapMemory, Queue, Make, SetAttributes], source=SOURCE)
V2 = V1.evolve("2", put=[Queue2, Wait])
V3 = V2.evolve("3", put=[Queue3], drop=[MapMemory])


def test_the_number_is_computed_from_what_is_declared() -> None:
    assert MapMemory.about.number == 0xC018584A
    assert Mixed.about.number == 0x40000000 | Mixed.about.size << 16 | ord("X") << 8 | 1
    assert split_number(MapMemory.about.number) == ("RW", ord("X"), 0x4A, 24)
    assert MapMemory.about.c == "x_map_memory_args"
    with pytest.raises(EncodingError, match="at most 16383"):
        ioctl_number("R", 1, 1, 1 << 14)


def test_the_layout_is_what_c_makes_of_it() -> None:
    class CRange(ctypes.Structure):
        _fields_ = (("start", ctypes.c_uint64), ("length", ctypes.c_uint16))

    class CMixed(ctypes.Structure):
        _fields_ = (
            ("first", ctypes.c_uint8),
            ("second", ctypes.c_uint64),
            ("kind", ctypes.c_uint16),
            ("signed", ctypes.c_int32),
            ("ranges", CRange * 2),
            ("table", ctypes.c_uint16 * 6),
            ("name", ctypes.c_char * 5),
            ("either", ctypes.c_uint64),
        )

    assert Mixed.about.size == ctypes.sizeof(CMixed)
    for member in Mixed.about.members:
        assert member.offset == getattr(CMixed, member.name).offset, member.name
    value = Mixed(
        first=1,
        second=2,
        signed=-3,
        ranges=(Range(start=5, length=6),),
        table=(1, 2, 3),
        name=b"abc",
        either=Either(narrow=Narrow(low=7, high=8)),
    )
    there = CMixed.from_buffer_copy(value.encode())
    assert (there.first, there.second, there.kind, there.signed) == (1, 2, 1, -3)
    assert (there.ranges[0].start, there.ranges[0].length, list(there.table)[:4]) == (
        5,
        6,
        [1, 2, 3, 0],
    )
    assert (there.name, there.either) == (b"abc", 8 << 32 | 7)
    again = Mixed.decode(value.encode())
    assert again.ranges == (Range(start=5, length=6), Range())
    assert again.kind is Kind.RED
    assert again.either.wide.value == 8 << 32 | 7
    assert Mixed.decode(again.encode()) == again


def test_unheard_of_numbers_in_a_struct_are_kept() -> None:
    """A kernel may be newer than the declaration: what it says is data, not a mistake."""
    raw = bytearray(MapMemory(handle=1, flags=Flags.READ, address=2).encode())
    raw[4] = 0x85
    assert int(MapMemory.decode(raw).flags) == 0x85
    assert repr(MapMemory.decode(raw).flags & ~Flags.READ) is not None
    odd = Mixed.decode(b"\0" * Mixed.about.size)
    assert odd.kind == 0
    assert odd.encode() == b"\0" * Mixed.about.size


def test_a_flexible_array_counts_in_the_number() -> None:
    request = SetAttributes(count=2, attributes=(Attribute(type=1, value=2),) * 2)
    assert request.number == 0xC0145802
    assert len(request.encode()) == 20
    assert SetAttributes.decode(request.encode()) == request


def test_an_answer_lies_over_the_question() -> None:
    request = Make(size=1 << 40)
    assert Make.decode(request.encode()) == request
    reply = Make.decode(request.replace(out=MakeOut(handle=7)).encode(), reply=True)
    assert reply.out == MakeOut(handle=7)
    assert Make.about.size == 8


def test_pointers_say_what_they_point_to() -> None:
    [(member, address, size)] = Wait(events=0x1000, count=3).pointers()
    assert (member.name, address, size) == ("events", 0x1000, 24)
    assert member.points is not None
    assert member.points.decode(bytes(7) + b"\1") == (Attribute(type=0, value=1 << 24),)
    assert not list(Wait(events=0, count=3).pointers())
    assert not list(Wait(events=0x1000, count=0).pointers())


def test_a_union_is_built_from_one_member() -> None:
    assert repr(Either(wide=Wide(value=3))) == "Either(wide=Wide(value=3))"
    assert Either(wide=Wide(value=1)) == Either(narrow=Narrow(low=1))
    assert hash(Either(wide=Wide(value=1))) == hash(Either(narrow=Narrow(low=1)))
    assert repr(Either.decode(b"\1")) == "Either(0100000000000000)"
    assert Either() != 0
    with pytest.raises(TypeError, match="one of wide, narrow"):
        Either(wide=Wide(), narrow=Narrow())
    with pytest.raises(AttributeError, match="no member tall"):
        _ = Either().tall
    with pytest.raises(AttributeError, match="frozen"):
        Either().wide = Wide()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": 256}, "Mixed.first is 256, and has 8 unsigned bits"),
        ({"second": -1}, "has 64 unsigned bits"),
        ({"signed": 1 << 31}, "has 32 signed bits"),
        ({"name": b"abcdef"}, "not at most 5 bytes"),
        ({"ranges": (Range(),) * 3}, "not at most 2 items"),
        ({"ranges": (1,)}, "no Range"),
        ({"table": 5}, "not at most 6 items"),
        ({"either": Wide()}, "no Either"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(EncodingError, match=message):
        Mixed(first=1, second=2).replace(**changes).encode()


def test_bad_declarations_fail_at_import() -> None:
    with pytest.raises(DeclarationError, match="is no C type"):

        class Odd(MadeUp, nr=9):
            value: int

    with pytest.raises(DeclarationError, match="none of the C codes"):

        class Code(MadeUp, nr=9):
            value: Annotated[int, "x"]

    with pytest.raises(DeclarationError, match="needs magic"):

        class NoMagic(Request, nr=9, source=SOURCE):
            value: U32

    with pytest.raises(DeclarationError, match="the default is 256"):

        class Default(MadeUp, nr=9):
            value: U8 = 256

    with pytest.raises(DeclarationError, match="the name is taken"):

        class Taken(Queue):
            ring: U64

    with pytest.raises(DeclarationError, match="renames spire, which it never had"):

        class Renamed(Queue2, rename={"spire": "x"}):
            x: U64 = 0

    with pytest.raises(DeclarationError, match="has 4 bytes, not 8"):

        class Resized(Queue2, rename={"spare": "x"}):
            x: U32 = 0


def test_versions_are_rows() -> None:
    assert [abi[Queue].about.size for abi in (V1, V2, V3)] == [16, 32, 32]
    assert [hex(abi[Queue].about.number) for abi in (V1, V2)] == ["0xc0105805", "0xc0205805"]
    assert V3[Queue].field_names() == (
        "ring",
        "priority",
        "pad",
        "engine",
        "percentage",
        "metadata",
    )
    assert isinstance(V3[Queue](ring=1), Queue)
    assert not V1.has(Wait)
    assert V2.has(Wait)
    with pytest.raises(KeyError, match="1 has no Wait"):
        V1[Wait]
    with pytest.raises(DeclarationError, match="4 drops MapMemory, which 3 lacks"):
        V3.evolve("4", drop=[MapMemory])
    assert V1.by_number(0xC0FF5805) is Queue
    assert V1.by_number(0xC0FF5844) is None


def test_a_kernel_takes_what_older_and_newer_drivers_send() -> None:
    old = Queue(ring=7)
    seen = V2.receive(old)
    assert seen == Queue2(ring=7)
    assert seen is not None
    assert answer_to(old, seen.replace(ring=8, engine=9)) == Queue(ring=8)
    new = Queue2(ring=7, engine=3)
    assert V1.receive(new) == Queue(ring=7)
    reply = answer_to(new, Queue(ring=9))
    assert reply == Queue2(ring=9, engine=3)
    assert V1.receive(Wait(events=1, count=1)) is None
    assert V2.receive(new) is new


def test_a_layout_can_be_printed() -> None:
    text = describe(MapMemory)
    assert "MapMemory: 24 bytes, RW 'X' 0x4a = 0xc018584a" in text
    assert "0x0008    8 address" in text
    assert "24 bytes\n" in describe(Range) or "16 bytes" in describe(Range)


@given(
    st.integers(0, 255),
    st.integers(0, (1 << 64) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.lists(st.integers(0, 0xFFFF), min_size=6, max_size=6),
    st.binary(min_size=5, max_size=5),
    st.integers(0, (1 << 64) - 1),
)
def test_decode_undoes_encode(
    first: int, second: int, signed: int, table: list[int], name: bytes, wide: int
) -> None:
    value = Mixed(
        first=first,
        second=second,
        signed=signed,
        ranges=(Range(start=wide, length=table[0]), Range()),
        table=tuple(table),
        name=name,
        either=Either(wide=Wide(value=wide)),
    )
    assert Mixed.decode(value.encode()) == value


@given(st.binary(max_size=100))
def test_any_bytes_decode_and_come_back(raw: bytes) -> None:
    value = MapMemory.decode(raw)
    assert value.encode() == raw.ljust(24, b"\0")[:24]
