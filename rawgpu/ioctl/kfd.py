"""Requests of /dev/kfd, AMD's compute kernel driver, with its versions as rows.

The kernel looks only at a request's number `nr`: it copies in what the user has, fills up with
zeros, and copies the user's size back. `KFD_VERSIONS` maps (major, minor) to the row that says what
a kernel of that version knows; `row_for` picks the row for a version met in the field. Debugger and
checkpoint requests are in `kfd_debug.py`.

Field names are the header's. Fields with a default are written by the kernel or optional.
"""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag
from typing import Annotated

from rawgpu.describe.abi import Abi
from rawgpu.describe.request import (
    I32,
    U32,
    U64,
    Request,
    Struct,
    Union,
    flexible,
    pointer,
)
from rawgpu.ioctl import kfd_debug
from rawgpu.ioctl.kfd_base import KfdRequest, KfdStruct

EVENT_SLOTS = 4096
"""Signal events in the event page, 8 bytes each; slot 0 is never used."""
EVENT_PAGE_BYTES = 8 * EVENT_SLOTS
UNSIGNALED_SLOT = 0xFFFF_FFFF_FFFF_FFFF
FIRST_NONSIGNAL_EVENT = 0x4000_0000
DOORBELL_BYTES = 8192
"""A process's doorbells on one GPU: the one length that mmap takes for them."""
MMIO_REMAP_BYTES = 4096
MAX_QUEUE_PERCENTAGE = 100
MAX_QUEUE_PRIORITY = 15
WAIT_FOREVER = 0xFFFF_FFFF
NODES_IN_OLD_APERTURES = 7


class QueueType(IntEnum):
    """KFD_IOC_QUEUE_TYPE_*."""

    COMPUTE = 0
    SDMA = 1
    COMPUTE_AQL = 2
    SDMA_XGMI = 3
    SDMA_BY_ENG_ID = 4


class AllocFlags(IntFlag):
    """KFD_IOC_ALLOC_MEM_FLAGS_*."""

    VRAM = 1 << 0
    GTT = 1 << 1
    USERPTR = 1 << 2
    DOORBELL = 1 << 3
    MMIO_REMAP = 1 << 4
    CONTIGUOUS = 1 << 23
    EXT_COHERENT = 1 << 24
    UNCACHED = 1 << 25
    COHERENT = 1 << 26
    AQL_QUEUE_MEM = 1 << 27
    NO_SUBSTITUTE = 1 << 28
    PUBLIC = 1 << 29
    EXECUTABLE = 1 << 30
    WRITABLE = 1 << 31


class CachePolicy(IntEnum):
    """KFD_IOC_CACHE_POLICY_*."""

    COHERENT = 0
    NONCOHERENT = 1


class EventType(IntEnum):
    """KFD_IOC_EVENT_*."""

    SIGNAL = 0
    NODECHANGE = 1
    DEVICESTATECHANGE = 2
    HW_EXCEPTION = 3
    SYSTEM_EVENT = 4
    DEBUG_EVENT = 5
    PROFILE_EVENT = 6
    QUEUE_EVENT = 7
    MEMORY = 8


class WaitResult(IntEnum):
    """KFD_IOC_WAIT_RESULT_*; the ioctl itself returns 0 for a time-out."""

    COMPLETE = 0
    TIMEOUT = 1
    FAIL = 2


class ResetType(IntEnum):
    """KFD_HW_EXCEPTION_*_RESET."""

    WHOLE_GPU = 0
    PER_ENGINE = 1


class ResetCause(IntEnum):
    """KFD_HW_EXCEPTION_*."""

    GPU_HANG = 0
    ECC = 1


class MemoryErrorType(IntEnum):
    """KFD_MEM_ERR_*."""

    NO_RAS = 0
    SRAM_ECC = 1
    POISON_CONSUMED = 2
    GPU_HANG = 3


class MmioRemap(IntEnum):
    """KFD_MMIO_REMAP_*: byte offsets in the page mapped with `AllocFlags.MMIO_REMAP`."""

    HDP_MEM_FLUSH_CNTL = 0
    HDP_REG_FLUSH_CNTL = 4


class RuntimeMode(IntFlag):
    """KFD_RUNTIME_ENABLE_MODE_*_MASK."""

    ENABLE = 1
    TTMP_SAVE = 2


