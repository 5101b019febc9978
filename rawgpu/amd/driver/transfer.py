"""Bytes between the host and buffers.

Writes go through the BAR where the CPU reaches VRAM, and are flushed before the next submit; else
through a staging buffer and a copy engine, which reads always use for more than a few bytes: the
CPU reads uncached memory at a few MB/s.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rawgpu.native.code import native_code
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.memory import Block

STAGING_BYTES = 4 << 20
DIRECT_READ_BYTES = 4096


class Transfer:
    """Copies in and out of one device's memory; one at a time."""

    def __init__(self, device: AmdDevice) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._staging: Block | None = None

    def write(self, block: Block, offset: int, data: memoryview) -> None:
        """Copy in. Waits for nothing if the CPU reaches the memory."""
        region = block.segment.region
        if region.host_visible:
            poke_device(block.address + offset, data)
            if block.allocator is self._device.local:
                self._device.hdp_dirty = True
                if len(region.mapped) > 1:
                    self._device.flush_hdp()  # others that read it flush their own HDP only
            return
        with self._lock:
            staging = self._stage()
            view = staging.view(STAGING_BYTES)
            for at in range(0, len(data), STAGING_BYTES):
                part = data[at : at + STAGING_BYTES]
                view[: len(part)] = part
                self._move(block, offset + at, staging, len(part), inwards=True)

    def read(self, block: Block, offset: int, size_bytes: int) -> bytes:
        """Copy out, after everything submitted."""
        self._device.synchronize()
        region = block.segment.region
        host = block.allocator is self._device.host
        if host or (region.host_visible and size_bytes <= DIRECT_READ_BYTES):
            return bytes(ffi.buffer(ffi.cast("char *", block.address + offset), size_bytes))
        parts = []
        with self._lock:
            staging = self._stage()
            for at in range(0, size_bytes, STAGING_BYTES):
                size = min(STAGING_BYTES, size_bytes - at)
                self._move(block, offset + at, staging, size, inwards=False)
                parts.append(bytes(staging.view(size)))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _stage(self) -> Block:
        if self._staging is None:
            self._staging = self._device.host.alloc(STAGING_BYTES)
        return self._staging

    def _move(
        self, block: Block, offset: int, staging: Block, size_bytes: int, *, inwards: bool
    ) -> None:
        device = self._device
        here = block.address + offset
        target, source = (here, staging.address) if inwards else (staging.address, here)
        copies = device.copy_engine()
        if copies is not None:
            with copies.lock:
                copies.copy_raw(target, source, size_bytes)
                copies.submit()
            copies.synchronize()
        else:
            queue = device.own_queue()
            device.blit.copy_raw(queue, target, source, size_bytes)
            queue.submit()
            queue.synchronize()

    def close(self) -> None:
        self._staging = None


def poke_device(address: int, data: memoryview) -> None:
    """Write device memory, in whole words where it is aligned: some processors want that."""
    whole = len(data) & -8 if address % 8 == 0 else 0
    source = ffi.from_buffer(data)
    if whole:
        native_code().copy64(address, source, whole // 8)
    if whole < len(data):
        ffi.memmove(ffi.cast("char *", address + whole), source + whole, len(data) - whole)
