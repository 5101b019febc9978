"""Device memory: a caching sub-allocator over regions, and buffers.

Small blocks are carved from 2 MiB segments, large ones have a segment each; freed blocks are kept
by size class and given back by `trim`. A block that a submitted launch may still use is kept alive
by that submission, so what the cache hands out is never in flight.

VRAM is not `host_visible`, though a large BAR would allow it: the CPU reads it at a few MB/s.
`transfer.py` has the ways in and out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rawgpu.amd.driver import share
from rawgpu.amd.driver.region import (
    HOST,
    LOCAL,
    NEAR_BYTES,
    Region,
    allocate,
    beside,
    distance,
    map_on,
    page_up,
)
from rawgpu.amd.driver.reserve import HUGE_BYTES, PAGE_BYTES
from rawgpu.contract import MemoryKind, MemoryStatistics
from rawgpu.errors import DeviceClosed, DeviceError, OutOfMemory, in_units
from rawgpu.ioctl.kfd import AllocFlags
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.queue import Submitter

ALIGN_BYTES = 256
SEGMENT_BYTES = HUGE_BYTES
LARGE_BYTES = 1 << 20
HISTORY = 256
"""Freed blocks that an error message may still name."""


def class_bytes(size_bytes: int) -> int:
    """Block size for a request: up to the next of eight steps per doubling."""
    size = max(size_bytes, ALIGN_BYTES)
    step = max(1 << max(size.bit_length() - 4, 0), ALIGN_BYTES)
    return (size + step - 1) // step * step


class Segment:
    """A region cut into blocks. `live` counts those in use."""

    def __init__(self, region: Region, *, shared: bool) -> None:
        self.region = region
        self.shared = shared
        """Whether it may hold more than one block."""
        self.live = 0
        self.used_bytes = 0


class Block:
    """A piece of a segment; returns to its allocator with the last reference."""

    __slots__ = ("address", "allocator", "capacity_bytes", "segment", "uses")

    def __init__(self, allocator: Allocator, segment: Segment, address: int, size: int) -> None:
        self.allocator = allocator
        self.segment = segment
        self.address = address
        self.capacity_bytes = size
        self.uses: dict[Submitter, int] = {}
        """Queues that use it, and the value of each one's timeline when they have done so."""

    @property
    def region(self) -> Region:
        """The kernel's buffer object that it is a piece of."""
        return self.segment.region

    def wait_unused(self) -> None:
        """Wait for everything submitted that uses it."""
        uses, self.uses = self.uses, {}
        for queue, value in uses.items():
            queue.wait_submitted(value)

    def view(self, size_bytes: int) -> memoryview:
        """The block's bytes as the CPU sees them."""
        return memoryview(ffi.buffer(ffi.cast("char *", self.address), size_bytes)).cast("B")

    def __del__(self) -> None:
        # Any thread, any moment, also inside the allocator's own lock: so only a deque is touched.
        self.allocator.returned.append((self.segment, self.address, self.capacity_bytes))


