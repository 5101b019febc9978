"""Packets: bytes against words worked out by hand, refusals at import and at run time, speed."""

from __future__ import annotations

from array import array
from enum import IntEnum, IntFlag

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawgpu.describe.field import DecodeError, EncodingError, bits, dw, dw64, tail
from rawgpu.describe.packet import Header, Packet, PacketSet, Undecoded, describe
from rawgpu.describe.value import DeclarationError

TYPE3 = Header(opcode=(15, 8), count=(29, 16), bias=2, single=0x3FFF, fixed={(31, 30): 3})
SOURCE = "a made-up manual"


class Event(IntEnum):
    PARTIAL_FLUSH = 7
    FLUSH_AND_TIMESTAMP = 0x14


class Caches(IntFlag):
    L1 = 1
    L2 = 4


class Ring(Packet, header=TYPE3):
    shader_type: int = dw(0, 1, 1, default=0)


class Release(Ring, opcode=0x49, dwords=8, source=SOURCE):
    """Write `data` to `address` when `event` has come."""

    event: Event = dw(1, 5, 0)
    index: int = dw(1, 11, 8, default=5)
    caches: Caches = dw(1, 14, 12, default=Caches(0))
    interrupt: bool = dw(2, 24, default=False, low=24)
    address: int = dw64(3)
    data: int = dw64(5)
    context: int = dw(7, default=0)


class Nop(Ring, opcode=0x10, source=SOURCE):
    data: tuple[int, ...] = tail(1, default=())


class SetRegister(Ring, opcode=0x76, source=SOURCE):
    register: int = dw(1, 15, 0)
    values: tuple[int, ...] = tail(2)


class Indirect(Ring, opcode=0x3F, dwords=4, source=SOURCE):
    address: int = dw64(1, 63, 2, unit=4)
    size_dwords: int = dw(3, 19, 0)
    slack: int = dw(3, 23, 20, signed=True, default=0)


class Filler(Packet, header=Header(opcode=(31, 0)), opcode=0x8000_0000, dwords=1, source=SOURCE):
    """One dword to skip, which has another kind of header."""


class Engine(Packet, header=Header(opcode=(7, 0), sub_opcode=(15, 8))):
    pass


class Copy(Engine, opcode=1, dwords=7, source=SOURCE):
    compressed: int = dw(0, 19, 19, const=0)
    size_bytes: int = dw(1, 21, 0, bias=-1)
    source: int = dw64(3)
    target: int = dw64(5)


class CopyCompressed(Copy, dwords=8, source=SOURCE):
    compressed: int = dw(0, 19, 19, const=1)
    mode: int = dw(7, default=0)


class CopyWide(Copy, source=SOURCE):
    size_bytes: int = dw(1, 29, 0, bias=-1)


class Write(Engine, opcode=2, source=SOURCE):
    address: int = dw64(1)
    data: tuple[int, ...] = tail(4, count=(3, 19, 0), bias=-1)


class Timestamp(Engine, opcode=13, sub_opcode=2, dwords=3, source=SOURCE):
    address: int = dw64(1, 63, 3, unit=8)


RING = PacketSet("ring", [Release, Nop, SetRegister, Indirect, Filler])
ENGINE = PacketSet("engine", [Copy, CopyCompressed, Write, Timestamp])


def test_a_packet_becomes_the_dwords_of_the_manual() -> None:
    packet = Release(
        event=Event.FLUSH_AND_TIMESTAMP,
        caches=Caches.L1 | Caches.L2,
        interrupt=True,
        address=0x7F01_2345_6780,
        data=41,
    )
    assert packet.encode() == [
        0xC0064900,
        0x00005514,
        0x01000000,
        0x23456780,
        0x00007F01,
        41,
        0,
        0,
    ]
    assert packet.pack() == b"".join(word.to_bytes(4, "little") for word in packet.encode())


def test_units_and_biases_are_the_declarations_business() -> None:
    assert Copy(size_bytes=4096, source=1, target=2).encode()[1] == 4095
    assert Indirect(address=0x1000, size_dwords=1, slack=-2).encode()[1:] == [0x1000, 0, 0xE00001]
    assert Timestamp(address=0x18).encode() == [0x0000020D, 0x18, 0]


