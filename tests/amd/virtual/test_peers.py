"""Several GPUs: memory of one seen by another, where there is a link and the right."""

from __future__ import annotations

import errno
import struct

import pytest

from rawgpu.ioctl.kfd import AllocFlags, EventType, QueueType, WaitResult
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import (
    VRAM,
    Client,
    client_of,
    copy32,
    refusal,
    sdma_packets,
    signal,
    until,
    write,
)


def pair(room: Room) -> tuple[Client, Client]:
    return client_of(room), client_of(room, 1)


def test_a_gpu_writes_to_anothers_memory() -> None:
    with Room("gfx1100,gfx1201") as room:
        first, second = pair(room)
        local = first.alloc(0x1000, VRAM)
        assert first.map(local, first.gpu_id, second.gpu_id).n_success == 2
        page = second.alloc(0x1000)
        queue = second.queue()
        queue.submit(write(local.va, 77), signal(second, page.va, 1))
        until(second, page.va, 1)
        assert struct.unpack("<I", local.read(4))[0] == 77
        copies = first.queue(QueueType.SDMA)
        target = first.alloc(0x1000)
        kinds = sdma_packets(first)
        copies.submit(
            kinds["CopyLinear"](source=local.va, target=target.va, size_bytes=4),
            kinds["Fence"](address=target.va + 64, data=1),
        )
        until(first, target.va + 64, 1)
        assert target.read(4) == struct.pack("<I", 77)


@pytest.mark.parametrize("why", ["links", "public", "bar"])
def test_without_link_right_or_bar_peers_are_refused(why: str) -> None:
    options = {"links": {"links": False}, "bar": {"large_bar": False}}.get(why, {})
    flags = VRAM if why == "links" else AllocFlags.VRAM | AllocFlags.WRITABLE
    with Room("gfx1100*2", **options) as room:
        first, second = pair(room)
        local = first.alloc(0x1000, flags, map_cpu=False)
        assert refusal(lambda: first.map(local, second.gpu_id)) == errno.EINVAL
        system = first.alloc(0x1000, AllocFlags.GTT | AllocFlags.WRITABLE)
        assert first.map(system, second.gpu_id).n_success == 1


def test_system_memory_is_seen_by_gpus_that_mapped_it_only() -> None:
    with Room("gfx1100*2") as room:
        first, second = pair(room)
        page, own = first.alloc(0x1000), second.alloc(0x1000)
        event = second.event(EventType.MEMORY)
        queue = second.queue()
        queue.submit(copy32(own.va, page.va))
        _, entries = second.wait(event.event_id)
        data = entries[0].payload.memory_exception_data
        assert (data.va, data.gpu_id) == (page.va, second.gpu_id)


def test_the_event_page_must_be_mapped_on_every_gpu_that_signals() -> None:
    with Room("gfx1100*2") as room:
        first, second = pair(room)
        page = first.alloc(0x8000)
        made = first.event(EventType.SIGNAL, page.handle)
        fault = first.event(EventType.MEMORY)
        queue = second.queue()
        packet = signal(second, page.va + 8 * made.event_slot_index, 1, made.event_id)
        queue.submit(packet)
        result, entries = first.wait(made.event_id, fault.event_id)
        assert result is WaitResult.COMPLETE
        assert entries[1].payload.memory_exception_data.gpu_id == second.gpu_id
    with Room("gfx1100*2") as room:
        first, second = pair(room)
        page = first.alloc(0x8000)
        first.map(page, second.gpu_id)
        made = first.event(EventType.SIGNAL, page.handle)
        slot = page.va + 8 * made.event_slot_index
        second.queue().submit(signal(second, slot, 1, made.event_id))
        assert first.wait(made.event_id)[0] is WaitResult.COMPLETE
