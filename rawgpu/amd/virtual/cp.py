"""The command processor's compute engine (MEC): runs PM4 from rings and indirect buffers.

Packets are decoded by the declarations of `spec/pm4.py`. What is declared and not modelled raises
by name; what is not declared raises as it is decoded. Each packet is one step; packets that set
registers, which nobody else sees, belong to the step of the packet behind them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

from rawgpu.amd.spec.hardware import HDP_FLUSH_DONE, HDP_FLUSH_REQ
from rawgpu.amd.spec.pm4 import (
    AcquireMem,
    CopyData,
    CopySource,
    CopyTarget,
    DataSelect,
    DispatchDirect,
    DispatchIndirect,
    DmaData,
    DmaSelect,
    EventType,
    EventWrite,
    Filler,
    IndirectBuffer,
    InterruptSelect,
    Nop,
    Operation,
    PredExec,
    ReleaseMem,
    SetShReg,
    SetUconfigReg,
    Space,
    WaitRegMem,
    WriteData,
)
from rawgpu.amd.virtual import flush
from rawgpu.amd.virtual.compare import holds
from rawgpu.amd.virtual.decoding import Entry
from rawgpu.amd.virtual.dispatch import (
    Access,
    Client,
    GpuPageFault,
    Misuse,
    NotModelled,
    Pause,
)
from rawgpu.amd.virtual.launch import Registers, start_dispatch
from rawgpu.amd.virtual.queues import Queue, Steps
from rawgpu.describe.packet import Packet

HDP_FLUSH = HDP_FLUSH_REQ | HDP_FLUSH_DONE << 32
CHAIN_LIMIT = 1 << 16
"""Indirect buffers that follow each other without end are a loop."""


def run_ring(queue: Queue) -> Steps:
    """The engine of a PM4 queue."""
    packets = queue.gpu.pm4
    micro = MicroEngine(queue, queue.shape.xcc)
    while True:
        if not queue.fetch(4):
            yield Pause.WAITING
            continue
        dwords = packets.measure(queue.fetched)
        if not queue.fetch(4 * dwords):
            yield Pause.WAITING
            continue
        packet = packets.decode(queue.fetched)
        if isinstance(packet, PredExec):
            raise Misuse("PRED_EXEC in a ring: only indirect buffers may have it")
        if queue.strike():
            yield Pause.SLICE
            continue
        steps = micro.execute(packet)
        if steps is not None:
            yield from steps
        queue.advance(dwords)
        yield Pause.SLICE


class MicroEngine:
    """One XCC's command processor, on behalf of one queue."""

    def __init__(self, queue: Queue, xcc: int) -> None:
        self.queue = queue
        self.view = queue.view.family[xcc]
        self.xcc = xcc
        self.registers = Registers(queue.gpu.board.hardware)

    def execute(self, packet: Packet) -> Steps | None:
        """Run one packet; the steps that are left where it waits."""
        handler = HANDLERS.get(_base(type(packet)))
        if handler is None:
            raise NotModelled(f"the PM4 packet {type(packet).__name__}")
        return handler(self, packet)

    def run_buffer(self, address: int, size_dwords: int) -> Steps:
        """Run an indirect buffer, and those chained to it."""
        decoder = self.queue.gpu.pm4
        for _ in range(CHAIN_LIMIT):
            # The whole buffer is fetched at once: later changes are not seen.
            data = self.view.read(address, 4 * size_dwords, Client.COMMAND)
            chained = yield from self._run_entries(decoder.buffer(data))
            if chained is None:
                return
            address, size_dwords = chained.address, chained.size_dwords
        raise Misuse(f"{CHAIN_LIMIT} indirect buffers chained to one another")

    def _run_entries(self, entries: list[Entry]) -> Generator[Pause, None, IndirectBuffer | None]:
        """Run a decoded buffer; the packet that goes on elsewhere, if it ends in one."""
        skip_until = 0
        for entry in entries:
            if entry.error is not None:
                raise entry.error
            if entry.begin < skip_until:
                continue
            if entry.writes and not self.queue.gpu.machine.faults.blows:
                self.registers.update(entry.writes)
                continue
            for packet in entry.packets:
                if isinstance(packet, PredExec):
                    if not packet.xcc_mask >> self.xcc & 1:
                        skip_until = entry.end + packet.exec_count
                    continue
                if isinstance(packet, IndirectBuffer) and packet.chain:
                    return packet
                if self.queue.strike():
                    yield Pause.SLICE
                    continue
                steps = self.execute(packet)
                if steps is not None:
                    yield from steps
                yield Pause.SLICE
        return None

    # Memory as the command processor sees it.

    def read32(self, address: int) -> int:
        return int(struct.unpack("<I", self.view.read(address, 4, Client.COMMAND))[0])

    def write(self, address: int, data: bytes) -> None:
        if address % 4:
            raise Misuse(f"a command writes to {address:#x}, which is not 4-byte aligned")
        self.view.write(address, data, Client.COMMAND)


