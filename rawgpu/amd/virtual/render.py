"""The render node's side: INFO queries, and what DRM drivers answer in general.

Buffers, contexts and submissions of the graphics driver are not modelled: they raise by name.

Source: linux 6.12.107 amdgpu/amdgpu_kms.c.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rawgpu.amd.virtual import kfd_memory
from rawgpu.amd.virtual.dispatch import NotModelled
from rawgpu.amd.virtual.process import KernelError, RenderFile
from rawgpu.describe.abi import answer_to
from rawgpu.describe.request import Request
from rawgpu.ioctl import amdgpu_info as info
from rawgpu.ioctl import drm
from rawgpu.ioctl.amdgpu_base import HwIp
from rawgpu.ioctl.amdgpu_info import InfoQuery

if TYPE_CHECKING:
    from rawgpu.amd.virtual.gpu import Gpu
    from rawgpu.amd.virtual.machine import Machine

R = TypeVar("R", bound=Request)
DRIVER_NAME, DRIVER_VERSION = b"amdgpu", (3, 59, 0)
FAMILIES = {9: 141, 10: 143, 11: 145, 12: 152}
"""AMDGPU_FAMILY_* by the graphics core's major version."""


def ioctl(machine: Machine, file: RenderFile, request: R) -> R:
    """Serve a request on a render node."""
    mine = machine.kernel.drm.receive(request)
    if mine is None:
        raise KernelError(errno.EINVAL, "no such request")
    if isinstance(mine, drm.Version):
        return answer_to(request, _version(mine))
    if isinstance(mine, info.Info):
        return answer_to(request, _info(file.gpu, mine))
    raise NotModelled(f"the render node's request {type(mine).__name__}")


def _version(request: drm.Version) -> drm.Version:
    texts = {"name": DRIVER_NAME, "date": b"20150101", "desc": b"AMD GPU"}
    reply = request
    for field, text in texts.items():
        room, address = getattr(request, f"{field}_len"), getattr(request, field)
        if room and address:
            kfd_memory.copy_out(address, text[:room])
        reply = reply.replace(**{f"{field}_len": len(text)})
    major, minor, patch = DRIVER_VERSION
    return reply.replace(version_major=major, version_minor=minor, version_patchlevel=patch)


def _info(gpu: Gpu, request: info.Info) -> info.Info:
    answer = ANSWERS.get(InfoQuery(request.query))
    if answer is None:
        raise NotModelled(f"the INFO query {InfoQuery(request.query).name}")
    if not request.return_size or not request.return_pointer:
        raise KernelError(errno.EINVAL, "no room for the answer")
    kfd_memory.copy_out(request.return_pointer, answer(gpu, request)[: request.return_size])
    return request


def _device(gpu: Gpu, request: info.Info) -> bytes:
    board = gpu.board
    row = info.InfoDeviceCaches(
        device_id=board.device_id,
        family=FAMILIES[board.gc_version[0]],
        num_shader_engines=board.arrays // board.arrays_per_engine,
        num_shader_arrays_per_engine=board.arrays_per_engine,
        gpu_counter_freq=board.counter_mhz * 1000,
        max_engine_clock=board.clock_mhz * 1000,
        cu_active_number=board.compute_units,
        virtual_address_offset=0x200000,
        virtual_address_max=1 << 47,
        virtual_address_alignment=4096,
        pte_fragment_size=1 << 21,
        gart_page_size=4096,
        wave_front_size=board.hardware.lanes,
        ids_flags=int(board.integrated),
    )
    return row.encode()


def _memory(gpu: Gpu, request: info.Info) -> bytes:
    size, used = gpu.vram.size_bytes, gpu.vram.used_bytes
    visible = size if gpu.board.large_bar else 256 << 20
    system = gpu.machine.system
    row = info.MemoryInfo(
        vram=_heap(size, used), cpu_accessible_vram=_heap(visible, min(used, visible)),
        gtt=_heap(system.size_bytes, system.used_bytes),
    )  # fmt: skip
    return row.encode()


def _heap(total: int, used: int) -> info.HeapInfo:
    return info.HeapInfo(
        total_heap_size=total,
        usable_heap_size=total,
        heap_usage=used,
        max_allocation=total * 3 // 4,
    )


def _vram_gtt(gpu: Gpu, request: info.Info) -> bytes:
    size = gpu.vram.size_bytes
    return info.InfoVramGtt(
        vram_size=size,
        vram_cpu_accessible_size=size if gpu.board.large_bar else 256 << 20,
        gtt_size=gpu.machine.system.size_bytes,
    ).encode()


def _fault(gpu: Gpu, request: info.Info) -> bytes:
    address, status = gpu.last_fault
    return info.InfoGpuvmFault(addr=address, status=status).encode()


def _firmware(gpu: Gpu, request: info.Info) -> bytes:
    kind = request.arguments.query_fw.fw_type
    versions = {
        info.FirmwareType.GFX_MEC: gpu.board.mec_firmware,
        info.FirmwareType.SDMA: gpu.board.sdma_firmware,
        info.FirmwareType.MES: 0x8B,
        info.FirmwareType.MES_KIQ: 0x8B,
    }
    return info.InfoFirmware(ver=versions.get(kind, 1)).encode()


def _hw_ip(gpu: Gpu, request: info.Info) -> bytes:
    board = gpu.board
    kind = request.arguments.query_hw_ip.type
    version = board.sdma_version if kind is HwIp.DMA else board.gc_version
    return info.InfoHwIp(
        hw_ip_version_major=version[0],
        hw_ip_version_minor=version[1],
        ib_start_alignment=32,
        ib_size_alignment=32,
        available_rings=1,
        ip_discovery_version=version[0] << 16 | version[1] << 8 | version[2],
    ).encode()


def _timestamp(gpu: Gpu, request: info.Info) -> bytes:
    return struct.pack("<Q", gpu.clock())


def _one(gpu: Gpu) -> int:
    return 1


def _vram_used(gpu: Gpu) -> int:
    return gpu.vram.used_bytes


def _gtt_used(gpu: Gpu) -> int:
    return gpu.machine.system.used_bytes


def _resets(gpu: Gpu) -> int:
    return gpu.resets


def _number(of: Callable[[Gpu], int]) -> Callable[[Gpu, info.Info], bytes]:
    return lambda gpu, request: struct.pack("<Q", of(gpu))


ANSWERS: dict[InfoQuery, Callable[[Gpu, info.Info], bytes]] = {
    InfoQuery.ACCEL_WORKING: _number(_one),
    InfoQuery.DEV_INFO: _device,
    InfoQuery.MEMORY: _memory,
    InfoQuery.VRAM_GTT: _vram_gtt,
    InfoQuery.VRAM_USAGE: _number(_vram_used),
    InfoQuery.GTT_USAGE: _number(_gtt_used),
    InfoQuery.VRAM_LOST_COUNTER: _number(_resets),
    InfoQuery.GPUVM_FAULT: _fault,
    InfoQuery.FW_VERSION: _firmware,
    InfoQuery.HW_IP_INFO: _hw_ip,
    InfoQuery.TIMESTAMP: _timestamp,
}
