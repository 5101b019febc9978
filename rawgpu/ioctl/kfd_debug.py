"""Requests of /dev/kfd for debuggers, profilers and checkpoints, and the deprecated ones.

A driver needs few of these: DbgTrap, to stop queues and read what waves do. The rest is here so
that every request can be named in a trace, and refused by name by a virtual kernel.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Annotated

from rawgpu.describe.request import U32, U64, Request, Struct, Union, pointer
from rawgpu.ioctl.kfd_base import KfdRequest, KfdStruct


class DbgTrapOp(IntEnum):
    """KFD_IOC_DBG_TRAP_*."""

    ENABLE = 0
    DISABLE = 1
    SEND_RUNTIME_EVENT = 2
    SET_EXCEPTIONS_ENABLED = 3
    SET_WAVE_LAUNCH_OVERRIDE = 4
    SET_WAVE_LAUNCH_MODE = 5
    SUSPEND_QUEUES = 6
    RESUME_QUEUES = 7
    SET_NODE_ADDRESS_WATCH = 8
    CLEAR_NODE_ADDRESS_WATCH = 9
    SET_FLAGS = 10
    QUERY_DEBUG_EVENT = 11
    QUERY_EXCEPTION_INFO = 12
    GET_QUEUE_SNAPSHOT = 13
    GET_DEVICE_SNAPSHOT = 14


class ExceptionCode(IntEnum):
    """EC_*; bit `code - 1` of an exception mask stands for each."""

    NONE = 0
    QUEUE_WAVE_ABORT = 1
    QUEUE_WAVE_TRAP = 2
    QUEUE_WAVE_MATH_ERROR = 3
    QUEUE_WAVE_ILLEGAL_INSTRUCTION = 4
    QUEUE_WAVE_MEMORY_VIOLATION = 5
    QUEUE_WAVE_APERTURE_VIOLATION = 6
    QUEUE_PACKET_DISPATCH_DIM_INVALID = 16
    QUEUE_PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID = 17
    QUEUE_PACKET_DISPATCH_CODE_INVALID = 18
    QUEUE_PACKET_RESERVED = 19
    QUEUE_PACKET_UNSUPPORTED = 20
    QUEUE_PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID = 21
    QUEUE_PACKET_DISPATCH_REGISTER_INVALID = 22
    QUEUE_PACKET_VENDOR_UNSUPPORTED = 23
    QUEUE_PREEMPTION_ERROR = 30
    QUEUE_NEW = 31
    DEVICE_QUEUE_DELETE = 32
    DEVICE_MEMORY_VIOLATION = 33
    DEVICE_RAS_ERROR = 34
    DEVICE_FATAL_HALT = 35
    DEVICE_NEW = 36
    PROCESS_RUNTIME = 48
    PROCESS_DEVICE_REMOVE = 49


class QueueStatus(IntFlag):
    """KFD_DBG_QUEUE_*_MASK: set in the array of queue ids that a suspend or resume returns."""

    ERROR = 1 << 30
    INVALID = 1 << 31


class RuntimeState(IntEnum):
    """DEBUG_RUNTIME_STATE_*."""

    DISABLED = 0
    ENABLED = 1
    ENABLED_BUSY = 2
    ENABLED_ERROR = 3


class CriuOp(IntEnum):
    """KFD_CRIU_OP_*."""

    PROCESS_INFO = 0
    CHECKPOINT = 1
    UNPAUSE = 2
    RESTORE = 3
    RESUME = 4


class DbgRegisterDeprecated(KfdRequest, nr=0x0D, direction="W", c="kfd_ioctl_dbg_register_args"):
    """Deprecated; EINVAL or EPERM in kernels of today."""

    gpu_id: U32
    pad: U32 = 0


class DbgUnregisterDeprecated(
    KfdRequest, nr=0x0E, direction="W", c="kfd_ioctl_dbg_unregister_args"
):
    """Deprecated."""

    gpu_id: U32
    pad: U32 = 0


class DbgAddressWatchDeprecated(
    KfdRequest, nr=0x0F, direction="W", c="kfd_ioctl_dbg_address_watch_args"
):
    """Deprecated."""

    content_ptr: U64 = pointer(bytes, count="buf_size_in_bytes")
    gpu_id: U32
    buf_size_in_bytes: U32


class DbgWaveControlDeprecated(
    KfdRequest, nr=0x10, direction="W", c="kfd_ioctl_dbg_wave_control_args"
):
    """Deprecated."""

    content_ptr: U64 = pointer(bytes, count="buf_size_in_bytes")
    gpu_id: U32
    buf_size_in_bytes: U32


class CriuDeviceBucket(KfdStruct, c="kfd_criu_device_bucket"):
    """A GPU in a checkpoint."""

    user_gpu_id: U32 = 0
    actual_gpu_id: U32 = 0
    drm_fd: U32 = 0
    pad: U32 = 0


class CriuBoBucket(KfdStruct, c="kfd_criu_bo_bucket"):
    """A buffer object in a checkpoint."""

    addr: U64 = 0
    size: U64 = 0
    offset: U64 = 0
    restored_offset: U64 = 0
    gpu_id: U32 = 0
    alloc_flags: U32 = 0
    dmabuf_fd: U32 = 0
    pad: U32 = 0


class Criu(KfdRequest, nr=0x22):
    """Checkpoint and restore in user space."""

    devices: U64 = pointer(CriuDeviceBucket, count="num_devices", default=0)
    bos: U64 = pointer(CriuBoBucket, count="num_bos", default=0)
    priv_data: U64 = pointer(bytes, count="priv_data_size", default=0)
    priv_data_size: U64 = 0
    num_devices: U32 = 0
    num_bos: U32 = 0
    num_objects: U32 = 0
    pid: U32 = 0
    op: Annotated[CriuOp, "I"]


class RuntimeInfo(KfdStruct, c="kfd_runtime_info"):
    """What a debugger learns about the process it attached to."""

    r_debug: U64 = 0
    runtime_state: Annotated[RuntimeState, "I"] = RuntimeState.DISABLED
    ttmp_setup: U32 = 0


class DbgTrapEnable(KfdStruct, c="kfd_ioctl_dbg_trap_enable_args"):
    """Attach. `rinfo_ptr` points to a RuntimeInfo to be filled."""

    exception_mask: U64 = 0
    rinfo_ptr: U64 = 0
    rinfo_size: U32 = 0
    dbg_fd: U32 = 0


class DbgTrapSendRuntimeEvent(KfdStruct, c="kfd_ioctl_dbg_trap_send_runtime_event_args"):
    """Send exceptions to the runtime."""

    exception_mask: U64 = 0
    gpu_id: U32 = 0
    queue_id: U32 = 0


class DbgTrapSetExceptionsEnabled(KfdStruct, c="kfd_ioctl_dbg_trap_set_exceptions_enabled_args"):
    """Which exceptions to report."""

    exception_mask: U64 = 0


class DbgTrapSetWaveLaunchOverride(KfdStruct, c="kfd_ioctl_dbg_trap_set_wave_launch_override_args"):
    """Which traps new waves enable."""

    override_mode: U32 = 0
    enable_mask: U32 = 0
    support_request_mask: U32 = 0
    pad: U32 = 0


class DbgTrapSetWaveLaunchMode(KfdStruct, c="kfd_ioctl_dbg_trap_set_wave_launch_mode_args"):
    """Whether new waves start halted."""

    launch_mode: U32 = 0
    pad: U32 = 0


class DbgTrapSuspendQueues(KfdStruct, c="kfd_ioctl_dbg_trap_suspend_queues_args"):
    """Save the waves of queues and stop them; `grace_period` in 100 ns."""

    exception_mask: U64 = 0
    queue_array_ptr: U64 = 0
    num_queues: U32 = 0
    grace_period: U32 = 0


class DbgTrapResumeQueues(KfdStruct, c="kfd_ioctl_dbg_trap_resume_queues_args"):
    """Let suspended queues go on."""

    queue_array_ptr: U64 = 0
    num_queues: U32 = 0
    pad: U32 = 0


class DbgTrapSetNodeAddressWatch(KfdStruct, c="kfd_ioctl_dbg_trap_set_node_address_watch_args"):
    """Trap on accesses to an address."""

    address: U64 = 0
    mode: U32 = 0
    mask: U32 = 0
    gpu_id: U32 = 0
    id: U32 = 0


class DbgTrapClearNodeAddressWatch(KfdStruct, c="kfd_ioctl_dbg_trap_clear_node_address_watch_args"):
    """Take a watch back."""

    gpu_id: U32 = 0
    id: U32 = 0


class DbgTrapSetFlags(KfdStruct, c="kfd_ioctl_dbg_trap_set_flags_args"):
    """One memory or ALU operation at a time."""

    flags: U32 = 0
    pad: U32 = 0


class DbgTrapQueryDebugEvent(KfdStruct, c="kfd_ioctl_dbg_trap_query_debug_event_args"):
    """The next exception; which queue it is of."""

    exception_mask: U64 = 0
    gpu_id: U32 = 0
    queue_id: U32 = 0


class DbgTrapQueryExceptionInfo(KfdStruct, c="kfd_ioctl_dbg_trap_query_exception_info_args"):
    """More about an exception."""

    info_ptr: U64 = 0
    info_size: U32 = 0
    source_id: U32 = 0
    exception_code: U32 = 0
    clear_exception: U32 = 0


class QueueSnapshotEntry(KfdStruct, c="kfd_queue_snapshot_entry"):
    """One queue in a snapshot."""

    exception_status: U64 = 0
    ring_base_address: U64 = 0
    write_pointer_address: U64 = 0
    read_pointer_address: U64 = 0
    ctx_save_restore_address: U64 = 0
    queue_id: U32 = 0
    gpu_id: U32 = 0
    ring_size: U32 = 0
    queue_type: U32 = 0
    ctx_save_restore_area_size: U32 = 0
    reserved: U32 = 0


class DbgTrapQueueSnapshot(KfdStruct, c="kfd_ioctl_dbg_trap_queue_snapshot_args"):
    """All queues of the process."""

    exception_mask: U64 = 0
    snapshot_buf_ptr: U64 = 0
    num_queues: U32 = 0
    entry_size: U32 = 0


class DbgDeviceInfoEntry(KfdStruct, c="kfd_dbg_device_info_entry"):
    """One GPU in a snapshot."""

    exception_status: U64 = 0
    lds_base: U64 = 0
    lds_limit: U64 = 0
    scratch_base: U64 = 0
    scratch_limit: U64 = 0
    gpuvm_base: U64 = 0
    gpuvm_limit: U64 = 0
    gpu_id: U32 = 0
    location_id: U32 = 0
    vendor_id: U32 = 0
    device_id: U32 = 0
    revision_id: U32 = 0
    subsystem_vendor_id: U32 = 0
    subsystem_device_id: U32 = 0
    fw_version: U32 = 0
    gfx_target_version: U32 = 0
    simd_count: U32 = 0
    max_waves_per_simd: U32 = 0
    array_count: U32 = 0
    simd_arrays_per_engine: U32 = 0
    num_xcc: U32 = 0
    capability: U32 = 0
    debug_prop: U32 = 0


class DbgTrapDeviceSnapshot(KfdStruct, c="kfd_ioctl_dbg_trap_device_snapshot_args"):
    """All GPUs of the process."""

    exception_mask: U64 = 0
    snapshot_buf_ptr: U64 = 0
    num_devices: U32 = 0
    entry_size: U32 = 0


class DbgTrapArguments(Union):
    """What an operation of DbgTrap needs."""

    enable: DbgTrapEnable = DbgTrapEnable()
    send_runtime_event: DbgTrapSendRuntimeEvent = DbgTrapSendRuntimeEvent()
    set_exceptions_enabled: DbgTrapSetExceptionsEnabled = DbgTrapSetExceptionsEnabled()
    launch_override: DbgTrapSetWaveLaunchOverride = DbgTrapSetWaveLaunchOverride()
    launch_mode: DbgTrapSetWaveLaunchMode = DbgTrapSetWaveLaunchMode()
    suspend_queues: DbgTrapSuspendQueues = DbgTrapSuspendQueues()
    resume_queues: DbgTrapResumeQueues = DbgTrapResumeQueues()
    set_node_address_watch: DbgTrapSetNodeAddressWatch = DbgTrapSetNodeAddressWatch()
    clear_node_address_watch: DbgTrapClearNodeAddressWatch = DbgTrapClearNodeAddressWatch()
    set_flags: DbgTrapSetFlags = DbgTrapSetFlags()
    query_debug_event: DbgTrapQueryDebugEvent = DbgTrapQueryDebugEvent()
    query_exception_info: DbgTrapQueryExceptionInfo = DbgTrapQueryExceptionInfo()
    queue_snapshot: DbgTrapQueueSnapshot = DbgTrapQueueSnapshot()
    device_snapshot: DbgTrapDeviceSnapshot = DbgTrapDeviceSnapshot()


class DbgTrap(KfdRequest, nr=0x26):
    """Debug a process, which may be one's own: exceptions, suspended queues, snapshots.

    Suspend and resume return the number of queues done as the ioctl's result.
    """

    pid: U32
    op: Annotated[DbgTrapOp, "I"]
    arguments: DbgTrapArguments = DbgTrapArguments()


class IpcImportHandle(KfdRequest, nr=0x80):
    """Out of tree: memory of another process."""

    handle: U64 = 0
    va_addr: U64
    mmap_offset: U64 = 0
    share_handle: Annotated[tuple[int, ...], "I", 4]
    gpu_id: U32
    flags: U32 = 0


class IpcExportHandle(KfdRequest, nr=0x81):
    """Out of tree: share memory with another process."""

    handle: U64
    share_handle: Annotated[tuple[int, ...], "I", 4] = ()
    gpu_id: U32
    flags: U32 = 0


class DbgTrapDeprecated(KfdRequest, nr=0x82, c="kfd_ioctl_dbg_trap_args_deprecated"):
    """Out of tree, deprecated."""

    exception_mask: U64 = 0
    ptr: U64 = 0
    pid: U32 = 0
    op: U32 = 0
    data1: U32 = 0
    data2: U32 = 0
    data3: U32 = 0
    data4: U32 = 0


class CrossMemoryCopyDeprecated(
    KfdRequest, nr=0x83, c="kfd_ioctl_cross_memory_copy_deprecated_args"
):
    """Out of tree, deprecated."""

    pid: U32
    flags: U32 = 0
    src_mem_range_array: U64 = 0
    src_mem_array_size: U64 = 0
    dst_mem_range_array: U64 = 0
    dst_mem_array_size: U64 = 0
    bytes_copied: U64 = 0


class RlcSpm(KfdRequest, nr=0x84, c="kfd_ioctl_spm_args"):
    """Out of tree: streaming performance counters."""

    dest_buf: U64 = 0
    buf_size: U32 = 0
    op: U32
    timeout: U32 = 0
    gpu_id: U32
    bytes_copied: U32 = 0
    has_data_loss: U32 = 0


class PcSampleInfo(KfdStruct, c="kfd_pc_sample_info"):
    """A way to sample program counters."""

    interval: U64 = 0
    interval_min: U64 = 0
    interval_max: U64 = 0
    flags: U64 = 0
    method: U32 = 0
    type: U32 = 0


class PcSample(KfdRequest, nr=0x85):
    """Out of tree: sample program counters."""

    sample_info_ptr: U64 = pointer(PcSampleInfo, count="num_sample_info", default=0)
    num_sample_info: U32 = 0
    op: U32
    gpu_id: U32
    trace_id: U32 = 0
    flags: U32 = 0
    version: U32 = 0


class PcSampleArguments(KfdStruct, c="kfd_ioctl_pc_sample_args"):
    """The same inside Profiler."""

    sample_info_ptr: U64 = 0
    num_sample_info: U32 = 0
    op: U32 = 0
    gpu_id: U32 = 0
    trace_id: U32 = 0
    flags: U32 = 0
    version: U32 = 0


class PmcSettings(KfdStruct, c="kfd_ioctl_pmc_settings"):
    """Performance counters."""

    gpu_id: U32 = 0
    lock: U32 = 0
    perfcount_enable: U32 = 0


class ProfilerVersion(KfdStruct, c="-"):
    """The one number in Profiler's union, which has no struct in C."""

    version: U32 = 0


class ProfilerArguments(Union):
    """What an operation of Profiler needs."""

    pc_sample: PcSampleArguments = PcSampleArguments()
    pmc: PmcSettings = PmcSettings()
    version: ProfilerVersion = ProfilerVersion()


class Profiler(KfdRequest, nr=0x86):
    """Out of tree: profiling."""

    op: U32
    arguments: ProfilerArguments = ProfilerArguments()


SINCE_1_11: tuple[type[Struct], ...] = (
    DbgRegisterDeprecated,
    DbgUnregisterDeprecated,
    DbgAddressWatchDeprecated,
    DbgWaveControlDeprecated,
    Criu,
    CriuDeviceBucket,
    CriuBoBucket,
)
SINCE_1_13: tuple[type[Struct], ...] = (
    DbgTrap,
    RuntimeInfo,
    QueueSnapshotEntry,
    DbgDeviceInfoEntry,
)
OUT_OF_TREE: tuple[type[Request], ...] = (
    IpcImportHandle,
    IpcExportHandle,
    DbgTrapDeprecated,
    CrossMemoryCopyDeprecated,
    RlcSpm,
    PcSample,
    Profiler,
)
