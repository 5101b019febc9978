"""KFD's memory requests: allocate, map, unmap, free, share.

Source: linux 6.12.107 amdkfd/kfd_chardev.c, amdgpu/amdgpu_amdkfd_gpuvm.c.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rawgpu.amd.virtual.process import Buffer, KernelError, Taken
from rawgpu.describe.request import Request
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags
from rawgpu.ioctl.memory import peek, poke
from rawgpu.virtual.memory import PAGE_BYTES, Extent, Full, Mapping, page_up

if TYPE_CHECKING:
    from rawgpu.amd.virtual.kernel import Kernel

USER_LIMIT = 1 << 47
TYPES = (
    AllocFlags.VRAM
    | AllocFlags.GTT
    | AllocFlags.USERPTR
    | AllocFlags.DOORBELL
    | AllocFlags.MMIO_REMAP
)
FINE_GRAINED = AllocFlags.COHERENT | AllocFlags.UNCACHED | AllocFlags.EXT_COHERENT
"""What makes a buffer's pages bypass L2 (MTYPE_UC)."""
RESERVED_VRAM = 1 << 29
"""What the kernel and firmware keep of a card."""


def known(kernel: Kernel, gpu_id: int) -> Taken:
    """The GPU, for any request; hidden ones are unknown to the process."""
    taken = kernel.process.on(gpu_id)
    if taken is None or taken.gpu.place.hidden:
        raise KernelError(errno.EINVAL, f"no GPU {gpu_id:#x}")
    return taken


def bound(taken: Taken, refusal: int = errno.ENODEV) -> Taken:
    """The GPU, whose address space must have been acquired."""
    if taken.file is None:
        raise KernelError(refusal, "ACQUIRE_VM was not done for this GPU")
    return taken


def copy_in(address: int, size_bytes: int) -> bytes:
    """What the process has there; EFAULT where it has nothing."""
    data = peek(address, size_bytes) if 0 < address <= USER_LIMIT - size_bytes else None
    if data is None:
        raise KernelError(errno.EFAULT, f"{address:#x} is no address of the process")
    return data


def copy_out(address: int, data: bytes) -> None:
    """Write to the process's memory; EFAULT where it has none."""
    copy_in(address, len(data))
    poke(address, data)


def find_buffer(kernel: Kernel, handle: int, refusal: int) -> Buffer:
    gpu_id, index = kfd.split_handle(handle)
    buffer = known(kernel, gpu_id).buffers.get(index)
    if buffer is None:
        raise KernelError(refusal, f"no buffer has the handle {handle:#x}")
    return buffer


def alloc_memory(kernel: Kernel, request: kfd.AllocMemoryOfGpu) -> Request:
    flags = AllocFlags(request.flags)
    if not request.size:
        raise KernelError(errno.EINVAL, "size is 0")
    taken = known(kernel, request.gpu_id)
    board = taken.gpu.board
    if flags & AllocFlags.PUBLIC and flags & AllocFlags.VRAM and not board.large_bar:
        raise KernelError(errno.EINVAL, "PUBLIC VRAM needs a large BAR")
    bound(taken)
    size = request.size
    offset = 0
    if flags & AllocFlags.DOORBELL:
        if size != kfd.DOORBELL_BYTES:
            raise KernelError(errno.EINVAL, f"doorbells have {kfd.DOORBELL_BYTES} bytes")
        offset = kfd.mmap_offset(kfd.MmapType.DOORBELL, request.gpu_id)
    elif flags & AllocFlags.MMIO_REMAP:
        if size != kfd.MMIO_REMAP_BYTES:
            raise KernelError(errno.EINVAL, f"the MMIO page has {kfd.MMIO_REMAP_BYTES} bytes")
        offset = kfd.mmap_offset(kfd.MmapType.MMIO, request.gpu_id)
    extent, place = _memory_for(kernel, taken, request, flags)
    taken.next_index += 1
    index = taken.next_index
    if not offset and not flags & AllocFlags.USERPTR:
        offset = 0x1_0000_0000 + (index << 40)
    buffer = Buffer(taken, index, request.va_addr, page_up(size), flags, extent, offset)
    buffer.offset = place
    if flags & AllocFlags.USERPTR and not kernel.machine.owns(kernel.process, request.mmap_offset):
        buffer.adopted = request.mmap_offset
    taken.buffers[index] = buffer
    returned = request.mmap_offset if flags & AllocFlags.USERPTR else offset
    return request.replace(handle=buffer.handle, mmap_offset=returned)