Handler = Callable[[MicroEngine, Any], "Steps | None"]


_bases: dict[type[Packet], type[Packet]] = {}


def _base(kind: type[Packet]) -> type[Packet]:
    """The first declaration of a packet, before generations changed it."""
    found = _bases.get(kind)
    if found is None:
        line = [base for base in kind.__mro__ if base in HANDLERS]
        found = _bases[kind] = line[-1] if line else kind
    return found


def nothing(engine: MicroEngine, packet: Packet) -> None:
    """NOP and fillers."""


def set_sh_reg(engine: MicroEngine, packet: SetShReg) -> None:
    for number, value in enumerate(packet.values):
        engine.registers.write(packet.register + 4 * number, value)


def set_uconfig_reg(engine: MicroEngine, packet: SetUconfigReg) -> None:
    for number, value in enumerate(packet.values):
        engine.registers.write(packet.register + 4 * number, value)


def indirect_buffer(engine: MicroEngine, packet: IndirectBuffer) -> Steps | None:
    if packet.chain:
        raise Misuse("a chained INDIRECT_BUFFER in a ring")
    if not packet.valid or not packet.size_dwords:
        raise Misuse(f"{packet} is not valid")
    return engine.run_buffer(packet.address, packet.size_dwords)


def dispatch_direct(engine: MicroEngine, packet: DispatchDirect) -> None:
    sizes = (packet.x, packet.y, packet.z)
    start_dispatch(engine.queue, engine.registers, sizes, packet.initiator, engine.xcc)


def dispatch_indirect(engine: MicroEngine, packet: DispatchIndirect) -> None:
    raw = engine.view.read(packet.address, 12, Client.COMMAND)
    sizes = struct.unpack("<3I", raw)
    start_dispatch(engine.queue, engine.registers, sizes, packet.initiator, engine.xcc)


def event_write(engine: MicroEngine, packet: EventWrite) -> Steps:
    if packet.event_type is not EventType.CS_PARTIAL_FLUSH:
        raise NotModelled(f"EVENT_WRITE of {packet.event_type.name}")
    while not engine.queue.dispatches_done(engine.xcc):
        yield Pause.WAITING


def acquire_mem(engine: MicroEngine, packet: AcquireMem) -> None:
    flush.acquire(engine.view, packet)


def release_mem(engine: MicroEngine, packet: ReleaseMem) -> None:
    queue = engine.queue
    if not queue.shape.eop:
        # Proven on hardware: the firmware writes its end-of-pipe record to address 0.
        raise GpuPageFault(0, Access.WRITE, client=Client.COMMAND)
    queue.add_event(lambda: end_of_pipe(engine, packet), engine.xcc)


def end_of_pipe(engine: MicroEngine, packet: ReleaseMem) -> None:
    """What a ReleaseMem does once all work before it is done."""
    flush.release(engine.view, packet)
    clock = engine.queue.gpu.clock()
    match packet.data_sel:
        case DataSelect.DATA_32:
            engine.write(packet.address, struct.pack("<I", packet.data & 0xFFFF_FFFF))
        case DataSelect.DATA_64:
            _aligned(packet.address, 8)
            engine.write(packet.address, struct.pack("<Q", packet.data))
        case DataSelect.GPU_CLOCK:
            _aligned(packet.address, 8)
            engine.write(packet.address, struct.pack("<Q", clock))
        case DataSelect.NONE:
            pass
        case other:
            raise NotModelled(f"RELEASE_MEM with data_sel {other.name}")
    if packet.int_sel is not InterruptSelect.NONE:
        engine.queue.gpu.interrupt(engine.queue.process, packet.int_ctxid)


