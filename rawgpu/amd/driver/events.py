"""KFD events: how a process sleeps until a GPU signals, faults or is reset.

One page of slots for all GPUs of the process; one memory event and one hardware-exception event,
which say of which GPU they speak; and a signal event per device. Waiting is always for all three
kinds, and always bounded. WaitEvents returning is only a hint: who waits looks at memory again.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from rawgpu.amd.driver.fault import report_exception, report_memory
from rawgpu.amd.driver.region import HOST, Region, allocate, map_on
from rawgpu.errors import KernelCallFailed
from rawgpu.ioctl import kfd
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.connection import Connection, Gpu


class Events:
    """The events of a connection. The page lives as long as the process: KFD never frees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._page: Region | None = None
        self._tried = False
        self._memory = self._exception = 0

    def reach(self, gpu: Gpu) -> None:
        """Make the page visible to a GPU; the first one brings it into being.

        Goes on where an earlier call was refused.
        """
        if self._page is None:
            self._page = allocate(self._connection, gpu, kfd.EVENT_PAGE_BYTES, HOST)
        map_on(self._page, [gpu.node.gpu_id])
        if not self._memory:
            self._memory = self._first(self._page.handle).event_id
        if not self._exception:
            self._exception = self._create(kfd.EventType.HW_EXCEPTION).event_id

    def _first(self, page: int) -> kfd.CreateEvent:
        """The memory event, with which the kernel gets the page."""
        tried, self._tried = self._tried, True
        try:
            return self._create(kfd.EventType.MEMORY, page)
        except KernelCallFailed as error:
            # The kernel takes the page first: a try that failed later may have got so far.
            if not tried or error.errno != errno.EINVAL:
                raise
            return self._create(kfd.EventType.MEMORY)

    def _create(self, kind: kfd.EventType, page: int = 0) -> kfd.CreateEvent:
        new = self._connection.new
        request = new(kfd.CreateEvent, event_page_offset=page, event_type=kind, auto_reset=1)
        return self._connection.ioctl(request)

    def create_signal(self) -> Event:
        """A signal event, for a GPU to set."""
        made = self._create(kfd.EventType.SIGNAL)
        assert self._page is not None
        slot = self._page.address + 8 * made.event_slot_index
        return Event(made.event_id, made.event_trigger_data, slot)

    def destroy(self, event: Event) -> None:
        """Remove a signal event."""
        request = self._connection.new(kfd.DestroyEvent, event_id=event.id)
        self._connection.ioctl(request)

    def look(self) -> None:
        """Take note of what the kernel said while no device listened."""
        if self._exception:
            self.wait((), 0)

    def wait(self, signals: tuple[Event, ...], timeout_ms: int) -> bool:
        """Sleep until one of the events, a fault or a reset comes, or the time is over.

        True if something came. What the kernel says of a GPU is kept in `Gpu.fault`.
        """
        ids = [self._memory, self._exception, *(event.id for event in signals)]
        data_of, size = self._connection.abi[kfd.EventData], kfd.EventData.about.size
        array = ffi.new("char[]", b"".join(data_of(event_id=i).encode() for i in ids))
        request = self._connection.new(
            kfd.WaitEvents,
            events_ptr=int(ffi.cast("uintptr_t", array)),
            num_events=len(ids),
            timeout=timeout_ms,
        )
        if self._connection.ioctl(request).wait_result != kfd.WaitResult.COMPLETE:
            return False
        raw = ffi.buffer(array)
        memory = data_of.decode(raw[:size]).payload.memory_exception_data
        exception = data_of.decode(raw[size : 2 * size]).payload.hw_exception_data
        if memory.gpu_id:
            report_memory(self._connection, memory)
        if exception.gpu_id:
            report_exception(self._connection, exception)
        return True


class Event:
    """A signal event: its number, what its interrupt carries, and the slot the GPU writes."""

    def __init__(self, number: int, context: int, slot: int) -> None:
        self.id = number
        self.context = context
        self.slot = slot
