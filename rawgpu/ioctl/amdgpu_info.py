"""The INFO request of a render node, all its questions and the structs that answer them."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from rawgpu.describe.request import U32, U64, Struct, Union, pointer
from rawgpu.ioctl.amdgpu_base import AmdgpuRequest, AmdgpuStruct, HwIp


class InfoQuery(IntEnum):
    """AMDGPU_INFO_*: what Info asks for."""

    ACCEL_WORKING = 0
    CRTC_FROM_ID = 1
    HW_IP_INFO = 2
    HW_IP_COUNT = 3
    TIMESTAMP = 5
    FW_VERSION = 14
    NUM_BYTES_MOVED = 15
    VRAM_USAGE = 16
    GTT_USAGE = 17
    GDS_CONFIG = 19
    VRAM_GTT = 20
    READ_MMR_REG = 21
    DEV_INFO = 22
    VIS_VRAM_USAGE = 23
    NUM_EVICTIONS = 24
    MEMORY = 25
    VCE_CLOCK_TABLE = 26
    VBIOS = 27
    NUM_HANDLES = 28
    SENSOR = 29
    NUM_VRAM_CPU_PAGE_FAULTS = 30
    VRAM_LOST_COUNTER = 31
    RAS_ENABLED_FEATURES = 32
    VIDEO_CAPS = 33
    MAX_IBS = 34
    GPUVM_FAULT = 35
    UQ_FW_AREAS = 36


class FirmwareType(IntEnum):
    """AMDGPU_INFO_FW_*: which firmware FW_VERSION asks for."""

    VCE = 1
    UVD = 2
    GMC = 3
    GFX_ME = 4
    GFX_PFP = 5
    GFX_CE = 6
    GFX_RLC = 7
    GFX_MEC = 8
    SMC = 10
    SDMA = 11
    SOS = 12
    ASD = 13
    VCN = 14
    GFX_RLC_RESTORE_LIST_CNTL = 15
    GFX_RLC_RESTORE_LIST_GPM_MEM = 16
    GFX_RLC_RESTORE_LIST_SRM_MEM = 17
    DMCU = 18
    TA = 19
    DMCUB = 20
    TOC = 21
    CAP = 22
    GFX_RLCP = 23
    GFX_RLCV = 24
    MES_KIQ = 25
    MES = 26
    IMU = 27
    VPE = 28


class SensorType(IntEnum):
    """AMDGPU_INFO_SENSOR_*."""

    GFX_SCLK = 1
    GFX_MCLK = 2
    GPU_TEMP = 3
    GPU_LOAD = 4
    GPU_AVG_POWER = 5
    VDDNB = 6
    VDDGFX = 7
    STABLE_PSTATE_GFX_SCLK = 8
    STABLE_PSTATE_GFX_MCLK = 9
    PEAK_PSTATE_GFX_SCLK = 10
    PEAK_PSTATE_GFX_MCLK = 11
    GPU_INPUT_POWER = 12


class QueryHwIp(AmdgpuStruct, c="-"):
    """Of HW_IP_INFO and HW_IP_COUNT."""

    type: Annotated[HwIp, "I"] = HwIp.GFX
    ip_instance: U32 = 0


class ReadMmrReg(AmdgpuStruct, c="-"):
    """Of READ_MMR_REG."""

    dword_offset: U32 = 0
    count: U32 = 0
    instance: U32 = 0
    flags: U32 = 0


class QueryFw(AmdgpuStruct):
    """Of FW_VERSION."""

    fw_type: Annotated[FirmwareType, "I"] = FirmwareType.VCE
    ip_instance: U32 = 0
    index: U32 = 0
    _pad: U32 = 0


class SensorInfo(AmdgpuStruct, c="-"):
    """Of SENSOR."""

    type: Annotated[SensorType, "I"] = SensorType.GFX_SCLK


class IdAndPad(AmdgpuStruct, c="-"):
    """Of CRTC_FROM_ID."""

    id: U32 = 0
    _pad: U32 = 0


class VirtualRangeArguments(AmdgpuStruct, c="-"):
    """Of VIRTUAL_RANGE, out of tree."""

    aperture: U32 = 0
    _pad: U32 = 0


class VbiosInfo(AmdgpuStruct, c="-"):
    """Of VBIOS."""

    type: U32 = 0
    offset: U32 = 0


class VideoCap(AmdgpuStruct, c="-"):
    """Of VIDEO_CAPS."""

    type: U32 = 0


class InfoArguments(Union):
    """What a query needs to know."""

    mode_crtc: IdAndPad = IdAndPad()
    query_hw_ip: QueryHwIp = QueryHwIp()
    read_mmr_reg: ReadMmrReg = ReadMmrReg()
    virtual_range: VirtualRangeArguments = VirtualRangeArguments()
    query_fw: QueryFw = QueryFw()
    vbios_info: VbiosInfo = VbiosInfo()
    sensor_info: SensorInfo = SensorInfo()
    video_cap: VideoCap = VideoCap()


class Info(AmdgpuRequest, nr=0x45, direction="W"):
    """Ask the driver. Of the answer at most `return_size` bytes are written."""

    return_pointer: U64 = pointer(bytes, count="return_size")
    return_size: U32
    query: Annotated[InfoQuery, "I"]
    arguments: InfoArguments = InfoArguments()


class InfoGpuvmFault(AmdgpuStruct):
    """GPUVM_FAULT: the last page fault; `status` as the hub's register has it."""

    addr: U64 = 0
    status: U32 = 0
    vmhub: U32 = 0


