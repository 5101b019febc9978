"""What the kernel reports of a GPU that faulted or was reset, and the errors it becomes.

The kernel knows the page and the rights, never the kernel's name: a device keeps a list of what it
launched last, and what was allocated and freed where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.amd.spec.vm_fault import VM_L2_PROTECTION_FAULT_STATUS
from rawgpu.errors import KernelCallFailed, KernelFault, PageFault, Reset
from rawgpu.ioctl import amdgpu_info, kfd
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.connection import Connection, Gpu
    from rawgpu.amd.driver.device import AmdDevice


NULL_BYTES = 4096
"""Addresses below are a null pointer's, or an element's of an array there."""
NEW_PROCESS = "a new process, or on a virtual GPU a new room"
"""What helps where the kernel driver serves this one no longer."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One thing that the kernel said."""

    kind: str
    """"page", "poison" or "reset"."""
    address: int = 0
    access: str = "unknown"
    detail: str = ""


def report_memory(connection: Connection, data: kfd.MemoryExceptionData) -> None:
    """Keep what a memory event says."""
    gpu = connection.gpus.get(data.gpu_id)
    if gpu is None:
        return
    failure = data.failure
    if data.ErrorType != kfd.MemoryErrorType.NO_RAS:
        gpu.reports.append(
            Report(kind="poison", address=data.va, detail="an uncorrected ECC error")
        )
        return
    why = "no page is mapped there" if failure.NotPresent else "the page does not allow it"
    access = "execute" if failure.NoExecute else "write" if failure.ReadOnly else "unknown"
    address = data.va
    exact = _gpuvm_fault(connection, gpu)
    if exact is not None and exact.addr & -4096 == data.va & -4096:
        address = exact.addr or address
        if access == "unknown":
            status = VM_L2_PROTECTION_FAULT_STATUS.decode(exact.status, strict=False)
            access = "write" if status.RW else "read"
    if failure.imprecise:
        why += " (imprecise)"
    gpu.evicted = True
    gpu.reports.append(Report(kind="page", address=address, access=access, detail=why))


def report_exception(connection: Connection, data: kfd.HwExceptionData) -> None:
    """Keep what a hardware-exception event says."""
    gpu = connection.gpus.get(data.gpu_id)
    if gpu is not None:
        cause = "an ECC error" if data.reset_cause == kfd.ResetCause.ECC else "a hang"
        whole = "the GPU" if data.reset_type == kfd.ResetType.WHOLE_GPU else "an engine"
        lost = "; its memory is lost" if data.memory_lost else ""
        gpu.reports.append(Report(kind="reset", detail=f"{whole} was reset after {cause}{lost}"))


def _gpuvm_fault(connection: Connection, gpu: Gpu) -> amdgpu_info.InfoGpuvmFault | None:
    """The last fault as the render node tells it; None where this kernel does not."""
    kind = amdgpu_info.InfoGpuvmFault
    answer = ffi.new("char[]", kind.about.size)
    request = amdgpu_info.Info(
        return_pointer=int(ffi.cast("uintptr_t", answer)),
        return_size=kind.about.size,
        query=amdgpu_info.InfoQuery.GPUVM_FAULT,
    )
    try:
        connection.port.ioctl(gpu.render_fd, request)
    except KernelCallFailed:
        return None
    return kind.decode(ffi.buffer(answer)[:])


def explain(device: AmdDevice, report: Report) -> Exception:
    """The error for a report, with what the device knows."""
    running = device.running(every=True)
    if report.kind == "reset":
        return Reset(
            f"{device.name}: {report.detail}",
            running=device.running(),
            hint="close the device and open it again",
        )
    # Queues run their work in order: what was submitted first and is not done was running.
    name = running[0] if running else "unknown"
    lately = tuple(device.lately)
    others = f" (launched lately, newest last: {', '.join(lately)})" if len(lately) > 1 else ""
    text = f"{device.name}: {name}: {report.access} at {report.address:#x}: {report.detail}"
    kind: type[KernelFault] = PageFault if report.kind == "page" else KernelFault
    nearest = device.nearest(report.address)
    if report.kind == "page" and report.address < NULL_BYTES:
        text += "; a null pointer?"
    elif report.kind == "page" or nearest:
        text += f"; it is {nearest}" if nearest else "; no buffer is near"
    if report.kind != "page" or device.connection.can_go_on:
        hint = "close the device and open it again"
    else:
        driver = f"the kernel driver (KFD {device.connection.abi.name})"
        hint = f"{NEW_PROCESS}: {driver} runs nothing more for this process on {device.name}"
    return kind(
        text + others,
        kernel=name,
        address=report.address,
        access=report.access,
        nearest=nearest,
        device_usable=False,
        hint=hint,
    )
