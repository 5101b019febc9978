"""What befalls GPUs: page faults, hangs, resets, errors, and calls that are made to fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rawgpu.amd.spec import pm4
from rawgpu.amd.virtual.machine import Machine
from rawgpu.errors import KernelCallFailed
from rawgpu.ioctl import amdgpu_info as info
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags, EventType, MemoryErrorType, ResetCause, WaitResult
from rawgpu.virtual.memory import peek
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import (
    VRAM,
    Client,
    client_of,
    copy32,
    keep,
    refusal,
    signal,
    until,
    wait_equal,
    write,
)


@pytest.fixture
def room() -> Iterator[Room]:
    with Room("gfx1100*2", seed=9) as entered:
        yield entered


@pytest.fixture
def client(room: Room) -> Client:
    return client_of(room)


def machine_of(room: Room) -> Machine:
    machine = room.machines["amd"]
    assert isinstance(machine, Machine)
    return machine


def run(client: Client, turns: int = 10) -> None:
    for _ in range(turns):
        client.port.pause()


HOLE = 0x7000001234 & ~3


@pytest.mark.parametrize(
    ("packet", "read_only"),
    [
        (write(HOLE, 1), 1),
        (copy32(HOLE + 0x1000000, HOLE), 0),
    ],
    ids=["write", "read"],
)
def test_a_page_fault_stops_the_process_and_tells_it(
    room: Room, client: Client, packet: pm4.Pm4, read_only: int
) -> None:
    memory = client.event(EventType.MEMORY)
    queue, other, page = client.queue(), client.queue(), client.alloc(0x1000)
    page.write(bytes(4))
    queue.submit(packet)
    result, entries = client.wait(memory.event_id)
    assert result is WaitResult.COMPLETE
    data = entries[0].payload.memory_exception_data
    assert (data.va, data.gpu_id) == (HOLE & -4096, client.gpu_id)
    assert (data.failure.NotPresent, data.failure.ReadOnly) == (1, read_only)
    assert data.failure.NoExecute == 0
    log = "\n".join(machine_of(room).log)
    assert f"in page starting at address 0x{HOLE & -4096:016x} from client 10" in log
    assert "Faulty UTCL2 client ID: CPF (0x4)" in log
    _kept, address = keep(bytes(16))
    ask = info.Info(return_pointer=address, return_size=16, query=info.InfoQuery.GPUVM_FAULT)
    client.port.ioctl(client.render, ask)
    told = info.InfoGpuvmFault.decode(peek(address, 16))
    assert told.addr == HOLE & -4096
    assert told.status >> 18 & 1 == read_only
    assert f"0x{told.status:08X}" in log
    other.submit(write(page.va, 1))
    run(client)
    assert page.read(4) == bytes(4), "every queue of the process is off the hardware"


def test_after_a_page_fault_new_queues_of_the_process_never_run(client: Client) -> None:
    queue, page = client.queue(), client.alloc(0x1000)
    page.write(bytes(4))
    queue.submit(write(HOLE, 1))
    run(client)
    again = client.queue()
    again.submit(write(page.va, 1))
    run(client, 50)
    assert page.read(4) == bytes(4)


def test_another_process_and_another_gpu_go_on(room: Room, client: Client) -> None:
    from rawgpu.amd.virtual.port import Port

    stranger = Client(Port(machine_of(room))).acquire()
    stranger.next_va += 1 << 33  # one host process plays both: CPU addresses must differ
    second = client_of(room, 1)
    client.queue().submit(write(HOLE, 1))
    run(client)
    for number, other in enumerate((stranger, second)):
        queue, page = other.queue(), other.alloc(0x1000, va=(1 << 37) + (number << 30))
        queue.submit(signal(other, page.va, 5))
        until(other, page.va, 5)


def test_a_further_context_starts_afresh_where_the_kernel_has_them() -> None:
    with Room("gfx1100", kernel="1.22") as room:
        client = client_of(room)
        for turn in range(20):
            client.queue().submit(write(HOLE, 1))
            run(client)
            fd = client.port.open("/dev/kfd")
            client.port.ioctl(fd, kfd.CreateProcess())
            old, again = client, kfd.CreateProcess()
            assert refusal(lambda o=old, f=fd, r=again: o.port.ioctl(f, r)) == errno.EINVAL
            client = Client(client.port, fd=fd)
            client.next_va = old.next_va
            client.acquire()
            queue, page = client.queue(), client.alloc(0x1000)
            queue.submit(signal(client, page.va, turn + 1))
            until(client, page.va, turn + 1)
            if turn:
                client.port.close(old.fd)
        assert len(machine_of(room).processes) == 2


def test_a_hang_is_seen_when_the_queue_is_destroyed_and_costs_the_gpu(room: Room) -> None:
    first, second = client_of(room), client_of(room, 1)
    hardware = first.event(EventType.HW_EXCEPTION)
    local = first.alloc(0x1000, VRAM)
    queue, page = first.queue(), first.alloc(0x1000)
    page.write(bytes(8))
    room.faults.hang(gpu=0, packet=2)
    queue.submit(write(page.va, 1), write(page.va + 4, 2))
    run(first, 100)
    assert page.read(8) == bytes.fromhex("0100000000000000")
    assert first.wait(hardware.event_id, timeout=0)[0] is WaitResult.TIMEOUT
    before, begin = local.read(16), room.clock.now_ns()
    queue.destroy()
    assert room.clock.now_ns() - begin >= 4 * 10**9
    _, entries = first.wait(hardware.event_id, timeout=0)
    data = entries[0].payload.hw_exception_data
    assert (data.memory_lost, data.reset_cause) == (1, ResetCause.GPU_HANG)
    assert data.gpu_id == first.gpu_id
    assert local.read(16) != before
    assert "MES failed to respond to msg=REMOVE_QUEUE" in "\n".join(machine_of(room).log)
    # The process goes on with new queues; the other GPU was never touched.
    again = first.queue()
    again.submit(signal(first, page.va, 9))
    until(first, page.va, 9)
    other = second.queue()
    other.submit(signal(second, second.alloc(0x1000).va, 1))
    other.drain()


def test_a_queue_that_only_waits_can_be_destroyed(room: Room, client: Client) -> None:
    queue, page = client.queue(), client.alloc(0x1000)
    queue.submit(wait_equal(page.va, 12345))
    run(client)
    queue.destroy()
    assert not machine_of(room).log


@pytest.mark.parametrize("way", ["reset", "ecc"])
def test_a_reset_in_the_middle_of_a_queue(room: Room, client: Client, way: str) -> None:
    hardware, memory = client.event(EventType.HW_EXCEPTION), client.event(EventType.MEMORY)
    queue, page = client.queue(), client.alloc(0x1000)
    page.write(bytes(8))
    if way == "reset":
        room.faults.reset(gpu=0, packet=2)
    else:
        room.faults.ecc(gpu=0, packet=2)
    queue.submit(write(page.va, 1), write(page.va + 4, 2))
    _, entries = client.wait(hardware.event_id)
    told = entries[0].payload.hw_exception_data
    cause = ResetCause.ECC if way == "ecc" else ResetCause.GPU_HANG
    assert (told.reset_cause, told.memory_lost) == (cause, 1)
    assert page.read(8) == bytes.fromhex("0100000000000000")
    result, entries = client.wait(memory.event_id, timeout=0)
    if way == "ecc":
        error = entries[0].payload.memory_exception_data.ErrorType
        assert error is MemoryErrorType.POISON_CONSUMED
    else:
        assert result is WaitResult.TIMEOUT
    _kept, address = keep(bytes(8))
    ask = info.Info(return_pointer=address, return_size=8, query=info.InfoQuery.VRAM_LOST_COUNTER)
    client.port.ioctl(client.render, ask)
    assert peek(address, 1) == b"\1"


def test_a_planted_refusal_strikes_the_nth_call_once(room: Room) -> None:
    client = client_of(room)
    room.faults.fail("AllocMemoryOfGpu", errno=errno.ENOMEM, nth=2)
    client.alloc(0x1000)
    assert refusal(lambda: client.alloc(0x1000)) == errno.ENOMEM
    client.alloc(0x1000)
    room.faults.fail("CreateQueue", errno=errno.EBUSY)
    assert refusal(client.queue) == errno.EBUSY
    room.faults.fail("open", errno=errno.EMFILE)
    with pytest.raises(KernelCallFailed):
        client.port.open("/dev/kfd")
    room.faults.fail("mmap", errno=errno.ENOMEM)
    assert refusal(lambda: client.port.mmap(4096)) == errno.ENOMEM


def test_an_interrupted_call_is_made_again(room: Room) -> None:
    client = client_of(room)
    room.faults.fail("AllocMemoryOfGpu", errno=errno.EINTR, times=3)
    client.alloc(0x1000)
    room.faults.fail("AllocMemoryOfGpu", errno=errno.EINTR, times=1_000_000)
    assert refusal(lambda: client.alloc(0x1000)) == errno.EINTR


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def our_mappings() -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if "rawgpu-" in line]


def test_a_room_leaves_nothing_behind() -> None:
    with Room("gfx1100") as room:
        client_of(room).queue()
    assert not our_mappings()
    before = open_descriptors()
    for seed in range(3):
        with Room("gfx1100*2,gfx942", seed=seed) as room:
            client = client_of(room)
            queue, page = client.queue(), client.alloc(0x1000)
            client.alloc(0x1000, VRAM)
            client.port.mmap(0x4000, protection=kfd_none())
            queue.submit(signal(client, page.va, 1))
            until(client, page.va, 1)
            client.queue().submit(write(HOLE, 1))
            run(client)
    assert open_descriptors() == before
    assert not our_mappings()


def kfd_none() -> object:
    from rawgpu.ioctl.port import Protection

    return Protection.NONE


def test_teardown_of_a_device_gives_everything_back(room: Room) -> None:
    client = client_of(room)
    machine = machine_of(room)
    used = machine.system.used_bytes, machine.gpus[0].vram.used_bytes
    for _ in range(5):
        regions = [client.alloc(0x3000), client.alloc(0x3000, VRAM)]
        shadowed = len(machine.gpus[0].bars)
        assert shadowed == 1
        for region in regions:
            client.free(region)
    assert (machine.system.used_bytes, machine.gpus[0].vram.used_bytes) == used
    assert not machine.gpus[0].bars


def test_a_card_costs_what_is_touched(room: Room) -> None:
    client = client_of(room)
    region = client.alloc(8 << 30, AllocFlags.VRAM | AllocFlags.WRITABLE, map_cpu=False)
    blocks = os.fstat(machine_of(room).gpus[0].vram.fd).st_blocks
    assert blocks * 512 <= 1 << 20
    client.free(region, mapped_cpu=False)
