"""The copy engines: every generation's packets, and what they refuse."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from rawgpu.amd.spec import pm4, sdma
from rawgpu.amd.virtual.dispatch import Misuse, NotModelled
from rawgpu.describe.packet import Packet
from rawgpu.ioctl.kfd import EventType, QueueType, WaitResult
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import (
    VRAM,
    Client,
    HostQueue,
    client_of,
    sdma_packets,
    until,
    write,
)


class Copies:
    """A client with an SDMA queue."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.queue: HostQueue = client.queue(QueueType.SDMA)
        self.kinds: dict[str, Any] = sdma_packets(client)
        self.page = client.alloc(0x4000)
        self.count = 0

    def fence(self, at: int = 0x3000) -> Packet:
        self.count += 1
        made: Packet = self.kinds["Fence"](address=self.page.va + at, data=self.count)
        return made

    def run(self, *packets: Packet) -> None:
        """Submit, and wait until all is done."""
        self.queue.submit(*packets, self.fence())
        until(self.client, self.page.va + 0x3000, self.count)


@pytest.fixture(params=["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def copies(request: pytest.FixtureRequest) -> Iterator[Copies]:
    with Room(request.param, seed=2) as room:
        yield Copies(client_of(room))


@pytest.fixture
def one() -> Iterator[Copies]:
    with Room("gfx1100", seed=2) as room:
        yield Copies(client_of(room))


def test_copies_fills_writes_and_clocks(copies: Copies) -> None:
    page, kinds = copies.page, copies.kinds
    page.write(b"0123456789")
    page.write(bytes(64), 0x1000)
    copies.run(
        kinds["CopyLinear"](source=page.va, target=page.va + 0x1000, size_bytes=10),
        kinds["ConstantFill"](target=page.va + 0x1010, data=0x01020304, count=8 - 4),
        kinds["ConstantFill"](
            fillsize=sdma.FillSize.BYTE, target=page.va + 0x1020, data=0xAA, count=3 - 1
        ),
        kinds["WriteUntiled"](target=page.va + 0x1030, data=(5, 6)),
        kinds["TimestampGetGlobal"](address=page.va + 0x1038),
    )
    assert page.read(10, 0x1000) == b"0123456789"
    assert page.read(12, 0x1010) == bytes.fromhex("0403020104030201") + bytes(4)
    assert page.read(4, 0x1020) == b"\xaa\xaa\xaa\0"
    assert struct.unpack("<2I", page.read(8, 0x1030)) == (5, 6)
    assert struct.unpack("<Q", page.read(8, 0x1038))[0] > 0


def test_a_large_copy_is_right(one: Copies) -> None:
    size = 3 << 20
    source, target = one.client.alloc(size), one.client.alloc(size)
    data = bytes(range(256)) * (size // 256)
    source.write(data)
    one.run(one.kinds["CopyLinear"](source=source.va, target=target.va, size_bytes=size))
    assert target.read(size) == data


def test_a_poll_waits_for_another_queue(copies: Copies) -> None:
    page = copies.page
    page.write(bytes(16))
    poll = copies.kinds["PollRegmem"](function=pm4.Function.GREATER_EQUAL, address=page.va, value=3)
    copies.queue.submit(poll, copies.fence())
    for _ in range(20):
        copies.client.port.pause()
    assert page.read(4, 0x3000) != struct.pack("<I", 1)
    copies.client.queue().submit(write(page.va, 3))
    until(copies.client, page.va + 0x3000, 1)


def test_a_trap_sets_an_event(copies: Copies) -> None:
    client = copies.client
    events = client.alloc(0x8000)
    made = client.event(EventType.SIGNAL, events.handle)
    fence = copies.kinds["Fence"](address=events.va + 8 * made.event_slot_index, data=1)
    copies.queue.submit(fence, copies.kinds["Trap"](int_context=made.event_id))
    assert client.wait(made.event_id)[0] is WaitResult.COMPLETE


def test_an_indirect_buffer_runs(copies: Copies) -> None:
    page, kinds = copies.page, copies.kinds
    code = kinds["WriteUntiled"](target=page.va, data=(7,)).pack()
    page.write(code, 0x2000)
    copies.run(
        kinds["Nop"](payload=(0,)),
        kinds["Indirect"](address=page.va + 0x2000, size_dwords=len(code) // 4),
    )
    assert struct.unpack("<I", page.read(4))[0] == 7


def test_v7_takes_the_long_copy_with_its_bit_and_the_short_one_without() -> None:
    with Room("gfx1201") as room:
        copies = Copies(client_of(room))
        page = copies.page
        page.write(b"abcdefgh")
        copies.run(
            sdma.CopyLinearDcc(source=page.va, target=page.va + 64, size_bytes=4),
            sdma.CopyLinear6(source=page.va + 4, target=page.va + 68, size_bytes=4),
        )
        assert page.read(8, 64) == b"abcdefgh"


def test_a_ring_is_filled_up_before_its_end(one: Copies) -> None:
    page = one.page
    copy = one.kinds["CopyLinear"](source=page.va, target=page.va + 64, size_bytes=4)
    one.run(*[one.kinds["Nop"]()] * (0x4000 // 4 - 8))
    with pytest.raises(Misuse, match="crosses the ring's end"):
        _submit(one, copy)


REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("CopyLinear", {"source": 0, "target": 4, "size_bytes": 8}, Misuse, "overlap"),
    ("CopyLinear", {"source": 0, "target": 64, "size_bytes": 8, "tmz": True}, NotModelled, "tmz"),
    ("Indirect", {"address": 0, "size_dwords": 8}, Misuse, "8 dwords"),
    ("WriteUntiled", {"target": 2, "data": (1,)}, Misuse, "multiple of 4"),
    ("Atomic", {"address": 0, "src_data": 1, "atomic_op": 47}, NotModelled, "Atomic"),
    ("PollRegmem", {"address": 0, "value": 1, "mem_poll": False}, NotModelled, "register"),
]


@pytest.mark.parametrize(("name", "fields", "error", "text"), REFUSED)
def test_what_engines_punish_raises_by_name(
    one: Copies, name: str, fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    fields = {
        k: one.page.va + v if k in ("source", "target", "address") else v for k, v in fields.items()
    }
    if name == "PollRegmem":
        fields["function"] = pm4.Function.EQUAL
    packet = one.kinds[name](**fields)
    with pytest.raises(error, match=text):
        _submit(one, packet)


def _submit(copies: Copies, *packets: Packet) -> None:
    copies.queue.submit(*packets)
    for _ in range(20):
        copies.client.port.pause()


def test_sdma_does_not_see_what_l2_holds_back() -> None:
    """A copy after a kernel needs the kernel's results in memory."""
    from rawgpu.amd.virtual.dispatch import Client as Unit

    with Room("gfx1100") as room:
        copies = Copies(client_of(room))
        local = copies.client.alloc(0x1000, VRAM)
        local.write(bytes(8))
        view = copies.client.port.process.taken[copies.client.gpu_id].view  # type: ignore[attr-defined]
        copies.client.port.machine.gpus[0].flush_hdp()  # type: ignore[attr-defined]
        view.write(local.va, b"fromwave", Unit.VECTOR)
        copy = copies.kinds["CopyLinear"](source=local.va, target=copies.page.va, size_bytes=8)
        copies.run(copy)
        assert copies.page.read(8) == bytes(8)
        view.write_back()
        copies.run(copy)
        assert copies.page.read(8) == b"fromwave"
