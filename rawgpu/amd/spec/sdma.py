"""SDMA: packets of the copy engines. Pointers of its rings count bytes.

Versions: v4 of gfx9, v5 of gfx10, v6 of gfx11, v7 of gfx12. A packet here has what a reader uses of
the vendor's; `cpv` says that cache-policy fields count, and stays clear up to v6.
"""

from __future__ import annotations

from enum import IntEnum

from rawgpu.amd.spec.pm4 import Function
from rawgpu.describe.field import dw, dw64, tail
from rawgpu.describe.packet import Header, Packet, PacketSet

WITNESS = "vendor header: linux 6.12 *sdma*_pkt_open.h (tests/data/abi/amd_sdma.json)"
V4 = "linux 6.12 amdgpu/vega10_sdma_pkt_open.h"
V5 = "linux 6.12 amdgpu/navi10_sdma_pkt_open.h"
V6 = "linux 6.12 amdgpu/sdma_v6_0_0_pkt_open.h"
V7 = "linux 6.12 amdgpu/sdma_v7_0.c, sdma_v7_0_emit_copy_buffer"

COPY_BYTES = 1 << 22
"""The largest copy or fill of one packet that every version takes."""
INDIRECT_ALIGN_BYTES = 32


class Opcode(IntEnum):
    """SDMA_OP_*."""

    NOP = 0
    COPY = 1
    WRITE = 2
    INDIRECT = 4
    FENCE = 5
    TRAP = 6
    POLL_REGMEM = 8
    COND_EXE = 9
    ATOMIC = 10
    CONST_FILL = 11
    TIMESTAMP = 13
    SRBM_WRITE = 14
    GCR_REQ = 17


class TimestampOp(IntEnum):
    """SDMA_SUBOP_TIMESTAMP_*."""

    SET = 0
    GET = 1
    GET_GLOBAL = 2


class FillSize(IntEnum):
    """The unit that a ConstantFill repeats."""

    BYTE = 0
    WORD = 1
    DWORD = 2


class Sdma(Packet, header=Header(opcode=(7, 0), sub_opcode=(15, 8))):
    """All packets: no header says how long they are."""


class Nop(Sdma, opcode=Opcode.NOP, source=V4, evidence=WITNESS):
    """Nothing, and as many dwords after it as it says."""

    payload: tuple[int, ...] = tail(1, count=(0, 29, 16), default=())


class CopyLinear(Sdma, opcode=Opcode.COPY, dwords=7, source=V4, evidence=WITNESS):
    """Copy `size_bytes` bytes; source and target do not overlap."""

    encrypt: bool = dw(0, 16, 16, default=False)
    tmz: bool = dw(0, 18, 18, default=False)
    broadcast: bool = dw(0, 27, 27, default=False)
    size_bytes: int = dw(1, 21, 0, bias=-1)
    dst_sw: int = dw(2, 17, 16, default=0)
    src_sw: int = dw(2, 25, 24, default=0)
    source: int = dw64(3)
    target: int = dw64(5)


class CopyLinear5(CopyLinear, source=V5, evidence=WITNESS):
    """v5 can go backwards."""

    backwards: bool = dw(0, 25, 25, default=False)


class CopyLinear6(CopyLinear5, source=V6, evidence=WITNESS):
    """v6 counts in 30 bits."""

    cpv: bool = dw(0, 19, 19, const=0)
    size_bytes: int = dw(1, 29, 0, bias=-1)
    dst_cache_policy: int = dw(2, 20, 18, default=0)
    src_cache_policy: int = dw(2, 28, 26, default=0)


class CopyLinearDcc(CopyLinear6, dwords=8, source=V7):
    """v7's long form: a dword about compression, 0 for none, and `cpv` set."""

    cpv: bool = dw(0, 19, 19, const=1)
    dcc: int = dw(7, default=0)


class WriteUntiled(Sdma, opcode=Opcode.WRITE, source=V4, evidence=WITNESS):
    """Write dwords to consecutive addresses."""

    target: int = dw64(1)
    data: tuple[int, ...] = tail(4, count=(3, 19, 0), bias=-1)


class Indirect(Sdma, opcode=Opcode.INDIRECT, dwords=6, source=V4, evidence=WITNESS):
    """Run `size_dwords` of packets at `address`, 32-byte aligned; ends at 8 dwords."""

    vmid: int = dw(0, 19, 16, default=0)
    address: int = dw64(1, 63, 5, unit=32)
    size_dwords: int = dw(3, 19, 0)
    csa_address: int = dw64(4, default=0)


class Indirect5(Indirect, source=V5, evidence=WITNESS):
    """v5 has a privilege bit."""

    priv: bool = dw(0, 31, 31, default=False)


class Fence(Sdma, opcode=Opcode.FENCE, dwords=4, source=V4, evidence=WITNESS):
    """Write 32 bits when all before is done. `address` is 4-byte aligned."""

    address: int = dw64(1, 63, 2, unit=4)
    data: int = dw(3)


class Fence5(Fence, source=V5, evidence=WITNESS):
    """v5 on: how the write is cached; 3 is uncached."""

    mtype: int = dw(0, 18, 16, default=3)
    gcc: bool = dw(0, 19, 19, default=False)
    sys: bool = dw(0, 20, 20, default=False)
    snp: bool = dw(0, 22, 22, default=False)
    gpa: bool = dw(0, 23, 23, default=False)
    l2_policy: int = dw(0, 25, 24, default=0)


