"""AQL: 64-byte packets of a queue that the command processor understands without PM4.

The body is written first, dword 0 last, with one store: until then the slot's type is INVALID.
A completion signal is a `AmdSignal` in memory; the queue itself has an `AmdQueue`.

Source: HSA Runtime Specification 1.2, 2.9; ROCR-Runtime inc/amd_hsa_signal.h, amd_hsa_queue.h.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Annotated

from rawgpu.describe.field import dw, dw64
from rawgpu.describe.packet import Header, Packet, PacketSet
from rawgpu.describe.request import I64, U32, U64, Struct

SOURCE = "HSA Runtime Specification 1.2, 2.9"
HEADERS = "vendor header: ROCR-Runtime inc/amd_hsa_queue.h, amd_hsa_signal.h (6.4)"
DRIVER = "foreign driver's stream: tinygrad 0.14 on a KFD AQL queue"
PACKETS = "vendor header: ROCR-Runtime inc/hsa.h (tests/data/abi/amd_packets.json)"
PACKET_BYTES = 64
PACKET_DWORDS = PACKET_BYTES // 4


class Scope(IntEnum):
    """HSA_FENCE_SCOPE_*: how far a fence before or after a packet reaches."""

    NONE = 0
    AGENT = 1
    SYSTEM = 2


class PacketType(IntEnum):
    """HSA_PACKET_TYPE_*; VENDOR is VENDOR_SPECIFIC."""

    VENDOR = 0
    INVALID = 1
    KERNEL_DISPATCH = 2
    BARRIER_AND = 3
    AGENT_DISPATCH = 4
    BARRIER_OR = 5


class Aql(Packet, header=Header(opcode=(7, 0))):
    """The header of all packets: wait for the packets before, and fence."""

    barrier: bool = dw(0, 8, 8, default=True)
    acquire: Scope = dw(0, 10, 9, default=Scope.SYSTEM)
    release: Scope = dw(0, 12, 11, default=Scope.SYSTEM)


class KernelDispatch(
    Aql, opcode=PacketType.KERNEL_DISPATCH, dwords=16, source=SOURCE, evidence=DRIVER
):
    """Launch a kernel. The grid counts work-items; `dimensions` says how many sizes count."""

    dimensions: int = dw(0, 17, 16)
    workgroup_size_x: int = dw(1, 15, 0)
    workgroup_size_y: int = dw(1, 31, 16)
    workgroup_size_z: int = dw(2, 15, 0)
    grid_size_x: int = dw(3)
    grid_size_y: int = dw(4)
    grid_size_z: int = dw(5)
    private_segment_size: int = dw(6)  # bytes a work-item
    group_segment_size: int = dw(7)  # bytes a work-group
    kernel_object: int = dw64(8)  # address of the kernel descriptor
    kernarg_address: int = dw64(10)
    completion_signal: int = dw64(14, default=0)


class BarrierAnd(Aql, opcode=PacketType.BARRIER_AND, dwords=16, source=SOURCE, evidence=PACKETS):
    """Go on when all these signals (0: none) have reached 0."""

    dep_signal_0: int = dw64(2, default=0)
    dep_signal_1: int = dw64(4, default=0)
    dep_signal_2: int = dw64(6, default=0)
    dep_signal_3: int = dw64(8, default=0)
    dep_signal_4: int = dw64(10, default=0)
    completion_signal: int = dw64(14, default=0)


class BarrierOr(BarrierAnd, opcode=PacketType.BARRIER_OR, source=SOURCE, evidence=PACKETS):
    """Go on when one of these signals has reached 0."""


class VendorPm4(
    Aql,
    opcode=PacketType.VENDOR,
    dwords=16,
    source="ROCR-Runtime core/inc/amd_gpu_pm4.h and amd_aql_queue.cpp, amd_aql_pm4_ib",
    evidence=DRIVER,
):
    """PM4 inside an AQL queue: an IndirectBuffer packet, run on every XCC.

    `remaining` counts the dwords after it.
    """

    format: int = dw(0, 23, 16, const=1)
    indirect_buffer_0: int = dw(1)
    indirect_buffer_1: int = dw(2)
    indirect_buffer_2: int = dw(3)
    indirect_buffer_3: int = dw(4)
    remaining: int = dw(5, default=10)
    completion_signal: int = dw64(14, default=0)


AQL = PacketSet("AQL", [KernelDispatch, BarrierAnd, BarrierOr, VendorPm4], source=SOURCE)


class SignalKind(IntEnum):
    """AMD_SIGNAL_KIND_*."""

    INVALID = 0
    USER = 1
    DOORBELL = -1
    LEGACY_DOORBELL = -2


class AmdSignal(Struct, c="amd_signal_s", source="inc/amd_hsa_signal.h", evidence=HEADERS):
    """A signal in memory, 64-byte aligned: decremented by a packet's completion."""

    kind: Annotated[SignalKind, "q"] = SignalKind.USER
    value: I64 = 0
    event_mailbox_ptr: U64 = 0
    event_id: U32 = 0
    reserved1: U32 = 0
    start_ts: U64 = 0
    end_ts: U64 = 0
    queue_ptr: U64 = 0
    reserved3: Annotated[tuple[int, ...], "I", 2] = ()


class QueueProperties(IntFlag):
    """AMD_QUEUE_PROPERTIES_*."""

    ENABLE_TRAP_HANDLER = 1
    IS_PTR64 = 2
    ENABLE_TRAP_HANDLER_DEBUG_SGPRS = 4
    ENABLE_PROFILING = 8
    USE_SCRATCH_ONCE = 16


class AmdQueue(Struct, c="amd_queue_s", source="inc/amd_hsa_queue.h", evidence=HEADERS):
    """What the command processor reads and writes of an AQL queue, 256 bytes.

    `write_dispatch_id` and `read_dispatch_id` are the pointers that CREATE_QUEUE is given.
    """

    type: U32 = 0
    features: U32 = 1
    base_address: U64
    doorbell_signal: U64 = 0
    size: U32  # packets
    reserved_1: U32 = 0
    id: U64 = 0
    caps: U32 = 0
    reserved1: Annotated[tuple[int, ...], "I", 3] = ()
    write_dispatch_id: U64 = 0
    group_segment_aperture_base_hi: U32
    private_segment_aperture_base_hi: U32
    max_cu_id: U32
    max_wave_id: U32
    max_legacy_doorbell_dispatch_id_plus_1: U64 = 0
    legacy_doorbell_lock: U32 = 0
    reserved2: Annotated[tuple[int, ...], "I", 9] = ()
    read_dispatch_id: U64 = 0
    read_dispatch_id_field_base_byte_offset: U32 = 0x80
    compute_tmpring_size: U32
    scratch_resource_descriptor: Annotated[tuple[int, ...], "I", 4]
    scratch_backing_memory_location: U64
    scratch_backing_memory_byte_size: U64 = 0
    scratch_wave64_lane_byte_size: U32
    queue_properties: Annotated[QueueProperties, "I"]
    reserved3: Annotated[tuple[int, ...], "I", 2] = ()
    queue_inactive_signal: U64 = 0
    reserved4: Annotated[tuple[int, ...], "I", 14] = ()
