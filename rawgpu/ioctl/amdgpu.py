"""Requests of a render node (/dev/dri/renderD*) of the amdgpu driver.

The compute driver needs few of them: INFO queries (`amdgpu_info.py`), and mmap of memory that KFD
allocated. The rest, buffers, contexts and command submission, serves as the way to a GPU where
/dev/kfd is absent. The kernel dispatches on `nr`, takes the larger of the user's size and its own,
and fills with zeros.

Where C has a union of `in` and `out`, the fields here are `in`, and a reply has `out`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Annotated

from rawgpu.describe.abi import Abi
from rawgpu.describe.request import I32, U16, U32, U64, Request, Struct, Union, answer, pointer
from rawgpu.ioctl import amdgpu_info, drm
from rawgpu.ioctl.amdgpu_base import HEADER, AmdgpuRequest, AmdgpuStruct, HwIp


class GemDomain(IntFlag):
    """AMDGPU_GEM_DOMAIN_*."""

    CPU = 1 << 0
    GTT = 1 << 1
    VRAM = 1 << 2
    GDS = 1 << 3
    GWS = 1 << 4
    OA = 1 << 5
    DOORBELL = 1 << 6


class GemCreateFlags(IntFlag):
    """AMDGPU_GEM_CREATE_*."""

    CPU_ACCESS_REQUIRED = 1 << 0
    NO_CPU_ACCESS = 1 << 1
    CPU_GTT_USWC = 1 << 2
    VRAM_CLEARED = 1 << 3
    VRAM_CONTIGUOUS = 1 << 5
    VM_ALWAYS_VALID = 1 << 6
    EXPLICIT_SYNC = 1 << 7
    CP_MQD_GFX9 = 1 << 8
    VRAM_WIPE_ON_RELEASE = 1 << 9
    ENCRYPTED = 1 << 10
    PREEMPTIBLE = 1 << 11
    DISCARDABLE = 1 << 12
    COHERENT = 1 << 13
    UNCACHED = 1 << 14
    EXT_COHERENT = 1 << 15
    GFX12_DCC = 1 << 16


class VaOp(IntEnum):
    """AMDGPU_VA_OP_*."""

    MAP = 1
    UNMAP = 2
    CLEAR = 3
    REPLACE = 4


class VmPageFlags(IntFlag):
    """AMDGPU_VM_PAGE_* and AMDGPU_VM_*; MTYPE is a number in bits 8:5."""

    DELAY_UPDATE = 1 << 0
    READABLE = 1 << 1
    WRITEABLE = 1 << 2
    EXECUTABLE = 1 << 3
    PRT = 1 << 4
    MTYPE_NC = 1 << 5
    MTYPE_WC = 2 << 5
    MTYPE_CC = 3 << 5
    MTYPE_UC = 4 << 5
    MTYPE_RW = 5 << 5
    NOALLOC = 1 << 9


class CtxOp(IntEnum):
    """AMDGPU_CTX_OP_*."""

    ALLOC_CTX = 1
    FREE_CTX = 2
    QUERY_STATE = 3
    QUERY_STATE2 = 4
    GET_STABLE_PSTATE = 5
    SET_STABLE_PSTATE = 6


class CtxState(IntFlag):
    """AMDGPU_CTX_QUERY2_FLAGS_*."""

    RESET = 1 << 0
    VRAMLOST = 1 << 1
    GUILTY = 1 << 2
    RAS_CE = 1 << 3
    RAS_UE = 1 << 4
    RESET_IN_PROGRESS = 1 << 5


class BoListOp(IntEnum):
    """AMDGPU_BO_LIST_OP_*."""

    CREATE = 0
    DESTROY = 1
    UPDATE = 2


class ChunkId(IntEnum):
    """AMDGPU_CHUNK_ID_*."""

    IB = 1
    FENCE = 2
    DEPENDENCIES = 3
    SYNCOBJ_IN = 4
    SYNCOBJ_OUT = 5
    BO_HANDLES = 6
    SCHEDULED_DEPENDENCIES = 7
    SYNCOBJ_TIMELINE_WAIT = 8
    SYNCOBJ_TIMELINE_SIGNAL = 9
    CP_GFX_SHADOW = 10


class IbFlags(IntFlag):
    """AMDGPU_IB_FLAG_* and AMDGPU_IB_FLAGS_*."""

    CE = 1 << 0
    PREAMBLE = 1 << 1
    PREEMPT = 1 << 2
    TC_WB_NOT_INVALIDATE = 1 << 3
    RESET_GDS_MAX_WAVE_ID = 1 << 4
    SECURE = 1 << 5
    EMIT_MEM_SYNC = 1 << 6


class UserptrFlags(IntFlag):
    """AMDGPU_GEM_USERPTR_*."""

    READONLY = 1 << 0
    ANONONLY = 1 << 1
    VALIDATE = 1 << 2
    REGISTER = 1 << 3


class GemOpKind(IntEnum):
    """AMDGPU_GEM_OP_*."""

    GET_GEM_CREATE_INFO = 0
    SET_PLACEMENT = 1


class UserqOp(IntEnum):
    """AMDGPU_USERQ_OP_*."""

    CREATE = 1
    FREE = 2


class GemCreateOut(AmdgpuStruct):
    """The new buffer."""

    handle: U32 = 0
    _pad: U32 = 0


class GemCreate(AmdgpuRequest, nr=0x40, c="drm_amdgpu_gem_create_in"):
    """Allocate a buffer; sizes in bytes."""

    bo_size: U64
    alignment: U64 = 0
    domains: Annotated[GemDomain, "Q"]
    domain_flags: Annotated[GemCreateFlags, "Q"] = GemCreateFlags(0)
    out: GemCreateOut | None = answer()


class GemMmapOut(AmdgpuStruct):
    """The offset for mmap of the render node."""

    addr_ptr: U64 = 0


class GemMmap(AmdgpuRequest, nr=0x41, c="drm_amdgpu_gem_mmap_in"):
    """How to map a buffer for the CPU."""

    handle: U32
    _pad: U32 = 0
    out: GemMmapOut | None = answer()


class CtxOutAlloc(AmdgpuStruct, c="-"):
    """A new context."""

    ctx_id: U32 = 0
    _pad: U32 = 0


class CtxOutState(AmdgpuStruct, c="-"):
    """What happened to a context."""

    flags: Annotated[CtxState, "Q"] = CtxState(0)
    hangs: U32 = 0
    reset_status: U32 = 0


class CtxOutPstate(AmdgpuStruct, c="-"):
    """Clocks held stable."""

    flags: U32 = 0
    _pad: U32 = 0


class CtxOut(Union, c="drm_amdgpu_ctx_out"):
    """What Ctx answers, by operation."""

    alloc: CtxOutAlloc = CtxOutAlloc()
    state: CtxOutState = CtxOutState()
    pstate: CtxOutPstate = CtxOutPstate()


class Ctx(AmdgpuRequest, nr=0x42, c="drm_amdgpu_ctx_in"):
    """Make, free or ask about a submission context."""

    op: Annotated[CtxOp, "I"]
    flags: U32 = 0
    ctx_id: U32 = 0
    priority: I32 = 0
    out: CtxOut | None = answer()


class BoListEntry(AmdgpuStruct):
    """A buffer that a submission uses."""

    bo_handle: U32
    bo_priority: U32 = 0


class BoListOut(AmdgpuStruct):
    """The new list."""

    list_handle: U32 = 0
    _pad: U32 = 0


class BoList(AmdgpuRequest, nr=0x43, c="drm_amdgpu_bo_list_in"):
    """A list of buffers for submissions."""

    operation: Annotated[BoListOp, "I"]
    list_handle: U32 = 0
    bo_number: U32
    bo_info_size: U32 = 8
    bo_info_ptr: U64 = pointer(BoListEntry, count="bo_number")
    out: BoListOut | None = answer()


class CsChunk(AmdgpuStruct):
    """A part of a submission; `length_dw` dwords at `chunk_data`."""

    chunk_id: Annotated[ChunkId, "I"]
    length_dw: U32
    chunk_data: U64


class CsChunkIb(AmdgpuStruct):
    """An indirect buffer to run."""

    _pad: U32 = 0
    flags: Annotated[IbFlags, "I"] = IbFlags(0)
    va_start: U64
    ib_bytes: U32
    ip_type: Annotated[HwIp, "I"]
    ip_instance: U32 = 0
    ring: U32 = 0


class CsChunkFence(AmdgpuStruct):
    """Where the kernel writes a fence for the user."""

    handle: U32
    offset: U32


class CsChunkDep(AmdgpuStruct):
    """A submission to wait for."""

    ip_type: Annotated[HwIp, "I"]
    ip_instance: U32 = 0
    ring: U32 = 0
    ctx_id: U32
    handle: U64


class CsChunkSyncobj(AmdgpuStruct):
    """A point of a timeline to wait for or to signal."""

    handle: U32
    flags: U32 = 0
    point: U64


class CsOut(AmdgpuStruct):
    """The submission's sequence number."""

    handle: U64 = 0


