"""What a device says about itself, from topology, rows and the render node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawgpu.amd.driver.program import MAX_BLOCK_THREADS
from rawgpu.amd.driver.topology import title_of
from rawgpu.contract import DeviceProperties
from rawgpu.errors import KernelCallFailed
from rawgpu.ioctl import amdgpu_info
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.connection import Connection, Gpu
    from rawgpu.amd.driver.device import AmdDevice

USUAL_CLOCK_HZ = 100_000_000


def clock_hz(connection: Connection, gpu: Gpu) -> int:
    """Frequency of the GPU's clock; the usual one where this kernel does not tell."""
    kind = amdgpu_info.InfoDevice
    answer = ffi.new("char[]", kind.about.size)
    request = amdgpu_info.Info(
        return_pointer=int(ffi.cast("uintptr_t", answer)),
        return_size=kind.about.size,
        query=amdgpu_info.InfoQuery.DEV_INFO,
    )
    try:
        connection.port.ioctl(gpu.render_fd, request)
    except KernelCallFailed:
        return USUAL_CLOCK_HZ
    return kind.decode(ffi.buffer(answer)[:]).gpu_counter_freq * 1000 or USUAL_CLOCK_HZ


def properties(device: AmdDevice) -> DeviceProperties:
    """The device's row."""
    node, hardware = device.node, device.hardware
    return DeviceProperties(
        name=device.name,
        arch=hardware.name,
        title=title_of(device.port, node),
        lanes=hardware.lanes,
        compute_units=node.cus_per_xcc * node.xccs,
        memory_bytes=node.vram_bytes,
        local_memory_bytes=hardware.lds_bytes,
        max_block_threads=MAX_BLOCK_THREADS,
        max_grid=((1 << 31) - 1,) * 3,
        cache_bytes=node.caches,
        features=frozenset(feature.name.lower() for feature in hardware.features),
        evidence=hardware.evidence if hardware.proven else "no raw driver is known to have run",
    )
