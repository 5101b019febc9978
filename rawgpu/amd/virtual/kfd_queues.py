"""KFD's queue requests: create, update, destroy, compute-unit masks, wave state.

The checks of CREATE_QUEUE are where most drivers stumble; each says in `why` what it compared.

Source: linux 6.12.107 amdkfd/kfd_chardev.c, kfd_queue.c, kfd_process_queue_manager.c.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rawgpu.amd.virtual.engines import engine_for
from rawgpu.amd.virtual.kfd_memory import USER_LIMIT, bound, copy_in, known
from rawgpu.amd.virtual.process import Buffer, KernelError, Taken
from rawgpu.amd.virtual.queues import NEVER_RUNG, SDMA_TYPES, Queue, Shape
from rawgpu.amd.virtual.save import save
from rawgpu.describe.request import Request
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import QueueType
from rawgpu.virtual.memory import PAGE_BYTES, page_up, poke

if TYPE_CHECKING:
    from rawgpu.amd.virtual.kernel import Kernel

ENOTSUPP = 524
LEAST_RING_BYTES = 1024
MOST_QUEUES, MOST_QUEUES_MULTI_XCC, MOST_OF_PROCESS = 127, 255, 1024
CP_DOORBELLS = 1024
SDMA_DOORBELL_FIRST = 0x100
"""Doorbell numbers kept for SDMA, in both halves of the page."""
SDMA_DOORBELL_STEP, HALF_PAGE = 10, 512


def create_queue(kernel: Kernel, request: kfd.CreateQueue) -> Request:
    shape = _shape(request)
    taken = bound(known(kernel, request.gpu_id), errno.ESRCH)
    board = taken.gpu.board
    if shape.kind is QueueType.SDMA_BY_ENG_ID:
        if shape.engine >= board.sdma_engines + board.sdma_xgmi_engines:
            raise KernelError(errno.EINVAL, f"there is no SDMA engine {shape.engine}")
    buffers = (
        _checked_buffers(kernel, taken, shape)
        if kernel.machine.kernel.queue_buffers_checked
        else []
    )
    _check_room(kernel, taken, shape)
    queue = _make(kernel, taken, shape, buffers)
    offset = kfd.mmap_offset(kfd.MmapType.DOORBELL, request.gpu_id, queue.bit * 8)
    return request.replace(queue_id=queue.id, doorbell_offset=offset)


def _shape(request: kfd.CreateQueue) -> Shape:
    """What the request asks for, after the checks that every kernel makes."""
    ring_bytes = _checked_ring(
        request.ring_base_address,
        request.ring_size,
        request.queue_percentage,
        request.queue_priority,
    )
    for address in (
        request.read_pointer_address,
        request.write_pointer_address,
        request.eop_buffer_address,
        request.ctx_save_restore_address,
    ):
        _accessible(address)
    try:
        kind = QueueType(request.queue_type)
    except ValueError:
        raise KernelError(ENOTSUPP, f"no queue type {request.queue_type}") from None
    return Shape(
        kind=kind,
        ring=request.ring_base_address,
        ring_bytes=ring_bytes,
        write_pointer=request.write_pointer_address,
        read_pointer=request.read_pointer_address,
        percentage=request.queue_percentage,
        priority=request.queue_priority,
        eop=request.eop_buffer_address,
        eop_bytes=request.eop_buffer_size,
        save_area=request.ctx_save_restore_address,
        save_bytes=request.ctx_save_restore_size,
        control_bytes=request.ctl_stack_size,
        engine=getattr(request, "sdma_engine_id", 0),
    )


def _checked_ring(ring: int, ring_bytes: int, percentage: int, priority: int) -> int:
    if percentage & 0xFF > kfd.MAX_QUEUE_PERCENTAGE:
        raise KernelError(errno.EINVAL, f"percentage {percentage & 0xFF} is more than 100")
    if priority > kfd.MAX_QUEUE_PRIORITY:
        raise KernelError(errno.EINVAL, f"priority {priority} is more than 15")
    _accessible(ring)
    if ring_bytes & (ring_bytes - 1):
        raise KernelError(errno.EINVAL, f"ring size {ring_bytes} is no power of two")
    return max(ring_bytes, LEAST_RING_BYTES)


def _accessible(address: int) -> None:
    if address + 8 > USER_LIMIT:
        raise KernelError(errno.EFAULT, f"{address:#x} is no address of the process")


def _checked_buffers(kernel: Kernel, taken: Taken, shape: Shape) -> list[Buffer]:
    """kfd_queue_acquire_buffers: the buffers that the queue keeps resident."""
    return list(_acquire(kernel, taken, shape))


def _acquire(kernel: Kernel, taken: Taken, shape: Shape) -> Iterator[Buffer]:
    yield _whole_mapping(taken, "write pointer", shape.write_pointer & -PAGE_BYTES, PAGE_BYTES)
    yield _whole_mapping(taken, "read pointer", shape.read_pointer & -PAGE_BYTES, PAGE_BYTES)
    yield _whole_mapping(taken, "ring", shape.ring, shape.ring_bytes)
    if shape.kind in SDMA_TYPES:
        return
    exact = kernel.machine.kernel.exact_save_area
    if shape.eop:
        if shape.eop_bytes < PAGE_BYTES or (exact and shape.eop_bytes != PAGE_BYTES):
            raise KernelError(
                errno.EINVAL, f"end-of-pipe buffer of {shape.eop_bytes:#x}, not {PAGE_BYTES:#x}"
            )
        yield _whole_mapping(taken, "end-of-pipe buffer", shape.eop, shape.eop_bytes)
    control, save, debug = taken.gpu.board.save_sizes
    if shape.control_bytes != control:
        raise KernelError(
            errno.EINVAL, f"ctl_stack_size is {shape.control_bytes:#x}, not {control:#x}"
        )
    if shape.save_bytes < save or (exact and shape.save_bytes != save):
        raise KernelError(
            errno.EINVAL, f"ctx_save_restore_size is {shape.save_bytes:#x}, not {save:#x}"
        )
    total = page_up((shape.save_bytes + debug) * taken.gpu.board.xccs)
    yield _whole_mapping(taken, "context save area", shape.save_area, total)


def _whole_mapping(taken: Taken, what: str, va: int, size_bytes: int) -> Buffer:
    """The buffer mapped at exactly this range."""
    assert taken.view is not None
    mapping = taken.view.space.ranges.find(va)
    size = page_up(size_bytes)
    if mapping is None:
        raise KernelError(errno.EINVAL, f"{what}: nothing is mapped at {va:#x}")
    if mapping.va != va or mapping.size_bytes != size:
        raise KernelError(
            errno.EINVAL,
            f"{what}: {size:#x} bytes at {va:#x} are not a whole mapping, which is "
            f"{mapping.size_bytes:#x} bytes at {mapping.va:#x}",
        )
    assert isinstance(mapping.tag, Buffer)
    return mapping.tag


def _check_room(kernel: Kernel, taken: Taken, shape: Shape) -> None:
    board = taken.gpu.board
    mine = [q for q in kernel.process.queues.values() if q.gpu is taken.gpu]
    limit = MOST_QUEUES if board.xccs == 1 else MOST_QUEUES_MULTI_XCC
    if len(mine) >= limit:
        raise KernelError(errno.ENOSPC, f"a process has at most {limit} queues on a GPU")
    if len(kernel.process.queues) >= MOST_OF_PROCESS:
        raise KernelError(errno.ENOMEM, f"a process has at most {MOST_OF_PROCESS} queues")
    if shape.kind not in SDMA_TYPES:
        return
    xgmi = shape.kind is QueueType.SDMA_XGMI
    engines = board.sdma_xgmi_engines if xgmi else board.sdma_engines
    if shape.kind is QueueType.SDMA_BY_ENG_ID:
        engines = 1
        used = sum(q.shape.engine == shape.engine for q in taken.gpu.queues if _is_sdma(q))
    else:
        used = sum(q.shape.kind is shape.kind for q in taken.gpu.queues)
    if used >= engines * board.sdma_queues_per_engine:
        raise KernelError(errno.ENOMEM, "No more SDMA queue to allocate")


def _is_sdma(queue: Queue) -> bool:
    return queue.shape.kind in SDMA_TYPES


def _make(kernel: Kernel, taken: Taken, shape: Shape, buffers: list[Buffer]) -> Queue:
    machine, process = kernel.machine, kernel.process
    number = next(i for i in range(MOST_OF_PROCESS) if i not in process.queues)
    bit = _doorbell_bit(taken, shape)
    extent = machine.doorbells(taken)
    assert taken.view is not None
    queue = Queue(
        id=number,
        process=process,
        gpu=taken.gpu,
        view=taken.view,
        shape=shape,
        doorbell=extent.host + 8 * bit,
        bit=bit,
        chance=machine.chance.fork(f"queue {process.number} {taken.gpu.number} {number}"),
        buffers=buffers,
        vmid=8 + process.number % 8,
        active=shape.percentage & 0xFF > 0 and shape.ring != 0,
    )
    poke(queue.doorbell, struct.pack("<Q", NEVER_RUNG))
    for address in (shape.read_pointer, shape.write_pointer):
        _zero(queue, address)
    for buffer in buffers:
        buffer.queues += 1
    taken.doorbell_bits.add(bit)
    process.queues[number] = queue
    taken.gpu.queues.append(queue)
    queue.front = engine_for(queue)
    if taken.evicted:
        queue.stop("made in a process whose queues are evicted after a page fault")
    return queue


def _zero(queue: Queue, address: int) -> None:
    """The queue begins at 0, whatever the memory holds, if it is there at all."""
    mapping = queue.view.space.ranges.find(address)
    if mapping is not None:
        poke(mapping.host(address), bytes(8))


def _doorbell_bit(taken: Taken, shape: Shape) -> int:
    board = taken.gpu.board
    if shape.kind in SDMA_TYPES:
        engines = max(board.sdma_engines + board.sdma_xgmi_engines, 1)
        first = shape.engine if shape.kind is QueueType.SDMA_BY_ENG_ID else 0
        step = 1 if shape.kind is QueueType.SDMA_BY_ENG_ID else engines
        for queue in range(board.sdma_queues_per_engine):
            for engine in range(first, engines, 1) if step != 1 else (first,):
                at = SDMA_DOORBELL_FIRST + SDMA_DOORBELL_STEP * engine
                bit = at + (queue & 1) * HALF_PAGE + (queue >> 1)
                if bit not in taken.doorbell_bits:
                    return bit
        raise KernelError(errno.ENOMEM, "No more SDMA queue to allocate")
    kept = range(SDMA_DOORBELL_FIRST, HALF_PAGE)
    for bit in range(CP_DOORBELLS):
        if bit not in taken.doorbell_bits and bit % HALF_PAGE not in kept:
            return bit
    raise KernelError(errno.EBUSY, "no doorbell is free")


def update_queue(kernel: Kernel, request: kfd.UpdateQueue) -> Request:
    ring_bytes = _checked_ring(
        request.ring_base_address,
        request.ring_size,
        request.queue_percentage,
        request.queue_priority,
    )
    queue = kernel.process.queues.get(request.queue_id)
    if queue is None:
        raise KernelError(errno.EFAULT, f"no queue {request.queue_id}")
    shape = queue.shape
    shape.percentage, shape.priority = request.queue_percentage, request.queue_priority
    if request.ring_base_address and request.ring_size:
        if kernel.machine.kernel.queue_buffers_checked:
            taken = kernel.process.taken[queue.gpu.gpu_id]
            _whole_mapping(taken, "ring", request.ring_base_address, ring_bytes)
        shape.ring, shape.ring_bytes = request.ring_base_address, ring_bytes
    active = bool(request.ring_base_address) and request.queue_percentage & 0xFF > 0
    if queue.active and not active:
        kernel.machine.preempt(queue)
        if shape.save_area and queue.dead is None:
            queue.saved = save(queue)
    queue.active = active
    return request


def destroy_queue(kernel: Kernel, request: kfd.DestroyQueue) -> Request:
    queue = kernel.process.queues.get(request.queue_id)
    if queue is None:
        raise KernelError(errno.EINVAL, f"no queue {request.queue_id}")
    kernel.machine.preempt(queue)
    remove(queue)
    return request


def remove(queue: Queue) -> None:
    """Take a queue out of the books."""
    queue.stop("destroyed")
    queue.gpu.queues.remove(queue)
    taken = queue.process.taken[queue.gpu.gpu_id]
    taken.doorbell_bits.discard(queue.bit)
    for buffer in queue.buffers:
        buffer.queues -= 1
    del queue.process.queues[queue.id]


def set_cu_mask(kernel: Kernel, request: kfd.SetCuMask) -> Request:
    count = request.num_cu_mask
    if not count or count % 32:
        raise KernelError(errno.EINVAL, f"{count} bits are no multiple of 32")
    queue = kernel.process.queues.get(request.queue_id)
    if queue is None:
        raise KernelError(errno.EFAULT, f"no queue {request.queue_id}")
    count = min(count, 1024)
    queue.cu_mask = struct.unpack(f"<{count // 32}I", copy_in(request.cu_mask_ptr, count // 8))
    return request


def get_queue_wave_state(kernel: Kernel, request: kfd.GetQueueWaveState) -> Request:
    queue = kernel.process.queues.get(request.queue_id)
    if queue is None:
        raise KernelError(errno.EFAULT, f"no queue {request.queue_id}")
    if queue.shape.kind in SDMA_TYPES or queue.active or not queue.shape.save_area:
        raise KernelError(errno.EINVAL, "only stopped compute queues with a save area")
    stack, waves = queue.saved
    return request.replace(ctl_stack_used_size=stack, save_area_used_size=waves)


HANDLERS: dict[Any, Callable[[Any, Any], Request]] = {
    kfd.CreateQueue: create_queue,
    kfd.UpdateQueue: update_queue,
    kfd.DestroyQueue: destroy_queue,
    kfd.SetCuMask: set_cu_mask,
    kfd.GetQueueWaveState: get_queue_wave_state,
}
