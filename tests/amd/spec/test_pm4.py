"""PM4 packets encode to words made by hand from AMD's headers, and decode again."""

from __future__ import annotations

import pytest

from rawgpu.amd.spec import hardware, pm4
from rawgpu.amd.spec.pm4 import (
    DataSelect,
    EventIndex,
    EventType,
    Function,
    InterruptSelect,
    Operation,
    Space,
)
from rawgpu.describe.field import DecodeError
from rawgpu.describe.packet import Packet

ALL = 0xFFFFFFFF
WORDS: list[tuple[Packet, list[int]]] = [
    (pm4.Nop(payload=(1, 2)), [0xC0011000, 1, 2]),
    (pm4.Nop(), [0xFFFF1000]),
    (pm4.Filler(), [0x80000000]),
    (pm4.DispatchDirect(x=4, y=2, z=1, initiator=0x8005), [0xC0031500, 4, 2, 1, 0x8005]),
    (pm4.DispatchIndirect(address=0x1_0000_0010, initiator=5), [0xC0021600, 0x10, 1, 5]),
    (
        pm4.EventWrite(event_type=EventType.CS_PARTIAL_FLUSH, event_index=EventIndex.PARTIAL_FLUSH),
        [0xC0004600, 0x407],
    ),
    (
        pm4.IndirectBuffer(address=0x12_3456_7894, size_dwords=0x30),
        [0xC0023F00, 0x34567894, 0x12, 0x00800030],
    ),
    (pm4.PredExec(xcc_mask=1, exec_count=8), [0xC0002300, 0x01000008]),
    (
        pm4.WaitRegMem(
            function=Function.GREATER_EQUAL,
            mem_space=Space.MEMORY,
            address=0x12_0000_0040,
            reference=7,
        ),
        [0xC0053C00, 0x15, 0x40, 0x12, 7, ALL, 4],
    ),
    (
        pm4.WaitRegMem(
            function=Function.GREATER_EQUAL,
            mem_space=Space.REGISTER,
            operation=Operation.WRITE_WAIT_WRITE,
            address=0xE27 << 32 | 0xE26,
            reference=ALL,
        ),
        [0xC0053C00, 0x45, 0xE26, 0xE27, ALL, ALL, 4],
    ),
    (
        pm4.WriteData(
            dst_sel=pm4.CopyTarget.MEMORY, wr_confirm=True, address=0x1_0000_0000, data=(9,)
        ),
        [0xC0033700, 0x00100500, 0, 1, 9],
    ),
    (
        pm4.CopyData(
            src_sel=pm4.CopySource.GPU_CLOCK,
            dst_sel=pm4.CopyTarget.MEMORY,
            wide=True,
            wr_confirm=True,
            source=0,
            target=0x2_0000_0008,
        ),
        [0xC0044000, 0x00110509, 0, 0, 8, 2],
    ),
    (
        pm4.ReleaseMem10(
            address=0x12_0000_0048,
            data=5,
            data_sel=DataSelect.DATA_32,
            int_sel=InterruptSelect.AFTER_WRITE_CONFIRM,
            int_ctxid=5,
        ),
        [0xC0064900, 0x514, 0x22000000, 0x48, 0x12, 5, 0, 5],
    ),
]
"""From PACKET3_* of amdgpu/soc15d.h and nvd.h, worked out by hand."""


@pytest.mark.parametrize(("packet", "words"), WORDS, ids=[type(p).__name__ for p, _ in WORDS])
def test_words_made_by_hand(packet: Packet, words: list[int]) -> None:
    assert packet.encode() == words
    assert pm4.PM4_GFX10.decode_at(words) == packet


BOUNDARIES = [
    (hardware.CACHES_GFX10.submit, [0xC0065800, 0, ALL, ALL, 0, 0, 0, 0xC3F1]),
    (hardware.CACHES_GFX10.dispatch, [0xC0065800, 0, ALL, ALL, 0, 0, 0, 0x3F0]),
    (hardware.CACHES_GFX10.release, [0xC0064900, 0x70F514, 0, 0, 0, 0, 0, 0]),
    (hardware.CACHES_GFX9.submit, [0xC0055800, 0x28C40000, ALL, ALL, 0, 0, 0xA]),
    (hardware.CACHES_GFX9.dispatch, [0xC0055800, 0x08400000, ALL, ALL, 0, 0, 0xA]),
    (hardware.CACHES_GFX9.release, [0xC0064900, 0x88514, 0, 0, 0, 0, 0, 0]),
]


@pytest.mark.parametrize(("packet", "words"), BOUNDARIES)
def test_cache_policy_is_what_a_driver_sends_that_works_on_hardware(
    packet: Packet, words: list[int]
) -> None:
    assert packet.encode() == words


def test_a_set_keeps_to_its_generation() -> None:
    """gfx9's AcquireMem has 7 dwords; gfx10's form is no packet of gfx9."""
    words = hardware.CACHES_GFX10.submit.encode()
    with pytest.raises(DecodeError):
        pm4.PM4_GFX9.decode_at(words)
    with pytest.raises(DecodeError):
        pm4.PM4_GFX10.decode_at(hardware.CACHES_GFX9.submit.encode())


def test_an_unknown_opcode_says_so() -> None:
    with pytest.raises(DecodeError, match="0x2f"):
        pm4.PM4_GFX10.decode_at([0xC0012F00, 0, 0])


def test_a_stray_bit_is_no_packet() -> None:
    with pytest.raises(DecodeError, match="no field"):
        pm4.PM4_GFX10.decode_at([0xC0004600, 0x407 | 1 << 20])
