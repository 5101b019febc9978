"""KFD events: slots that GPUs write, interrupts that wake waiters, reports of faults.

A signal event's number is its slot in the event page. The GPU writes the slot, then interrupts with
the number; the kernel looks whether the slot was written, clears it, and wakes who waits.

Source: linux 6.12.107 amdkfd/kfd_events.c.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rawgpu.ioctl import kfd
from rawgpu.virtual.memory import peek, poke

if TYPE_CHECKING:
    from rawgpu.amd.virtual.process import Process

LIMIT = kfd.EVENT_SLOTS
FIRST_MAPPED = 256
"""Slots handed out before the process mapped a page that the kernel allocated."""
IDLE = struct.pack("<Q", kfd.UNSIGNALED_SLOT)


@dataclass(eq=False)
class Event:
    """One event."""

    id: int
    type: kfd.EventType
    auto_reset: bool
    signaled: bool = False
    age: int = 1
    memory: kfd.MemoryExceptionData = field(default_factory=kfd.MemoryExceptionData)
    hardware: kfd.HwExceptionData = field(default_factory=kfd.HwExceptionData)
    waiters: list[Waiter] = field(default_factory=list)

    def set(self) -> None:
        """Wake who waits; stay set if nobody does, or if nothing resets it."""
        self.signaled = not self.auto_reset or not self.waiters
        self.age = self.age + 1 & 0xFFFF_FFFF_FFFF_FFFF or 2
        for waiter in self.waiters:
            waiter.activated = True


@dataclass(eq=False)
class Waiter:
    """One event of one call that waits."""

    event: Event
    activated: bool = False
    destroyed: bool = False


class Events:
    """The events of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._events: dict[int, Event] = {}
        self.page = 0
        """Where the kernel sees the slots; 0 before there is a page."""
        self.page_handle = 0
        self.slots = LIMIT
        self._next_other = kfd.FIRST_NONSIGNAL_EVENT
        self._lowest = 1
        """No slot below is free."""

    def use_page(self, host: int, handle: int) -> None:
        """Slots live in this memory from now on."""
        poke(host, IDLE * LIMIT)
        self.page, self.page_handle, self.slots = host, handle, LIMIT

    def create(self, kind: kfd.EventType, auto_reset: bool) -> Event | None:
        """A new event; None when there is no slot."""
        if kind in (kfd.EventType.SIGNAL, kfd.EventType.DEBUG_EVENT):
            number = self._free_slot()
            if not number:
                return None
        else:
            number = self._next_other
            self._next_other += 1
        event = Event(number, kind, auto_reset)
        self._events[number] = event
        return event

    def _free_slot(self) -> int:
        """The lowest free slot; 0 when there is none."""
        while self._lowest < self.slots and self._lowest in self._events:
            self._lowest += 1
        return self._lowest if self._lowest < self.slots else 0

    def find(self, number: int) -> Event | None:
        return self._events.get(number)

    def destroy(self, number: int) -> int:
        """Remove an event; an errno."""
        event = self._events.pop(number, None)
        if event is None:
            return errno.EINVAL
        self._lowest = min(self._lowest, number)
        for waiter in event.waiters:
            waiter.destroyed = True
        return 0

    def settable(self, number: int) -> Event | None:
        """The event, if programs may set and reset it."""
        event = self._events.get(number)
        return event if event is not None and event.type is kfd.EventType.SIGNAL else None

    def interrupt(self, context: int, bits: int = 32) -> None:
        """What the kernel does with an interrupt that carries `context`, `bits` of it valid."""
        if not self.page:
            return
        context &= (1 << bits) - 1
        event = self._events.get(context) if bits and 0 < context < LIMIT else None
        if event is not None and self._written(event.id):
            self._take(event)
            return
        for event in list(self._events.values()):
            if event.id < LIMIT and self._written(event.id):
                self._take(event)

    def _written(self, number: int) -> bool:
        return peek(self.page + 8 * number, 8) != IDLE

    def _take(self, event: Event) -> None:
        if event.type is kfd.EventType.SIGNAL:
            poke(self.page + 8 * event.id, IDLE)
            event.set()

    def report_memory(self, data: kfd.MemoryExceptionData) -> None:
        """Set every memory event."""
        for event in list(self._events.values()):
            if event.type is kfd.EventType.MEMORY:
                event.memory = data
                event.set()

    def report_hardware(self, data: kfd.HwExceptionData) -> bool:
        """Set every hardware-exception event; whether there was one."""
        found = False
        for event in list(self._events.values()):
            if event.type is kfd.EventType.HW_EXCEPTION:
                event.hardware = data
                event.set()
                found = True
        return found

    def prepare(self, wanted: list[tuple[int, int]]) -> list[Waiter] | None:
        """Waiters for events by number and last known age; None if one does not exist."""
        waiters: list[Waiter] = []
        for number, age in wanted:
            event = self._events.get(number)
            if event is None:
                self.drop(waiters)
                return None
            waiter = Waiter(event, activated=event.signaled)
            event.signaled = event.signaled and not event.auto_reset
            if event.type is kfd.EventType.SIGNAL and age:
                waiter.activated = waiter.activated or event.age != age
            if not waiter.activated:
                event.waiters.append(waiter)
            waiters.append(waiter)
        return waiters

    def drop(self, waiters: list[Waiter]) -> None:
        """The call returns: nobody waits any more."""
        for waiter in waiters:
            if waiter in waiter.event.waiters:
                waiter.event.waiters.remove(waiter)

    def __len__(self) -> int:
        return len(self._events)


def payload(event: Event, with_age: bool) -> kfd.EventPayload | None:
    """What the kernel writes into an activated event's entry; None: nothing."""
    if event.type is kfd.EventType.MEMORY:
        return kfd.EventPayload(memory_exception_data=event.memory)
    if event.type is kfd.EventType.HW_EXCEPTION:
        return kfd.EventPayload(hw_exception_data=event.hardware)
    if event.type is kfd.EventType.SIGNAL and with_age:
        return kfd.EventPayload(signal_event_data=kfd.SignalEventData(last_event_age=event.age))
    return None
