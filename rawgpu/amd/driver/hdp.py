"""The HDP flush from the CPU: makes writes through the BAR visible to the GPU.

A page of registers that the kernel lets a process map; a write to its first word flushes. Compute
queues have packets for it where the register's place is known; copy engines and other parts rely on
this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags
from rawgpu.native.code import native_code

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice


class HdpFlush:
    """The page, mapped at first use."""

    def __init__(self, device: AmdDevice) -> None:
        self._device = device
        self._address: int | None = None
        self._handle = 0

    def flush(self) -> None:
        """Make what the CPU wrote so far visible."""
        if self._address is None:
            self._address = self._map()
        code = native_code()
        code.fence_device()
        code.store32(self._address + kfd.MmioRemap.HDP_MEM_FLUSH_CNTL, 1)
        code.load32(self._address + kfd.MmioRemap.HDP_MEM_FLUSH_CNTL)

    def _map(self) -> int:
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
            connection.addresses.release(address)
            raise
        self._handle = reply.handle
        try:
            device.port.mmap(
                kfd.MMIO_REMAP_BYTES,
                fd=connection.fd,
                offset=reply.mmap_offset,
                address=address,
                replace=True,
            )
        except BaseException:
            self._free(address)
            raise
        return address

    def _free(self, address: int) -> None:
        connection = self._device.connection
        try:
            connection.ioctl(connection.new(kfd.FreeMemoryOfGpu, handle=self._handle))
        finally:
            connection.addresses.release(address)

    def close(self) -> None:
        """Unmap the page, if it was mapped."""
        address, self._address = self._address, None
        if address is not None:
            self._free(address)
