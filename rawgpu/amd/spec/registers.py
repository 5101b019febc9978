"""Compute registers that readers use, per family; names and offsets are the vendor's.

All are shader registers (`SetShReg`), unless they lie at 0x30000 and above. A family restates what
moved. Fields are those of `COMPUTE_*` in Mesa's register database, which AMD's headers fill.
"""

from __future__ import annotations

from rawgpu.describe.register import Register, RegisterSet, register

SOURCE = "Mesa 25.0.7 src/amd/registers"
WITNESS = "vendor header: Mesa's register database (tests/data/abi/amd_compute_regs.json)"
LLVM = "LLVM 22.1 AMDGPUUsage, kernel descriptor of this processor"

USER_DATA_COUNT = 16


def _row(name: str, offset: int, fields: str = "") -> type[Register]:
    return register(name, offset, fields, source=SOURCE, evidence=WITNESS, module=__name__)


def _unproven(name: str, offset: int, fields: str) -> type[Register]:
    return register(name, offset, fields, source=LLVM, module=__name__)


_INITIATOR = (
    "COMPUTE_SHADER_EN 0, PARTIAL_TG_EN 1, FORCE_START_AT_000 2, ORDERED_APPEND_ENBL 3, "
    "ORDERED_APPEND_MODE 4, USE_THREAD_DIMENSIONS 5, ORDER_MODE 6, SCALAR_L1_INV_VOL 10, "
    "VECTOR_L1_INV_VOL 11, RESTORE 14, "
)
_RSRC1 = "VGPRS 5:0, SGPRS 9:6, PRIORITY 11:10, FLOAT_MODE 19:12, PRIV 20, BULKY 24, FP16_OVFL 26, "
_RSRC2 = (
    "SCRATCH_EN 0, TGID_X_EN 7, TGID_Y_EN 8, TGID_Z_EN 9, TG_SIZE_EN 10, TIDIG_COMP_CNT 12:11, "
    "EXCP_EN_MSB 14:13, LDS_SIZE 23:15, EXCP_EN 30:24, "
)
_GFX10_ORDER = ", WGP_MODE 29, MEM_ORDERED 30, FWD_PROGRESS 31"
_THREADS = "NUM_THREAD_FULL 15:0, NUM_THREAD_PARTIAL 31:16"
_LIMITS = (
    "WAVES_PER_SH 9:0, TG_PER_CU 15:12, LOCK_THRESHOLD 21:16, SIMD_DEST_CNTL 22, "
    "FORCE_SIMD_DIST 23, CU_GROUP_COUNT 26:24"
)