class Allocator:
    """Memory of one kind of one device."""

    def __init__(
        self, name: str, make: Callable[[int], Region], idle: Callable[[], None], limit_bytes: int
    ) -> None:
        self._name = name
        self._make = make
        self._idle = idle
        self.limit_bytes = limit_bytes
        self._lock = threading.RLock()
        self.returned: deque[tuple[Segment, int, int]] = deque()
        self._cached: dict[int, list[tuple[Segment, int]]] = {}
        self._segments: list[Segment] = []
        self._open_segment: Segment | None = None
        self._live: dict[int, int] = {}
        self._asked: set[int] = set()
        """Those of `_live` that a user asked for."""
        self._freed: deque[tuple[int, int]] = deque(maxlen=HISTORY)
        self._in_use = self._peak = self._reserved = self._reused = 0
        self.closed = False

    def alloc(self, size_bytes: int, *, asked: bool = False) -> Block:
        """A block of at least `size_bytes`. Trims the cache before it gives up.

        `asked`: a user wants it, not the driver for itself.
        """
        capacity = class_bytes(size_bytes)
        with self._lock:
            if self.closed:
                raise DeviceClosed(f"{self._name} is closed")
            self._collect()
            segment, address = self._find(capacity)
            segment.live += 1
            self._live[address] = max(size_bytes, 1)
            if asked:
                self._asked.add(address)
            self._in_use += capacity
            self._peak = max(self._peak, self._in_use)
            return Block(self, segment, address, capacity)

    def _find(self, capacity: int) -> tuple[Segment, int]:
        cached = self._cached.get(capacity)
        if cached:
            self._reused += 1
            return cached.pop()
        try:
            return self._fresh(capacity)
        except OutOfMemory:
            self._idle()
            self.trim()
        try:
            return self._fresh(capacity)
        except OutOfMemory as error:
            raise OutOfMemory(
                f"{error.message}; {in_units(self._in_use)} are in live buffers",
                requested_bytes=error.requested_bytes,
                in_use_bytes=self._in_use,
                limit_bytes=self.limit_bytes,
                hint=error.hint,
            ) from error

    def _fresh(self, capacity: int) -> tuple[Segment, int]:
        if capacity >= LARGE_BYTES:
            step = HUGE_BYTES if capacity >= HUGE_BYTES else 1
            segment = self._segment(-(-capacity // step) * step, shared=False)
            return segment, segment.region.address
        current = self._open_segment
        if current is None or current.used_bytes + capacity > SEGMENT_BYTES:
            current = self._open_segment = self._segment(SEGMENT_BYTES, shared=True)
        at = current.used_bytes
        current.used_bytes += capacity
        return current, current.region.address + at

    def _segment(self, size_bytes: int, *, shared: bool) -> Segment:
        segment = Segment(self._make(page_up(size_bytes)), shared=shared)
        self._segments.append(segment)
        self._reserved += segment.region.size_bytes
        return segment

    def _collect(self) -> None:
        """Take back what was freed since the last call."""
        while self.returned:
            segment, address, capacity = self.returned.popleft()
            if self.closed:
                continue
            segment.live -= 1
            self._in_use -= capacity
            size = self._live.pop(address, capacity)
            if address in self._asked:
                self._asked.remove(address)
                self._freed.append((address, size))
            self._cached.setdefault(capacity, []).append((segment, address))

    def trim(self) -> None:
        """Give back the segments that hold no live block."""
        with self._lock:
            self._collect()
            idle = {id(segment) for segment in self._segments if not segment.live}
            for capacity, blocks in list(self._cached.items()):
                self._cached[capacity] = [b for b in blocks if id(b[0]) not in idle]
            if self._open_segment is not None and id(self._open_segment) in idle:
                self._open_segment = None
            for segment in [s for s in self._segments if id(s) in idle]:
                self._segments.remove(segment)
                self._reserved -= segment.region.size_bytes
                segment.region.connection.give_back(segment.region.close)

    def map_on(self, gpu_ids: list[int]) -> None:
        """Let other GPUs reach all that there is now."""
        with self._lock:
            for segment in self._segments:
                map_on(segment.region, gpu_ids)

    def live(self) -> dict[int, int]:
        """Sizes of the live buffers, by address."""
        with self._lock:
            self._collect()
            return dict(self._live)

    def statistics(self) -> MemoryStatistics:
        with self._lock:
            self._collect()
            return MemoryStatistics(
                in_use_bytes=self._in_use,
                reserved_bytes=self._reserved,
                peak_bytes=self._peak,
                allocations=len(self._live),
                reused=self._reused,
            )

    def reset_peak(self) -> None:
        with self._lock:
            self._collect()
            self._peak = self._in_use

    def nearest(self, address: int, reach_bytes: int = NEAR_BYTES) -> tuple[int, str] | None:
        """Distance to the buffer, live or lately freed, that is closest, and its place in words.

        What the driver has for itself says something to nobody who looks from afar.
        """
        with self._lock:
            self._collect()
            best: tuple[int, str] | None = None
            rows = [(at, size, "") for at, size in self._live.items()]
            asked = set(self._asked)
            rows += [(at, size, "freed ") for at, size in self._freed if at not in self._live]
        for start, size, freed in rows:
            gap = distance(address, start, size)
            own = not freed and start not in asked
            if gap <= (PAGE_BYTES if own else reach_bytes) and (best is None or gap < best[0]):
                what = "block of the driver" if own else "buffer"
                best = gap, beside(address, start, size, f"{freed}{size}-byte {what}")
        return best

    def close(self) -> None:
        """Give everything back. Idempotent."""
        with self._lock:
            self.closed = True
            self._cached.clear()
            self._live.clear()
            self._asked.clear()
            self._open_segment = None
            segments, self._segments = self._segments, []
            self._reserved = self._in_use = 0
        for segment in segments:
            segment.region.connection.give_back(segment.region.close)


def local_allocator(device: AmdDevice) -> Allocator:
    """VRAM. Seen by the CPU where the BAR covers all of it."""
    visible = device.node.large_bar
    flags = LOCAL | (AllocFlags.PUBLIC if visible else AllocFlags(0))

    def make(size_bytes: int) -> Region:
        return allocate(device.connection, device.gpu, size_bytes, flags, host_visible=visible)

    return Allocator(device.name, make, device.retire_all, device.node.vram_bytes)


def host_allocator(device: AmdDevice) -> Allocator:
    """Host memory that the GPU reaches at the same address."""

    def make(size_bytes: int) -> Region:
        return allocate(device.connection, device.gpu, size_bytes, HOST)

    return Allocator(device.name, make, device.retire_all, 0)


class AmdBuffer:
    """A range of device memory."""

    def __init__(self, device: AmdDevice, block: Block, size_bytes: int, kind: MemoryKind) -> None:
        self._device = device
        self._block: Block | None = block
        self._size_bytes = size_bytes
        self.kind = kind

    @property
    def block(self) -> Block:
        block = self._block
        if block is None or block.allocator.closed:
            raise DeviceClosed(
                "this buffer was closed" if block is None else "its device is closed"
            )
        return block

    @property
    def address(self) -> int:
        return self.block.address

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def host_visible(self) -> bool:
        return self.kind is MemoryKind.PINNED

    @property
    def device(self) -> AmdDevice:
        return self._device

    def view(self) -> memoryview:
        """The bytes of a pinned buffer; it must outlive the view."""
        if not self.host_visible:
            raise DeviceError(
                "this buffer is in VRAM", hint="read() and write(), or alloc(kind=PINNED)"
            )
        return self.block.view(self._size_bytes)

    def write(
        self, data: bytes | bytearray | memoryview | np.ndarray[Any, Any], offset: int = 0
    ) -> None:
        """Copy in, after everything submitted that uses the buffer."""
        flat: Any = data
        if isinstance(data, np.ndarray):
            flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        source = memoryview(flat).cast("B")
        self._check(source.nbytes, offset)
        if source.nbytes:
            self.block.wait_unused()
            self._device.transfer.write(self.block, offset, source)

    def read(self, size_bytes: int | None = None, offset: int = 0) -> bytes:
        size = self._size_bytes - offset if size_bytes is None else size_bytes
        self._check(size, offset)
        return self._device.transfer.read(self.block, offset, size) if size else b""

    def map_on(self, other: AmdDevice) -> None:
        """Let another device of this process reach the buffer at the same address.

        DeviceError where no link leads there. Test a new link with a pattern before trusting it.
        """
        node = other.node
        if other.connection is not self._device.connection:
            raise DeviceError(f"{other.name} is behind another kernel")
        if self.kind is MemoryKind.DEVICE and node.number not in self._device.node.peers:
            raise DeviceError(
                f"no link from {self._device.name} to {other.name}", hint="copy through the host"
            )
        self._device.flush_hdp()
        map_on(self.block.segment.region, [node.gpu_id])

    def export_dmabuf(self) -> int:
        """A descriptor by which others reach the memory; the caller closes it."""
        return share.export(self)

    def _check(self, size_bytes: int, offset: int) -> None:
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self._size_bytes:
            raise DeviceError(
                f"{size_bytes} bytes at {offset} lie outside a buffer of {self._size_bytes} bytes"
            )

    def close(self) -> None:
        self._block = None

    def __repr__(self) -> str:
        where = "closed" if self._block is None else f"{self._block.address:#x}"
        return f"<AmdBuffer {self._size_bytes} bytes at {where}>"
