"""The graphics cards of a virtual machine: what the kernel says of each in sysfs.

`Board` rows have what differs between cards; how the chip itself works stands in
`spec/hardware.py`. Numbers of gfx1100 are those of a recorded machine (tinygrad's mock); of the
others they are the products' published sizes, and identifiers that no driver looks at are made up.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawgpu.amd.spec.hardware import BY_NAME, Hardware
from rawgpu.describe.generation import Generation

SOURCE = "linux 6.12.107 amdkfd/kfd_topology.c; AMD product specifications"
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Board(Generation):
    """One card. `name` is the compiler's name of its chip."""

    title: str
    codename: str
    device_id: int
    vram_bytes: int
    compute_units: int
    """All of the card; a WGP counts as two."""
    simd_per_cu: int
    arrays: int
    """Shader arrays of the card."""
    arrays_per_engine: int
    xccs: int = 1
    scratch_slots_per_cu: int = 32
    sdma_engines: int
    sdma_xgmi_engines: int = 0
    sdma_queues_per_engine: int
    compute_queues: int = 24
    vgpr_granule: int = 8
    """Vector registers that one step of RSRC1.VGPRS allocates; half for wave64 from gfx10 on."""
    clock_mhz: int
    counter_mhz: int = 100
    mec_firmware: int
    sdma_firmware: int
    sdma_updates_l2: bool = True
    """Whether copy engines write through L2 (gfx10 and later), else L2 keeps what it had."""
    large_bar: bool = True
    integrated: bool = False
    link_type: int = 2
    """2 PCIe, 11 XGMI."""
    gc_version: tuple[int, int, int]
    sdma_version: tuple[int, int, int]
    nbio_version: tuple[int, int, int]
    capability: int = 0x28073F80

    @property
    def hardware(self) -> Hardware:
        return BY_NAME[self.name]

    @property
    def engines(self) -> int:
        """Shader engines per XCC."""
        return self.arrays // self.arrays_per_engine // self.xccs

    @property
    def save_sizes(self) -> tuple[int, int, int]:
        """Control stack, control stack plus wave data, debugger part: bytes per XCC."""
        return self.hardware.save_area.sizes(self.compute_units // self.xccs, self.engines)

    @property
    def peer_capable(self) -> bool:
        return self.large_bar and not self.integrated


GFX1100 = Board(
    name="gfx1100",
    source=SOURCE,
    evidence="recorded trace: sysfs of a machine with six of them, in tinygrad 0.14 test/mockgpu",
    title="Radeon RX 7900 XTX",
    codename="ip discovery",
    device_id=0x744C,
    vram_bytes=24 * GIB,
    compute_units=96,
    simd_per_cu=2,
    arrays=12,
    arrays_per_engine=2,
    sdma_engines=2,
    sdma_queues_per_engine=6,
    clock_mhz=2482,
    mec_firmware=550,
    sdma_firmware=20,
    gc_version=(11, 0, 0),
    sdma_version=(6, 0, 0),
    nbio_version=(4, 3, 0),
)
GFX1101 = GFX1100.evolve(
    "gfx1101", source=SOURCE, title="Radeon RX 7800 XT", device_id=0x747E, vram_bytes=16 * GIB,
    compute_units=60, arrays=6, clock_mhz=2430, gc_version=(11, 0, 3), sdma_version=(6, 0, 3),
)  # fmt: skip
GFX1102 = GFX1100.evolve(
    "gfx1102", source=SOURCE, title="Radeon RX 7600", device_id=0x7480, vram_bytes=8 * GIB,
    compute_units=32, arrays=4, clock_mhz=2655, gc_version=(11, 0, 2), sdma_version=(6, 0, 2),
)  # fmt: skip
GFX1103 = GFX1100.evolve(
    "gfx1103", source=SOURCE, title="Radeon 780M", device_id=0x15BF, vram_bytes=4 * GIB,
    compute_units=12, arrays=2, clock_mhz=2700, gc_version=(11, 0, 1), sdma_version=(6, 0, 1),
    sdma_engines=1, integrated=True, nbio_version=(7, 7, 0),
)  # fmt: skip
GFX1150 = GFX1103.evolve(
    "gfx1150", source=SOURCE, title="Radeon 890M", device_id=0x150E, compute_units=16,
    clock_mhz=2900, gc_version=(11, 5, 0), sdma_version=(6, 1, 0), nbio_version=(7, 11, 0),
)  # fmt: skip
GFX1151 = GFX1150.evolve(
    "gfx1151", source=SOURCE, title="Radeon 8060S", device_id=0x1586, vram_bytes=64 * GIB,
    compute_units=40, arrays=4, gc_version=(11, 5, 1), sdma_version=(6, 1, 1),
    nbio_version=(7, 11, 1),
)  # fmt: skip
GFX1200 = GFX1100.evolve(
    "gfx1200", source=SOURCE, title="Radeon RX 9060 XT", device_id=0x7590, vram_bytes=16 * GIB,
    compute_units=32, arrays=4, clock_mhz=3130, gc_version=(12, 0, 0), sdma_version=(7, 0, 0),
    nbio_version=(6, 3, 1), sdma_queues_per_engine=8,
)  # fmt: skip
GFX1201 = GFX1200.evolve(
    "gfx1201", source=SOURCE, title="Radeon RX 9070 XT", device_id=0x7550, compute_units=64,
    arrays=8, clock_mhz=2970, gc_version=(12, 0, 1), sdma_version=(7, 0, 1),
)  # fmt: skip
GFX1250 = GFX1201.evolve(
    "gfx1250", source="LLVM 22.1 AMDGPUUsage; the rest is a guess", title="gfx1250",
    device_id=0x75A0, vgpr_granule=16, gc_version=(12, 5, 0),
)  # fmt: skip
GFX1030 = GFX1100.evolve(
    "gfx1030", source=SOURCE, title="Radeon RX 6900 XT", device_id=0x73BF, vram_bytes=16 * GIB,
    compute_units=80, arrays=8, clock_mhz=2660, gc_version=(10, 3, 0), sdma_version=(5, 2, 0),
    nbio_version=(2, 3, 0), mec_firmware=112, sdma_firmware=83, sdma_queues_per_engine=8,
)  # fmt: skip
GFX90A = Board(
    name="gfx90a",
    source=SOURCE,
    title="Instinct MI210",
    codename="aldebaran",
    device_id=0x740F,
    vram_bytes=64 * GIB,
    compute_units=104,
    simd_per_cu=4,
    arrays=8,
    arrays_per_engine=1,
    sdma_engines=2,
    sdma_xgmi_engines=3,
    sdma_queues_per_engine=8,
    clock_mhz=1700,
    mec_firmware=78,
    sdma_firmware=8,
    link_type=11,
    sdma_updates_l2=False,
    gc_version=(9, 4, 2),
    sdma_version=(4, 4, 0),
    nbio_version=(7, 4, 4),
    capability=0x2C0F3F80,
)
GFX942 = GFX90A.evolve(
    "gfx942", source=SOURCE, title="Instinct MI300X", codename="ip discovery", device_id=0x74A1,
    vram_bytes=192 * GIB, compute_units=304, arrays=32, xccs=8, sdma_xgmi_engines=14,
    clock_mhz=2100, gc_version=(9, 4, 3), sdma_version=(4, 4, 2), nbio_version=(7, 9, 0),
    mec_firmware=155, sdma_firmware=22,
)  # fmt: skip
GFX950 = GFX942.evolve(
    "gfx950", source=SOURCE, title="Instinct MI350X", device_id=0x75A0, vram_bytes=288 * GIB,
    compute_units=256, clock_mhz=2200, gc_version=(9, 5, 0), sdma_version=(4, 4, 5),
)  # fmt: skip

BOARDS: dict[str, Board] = {
    board.name: board
    for board in (
        GFX90A, GFX942, GFX950, GFX1030, GFX1100, GFX1101, GFX1102, GFX1103, GFX1150, GFX1151,
        GFX1200, GFX1201, GFX1250,
    )
}  # fmt: skip
"""By the name that a room's text uses."""
