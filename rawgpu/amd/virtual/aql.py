"""AQL queues: 64-byte packets, run in order of their headers by all XCCs together.

A slot's type is INVALID until its header is written; the engine waits there. A kernel's work-groups
are spread over the XCCs; PM4 inside a vendor packet runs on each of them.

Source: HSA Runtime Specification 1.2, 2.9; LLVM AMDGPUUsage, kernel dispatch.
"""

from __future__ import annotations

import functools
import math
import struct

from rawgpu.amd.spec.aql import (
    AQL,
    PACKET_BYTES,
    AmdQueue,
    AmdSignal,
    Aql,
    BarrierAnd,
    BarrierOr,
    KernelDispatch,
    PacketType,
    Scope,
    VendorPm4,
)
from rawgpu.amd.spec.descriptor import DESCRIPTOR_BYTES, KernelDescriptor, Properties
from rawgpu.amd.spec.hardware import Feature
from rawgpu.amd.spec.pm4 import IndirectBuffer
from rawgpu.amd.virtual import flush
from rawgpu.amd.virtual.cp import MicroEngine
from rawgpu.amd.virtual.dispatch import Client, Dispatch, Misuse, NotModelled, Pause
from rawgpu.amd.virtual.launch import check, describe, run
from rawgpu.amd.virtual.queues import EVERY_XCC, Queue, Steps

QUEUE_HEAD_BYTES = 0x38
"""`write_dispatch_id` stands here in the queue's descriptor."""
READ_POINTER = 0x80
COMPLETION_SIGNAL = 56
"""Where a dispatch packet has its signal, behind all that says what runs."""
SIGNAL_VALUE, SIGNAL_START, SIGNAL_END = 8, 32, 40
REMEMBERED = 4096
PRELOAD_SKIP_BYTES = 256


def run_aql(queue: Queue) -> Steps:
    """The engine of an AQL queue."""
    engines = [MicroEngine(queue, xcc) for xcc in range(queue.gpu.board.xccs)]
    while True:
        if not queue.fetch(PACKET_BYTES):
            yield Pause.WAITING
            continue
        if queue.fetched[0] == PacketType.INVALID:
            queue.fetched = b""  # the header may come any time
            yield Pause.WAITING
            continue
        packet = _decoded(queue.fetched[:PACKET_BYTES])
        if queue.strike():
            yield Pause.SLICE
            continue
        if packet.barrier:
            while queue.jobs:
                yield Pause.WAITING
        _acquire(queue, packet)
        yield from _execute(queue, packet, engines)
        _retire(queue, packet)
        queue.advance(1)
        yield Pause.SLICE


@functools.lru_cache(REMEMBERED)
def _decoded(raw: bytes) -> Aql:
    packet = AQL.decode_at(raw)
    assert isinstance(packet, Aql)
    return packet


def _acquire(queue: Queue, packet: Aql) -> None:
    if packet.acquire is Scope.SYSTEM:
        flush.system_acquire(queue.view)
    elif packet.acquire is Scope.AGENT:
        flush.agent_acquire(queue.view)


def _execute(queue: Queue, packet: Aql, engines: list[MicroEngine]) -> Steps:
    match packet:
        case KernelDispatch():
            launch(queue, packet)
        case VendorPm4():
            yield from _vendor(queue, packet, engines)
        case BarrierAnd():
            yield from _barrier(queue, packet)
        case _:
            raise NotModelled(f"the AQL packet {type(packet).__name__}")


def _retire(queue: Queue, packet: Aql) -> None:
    """The end of a packet, once the work before and in it is done."""
    signal = getattr(packet, "completion_signal", 0)
    release = packet.release is Scope.SYSTEM
    if not signal and not release:
        return
    begin = queue.gpu.clock()

    def complete() -> None:
        if release:
            flush.system_release(queue.view)
        if signal:
            _signal(queue, signal, begin)

    queue.add_event(complete, EVERY_XCC)


