"""The HDP flush from the CPU: makes writes through the BAR visible to the GPU.

A page of registers that the kernel lets a process map; a write to its first word flushes. Compute
queues have packets for it where the register's place is known; copy engines and other parts rely on
this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawgpu.amd.driver.region import Region
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags
from rawgpu.native.code import native_code

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice


class HdpFlush:
    """The page, mapped at first use."""

    def __init__(self, device: AmdDevice) -> None:
        self._device = device
        self._page: Region | None = None

    def flush(self) -> None:
        """Make what the CPU wrote so far visible."""
        if self._page is None:
            self._page = self._map()
        register = self._page.address + kfd.MmioRemap.HDP_MEM_FLUSH_CNTL
        code = native_code()
        code.fence_device()
        code.store32(register, 1)
        code.load32(register)

    def _map(self) -> Region:
        device = self._device
        connection, gpu_id = device.connection, device.node.gpu_id
        address = connection.addresses.reserve(kfd.MMIO_REMAP_BYTES)
        try:
            request = connection.new(
                kfd.AllocMemoryOfGpu,
                va_addr=address,
                size=kfd.MMIO_REMAP_BYTES,
                gpu_id=gpu_id,
                flags=AllocFlags.MMIO_REMAP | AllocFlags.COHERENT | AllocFlags.WRITABLE,
            )
            reply = connection.ioctl(request)
        except BaseException:
            connection.give_back(lambda: connection.addresses.release(address))
            raise
        page = Region(
            connection, device.gpu, address, kfd.MMIO_REMAP_BYTES, reply.handle, True, True
        )
        try:
            device.port.mmap(
                kfd.MMIO_REMAP_BYTES,
                fd=connection.fd,
                offset=reply.mmap_offset,
                address=address,
                replace=True,
            )
        except BaseException:
            connection.give_back(page.close)
            raise
        return page

    def close(self) -> None:
        """Unmap the page, if it was mapped."""
        page, self._page = self._page, None
        if page is not None:
            self._device.connection.give_back(page.close)