class Fence6(Fence5, source=V6, evidence=WITNESS):
    """v6 has a last-level cache."""

    llc_policy: bool = dw(0, 26, 26, default=False)
    cpv: bool = dw(0, 28, 28, default=False)


class Trap(Sdma, opcode=Opcode.TRAP, dwords=2, source=V4, evidence=WITNESS):
    """Raise an interrupt with `int_context`, an event's number."""

    int_context: int = dw(1, 27, 0)


class PollRegmem(Sdma, opcode=Opcode.POLL_REGMEM, dwords=6, source=V4, evidence=WITNESS):
    """Hold the queue until (what is at `address` & mask) compares to `value`."""

    hdp_flush: bool = dw(0, 26, 26, default=False)
    function: Function = dw(0, 30, 28)
    mem_poll: bool = dw(0, 31, 31, default=True)
    address: int = dw64(1, 63, 2, unit=4)
    value: int = dw(3)
    mask: int = dw(4, default=0xFFFFFFFF)
    interval: int = dw(5, 15, 0, default=4)
    retry_count: int = dw(5, 27, 16, default=0xFFF)  # 0xfff: for ever


class PollRegmem6(PollRegmem, source=V6, evidence=WITNESS):
    """v6 has a cache policy."""

    cache_policy: int = dw(0, 22, 20, default=0)
    cpv: bool = dw(0, 24, 24, default=False)


class CondExe(Sdma, opcode=Opcode.COND_EXE, dwords=5, source=V4, evidence=WITNESS):
    """Skip the next `exec_count` dwords unless the dword at `address` is `reference`."""

    address: int = dw64(1)
    reference: int = dw(3)
    exec_count: int = dw(4, 13, 0)


class Atomic(Sdma, opcode=Opcode.ATOMIC, dwords=8, source=V4, evidence=WITNESS):
    """An atomic operation on memory."""

    loop: bool = dw(0, 16, 16, default=False)
    tmz: bool = dw(0, 18, 18, default=False)
    atomic_op: int = dw(0, 31, 25)
    address: int = dw64(1)
    src_data: int = dw64(3)
    cmp_data: int = dw64(5, default=0)
    loop_interval: int = dw(7, 12, 0, default=0)


class ConstantFill(Sdma, opcode=Opcode.CONST_FILL, dwords=5, source=V4, evidence=WITNESS):
    """Repeat `data`. `size_bytes` is stored less 1 for bytes, less 4 for dwords: see `count`."""

    sw: int = dw(0, 17, 16, default=0)
    fillsize: FillSize = dw(0, 31, 30, default=FillSize.DWORD)
    target: int = dw64(1)
    data: int = dw(3)
    count: int = dw(4, 21, 0)  # bytes - 1, or with FillSize.DWORD bytes - 4


class ConstantFill6(ConstantFill, source=V6, evidence=WITNESS):
    """v6 counts in 30 bits."""

    cache_policy: int = dw(0, 26, 24, default=0)
    cpv: bool = dw(0, 28, 28, default=False)
    count: int = dw(4, 29, 0)


class ConstantFill7(ConstantFill6, source="linux 6.12 amdgpu/sdma_v7_0.c, emit_fill_buffer"):
    """v7 may compress."""

    sw: int = dw(0, 17, 17, default=0)
    compress: bool = dw(0, 16, 16, default=False)


class TimestampGetGlobal(
    Sdma,
    opcode=Opcode.TIMESTAMP,
    sub_opcode=TimestampOp.GET_GLOBAL,
    dwords=3,
    source=V4,
    evidence=WITNESS,
):
    """Write the GPU's 64-bit clock."""

    address: int = dw64(1, 63, 3, unit=8)


class GcrReq(Sdma, opcode=Opcode.GCR_REQ, dwords=5, source=V5, evidence=WITNESS):
    """Write back and invalidate caches, as AcquireMem does; bits of GCR_CNTL."""

    base_va: int = dw64(1, 47, 7, unit=128, default=0)
    gcr_control_15_0: int = dw(2, 31, 16)
    gcr_control_18_16: int = dw(3, 2, 0, default=0)
    limit_va: int = dw64(3, 47, 7, unit=128, default=0)
    vmid: int = dw(4, 27, 24, default=0)


SDMA_V4 = PacketSet(
    "SDMA v4",
    [
        Nop,
        CopyLinear,
        WriteUntiled,
        Indirect,
        Fence,
        Trap,
        PollRegmem,
        CondExe,
        Atomic,
        ConstantFill,
        TimestampGetGlobal,
    ],
    source=V4,
)
SDMA_V5 = SDMA_V4.evolve("SDMA v5", put=[CopyLinear5, Indirect5, Fence5, GcrReq], source=V5)
SDMA_V6 = SDMA_V5.evolve(
    "SDMA v6",
    put=[CopyLinear6, Fence6, PollRegmem6, ConstantFill6],
    drop=[CopyLinear5],
    source=V6,
)
SDMA_V7 = SDMA_V6.evolve("SDMA v7", put=[CopyLinearDcc, ConstantFill7], source=V7)
