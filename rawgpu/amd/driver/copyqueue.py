"""Queues of the copy engines (SDMA).

Packets never cross the ring's end: it is filled up with NOPs. Nothing here knows about caches: the
engine reads and writes memory through the L2 or past it, and what it wrote is made visible to
kernels by the compute queue that waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from rawgpu.amd.driver.queue import AmdTimestamp, Submitter, block_of, check_size, pack
from rawgpu.amd.driver.stencil import Stencil
from rawgpu.amd.spec import sdma
from rawgpu.amd.spec.hardware import Feature
from rawgpu.amd.spec.pm4 import Function
from rawgpu.contract import Argument, Buffer, Grid, Kernel, Recording, Signal, Timestamp
from rawgpu.errors import LaunchError
from rawgpu.ioctl.kfd import QueueType
from rawgpu.launch import check_reach, counter_value

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice

RING_BYTES = 256 << 10
POLLS = 2
"""Firmware that ends a poll early is asked again."""


class CopyQueue(Submitter):
    """Copies and fills."""

    def __init__(self, device: AmdDevice, name: str) -> None:
        super().__init__(device, QueueType.SDMA, name, RING_BYTES)
        packets = {packet.about.opcode: packet for packet in device.hardware.sdma}
        self._copy: Any = sdma.CopyLinear
        for packet in device.hardware.sdma:
            if issubclass(packet, sdma.CopyLinear) and packet.about.dwords == 7:
                self._copy = packet
        fence, poll = (
            cast(Any, packets[sdma.Opcode.FENCE]),
            cast(Any, packets[sdma.Opcode.POLL_REGMEM]),
        )
        self._fence = Stencil(fence(address=0, data=0), "address", "data")
        wait = poll(function=Function.GREATER_EQUAL, address=0, value=0)
        self._poll = Stencil(wait, "address", "value")
        self._fill: Any = packets[sdma.Opcode.CONST_FILL]
        self._polls = POLLS if Feature.POLL_TWICE in device.hardware.features else 1
        self._packets: list[list[int]] = []

    # --- building -------------------------------------------------------------------------------

    def wait(self, signal: Signal, value: int) -> None:
        own = self.own(signal)
        self._keep.append(own)
        self._packets += self._wait(own.address, own.wire(counter_value(value), raises=False))

    def _wait(self, address: int, wire: int) -> list[list[int]]:
        return [self._poll(address, wire)] * self._polls

    def signal(self, signal: Signal, value: int) -> None:
        own = self.own(signal)
        self._keep.append(own)
        wire = own.wire(counter_value(value), raises=True)
        self._packets.append(self._fence(own.address, wire))

    def launch(
        self,
        kernel: Kernel,
        arguments: Sequence[Argument],
        *,
        grid: Grid = 1,
        block: Grid = 1,
        work_ns: int = 0,
    ) -> None:
        raise LaunchError(f"{self.name} is a copy queue: it cannot launch {kernel.name}")

    def copy(self, target: Buffer, source: Buffer, size_bytes: int) -> None:
        self.check_open()
        for buffer, what in ((target, "target"), (source, "source")):
            check_size(what, buffer, size_bytes)
            check_reach(self._device, buffer, "the queue is")
        self._keep += (block_of(target), block_of(source))
        self.copy_raw(target.address, source.address, size_bytes)

    def copy_raw(self, target: int, source: int, size_bytes: int) -> None:
        """A copy between addresses; the caller keeps the memory."""
        for at in range(0, size_bytes, sdma.COPY_BYTES):
            part = min(sdma.COPY_BYTES, size_bytes - at)
            packet = self._copy(source=source + at, target=target + at, size_bytes=part)
            self._packets.append(packet.encode())

    def fill(self, target: Buffer, byte: int, size_bytes: int) -> None:
        self.check_open()
        check_size("target", target, size_bytes)
        check_reach(self._device, target, "the queue is")
        if not 0 <= byte <= 255:
            raise LaunchError(f"fill with {byte}, which is no byte")
        self._keep.append(block_of(target))
        for at in range(0, size_bytes, sdma.COPY_BYTES):
            part = min(sdma.COPY_BYTES, size_bytes - at)
            packet = self._fill(
                target=target.address + at,
                data=0x01010101 * byte,
                count=part - 1,
                fillsize=sdma.FillSize.BYTE,
            )
            self._packets.append(packet.encode())

    def timestamp(self) -> Timestamp:
        self.check_open()
        slot = AmdTimestamp(self._device)
        self._keep.append(slot)
        self._packets.append(sdma.TimestampGetGlobal(address=slot.block.address).encode())
        return Timestamp(slot)

    def barrier(self) -> None:
        """Nothing to add: packets run in order."""
        self.check_open()

    # --- handing over ---------------------------------------------------------------------------

    def submit(self) -> None:
        with self.lock:
            self.check_open()
            if not self._packets:
                return
            self._device.check_reports()
            self._device.flush_hdp()
            packets, self._packets = self._packets, []
            wire = self.timeline.wire(self.submitted, raises=False)
            with self.all_or_nothing():
                self.submitted += 1
                packets = [*self._wait(self.timeline.address, wire), *packets, *self._end()]
                self.make_room(4 * (sum(map(len, packets)) + 16))
            for packet in packets:
                self._put(packet)
            self.accept()
            self.ring.ring_doorbell()

    def _end(self) -> list[list[int]]:
        """The packets that raise the timeline, and those that wake the host."""
        event = self._device.event
        wire = self.timeline.wire(self.submitted, raises=True)
        return [
            self._fence(self.timeline.address, wire),
            self._fence(event.slot, event.id),
            sdma.Trap(int_context=event.context).encode(),
        ]

    def _put(self, packet: list[int]) -> None:
        ring = self.ring
        left = ring.size_bytes - ring.written % ring.size_bytes
        if 4 * len(packet) > left:
            ring.write(bytes(left))  # NOPs
        ring.write(pack(packet))

    def record(self) -> Recording:
        raise LaunchError(f"{self.name} is a copy queue: it records nothing")
