"""KFD's event requests. Waiting is where a stepped machine runs until something comes.

Source: linux 6.12.107 amdkfd/kfd_events.c.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rawgpu.amd.virtual.dispatch import Misuse
from rawgpu.amd.virtual.events import Waiter, payload
from rawgpu.amd.virtual.kfd_memory import bound, copy_in, copy_out, find_buffer, known
from rawgpu.amd.virtual.process import KernelError
from rawgpu.describe.request import Request
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags, EventType, KfdFeature, WaitResult

if TYPE_CHECKING:
    from rawgpu.amd.virtual.kernel import Kernel

WAIT_STEPS = 64
FAR_NS = 1 << 62
ENTRY_BYTES = kfd.EventData.about.size


def create_event(kernel: Kernel, request: kfd.CreateEvent) -> Request:
    events = kernel.process.events
    offset = request.event_page_offset
    if offset:
        _use_page(kernel, offset)
    signal = request.event_type in (EventType.SIGNAL, EventType.DEBUG_EVENT)
    if signal and not events.page:
        _own_page(kernel)
    event = events.create(EventType(request.event_type), bool(request.auto_reset))
    if event is None:
        raise KernelError(errno.ENOSPC, "Signal event wasn't created because limit was reached")
    reply = request.replace(event_id=event.id, event_trigger_data=event.id)
    if signal:
        where = offset or kfd.mmap_offset(kfd.MmapType.EVENTS)
        reply = reply.replace(event_slot_index=event.id, event_page_offset=where)
    return reply


def _use_page(kernel: Kernel, handle: int) -> None:
    events = kernel.process.events
    if events.page:
        raise KernelError(errno.EINVAL, "Event page is already set")
    bound(known(kernel, handle >> 32))
    buffer = find_buffer(kernel, handle, errno.EINVAL)
    if not buffer.flags & AllocFlags.GTT or buffer.extent is None:
        raise KernelError(errno.EINVAL, "the event page must be in GTT")
    if buffer.size_bytes < kfd.EVENT_PAGE_BYTES:
        raise KernelError(errno.EINVAL, f"the event page needs {kfd.EVENT_PAGE_BYTES:#x} bytes")
    events.use_page(buffer.extent.host, handle)


def _own_page(kernel: Kernel) -> None:
    extent = kernel.machine.own_event_page(kernel.process)
    kernel.process.events.use_page(extent.host, 0)
    kernel.process.events.slots = 256


def destroy_event(kernel: Kernel, request: kfd.DestroyEvent) -> Request:
    refusal = kernel.process.events.destroy(request.event_id)
    if refusal:
        raise KernelError(refusal, f"no event {request.event_id}")
    return request


def set_event(kernel: Kernel, request: kfd.SetEvent) -> Request:
    event = kernel.process.events.settable(request.event_id)
    if event is None:
        raise KernelError(errno.EINVAL, f"{request.event_id} is no signal event")
    event.set()
    return request


def reset_event(kernel: Kernel, request: kfd.ResetEvent) -> Request:
    event = kernel.process.events.settable(request.event_id)
    if event is None:
        raise KernelError(errno.EINVAL, f"{request.event_id} is no signal event")
    event.signaled = False
    return request


def wait_events(kernel: Kernel, request: kfd.WaitEvents) -> Request:
    events = kernel.process.events
    if not request.num_events:
        return request.replace(wait_result=WaitResult.COMPLETE)
    raw = copy_in(request.events_ptr, ENTRY_BYTES * request.num_events)
    entries = [
        kfd.EventData.decode(raw[at : at + ENTRY_BYTES]) for at in range(0, len(raw), ENTRY_BYTES)
    ]
    with_age = KfdFeature.EVENT_AGE in kernel.machine.kernel.abi.features
    ages = [e.payload.signal_event_data.last_event_age if with_age else 0 for e in entries]
    ids = [entry.event_id for entry in entries]
    waiters = events.prepare(list(zip(ids, ages, strict=True)))
    if waiters is None:
        raise KernelError(errno.EINVAL, "one of the events does not exist")
    try:
        done = _wait(kernel, waiters, request)
    finally:
        events.drop(waiters)
    if not done:
        return request.replace(wait_result=WaitResult.TIMEOUT, timeout=0)
    for number, (waiter, entry) in enumerate(zip(waiters, entries, strict=True)):
        told = payload(waiter.event, with_age) if waiter.activated else None
        if told is not None:
            address = request.events_ptr + ENTRY_BYTES * number
            copy_out(address, entry.replace(payload=told).encode())
    return request.replace(wait_result=WaitResult.COMPLETE)


def _wait(kernel: Kernel, waiters: list[Waiter], request: kfd.WaitEvents) -> bool:
    """Run the machine until the events came; False when the time is over."""
    machine = kernel.machine
    enough = all if request.wait_for_all else any
    end = machine.clock.now_ns() + request.timeout * 1_000_000
    end += FAR_NS if request.timeout == kfd.WAIT_FOREVER else 0
    while True:
        if any(waiter.destroyed for waiter in waiters):
            raise KernelError(errno.EIO, "an event was destroyed")
        if enough(waiter.activated for waiter in waiters):
            return True
        left = end - machine.clock.now_ns()
        if not request.timeout or (left <= 0 and request.timeout != kfd.WAIT_FOREVER):
            return False
        if machine.wait(WAIT_STEPS, left):
            continue
        if request.timeout == kfd.WAIT_FOREVER:
            raise Misuse("WAIT_EVENTS without a time limit, and nothing will ever happen")
        machine.clock.advance(left)


HANDLERS: dict[Any, Callable[[Any, Any], Request]] = {
    kfd.CreateEvent: create_event,
    kfd.DestroyEvent: destroy_event,
    kfd.SetEvent: set_event,
    kfd.ResetEvent: reset_event,
    kfd.WaitEvents: wait_events,
}
