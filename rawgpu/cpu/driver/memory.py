"""Memory of the CPU device: anonymous pages, a caching sub-allocator, buffers.

Small blocks are carved from 4 MiB segments, large ones have a segment each; both are kept by size
class when freed, and given back by `trim`. Each block has 64 readable bytes after it and starts at
a multiple of 64; blocks of 2 MiB and more are 2 MiB-aligned in huge pages. Segments are `mmap.mmap`
objects, so a NumPy view that outlives its device keeps the pages it shows.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rawgpu.contract import MemoryStatistics
from rawgpu.errors import DeviceClosed, DeviceError, LaunchError, OutOfMemory, in_units
from rawgpu.launch import whole_number

if TYPE_CHECKING:
    from rawgpu.cpu.driver.device import CpuDevice

ALIGN_BYTES = 64
PAD_BYTES = 64
HUGE_BYTES = 2 << 20
SEGMENT_BYTES = 4 << 20
LARGE_BYTES = 1 << 20


def class_bytes(size_bytes: int) -> int:
    """Block size for a request: padded, then up to the next of eight steps per doubling."""
    padded = max(size_bytes + PAD_BYTES, 2 * ALIGN_BYTES)
    step = max(1 << padded.bit_length() - 4, ALIGN_BYTES)
    return (padded + step - 1) // step * step


class Segment:
    """Pages from the system. `live` counts blocks in use."""

    def __init__(self, size_bytes: int) -> None:
        align = HUGE_BYTES if size_bytes >= HUGE_BYTES else mmap.PAGESIZE
        slack = align if align > mmap.PAGESIZE else 0
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, size_bytes + slack, flags=flags)
        whole: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(self._map, np.uint8)
        start = -whole.ctypes.data % align
        if slack:
            with contextlib.suppress(OSError):  # a kernel without huge pages
                self._map.madvise(mmap.MADV_HUGEPAGE, start, size_bytes)
        self.bytes = whole[start : start + size_bytes]
        self.address: int = whole.ctypes.data + start
        self.size_bytes = size_bytes
        self.live = 0
        self.used_bytes = 0

    def close(self) -> None:
        """Unmap, or leave that to the last view."""
        del self.bytes
        with contextlib.suppress(BufferError):
            self._map.close()


class Block:
    """A piece of a segment; returns to its allocator with the last reference."""

    __slots__ = ("address", "allocator", "capacity_bytes", "segment")

    def __init__(
        self, allocator: Allocator, segment: Segment, address: int, capacity_bytes: int
    ) -> None:
        self.allocator = allocator
        self.segment = segment
        self.address = address
        self.capacity_bytes = capacity_bytes

    def __del__(self) -> None:
        # Any thread, any moment, also inside the allocator's own lock: so only a deque is touched.
        self.allocator.returned.append((self.segment, self.address, self.capacity_bytes))


class _Window(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes of a block that keep the block."""

    block: Block


