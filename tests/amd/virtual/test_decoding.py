"""Indirect buffers decoded as a whole: what is joined, and that errors wait until they are met."""

from __future__ import annotations

import struct

from rawgpu.amd.spec import hardware, pm4
from rawgpu.amd.virtual.decoding import Decoder

SET = pm4.SH_BASE + 0x100


def set_registers(number: int, *values: int) -> list[int]:
    return pm4.SetShReg(register=SET + 4 * number, values=values).encode()


def packed(*packets: list[int]) -> bytes:
    words = [word for packet in packets for word in packet]
    return struct.pack(f"<{len(words)}I", *words)


def decoder() -> Decoder:
    return Decoder(hardware.BY_NAME["gfx942"].pm4)


def test_neighbours_that_set_registers_are_one_entry_and_the_last_value_stays() -> None:
    nop = pm4.Nop(payload=(0,)).encode()
    data = packed(set_registers(0, 1, 2), set_registers(1, 3), nop, set_registers(0, 4))
    first, second, third = decoder().buffer(data)
    assert first.writes == {SET: 1, SET + 4: 3}
    assert len(first.packets) == 2
    assert (first.begin, first.end) == (0, 7)
    assert not second.writes
    assert third.writes == {SET: 4}


def test_what_is_predicated_is_not_joined_with_what_follows() -> None:
    inside = set_registers(0, 1)
    data = packed(
        pm4.PredExec(xcc_mask=1, exec_count=len(inside)).encode(), inside, set_registers(1, 2)
    )
    entries = decoder().buffer(data)
    assert [entry.writes for entry in entries] == [{}, {SET: 1}, {SET + 4: 2}]


def test_an_error_is_met_where_it_stands() -> None:
    data = packed(set_registers(0, 1), [0xC0FF_FF00])
    good, bad = decoder().buffer(data)
    assert good.writes == {SET: 1}
    assert bad.error is not None
    assert bad.error.offset == 3


def test_equal_bytes_are_decoded_once() -> None:
    known = decoder()
    data = packed(set_registers(0, 1))
    assert known.buffer(data) is known.buffer(bytes(bytearray(data)))
