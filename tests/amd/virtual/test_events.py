"""KFD events: signals, waiting, faults, and what lost interrupts do."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import pytest

from rawgpu.amd.spec import pm4
from rawgpu.amd.virtual.dispatch import Misuse
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import EventType, MmapType, WaitResult
from rawgpu.virtual.memory import peek
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import VRAM, Client, HostQueue, client_of, refusal

IDLE = b"\xff" * 8


@pytest.fixture
def room() -> Iterator[Room]:
    with Room("gfx1100", seed=5) as entered:
        yield entered


@pytest.fixture
def client(room: Room) -> Client:
    return client_of(room)


class Signal:
    """A signal event and what wakes it."""

    def __init__(self, client: Client, page: int = 0) -> None:
        self.client = client
        self.page = client.alloc(0x8000) if not page else None
        made = client.event(EventType.SIGNAL, self.page.handle if self.page else 0)
        self.id, self.slot = made.event_id, made.event_slot_index

    def packet(self, *, write: bool = True, interrupt: bool = True) -> pm4.ReleaseMem:
        assert self.page is not None
        select = pm4.InterruptSelect
        return self.client.hardware.caches.release.replace(
            address=self.page.va + 8 * self.slot,
            data=self.id,
            data_sel=pm4.DataSelect.DATA_64 if write else pm4.DataSelect.NONE,
            int_sel=select.AFTER_WRITE_CONFIRM if interrupt else select.NONE,
            int_ctxid=self.id if self.client.hardware.interrupt_context_is_event else 0,
        )


def test_a_release_wakes_who_waits_and_clears_the_slot(client: Client) -> None:
    signal, queue = Signal(client), client.queue()
    queue.submit(signal.packet())
    assert client.wait(signal.id)[0] is WaitResult.COMPLETE
    assert signal.page is not None
    assert signal.page.read(8, 8 * signal.slot) == IDLE
    assert client.wait(signal.id, timeout=5)[0] is WaitResult.TIMEOUT


@pytest.mark.parametrize(("write", "interrupt"), [(False, True), (True, False)])
def test_neither_slot_nor_interrupt_alone_wakes(
    client: Client, write: bool, interrupt: bool
) -> None:
    signal, queue = Signal(client), client.queue()
    queue.submit(signal.packet(write=write, interrupt=interrupt))
    assert client.wait(signal.id, timeout=100)[0] is WaitResult.TIMEOUT


def test_an_event_that_came_before_the_wait_is_not_lost(client: Client) -> None:
    signal, queue = Signal(client), client.queue()
    queue.submit(signal.packet())
    queue.drain()
    for _ in range(20):
        client.port.pause()
    assert client.wait(signal.id, timeout=0)[0] is WaitResult.COMPLETE
    assert client.wait(signal.id, timeout=0)[0] is WaitResult.TIMEOUT


def test_waiting_takes_the_time_it_was_given(room: Room, client: Client) -> None:
    signal = Signal(client)
    begin = room.clock.now_ns()
    assert client.wait(signal.id, timeout=250)[0] is WaitResult.TIMEOUT
    assert 250_000_000 <= room.clock.now_ns() - begin < 300_000_000


def test_a_wait_without_limit_for_nothing_is_reported(client: Client) -> None:
    signal = Signal(client)
    with pytest.raises(Misuse, match="nothing will ever happen"):
        client.wait(signal.id, timeout=kfd.WAIT_FOREVER)


def test_one_or_all(client: Client) -> None:
    first = Signal(client)
    second = client.event(EventType.SIGNAL)
    client.port.ioctl(client.fd, kfd.SetEvent(event_id=first.id))
    assert client.wait(first.id, second.event_id)[0] is WaitResult.COMPLETE
    client.port.ioctl(client.fd, kfd.SetEvent(event_id=first.id))
    both = (first.id, second.event_id)
    assert client.wait(*both, every=True, timeout=10)[0] is WaitResult.TIMEOUT


def test_an_event_without_auto_reset_stays_set(client: Client) -> None:
    Signal(client)
    made = client.event(EventType.SIGNAL, auto_reset=0)
    client.port.ioctl(client.fd, kfd.SetEvent(event_id=made.event_id))
    for _ in range(3):
        assert client.wait(made.event_id, timeout=0)[0] is WaitResult.COMPLETE
    client.port.ioctl(client.fd, kfd.ResetEvent(event_id=made.event_id))
    assert client.wait(made.event_id, timeout=0)[0] is WaitResult.TIMEOUT


def test_rules_of_events(client: Client) -> None:
    port, fd = client.port, client.fd
    small = client.alloc(0x4000)
    assert refusal(lambda: client.event(EventType.SIGNAL, small.handle)) == errno.EINVAL
    local = client.alloc(0x8000, VRAM)
    assert refusal(lambda: client.event(EventType.SIGNAL, local.handle)) == errno.EINVAL
    signal = Signal(client)
    assert signal.page is not None
    assert refusal(lambda: client.event(EventType.SIGNAL, signal.page.handle)) == errno.EINVAL
    memory = client.event(EventType.MEMORY)
    assert memory.event_id >= kfd.FIRST_NONSIGNAL_EVENT
    for request in (kfd.SetEvent, kfd.ResetEvent):
        call = lambda r=request: port.ioctl(fd, r(event_id=memory.event_id))  # noqa: E731
        assert refusal(call) == errno.EINVAL
    assert refusal(lambda: client.wait(signal.id, 77)) == errno.EINVAL
    port.ioctl(fd, kfd.DestroyEvent(event_id=memory.event_id))
    gone = kfd.DestroyEvent(event_id=memory.event_id)
    assert refusal(lambda: port.ioctl(fd, gone)) == errno.EINVAL


def test_slots_run_out(client: Client) -> None:
    Signal(client)
    for _ in range(kfd.EVENT_SLOTS - 2):
        client.event(EventType.SIGNAL)
    assert refusal(lambda: client.event(EventType.SIGNAL)) == errno.ENOSPC


def test_the_kernels_own_page_is_mapped(client: Client) -> None:
    made = client.event(EventType.SIGNAL)
    assert made.event_page_offset == kfd.mmap_offset(MmapType.EVENTS)
    for _ in range(254):
        client.event(EventType.SIGNAL)
    assert refusal(lambda: client.event(EventType.SIGNAL)) == errno.ENOSPC
    page = client.port.mmap(kfd.EVENT_PAGE_BYTES, fd=client.fd, offset=made.event_page_offset)
    assert peek(page + 8, 8) == IDLE
    client.event(EventType.SIGNAL)


def test_ages_count_from_1_14_on() -> None:
    for kernel, expected in (("6.1", 0), ("6.6", 2)):
        with Room("gfx1100", kernel=kernel) as room:
            client = client_of(room)
            signal = Signal(client)
            client.port.ioctl(client.fd, kfd.SetEvent(event_id=signal.id))
            _, entries = client.wait(signal.id)
            assert entries[0].payload.signal_event_data.last_event_age == expected


def test_a_lost_interrupt_costs_the_time_limit_and_memory_has_the_value(
    room: Room, client: Client
) -> None:
    signal, queue, page = Signal(client), client.queue(), client.alloc(0x1000)
    room.faults.lose_interrupt()
    queue.submit(
        client.hardware.caches.release.replace(
            address=page.va, data=9, data_sel=pm4.DataSelect.DATA_32
        ),
        signal.packet(),
    )
    assert client.wait(signal.id, timeout=50)[0] is WaitResult.TIMEOUT
    assert struct.unpack("<I", page.read(4))[0] == 9
    assert not list(room.faults.pending())


def test_a_late_interrupt_comes(room: Room, client: Client) -> None:
    signal, queue = Signal(client), client.queue()
    room.faults.delay_interrupt(steps=500)
    queue.submit(signal.packet())
    assert client.wait(signal.id, timeout=1000)[0] is WaitResult.COMPLETE


@pytest.mark.parametrize("name", ["gfx90a", "gfx942"])
def test_gfx9_drops_interrupts_without_a_context(name: str) -> None:
    with Room(name) as room:
        client = client_of(room)
        signal = Signal(client)
        queue: HostQueue = client.queue()
        queue.submit(signal.packet())
        assert client.wait(signal.id, timeout=50)[0] is WaitResult.TIMEOUT
        queue.submit(signal.packet().replace(int_ctxid=signal.id))
        assert client.wait(signal.id, timeout=50)[0] is WaitResult.COMPLETE
