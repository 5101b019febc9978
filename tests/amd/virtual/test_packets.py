"""PM4 on the virtual GPU: rings, indirect buffers, waits, signals, and what it refuses."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from rawgpu.amd.spec import pm4
from rawgpu.amd.virtual.dispatch import Misuse, NotModelled
from rawgpu.describe.field import DecodeError
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import (
    FINE,
    Client,
    HostQueue,
    client_of,
    copy32,
    fill_words,
    signal,
    until,
    wait_equal,
    write,
)

FAMILIES = ["gfx90a", "gfx1030", "gfx1100", "gfx1201"]


@pytest.fixture(params=FAMILIES)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with Room(request.param, seed=1) as room:
        yield client_of(room)


@pytest.fixture
def one() -> Iterator[Client]:
    with Room("gfx1100", seed=1) as room:
        yield client_of(room)


def test_an_empty_packet_moves_the_read_pointer(client: Client) -> None:
    queue = client.queue()
    queue.submit(pm4.Nop(payload=(1, 2, 3)))
    queue.drain()
    assert queue.read_pointer() == 4


def test_data_is_written_and_a_release_signals(client: Client) -> None:
    queue, page = client.queue(), client.alloc(0x1000)
    queue.submit(write(page.va + 16, 1, 2, 3), signal(client, page.va, 7))
    until(client, page.va, 7)
    assert struct.unpack("<3I", page.read(12, 16)) == (1, 2, 3)


def test_a_ring_wraps_inside_a_packet(one: Client) -> None:
    queue, page = one.queue(ring_bytes=0x1000), one.alloc(0x1000)
    for turn in range(1, 400):
        queue.submit(write(page.va + 64, *range(turn, turn + 5)), signal(one, page.va, turn))
        until(one, page.va, turn)
        assert struct.unpack("<5I", page.read(20, 64)) == tuple(range(turn, turn + 5))
    assert queue.written > 4 * 0x1000


def test_waits_hold_a_queue_until_another_queue_writes(client: Client) -> None:
    first, second, page = client.queue(), client.queue(), client.alloc(0x1000)
    page.write(bytes(64))
    first.submit(wait_equal(page.va, 5), write(page.va + 8, 1), signal(client, page.va + 4, 1))
    for _ in range(20):
        client.port.pause()
    assert page.read(12) == bytes(12)
    second.submit(write(page.va, 5))
    until(client, page.va + 4, 1)


@pytest.mark.parametrize(
    ("function", "value", "holds"),
    [
        (pm4.Function.ALWAYS, 3, True),
        (pm4.Function.LESS, 9, True),
        (pm4.Function.LESS, 10, False),
        (pm4.Function.LESS_EQUAL, 10, True),
        (pm4.Function.EQUAL, 10, True),
        (pm4.Function.NOT_EQUAL, 10, False),
        (pm4.Function.GREATER_EQUAL, 9, False),
        (pm4.Function.GREATER, 11, True),
        (pm4.Function.GREATER_EQUAL, 0x1_0000_0000 - 1, True),
    ],
)
def test_a_wait_compares(one: Client, function: pm4.Function, value: int, holds: bool) -> None:
    queue, page = one.queue(), one.alloc(0x1000)
    fill_words(page, [value, 0])
    wait = pm4.WaitRegMem(
        function=function, mem_space=pm4.Space.MEMORY, address=page.va, reference=10
    )
    queue.submit(wait, write(page.va + 4, 1))
    for _ in range(20):
        one.port.pause()
    assert struct.unpack("<I", page.read(4, 4))[0] == int(holds)


def test_a_mask_selects_what_a_wait_compares(one: Client) -> None:
    queue, page = one.queue(), one.alloc(0x1000)
    fill_words(page, [0xAB05, 0])
    queue.submit(wait_equal(page.va, 5).replace(mask=0xFF), signal(one, page.va + 4, 1))
    until(one, page.va + 4, 1)


def test_indirect_buffers_run_and_chain(client: Client) -> None:
    queue, page, buffer = client.queue(), client.alloc(0x1000), client.alloc(0x2000)
    second = signal(client, page.va, 3)
    first = write(page.va + 8, 1)
    chain = pm4.IndirectBuffer(address=buffer.va + 0x1000, size_dwords=second.dwords, chain=True)
    buffer.write(first.pack() + chain.pack())
    buffer.write(second.pack(), 0x1000)
    queue.submit(
        pm4.IndirectBuffer(address=buffer.va, size_dwords=first.dwords + chain.dwords),
        write(page.va + 12, 2),
    )
    until(client, page.va, 3)
    queue.drain()
    assert struct.unpack("<2I", page.read(8, 8)) == (1, 2)


def test_predicated_dwords_run_on_the_named_xcc_only(one: Client) -> None:
    queue, page, buffer = one.queue(), one.alloc(0x1000), one.alloc(0x1000)
    page.write(bytes(16))
    skipped, taken = write(page.va, 1), write(page.va + 4, 2)
    code = [
        pm4.PredExec(exec_count=skipped.dwords, xcc_mask=0xFE),
        skipped,
        pm4.PredExec(exec_count=taken.dwords, xcc_mask=1),
        taken,
    ]
    buffer.write(b"".join(packet.pack() for packet in code))
    queue.submit(
        pm4.IndirectBuffer(address=buffer.va, size_dwords=sum(p.dwords for p in code)),
        signal(one, page.va + 8, 1),
    )
    until(one, page.va + 8, 1)
    assert struct.unpack("<2I", page.read(8)) == (0, 2)


def test_copies_immediates_clocks_and_dma(one: Client) -> None:
    queue, page = one.queue(), one.alloc(0x1000)
    fill_words(page, [11, 22, 0, 0, 0, 0, 0, 0])
    memory, immediate = pm4.CopyTarget.MEMORY, pm4.CopySource.IMMEDIATE
    queue.submit(
        copy32(page.va + 8, page.va),
        pm4.CopyData(src_sel=immediate, dst_sel=memory, source=9, target=page.va + 12),
        pm4.CopyData(
            src_sel=pm4.CopySource.GPU_CLOCK,
            dst_sel=memory,
            wide=True,
            source=0,
            target=page.va + 16,
        ),
        pm4.DmaData(source=page.va, target=page.va + 0x100, byte_count=8),
        signal(one, page.va + 24, 1),
    )
    until(one, page.va + 24, 1)
    words = struct.unpack("<4IQ", page.read(24))
    assert words[:4] == (11, 22, 11, 9)
    assert words[4] > 0
    assert page.read(8, 0x100) == page.read(8)


def test_clocks_do_not_go_back(one: Client) -> None:
    queue, page = one.queue(), one.alloc(0x1000)
    stamp = one.hardware.caches.release.replace(data_sel=pm4.DataSelect.GPU_CLOCK)
    queue.submit(
        stamp.replace(address=page.va + 8),
        stamp.replace(address=page.va + 16),
        signal(one, page.va, 1),
    )
    until(one, page.va, 1)
    first, second = struct.unpack("<2Q", page.read(16, 8))
    assert 0 < first <= second


def test_a_release_without_an_end_of_pipe_buffer_faults_at_address_0(one: Client) -> None:
    request = one.queue_request()
    queue = HostQueue(one, one.create(request.replace(eop_buffer_address=0, eop_buffer_size=0)))
    queue.submit(signal(one, one.alloc(0x1000).va, 1))
    for _ in range(5):
        one.port.pause()
    log = one.port.machine.log  # type: ignore[attr-defined]
    assert any("address 0x0000000000000000" in line for line in log)


REFUSED = [
    (pm4.PredExec(exec_count=4, xcc_mask=1), Misuse, "PRED_EXEC in a ring"),
    (pm4.WriteData(dst_sel=pm4.CopyTarget.REGISTER, address=0x10, data=(1,)), NotModelled, "regis"),
    (write(0x1000000002, 1), Misuse, "not 4-byte aligned"),
    (pm4.SetShReg(register=0xB858, values=(1,)), NotModelled, "0xb858"),
    (pm4.SetUconfigReg(register=0x30100, values=(1,)), NotModelled, "0x30100"),
    (pm4.IndirectBuffer(address=0x1000, size_dwords=4, chain=True), Misuse, "chained"),
    (pm4.IndirectBuffer(address=0x1000, size_dwords=0), Misuse, "valid"),
]


@pytest.mark.parametrize(("packet", "error", "text"), REFUSED)
def test_what_hardware_would_punish_raises_by_name(
    one: Client, packet: pm4.Pm4, error: type[Exception], text: str
) -> None:
    queue = one.queue()
    with pytest.raises(error, match=text):
        _submit_and_pause(one, queue, packet)


def _ring_and_pause(client: Client, queue: HostQueue) -> None:
    queue.ring()
    for _ in range(10):
        client.port.pause()


def _submit_and_pause(client: Client, queue: HostQueue, packet: pm4.Pm4) -> None:
    queue.submit(packet)
    for _ in range(10):
        client.port.pause()


def test_an_unheard_of_opcode_raises(one: Client) -> None:
    queue = one.queue()
    queue.put(struct.pack("<2I", 3 << 30 | 0xEE << 8, 0))
    queue.store_pointer()
    with pytest.raises(DecodeError, match="opcode 0xee"):
        _ring_and_pause(one, queue)


def test_a_doorbell_rung_before_the_pointer_is_stored_raises(one: Client) -> None:
    queue = one.queue()
    queue.put(pm4.Nop().pack())
    with pytest.raises(Misuse, match="write pointer in memory is 0"):
        _ring_and_pause(one, queue)


def test_a_pointer_past_the_ring_raises(one: Client) -> None:
    queue = one.queue(ring_bytes=0x1000)
    queue.written = 0x2000
    queue.store_pointer()
    with pytest.raises(Misuse, match="past the read pointer"):
        _ring_and_pause(one, queue)


def test_packets_without_a_doorbell_do_not_run(one: Client) -> None:
    queue, page = one.queue(), one.alloc(0x1000)
    page.write(bytes(8))
    queue.put(write(page.va, 1).pack())
    queue.store_pointer()
    for _ in range(50):
        one.port.pause()
    assert page.read(4) == bytes(4)
    queue.ring()
    until(one, page.va, 1)


def test_a_stopped_queue_rests_until_it_is_updated(one: Client) -> None:
    queue, page = one.queue(), one.alloc(0x1000)
    page.write(bytes(8))
    made = queue.made
    fields = {
        "ring_base_address": made.ring_base_address,
        "queue_id": made.queue_id,
        "ring_size": made.ring_size,
        "queue_priority": 7,
    }
    one.port.ioctl(one.fd, kfd.UpdateQueue(queue_percentage=0, **fields))
    queue.submit(write(page.va, 1))
    for _ in range(20):
        one.port.pause()
    assert page.read(4) == bytes(4)
    one.port.ioctl(one.fd, kfd.UpdateQueue(queue_percentage=100, **fields))
    until(one, page.va, 1)


def test_equal_seeds_give_equal_runs() -> None:
    def run(seed: int) -> tuple[int, int]:
        with Room("gfx1100", seed=seed) as room:
            client = client_of(room)
            queues, page = [client.queue() for _ in range(3)], client.alloc(0x1000, FINE)
            for number, queue in enumerate(queues):
                queue.submit(*(write(page.va + 4 * number, n) for n in range(30)))
            for queue in queues:
                queue.drain()
            machine = room.machines["amd"]
            return machine.steps, room.clock.now_ns()  # type: ignore[attr-defined]

    assert run(3) == run(3)


def test_memory_that_may_not_be_written_faults(one: Client) -> None:
    queue, page = one.queue(), one.alloc(0x1000, AllocFlags.GTT)
    queue.submit(write(page.va, 1))
    for _ in range(5):
        one.port.pause()
    log = "\n".join(one.port.machine.log)  # type: ignore[attr-defined]
    assert "PERMISSION_FAULTS: 0x4" in log
