"""What a driver must know of each AMD GPU beyond its instructions: rows that state differences.

Which packets and registers it has, which caches are flushed at which boundary, how scratch, local
memory and the context save area are sized. `HARDWARE` maps gfx_target_version, as the kernel
reports it, to the row. Code asks a row for a fact, never for its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from rawgpu.amd.spec.pm4 import (
    PM4_GFX9,
    PM4_GFX10,
    AcquireMem,
    AcquireMem10,
    ReleaseMem,
    ReleaseMem10,
)
from rawgpu.amd.spec.registers import (
    COMPUTE_GFX10,
    COMPUTE_GFX11,
    COMPUTE_GFX12,
    COMPUTE_GFX90A,
    COMPUTE_GFX940,
    COMPUTE_GFX1250,
)
from rawgpu.amd.spec.savearea import RECORDS_GFX9, RECORDS_GFX10, RECORDS_GFX12, WaveRecords
from rawgpu.amd.spec.sdma import SDMA_V4, SDMA_V5, SDMA_V6, SDMA_V7
from rawgpu.describe.generation import Generation
from rawgpu.describe.packet import PacketSet
from rawgpu.describe.register import RegisterSet

SOURCE = "linux 6.12.107 amdkfd; LLVM 22.1 AMDGPUUsage"
DRIVER = "foreign driver's stream: tinygrad 0.14 has a driver for it that works on the chip"

COMPUTE_UNIT_SGPR_BYTES = 0x4000
COMPUTE_UNIT_HWREG_BYTES = 0x1000
CONTROL_STACK_HEADER_BYTES = 40
DEBUGGER_BYTES_PER_WAVE = 32
DEBUGGER_ALIGN_BYTES = 64
END_OF_PIPE_BYTES = 4096
PAGE_BYTES = 4096
CODE_ALIGN_BYTES = 256
HDP_FLUSH_REQ = 0xE26
"""Dword index of BIF_BX_PF0_GPU_HDP_FLUSH_REQ on nbio 4.3, 7.2, 7.7 and 7.9 and on nbif 6.3.1."""
HDP_FLUSH_DONE = 0xE27
LDS_APERTURE_HI = 1 << 16
"""High dword of the address at which a flat access means local memory."""
SCRATCH_APERTURE_HI = 2 << 16
"""The same for private memory."""


class Feature(Enum):
    """What some parts have."""

    ARCHITECTED_SCRATCH = "the hardware sets FLAT_SCRATCH from COMPUTE_DISPATCH_SCRATCH_BASE"
    WAVE32 = "waves of 32 lanes, chosen by the dispatch initiator"
    XNACK = "code objects differ by whether page faults are retried"
    SRAMECC = "code objects differ by whether SRAM has ECC"
    PRIV_WORKAROUND = "waves run with PRIV set, against a fault in context save"
    COHER_START_DELAY = "CP_COHER_START_DELAY is set before each dispatch"
    KERNARG_PRELOAD = "the first arguments may come in user SGPRs"
    PRELOAD_PROLOGUE = "code with preloaded arguments has 256 bytes that skip when they are there"
    MES = "queues are scheduled by MES firmware, else by HWS"
    POLL_TWICE = "SDMA firmware may end POLL_REGMEM early"
    HDP_REGISTERS = "the HDP flush registers are where this row's source says"


@dataclass(frozen=True, kw_only=True)
class CachePolicy:
    """Packets for the boundaries of a compute queue; addresses and data are filled in at use.

    `submit`: the host wrote arguments, code or data. `dispatch`: between dispatches. `release`:
    before a signal. A boundary of a PM4 queue; in an AQL queue the packets' scopes do the same.
    """

    submit: AcquireMem
    dispatch: AcquireMem
    release: ReleaseMem


CACHES_GFX9 = CachePolicy(
    submit=AcquireMem(
        sh_icache_action=True,
        sh_kcache_action=True,
        tc_action=True,
        tcl1_action=True,
        tc_wb_action=True,
    ),
    dispatch=AcquireMem(sh_kcache_action=True, tcl1_action=True),
    release=ReleaseMem(address=0, tc_wb_action=True, tc_nc_action=True),
)
CACHES_GFX10 = CachePolicy(
    submit=AcquireMem10(
        gli_inv=1,
        glm_wb=True,
        glm_inv=True,
        glk_wb=True,
        glk_inv=True,
        glv_inv=True,
        gl1_inv=True,
        gl2_inv=True,
        gl2_wb=True,
    ),
    dispatch=AcquireMem10(
        glm_wb=True, glm_inv=True, glk_wb=True, glk_inv=True, glv_inv=True, gl1_inv=True
    ),
    release=ReleaseMem10(
        address=0,
        glm_wb=True,
        glm_inv=True,
        glv_inv=True,
        gl1_inv=True,
        gl2_inv=True,
        gl2_wb=True,
        seq=1,
    ),
)


@dataclass(frozen=True, kw_only=True)
class SaveArea:
    """What the context save area of a queue holds; sizes per compute unit of the topology."""

    vgpr_bytes: int = 0x40000
    lds_bytes: int = 0x10000
    waves_per_cu: int
    waves_per_engine: int | None = None
    """Where shader engines, not compute units, bound the waves."""
    control_bytes_per_wave: int
    control_limit_bytes: int | None = None
    records: WaveRecords = RECORDS_GFX10

    def sizes(self, cus: int, engines: int) -> tuple[int, int, int]:
        """Control stack, control stack plus wave data, and debugger part, of one XCC, in bytes."""
        per_cu = (
            self.vgpr_bytes + COMPUTE_UNIT_SGPR_BYTES + self.lds_bytes + COMPUTE_UNIT_HWREG_BYTES
        )
        waves = cus * self.waves_per_cu
        if self.waves_per_engine is not None:
            waves = min(waves, engines * self.waves_per_engine)
        control = CONTROL_STACK_HEADER_BYTES + waves * self.control_bytes_per_wave + 8
        control = _up(control, PAGE_BYTES)
        if self.control_limit_bytes is not None:
            control = min(control, self.control_limit_bytes)
        debug = _up(waves * DEBUGGER_BYTES_PER_WAVE, DEBUGGER_ALIGN_BYTES)
        return control, control + _up(cus * per_cu, PAGE_BYTES), debug


def _up(value: int, align: int) -> int:
    return (value + align - 1) & -align


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """How private memory is sized and named to the hardware."""

    granule_bytes: int
    """Unit of TMPRING_SIZE.WAVESIZE."""
    waves_per_engine: bool
    """Whether TMPRING_SIZE.WAVES counts per shader engine, else per XCC."""
    buffer_word3: int = 0
    """Last dword of the buffer descriptor, where code or AQL queues have one; no INDEX_STRIDE."""


@dataclass(frozen=True, kw_only=True)
class Hardware(Generation):
    """One GPU. `name` is the compiler's."""

    target_version: int
    lanes: int
    lds_bytes: int = 64 << 10
    lds_granule_bytes: int = 512
    max_user_sgprs: int = 16
    max_waves_per_simd: int
    pm4: PacketSet
    sdma: PacketSet
    registers: RegisterSet
    caches: CachePolicy
    scratch: Scratch
    save_area: SaveArea
    interrupt_context_is_event: bool
    """Whether ReleaseMem's interrupt context may be the event's number; else it is 0."""
    features: frozenset[Feature] = frozenset()
    mach: int
    """Low byte of a code object's e_flags."""
    generic: tuple[int, ...] = ()
    """Low bytes for families whose code runs here too."""
    proven: bool = False
    """Whether a raw driver is known to have worked on this chip."""


