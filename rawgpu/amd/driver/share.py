"""Memory from elsewhere: the process's own pages, and dma-bufs of other devices and processes.

Both pass as launch arguments and to copies. They hold what they were made from no longer than until
`close`, which the device's own `close` calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rawgpu.amd.driver.region import NEAR_BYTES, Region, adopt, beside, distance, map_on, page_up
from rawgpu.amd.driver.reserve import HUGE_BYTES, PAGE_BYTES
from rawgpu.errors import DeviceClosed, DeviceError
from rawgpu.ioctl import kfd
from rawgpu.ioctl.port import OPEN_FLAGS

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.memory import AmdBuffer


class Foreign:
    """A range that the GPU reaches and somebody else owns."""

    def __init__(self, device: AmdDevice, region: Region, size_bytes: int, keep: Any) -> None:
        self.device = device
        self.size_bytes = size_bytes
        self._region: Region | None = region
        self._keep = keep

    @property
    def address(self) -> int:
        return self.region.address

    @property
    def region(self) -> Region:
        """The kernel's buffer object."""
        if self._region is None:
            raise DeviceClosed("this range was closed")
        return self._region

    def nearest(self, address: int) -> tuple[int, str] | None:
        """As an allocator's."""
        if self._region is None:
            return None
        place = address, self.address, self.size_bytes
        gap = distance(*place)
        what = f"{self.size_bytes}-byte range from elsewhere"
        return (gap, beside(*place, what)) if gap <= NEAR_BYTES else None

    @property
    def host_visible(self) -> bool:
        """Whether the CPU may touch it: an array's own pages, not a dma-buf's."""
        return self.region.host_visible

    @property
    def block(self) -> Foreign:
        """What a submit in flight keeps alive."""
        return self

    def close(self) -> None:
        """Take the range away from the GPU, after all that was submitted. Idempotent."""
        region, self._region = self._region, None
        if region is not None:
            self.device.left(self)
            try:
                self.device.retire_all()
            finally:
                region.connection.give_back(region.close)
                self._keep = None
            region.connection.settle()


def reaches(device: AmdDevice, memory: Any) -> bool:
    """Whether memory of another device is mapped on this one's GPU, at the same address."""
    if getattr(memory.device, "connection", None) is not device.connection:
        return False
    return device.node.gpu_id in memory.block.region.mapped


def pin(device: AmdDevice, array: np.ndarray[Any, Any]) -> Foreign:
    """Let the GPU reach an array's own memory, which must be whole pages."""
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise DeviceError("only a contiguous, writable array can be pinned")
    address, size = array.ctypes.data, array.nbytes
    if address % PAGE_BYTES or size % PAGE_BYTES or not size:
        raise DeviceError(
            f"{size} bytes at {address:#x} are not whole pages",
            hint="np.frombuffer(mmap.mmap(-1, size), dtype)",
        )
    return Foreign(device, adopt(device.connection, device.gpu, address, size), size, array)


def export(buffer: AmdBuffer) -> int:
    """A dma-buf descriptor for a buffer that has memory of its own; the caller closes it."""
    region = buffer.block.segment.region
    if buffer.block.segment.shared:
        raise DeviceError("a small buffer shares its memory", hint="1 MiB or more can be exported")
    connection = region.connection
    request = connection.new(kfd.ExportDmabuf, handle=region.handle, flags=OPEN_FLAGS)
    return connection.ioctl(request).dmabuf_fd


def take(device: AmdDevice, dmabuf_fd: int, size_bytes: int) -> Foreign:
    """Memory from a dma-buf, at an address of this process."""
    connection, gpu = device.connection, device.gpu
    size = page_up(size_bytes)
    align = HUGE_BYTES if size >= HUGE_BYTES else PAGE_BYTES
    address = connection.addresses.reserve(size, align)
    try:
        request = connection.new(
            kfd.ImportDmabuf, va_addr=address, gpu_id=gpu.node.gpu_id, dmabuf_fd=dmabuf_fd
        )
        handle = connection.ioctl(request).handle
    except BaseException:
        connection.give_back(lambda: connection.addresses.release(address))
        raise
    region = Region(connection, gpu, address, size, handle, False, True)
    try:
        map_on(region, [gpu.node.gpu_id])
    except BaseException:
        connection.give_back(region.close)
        raise
    return Foreign(device, region, size_bytes, None)
