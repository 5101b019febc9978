"""Launches as packets: what a command processor must be told, and when caches are flushed.

For PM4 the driver does itself what an AQL packet leaves to the firmware: registers from the
descriptor, local-memory size, user SGPRs in the descriptor's order, preloaded arguments. A launch
of one shape is encoded once and kept with the kernel; what differs from call to call, above all the
address of the arguments, is written over.

The order of registers is tinygrad's, which works on hardware.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.amd.driver.arguments import Grid3, dimensions
from rawgpu.amd.driver.scratch import Scratch
from rawgpu.amd.driver.stencil import Stencil
from rawgpu.amd.spec import aql, pm4
from rawgpu.amd.spec.descriptor import Properties
from rawgpu.amd.spec.hardware import HDP_FLUSH_DONE, HDP_FLUSH_REQ, Feature, Hardware
from rawgpu.describe.packet import Packet

if TYPE_CHECKING:
    from rawgpu.amd.driver.events import Event
    from rawgpu.amd.driver.program import AmdKernel

START_DELAY = 0x20
"""As Mesa's radv and PAL have it for gfx10; on gfx9 they set 0, from gfx11 on there is none."""
PRELOAD_SKIP_BYTES = 256
LAUNCH_CACHE = 64
"""Shapes that a kernel remembers."""
KERNARG_ALIGN = 64
DISPATCH_PACKET_BYTES = 64
PACKET_KERNARG = 40
"""Where a dispatch packet has the address of the arguments."""


