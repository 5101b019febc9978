"""Memory from the kernel: VRAM, host memory of the GPU (GTT), and the process's own (userptr).

A region is one KFD buffer object at one address, the same for the CPU and for every GPU it is
mapped on. Making one goes: reserve addresses, ALLOC, mmap over the reservation, MAP; whatever fails
in between is undone. GPUs are mapped and unmapped one by one, so that what a call that fails has
done is known.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rawgpu.amd.driver.reserve import HUGE_BYTES, PAGE_BYTES
from rawgpu.errors import KernelCallFailed, OutOfMemory, in_units
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.connection import Connection, Gpu

HOST = (
    AllocFlags.GTT
    | AllocFlags.COHERENT
    | AllocFlags.UNCACHED
    | AllocFlags.NO_SUBSTITUTE
    | AllocFlags.EXECUTABLE
    | AllocFlags.WRITABLE
)
"""Rings, arguments, signals and pinned memory: host memory that no GPU cache holds."""
LOCAL = AllocFlags.VRAM | AllocFlags.NO_SUBSTITUTE | AllocFlags.EXECUTABLE | AllocFlags.WRITABLE
USER = AllocFlags.USERPTR | AllocFlags.COHERENT | AllocFlags.UNCACHED | AllocFlags.WRITABLE


NEAR_BYTES = 64 << 30
"""How far from a buffer an address is about that buffer: a 32-bit index of 16-byte elements."""


@dataclass
class Region:
    """A buffer object. `host_visible` says whether the CPU may touch it."""

    connection: Connection
    gpu: Gpu
    address: int
    size_bytes: int
    handle: int
    """0 once it was freed."""
    host_visible: bool
    owns_addresses: bool
    mmap_offset: int = 0
    """Of the render file."""
    mapped: list[int] = field(default_factory=list)
    """gpu_ids."""

    def close(self) -> None:
        """Unmap, free, and let the addresses go. After a refusal, a further call goes on there."""
        connection = self.connection
        while self.mapped:
            _change(connection, kfd.UnmapMemoryFromGpu, self.handle, self.mapped[-1])
            self.mapped.pop()
        if self.handle:
            connection.ioctl(connection.new(kfd.FreeMemoryOfGpu, handle=self.handle))
            self.handle = 0
        if self.owns_addresses:
            connection.addresses.release(self.address)
            self.owns_addresses = False


def distance(address: int, start: int, size: int) -> int:
    """Bytes from an address to a range; 0 for one inside."""
    return start - address if address < start else max(address - (start + size) + 1, 0)


def beside(address: int, start: int, size: int, what: str) -> str:
    """Where an address is, seen from a range."""
    place = f"the {what} at {start:#x}"
    if address < start:
        return f"{in_units(start - address)} before {place}"
    if address < start + size:
        return f"{address - start} bytes into {place}"
    return f"{in_units(address - start - size)} past the end of {place}"


def page_up(size_bytes: int) -> int:
    return (size_bytes + PAGE_BYTES - 1) & -PAGE_BYTES


def _change(
    connection: Connection,
    kind: type[kfd.MapMemoryToGpu] | type[kfd.UnmapMemoryFromGpu],
    handle: int,
    gpu_id: int,
) -> None:
    array = ffi.new("uint32_t[]", [gpu_id])
    request = connection.new(
        kind,
        handle=handle,
        device_ids_array_ptr=int(ffi.cast("uintptr_t", array)),
        n_devices=1,
    )
    connection.ioctl(request)


def map_on(region: Region, gpu_ids: Iterable[int]) -> None:
    """Let more GPUs reach a region."""
    for gpu_id in gpu_ids:
        if gpu_id not in region.mapped:
            _change(region.connection, kfd.MapMemoryToGpu, region.handle, gpu_id)
            region.mapped.append(gpu_id)


def allocate(
    connection: Connection,
    gpu: Gpu,
    size_bytes: int,
    flags: AllocFlags,
    *,
    gpu_ids: Iterable[int] = (),
    host_visible: bool = True,
) -> Region:
    """New memory, mapped on `gpu` and on `gpu_ids`. OutOfMemory where the kernel has none."""
    size = page_up(size_bytes)
    align = HUGE_BYTES if size >= HUGE_BYTES else PAGE_BYTES
    try:
        address = connection.addresses.reserve(size, align)
    except OutOfMemory as error:
        if size <= gpu.node.vram_bytes:
            raise
        raise no_room(connection, gpu, size, flags) from error
    try:
        region = _make(connection, gpu, address, size, flags, 0, owns=True)
    except BaseException:
        connection.give_back(lambda: connection.addresses.release(address))
        raise
    try:
        if host_visible:
            region.host_visible = True
            connection.port.mmap(
                size,
                fd=gpu.render_fd,
                offset=region.mmap_offset,
                address=address,
                replace=True,
            )
        map_on(region, [gpu.node.gpu_id, *gpu_ids])
    except BaseException:
        connection.give_back(region.close)
        raise
    return region


def adopt(connection: Connection, gpu: Gpu, address: int, size_bytes: int) -> Region:
    """Let a GPU reach pages of this process. Both numbers are multiples of a page."""
    region = _make(connection, gpu, address, size_bytes, USER, address, owns=False)
    region.host_visible = True
    try:
        map_on(region, [gpu.node.gpu_id])
    except BaseException:
        connection.give_back(region.close)
        raise
    return region


def _make(
    connection: Connection,
    gpu: Gpu,
    address: int,
    size_bytes: int,
    flags: AllocFlags,
    mmap_offset: int,
    *,
    owns: bool,
) -> Region:
    request = connection.new(
        kfd.AllocMemoryOfGpu,
        va_addr=address,
        size=size_bytes,
        mmap_offset=mmap_offset,
        gpu_id=gpu.node.gpu_id,
        flags=flags,
    )
    try:
        reply = connection.ioctl(request)
    except KernelCallFailed as error:
        if error.errno == errno.ENOMEM:
            raise no_room(connection, gpu, size_bytes, flags) from error
        raise
    offset = reply.mmap_offset
    return Region(connection, gpu, address, size_bytes, reply.handle, False, owns, offset)


def no_room(connection: Connection, gpu: Gpu, size_bytes: int, flags: AllocFlags) -> OutOfMemory:
    """What to say about ENOMEM, with what the kernel says is left."""
    node = gpu.node
    if not flags & AllocFlags.VRAM:
        return OutOfMemory(
            f"{gpu.name}: no room for {in_units(size_bytes)} of host memory for the GPU",
            requested_bytes=size_bytes,
            in_use_bytes=0,
            hint="smaller pinned buffers; the kernel keeps a part of RAM back (ttm.pages_limit)",
        )
    try:
        request = connection.new(kfd.AvailableMemory, gpu_id=node.gpu_id)
        left = connection.ioctl(request).available
    except KernelCallFailed:
        left = 0
    hint = "free buffers, or device.trim()"
    if size_bytes > node.vram_bytes:
        hint = "a smaller buffer: the GPU has no more"
    elif left >= size_bytes:
        hint = "several smaller buffers"
    return OutOfMemory(
        f"{gpu.name}: no room for {in_units(size_bytes)} of VRAM in one piece: it has "
        f"{in_units(node.vram_bytes)}, of which {in_units(left)} are free",
        requested_bytes=size_bytes,
        in_use_bytes=node.vram_bytes - left,
        limit_bytes=node.vram_bytes,
        hint=hint,
    )