def _signal(queue: Queue, address: int, begin: int) -> None:
    """Decrement a completion signal, stamp it, wake who waits for it."""
    view = queue.view
    raw = view.read(address, AmdSignal.about.size, Client.COMMAND)
    signal = AmdSignal.decode(raw)
    times = struct.pack("<QQ", begin, queue.gpu.clock())
    view.write(address + SIGNAL_START, times, Client.COMMAND)
    value = struct.pack("<q", signal.value - 1)
    view.write(address + SIGNAL_VALUE, value, Client.COMMAND)
    if signal.event_mailbox_ptr:
        mailbox = struct.pack("<Q", signal.event_id)
        view.write(signal.event_mailbox_ptr, mailbox, Client.COMMAND)
        queue.gpu.interrupt(queue.process, signal.event_id)


def _vendor(queue: Queue, packet: VendorPm4, engines: list[MicroEngine]) -> Steps:
    words = [
        packet.indirect_buffer_0,
        packet.indirect_buffer_1,
        packet.indirect_buffer_2,
        packet.indirect_buffer_3,
    ]
    inner = queue.gpu.board.hardware.pm4.decode_at(words)
    if not isinstance(inner, IndirectBuffer):
        raise Misuse(f"an AQL vendor packet with {type(inner).__name__}, not an INDIRECT_BUFFER")
    # Side by side: one XCC may wait for what another is about to signal.
    running = [engine.run_buffer(inner.address, inner.size_dwords) for engine in engines]
    while running:
        pause = None
        for steps in queue.chance.shuffled(running):
            pause = next(steps, None)
            if pause is None:
                running.remove(steps)
            if pause is not Pause.WAITING:
                break
        if pause is not None:
            yield pause


def _barrier(queue: Queue, packet: BarrierAnd) -> Steps:
    names = ("dep_signal_0", "dep_signal_1", "dep_signal_2", "dep_signal_3", "dep_signal_4")
    signals = [address for name in names if (address := getattr(packet, name))]
    enough = any if isinstance(packet, BarrierOr) else all
    while signals:
        values = [
            struct.unpack("<q", queue.view.read(s + SIGNAL_VALUE, 8, Client.COMMAND))[0]
            for s in signals
        ]
        if enough(value == 0 for value in values):
            return
        yield Pause.WAITING


def launch(queue: Queue, packet: KernelDispatch) -> None:
    """A kernel dispatch: what the packet processor does with a descriptor."""
    view = queue.view
    raw = view.read(packet.kernel_object, DESCRIPTOR_BYTES, Client.COMMAND)
    kernel = _kernel(raw)
    head = queue.shape.write_pointer - QUEUE_HEAD_BYTES
    still = _still(view.read(head, AmdQueue.about.size, Client.COMMAND))
    own = _own(still)
    user_data = _user_data(queue, packet, kernel, own)
    geometry = queue.fetched[:COMPLETION_SIGNAL]
    key = (raw, still, geometry, tuple(user_data))
    found = queue.dispatches.get(key)
    if found is None:
        found = _dispatches(queue, packet, kernel, own, user_data)
        if len(queue.dispatches) >= REMEMBERED:
            queue.dispatches.clear()
        queue.dispatches[key] = found
    for dispatch in found:
        run(queue, dispatch)


@functools.lru_cache(REMEMBERED)
def _kernel(raw: bytes) -> KernelDescriptor:
    return KernelDescriptor.decode(raw)


def _still(raw: bytes) -> bytes:
    """The queue's descriptor without its pointers, which change all the time."""
    still = bytearray(raw)
    for at in (QUEUE_HEAD_BYTES, READ_POINTER):
        still[at : at + 8] = bytes(8)
    return bytes(still)


@functools.lru_cache(REMEMBERED)
def _own(raw: bytes) -> AmdQueue:
    return AmdQueue.decode(raw)


