"""What kernel and events say when a GPU faults, halts or is reset.

Source: linux 6.12.107 amdgpu/gmc_v11_0.c, amdkfd/kfd_int_process_v11.c, amdgpu_device.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.amd.spec.hardware import Feature
from rawgpu.amd.spec.vm_fault import (
    CLIENTS_GFX10,
    VM_L2_PROTECTION_FAULT_STATUS,
    Permission,
)
from rawgpu.amd.virtual.dispatch import Access, Client, GpuPageFault, HaltCause, WaveHalted
from rawgpu.ioctl import kfd

if TYPE_CHECKING:
    from rawgpu.amd.virtual.process import Process
    from rawgpu.amd.virtual.queues import Queue
    from rawgpu.amd.virtual.sysfs import Place

CLIENT_IDS = {
    client: number
    for number, name in CLIENTS_GFX10.items()
    for client in Client
    if client.value == name
}
"""The graphics hub's numbers. On gfx9 SDMA is behind another hub, which is not modelled."""
PERMISSION = {
    Access.READ: Permission.VALID | Permission.READ,
    Access.WRITE: Permission.VALID | Permission.WRITE,
    Access.EXECUTE: Permission.VALID | Permission.READ | Permission.EXECUTE,
}


@dataclass(frozen=True, kw_only=True)
class Wording:
    """How a generation's page faults are printed."""

    fault: str
    source: str
    register: str


WORDING = {
    False: Wording(
        fault="[gfxhub0] no-retry page fault",
        source="IH client 0x1b (UTCL2)",
        register="VM_L2_PROTECTION_FAULT_STATUS",
    ),
    True: Wording(
        fault="[gfxhub] page fault",
        source="client 10",
        register="GCVM_L2_PROTECTION_FAULT_STATUS",
    ),
}
"""By whether the GPU is of gfx10 or later. Source: amdgpu/gmc_v9_0.c, gmc_v11_0.c."""


def permission_bits(fault: GpuPageFault) -> int:
    """Without the valid bit where the page is there and only the right is missing."""
    bits = PERMISSION[fault.access]
    return bits & ~Permission.VALID if fault.present else bits


def status_word(fault: GpuPageFault, vmid: int) -> int:
    """GCVM_L2_PROTECTION_FAULT_STATUS."""
    return VM_L2_PROTECTION_FAULT_STATUS(
        PERMISSION_FAULTS=Permission(permission_bits(fault)),
        CID=CLIENT_IDS[fault.client],
        RW=int(fault.access is Access.WRITE),
        VMID=vmid,
    ).encode()


def exception_data(gpu_id: int, fault: GpuPageFault) -> kfd.MemoryExceptionData:
    """What memory events say."""
    failure = kfd.MemoryExceptionFailure(
        NotPresent=int(not fault.present),
        ReadOnly=int(fault.access is Access.WRITE),
        NoExecute=int(fault.access is Access.EXECUTE),
    )
    return kfd.MemoryExceptionData(failure=failure, va=fault.address & -4096, gpu_id=gpu_id)


def bus(place: Place) -> str:
    return f"{place.location >> 8:02x}:{place.location >> 3 & 31:02x}.{place.location & 7}"


def page_fault_lines(
    place: Place, process: Process, queue: Queue, fault: GpuPageFault, status: int
) -> list[str]:
    """The kernel log's lines."""
    head = f"amdgpu 0000:{bus(place)}: amdgpu: "
    words = WORDING[Feature.WAVE32 in place.board.hardware.features]
    name, pid = process.name, process.pid
    ring = permission_bits(fault) << 3
    permissions = permission_bits(fault)
    where = f"src_id:0 ring:{ring} vmid:{queue.vmid} pasid:{process.pasid}"
    return [
        f"{head}{words.fault} ({where})",
        f"{head} in process {name} pid {pid} thread {name} pid {pid})",
        f"{head}  in page starting at address 0x{fault.address & -4096:016x} from {words.source}",
        f"{head}{words.register}:0x{status:08X}",
        f"{head}\t Faulty UTCL2 client ID: {fault.client.value} (0x{CLIENT_IDS[fault.client]:x})",
        f"{head}\t MORE_FAULTS: 0x0",
        f"{head}\t WALKER_ERROR: 0x0",
        f"{head}\t PERMISSION_FAULTS: 0x{permissions:x}",
        f"{head}\t MAPPING_ERROR: 0x0",
        f"{head}\t RW: 0x{int(fault.access is Access.WRITE):x}",
    ]


def wave_line(place: Place, halt: WaveHalted) -> str:
    """The rate-limited line for a wave that stopped."""
    kind = halt.cause.value if halt.cause is not HaltCause.TRAP else 0
    detail = f"0x{halt.pc & 0xFFFFFF:08x}"
    return (
        f"amdgpu 0000:{bus(place)}: amdgpu: sq_intr: error, detail {detail}, type {kind}, "
        "sh 0, priv 0, wave_id 0, simd_id 0, wgp_id 0"
    )


def reset_lines(place: Place) -> list[str]:
    """The kernel log of a whole-GPU reset."""
    head = f"amdgpu 0000:{bus(place)}: amdgpu: "
    return [
        f"{head}GPU reset begin!. Source:  3",
        f"{head}MODE1 reset",
        f"{head}GPU mode1 reset",
        f"{head}GPU reset succeeded, trying to resume",
        f"{head}VRAM is lost due to GPU reset!",
        f"{head}GPU reset(1) succeeded!",
    ]


def preemption_lines(queue: Queue) -> list[str]:
    """The kernel log when a queue does not leave the hardware."""
    head = f"amdgpu 0000:{bus(queue.gpu.place)}: amdgpu: "
    doorbell = f"0x{0x1000 + queue.bit * 2:x}"
    if Feature.MES in queue.gpu.board.hardware.features:
        return [
            f"{head}MES failed to respond to msg=REMOVE_QUEUE",
            f"{head}failed to remove hardware queue from MES, doorbell={doorbell}",
            f"{head}MES might be in unrecoverable state, issue a GPU reset",
        ]
    return [
        f"{head}The cp might be in an unrecoverable state due to an unsuccessful queues preemption",
        f"{head}Failed to evict process queues",
    ]