def _memory_for(
    kernel: Kernel, taken: Taken, request: kfd.AllocMemoryOfGpu, flags: AllocFlags
) -> tuple[Extent, int]:
    machine = kernel.machine
    try:
        if flags & AllocFlags.VRAM:
            return _vram(kernel, taken, request.size), 0
        if flags & AllocFlags.GTT:
            return machine.system.alloc(request.size), 0
    except Full as error:
        raise KernelError(errno.ENOMEM, str(error)) from None
    if flags & AllocFlags.USERPTR:
        if not request.mmap_offset or request.mmap_offset % PAGE_BYTES:
            raise KernelError(errno.EINVAL, f"userptr {request.mmap_offset:#x} is not page aligned")
        return machine.host_pages(kernel.process, request.mmap_offset, page_up(request.size))
    if flags & AllocFlags.DOORBELL:
        return machine.doorbells(taken).retain(), 0
    if flags & AllocFlags.MMIO_REMAP:
        return machine.mmio(taken.gpu).retain(), 0
    raise KernelError(errno.EINVAL, "no memory type in the flags")


def _vram(kernel: Kernel, taken: Taken, size_bytes: int) -> Extent:
    vram = taken.gpu.vram
    if vram.used_bytes + page_up(size_bytes) > vram.size_bytes - RESERVED_VRAM:
        raise KernelError(errno.ENOMEM, f"{vram.used_bytes} of {vram.size_bytes} bytes are used")
    extent = vram.alloc(size_bytes)
    if kernel.machine.strict:  # though the kernel clears it: nobody may count on that
        kernel.machine.scramble(extent)
    return extent


def free_memory(kernel: Kernel, request: kfd.FreeMemoryOfGpu) -> Request:
    events = kernel.process.events
    if events.page_handle and events.page_handle == request.handle:
        raise KernelError(errno.EPERM, "the event page stays until the process ends")
    buffer = find_buffer(kernel, request.handle, errno.EINVAL)
    if buffer.mapped:
        raise KernelError(errno.EBUSY, "the buffer is still mapped")
    release(buffer)
    return request


def release(buffer: Buffer) -> None:
    """Take a buffer out of the books."""
    del buffer.owner.buffers[buffer.index]
    if buffer.extent is not None:
        if buffer.adopted:
            machine = buffer.owner.gpu.machine
            machine.give_back_pages(buffer.adopted, buffer.extent, buffer.size_bytes)
        buffer.extent.release()


def _devices(kernel: Kernel, request: kfd.MapMemoryToGpu | kfd.UnmapMemoryFromGpu) -> list[int]:
    if not request.n_devices:
        raise KernelError(errno.EINVAL, "n_devices is 0")
    if request.n_success > request.n_devices:
        raise KernelError(errno.EINVAL, "n_success is more than n_devices")
    raw = copy_in(request.device_ids_array_ptr, 4 * request.n_devices)
    return list(struct.unpack(f"<{request.n_devices}I", raw))


def map_memory(kernel: Kernel, request: kfd.MapMemoryToGpu) -> Request:
    ids = _devices(kernel, request)
    bound(known(kernel, request.handle >> 32))
    buffer = find_buffer(kernel, request.handle, errno.ENOMEM)
    for number in range(request.n_success, request.n_devices):
        taken = bound(known(kernel, ids[number]))
        if taken not in buffer.mapped:
            _map_on(kernel, buffer, taken)
    return request.replace(n_success=request.n_devices)


