"""The copy engines: run SDMA packets from rings and indirect buffers.

They reach memory through their own TLB and past the shaders' caches: what L2 holds back they do not
see, and what they write is seen through L2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from rawgpu.amd.spec.sdma import (
    INDIRECT_ALIGN_BYTES,
    ConstantFill,
    CopyLinear,
    Fence,
    FillSize,
    GcrReq,
    Indirect,
    Nop,
    PollRegmem,
    TimestampGetGlobal,
    Trap,
    WriteUntiled,
)
from rawgpu.amd.virtual.compare import holds
from rawgpu.amd.virtual.dispatch import Client, Misuse, NotModelled, Pause
from rawgpu.amd.virtual.queues import Queue, Steps
from rawgpu.describe.packet import Packet

CHUNK_BYTES = 1 << 20
"""A large copy is several steps."""
FOR_EVER = 0xFFF
GCR_GLI_INV, GCR_GLK_INV, GCR_GLV_INV, GCR_GL1_INV = 3, 1 << 7, 1 << 8, 1 << 9
GCR_GL2_INV, GCR_GL2_WB = 1 << 14, 1 << 15


def run_sdma(queue: Queue) -> Steps:
    """The engine of an SDMA queue."""
    packets = queue.gpu.board.hardware.sdma
    while True:
        packet, size = None, 4
        while packet is None:
            if not queue.fetch(size):
                yield Pause.WAITING
                continue
            dwords = _measure(queue, size)
            if dwords is not None and 4 * dwords <= len(queue.fetched):
                packet = packets.decode_at(queue.fetched[: 4 * dwords])
            else:
                size = 4 * dwords if dwords is not None else size + 4
        assert dwords is not None
        end = queue.rptr % queue.shape.ring_bytes + 4 * dwords
        if end > queue.shape.ring_bytes:
            raise Misuse(
                f"{type(packet).__name__} crosses the ring's end: fill up with NOPs before"
            )
        if queue.strike():
            yield Pause.SLICE
            continue
        yield from execute(queue, packet)
        queue.advance(4 * dwords)
        yield Pause.SLICE


def _measure(queue: Queue, have: int) -> int | None:
    """The packet's dwords; None where more of it must be fetched to know."""
    try:
        return queue.gpu.board.hardware.sdma.measure(queue.fetched[:have])
    except ValueError:
        if have >= 32:
            raise
        return None


def execute(queue: Queue, packet: Packet) -> Steps:
    """Run one packet; yields while it waits or copies on."""
    line = [kind for kind in type(packet).__mro__ if kind in HANDLERS]
    if not line:
        raise NotModelled(f"the SDMA packet {type(packet).__name__}")
    steps = HANDLERS[line[-1]](queue, packet)
    if steps is not None:
        yield from steps


def nop(queue: Queue, packet: Nop) -> None:
    del queue, packet


def copy_linear(queue: Queue, packet: CopyLinear) -> Steps:
    if packet.broadcast or packet.encrypt or packet.tmz:
        raise NotModelled(f"{packet}")
    source, target, left = packet.source, packet.target, packet.size_bytes
    if source < target + left and target < source + left:
        raise Misuse(f"an SDMA copy whose ranges overlap: {packet}")
    while left:
        size = min(left, CHUNK_BYTES)
        queue.view.write(target, queue.view.read(source, size, Client.SDMA), Client.SDMA)
        source, target, left = source + size, target + size, left - size
        if left:
            yield Pause.SLICE


def write_untiled(queue: Queue, packet: WriteUntiled) -> None:
    _aligned(packet.target, 4, packet)
    queue.view.write(packet.target, struct.pack(f"<{len(packet.data)}I", *packet.data), Client.SDMA)


def indirect(queue: Queue, packet: Indirect) -> Steps:
    _aligned(packet.address, INDIRECT_ALIGN_BYTES, packet)
    end = queue.rptr + 4 * packet.dwords
    if end % 32:
        raise Misuse(f"an SDMA INDIRECT that ends at byte {end}, no multiple of 8 dwords")
    data = queue.view.read(packet.address, 4 * packet.size_dwords, Client.SDMA)
    for inner in queue.gpu.board.hardware.sdma.decode(data):
        if queue.strike():
            yield Pause.SLICE
            continue
        yield from execute(queue, inner)
        yield Pause.SLICE


def fence(queue: Queue, packet: Fence) -> None:
    queue.view.write(packet.address, struct.pack("<I", packet.data), Client.SDMA)


def trap(queue: Queue, packet: Trap) -> None:
    queue.gpu.interrupt(queue.process, packet.int_context)


def poll_regmem(queue: Queue, packet: PollRegmem) -> Steps:
    if not packet.mem_poll:
        raise NotModelled("SDMA POLL_REGMEM of a register")
    if packet.retry_count != FOR_EVER:
        raise NotModelled("SDMA POLL_REGMEM that gives up")
    while True:
        raw = queue.view.read(packet.address, 4, Client.SDMA)
        if holds(packet.function, struct.unpack("<I", raw)[0] & packet.mask, packet.value):
            return
        yield Pause.WAITING


def constant_fill(queue: Queue, packet: ConstantFill) -> Steps:
    if packet.fillsize is FillSize.WORD:
        raise NotModelled("SDMA CONST_FILL of 16-bit words")
    dwords = packet.fillsize is FillSize.DWORD
    left = packet.count + (4 if dwords else 1)
    target = packet.target
    if dwords:
        _aligned(target, 4, packet)
        _aligned(left, 4, packet)
    unit = struct.pack("<I", packet.data)
    pattern = (unit if dwords else unit[:1] * 4) * (CHUNK_BYTES // 4)
    while left:
        size = min(left, CHUNK_BYTES)
        queue.view.write(target, pattern[:size], Client.SDMA)
        target, left = target + size, left - size
        if left:
            yield Pause.SLICE


def timestamp(queue: Queue, packet: TimestampGetGlobal) -> None:
    queue.view.write(packet.address, struct.pack("<Q", queue.gpu.clock()), Client.SDMA)


def gcr_req(queue: Queue, packet: GcrReq) -> None:
    control = packet.gcr_control_15_0
    if packet.base_va or packet.limit_va:
        raise NotModelled("SDMA GCR_REQ of part of memory")
    if control & GCR_GL2_WB:
        queue.view.write_back()
    queue.view.invalidate(
        code=bool(control & GCR_GLI_INV),
        scalar=bool(control & GCR_GLK_INV),
        vector=bool(control & GCR_GLV_INV and control & GCR_GL1_INV),
        l2=bool(control & GCR_GL2_INV),
    )


def _aligned(value: int, align: int, packet: Packet) -> None:
    if value % align:
        raise Misuse(f"{packet}: {value:#x} is no multiple of {align}")


HANDLERS: dict[type[Packet], Callable[[Queue, Any], Steps | None]] = {
    Nop: nop,
    CopyLinear: copy_linear,
    WriteUntiled: write_untiled,
    Indirect: indirect,
    Fence: fence,
    Trap: trap,
    PollRegmem: poll_regmem,
    ConstantFill: constant_fill,
    TimestampGetGlobal: timestamp,
    GcrReq: gcr_req,
}
"""By first declaration."""
