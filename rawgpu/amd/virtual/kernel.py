"""The compute kernel driver's side of /dev/kfd: every request, its checks in the kernel's order.

Handlers are in `kfd_memory.py`, `kfd_queues.py` and `kfd_events.py`, and below those of the process
as a whole. Each takes the request as this kernel's version sees it and returns it answered, or
raises `KernelError`.

Source: linux 6.12.107 amdkfd/kfd_chardev.c.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rawgpu.amd.virtual import kfd_events, kfd_memory, kfd_queues
from rawgpu.amd.virtual.dispatch import NotModelled
from rawgpu.amd.virtual.kfd_memory import bound, known
from rawgpu.amd.virtual.process import KernelError, RenderFile, Taken
from rawgpu.amd.virtual.view import GpuView
from rawgpu.describe.abi import answer_to, root_of
from rawgpu.describe.request import Request
from rawgpu.ioctl import kfd

if TYPE_CHECKING:
    from rawgpu.amd.virtual.machine import Machine
    from rawgpu.amd.virtual.process import Process

R = TypeVar("R", bound=Request)
LDS_BASE, SCRATCH_BASE, APERTURE_BYTES = 1 << 48, 2 << 48, 1 << 32
GPUVM_LIMIT = (1 << 47) - 1


class Kernel:
    """One process's view of KFD. `find_file` is how it looks up the process's descriptors."""

    def __init__(
        self, machine: Machine, process: Process, find_file: Callable[[int], object | None]
    ) -> None:
        self.machine = machine
        self.process = process
        self.find_file = find_file
        for gpu in machine.gpus:
            process.taken[gpu.gpu_id] = Taken(gpu, process)

    def ioctl(self, request: R) -> R:
        """Serve a request of any version."""
        row = self.machine.kernel
        mine = row.abi.receive(request)
        number = request.about.nr
        if mine is None:
            outside = not 0 < number <= row.last_request
            raise KernelError(
                errno.ENOTTY if outside and row.unknown_is_enotty else errno.EINVAL,
                f"this kernel has no request {number:#x}",
            )
        handler = HANDLERS.get(root_of(type(mine)))
        if handler is None:
            raise NotModelled(f"the KFD request {type(mine).__name__}")
        return answer_to(request, handler(self, mine))


def get_version(kernel: Kernel, request: kfd.GetVersion) -> Request:
    major, minor = kernel.machine.kernel.version
    return request.replace(major_version=major, minor_version=minor)


def get_clock_counters(kernel: Kernel, request: kfd.GetClockCounters) -> Request:
    taken = kernel.process.on(request.gpu_id)
    now = kernel.machine.clock.now_ns()
    return request.replace(
        gpu_clock_counter=taken.gpu.clock() if taken is not None else 0,
        cpu_clock_counter=now,
        system_clock_counter=now,
        system_clock_freq=1_000_000_000,
    )


def apertures(kernel: Kernel) -> list[kfd.ProcessDeviceApertures]:
    """Where each visible GPU sees what."""
    return [
        kfd.ProcessDeviceApertures(
            lds_base=LDS_BASE,
            lds_limit=LDS_BASE + APERTURE_BYTES - 1,
            scratch_base=SCRATCH_BASE,
            scratch_limit=SCRATCH_BASE + APERTURE_BYTES - 1,
            gpuvm_base=0x4000,
            gpuvm_limit=GPUVM_LIMIT,
            gpu_id=taken.gpu.gpu_id,
        )
        for taken in kernel.process.taken.values()
        if not taken.gpu.place.hidden
    ]


def get_process_apertures(kernel: Kernel, request: kfd.GetProcessApertures) -> Request:
    rows = apertures(kernel)[: kfd.NODES_IN_OLD_APERTURES]
    return request.replace(process_apertures=tuple(rows), num_of_nodes=len(rows))


def get_process_apertures_new(kernel: Kernel, request: kfd.GetProcessAperturesNew) -> Request:
    rows = apertures(kernel)
    if not request.num_of_nodes:
        return request.replace(num_of_nodes=len(rows))
    rows = rows[: request.num_of_nodes]
    data = b"".join(row.encode() for row in rows)
    kfd_memory.copy_out(request.kfd_process_device_apertures_ptr, data)
    return request.replace(num_of_nodes=len(rows))


def acquire_vm(kernel: Kernel, request: kfd.AcquireVm) -> Request:
    file = kernel.find_file(request.drm_fd)
    if file is None:
        raise KernelError(errno.EINVAL, f"{request.drm_fd} is no open descriptor")
    taken = known(kernel, request.gpu_id)
    if taken.file is not None:
        if taken.file is file:
            return request
        raise KernelError(errno.EBUSY, "another file of this GPU was given before")
    if not isinstance(file, RenderFile) or file.gpu is not taken.gpu:
        raise KernelError(errno.EINVAL, "the descriptor is no render node of this GPU")
    if file.view is None:
        board = taken.gpu.board
        file.view = GpuView(
            strict=kernel.machine.strict,
            xccs=board.xccs,
            sdma_updates_l2=board.sdma_updates_l2,
        )
    taken.file = file
    return request


def set_scratch_backing_va(kernel: Kernel, request: kfd.SetScratchBackingVa) -> Request:
    bound(known(kernel, request.gpu_id)).scratch_va = request.va_addr
    return request


def set_trap_handler(kernel: Kernel, request: kfd.SetTrapHandler) -> Request:
    taken = bound(known(kernel, request.gpu_id), errno.ESRCH)
    taken.trap_handler = (request.tba_addr, request.tma_addr)
    return request


def set_memory_policy(kernel: Kernel, request: kfd.SetMemoryPolicy) -> Request:
    for policy in (request.default_policy, request.alternate_policy):
        if policy not in (kfd.CachePolicy.COHERENT, kfd.CachePolicy.NONCOHERENT):
            raise KernelError(errno.EINVAL, f"no cache policy {policy}")
    bound(known(kernel, request.gpu_id), errno.ESRCH)
    return request


def set_xnack_mode(kernel: Kernel, request: kfd.SetXnackMode) -> Request:
    process = kernel.process
    if request.xnack_enabled < 0:
        return request.replace(xnack_enabled=int(process.xnack))
    if process.queues:
        raise KernelError(errno.EBUSY, "the process has queues")
    if request.xnack_enabled:
        raise KernelError(errno.EPERM, "retry faults are not supported on these GPUs")
    process.xnack = False
    return request


def runtime_enable(kernel: Kernel, request: kfd.RuntimeEnable) -> Request:
    process = kernel.process
    if not request.mode_mask & kfd.RuntimeMode.ENABLE:
        process.runtime_enabled = False
        return request
    if process.runtime_enabled:
        raise KernelError(errno.EBUSY, "enabled already")
    if process.queues:
        raise KernelError(errno.EEXIST, "the process has queues")
    process.runtime_enabled = True
    return request


def create_process(kernel: Kernel, request: kfd.CreateProcess) -> Request:
    del kernel  # the port made the context: it is the descriptor's
    return request


HANDLERS: dict[Any, Callable[[Kernel, Any], Request]] = {
    kfd.GetVersion: get_version,
    kfd.GetClockCounters: get_clock_counters,
    kfd.GetProcessApertures: get_process_apertures,
    kfd.GetProcessAperturesNew: get_process_apertures_new,
    kfd.AcquireVm: acquire_vm,
    kfd.SetScratchBackingVa: set_scratch_backing_va,
    kfd.SetTrapHandler: set_trap_handler,
    kfd.SetMemoryPolicy: set_memory_policy,
    kfd.SetXnackMode: set_xnack_mode,
    kfd.RuntimeEnable: runtime_enable,
    kfd.CreateProcess: create_process,
    **kfd_memory.HANDLERS,
    **kfd_queues.HANDLERS,
    **kfd_events.HANDLERS,
}
