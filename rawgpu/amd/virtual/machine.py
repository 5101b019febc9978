"""A machine with virtual AMD GPUs: steps their queues, keeps their time, serves their kernel.

Stepped: GPUs run inside `store_doorbell`, `pause` and calls that wait, some steps at a time, in an
order that the seed decides. When nothing can move, time leaps, so that bounded waits end.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib
import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rawgpu.amd.virtual import faults, sysfs
from rawgpu.amd.virtual.boards import BOARDS, Board
from rawgpu.amd.virtual.dispatch import GpuPageFault, Runner, run_nothing
from rawgpu.amd.virtual.gpu import Gpu
from rawgpu.amd.virtual.interrupts import Interrupts
from rawgpu.amd.virtual.process import Buffer, KernelError, Process, Taken
from rawgpu.amd.virtual.queues import Queue
from rawgpu.amd.virtual.versions import DEFAULT, KERNELS, Kernel
from rawgpu.errors import UnsupportedDevice
from rawgpu.ioctl import kfd
from rawgpu.virtual import company
from rawgpu.virtual.memory import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_PRIVATE,
    PROT_READ,
    PROT_WRITE,
    Arena,
    Extent,
    map_host,
    peek,
    poke,
)
from rawgpu.virtual.room import Setting

if TYPE_CHECKING:
    from rawgpu.amd.virtual.port import Port

POISON_BYTES = 1 << 20
PAUSE_STEPS = 48
"""Steps that one `pause` gives the GPUs."""
THREAD_STEPS = 256
REST_S, LONGEST_REST_S = 100e-6, 0.1
STEP_NS = 100
SLICE_NS = 20_000
SLICES_PER_DOUBLING = 64
LEAP_NS, LONGEST_LEAP_NS = 10_000, 50_000_000
SYSTEM_BYTES = 64 << 30
UNMAP_LATENCY_NS = 4_000_000_000
"""How long the kernel waits for a queue to leave the hardware (KFD_UNMAP_LATENCY_MS)."""


class Machine:
    """The whole of it.

    Options of the room: `kernel`, a row of `versions.KERNELS`; `hidden`, numbers of GPUs that a
    container hides; `links` False for no peer access; `large_bar` or `sdma` False for cards without
    them; `runner`, what executes dispatches.
    """

    def __init__(self, setting: Setting) -> None:
        options = dict(setting.options)
        self.kernel = _row(str(options.get("kernel", DEFAULT)))
        self.strict = setting.strict
        self.chance = setting.chance
        self.clock = setting.clock
        self.faults = setting.faults
        self.threaded = setting.threaded
        self.changed = threading.Condition()
        """Held by whoever touches the machine; notified when something moved."""
        self._failure: BaseException | None = None
        self._stopping = False
        self.log: list[str] = []
        self.steps = 0
        self.system = Arena("rawgpu-system", SYSTEM_BYTES)
        self.run_dispatch: Runner = options.get("runner") or _default_runner()
        self.linked = bool(options.get("links", True))
        boards = [_board(name, options) for name in setting.names]
        self.places = sysfs.places(boards, options.get("hidden", ()))
        self.gpus = [Gpu(self, place) for place in self.places]
        self.by_id = {gpu.gpu_id: gpu for gpu in self.gpus}
        self.files = sysfs.files(
            self.places,
            sizes=self.kernel.exports_sizes,
            linked=self.linked,
            system_bytes=SYSTEM_BYTES,
        )
        self.interrupts = Interrupts(self)
        self.processes: list[Process] = []
        self.ports: list[Port] = []
        self._born = 0
        self.event_pages: dict[Process, Extent] = {}
        self._mmio: dict[Gpu, Extent] = {}
        self._order = self.chance.fork("order")
        self._turns = self.chance.fork("poison")
        self._poison = self._turns.bytes(POISON_BYTES)
        self._leap_ns = LEAP_NS
        self._inside = False
        self.one_thread = not self.threaded
        """Whether the CPU stands still while the GPUs run; else writes through a BAR can be lost
        between comparing a page and giving it to memory, so they are no longer held back."""
        self._owner = threading.get_ident()
        self._thread = threading.Thread(target=self._work, name="virtual AMD GPUs", daemon=True)
        if self.threaded:
            self._thread.start()
        else:
            company.watch(self)

    # Time and steps.

    def another_thread_begins(self) -> None:
        """From now on the CPU may write while the GPUs run: hold nothing back."""
        if self.one_thread:
            with self.changed:
                self.one_thread = False
                for gpu in self.gpus:
                    gpu.bars.share()

    def run(self, steps: int) -> bool:
        """Let the GPUs take up to so many steps; False if nothing could move."""
        if self._inside:
            return False  # the GPU itself asked: a runner that reads time, say
        self._inside = True
        try:
            if threading.get_ident() != self._owner:  # one that was there before the machine
                self.another_thread_begins()
            for gpu in self.gpus:
                gpu.bars.sync_in()
            self._look_at_mmio()
            return self._run(steps)
        finally:
            self._inside = False
            for gpu in self.gpus:
                gpu.bars.sync_out()

    def _run(self, steps: int) -> bool:
        queues = [queue for gpu in self.gpus for queue in gpu.queues if queue.dead is None]
        moved = False
        choices, waiting = [q for q in queues if not q.idle], False
        for _ in range(steps):
            if not choices:
                choices = [q for q in queues if q.dead is None and q.wake()]
                if choices:
                    continue
                if not self.interrupts.deliver(idle=True):
                    break
                moved = True
                continue
            queue = choices[0] if len(choices) == 1 else self._order.pick(choices)
            if self._step(queue):
                moved = True
                if waiting or queue.dead is not None:
                    waiting = False
                    choices = [q for q in queues if not q.idle]
            else:
                waiting = True
                choices.remove(queue)
        return moved

    def _step(self, queue: Queue) -> bool:
        """One step of one queue; what goes wrong in it is the GPU's affair."""
        try:
            moved = queue.step()
        except GpuPageFault as fault:
            queue.gpu.page_fault(queue, fault)
            moved = True
        except BaseException:
            queue.stop("the virtual GPU stopped it")
            raise
        if moved:
            self.steps += 1
            self.clock.advance(STEP_NS)
            if self.interrupts.pending:
                self.interrupts.deliver()
        return moved

    def pause(self) -> None:
        """A program waits: GPUs run; if nothing moves, time leaps, further each time."""
        if self.threaded:
            self.check()
            self.changed.wait(REST_S)
            return
        if self.run(PAUSE_STEPS):
            self._leap_ns = LEAP_NS
            return
        if not self.one_thread:  # what moves next may be another thread: give it the time
            self.changed.wait(REST_S)
            self.clock.advance(int(REST_S * 1e9))
            return
        self.clock.advance(self._leap_ns)
        self._leap_ns = min(2 * self._leap_ns, LONGEST_LEAP_NS)

    def wait(self, steps: int, limit_ns: int) -> bool:
        """A call waits: let the GPUs run; False if nothing will move any more (stepped only)."""
        if not self.threaded:
            return self.run(steps)
        self.check()
        self.changed.wait(min(limit_ns / 1e9, LONGEST_REST_S))
        return True

    def check(self) -> None:
        """Raise what ended the thread in which the GPUs run."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _work(self) -> None:
        """The thread of a threaded machine."""
        while not self._stopping:
            with self.changed:
                try:
                    moved = self.run(THREAD_STEPS)
                except Exception as error:
                    self._failure = error
                    moved = True
                if moved:
                    self.changed.notify_all()
            time.sleep(0 if moved else REST_S)

    def slice_ran(self, slices: int) -> None:
        """A dispatch ran its so-manyth slice: time goes faster the longer one runs."""
        self.clock.advance(SLICE_NS << min(slices // SLICES_PER_DOUBLING, 12))

    # Memory and errors.

    def scramble(self, extent: Extent) -> None:
        """Fill memory with poison, its beginning if it is large."""
        turn = self._turns.below(POISON_BYTES)
        poison = self._poison[turn:] + self._poison[:turn]
        poke(extent.host, poison[: extent.size_bytes])

    def memory_error(self, gpu: Gpu) -> None:
        """An uncorrectable error: poison was consumed, the GPU is reset."""
        for process in self.processes:
            if process.on(gpu.gpu_id) is not None:
                process.events.report_memory(
                    kfd.MemoryExceptionData(
                        gpu_id=gpu.gpu_id, ErrorType=kfd.MemoryErrorType.POISON_CONSUMED
                    )
                )
        gpu.reset(kfd.ResetCause.ECC)

    def doorbells(self, taken: Taken) -> Extent:
        """The process's doorbell page of a GPU."""
        if taken.doorbells is None:
            taken.doorbells = self.system.alloc(kfd.DOORBELL_BYTES)
        return taken.doorbells

    def mmio(self, gpu: Gpu) -> Extent:
        """The page of a GPU's registers that processes may map."""
        if gpu not in self._mmio:
            self._mmio[gpu] = self.system.alloc(kfd.MMIO_REMAP_BYTES)
        return self._mmio[gpu]

    def _look_at_mmio(self) -> None:
        """A store to the page flushes; nothing traps it, so it is looked for."""
        for gpu, extent in self._mmio.items():
            if peek(extent.host, 8) != bytes(8):
                poke(extent.host, bytes(8))
                gpu.flush_hdp()

    def own_event_page(self, process: Process) -> Extent:
        """The page of slots that the kernel allocates if the process gives none."""
        extent = self.event_pages[process] = self.system.alloc(kfd.EVENT_PAGE_BYTES)
        return extent

    def share(self, process: Process, buffer: Buffer) -> int:
        """A dma-buf's descriptor in the process."""
        assert buffer.extent is not None
        shared = dataclasses.replace(buffer, extent=buffer.extent.retain(), mapped=[])
        return self.port_of(process).add_file(shared)

    def host_pages(self, process: Process, address: int, size_bytes: int) -> tuple[Extent, int]:
        """Memory of the process for a GPU to use, and where in the extent it is.

        What the port mapped is the machine's memory already. Other pages, from malloc say, are
        replaced by the machine's with the same contents.
        """
        found = self.port_of(process).pages_at(address, size_bytes)
        if found is not None:
            return found[0].retain(), found[1]
        extent = self.system.alloc(size_bytes)
        try:
            with open("/proc/self/mem", "rb", buffering=0) as file:
                data = os.pread(file.fileno(), size_bytes, address)
        except OSError:
            data = b""
        if len(data) != size_bytes:
            extent.release()
            raise KernelError(errno.EFAULT, f"nothing is mapped at {address:#x}")
        poke(extent.host, data)
        extent.map_at(address, size_bytes, PROT_READ | PROT_WRITE, replace=True)
        return extent, 0

    def owns(self, process: Process, address: int) -> bool:
        """Whether the port mapped what is at `address`."""
        return self.port_of(process).pages_at(address, 1) is not None

    def give_back_pages(self, address: int, extent: Extent, size_bytes: int) -> None:
        """Undo what `host_pages` did to memory that is not the port's."""
        data = peek(extent.host, size_bytes)
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED
        map_host(address, size_bytes, PROT_READ | PROT_WRITE, flags, -1, 0)
        poke(address, data)

    def preempt(self, queue: Queue) -> None:
        """Take a queue off the hardware. An engine that hangs costs 4 s and the GPU's state."""
        if not queue.hung or queue.dead is not None:
            return
        self.clock.advance(UNMAP_LATENCY_NS)
        self.log += faults.preemption_lines(queue)
        queue.gpu.reset()

    def port_of(self, process: Process) -> Port:
        return next(port for port in self.ports if process in port.processes)

    def gone(self, process: Process) -> None:
        """A process, or a further context of one, ended."""
        self.processes.remove(process)
        extent = self.event_pages.pop(process, None)
        if extent is not None:
            extent.release()

    @property
    def port(self) -> Port:
        """The first process's port."""
        from rawgpu.amd.virtual.port import Port

        return self.ports[0] if self.ports else Port(self)

    def new_process(self, name: str = "python3") -> Process:
        """Another process of this machine; each port has one, and each context of one more."""
        self._born += 1
        process = Process(os.getpid(), name, self._born)
        self.processes.append(process)
        return process

    def close(self) -> None:
        """All processes end; the host gets its memory back."""
        self._stopping = True
        if self.threaded:
            self._thread.join()
        for port in list(self.ports):
            port.exit()
            self.ports.remove(port)
        for extent in self._mmio.values():
            extent.release()
        for gpu in self.gpus:
            gpu.close()
        self.system.close()


def _default_runner() -> Runner:
    try:
        wave = importlib.import_module("rawgpu.amd.virtual.wave")
    except ImportError:
        return run_nothing
    runner: Runner = wave.run_dispatch
    return runner


def _row(name: str) -> Kernel:
    row = KERNELS.get(name)
    if row is None:
        known = ", ".join(KERNELS)
        raise UnsupportedDevice(f"no kernel {name!r} in the virtual room; there are {known}")
    return row


def _board(name: str, options: dict[str, Any]) -> Board:
    board = BOARDS[name]
    if options.get("large_bar", True) is False:
        board = dataclasses.replace(board, large_bar=False)
    if options.get("sdma", True) is False:
        board = dataclasses.replace(board, sdma_engines=0, sdma_xgmi_engines=0)
    if options.get("partitioned", False):  # "CPX" mode: an XCC of the package is a GPU
        units, arrays = board.compute_units // board.xccs, board.arrays // board.xccs
        board = dataclasses.replace(board, xccs=1, compute_units=units, arrays=arrays)
    return board


def names() -> Iterable[str]:
    """What a room's text may call a GPU."""
    return BOARDS