class SvmOp(IntEnum):
    """KFD_IOCTL_SVM_OP_*."""

    SET_ATTR = 0
    GET_ATTR = 1


class SvmAttrType(IntEnum):
    """KFD_IOCTL_SVM_ATTR_*."""

    PREFERRED_LOC = 0
    PREFETCH_LOC = 1
    ACCESS = 2
    ACCESS_IN_PLACE = 3
    NO_ACCESS = 4
    SET_FLAGS = 5
    CLR_FLAGS = 6
    GRANULARITY = 7


class SvmFlags(IntFlag):
    """KFD_IOCTL_SVM_FLAG_*."""

    HOST_ACCESS = 1 << 0
    COHERENT = 1 << 1
    HIVE_LOCAL = 1 << 2
    GPU_RO = 1 << 3
    GPU_EXEC = 1 << 4
    GPU_READ_MOSTLY = 1 << 5
    GPU_ALWAYS_MAPPED = 1 << 6
    EXT_COHERENT = 1 << 7


class SmiEvent(IntEnum):
    """KFD_SMI_EVENT_*: the first word of a line, in hexadecimal."""

    NONE = 0
    VMFAULT = 1
    THERMAL_THROTTLE = 2
    GPU_PRE_RESET = 3
    GPU_POST_RESET = 4
    MIGRATE_START = 5
    MIGRATE_END = 6
    PAGE_FAULT_START = 7
    PAGE_FAULT_END = 8
    QUEUE_EVICTION = 9
    QUEUE_RESTORE = 10
    UNMAP_FROM_GPU = 11
    ALL_PROCESS = 64


class GetVersion(KfdRequest, nr=0x01, direction="R"):
    """The version of this ABI."""

    major_version: U32 = 0
    minor_version: U32 = 0


class CreateQueue(KfdRequest, nr=0x02):
    """Make a user queue. Later versions append fields; send what the kernel's row has."""

    ring_base_address: U64
    write_pointer_address: U64
    read_pointer_address: U64
    doorbell_offset: U64 = 0  # out: mmap offset with the doorbell's place in its low 13 bits
    ring_size: U32  # bytes
    gpu_id: U32
    queue_type: Annotated[QueueType, "I"]
    queue_percentage: U32 = 100
    queue_priority: U32 = 7
    queue_id: U32 = 0  # out
    eop_buffer_address: U64 = 0
    eop_buffer_size: U64 = 0
    ctx_save_restore_address: U64 = 0
    ctx_save_restore_size: U32 = 0
    ctl_stack_size: U32 = 0


class CreateQueue17(CreateQueue):
    """From 1.17: an SDMA queue may name its engine."""

    sdma_engine_id: U32 = 0
    pad: U32 = 0


class CreateQueue22(
    CreateQueue17,
    rename={"pad": "metadata_ring_size"},
    source="linux/kfd_ioctl.h 1.22",
    evidence="none yet",
):
    """From 1.22: a second ring behind the first, in the same buffer object."""

    metadata_ring_size: U32 = 0


class DestroyQueue(KfdRequest, nr=0x03):
    """Stop and remove a queue; on a hung one this takes seconds and may reset the GPU."""

    queue_id: U32
    pad: U32 = 0


class SetMemoryPolicy(KfdRequest, nr=0x04, direction="W"):
    """Cache policy by address range; of use before gfx9 only."""

    alternate_aperture_base: U64 = 0
    alternate_aperture_size: U64 = 0
    gpu_id: U32
    default_policy: Annotated[CachePolicy, "I"] = CachePolicy.COHERENT
    alternate_policy: Annotated[CachePolicy, "I"] = CachePolicy.COHERENT
    pad: U32 = 0


class SetMemoryPolicy18(
    SetMemoryPolicy,
    rename={"pad": "misc_process_flag"},
    source="linux/kfd_ioctl.h 1.18",
    evidence="none yet",
):
    """From 1.18: flags for the whole process."""

    misc_process_flag: U32 = 0


class GetClockCounters(KfdRequest, nr=0x05):
    """GPU, CPU and system clocks, read one after the other."""

    gpu_clock_counter: U64 = 0
    cpu_clock_counter: U64 = 0
    system_clock_counter: U64 = 0
    system_clock_freq: U64 = 0
    gpu_id: U32
    pad: U32 = 0