def _map_on(kernel: Kernel, buffer: Buffer, taken: Taken) -> None:
    if buffer.va % PAGE_BYTES or buffer.va + buffer.size_bytes > USER_LIMIT or not buffer.va:
        raise KernelError(errno.EINVAL, f"{buffer.va:#x} is no address to map at")
    peer = taken is not buffer.owner
    if peer and buffer.flags & AllocFlags.VRAM and not _reachable(kernel, buffer, taken):
        raise KernelError(errno.EINVAL, "no link between these GPUs, or the VRAM is not PUBLIC")
    assert taken.view is not None and buffer.extent is not None
    mapping = Mapping(
        va=buffer.va,
        size_bytes=buffer.size_bytes,
        extent=buffer.extent,
        offset=buffer.offset,
        writable=bool(buffer.flags & AllocFlags.WRITABLE),
        executable=bool(buffer.flags & AllocFlags.EXECUTABLE),
        cached=not buffer.flags & FINE_GRAINED,
        tag=buffer,
    )
    try:
        taken.view.map(mapping)
    except FileExistsError as error:
        raise KernelError(errno.EINVAL, f"bo va conflict: {error}") from None
    buffer.mapped.append(taken)


def _reachable(kernel: Kernel, buffer: Buffer, taken: Taken) -> bool:
    capable = taken.gpu.board.peer_capable and buffer.owner.gpu.board.peer_capable
    return kernel.machine.linked and capable and bool(buffer.flags & AllocFlags.PUBLIC)


def unmap_memory(kernel: Kernel, request: kfd.UnmapMemoryFromGpu) -> Request:
    ids = _devices(kernel, request)
    buffer = find_buffer(kernel, request.handle, errno.ENOMEM)
    if buffer.queues:
        raise KernelError(errno.EBUSY, f"{buffer.queues} queues use the buffer")
    for number in range(request.n_success, request.n_devices):
        taken = known(kernel, ids[number])
        if taken not in buffer.mapped:
            raise KernelError(errno.EINVAL, "the buffer is not mapped on this GPU")
        assert taken.view is not None
        taken.view.unmap(buffer.va)
        buffer.mapped.remove(taken)
    return request.replace(n_success=request.n_devices)


def available_memory(kernel: Kernel, request: kfd.AvailableMemory) -> Request:
    vram = known(kernel, request.gpu_id).gpu.vram
    return request.replace(available=max(vram.size_bytes - RESERVED_VRAM - vram.used_bytes, 0))


def export_dmabuf(kernel: Kernel, request: kfd.ExportDmabuf) -> Request:
    buffer = find_buffer(kernel, request.handle, errno.EINVAL)
    return request.replace(dmabuf_fd=kernel.machine.share(kernel.process, buffer))


def import_dmabuf(kernel: Kernel, request: kfd.ImportDmabuf) -> Request:
    shared = kernel.find_file(request.dmabuf_fd)
    if not isinstance(shared, Buffer) or shared.extent is None:
        raise KernelError(errno.EINVAL, "the descriptor is no dma-buf of a GPU")
    taken = bound(known(kernel, request.gpu_id))
    taken.next_index += 1
    buffer = Buffer(
        taken, taken.next_index, request.va_addr, shared.size_bytes, shared.flags,
        shared.extent.retain(), shared.mmap_offset,
    )  # fmt: skip
    taken.buffers[buffer.index] = buffer
    return request.replace(handle=buffer.handle)


HANDLERS: dict[Any, Callable[[Any, Any], Request]] = {
    kfd.AllocMemoryOfGpu: alloc_memory,
    kfd.FreeMemoryOfGpu: free_memory,
    kfd.MapMemoryToGpu: map_memory,
    kfd.UnmapMemoryFromGpu: unmap_memory,
    kfd.AvailableMemory: available_memory,
    kfd.ExportDmabuf: export_dmabuf,
    kfd.ImportDmabuf: import_dmabuf,
}
