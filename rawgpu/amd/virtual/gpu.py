"""One virtual GPU: its memory, its queues, and what befalls it.

Queues are stepped by the machine (`machine.py`); what goes wrong while one runs ends here: page
faults, halted waves, resets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawgpu.amd.virtual import faults
from rawgpu.amd.virtual.decoding import Decoder
from rawgpu.amd.virtual.dispatch import GpuPageFault, WaveHalted
from rawgpu.amd.virtual.hdp import Bars
from rawgpu.ioctl import kfd
from rawgpu.virtual.memory import Arena

if TYPE_CHECKING:
    from rawgpu.amd.virtual.boards import Board
    from rawgpu.amd.virtual.machine import Machine
    from rawgpu.amd.virtual.process import Process
    from rawgpu.amd.virtual.queues import Queue
    from rawgpu.amd.virtual.sysfs import Place


class Gpu:
    """A card."""

    def __init__(self, machine: Machine, place: Place) -> None:
        self.machine = machine
        self.place = place
        self.vram = Arena(f"rawgpu-{place.board.name}-{place.number}", place.board.vram_bytes)
        self.pm4 = Decoder(place.board.hardware.pm4)
        self.queues: list[Queue] = []
        self.bars = Bars()
        self.resets = 0
        """VRAM was lost so often."""
        self.last_fault: tuple[int, int] = (0, 0)
        """Address and status word of the last page fault, as INFO tells them."""

    @property
    def board(self) -> Board:
        return self.place.board

    @property
    def gpu_id(self) -> int:
        return self.place.gpu_id

    @property
    def number(self) -> int:
        return self.place.number

    def clock(self) -> int:
        """The constant-frequency counter."""
        return self.machine.clock.now_ns() * self.board.counter_mhz // 1000

    def flush_hdp(self) -> None:
        """What the CPU wrote to VRAM reaches it."""
        self.bars.flush()

    def interrupt(self, process: Process, context: int) -> None:
        """End of pipe, SDMA trap or s_sendmsg; it arrives a little later, or never."""
        self.machine.interrupts.raise_one(self, process, context)

    def page_fault(self, queue: Queue, fault: GpuPageFault) -> None:
        """The kernel's handling: the process's queues on this GPU stop, its events tell it."""
        process = queue.process
        status = faults.status_word(fault, queue.vmid)
        self.last_fault = (fault.address & -4096, status)
        process.taken[self.gpu_id].evicted = True
        self.machine.log += faults.page_fault_lines(self.place, process, queue, fault, status)
        for other in self.queues:
            if other.process is process and other.dead is None:
                other.stop(f"evicted after a page fault at {fault.address:#x}")
        process.events.report_memory(faults.exception_data(self.gpu_id, fault))

    def wave_halted(self, queue: Queue, halt: WaveHalted) -> None:
        """Only the kernel's log tells; the queue waits for its waves for ever."""
        queue.halts.append(halt)
        self.machine.log.append(faults.wave_line(self.place, halt))

    def reset(self, cause: kfd.ResetCause = kfd.ResetCause.GPU_HANG) -> None:
        """MODE1: VRAM and every queue on this GPU are lost, for all processes."""
        self.resets += 1
        self.machine.log += faults.reset_lines(self.place)
        for queue in self.queues:
            queue.stop("lost in a GPU reset")
        for process in self.machine.processes:
            taken = process.on(self.gpu_id)
            if taken is None or taken.view is None:
                continue
            for part in taken.view.family:
                part.caches.clear()
            for buffer in taken.buffers.values():
                if buffer.extent is not None and buffer.extent.arena is self.vram:
                    self.machine.scramble(buffer.extent)
            data = kfd.HwExceptionData(
                reset_type=kfd.ResetType.WHOLE_GPU,
                reset_cause=cause,
                memory_lost=1,
                gpu_id=self.gpu_id,
            )
            process.events.report_hardware(data)

    def close(self) -> None:
        self.vram.close()