class ProcessDeviceApertures(KfdStruct, c="kfd_process_device_apertures"):
    """Where one GPU sees LDS, scratch and GPU memory; limits are the last byte."""

    lds_base: U64 = 0
    lds_limit: U64 = 0
    scratch_base: U64 = 0
    scratch_limit: U64 = 0
    gpuvm_base: U64 = 0
    gpuvm_limit: U64 = 0
    gpu_id: U32 = 0
    pad: U32 = 0


class GetProcessApertures(KfdRequest, nr=0x06, direction="R"):
    """Apertures of at most seven GPUs; GetProcessAperturesNew has no such limit."""

    process_apertures: Annotated[tuple[ProcessDeviceApertures, ...], NODES_IN_OLD_APERTURES] = ()
    num_of_nodes: U32 = 0
    pad: U32 = 0


class UpdateQueue(KfdRequest, nr=0x07, direction="W"):
    """Change ring, percentage or priority; ring 0 or percentage 0 stops the queue."""

    ring_base_address: U64
    queue_id: U32
    ring_size: U32
    queue_percentage: U32
    queue_priority: U32


class CreateEvent(KfdRequest, nr=0x08):
    """Make an event. The first may give the handle of the page that holds signal slots."""

    event_page_offset: U64 = 0  # in: handle of a GTT buffer; out: mmap offset of the kernel's page
    event_trigger_data: U32 = 0  # out: what the GPU sends with its interrupt
    event_type: Annotated[EventType, "I"]
    auto_reset: U32 = 0
    node_id: U32 = 0
    event_id: U32 = 0  # out
    event_slot_index: U32 = 0  # out


class DestroyEvent(KfdRequest, nr=0x09, direction="W"):
    """Remove an event; who waits for it gets EIO."""

    event_id: U32
    pad: U32 = 0


class SetEvent(KfdRequest, nr=0x0A, direction="W"):
    """Signal an event from the CPU; signal events only."""

    event_id: U32
    pad: U32 = 0


class ResetEvent(KfdRequest, nr=0x0B, direction="W"):
    """Clear an event; signal events only."""

    event_id: U32
    pad: U32 = 0


class MemoryExceptionFailure(KfdStruct, c="kfd_memory_exception_failure"):
    """Why an access failed, each 0 or 1."""

    NotPresent: U32 = 0
    ReadOnly: U32 = 0
    NoExecute: U32 = 0
    imprecise: U32 = 0


class MemoryExceptionData(KfdStruct, c="kfd_hsa_memory_exception_data"):
    """What a memory event says: `va` is the page's address."""

    failure: MemoryExceptionFailure = MemoryExceptionFailure()
    va: U64 = 0
    gpu_id: U32 = 0
    ErrorType: Annotated[MemoryErrorType, "I"] = MemoryErrorType.NO_RAS


class HwExceptionData(KfdStruct, c="kfd_hsa_hw_exception_data"):
    """What a hardware-exception event says."""

    reset_type: Annotated[ResetType, "I"] = ResetType.WHOLE_GPU
    reset_cause: Annotated[ResetCause, "I"] = ResetCause.GPU_HANG
    memory_lost: U32 = 0
    gpu_id: U32 = 0


class SignalEventData(KfdStruct, c="kfd_hsa_signal_event_data"):
    """From 1.14: how often a signal event was set; in and out."""

    last_event_age: U64 = 0


class EventPayload(Union):
    """What an event has to say, by its type."""

    memory_exception_data: MemoryExceptionData = MemoryExceptionData()
    hw_exception_data: HwExceptionData = HwExceptionData()
    signal_event_data: SignalEventData = SignalEventData()


class EventData(KfdStruct, c="kfd_event_data"):
    """One event to wait for, in the array that WaitEvents points to."""

    payload: EventPayload = EventPayload()
    kfd_event_data_ext: U64 = 0
    event_id: U32
    pad: U32 = 0


class WaitEvents(KfdRequest, nr=0x0C):
    """Sleep until one event, or all, came, or `timeout` ms are over.

    Interrupted by a signal it fails with EINTR and has written the time that is left back.
    """

    events_ptr: U64 = pointer(EventData, count="num_events")
    num_events: U32
    wait_for_all: U32 = 0
    timeout: U32  # ms, and what is left of it
    wait_result: Annotated[WaitResult, "I"] = WaitResult.COMPLETE


