"""Every declared SDMA field equals the vendor header's; packets encode to words made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rawgpu.amd.spec import sdma
from rawgpu.amd.spec.pm4 import Function
from rawgpu.describe.field import DecodeError, EncodingError
from rawgpu.describe.packet import Packet, PacketSet

GENS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/abi/amd_sdma.json").read_text()
)["gens"]
SETS = [("v4", sdma.SDMA_V4), ("v5", sdma.SDMA_V5), ("v6", sdma.SDMA_V6)]
NAMES = {
    sdma.Nop: "NOP", sdma.CopyLinear: "COPY_LINEAR", sdma.WriteUntiled: "WRITE_UNTILED",
    sdma.Indirect: "INDIRECT", sdma.Fence: "FENCE", sdma.Trap: "TRAP",
    sdma.PollRegmem: "POLL_REGMEM", sdma.CondExe: "COND_EXE", sdma.Atomic: "ATOMIC",
    sdma.ConstantFill: "CONSTANT_FILL", sdma.TimestampGetGlobal: "TIMESTAMP_GET_GLOBAL",
    sdma.GcrReq: "GCR_REQ",
}  # fmt: skip


def vendor_name(packet: type[Packet]) -> str:
    return next(name for kind, name in NAMES.items() if issubclass(packet, kind))


def bits_of(mask: str, dword: int, shift: int) -> set[int]:
    return {32 * dword + shift + i for i in range(int(mask, 16).bit_length())}


@pytest.mark.parametrize(("version", "packets"), SETS, ids=[name for name, _ in SETS])
def test_fields_lie_where_the_header_has_fields(version: str, packets: PacketSet) -> None:
    """Each of our fields is a union of whole fields of the header, less alignment bits."""
    for packet in packets:
        about = packet.about
        row = GENS[version]["packets"][vendor_name(packet)]
        fields = [f for f in row["fields"] if "BC_" not in f[3]]
        theirs = [bits_of(mask, dword, shift) for dword, shift, mask, _ in fields]
        if about.tail is None:
            assert about.dwords == row["dwords"], about.name
        header = {*range(16)}
        ours = [set(range(f.low, f.low + f.width)) for f in about.fields]
        if about.tail is not None and about.tail.width:
            ours.append(set(range(about.tail.low, about.tail.low + about.tail.width)))
        for mine in ours:
            touched = [t for t in theirs if t & mine]
            covered = set().union(*touched)
            missing = covered - mine
            low = min(mine)
            assert mine <= covered, (about.name, sorted(mine - covered))
            assert all(bit < low and low - bit <= 5 for bit in missing), (about.name, missing)
        assert not any(mine & header for mine in ours)


@pytest.mark.parametrize(("version", "packets"), SETS, ids=[name for name, _ in SETS])
def test_opcodes_are_the_header_s(version: str, packets: PacketSet) -> None:
    numbers = GENS[version]["ops"]
    for opcode in sdma.Opcode:
        if opcode is sdma.Opcode.GCR_REQ and version == "v4":
            continue
        assert numbers[f"SDMA_OP_{opcode.name}"] == opcode.value
    for op in sdma.TimestampOp:
        name = "SDMA_SUBOP_TIMESTAMP_" + op.name
        assert numbers[name] == op.value


def test_words_made_by_hand() -> None:
    """Words derived by hand from the packet layouts that AMD publishes."""
    address = 0x12_3456_7880
    copy = sdma.CopyLinear6(source=address, target=0x1000, size_bytes=0x400000)
    assert copy.encode() == [1, 0x3FFFFF, 0, 0x34567880, 0x12, 0x1000, 0]
    assert sdma.Fence(address=address, data=7).encode() == [5, 0x34567880, 0x12, 7]
    assert sdma.Fence5(address=address, data=7).encode() == [0x30005, 0x34567880, 0x12, 7]
    poll = sdma.PollRegmem(function=Function.GREATER_EQUAL, address=address, value=3)
    assert poll.encode() == [0xD0000008, 0x34567880, 0x12, 3, 0xFFFFFFFF, 0x0FFF0004]
    assert sdma.Trap(int_context=5).encode() == [6, 5]
    assert sdma.TimestampGetGlobal(address=address).encode() == [0x20D, 0x34567880, 0x12]
    write = sdma.WriteUntiled(target=address, data=(1, 2, 3))
    assert write.encode() == [2, 0x34567880, 0x12, 2, 1, 2, 3]
    fill = sdma.ConstantFill(target=address, data=0x01010101, count=99, fillsize=sdma.FillSize.BYTE)
    assert fill.encode() == [11, 0x34567880, 0x12, 0x01010101, 99]
    ib = sdma.Indirect5(address=address, size_dwords=8)
    assert ib.encode() == [4, 0x34567880, 0x12, 8, 0, 0]
    assert sdma.Nop(payload=(0, 0)).encode() == [2 << 16, 0, 0]


def test_v7_tells_its_two_copies_apart_by_cpv() -> None:
    short = sdma.CopyLinear6(source=64, target=128, size_bytes=4)
    long = sdma.CopyLinearDcc(source=64, target=128, size_bytes=4)
    assert len(long.encode()) == 8 and long.encode()[0] == 1 | 1 << 19
    assert list(sdma.SDMA_V7.decode(short.encode() + long.encode())) == [short, long]
    with pytest.raises(DecodeError, match="cut off"):
        list(sdma.SDMA_V7.decode([1 | 1 << 19, 3, 0, 64, 0, 128, 0]))


def test_a_copy_larger_than_the_field_is_refused() -> None:
    with pytest.raises(EncodingError, match="size_bytes"):
        sdma.CopyLinear(source=0, target=0, size_bytes=(1 << 22) + 1).encode()


@pytest.mark.parametrize("packets", [sdma.SDMA_V4, sdma.SDMA_V5, sdma.SDMA_V6, sdma.SDMA_V7])
def test_a_ring_round_trips(packets: PacketSet) -> None:
    fence = next(p for p in packets if issubclass(p, sdma.Fence))
    ring = [
        fence(address=64, data=1),
        sdma.Trap(int_context=3),
        sdma.WriteUntiled(target=64, data=(1, 2)),
        sdma.Nop(payload=()),
    ]
    words = [word for packet in ring for word in packet.encode()]
    assert list(packets.decode(words)) == ring
