"""PM4: the commands of a compute ring, as the micro engine compute (MEC) reads them.

Every packet's length in dwords counts its header. What changed at gfx10 is the caches' bits in
`AcquireMem` and `ReleaseMem`; the sets at the end say which packets an engine understands.
Addresses are GPU virtual addresses. Which caches go with which boundary: `hardware.py`.
"""

from __future__ import annotations

from enum import IntEnum

from rawgpu.describe.field import dw, dw64, tail
from rawgpu.describe.packet import Header, Packet, PacketSet

SOURCE = "linux 6.12.107 amdgpu/soc15d.h and nvd.h, PACKET3_*"
DRIVER = "foreign driver's stream: tinygrad 0.14 on a KFD compute queue"
HEADER = "vendor header: linux 6.12.107 amdgpu/nvd.h and soc15d.h"

SH_BASE = 0xB000
"""Byte offset at which the registers of SetShReg begin."""
UCONFIG_BASE = 0x30000
SH_DWORDS, UCONFIG_DWORDS = -(SH_BASE // 4), -(UCONFIG_BASE // 4)
EVERYTHING = 256 * ((1 << 64) - 1)
"""The `size` of an AcquireMem that covers all memory."""


class EventType(IntEnum):
    """VGT_EVENT_TYPE, what compute rings use of it.

    Evidence: vendor header: Mesa's register database (tests/data/abi/amd_compute_regs.json)
    """

    CS_PARTIAL_FLUSH = 0x07
    CACHE_FLUSH_AND_INV_TS_EVENT = 0x14


class EventIndex(IntEnum):
    """What kind of event a packet carries."""

    OTHER = 0
    PARTIAL_FLUSH = 4
    END_OF_PIPE = 5


class Function(IntEnum):
    """How a wait compares what it reads, masked, with its reference."""

    ALWAYS = 0
    LESS = 1
    LESS_EQUAL = 2
    EQUAL = 3
    NOT_EQUAL = 4
    GREATER_EQUAL = 5
    GREATER = 6


class Space(IntEnum):
    """What a wait reads."""

    REGISTER = 0
    MEMORY = 1


class Operation(IntEnum):
    """`WRITE_WAIT_WRITE` writes the reference to the first register and waits on the second."""

    WAIT = 0
    WRITE_WAIT_WRITE = 1


class DestinationSelect(IntEnum):
    """Through what a ReleaseMem writes.

    Evidence: vendor header: linux 6.12 amdgpu/soc15d.h (tests/data/abi/amd_packets.json)
    """

    MEMORY = 0
    TC_L2 = 1


class InterruptSelect(IntEnum):
    """When a ReleaseMem raises its interrupt.

    Evidence: vendor header: linux 6.12 amdgpu/soc15d.h (tests/data/abi/amd_packets.json)
    """

    NONE = 0
    SEND = 1
    AFTER_WRITE_CONFIRM = 2


class DataSelect(IntEnum):
    """What a ReleaseMem writes."""

    NONE = 0
    DATA_32 = 1
    DATA_64 = 2
    GPU_CLOCK = 3
    SYSTEM_CLOCK = 4
    GDS = 5


class CopySource(IntEnum):
    """Where a CopyData reads."""

    REGISTER = 0
    MEMORY = 1
    TC_L2 = 2
    PERF_COUNTER = 4
    IMMEDIATE = 5
    GPU_CLOCK = 9
    SYSTEM_CLOCK = 10


class CopyTarget(IntEnum):
    """Where WriteData and CopyData write."""

    REGISTER = 0
    TC_L2 = 2
    MEMORY = 5


class DmaSelect(IntEnum):
    """What a side of DmaData is. `ADDRESS_L2` goes through the L2 cache.

    Evidence: vendor header: linux 6.12 amdgpu/soc15d.h (tests/data/abi/amd_packets.json)
    """

    ADDRESS = 0
    GDS = 1
    DATA = 2
    ADDRESS_L2 = 3


class Pm4(
    Packet,
    header=Header(opcode=(15, 8), count=(29, 16), bias=2, single=0x3FFF, fixed={(31, 30): 3}),
):
    """Type 3: all packets with an opcode."""

    predicate: bool = dw(0, 0, 0, default=False)
    compute: bool = dw(0, 1, 1, default=False)  # the shader type; only graphics rings look at it


class Filler(
    Packet,
    header=Header(opcode=(31, 30)),
    opcode=2,
    dwords=1,
    source=SOURCE,
    evidence=HEADER,
):
    """Type 2: one dword that does nothing."""


class Nop(Pm4, opcode=0x10, source=SOURCE, evidence=DRIVER):
    """Nothing; the payload may be anything."""

    payload: tuple[int, ...] = tail(1, default=())


class DispatchDirect(Pm4, opcode=0x15, dwords=5, source=SOURCE, evidence=DRIVER):
    """Start a grid of x * y * z work-groups; of work-items if the initiator says so.

    `initiator` is a COMPUTE_DISPATCH_INITIATOR.
    """

    x: int = dw(1)
    y: int = dw(2)
    z: int = dw(3)
    initiator: int = dw(4)


class DispatchIndirect(Pm4, opcode=0x16, dwords=4, source=SOURCE, evidence=HEADER):
    """As DispatchDirect, with x, y and z read from memory. This is the MEC's form."""

    address: int = dw64(1, 63, 2, unit=4)
    initiator: int = dw(3)


class PredExec(Pm4, opcode=0x23, dwords=2, source=SOURCE, evidence=DRIVER):
    """Run the next `exec_count` dwords only on the XCCs of the mask. Only inside an IB."""

    exec_count: int = dw(1, 13, 0)
    xcc_mask: int = dw(1, 31, 24)


class WriteData(Pm4, opcode=0x37, source=SOURCE, evidence=HEADER):
    """Write dwords to memory, or to a register."""

    dst_sel: CopyTarget = dw(1, 11, 8)
    one_address: bool = dw(1, 16, 16, default=False)
    wr_confirm: bool = dw(1, 20, 20, default=False)
    cache_policy: int = dw(1, 26, 25, default=0)
    engine_sel: int = dw(1, 31, 30, default=0)
    address: int = dw64(2)
    data: tuple[int, ...] = tail(4)


class WaitRegMem(Pm4, opcode=0x3C, dwords=7, source=SOURCE, evidence=DRIVER):
    """Hold the queue until (value & mask) compares to the reference.

    With `Space.REGISTER` the low half of `address` is a register's dword index, the high half that
    of the register which WRITE_WAIT_WRITE waits on.
    """

    function: Function = dw(1, 2, 0)
    mem_space: Space = dw(1, 4, 4)
    operation: Operation = dw(1, 7, 6, default=Operation.WAIT)
    engine: int = dw(1, 8, 8, default=0)
    address: int = dw64(2)
    reference: int = dw(4)
    mask: int = dw(5, default=0xFFFFFFFF)
    poll_interval: int = dw(6, 15, 0, default=4)
    optimize_ace_offload: bool = dw(6, 31, 31, default=False)


class IndirectBuffer(Pm4, opcode=0x3F, dwords=4, source=SOURCE, evidence=DRIVER):
    """Run `size_dwords` of commands at `address`, which is 4-byte aligned, then come back."""

    address: int = dw64(1, 63, 2, unit=4)
    size_dwords: int = dw(3, 19, 0)
    chain: bool = dw(3, 20, 20, default=False)
    valid: bool = dw(3, 23, 23, default=True)
    vmid: int = dw(3, 27, 24, default=0)
    cache_policy: int = dw(3, 29, 28, default=0)
    priv: bool = dw(3, 31, 31, default=False)


class CopyData(Pm4, opcode=0x40, dwords=6, source=SOURCE, evidence=HEADER):
    """Copy 32 or 64 bits between memory, registers, an immediate and clocks."""

    src_sel: CopySource = dw(1, 3, 0)
    dst_sel: CopyTarget = dw(1, 11, 8)
    src_cache_policy: int = dw(1, 14, 13, default=0)
    wide: bool = dw(1, 16, 16, default=False)
    wr_confirm: bool = dw(1, 20, 20, default=False)
    dst_cache_policy: int = dw(1, 26, 25, default=0)
    engine_sel: int = dw(1, 31, 30, default=0)
    source: int = dw64(2)
    target: int = dw64(4)


class EventWrite(Pm4, opcode=0x46, dwords=2, source=SOURCE, evidence=DRIVER):
    """An event in the shader pipeline; CS_PARTIAL_FLUSH waits for the waves of all dispatches."""

    event_type: EventType = dw(1, 5, 0)
    event_index: EventIndex = dw(1, 11, 8)


class ReleaseMem(Pm4, opcode=0x49, dwords=8, source=SOURCE, evidence=DRIVER):
    """When all work before is done: flush caches, then write `data`, then interrupt.

    The cache bits here are gfx9's. Needs the queue's end-of-pipe buffer.
    """

    event_type: EventType = dw(1, 5, 0, default=EventType.CACHE_FLUSH_AND_INV_TS_EVENT)
    event_index: EventIndex = dw(1, 11, 8, default=EventIndex.END_OF_PIPE)
    dst_sel: DestinationSelect = dw(2, 17, 16, default=DestinationSelect.MEMORY)
    int_sel: InterruptSelect = dw(2, 26, 24, default=InterruptSelect.NONE)
    data_sel: DataSelect = dw(2, 31, 29, default=DataSelect.NONE)
    address: int = dw64(3)  # 4-byte aligned, 8-byte for 64 bits of data
    data: int = dw64(5, default=0)
    int_ctxid: int = dw(7, default=0)
    tcl1_vol_action: bool = dw(1, 12, 12, default=False)
    tc_vol_action: bool = dw(1, 13, 13, default=False)
    tc_wb_action: bool = dw(1, 15, 15, default=False)
    tcl1_action: bool = dw(1, 16, 16, default=False)
    tc_action: bool = dw(1, 17, 17, default=False)
    tc_nc_action: bool = dw(1, 19, 19, default=False)
    tc_md_action: bool = dw(1, 21, 21, default=False)


class ReleaseMem10(
    ReleaseMem,
    drop=(
        "tcl1_vol_action", "tc_vol_action", "tc_wb_action", "tcl1_action", "tc_action",
        "tc_nc_action", "tc_md_action",
    ),
    source="linux 6.12.107 amdgpu/nvd.h, PACKET3_RELEASE_MEM",
    evidence=DRIVER,
):  # fmt: skip
    """From gfx10 on: caches by name. `seq` 1: first L1, then L2."""

    glm_wb: bool = dw(1, 12, 12, default=False)
    glm_inv: bool = dw(1, 13, 13, default=False)
    glv_inv: bool = dw(1, 14, 14, default=False)
    gl1_inv: bool = dw(1, 15, 15, default=False)
    gl2_us: bool = dw(1, 16, 16, default=False)
    gl2_range: int = dw(1, 18, 17, default=0)
    gl2_discard: bool = dw(1, 19, 19, default=False)
    gl2_inv: bool = dw(1, 20, 20, default=False)
    gl2_wb: bool = dw(1, 21, 21, default=False)
    seq: int = dw(1, 23, 22, default=0)
    cache_policy: int = dw(1, 26, 25, default=0)
    execute: bool = dw(1, 28, 28, default=False)


class DmaData(
    Pm4,
    opcode=0x50,
    dwords=7,
    source="Mesa 25.0.7 amd/common/sid.h, DMA_DATA",
    evidence="vendor header: linux 6.12 amdgpu/soc15d.h (tests/data/abi/amd_packets.json)",
):
    """A copy by the command processor. `source` holds a dword to fill with if src_sel is DATA."""

    engine: int = dw(1, 0, 0, default=0)
    src_cache_policy: int = dw(1, 14, 13, default=0)
    dst_sel: DmaSelect = dw(1, 21, 20, default=DmaSelect.ADDRESS_L2)
    dst_cache_policy: int = dw(1, 26, 25, default=0)
    src_sel: DmaSelect = dw(1, 30, 29, default=DmaSelect.ADDRESS_L2)
    cp_sync: bool = dw(1, 31, 31, default=False)
    source: int = dw64(2)
    target: int = dw64(4)
    byte_count: int = dw(6, 25, 0)
    raw_wait: bool = dw(6, 30, 30, default=False)
    dis_wc: bool = dw(6, 31, 31, default=False)


class AcquireMem(Pm4, opcode=0x58, dwords=7, source=SOURCE, evidence=DRIVER):
    """Write back and invalidate caches before what follows. gfx9: the bits of CP_COHER_CNTL.

    `base` and `size` are multiples of 256 bytes; `EVERYTHING` is all memory.
    """

    tc_nc_action: bool = dw(1, 3, 3, default=False)
    tc_wc_action: bool = dw(1, 4, 4, default=False)
    tc_inv_metadata: bool = dw(1, 5, 5, default=False)
    tcl1_vol_action: bool = dw(1, 15, 15, default=False)
    tc_wb_action: bool = dw(1, 18, 18, default=False)
    tcl1_action: bool = dw(1, 22, 22, default=False)
    tc_action: bool = dw(1, 23, 23, default=False)
    cb_action: bool = dw(1, 25, 25, default=False)
    db_action: bool = dw(1, 26, 26, default=False)
    sh_kcache_action: bool = dw(1, 27, 27, default=False)
    sh_kcache_vol_action: bool = dw(1, 28, 28, default=False)
    sh_icache_action: bool = dw(1, 29, 29, default=False)
    sh_kcache_wb_action: bool = dw(1, 30, 30, default=False)
    size: int = dw64(2, unit=256, default=EVERYTHING)
    base: int = dw64(4, unit=256, default=0)
    poll_interval: int = dw(6, 15, 0, default=0xA)


class AcquireMem10(
    AcquireMem,
    dwords=8,
    drop=(
        "tc_nc_action", "tc_wc_action", "tc_inv_metadata", "tcl1_vol_action", "tc_wb_action",
        "tcl1_action", "tc_action", "cb_action", "db_action", "sh_kcache_action",
        "sh_kcache_vol_action", "sh_icache_action", "sh_kcache_wb_action", "poll_interval",
    ),
    source="linux 6.12.107 amdgpu/nvd.h, PACKET3_ACQUIRE_MEM",
    evidence=DRIVER,
):  # fmt: skip
    """From gfx10 on: GCR_CNTL. `gli_inv` is the instruction cache; dword 1 is not used."""

    poll_interval: int = dw(6, 15, 0, default=0)
    gli_inv: int = dw(7, 1, 0, default=0)
    gl1_range: int = dw(7, 3, 2, default=0)
    glm_wb: bool = dw(7, 4, 4, default=False)
    glm_inv: bool = dw(7, 5, 5, default=False)
    glk_wb: bool = dw(7, 6, 6, default=False)
    glk_inv: bool = dw(7, 7, 7, default=False)
    glv_inv: bool = dw(7, 8, 8, default=False)
    gl1_inv: bool = dw(7, 9, 9, default=False)
    gl2_us: bool = dw(7, 10, 10, default=False)
    gl2_range: int = dw(7, 12, 11, default=0)
    gl2_discard: bool = dw(7, 13, 13, default=False)
    gl2_inv: bool = dw(7, 14, 14, default=False)
    gl2_wb: bool = dw(7, 15, 15, default=False)
    seq: int = dw(7, 17, 16, default=0)
    range_is_pa: bool = dw(7, 18, 18, default=False)


class SetShReg(Pm4, opcode=0x76, source=SOURCE, evidence=DRIVER):
    """Write consecutive shader registers; `register` is the first one's byte offset."""

    register: int = dw(1, 15, 0, unit=4, bias=SH_DWORDS)
    values: tuple[int, ...] = tail(2)


class SetUconfigReg(Pm4, opcode=0x79, source=SOURCE, evidence=DRIVER):
    """Write consecutive user configuration registers; `register` is a byte offset."""

    register: int = dw(1, 15, 0, unit=4, bias=UCONFIG_DWORDS)
    values: tuple[int, ...] = tail(2)


PM4_GFX9 = PacketSet(
    "PM4 of gfx9",
    [
        Filler,
        Nop,
        DispatchDirect,
        DispatchIndirect,
        PredExec,
        WriteData,
        WaitRegMem,
        IndirectBuffer,
        CopyData,
        EventWrite,
        ReleaseMem,
        DmaData,
        AcquireMem,
        SetShReg,
        SetUconfigReg,
    ],
    source=SOURCE,
)
PM4_GFX10 = PM4_GFX9.evolve(
    "PM4 of gfx10",
    put=[ReleaseMem10, AcquireMem10],
    source="linux 6.12.107 amdgpu/nvd.h",
)