class SetScratchBackingVa(KfdRequest, nr=0x11):
    """Where scratch memory lies, for the debugger's use."""

    va_addr: U64
    gpu_id: U32
    pad: U32 = 0


class GetTileConfig(KfdRequest, nr=0x12):
    """Tiling of surfaces."""

    tile_config_ptr: U64 = pointer("I", count="num_tile_configs")
    macro_tile_config_ptr: U64 = pointer("I", count="num_macro_tile_configs")
    num_tile_configs: U32
    num_macro_tile_configs: U32
    gpu_id: U32
    gb_addr_config: U32 = 0
    num_banks: U32 = 0
    num_ranks: U32 = 0


class SetTrapHandler(KfdRequest, nr=0x13, direction="W"):
    """Install a second-level trap handler: code at `tba_addr`, its data at `tma_addr`."""

    tba_addr: U64
    tma_addr: U64
    gpu_id: U32
    pad: U32 = 0


class GetProcessAperturesNew(KfdRequest, nr=0x14):
    """Apertures of all GPUs; with `num_of_nodes` 0 it only counts them."""

    kfd_process_device_apertures_ptr: U64 = pointer(
        ProcessDeviceApertures, count="num_of_nodes", default=0
    )
    num_of_nodes: U32 = 0
    pad: U32 = 0


class AcquireVm(KfdRequest, nr=0x15, direction="W"):
    """Use the address space of an open render node for this process on this GPU."""

    drm_fd: U32
    gpu_id: U32


class AllocMemoryOfGpu(KfdRequest, nr=0x16):
    """Allocate memory, without mapping it. A userptr's CPU address goes in `mmap_offset`."""

    va_addr: U64
    size: U64
    handle: U64 = 0  # out
    mmap_offset: U64 = 0  # in for userptr; out otherwise
    gpu_id: U32
    flags: Annotated[AllocFlags, "I"]


class FreeMemoryOfGpu(KfdRequest, nr=0x17, direction="W"):
    """Free memory; unmap it first."""

    handle: U64


class MapMemoryToGpu(KfdRequest, nr=0x18):
    """Map memory on GPUs. `n_success` says how many are done: keep it when trying again."""

    handle: U64
    device_ids_array_ptr: U64 = pointer("I", count="n_devices")
    n_devices: U32
    n_success: U32 = 0


class UnmapMemoryFromGpu(KfdRequest, nr=0x19):
    """Unmap memory from GPUs; as MapMemoryToGpu."""

    handle: U64
    device_ids_array_ptr: U64 = pointer("I", count="n_devices")
    n_devices: U32
    n_success: U32 = 0


class SetCuMask(KfdRequest, nr=0x1A, direction="W"):
    """Which compute units a queue may use; `num_cu_mask` counts bits, a multiple of 32."""

    queue_id: U32
    num_cu_mask: U32
    cu_mask_ptr: U64 = pointer("I", count="num_cu_mask", per=32)


class GetQueueWaveState(KfdRequest, nr=0x1B):
    """Sizes of what was saved of a stopped queue's waves."""

    ctl_stack_address: U64
    ctl_stack_used_size: U32 = 0
    save_area_used_size: U32 = 0
    queue_id: U32
    pad: U32 = 0


class GetDmabufInfo(KfdRequest, nr=0x1C):
    """Size, GPU and metadata of a dma-buf."""

    size: U64 = 0
    metadata_ptr: U64 = pointer(bytes, count="metadata_size", default=0)
    metadata_size: U32 = 0
    gpu_id: U32 = 0
    flags: Annotated[AllocFlags, "I"] = AllocFlags(0)
    dmabuf_fd: U32


class ImportDmabuf(KfdRequest, nr=0x1D):
    """Memory from a dma-buf."""

    va_addr: U64
    handle: U64 = 0
    gpu_id: U32
    dmabuf_fd: U32


class AllocQueueGws(KfdRequest, nr=0x1E):
    """Global wave sync for a queue."""

    queue_id: U32
    num_gws: U32
    first_gws: U32 = 0
    pad: U32 = 0