GFX90A = Hardware(
    name="gfx90a",
    source=SOURCE,
    target_version=90010,
    lanes=64,
    max_waves_per_simd=8,
    pm4=PM4_GFX9,
    sdma=SDMA_V4,
    registers=COMPUTE_GFX90A,
    caches=CACHES_GFX9,
    scratch=Scratch(granule_bytes=1024, waves_per_engine=False, buffer_word3=0x008A4FAC),
    save_area=SaveArea(
        vgpr_bytes=0x80000,
        waves_per_cu=40,
        waves_per_engine=512,
        control_bytes_per_wave=8,
        records=RECORDS_GFX9,
    ),
    interrupt_context_is_event=False,
    features=frozenset(
        {
            Feature.XNACK,
            Feature.SRAMECC,
            Feature.KERNARG_PRELOAD,
            Feature.PRELOAD_PROLOGUE,
            Feature.HDP_REGISTERS,
            Feature.POLL_TWICE,
        }
    ),
    mach=0x3F,
)
GFX942 = GFX90A.evolve(
    "gfx942",
    source=SOURCE,
    evidence=DRIVER,
    target_version=90402,
    registers=COMPUTE_GFX940,
    save_area=SaveArea(
        vgpr_bytes=0x80000, waves_per_cu=40, control_bytes_per_wave=8, records=RECORDS_GFX9
    ),
    put={"features": [Feature.ARCHITECTED_SCRATCH]},
    drop={"features": [Feature.POLL_TWICE]},
    mach=0x4C,
    generic=(0x5F,),
    proven=True,
)
GFX950 = GFX942.evolve(
    "gfx950",
    source=SOURCE,
    evidence=DRIVER,
    target_version=90500,
    lds_bytes=160 << 10,
    lds_granule_bytes=1280,
    save_area=SaveArea(
        vgpr_bytes=0x80000,
        lds_bytes=160 << 10,
        waves_per_cu=40,
        control_bytes_per_wave=8,
        records=RECORDS_GFX9,
    ),
    mach=0x4F,
)
GFX1030 = Hardware(
    name="gfx1030",
    source=SOURCE,
    target_version=100300,
    lanes=32,
    max_waves_per_simd=16,
    pm4=PM4_GFX10,
    sdma=SDMA_V5,
    registers=COMPUTE_GFX10,
    caches=CACHES_GFX10,
    scratch=Scratch(granule_bytes=1024, waves_per_engine=False, buffer_word3=0x21814FAC),
    save_area=SaveArea(waves_per_cu=32, control_bytes_per_wave=12, control_limit_bytes=0x7000),
    interrupt_context_is_event=True,
    features=frozenset({Feature.WAVE32, Feature.COHER_START_DELAY}),
    mach=0x36,
    generic=(0x53,),
)
_SAVE_GFX11 = SaveArea(vgpr_bytes=0x60000, waves_per_cu=32, control_bytes_per_wave=12)
_SAVE_SMALL = SaveArea(waves_per_cu=32, control_bytes_per_wave=12)
_SAVE_GFX12 = replace(_SAVE_GFX11, records=RECORDS_GFX12)
GFX1100 = GFX1030.evolve(
    "gfx1100",
    source=SOURCE,
    evidence=DRIVER,
    target_version=110000,
    sdma=SDMA_V6,
    registers=COMPUTE_GFX11,
    scratch=Scratch(granule_bytes=256, waves_per_engine=True),
    save_area=_SAVE_GFX11,
    put={
        "features": [
            Feature.ARCHITECTED_SCRATCH,
            Feature.PRIV_WORKAROUND,
            Feature.MES,
            Feature.HDP_REGISTERS,
        ]
    },
    drop={"features": [Feature.COHER_START_DELAY]},
    mach=0x41,
    generic=(0x54,),
    proven=True,
)
GFX1101 = GFX1100.evolve(
    "gfx1101", source=SOURCE, evidence=DRIVER, target_version=110001, mach=0x46
)
GFX1102 = GFX1100.evolve(
    "gfx1102",
    source=SOURCE,
    evidence=DRIVER,
    target_version=110002,
    mach=0x47,
    save_area=_SAVE_SMALL,
)
GFX1103 = GFX1102.evolve(
    "gfx1103",
    source=SOURCE,
    evidence=DRIVER,
    target_version=110003,
    mach=0x44,
)
GFX1150 = GFX1102.evolve(
    "gfx1150",
    source=SOURCE,
    evidence=DRIVER,
    target_version=110500,
    mach=0x43,
    drop={"features": [Feature.HDP_REGISTERS]},  # in BIF_BX_PF1 on some of these
)
GFX1151 = GFX1150.evolve(
    "gfx1151",
    source=SOURCE,
    evidence=DRIVER,
    target_version=110501,
    mach=0x4A,
    save_area=_SAVE_GFX11,
)
GFX1200 = GFX1100.evolve(
    "gfx1200",
    source=SOURCE,
    evidence=DRIVER,
    target_version=120000,
    sdma=SDMA_V7,
    registers=COMPUTE_GFX12,
    save_area=_SAVE_GFX12,
    drop={"features": [Feature.PRIV_WORKAROUND]},
    mach=0x48,
    generic=(0x59,),
)
GFX1201 = GFX1200.evolve(
    "gfx1201", source=SOURCE, evidence=DRIVER, target_version=120001, mach=0x4E
)
GFX1250 = GFX1200.evolve(
    "gfx1250",
    source="LLVM 22.1 AMDGPUUsage",
    target_version=120500,
    lds_bytes=320 << 10,
    lds_granule_bytes=2048,
    max_user_sgprs=32,
    registers=COMPUTE_GFX1250,
    save_area=replace(_SAVE_SMALL, records=RECORDS_GFX12),
    put={"features": [Feature.KERNARG_PRELOAD]},
    drop={"features": [Feature.HDP_REGISTERS]},
    mach=0x49,
    generic=(),
    proven=False,
)

HARDWARE: dict[int, Hardware] = {
    row.target_version: row
    for row in (
        GFX90A, GFX942, GFX950, GFX1030, GFX1100, GFX1101, GFX1102, GFX1103, GFX1150, GFX1151,
        GFX1200, GFX1201, GFX1250,
    )
}  # fmt: skip
"""Rows by the kernel's gfx_target_version."""
BY_NAME: dict[str, Hardware] = {row.name: row for row in HARDWARE.values()}


def name_of(target_version: int) -> str:
    """`gfx90a` for 90010: the step is a hexadecimal digit."""
    major, minor, step = target_version // 10000, target_version // 100 % 100, target_version % 100
    return f"gfx{major}{minor:x}{step:x}"