def _dispatches(
    queue: Queue,
    packet: KernelDispatch,
    kernel: KernelDescriptor,
    own: AmdQueue,
    user_data: list[int],
) -> list[Dispatch]:
    """What each XCC runs, without those to which no group falls."""
    board = queue.gpu.board
    hardware = board.hardware
    size = (packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z)
    grid = (packet.grid_size_x, packet.grid_size_y, packet.grid_size_z)
    if not packet.dimensions or 0 in size or 0 in grid:
        raise Misuse(f"an AQL dispatch of nothing: {packet}")
    groups = tuple(-(-items // of) for items, of in zip(grid, size, strict=True))
    two = kernel.compute_pgm_rsrc2
    granules = -(-packet.group_segment_size // hardware.lds_granule_bytes)
    two = two & ~(0x1FF << 15) | granules << 15
    entry = packet.kernel_object + kernel.kernel_code_entry_byte_offset
    skip = kernel.kernarg_preload and Feature.PRELOAD_PROLOGUE in hardware.features
    found = []
    for xcc in range(min(board.xccs, math.prod(groups))):
        dispatch = describe(
            board,
            kernel_va=packet.kernel_object,
            entry_va=entry + (PRELOAD_SKIP_BYTES if skip else 0),
            rsrc=(kernel.compute_pgm_rsrc1, two, kernel.compute_pgm_rsrc3),
            groups=groups,
            start=(0, 0, 0),
            group_size=size,
            partial=tuple(items % of for items, of in zip(grid, size, strict=True)),
            wave_size=_wave_size(queue, kernel),
            user_data=user_data,
            tmpring=own.compute_tmpring_size,
            scratch_base=_scratch_base(own, xcc),
            xcc=xcc,
            xccs=board.xccs,
        )
        check(board, dispatch)
        found.append(dispatch)
    return found


def _wave_size(queue: Queue, kernel: KernelDescriptor) -> int:
    wave32 = bool(kernel.kernel_code_properties & Properties.ENABLE_WAVEFRONT_SIZE32)
    if wave32 and Feature.WAVE32 not in queue.gpu.board.hardware.features:
        raise Misuse("a descriptor that asks for waves of 32 lanes, which this GPU has not")
    return 32 if wave32 else 64


def _scratch_base(own: AmdQueue, xcc: int) -> int:
    """Where this XCC's scratch begins.

    NUM_RECORDS of the descriptor is the size of one XCC's: so say ROCr's FillBufRsrcWord2 and
    tinygrad, which leaves `scratch_backing_memory_byte_size` at 0.
    """
    return int(own.scratch_backing_memory_location) + xcc * own.scratch_resource_descriptor[2]


def _user_data(
    queue: Queue, packet: KernelDispatch, kernel: KernelDescriptor, own: AmdQueue
) -> list[int]:
    """User SGPRs in the descriptor's order, then preloaded arguments."""
    wants = int(kernel.kernel_code_properties)  # the operators of an enum are slow
    slot = queue.rptr % (queue.shape.ring_bytes // PACKET_BYTES)
    head = queue.shape.write_pointer - QUEUE_HEAD_BYTES
    words: list[int] = []
    if wants & Properties.ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER.value:
        words += own.scratch_resource_descriptor
    for flag, value in (
        (Properties.ENABLE_SGPR_DISPATCH_PTR, queue.shape.ring + slot * PACKET_BYTES),
        (Properties.ENABLE_SGPR_QUEUE_PTR, head),
        (Properties.ENABLE_SGPR_KERNARG_SEGMENT_PTR, packet.kernarg_address),
        (Properties.ENABLE_SGPR_DISPATCH_ID, queue.rptr),
        (Properties.ENABLE_SGPR_FLAT_SCRATCH_INIT, own.scratch_backing_memory_location),
    ):
        if wants & flag.value:
            words += [value & 0xFFFF_FFFF, value >> 32]
    if wants & Properties.ENABLE_SGPR_PRIVATE_SEGMENT_SIZE.value:
        words.append(packet.private_segment_size)
    count, offset = kernel.kernarg_preload & 0x7F, kernel.kernarg_preload >> 7
    if count:
        at = packet.kernarg_address + 4 * offset
        words += struct.unpack(f"<{count}I", queue.view.read(at, 4 * count, Client.COMMAND))
    return words