class SmiEvents(KfdRequest, nr=0x1F):
    """A file that reports faults, resets and throttling of one GPU as lines."""

    gpuid: U32
    anon_fd: U32 = 0


class SvmAttribute(KfdStruct, c="kfd_ioctl_svm_attribute"):
    """One attribute of an address range."""

    type: Annotated[SvmAttrType, "I"]
    value: U32


class Svm(KfdRequest, nr=0x20):
    """Set or get attributes of ordinary memory; needs capability bit 27 of the node."""

    start_addr: U64
    size: U64
    op: Annotated[SvmOp, "I"]
    nattr: U32
    attrs: tuple[SvmAttribute, ...] = flexible()


class SetXnackMode(KfdRequest, nr=0x21):
    """Retry of page faults on or off; -1 asks which."""

    xnack_enabled: I32


class AvailableMemory(KfdRequest, nr=0x23, c="kfd_ioctl_get_available_memory_args"):
    """How much VRAM can still be allocated."""

    available: U64 = 0
    gpu_id: U32
    pad: U32 = 0


class ExportDmabuf(KfdRequest, nr=0x24):
    """A dma-buf of memory; `flags` are those of open."""

    handle: U64
    flags: U32 = 0
    dmabuf_fd: U32 = 0


class RuntimeEnable(KfdRequest, nr=0x25):
    """Switch debugger handshake and trap-register saving on; mode 0 switches both off."""

    r_debug: U64 = 0
    mode_mask: Annotated[RuntimeMode, "I"]
    capabilities_mask: U32 = 0


class CreateProcess(
    KfdRequest,
    nr=0x27,
    direction="",
    source="linux/kfd_ioctl.h 1.19",
    evidence="none yet",
):
    """From 1.19: a second context in this process. No argument."""


class WaveStateSizes(KfdStruct, c="-"):
    """Where a saved queue's control stack and waves lie, from the save area's start."""

    control_stack_offset: U32 = 0
    control_stack_size: U32 = 0
    wave_state_offset: U32 = 0  # the end of the waves
    wave_state_size: U32 = 0


class ContextSaveAreaHeader(KfdStruct, c="kfd_context_save_area_header"):
    """What stands first in a queue's save area, one per XCC."""

    wave_state: WaveStateSizes = WaveStateSizes()
    debug_offset: U32 = 0
    debug_size: U32 = 0
    err_payload_addr: U64 = 0
    err_event_id: U32 = 0
    reserved1: U32 = 0


class MmapType(IntEnum):
    """KFD_MMAP_TYPE_*: bits 63:62 of an mmap offset of /dev/kfd."""

    MMIO = 0
    RESERVED_MEM = 1
    EVENTS = 2
    DOORBELL = 3


_MMAP_TYPE_SHIFT = 62
_MMAP_GPU_SHIFT = 46
_GPU_ID_MASK = 0xFFFF


def mmap_offset(kind: MmapType, gpu_id: int = 0, offset: int = 0) -> int:
    """The offset for mmap of /dev/kfd. Source: amdkfd/kfd_priv.h, KFD_MMAP_*."""
    assert 0 <= gpu_id <= _GPU_ID_MASK and 0 <= offset < 1 << _MMAP_GPU_SHIFT, (gpu_id, offset)
    return kind << _MMAP_TYPE_SHIFT | gpu_id << _MMAP_GPU_SHIFT | offset


def split_mmap_offset(value: int) -> tuple[MmapType, int, int]:
    """Kind, gpu_id and what is left of an mmap offset."""
    kind = MmapType(value >> _MMAP_TYPE_SHIFT & 3)
    return kind, value >> _MMAP_GPU_SHIFT & _GPU_ID_MASK, value & (1 << _MMAP_GPU_SHIFT) - 1


def split_handle(handle: int) -> tuple[int, int]:
    """gpu_id and index in a memory handle."""
    return handle >> 32, handle & 0xFFFF_FFFF


class KfdFeature(Enum):
    """What a version brought besides new shapes of structs."""

    EVENT_AGE = "1.14: WaitEvents reads and writes `last_event_age`"
    GEM_VA_COMPUTE = "1.15: GEM_VA may map into the compute address space"
    CONTIGUOUS_VRAM = "1.16: AllocFlags.CONTIGUOUS"
    SDMA_BY_ENGINE = "1.17: QueueType.SDMA_BY_ENG_ID"
    EXPERT_SCHEDULING = "1.20: trap-handler and expert-scheduling capability bits"
    LDS_OUT_OF_RANGE = "1.21: debug flag for LDS accesses out of range"


