"""Packets, registers, descriptors and recordings as text, from bytes made by the encoders."""

from __future__ import annotations

import json

import pytest

from rawgpu.amd.decode import entry, source
from rawgpu.amd.spec import aql, pm4, sdma
from rawgpu.errors import BadFile
from tests.amd.decode.hostile import RECORDING
from tests.amd.driver.objects import SAXPY, build


def text(data: bytes, kind: str, arch: str | None = "gfx1100") -> list[str]:
    return list(entry.decode(data, kind, arch).text())


def test_pm4_packets_with_the_registers_they_write() -> None:
    ring = (
        pm4.SetShReg(register=0xB81C, values=(64, 1)).pack()
        + pm4.DispatchDirect(x=4, y=1, z=1, initiator=0x8005).pack()
        + pm4.ReleaseMem10(address=0x7F00_0000_1000, data=7).pack()
    )
    assert text(ring, "pm4") == [
        "000000  SetShReg(register=0xb81c, values=(64, 1))",
        "          COMPUTE_NUM_THREAD_X = 0x40: NUM_THREAD_FULL=64",
        "          COMPUTE_NUM_THREAD_Y = 0x1: NUM_THREAD_FULL=1",
        "000010  DispatchDirect(x=4, y=1, z=1, initiator=0x8005)",
        "000024  ReleaseMem10(address=0x7f0000001000, data=7)",
    ]


def test_what_is_no_packet_is_shown_with_the_reason_and_what_follows_is_decoded() -> None:
    ring = (0xC0017700).to_bytes(4, "little") + bytes(8) + pm4.Nop().pack()
    found = text(ring, "pm4")
    assert found[0].startswith("000000  undecoded(") and "no packet with opcode 0x77" in found[0]
    assert found[1].startswith("00000c  Nop(")


def test_an_aql_ring_has_64_byte_slots_and_its_empty_ones_are_left_out() -> None:
    dispatch = aql.KernelDispatch(
        dimensions=1, workgroup_size_x=64, workgroup_size_y=1, workgroup_size_z=1,
        grid_size_x=256, grid_size_y=1, grid_size_z=1, private_segment_size=0,
        group_segment_size=0, kernel_object=0x7F00_0000_0040, kernarg_address=0x7F00_0000_2000,
    ).pack()  # fmt: skip
    buffer = pm4.IndirectBuffer(address=0x7F00_0000_3000, size_dwords=16).encode()
    words = {f"indirect_buffer_{i}": word for i, word in enumerate(buffer)}
    invalid = bytes([1]) + bytes(63)
    found = text(dispatch + invalid + aql.VendorPm4(**words).pack() + bytes(64), "aql", "gfx942")
    assert found[0].startswith("000000  KernelDispatch(") and "grid_size_x=256" in found[0]
    assert found[1].startswith("000080  VendorPm4(")
    assert found[2].strip() == "IndirectBuffer(address=0x7f0000003000, size_dwords=16)"
    assert len(found) == 3


def test_sdma_packets_are_those_of_the_processor_s_version() -> None:
    copy = sdma.CopyLinear6(size_bytes=4096, source=0x1000, target=0x2000).pack()
    assert text(copy, "sdma") == ["000000  CopyLinear6(size_bytes=4096, source=4096, target=8192)"]
    fence = sdma.Fence(address=0x1000, data=3).pack()
    assert text(fence, "sdma", "gfx942") == ["000000  Fence(address=4096, data=3)"]


def test_registers_by_name_and_by_offset() -> None:
    dump = b"COMPUTE_PGM_RSRC2 = 0x84 # a comment\n0xb830 0x10\n0x1234: 7\n"
    dump += b"GCVM_L2_PROTECTION_FAULT_STATUS 0x00301031\nNOTHING = 1\n"
    assert text(dump, "registers") == [
        "COMPUTE_PGM_RSRC2 = 0x84: TGID_X_EN=1, USER_SGPR=2",
        "COMPUTE_PGM_LO = 0x10",
        "register at 0x1234 = 0x7, which no row names",
        "VM_L2_PROTECTION_FAULT_STATUS = 0x301031: MORE_FAULTS=1, "
        "PERMISSION_FAULTS=Permission.VALID|READ, CID=8, VMID=3",
        "NOTHING = 0x1, which no row names",
    ]
    rows = entry.decode(dump, "registers", "gfx1100").rows()["registers"]
    assert rows[0]["fields"] == {"USER_SGPR": 2, "TGID_X_EN": 1}
    pairs = b"\xff" * 8 + (0xB830).to_bytes(4, "little") + (5).to_bytes(4, "little")
    assert text(pairs, "registers")[1] == "COMPUTE_PGM_LO = 0x5"


def test_descriptors_of_a_file_and_bare() -> None:
    of_file = text(build(SAXPY, "gfx1100"), "descriptor", None)
    assert any("kernel saxpy, waves of 32" in line for line in of_file)
    bare = text(bytes(64), "descriptor")
    assert bare[0] == "descriptor 0:" and "  kernarg_size = 0" in bare


def test_numbers_in_text_are_dwords_with_0x_and_bytes_without() -> None:
    assert source.numbers(b"0xc0011000, 0x1 # nop\n") == bytes.fromhex("001001c001000000")
    assert source.numbers(b"10: 00 1001c0 01000000\n") == bytes.fromhex("001001c001000000")
    assert source.numbers(b"0x1122334455667788") == bytes.fromhex("8877665544332211")
    assert source.numbers(b"\x01\x02\xff") == b"\x01\x02\xff"
    with pytest.raises(BadFile, match="line 2: 'hello'"):
        source.numbers(b"00\nhello\n")
    with pytest.raises(BadFile, match="no whole number of dwords"):
        text(b"\xff\xfe\xfd", "pm4")


def test_a_recording_shows_its_watched_memory_as_packets() -> None:
    data = "".join(json.dumps(line) + "\n" for line in RECORDING).encode()
    assert entry.recognise(data) == "trace"
    found = text(data, "trace")
    assert found[0] == "open('/dev/kfd') = 3"
    assert found[1].startswith("ioctl(3, GetVersion(")
    assert found[2:4] == ["driver wrote pm4 ring: 4 bytes at 0x1000", "    000000  Filler()"]
    assert len(text(data, "trace", None)) == len(found) - 1
    broken = json.dumps(RECORDING[0]) + '\n{"call": "ioctl", "number": "x"}\n'
    with pytest.raises(BadFile, match="line 2 of the recording is damaged"):
        text(broken.encode(), "trace")


def test_rows_hold_the_same_packets() -> None:
    ring = pm4.SetShReg(register=0xB830, values=(1, 2)).pack()
    rows = json.loads(json.dumps(entry.decode(ring, "pm4", "gfx1100").rows()))
    assert rows["packets"][0]["packet"] == "SetShReg"
    assert rows["packets"][0]["fields"] == {"register": 0xB830, "values": [1, 2]}
    assert rows["packets"][0]["inside"] == ["COMPUTE_PGM_LO = 0x1", "COMPUTE_PGM_HI = 0x2: DATA=2"]