class Allocator:
    """All memory of one device."""

    def __init__(self, name: str, limit_bytes: int | None, idle: Callable[[], None]) -> None:
        self._name = name
        self.limit_bytes = limit_bytes
        self._idle = idle
        self._lock = threading.RLock()
        self.returned: deque[tuple[Segment, int, int]] = deque()
        self._cached: dict[int, list[tuple[Segment, int]]] = {}
        self._segments: list[Segment] = []
        self._open_segment: Segment | None = None
        self._live: dict[int, int] = {}
        self._in_use = self._peak = self._reserved = self._reused = 0
        self.closed = False

    def alloc(self, size_bytes: int) -> Block:
        """A block of at least `size_bytes`. Trims the cache before it gives up."""
        capacity = class_bytes(size_bytes)
        with self._lock:
            if self.closed:
                raise DeviceClosed(f"{self._name} is closed")
            self._collect()
            segment, address = self._find(capacity, size_bytes)
            segment.live += 1
            self._live[address] = size_bytes
            self._in_use += capacity
            self._peak = max(self._peak, self._in_use)
            return Block(self, segment, address, capacity)

    def _find(self, capacity: int, size_bytes: int) -> tuple[Segment, int]:
        cached = self._cached.get(capacity)
        if cached:
            self._reused += 1
            return cached.pop()
        try:
            return self._fresh(capacity)
        except OSError:
            self.trim()
        try:
            return self._fresh(capacity)
        except OSError as error:
            raise OutOfMemory(
                f"{self._name}: no room for {in_units(size_bytes)}; {in_units(self._in_use)} in use"
                + (f" of {in_units(self.limit_bytes)}" if self.limit_bytes else "")
                + f" ({error.strerror or error})",
                requested_bytes=size_bytes,
                in_use_bytes=self._in_use,
                limit_bytes=self.limit_bytes,
            ) from None

    def _fresh(self, capacity: int) -> tuple[Segment, int]:
        if capacity >= LARGE_BYTES:
            step = HUGE_BYTES if capacity >= HUGE_BYTES else mmap.PAGESIZE
            segment = self._map((capacity + step - 1) // step * step)
            return segment, segment.address
        segment_or_none = self._open_segment
        if segment_or_none is None or segment_or_none.used_bytes + capacity > SEGMENT_BYTES:
            segment_or_none = self._open_segment = self._map(SEGMENT_BYTES)
        at = segment_or_none.used_bytes
        segment_or_none.used_bytes += capacity
        return segment_or_none, segment_or_none.address + at

    def _map(self, size_bytes: int) -> Segment:
        if self.limit_bytes is not None and self._reserved + size_bytes > self.limit_bytes:
            raise OSError(0, "the limit set for this device")
        try:
            segment = Segment(size_bytes)
        except (OverflowError, ValueError, MemoryError) as error:
            raise OSError(0, str(error)) from None
        self._segments.append(segment)
        self._reserved += size_bytes
        return segment

    def _collect(self) -> None:
        """Take back what was freed since the last call."""
        while self.returned:
            segment, address, capacity = self.returned.popleft()
            if self.closed:
                continue
            segment.live -= 1
            self._in_use -= capacity
            self._live.pop(address, None)
            self._cached.setdefault(capacity, []).append((segment, address))

    def trim(self) -> None:
        """Unmap the segments that hold no live block."""
        with self._lock:
            self._collect()
            idle = {id(segment) for segment in self._segments if not segment.live}
            if not idle:
                return
            for capacity, blocks in list(self._cached.items()):
                kept = [(segment, at) for segment, at in blocks if id(segment) not in idle]
                self._cached[capacity] = kept
            if self._open_segment is not None and id(self._open_segment) in idle:
                self._open_segment = None
            for segment in [segment for segment in self._segments if id(segment) in idle]:
                self._segments.remove(segment)
                self._reserved -= segment.size_bytes
                segment.close()

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

    def nearest(self, address: int, reach_bytes: int = 1 << 20) -> str | None:
        """The live allocation that holds or is closest to `address`, in words."""
        with self._lock:
            self._collect()
            best: tuple[int, str] | None = None
            for start, size in self._live.items():
                if start <= address < start + size:
                    return f"{address - start} bytes into the {size}-byte buffer at {start:#x}"
                gap = start - address if address < start else address - (start + size)
                if gap <= reach_bytes and (best is None or gap < best[0]):
                    side = "before" if address < start else "past the end of"
                    best = gap, f"{gap} bytes {side} the {size}-byte buffer at {start:#x}"
            return best[1] if best else None

    def close(self) -> None:
        """Unmap everything. Views that are still held keep their pages. Idempotent."""
        with self._lock:
            self.closed = True
            self._cached.clear()
            self._live.clear()
            self._open_segment = None
            segments, self._segments = self._segments, []
            for segment in segments:
                segment.close()
            self._reserved = self._in_use = 0

    def after_fork(self) -> None:
        self._lock = threading.RLock()


def _is_plain(data: bytes | bytearray | memoryview) -> bool:
    return not isinstance(data, memoryview) or data.c_contiguous


def _kind(data: object) -> str:
    if isinstance(data, np.ndarray):
        return f"an array of {data.dtype}"
    return f"a {type(data).__name__}"


class CpuBuffer:
    """Memory of the CPU device; the host's own."""

    def __init__(self, device: CpuDevice, block: Block, size_bytes: int) -> None:
        self._device = device
        self._block: Block | None = block
        self._size_bytes = size_bytes

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
        return True

    @property
    def device(self) -> CpuDevice:
        return self._device

    def _window(self) -> _Window:
        block = self.block
        at = block.address - block.segment.address
        window = block.segment.bytes[at : at + self._size_bytes].view(_Window)
        window.block = block
        return window

    def view(self) -> memoryview:
        """The bytes, writable; they stay valid as long as the view does."""
        window: Any = self._window()  # its __buffer__ is declared from Python 3.12 on
        return memoryview(window)

    def write(
        self, data: bytes | bytearray | memoryview | np.ndarray[Any, Any], offset: int = 0
    ) -> None:
        if isinstance(data, np.ndarray) and not data.dtype.hasobject:
            source = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        elif isinstance(data, (bytes, bytearray, memoryview)):
            source = np.frombuffer(bytes(data) if not _is_plain(data) else data, np.uint8)
        else:
            raise LaunchError(f"a buffer is written with bytes or an array, not {_kind(data)}")
        self._check(source.nbytes, offset)
        self._window()[offset : offset + source.nbytes] = source

    def read(self, size_bytes: int | None = None, offset: int = 0) -> bytes:
        start = whole_number("an offset", offset)
        size = self._size_bytes - start if size_bytes is None else size_bytes
        self._check(size, start)
        self._device.synchronize()
        try:
            return self._window()[start : start + size].tobytes()
        except MemoryError:
            raise OutOfMemory(
                f"the host has no room for {in_units(size)} read from {self._device.name}",
                requested_bytes=size,
                in_use_bytes=self._device.memory().in_use_bytes,
            ) from None

    def _check(self, size_bytes: int, offset: int) -> None:
        whole_number("an offset", offset)
        whole_number("a size", size_bytes)
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self._size_bytes:
            raise DeviceError(
                f"{size_bytes} bytes at {offset} lie outside a buffer of {self._size_bytes} bytes"
            )

    def close(self) -> None:
        self._block = None

    def __repr__(self) -> str:
        where = "closed" if self._block is None else f"{self._block.address:#x}"
        return f"<CpuBuffer {self._size_bytes} bytes at {where}>"