_BASE: tuple[type[Request], ...] = (
    GetVersion,
    CreateQueue,
    DestroyQueue,
    SetMemoryPolicy,
    GetClockCounters,
    GetProcessApertures,
    UpdateQueue,
    CreateEvent,
    DestroyEvent,
    SetEvent,
    ResetEvent,
    WaitEvents,
    SetScratchBackingVa,
    GetTileConfig,
    SetTrapHandler,
    GetProcessAperturesNew,
    AcquireVm,
    AllocMemoryOfGpu,
    FreeMemoryOfGpu,
    MapMemoryToGpu,
    UnmapMemoryFromGpu,
    SetCuMask,
    GetQueueWaveState,
    GetDmabufInfo,
    ImportDmabuf,
    AllocQueueGws,
    SmiEvents,
    Svm,
    SetXnackMode,
    AvailableMemory,
)
_STRUCTS: tuple[type[Struct], ...] = (
    ProcessDeviceApertures,
    MemoryExceptionFailure,
    MemoryExceptionData,
    HwExceptionData,
    SignalEventData,
    EventData,
    SvmAttribute,
    ContextSaveAreaHeader,
)

KFD_1_11 = Abi("1.11", (*_BASE, *kfd_debug.SINCE_1_11, *_STRUCTS), source="kfd_ioctl.h 1.11")
KFD_1_12 = KFD_1_11.evolve("1.12", put=[ExportDmabuf])
KFD_1_13 = KFD_1_12.evolve("1.13", put=[RuntimeEnable, *kfd_debug.SINCE_1_13])
KFD_1_14 = KFD_1_13.evolve("1.14", features=[KfdFeature.EVENT_AGE])
KFD_1_15 = KFD_1_14.evolve("1.15", features=[KfdFeature.GEM_VA_COMPUTE])
KFD_1_16 = KFD_1_15.evolve("1.16", features=[KfdFeature.CONTIGUOUS_VRAM])
KFD_1_17 = KFD_1_16.evolve(
    "1.17", put=[CreateQueue17], features=[KfdFeature.SDMA_BY_ENGINE], source="kfd_ioctl.h 1.17"
)
KFD_1_18 = KFD_1_17.evolve("1.18", put=[SetMemoryPolicy18], source="kfd_ioctl.h 1.22")
KFD_1_19 = KFD_1_18.evolve("1.19", put=[CreateProcess])
KFD_1_20 = KFD_1_19.evolve("1.20", features=[KfdFeature.EXPERT_SCHEDULING])
KFD_1_21 = KFD_1_20.evolve("1.21", features=[KfdFeature.LDS_OUT_OF_RANGE])
KFD_1_22 = KFD_1_21.evolve("1.22", put=[CreateQueue22])

KFD_OUT_OF_TREE = KFD_1_17.evolve("1.17 out of tree", put=kfd_debug.OUT_OF_TREE)
"""AMD's own driver package has more requests, from 0x80 on."""

KFD_VERSIONS: dict[tuple[int, int], Abi] = {
    (1, 11): KFD_1_11,
    (1, 12): KFD_1_12,
    (1, 13): KFD_1_13,
    (1, 14): KFD_1_14,
    (1, 15): KFD_1_15,
    (1, 16): KFD_1_16,
    (1, 17): KFD_1_17,
    (1, 18): KFD_1_18,
    (1, 19): KFD_1_19,
    (1, 20): KFD_1_20,
    (1, 21): KFD_1_21,
    (1, 22): KFD_1_22,
}
OLDEST = min(KFD_VERSIONS)
NEWEST = max(KFD_VERSIONS)


def row_for(major: int, minor: int) -> Abi | None:
    """The row for the version a kernel reported: of one newer than all rows, the newest.

    None for another major version and for kernels older than the oldest row.
    """
    if major != NEWEST[0] or (major, minor) < OLDEST:
        return None
    return KFD_VERSIONS[min((major, minor), NEWEST)]
