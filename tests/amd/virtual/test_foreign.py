"""Programs of numbers, and rooms whose GPUs run in a thread."""

from __future__ import annotations

import errno
import struct
import threading
import time

import pytest

from rawgpu.amd.spec import pm4
from rawgpu.amd.virtual.dispatch import Misuse
from rawgpu.amd.virtual.foreign import ForeignPort
from rawgpu.amd.virtual.port import Port
from rawgpu.amd.virtual.queues import ring_doorbell
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import EventType, WaitResult
from rawgpu.ioctl.port import KernelPort
from rawgpu.virtual.memory import peek
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import FINE, client_of, keep, signal, write


def test_requests_as_numbers_and_bytes() -> None:
    with Room("gfx1100", kernel="6.12") as room:
        port = room.port("amd")
        assert isinstance(port, Port)
        foreign = ForeignPort(port)
        fd, render = foreign.open("/dev/kfd"), foreign.open("/dev/dri/renderD128")
        assert foreign.open("/dev/nothing") == -errno.ENOENT
        _kept, address = keep(bytes(64))
        assert foreign.ioctl(fd, 0x80084B01, address) == 0
        assert peek(address, 8) == struct.pack("<2I", 1, 17)
        gpu = int(port.read("/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id"))
        for value, expected in ((render, 0), (77, -errno.EINVAL)):
            _more, place = keep(struct.pack("<2I", value, gpu))
            assert foreign.ioctl(fd, kfd.AcquireVm.about.number, place) == expected
        assert foreign.ioctl(fd, 0xC0004B7F, address) == -errno.ENOTTY
        assert foreign.ioctl(fd, 0x80084B01, 0x10) == -errno.EFAULT
        assert foreign.ioctl(99, 0x80084B01, address) == -errno.EINVAL
        mapped = foreign.mmap(0, 0x4000, 3, -1, 0)
        assert mapped > 0
        assert foreign.mmap(0, 0x1000, 3, fd, 1 << 63 | 1 << 62) == -errno.ENODEV
        assert foreign.munmap(mapped, 0x4000) == 0
        assert foreign.close(fd) == 0
        assert foreign.close(fd) == -errno.EBADF


def wait_for(address: int, value: int) -> None:
    """Wait with nothing but loads, as a program does that knows no room."""
    end = time.monotonic() + 20
    while peek(address, 4) != struct.pack("<I", value):
        assert time.monotonic() < end
        time.sleep(0)


def test_plain_stores_to_a_doorbell_are_seen_in_a_threaded_room() -> None:
    with Room("gfx1100", threaded=True) as room:
        client = client_of(room)
        queue, page = client.queue(), client.alloc(0x1000)
        for turn in range(1, 20):
            queue.put(b"".join(p.pack() for p in (pm4.Nop(), signal(client, page.va, turn))))
            queue.store_pointer()
            ring_doorbell(queue.doorbell, queue.pointer)
            wait_for(page.va, turn)
    assert not [t for t in threading.enumerate() if "virtual AMD" in t.name]


def test_events_wake_and_time_out_in_a_threaded_room() -> None:
    with Room("gfx1100", threaded=True) as room:
        client = client_of(room)
        events = client.alloc(0x8000, FINE)
        made = client.event(EventType.SIGNAL, events.handle)
        queue = client.queue()
        packet = signal(client, events.va + 8 * made.event_slot_index, 1, made.event_id)
        queue.submit(packet)
        assert client.wait(made.event_id, timeout=20_000)[0] is WaitResult.COMPLETE
        begin = time.monotonic()
        assert client.wait(made.event_id, timeout=60)[0] is WaitResult.TIMEOUT
        assert 0.05 < time.monotonic() - begin < 10


def test_what_ends_the_thread_is_told_at_the_next_call() -> None:
    with Room("gfx1100", threaded=True) as room:
        client = client_of(room)
        queue = client.queue()
        queue.submit(write(client.alloc(0x1000).va + 2, 1))
        with pytest.raises(Misuse, match="not 4-byte aligned"):
            _pause(room.port("amd"))


def _pause(port: KernelPort) -> None:
    for _ in range(100_000):
        port.pause()
