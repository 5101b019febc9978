"""Copies from one GPU's memory to another's, by the link between them.

The GPU that wants the bytes reads them: its kernel copies out of the other's memory, mapped
on both. A link is tried with a pattern before it is trusted, since some systems corrupt or refuse
what goes over theirs; where there is none the caller copies through the host.

Order of a copy: the source's queue signals that the bytes are there; the target's queue waits,
copies, and signals; what the source's queue does next waits for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.amd.driver.memory import AmdBuffer
from rawgpu.amd.driver.queue import ComputeQueue
from rawgpu.amd.driver.signal import AmdSignal
from rawgpu.contract import Buffer, PeerCopy, Queue
from rawgpu.errors import DeviceError, KernelCallFailed

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice

PATTERN = bytes(range(256)) * 16


@dataclass
class Link:
    """What two queues need to wait for each other."""

    ready: AmdSignal
    taken: AmdSignal
    copies: int = 0


class Peers:
    """The links that lead to one device."""

    def __init__(self, device: AmdDevice) -> None:
        self._device = device
        self._trusted: dict[AmdDevice, bool] = {}
        self._links: dict[tuple[ComputeQueue, ComputeQueue], Link] = {}

    def pull(self, queue: ComputeQueue, source_queue: Queue, copies: Sequence[PeerCopy]) -> bool:
        """As `contract.Puller` has it."""
        if not isinstance(source_queue, ComputeQueue):
            return False
        other = source_queue.device
        if not self._trusts(other) or not all(self._reaches(copy.source) for copy in copies):
            return False
        link = self._links.get((queue, source_queue))
        if link is None:
            link = Link(other.new_signal(), self._device.new_signal())
            self._links[queue, source_queue] = link
        link.copies += 1
        source_queue.signal(link.ready, link.copies)
        source_queue.submit()
        queue.wait(link.ready, link.copies)
        for copy in copies:
            self._copy(queue, copy)
        queue.signal(link.taken, link.copies)
        queue.submit()
        source_queue.wait(link.taken, link.copies)  # goes with its next submit
        return True

    def _copy(self, queue: ComputeQueue, copy: PeerCopy) -> None:
        target, source = copy.target, copy.source
        assert isinstance(target, AmdBuffer) and target.device is self._device, target
        assert isinstance(source, AmdBuffer), source
        queue.keep(target.block, source.block)
        self._device.blit.copy_raw(
            queue,
            target.address + copy.target_offset,
            source.address + copy.source_offset,
            copy.size_bytes,
        )

    def _reaches(self, source: Buffer) -> bool:
        if not isinstance(source, AmdBuffer):
            return False
        try:
            source.map_on(self._device)
        except (DeviceError, KernelCallFailed):
            return False
        return True

    def _trusts(self, other: AmdDevice) -> bool:
        known = self._trusted.get(other)
        if known is None:
            known = self._trusted[other] = self._try(other)
        return known

    def _try(self, other: AmdDevice) -> bool:
        """Whether there is a link over which a pattern comes whole."""
        if other is self._device:
            return False
        there, here = other.alloc(len(PATTERN)), self._device.alloc(len(PATTERN))
        if not self._reaches(there):
            return False
        there.write(PATTERN)
        other.flush_hdp()
        queue = self._device.own_queue()
        self._copy(queue, PeerCopy(here, 0, there, 0, len(PATTERN)))
        queue.submit()
        queue.synchronize()
        return here.read() == PATTERN

    def close(self) -> None:
        """Forget all links."""
        self._links.clear()
        self._trusted.clear()