class Cs(AmdgpuRequest, nr=0x44, c="drm_amdgpu_cs_in"):
    """Submit. `chunks` points to `num_chunks` addresses of CsChunk."""

    ctx_id: U32
    bo_list_handle: U32 = 0
    num_chunks: U32
    flags: U32 = 0
    chunks: U64 = pointer("Q", count="num_chunks")
    out: CsOut | None = answer()


class GemWaitIdleOut(AmdgpuStruct):
    """Whether the buffer is still in use."""

    status: U32 = 0
    domain: U32 = 0


class GemWaitIdle(AmdgpuRequest, nr=0x47, c="drm_amdgpu_gem_wait_idle_in"):
    """Wait until a buffer is idle; an absolute time in ns."""

    handle: U32
    flags: U32 = 0
    timeout: U64
    out: GemWaitIdleOut | None = answer()


class GemVa(AmdgpuRequest, nr=0x48, direction="W"):
    """Map or unmap part of a buffer in the GPU's address space."""

    handle: U32
    _pad: U32 = 0
    operation: Annotated[VaOp, "I"]
    flags: Annotated[VmPageFlags, "I"]
    va_address: U64
    offset_in_bo: U64 = 0
    map_size: U64


class GemVaTimeline(GemVa):
    """Of later headers: with fences."""

    vm_timeline_point: U64 = 0
    vm_timeline_syncobj_out: U32 = 0
    num_syncobj_handles: U32 = 0
    input_fence_syncobj_handles: U64 = pointer("I", count="num_syncobj_handles", default=0)