COMPUTE_GFX9 = RegisterSet(
    "compute registers of gfx9",
    [
        _row("COMPUTE_DISPATCH_INITIATOR", 0xB800, _INITIATOR + "RESERVED 12"),
        _row("COMPUTE_START_X", 0xB810),
        _row("COMPUTE_START_Y", 0xB814),
        _row("COMPUTE_START_Z", 0xB818),
        _row("COMPUTE_NUM_THREAD_X", 0xB81C, _THREADS),
        _row("COMPUTE_NUM_THREAD_Y", 0xB820, _THREADS),
        _row("COMPUTE_NUM_THREAD_Z", 0xB824, _THREADS),
        _row("COMPUTE_PIPELINESTAT_ENABLE", 0xB828, "PIPELINESTAT_ENABLE 0"),
        _row("COMPUTE_PERFCOUNT_ENABLE", 0xB82C, "PERFCOUNT_ENABLE 0"),
        _row("COMPUTE_PGM_LO", 0xB830),
        _row("COMPUTE_PGM_HI", 0xB834, "DATA 7:0"),
        _row("COMPUTE_DISPATCH_SCRATCH_BASE_LO", 0xB840),
        _row("COMPUTE_DISPATCH_SCRATCH_BASE_HI", 0xB844, "DATA 7:0"),
        _row(
            "COMPUTE_PGM_RSRC1",
            0xB848,
            _RSRC1 + "DX10_CLAMP 21, DEBUG_MODE 22, IEEE_MODE 23, CDBG_USER 25",
        ),
        _row("COMPUTE_PGM_RSRC2", 0xB84C, _RSRC2 + "USER_SGPR 5:1, TRAP_PRESENT 6, SKIP_USGPR0 31"),
        _row("COMPUTE_RESOURCE_LIMITS", 0xB854, _LIMITS + ", SIMD_DISABLE 30:27"),
        _row("COMPUTE_TMPRING_SIZE", 0xB860, "WAVES 11:0, WAVESIZE 24:12"),
        _row("COMPUTE_RESTART_X", 0xB86C),
        _row("COMPUTE_RESTART_Y", 0xB870),
        _row("COMPUTE_RESTART_Z", 0xB874),
        *(_row(f"COMPUTE_USER_DATA_{i}", 0xB900 + 4 * i) for i in range(USER_DATA_COUNT)),
        _row("CP_COHER_START_DELAY", 0x301EC, "START_DELAY_COUNT 5:0"),
    ],
    source=SOURCE,
)
COMPUTE_GFX90A = COMPUTE_GFX9.evolve(
    "compute registers of gfx90a",
    put=[_unproven("COMPUTE_PGM_RSRC3", 0xB8B4, "ACCUM_OFFSET 5:0, TG_SPLIT 16")],
    source=LLVM,
)
COMPUTE_GFX940 = COMPUTE_GFX9.evolve(
    "compute registers of gfx940",
    put=[
        _row("COMPUTE_TG_CHUNK_SIZE", 0xB89C, "TG_CHUNK_SIZE 15:0"),
        _row(
            "COMPUTE_PGM_RSRC3",
            0xB8B4,
            "ACCUM_OFFSET 5:0, TRAP_ON_START 10, TRAP_ON_END 11, TG_SPLIT 16",
        ),
    ],
)
COMPUTE_GFX10 = COMPUTE_GFX9.evolve(
    "compute registers of gfx10",
    put=[
        _row(
            "COMPUTE_DISPATCH_INITIATOR",
            0xB800,
            _INITIATOR + "RESERVED 12, TUNNEL_ENABLE 13, CS_W32_EN 15",
        ),
        _row("COMPUTE_PGM_RSRC1", 0xB848, _RSRC1 + "DX10_CLAMP 21, IEEE_MODE 23" + _GFX10_ORDER),
        _row("COMPUTE_PGM_RSRC2", 0xB84C, _RSRC2 + "USER_SGPR 5:1, TRAP_PRESENT 6"),
        _row("COMPUTE_RESOURCE_LIMITS", 0xB854, _LIMITS),
        _row("COMPUTE_PGM_RSRC3", 0xB8A0, "SHARED_VGPR_CNT 3:0"),
    ],
)
_INITIATOR_11 = "TUNNEL_ENABLE 13, CS_W32_EN 15, AMP_SHADER_EN 16, DISABLE_DISP_PREMPT_EN 17"
COMPUTE_GFX11 = COMPUTE_GFX10.evolve(
    "compute registers of gfx11",
    put=[
        _row("COMPUTE_DISPATCH_INITIATOR", 0xB800, _INITIATOR + "RESERVED 12, " + _INITIATOR_11),
        _row("COMPUTE_TMPRING_SIZE", 0xB860, "WAVES 11:0, WAVESIZE 26:12"),
        _row(
            "COMPUTE_PGM_RSRC3",
            0xB8A0,
            "SHARED_VGPR_CNT 3:0, INST_PREF_SIZE 9:4, TRAP_ON_START 10, TRAP_ON_END 11, "
            "IMAGE_OP 31",
        ),
        _row("COMPUTE_DISPATCH_INTERLEAVE", 0xB8BC, "INTERLEAVE 9:0"),
    ],
    drop=[COMPUTE_GFX10.named("CP_COHER_START_DELAY")],
)
_THREADS_12 = "NUM_THREAD_FULL 12:0, INTERLEAVE_BITS_{0} 15:13, NUM_THREAD_PARTIAL 31:16"
_RSRC1_12 = "WG_RR_EN 21, DEBUG_MODE 22, DISABLE_PERF 23, CDBG_USER 25" + _GFX10_ORDER
COMPUTE_GFX12 = COMPUTE_GFX11.evolve(
    "compute registers of gfx12",
    put=[
        _row(
            "COMPUTE_DISPATCH_INITIATOR",
            0xB800,
            _INITIATOR
            + "PING_PONG_EN 12, "
            + _INITIATOR_11
            + ", INTERLEAVE_2D_EN 18, TTRACE_QUEUE_ID 31:29",
        ),
        _row("COMPUTE_NUM_THREAD_X", 0xB81C, _THREADS_12.format("X")),
        _row("COMPUTE_NUM_THREAD_Y", 0xB820, _THREADS_12.format("Y")),
        _row("COMPUTE_PGM_RSRC1", 0xB848, _RSRC1 + _RSRC1_12),
        _row(
            "COMPUTE_PGM_RSRC2", 0xB84C, _RSRC2 + "USER_SGPR 5:1, DYNAMIC_VGPR 6, WGP_TAKEOVER 31"
        ),
        _row("COMPUTE_TMPRING_SIZE", 0xB860, "WAVES 11:0, WAVESIZE 29:12"),
        _row(
            "COMPUTE_PGM_RSRC3",
            0xB8A0,
            "SHARED_VGPR_CNT 3:0, INST_PREF_SIZE 11:4, GLG_EN 13, IMAGE_OP 31",
        ),
        _row(
            "COMPUTE_DISPATCH_INTERLEAVE",
            0xB8BC,
            "INTERLEAVE_1D 9:0, INTERLEAVE_2D_X_SIZE 19:16, INTERLEAVE_2D_Y_SIZE 27:24",
        ),
    ],
)
COMPUTE_GFX1250 = COMPUTE_GFX12.evolve(
    "compute registers of gfx1250",
    put=[
        _unproven("COMPUTE_PGM_RSRC1", 0xB848, _RSRC1 + _RSRC1_12 + ", FLAT_SCRATCH_IS_NV 27"),
        _unproven("COMPUTE_PGM_RSRC2", 0xB84C, _RSRC2 + "USER_SGPR 6:1, WGP_TAKEOVER 31"),
        _unproven(
            "COMPUTE_PGM_RSRC3",
            0xB8A0,
            "INST_PREF_SIZE 11:4, GLG_EN 13, NAMED_BAR_CNT 16:14, DYNAMIC_VGPR 17, "
            "TCP_SPLIT 20:18, DIDT_THROTTLE 21, IMAGE_OP 31",
        ),
    ],
    source=LLVM,
)