def test_a_tail_says_its_length_in_the_header_or_in_its_own_count() -> None:
    assert SetRegister(register=0x204, values=(7, 8, 9)).encode() == [0xC0037600, 0x204, 7, 8, 9]
    assert Write(address=0x10, data=(5, 6)).encode() == [2, 0x10, 0, 1, 5, 6]
    assert Nop().encode() == [0xFFFF1000]
    assert Nop(data=(3,)).encode() == [0xC0001000, 3]
    assert Nop(data=(3,)).dwords == 2


def test_a_ring_decodes_to_the_packets_that_were_put_in() -> None:
    packets = [
        Nop(),
        Release(event=Event.PARTIAL_FLUSH, address=8, data=9),
        Filler(),
        SetRegister(register=1, values=(2, 3)),
        Nop(data=(1, 2, 3)),
        Indirect(address=4, size_dwords=8, slack=-8),
    ]
    ring: list[int] = []
    for packet in packets:
        ring += packet.encode()
    assert list(RING.decode(ring)) == packets
    raw = array("I", ring)
    for form in (raw, raw.tobytes(), bytearray(raw.tobytes()), memoryview(raw)):
        assert list(RING.decode(form)) == packets
    assert [at for at, _ in RING.walk(ring)] == [0, 1, 9, 10, 14, 18]
    assert RING.decode_at(ring, 10) == packets[3]


def test_packets_match_in_match_statements_and_subclasses_match_their_parents() -> None:
    match ENGINE.decode_at(CopyCompressed(size_bytes=5, source=6, target=7).encode()):
        case Copy(size_bytes=size, target=target):
            assert (size, target) == (5, 7)
        case _:
            pytest.fail("no match")


def test_constant_bits_tell_packets_with_one_opcode_apart() -> None:
    short = Copy(size_bytes=1, source=2, target=3)
    long = CopyCompressed(size_bytes=1, source=2, target=3, mode=4)
    assert list(ENGINE.decode(short.encode() + long.encode())) == [short, long]
    with pytest.raises(DeclarationError, match="nothing tells Twin and Copy apart"):
        PacketSet("both", [Copy, Twin])


class Twin(Engine, opcode=1, dwords=7, source=SOURCE):
    """An opcode that Copy has, without the constant."""


def test_a_subclass_restates_only_what_moved() -> None:
    assert CopyWide.field_names() == Copy.field_names()
    wide = CopyWide(size_bytes=1 << 30, source=0, target=0)
    assert CopyWide.decode(wide.encode()) == wide
    with pytest.raises(EncodingError, match="22 bits"):
        Copy(size_bytes=1 << 30, source=0, target=0).encode()

    class Without(Copy, drop=("source",), source=SOURCE):
        pass

    assert Without.field_names() == ("compressed", "size_bytes", "target")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"index": 16}, "Release.index is 16, and 4 bits hold 0 to 15"),
        ({"index": -1}, "Release.index is -1"),
        ({"address": 1 << 64}, "64 bits"),
        ({"data": 1.5}, "not an integer"),
        ({"data": None}, "not an integer"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    packet = Release(event=Event.PARTIAL_FLUSH, address=0, data=0).replace(**changes)
    with pytest.raises(EncodingError, match=message):
        packet.encode()


def test_units_constants_and_tails_are_checked_too() -> None:
    with pytest.raises(EncodingError, match="no multiple of 4"):
        Indirect(address=2, size_dwords=0).encode()
    with pytest.raises(EncodingError, match="hold 1 to"):
        Copy(size_bytes=0, source=0, target=0).encode()
    with pytest.raises(EncodingError, match="always 0x0, not 0x1"):
        Copy(size_bytes=1, source=0, target=0, compressed=1).encode()
    with pytest.raises(EncodingError, match="not 32-bit dwords"):
        SetRegister(register=0, values=(1 << 32,)).encode()
    with pytest.raises(EncodingError, match="cannot count"):
        Nop(data=(0,) * 0x4000).encode()
    with pytest.raises(EncodingError, match="20 bits"):
        Write(address=0, data=(0,) * ((1 << 20) + 1)).encode()
    with pytest.raises(EncodingError, match="hold 1 to"):
        Write(address=0, data=()).encode()


def test_bits_that_no_field_names_are_refused() -> None:
    words = Release(event=Event.PARTIAL_FLUSH, address=0, data=0).encode()
    words[2] |= 1 << 31
    with pytest.raises(DecodeError, match=r"no field names: dword 2 & 0x80000000 \(at dword 0\)"):
        list(RING.decode(words))
    assert Release.decode(words, strict=False).data == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([0xC0064900, 0x3F, 0, 0, 0, 0, 0, 0], "event is 0x3f, no Event"),
        ([0xC0064900, 0x2007, 0, 0, 0, 0, 0, 0], "caches has bits 0x2 that Caches lacks"),
        ([0xC0054900, 7, 0, 0, 0, 0, 0], "has 8 dwords, its header says 7"),
        ([0xC0064900, 7, 0], "is cut off after 3"),
        ([0xC0007700, 7], "has no packet with opcode 0x77"),
        ([0x40000000], "begins no packet of ring"),
        ([0xC0007600 | 0x3FFF << 16], "has 2 dwords, its header says 1"),
    ],
)
def test_bad_rings_are_refused_and_printed_all_the_same(words: list[int], message: str) -> None:
    good = Nop(data=(1,)).encode()
    with pytest.raises(DecodeError, match=message) as caught:
        list(RING.decode(good + words))
    assert caught.value.offset == 2
    found = [packet for _, packet in RING.walk(good + words, strict=False)]
    assert found[0] == Nop(data=(1,))
    assert sum(packet.dwords for packet in found) == 2 + len(words)