class WaitCsOut(AmdgpuStruct):
    """0: done; 1: timed out."""

    status: U64 = 0


class WaitCs(AmdgpuRequest, nr=0x49, c="drm_amdgpu_wait_cs_in"):
    """Wait for a submission; an absolute time in ns."""

    handle: U64
    timeout: U64
    ip_type: Annotated[HwIp, "I"]
    ip_instance: U32 = 0
    ring: U32 = 0
    ctx_id: U32
    out: WaitCsOut | None = answer()


class GemOp(AmdgpuRequest, nr=0x50):
    """Ask how a buffer was created, or move it. `value` is an address or domains."""

    handle: U32
    op: Annotated[GemOpKind, "I"]
    value: U64


class GemUserptr(AmdgpuRequest, nr=0x51):
    """A buffer of ordinary memory."""

    addr: U64
    size: U64
    flags: Annotated[UserptrFlags, "I"]
    handle: U32 = 0


class Fence(AmdgpuStruct):
    """A submission, as WaitFences takes it."""

    ctx_id: U32
    ip_type: Annotated[HwIp, "I"]
    ip_instance: U32 = 0
    ring: U32 = 0
    seq_no: U64


class WaitFencesOut(AmdgpuStruct):
    """Whether one came, and which first."""

    status: U32 = 0
    first_signaled: U32 = 0


class WaitFences(AmdgpuRequest, nr=0x52, c="drm_amdgpu_wait_fences_in"):
    """Wait for submissions; an absolute time in ns."""

    fences: U64 = pointer(Fence, count="fence_count")
    fence_count: U32
    wait_all: U32 = 0
    timeout_ns: U64
    out: WaitFencesOut | None = answer()


class UserqOut(AmdgpuStruct):
    """The new user queue."""

    queue_id: U32 = 0
    _pad: U32 = 0