def _aligned(address: int, align: int) -> None:
    if address % align:
        raise Misuse(f"a command writes {align} bytes to {address:#x}, which is not aligned")


def wait_reg_mem(engine: MicroEngine, packet: WaitRegMem) -> Steps | None:
    if packet.mem_space is Space.REGISTER:
        if packet.operation is Operation.WRITE_WAIT_WRITE and packet.address == HDP_FLUSH:
            engine.queue.gpu.flush_hdp()
            return None
        raise NotModelled(f"a wait for the register at dword {packet.address & 0xFFFF_FFFF:#x}")
    return _wait_memory(engine, packet)


def _wait_memory(engine: MicroEngine, packet: WaitRegMem) -> Steps:
    _aligned(packet.address, 4)
    while True:
        value = engine.read32(packet.address) & packet.mask
        if holds(packet.function, value, packet.reference):
            return
        yield Pause.WAITING


def write_data(engine: MicroEngine, packet: WriteData) -> None:
    if packet.dst_sel is CopyTarget.REGISTER:
        raise NotModelled("WRITE_DATA to a register")
    if packet.one_address:
        for value in packet.data:
            engine.write(packet.address, struct.pack("<I", value))
        return
    engine.write(packet.address, struct.pack(f"<{len(packet.data)}I", *packet.data))


def copy_data(engine: MicroEngine, packet: CopyData) -> None:
    size = 8 if packet.wide else 4
    match packet.src_sel:
        case CopySource.MEMORY | CopySource.TC_L2:
            data = engine.view.read(packet.source, size, Client.COMMAND)
        case CopySource.IMMEDIATE:
            data = struct.pack("<Q", packet.source)[:size]
        case CopySource.GPU_CLOCK | CopySource.SYSTEM_CLOCK:
            data = struct.pack("<Q", engine.queue.gpu.clock())[:size]
        case other:
            raise NotModelled(f"COPY_DATA from {other.name}")
    if packet.dst_sel is CopyTarget.REGISTER:
        raise NotModelled("COPY_DATA to a register")
    engine.write(packet.target, data)


def dma_data(engine: MicroEngine, packet: DmaData) -> None:
    memory = (DmaSelect.ADDRESS, DmaSelect.ADDRESS_L2)
    if packet.dst_sel not in memory:
        raise NotModelled(f"DMA_DATA to {packet.dst_sel.name}")
    size = packet.byte_count
    if packet.src_sel is DmaSelect.DATA:
        data = struct.pack("<I", packet.source & 0xFFFF_FFFF) * (-(-size // 4))
    elif packet.src_sel in memory:
        data = engine.view.read(packet.source, size, Client.COMMAND)
    else:
        raise NotModelled(f"DMA_DATA from {packet.src_sel.name}")
    engine.view.write(packet.target, data[:size], Client.COMMAND)


def pred_exec(engine: MicroEngine, packet: PredExec) -> None:
    raise Misuse("PRED_EXEC where no dwords can follow it")


HANDLERS: dict[type[Packet], Handler] = {
    Nop: nothing,
    Filler: nothing,
    SetShReg: set_sh_reg,
    SetUconfigReg: set_uconfig_reg,
    IndirectBuffer: indirect_buffer,
    DispatchDirect: dispatch_direct,
    DispatchIndirect: dispatch_indirect,
    EventWrite: event_write,
    AcquireMem: acquire_mem,
    ReleaseMem: release_mem,
    WaitRegMem: wait_reg_mem,
    WriteData: write_data,
    CopyData: copy_data,
    DmaData: dma_data,
    PredExec: pred_exec,
}
"""By first declaration, which generations only change."""