def test_decoding_goes_on_after_what_nobody_knows() -> None:
    ring = [0xC0017700, 5, 6, *Nop(data=(1,)).encode(), 0x12345678, 0x9]
    found = [packet for _, packet in RING.walk(ring, strict=False)]
    assert isinstance(found[0], Undecoded)
    assert found[0].words == (0xC0017700, 5, 6)
    assert "c0017700 00000005 00000006: ring has no packet" in repr(found[0])
    assert found[1] == Nop(data=(1,))
    assert isinstance(found[2], Undecoded)
    assert found[2].encode() == [0x12345678, 9]


def test_one_packet_is_measured_before_all_of_it_is_there() -> None:
    assert RING.measure([0xC0064900]) == 8
    assert ENGINE.measure([1]) == 7
    assert ENGINE.measure(Write(address=0, data=(1, 2, 3)).encode()[:4]) == 7
    with pytest.raises(DecodeError, match="cut off"):
        ENGINE.measure([2, 0])
    with pytest.raises(DecodeError, match="opcode 0x63, sub-opcode 0x0"):
        ENGINE.measure([99])


def test_packets_are_frozen_comparable_and_printable() -> None:
    packet = Release(event=Event.PARTIAL_FLUSH, address=0x10000, data=5)
    assert repr(packet) == (
        "Release(shader_type=0, event=Event.PARTIAL_FLUSH, index=5, caches=Caches.0x0, "
        "interrupt=False, address=0x10000, data=5, context=0)"
    )
    same = Release(data=5, address=0x10000, event=Event.PARTIAL_FLUSH)
    assert packet == same
    assert hash(packet) == hash(same)
    assert packet.replace(data=6) != packet
    assert packet != Nop()
    with pytest.raises(AttributeError, match="frozen"):
        packet.data = 6  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        del packet.data
    assert "3[31:0]" not in describe(Release)
    assert "1[5:0]" in describe(Release)


def test_missing_and_unheard_of_fields_are_named() -> None:
    with pytest.raises(TypeError, match="Release needs address, data"):
        Release(event=Event.PARTIAL_FLUSH)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Nop has no field dada; its fields: shader_type, data"):
        Nop(dada=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="has no field dada"):
        Nop().replace(dada=1)


def test_overlap_and_outliers_fail_at_import() -> None:
    with pytest.raises(DeclarationError, match=r"Bad.b at 1\[7:4\] overlaps a"):

        class Bad(Ring, opcode=1, dwords=2, source=SOURCE):
            a: int = dw(1, 4, 0)
            b: int = dw(1, 7, 4)

    with pytest.raises(DeclarationError, match="lies outside 64 bits"):

        class Outside(Ring, opcode=1, dwords=2, source=SOURCE):
            a: int = dw64(1)

    with pytest.raises(DeclarationError, match="overlaps the header"):

        class OnHeader(Ring, opcode=1, dwords=2, source=SOURCE):
            a: int = dw(0, 8, 8)

    with pytest.raises(DeclarationError, match=r"overlaps (data|a)"):

        class OnCount(Engine, opcode=9, source=SOURCE):
            a: int = dw(3, 3, 0)
            data: tuple[int, ...] = tail(4, count=(3, 19, 0))