@dataclass(frozen=True)
class Launch:
    """An encoded launch. Each patch is a dword's index and where its value comes from."""

    words: tuple[int, ...]
    kernarg_at: int | None
    """Index of the dwords with the address of the arguments."""
    packet_at: int | None
    """Index of the dwords with the address of a copy of the dispatch packet."""
    preloads: tuple[tuple[int, int], ...]
    """Index, and the argument segment's dword that goes there."""
    template: bytes
    """The argument segment without arguments."""
    packet: bytes
    """The dispatch packet to copy behind the arguments, where the kernel looks at it."""
    scratch: Scratch

    @property
    def room_bytes(self) -> int:
        """What the arguments and the packet's copy take."""
        size = -(-len(self.template) // KERNARG_ALIGN) * KERNARG_ALIGN
        return size + (DISPATCH_PACKET_BYTES if self.packet else 0)

    def place(self, kernarg_va: int, segment: memoryview) -> list[int]:
        """The dwords of a call whose arguments lie at `kernarg_va` and are in `segment`."""
        words = list(self.words)
        if self.kernarg_at is not None:
            words[self.kernarg_at] = kernarg_va & 0xFFFFFFFF
            words[self.kernarg_at + 1] = kernarg_va >> 32
        if self.packet_at is not None:
            at = self.room_bytes - DISPATCH_PACKET_BYTES
            segment[at : at + DISPATCH_PACKET_BYTES] = self.packet
            place = at + PACKET_KERNARG
            segment[place : place + 8] = kernarg_va.to_bytes(8, "little")
            words[self.packet_at] = kernarg_va + at & 0xFFFFFFFF
            words[self.packet_at + 1] = kernarg_va + at >> 32
        for index, dword in self.preloads:
            words[index] = int.from_bytes(segment[4 * dword : 4 * dword + 4], "little")
        return words


def encode(packets: Iterable[Packet]) -> list[int]:
    """The packets' dwords."""
    words: list[int] = []
    for packet in packets:
        words += packet.encode()
    return words


def launch_of(kernel: AmdKernel, grid: Grid3, scratch: Scratch, queue_va: int, mode: str) -> Launch:
    """The encoded launch, from the kernel's memory if it had this shape before."""
    key = (grid, id(scratch), queue_va, mode)
    found: Launch | None = kernel.launches.get(key)
    if found is None or found.scratch is not scratch:
        build = _pm4 if mode == "pm4" else _aql
        found = build(kernel, grid, scratch, queue_va)
        if len(kernel.launches) >= LAUNCH_CACHE:
            kernel.launches.clear()
        kernel.launches[key] = found
    return found


def _packet(kernel: AmdKernel, grid: Grid3) -> aql.KernelDispatch:
    """The launch as AQL has it; `kernarg_address` is filled in later."""
    (bx, by, bz), (gx, gy, gz) = grid.block, grid.blocks
    return aql.KernelDispatch(
        dimensions=dimensions(grid),
        workgroup_size_x=bx,
        workgroup_size_y=by,
        workgroup_size_z=bz,
        grid_size_x=bx * gx,
        grid_size_y=by * gy,
        grid_size_z=bz * gz,
        private_segment_size=kernel.private_bytes,
        group_segment_size=kernel.lds_bytes,
        kernel_object=kernel.descriptor_va,
        kernarg_address=0,
    )


def _aql(kernel: AmdKernel, grid: Grid3, scratch: Scratch, queue_va: int) -> Launch:
    words = tuple(_packet(kernel, grid).encode())
    template = kernel.arguments.template(grid, queue_va)
    return Launch(words, 10, None, (), template, b"", scratch)


class _UserData:
    """User SGPRs in the descriptor's order, with the places that calls fill in."""

    def __init__(self, kernel: AmdKernel, scratch: Scratch, queue_va: int) -> None:
        self.words: list[int] = []
        self.kernarg: int | None = None
        self.packet: int | None = None
        self.preloads: list[tuple[int, int]] = []
        for flag, count in kernel.user_sgprs:
            at = len(self.words)
            self.words += [0] * count
            self._fill(flag, at, kernel, scratch, queue_va)
        for i in range(kernel.preload_dwords):
            self.preloads.append((len(self.words), kernel.preload_offset + i))
            self.words.append(0)

    def _fill(
        self, flag: Properties, at: int, kernel: AmdKernel, scratch: Scratch, queue_va: int
    ) -> None:
        match flag:
            case Properties.ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER:
                self.words[at : at + 4] = scratch.buffer(kernel.lanes)
            case Properties.ENABLE_SGPR_DISPATCH_PTR:
                self.packet = at
            case Properties.ENABLE_SGPR_QUEUE_PTR:
                self.words[at : at + 2] = queue_va & 0xFFFFFFFF, queue_va >> 32
            case Properties.ENABLE_SGPR_KERNARG_SEGMENT_PTR:
                self.kernarg = at
            case Properties.ENABLE_SGPR_FLAT_SCRATCH_INIT:
                self.words[at : at + 2] = scratch.address & 0xFFFFFFFF, scratch.address >> 32
            case Properties.ENABLE_SGPR_PRIVATE_SEGMENT_SIZE:
                self.words[at] = kernel.private_bytes
            case _:  # the dispatch id: launches are not counted
                pass


def _pm4(kernel: AmdKernel, grid: Grid3, scratch: Scratch, queue_va: int) -> Launch:
    hardware = kernel.device.hardware
    user = _UserData(kernel, scratch, queue_va)
    words: list[int] = []

    def write(name: str, *values: int) -> None:
        offset = hardware.registers.offset(name)
        kind = pm4.SetShReg if offset < pm4.UCONFIG_BASE else pm4.SetUconfigReg
        words.extend(kind(register=offset, values=values).encode())

    words += hardware.caches.dispatch.encode()
    entry = kernel.entry_va
    if kernel.preload_dwords and Feature.PRELOAD_PROLOGUE in hardware.features:
        entry += PRELOAD_SKIP_BYTES
    write("COMPUTE_PGM_LO", entry >> 8 & 0xFFFFFFFF, entry >> 40)
    write("COMPUTE_PGM_RSRC1", _rsrc1(kernel, hardware), _rsrc2(kernel, hardware, grid))
    write("COMPUTE_PGM_RSRC3", kernel.descriptor.compute_pgm_rsrc3)
    write("COMPUTE_TMPRING_SIZE", scratch.tmpring)
    if Feature.ARCHITECTED_SCRATCH in hardware.features:
        base = scratch.address >> 8
        write("COMPUTE_DISPATCH_SCRATCH_BASE_LO", base & 0xFFFFFFFF, base >> 32)
    if Feature.COHER_START_DELAY in hardware.features:
        write("CP_COHER_START_DELAY", START_DELAY)
    write("COMPUTE_RESTART_X", 0, 0, 0)
    user_at = len(words) + 2
    if user.words:
        write("COMPUTE_USER_DATA_0", *user.words)
    write("COMPUTE_RESOURCE_LIMITS", 0)
    write("COMPUTE_START_X", 0, 0, 0, *grid.block, 0, 0)
    x, y, z = grid.blocks
    words += pm4.DispatchDirect(x=x, y=y, z=z, initiator=_initiator(kernel, hardware)).encode()
    words += pm4.EventWrite(
        event_type=pm4.EventType.CS_PARTIAL_FLUSH, event_index=pm4.EventIndex.PARTIAL_FLUSH
    ).encode()
    return Launch(
        tuple(words),
        None if user.kernarg is None else user_at + user.kernarg,
        None if user.packet is None else user_at + user.packet,
        tuple((user_at + index, dword) for index, dword in user.preloads),
        kernel.arguments.template(grid, queue_va),
        _packet(kernel, grid).pack() if user.packet is not None else b"",
        scratch,
    )


def _rsrc1(kernel: AmdKernel, hardware: Hardware) -> int:
    value = kernel.descriptor.compute_pgm_rsrc1
    if Feature.PRIV_WORKAROUND in hardware.features:
        register = hardware.registers.named("COMPUTE_PGM_RSRC1")
        value |= register(PRIV=1).encode()
    return value


def _rsrc2(kernel: AmdKernel, hardware: Hardware, grid: Grid3) -> int:
    granules = -(-kernel.lds_bytes // hardware.lds_granule_bytes)
    register = hardware.registers.named("COMPUTE_PGM_RSRC2")
    return register.decode(kernel.descriptor.compute_pgm_rsrc2).replace(LDS_SIZE=granules).encode()


def _initiator(kernel: AmdKernel, hardware: Hardware) -> int:
    register = hardware.registers.named("COMPUTE_DISPATCH_INITIATOR")
    values = {"COMPUTE_SHADER_EN": 1, "FORCE_START_AT_000": 1}
    if Feature.WAVE32 in hardware.features:
        values["CS_W32_EN"] = int(kernel.lanes == 32)
    return register(**values).encode()


class Boundaries:
    """The packets between launches, encoded once for a GPU."""

    def __init__(self, hardware: Hardware, event: Event) -> None:
        caches = hardware.caches
        self.flush_hdp = (
            pm4.WaitRegMem(
                function=pm4.Function.GREATER_EQUAL,
                mem_space=pm4.Space.REGISTER,
                operation=pm4.Operation.WRITE_WAIT_WRITE,
                address=HDP_FLUSH_DONE << 32 | HDP_FLUSH_REQ,
                reference=0xFFFFFFFF,
                mask=0xFFFFFFFF,
            ).encode()
            if Feature.HDP_REGISTERS in hardware.features
            else []
        )
        """Empty where the host flushes by itself."""
        self.acquire_all = caches.submit.encode()
        self._plain = type(caches.release)
        context = event.context if hardware.interrupt_context_is_event else 0
        self.wake = self._plain(
            address=event.slot,
            data=event.id,
            data_sel=pm4.DataSelect.DATA_32,
            int_sel=pm4.InterruptSelect.AFTER_WRITE_CONFIRM,
            int_ctxid=context,
        ).encode()
        """Sets the event's slot and interrupts; caches are not its business."""
        wait = pm4.WaitRegMem(
            function=pm4.Function.GREATER_EQUAL,
            mem_space=pm4.Space.MEMORY,
            address=0,
            reference=0,
        )
        self.wait = Stencil(wait, "address", "reference")
        """Hold the queue until the word at an address is so much or more."""
        signal = caches.release.replace(data_sel=pm4.DataSelect.DATA_32)
        self.signal = Stencil(signal, "address", "data")
        """Write back caches, then write a word to an address."""

    def timestamp(self, address: int) -> list[int]:
        """Write the GPU's clock when all before is done. All caches are to be acquired next."""
        settle = self._plain(address=0, int_sel=pm4.InterruptSelect.AFTER_WRITE_CONFIRM)
        clock = self._plain(address=address, data_sel=pm4.DataSelect.GPU_CLOCK)
        return settle.encode() + clock.encode()
