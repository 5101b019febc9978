"""Private memory of waves: one buffer per device, as large as the hungriest kernel so far needs.

Sized for waves of 64 lanes whatever the kernel's, because both kinds may run on it. It only grows;
what was encoded for the smaller one keeps that alive.

Source: linux 6.12 amdkfd and ROCR-Runtime, amd_aql_queue.cpp; tinygrad 0.14 ops_amd.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.amd.driver.region import LOCAL, Region, allocate, page_up
from rawgpu.amd.spec.hardware import Feature
from rawgpu.errors import LaunchError

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice

LANES = 64
LIMIT_BYTES = 1 << 17
"""Of one lane. More cannot be said to the hardware of any generation."""
INDEX_STRIDE_SHIFT = 21
SWIZZLE = 1 << 31
STRIDE_OF_LANES = {32: 2, 64: 3}


@dataclass(frozen=True)
class Scratch:
    """What a launch is told. `region` is None while no kernel needed any."""

    region: Region | None
    lane_bytes: int
    xcc_bytes: int
    tmpring: int
    """COMPUTE_TMPRING_SIZE."""
    word3: int

    @property
    def address(self) -> int:
        return self.region.address if self.region is not None else 0

    def buffer(self, lanes: int, size_bytes: int = 0xFFFFFFFF) -> tuple[int, int, int, int]:
        """The buffer descriptor for code that takes one; without a size nothing is checked."""
        low, high = self.address & 0xFFFFFFFF, self.address >> 32
        word3 = self.word3 | STRIDE_OF_LANES[lanes] << INDEX_STRIDE_SHIFT if self.word3 else 0
        return low, high | SWIZZLE, size_bytes & 0xFFFFFFFF, word3


def nothing(device: AmdDevice) -> Scratch:
    """No private memory."""
    return Scratch(None, 0, 0, 0, device.hardware.scratch.buffer_word3)


def make(device: AmdDevice, lane_bytes: int) -> Scratch:
    """Scratch in which each lane has `lane_bytes`. LaunchError where no GPU could."""
    facts, node = device.hardware.scratch, device.node
    if lane_bytes > LIMIT_BYTES:
        raise LaunchError(f"{lane_bytes} bytes of private memory a thread; the limit is 128 KiB")
    step = max(facts.granule_bytes // LANES, 4)
    lane_bytes = (lane_bytes + step - 1) // step * step
    wave_bytes = lane_bytes * LANES
    granules = -(-wave_bytes // facts.granule_bytes)
    waves = max(node["max_slots_scratch_cu"], 1) * node.cus_per_xcc
    engines = node.engines_per_xcc
    if facts.waves_per_engine:
        counted = waves // engines
    else:
        counted = waves // engines * engines
    tmpring = device.hardware.registers.named("COMPUTE_TMPRING_SIZE")
    limit = next(f for f in tmpring.about.fields if f.name == "WAVES")
    counted = min(max(counted, 1), (1 << limit.width) - 1)
    xcc_bytes = page_up(granules * facts.granule_bytes * waves)
    region = allocate(
        device.connection, device.gpu, xcc_bytes * node.xccs, LOCAL, host_visible=False
    )
    value = tmpring(WAVES=counted, WAVESIZE=granules).encode()
    return Scratch(region, lane_bytes, xcc_bytes, value, facts.buffer_word3)


def architected(device: AmdDevice) -> bool:
    """Whether the hardware sets up FLAT_SCRATCH."""
    return Feature.ARCHITECTED_SCRATCH in device.hardware.features