def test_declarations_that_make_no_sense_fail_at_import() -> None:
    with pytest.raises(DeclarationError, match="no range"):
        dw(1, 0, 4)
    with pytest.raises(DeclarationError, match="no range"):
        bits(-1)
    with pytest.raises(DeclarationError, match="a bool has one bit"):

        class WideBool(Ring, opcode=1, dwords=2, source=SOURCE):
            a: bool = dw(1, 4, 0)

    with pytest.raises(DeclarationError, match="FLUSH_AND_TIMESTAMP has more than its bits"):

        class NarrowEnum(Ring, opcode=1, dwords=2, source=SOURCE):
            a: Event = dw(1, 3, 0)

    with pytest.raises(DeclarationError, match="default does not fit"):

        class Default(Ring, opcode=1, dwords=2, source=SOURCE):
            a: int = dw(1, 3, 0, default=16)

    with pytest.raises(DeclarationError, match="has no place"):

        class Nowhere(Ring, opcode=1, dwords=2, source=SOURCE):
            a: int = 3

    with pytest.raises(DeclarationError, match="no field may be called encode"):

        class Taken(Ring, opcode=1, dwords=2, source=SOURCE):
            encode: int = dw(1)  # type: ignore[assignment]

    with pytest.raises(DeclarationError, match="needs a length"):

        class NoLength(Ring, opcode=1, source=SOURCE):
            a: int = dw(1)

    with pytest.raises(DeclarationError, match="nothing says how long"):

        class NoCount(Engine, opcode=1, source=SOURCE):
            data: tuple[int, ...] = tail(1)

    with pytest.raises(DeclarationError, match="drops b, which it never had"):

        class Dropped(Release, drop=("b",), source=SOURCE):
            pass

    with pytest.raises(DeclarationError, match="does not fit bits"):

        class WideOpcode(Ring, opcode=0x100, dwords=1, source=SOURCE):
            pass

    with pytest.raises(TypeError, match="names no source"):

        class NoSource(Ring, opcode=1, dwords=1):
            pass


def test_a_long_ring_of_mixed_packets_decodes_one_by_one() -> None:
    ring: list[int] = []
    for i in range(2500):
        ring += Release(event=Event.PARTIAL_FLUSH, address=i, data=i).encode()
        ring += SetRegister(register=i, values=(i, i)).encode()
        ring += Nop().encode()
        ring += Indirect(address=4 * i, size_dwords=i).encode()
    raw = array("I", ring).tobytes()
    packets = list(RING.decode(raw))
    assert len(packets) == 10_000
    assert packets[4 * 77] == Release(event=Event.PARTIAL_FLUSH, address=77, data=77)


words = st.integers(0, (1 << 32) - 1)
packets = st.one_of(
    st.builds(
        Release,
        event=st.sampled_from(Event),
        index=st.integers(0, 15),
        caches=st.sampled_from([Caches(0), Caches.L1, Caches.L2, Caches.L1 | Caches.L2]),
        interrupt=st.booleans(),
        address=st.integers(0, (1 << 64) - 1),
        data=st.integers(0, (1 << 64) - 1),
        context=words,
    ),
    st.builds(Nop, data=st.lists(words, max_size=9).map(tuple)),
    st.builds(SetRegister, register=st.integers(0, 0xFFFF), values=st.lists(words).map(tuple)),
    st.builds(
        Indirect,
        address=st.integers(0, (1 << 62) - 1).map(lambda n: 4 * n),
        size_dwords=st.integers(0, (1 << 20) - 1),
        slack=st.integers(-8, 7),
    ),
    st.just(Filler()),
)


@given(st.lists(packets, max_size=8))
def test_decode_undoes_encode(ring: list[Packet]) -> None:
    data = [word for packet in ring for word in packet.encode()]
    # A tail-less SetRegister is two dwords; the header counts them all.
    assert list(RING.decode(data)) == ring


@given(st.lists(words, max_size=40))
def test_any_dwords_are_decoded_or_refused_and_never_lost(data: list[int]) -> None:
    again = [
        word
        for at, packet in RING.walk(data, strict=False)
        for word in data[at : at + packet.dwords]
    ]
    assert again == data
    for at, packet in RING.walk(data, strict=False):
        try:
            strict = RING.decode_at(data, at)
        except DecodeError:
            continue
        assert strict == packet
        assert strict.encode() == data[at : at + strict.dwords]