class InfoFirmware(AmdgpuStruct):
    """FW_VERSION."""

    ver: U32 = 0
    feature: U32 = 0


class InfoVramGtt(AmdgpuStruct):
    """VRAM_GTT, in bytes."""

    vram_size: U64 = 0
    vram_cpu_accessible_size: U64 = 0
    gtt_size: U64 = 0


class HeapInfo(AmdgpuStruct):
    """One heap, in bytes."""

    total_heap_size: U64 = 0
    usable_heap_size: U64 = 0
    heap_usage: U64 = 0
    max_allocation: U64 = 0


class MemoryInfo(AmdgpuStruct):
    """MEMORY."""

    vram: HeapInfo = HeapInfo()
    cpu_accessible_vram: HeapInfo = HeapInfo()
    gtt: HeapInfo = HeapInfo()


class InfoHwIp(AmdgpuStruct):
    """HW_IP_INFO; `ip_discovery_version` was padding before 2023."""

    hw_ip_version_major: U32 = 0
    hw_ip_version_minor: U32 = 0
    capabilities_flags: U64 = 0
    ib_start_alignment: U32 = 0
    ib_size_alignment: U32 = 0
    available_rings: U32 = 0
    ip_discovery_version: U32 = 0


class InfoDevice(AmdgpuStruct):
    """DEV_INFO, as in libdrm 2.4.114. Clocks in kHz."""

    device_id: U32 = 0
    chip_rev: U32 = 0
    external_rev: U32 = 0
    pci_rev: U32 = 0
    family: U32 = 0
    num_shader_engines: U32 = 0
    num_shader_arrays_per_engine: U32 = 0
    gpu_counter_freq: U32 = 0
    max_engine_clock: U64 = 0
    max_memory_clock: U64 = 0
    cu_active_number: U32 = 0
    cu_ao_mask: U32 = 0
    cu_bitmap: Annotated[tuple[int, ...], "I", 4, 4] = ()
    enabled_rb_pipes_mask: U32 = 0
    num_rb_pipes: U32 = 0
    num_hw_gfx_contexts: U32 = 0
    pcie_gen: U32 = 0
    ids_flags: U64 = 0
    virtual_address_offset: U64 = 0
    virtual_address_max: U64 = 0
    virtual_address_alignment: U32 = 0
    pte_fragment_size: U32 = 0
    gart_page_size: U32 = 0
    ce_ram_size: U32 = 0
    vram_type: U32 = 0
    vram_bit_width: U32 = 0
    vce_harvest_config: U32 = 0
    gc_double_offchip_lds_buf: U32 = 0
    prim_buf_gpu_addr: U64 = 0
    pos_buf_gpu_addr: U64 = 0
    cntl_sb_buf_gpu_addr: U64 = 0
    param_buf_gpu_addr: U64 = 0
    prim_buf_size: U32 = 0
    pos_buf_size: U32 = 0
    cntl_sb_buf_size: U32 = 0
    param_buf_size: U32 = 0
    wave_front_size: U32 = 0
    num_shader_visible_vgprs: U32 = 0
    num_cu_per_sh: U32 = 0
    num_tcc_blocks: U32 = 0
    gs_vgt_table_depth: U32 = 0
    gs_prim_buffer_depth: U32 = 0
    max_gs_waves_per_vgt: U32 = 0
    pcie_num_lanes: U32 = 0
    cu_ao_bitmap: Annotated[tuple[int, ...], "I", 4, 4] = ()
    high_va_offset: U64 = 0
    high_va_max: U64 = 0
    pa_sc_tile_steering_override: U32 = 0
    tcc_disabled_mask: U64 = 0


class InfoDeviceCaches(InfoDevice):
    """DEV_INFO of later headers: caches, and what user queues need."""

    min_engine_clock: U64 = 0
    min_memory_clock: U64 = 0
    tcp_cache_size: U32 = 0
    num_sqc_per_wgp: U32 = 0
    sqc_data_cache_size: U32 = 0
    sqc_inst_cache_size: U32 = 0
    gl1c_cache_size: U32 = 0
    gl2c_cache_size: U32 = 0
    mall_size: U64 = 0
    enabled_rb_pipes_mask_hi: U32 = 0
    shadow_size: U32 = 0
    shadow_alignment: U32 = 0
    csa_size: U32 = 0
    csa_alignment: U32 = 0
    userq_ip_mask: U32 = 0
    pad: U32 = 0


STRUCTS: tuple[type[Struct], ...] = (
    QueryFw,
    InfoGpuvmFault,
    InfoFirmware,
    InfoVramGtt,
    HeapInfo,
    MemoryInfo,
    InfoHwIp,
    InfoDevice,
)
"""As in libdrm 2.4.114; later headers have InfoDeviceCaches."""