class Userq(AmdgpuRequest, nr=0x56, c="drm_amdgpu_userq_in"):
    """Make or free a user queue, without KFD; kernels of 2025 and gfx11 on."""

    op: Annotated[UserqOp, "I"]
    queue_id: U32 = 0
    ip_type: Annotated[HwIp, "I"] = HwIp.GFX
    doorbell_handle: U32 = 0
    doorbell_offset: U32 = 0
    flags: U32 = 0
    queue_va: U64 = 0
    queue_size: U64 = 0
    rptr_va: U64 = 0
    wptr_va: U64 = 0
    mqd: U64 = pointer(bytes, count="mqd_size", default=0)
    mqd_size: U64 = 0
    out: UserqOut | None = answer()


class UserqMqdComputeGfx11(AmdgpuStruct, c="drm_amdgpu_userq_mqd_compute_gfx11"):
    """What a compute queue needs, where `mqd` points."""

    eop_va: U64


class UserqMqdSdmaGfx11(AmdgpuStruct, c="drm_amdgpu_userq_mqd_sdma_gfx11"):
    """What an SDMA queue needs, where `mqd` points."""

    csa_va: U64


class UserqSignal(AmdgpuRequest, nr=0x57):
    """Have a user queue signal fences."""

    queue_id: U32
    pad: U32 = 0
    syncobj_handles: U64 = pointer("I", count="num_syncobj_handles", default=0)
    num_syncobj_handles: U64 = 0
    bo_read_handles: U64 = pointer("I", count="num_bo_read_handles", default=0)
    bo_write_handles: U64 = pointer("I", count="num_bo_write_handles", default=0)
    num_bo_read_handles: U32 = 0
    num_bo_write_handles: U32 = 0


class UserqFenceInfo(AmdgpuStruct):
    """An address and the value to wait for there."""

    va: U64 = 0
    value: U64 = 0


class UserqWait(AmdgpuRequest, nr=0x58):
    """What a user queue has to wait for, as addresses and values."""

    waitq_id: U32
    pad: U32 = 0
    syncobj_handles: U64 = pointer("I", count="num_syncobj_handles", default=0)
    syncobj_timeline_handles: U64 = pointer("I", count="num_syncobj_timeline_handles", default=0)
    syncobj_timeline_points: U64 = pointer("Q", count="num_syncobj_timeline_handles", default=0)
    bo_read_handles: U64 = pointer("I", count="num_bo_read_handles", default=0)
    bo_write_handles: U64 = pointer("I", count="num_bo_write_handles", default=0)
    num_syncobj_timeline_handles: U16 = 0
    num_fences: U16 = 0
    num_syncobj_handles: U32 = 0
    num_bo_read_handles: U32 = 0
    num_bo_write_handles: U32 = 0
    out_fences: U64 = pointer(UserqFenceInfo, count="num_fences", default=0)


_REQUESTS: tuple[type[Request], ...] = (
    *drm.REQUESTS,
    amdgpu_info.Info,
    GemCreate,
    GemMmap,
    Ctx,
    BoList,
    Cs,
    GemWaitIdle,
    GemVa,
    WaitCs,
    GemOp,
    GemUserptr,
    WaitFences,
)
_STRUCTS: tuple[type[Struct], ...] = (
    *amdgpu_info.STRUCTS,
    GemCreateOut,
    GemMmapOut,
    BoListEntry,
    BoListOut,
    CsChunk,
    CsChunkIb,
    CsChunkFence,
    CsChunkDep,
    CsChunkSyncobj,
    CsOut,
    GemWaitIdleOut,
    WaitCsOut,
    Fence,
    WaitFencesOut,
)

AMDGPU_2022 = Abi("libdrm 2.4.114", (*_REQUESTS, *_STRUCTS), source="amdgpu_drm.h, libdrm 2.4.114")
AMDGPU_2025 = AMDGPU_2022.evolve(
    "2025",
    put=[
        GemVaTimeline,
        amdgpu_info.InfoDeviceCaches,
        Userq,
        UserqOut,
        UserqSignal,
        UserqWait,
        UserqFenceInfo,
        UserqMqdComputeGfx11,
        UserqMqdSdmaGfx11,
    ],
    source=HEADER,
)
