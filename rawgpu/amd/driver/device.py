"""An AMD GPU as a device: opened over KFD, by raw requests through a kernel port.

Read `connection.py` for what belongs to the process, `memory.py`, `queue.py` and `program.py` for
the parts. Nothing here knows whether the port leads to a real kernel.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rawgpu.amd.driver import facts, hung, scratch, share
from rawgpu.amd.driver.blit import Blit
from rawgpu.amd.driver.connection import Connection, connect
from rawgpu.amd.driver.copyqueue import CopyQueue
from rawgpu.amd.driver.dispatch import Boundaries
from rawgpu.amd.driver.fault import NULL_BYTES, explain
from rawgpu.amd.driver.hdp import HdpFlush
from rawgpu.amd.driver.memory import AmdBuffer, host_allocator, local_allocator
from rawgpu.amd.driver.peers import Peers
from rawgpu.amd.driver.program import AmdKernel, AmdProgram, Image
from rawgpu.amd.driver.queue import AqlQueue, ComputeQueue, Submitter
from rawgpu.amd.driver.ring import Ring
from rawgpu.amd.driver.signal import AmdSignal
from rawgpu.amd.driver.topology import Node, gpu_nodes, hidden_nodes, title_of
from rawgpu.amd.driver.transfer import Transfer
from rawgpu.amd.spec.hardware import HARDWARE, Hardware, name_of
from rawgpu.compiler_bridge.target import AMDGPU_TRIPLE
from rawgpu.contract import (
    Argument,
    Device,
    DeviceInfo,
    DeviceProperties,
    Grid,
    MemoryKind,
    MemoryStatistics,
    QueueKind,
)
from rawgpu.errors import (
    DeviceClosed,
    DeviceError,
    DeviceNotFound,
    FenceTimeout,
    LaunchError,
    UnsupportedDevice,
)
from rawgpu.ioctl import kfd
from rawgpu.ioctl.host import HostPort
from rawgpu.ioctl.port import KernelPort
from rawgpu.launch import (
    Arrays,
    counter_value,
    memory_kind,
    object_bytes,
    queue_kind,
    wait_limit,
    whole_number,
)
from rawgpu.virtual import room

FIRST_SPINS, SPINS = 512, 64
"""Looks at memory before the thread first sleeps in the kernel, and between sleeps."""
CLOCK_LOOKS = 16
"""Looks at memory for one at the clock."""
SLEEP_MS, SLEEP_DEAF_MS = 20, 1
"""Longest sleep: interrupts get lost, and on some parts the kernel cannot tell whose they are."""
LAST_LAUNCHES = 8
"""Kernels that an error names."""
LOOK_MS = 50
"""A wait so long is a reason to take queues off the hardware for a look at their waves."""


class AmdDevice(Arrays):
    """An open GPU; a context manager."""

    def __init__(self, name: str, port: KernelPort, node: Node) -> None:
        self.name = name
        self.node = node
        self.port = port
        self.hardware = hardware_of(node)
        self.connection: Connection = connect(port, node, name)
        try:
            self._open()
        except BaseException:
            self.connection.leave()
            raise

    def _open(self) -> None:
        """What can fail comes last but one: nothing is left behind then."""
        node = self.node
        self.gpu = self.connection.gpu(node, self.name)
        self._seen = len(self.gpu.reports)
        self.dead: Exception | None = None
        """Why nothing can be submitted any more."""
        self._closed = False
        self._pid = os.getpid()
        """A child inherits none of its pages, and the kernel knows the parent."""
        self._lock = threading.RLock()
        self._queues: list[Submitter] = []
        self._made = 0
        self._own: ComputeQueue | None = None
        self._copies: CopyQueue | None = None
        self._no_copies = not (node["num_sdma_engines"] + node["num_sdma_xgmi_engines"])
        self._doorbells: int | None = None
        self._scratches: list[scratch.Scratch] = []
        self._foreign: list[share.Foreign] = []
        self.images: weakref.WeakSet[Image] = weakref.WeakSet()
        """Code that is loaded, for who has an address in it."""
        self.lately: deque[str] = deque(maxlen=LAST_LAUNCHES)
        """Kernels that were submitted last, newest last."""
        self.hdp_dirty = False
        self._hdp = HdpFlush(self)
        self._hdp_lock = threading.Lock()
        self.local = local_allocator(self)
        self.host = host_allocator(self)
        self.scratch = scratch.nothing(self)
        self.transfer = Transfer(self)
        self.blit = Blit(self)
        self.peers = Peers(self)
        self.event = self.connection.events.create_signal()
        self.boundaries = Boundaries(self.hardware, self.event)
        self.clock_hz = facts.clock_hz(self.connection, self.gpu)

    # --- facts ----------------------------------------------------------------------------------

    @functools.cached_property
    def properties(self) -> DeviceProperties:
        return facts.properties(self)

    def target(self) -> Mapping[str, str]:
        return {"triple": AMDGPU_TRIPLE, "cpu": self.hardware.name, "features": ""}

    # --- memory ---------------------------------------------------------------------------------

    def alloc(self, size_bytes: int, kind: MemoryKind = MemoryKind.DEVICE) -> AmdBuffer:
        """Uninitialised memory."""
        self.check_open()
        size_bytes = whole_number("a buffer's size", size_bytes)
        if size_bytes < 0:
            raise LaunchError(f"a buffer of {size_bytes} bytes")
        kind = memory_kind(kind)
        allocator = self.local if kind is MemoryKind.DEVICE else self.host
        return AmdBuffer(self, allocator.alloc(size_bytes, asked=True), size_bytes, kind)

    def pin(self, array: np.ndarray[Any, Any]) -> share.Foreign:
        """Let the GPU reach an array's own pages at the array's address."""
        self.check_open()
        return self._joined(share.pin(self, array))

    def import_dmabuf(self, dmabuf_fd: int, size_bytes: int) -> share.Foreign:
        """Memory that another device or process exported."""
        self.check_open()
        return self._joined(share.take(self, dmabuf_fd, size_bytes))

    def _joined(self, foreign: share.Foreign) -> share.Foreign:
        self._foreign.append(foreign)
        return foreign

    def left(self, foreign: share.Foreign) -> None:
        """A foreign range was closed."""
        if foreign in self._foreign:
            self._foreign.remove(foreign)

    def reaches(self, memory: Any) -> bool:
        """Whether kernels here may use another device's memory: mapped on this GPU, by its link."""
        return share.reaches(self, getattr(memory, "buffer", memory))

    def memory(self) -> MemoryStatistics:
        """Of VRAM."""
        self.check_open()
        self.retire_all(wait=False)
        return self.local.statistics()

    def reset_peak(self) -> None:
        self.local.reset_peak()

    def trim(self) -> None:
        self.retire_all()
        self.local.trim()
        self.host.trim()
        self.connection.settle()

    def nearest(self, address: int) -> str | None:
        """The buffer that is closest to an address, in words; None where none is near."""
        if address < NULL_BYTES:
            return None
        found = [a.nearest(address) for a in (self.local, self.host)]
        found += [foreign.nearest(address) for foreign in tuple(self._foreign)]
        return min((f for f in found if f is not None), default=(0, None))[1]

    def flush_hdp(self) -> None:
        """Make the CPU's writes to VRAM visible, where no packet of a queue will.

        A thread that finds nothing to do has waited for the flush that another began.
        """
        with self._hdp_lock:
            if self.hdp_dirty:
                self.hdp_dirty = False
                self._hdp.flush()

    def scratch_for(self, lane_bytes: int) -> scratch.Scratch:
        """Private memory of at least that size; growing it waits for the GPU."""
        with self._lock:
            if lane_bytes > self.scratch.lane_bytes:
                self.retire_all()
                size = 1 << max(lane_bytes - 1, 1).bit_length()
                made = scratch.make(self, min(size, max(scratch.LIMIT_BYTES, lane_bytes)))
                self._scratches.append(made)
                self.scratch = made
                for queue in self._queues:
                    queue.ring.describe(made)
            return self.scratch

    # --- programs and queues --------------------------------------------------------------------

    def load(self, image: bytes) -> AmdProgram:
        """A code object's kernels and globals, from the bytes of its file.

        Relocatable or linked, alone or in a bundle (`.hipfb`). Raises BadElf for what is none, or
        is for another processor.
        """
        self.check_open()
        return AmdProgram(self, object_bytes(image, self.name, "an AMD GPU"))

    def queue(self, kind: QueueKind = QueueKind.COMPUTE) -> ComputeQueue | CopyQueue:
        """A new queue. Where no copy engine is left, a compute queue copies as well."""
        self.check_open()
        with self._lock:
            name = f"{queue_kind(kind).value}{self._made}"
            self._made += 1
            made: ComputeQueue | CopyQueue
            if kind is QueueKind.COPY and not self._no_copies:
                made = CopyQueue(self, name)
            elif self.node.xccs > 1:
                made = AqlQueue(self, name)
            else:
                made = ComputeQueue(self, name)
            self._queues.append(made)
            return made

    def own_queue(self) -> ComputeQueue:
        """The device's own queue, for launches by hand."""
        with self._lock:
            if self._own is None:
                made = self.queue()
                assert isinstance(made, ComputeQueue)
                self._own = made
            return self._own

    def copy_engine(self) -> CopyQueue | None:
        """The device's own copy queue; None where there is none, or none is left."""
        with self._lock:
            if self._copies is None and not self._no_copies:
                try:
                    made = self.queue(QueueKind.COPY)
                except DeviceError:
                    self._no_copies = True
                    return None
                assert isinstance(made, CopyQueue)
                self._copies = made
            return self._copies

    def doorbells(self, offset: int) -> int:
        """The address of a doorbell, by what CREATE_QUEUE said."""
        with self._lock:
            if self._doorbells is None:
                self._doorbells = self.port.mmap(
                    kfd.DOORBELL_BYTES, fd=self.connection.fd, offset=offset & -kfd.DOORBELL_BYTES
                )
            return self._doorbells + offset % kfd.DOORBELL_BYTES

    def forget(self, queue: Submitter) -> None:
        """A closed queue is no longer ours."""
        with self._lock:
            if queue in self._queues:
                self._queues.remove(queue)

    def rings(self) -> list[Ring]:
        """The rings of the open queues."""
        with self._lock:
            return [queue.ring for queue in self._queues]

    def new_signal(self, value: int = 0) -> AmdSignal:
        self.check_open()
        return AmdSignal(self, counter_value(value))

    def run(
        self, kernel: AmdKernel, arguments: Sequence[Argument], grid: Grid, block: Grid
    ) -> None:
        """A launch by hand, on the device's own queue."""
        self.check_open()
        queue = self.own_queue()
        with queue.lock:
            queue.launch(kernel, arguments, grid=grid, block=block)
            queue.submit()

    # --- waiting --------------------------------------------------------------------------------

    def wait_until(
        self, check: Callable[[], bool], timeout_ms: int, what: str | Callable[[], str]
    ) -> None:
        """Return once `check` holds. Raises what stopped the GPU, or FenceTimeout with `what`."""
        end = self.port.now_ns() + timeout_ms * 1_000_000
        left = FIRST_SPINS
        sleep_ms = SLEEP_MS if self.hardware.interrupt_context_is_event else SLEEP_DEAF_MS
        while not check():
            self.check_reports()
            self.port.pause()
            left -= 1
            if left and (left % CLOCK_LOOKS or self.port.now_ns() < end):
                continue
            left = SPINS
            left_ms = (end - self.port.now_ns()) // 1_000_000
            events = self.connection.events
            events.wait((self.event,), max(min(left_ms, sleep_ms), 0))
            self.check_reports()
            if left_ms <= 0 and not check():
                raise self._late(timeout_ms, what if isinstance(what, str) else what())

    def _late(self, timeout_ms: int, what: str) -> Exception:
        """The error for a wait that ran out: what waves say, if there are any to ask."""
        waves: tuple[str, ...] = ()
        still = False
        running = self.running()
        for queue in tuple(self._queues) if timeout_ms >= LOOK_MS else ():
            if not queue.running():
                continue
            found = hung.places(queue)
            fault = hung.halted(queue, found)
            self.connection.events.look()  # the kernel may have had to reset the GPU for this
            self.check_reports()
            if fault is not None:
                self._abandon(queue)
                return fault
            words = hung.in_words(found)
            queue.stood = words if self._stands(queue, words) else ()
            still = still or bool(queue.stood)
            waves += words
        text = f"{self.name} ({self.hardware.name}): waited {timeout_ms} ms for {what}"
        return FenceTimeout(
            "; ".join((text, *waves)),
            running=running,
            waves=waves,
            hint=hung.HINT_STILL if still else hung.HINT_MOVING,
        )

    def _stands(self, queue: Submitter, words: tuple[str, ...]) -> bool:
        """Whether waves are at a second look, a moment later, where they were at the first."""
        if not words:
            return False
        self.connection.events.wait((self.event,), SLEEP_MS)
        return hung.in_words(hung.places(queue)) == words

    def _abandon(self, queue: Submitter) -> None:
        """Destroy a queue whose waves will never end."""
        queue.stuck = True
        queue.close()
        if queue is self._own:
            self._own = None

    def check_reports(self) -> None:
        """Raise what the kernel said about this GPU since the device was opened."""
        if self.dead is None and len(self.gpu.reports) > self._seen:
            self.dead = explain(self, self.gpu.reports[self._seen])
        if self.dead is not None:
            raise self.dead

    def running(self, *, every: bool = False) -> tuple[str, ...]:
        """The kernels in flight, newest last; the last few unless `every` one is asked for."""
        names = [name for queue in tuple(self._queues) for name in queue.running()]
        return tuple(names if every else names[-LAST_LAUNCHES:])

    def retire_all(self, *, wait: bool = True) -> None:
        """Let go of what is done; with `wait`, of everything submitted."""
        for queue in tuple(self._queues):
            if wait and not queue.closed and self.dead is None:
                queue.synchronize()
            else:
                queue.retire()

    def synchronize(self, timeout_ms: int = 30_000) -> None:
        self.check_open()
        end = self.port.now_ns() + int(wait_limit(timeout_ms) * 1_000_000)
        for queue in tuple(self._queues):
            left_ms = max((end - self.port.now_ns()) // 1_000_000, 0)
            try:
                queue.synchronize(left_ms)
            except DeviceClosed:  # by another thread, which has waited for it
                if not queue.closed:
                    raise
        self.check_reports()

    # --- the end --------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed:
            raise DeviceClosed(f"{self.name} is closed")
        if os.getpid() != self._pid:
            raise DeviceClosed(
                f"{self.name} was opened before this process was forked, and stays its parent's",
                hint="start processes by spawn, or open GPUs after forking",
            )

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Give back queues, memory, events and mappings. Idempotent.

        Goes on past what fails, and raises the first of it. What the kernel refuses to take back is
        tried again at once, and if need be when a device is opened or closed next.
        """
        if os.getpid() != self._pid:
            self._closed = True
        if self._closed:
            return
        give_back = self.connection.give_back
        with contextlib.ExitStack() as stack:
            # Run in reverse: queues first, what they use after them.
            stack.callback(self.connection.leave)
            stack.callback(self.connection.settle)
            stack.callback(setattr, self, "_closed", True)
            stack.callback(self._hdp.close)
            stack.callback(give_back, self._unmap_doorbells)
            stack.callback(give_back, lambda: self.connection.events.destroy(self.event))
            stack.callback(self.host.close)
            stack.callback(self.local.close)
            for made in self._scratches:
                if made.region is not None:
                    stack.callback(give_back, made.region.close)
            for foreign in tuple(self._foreign):
                stack.callback(foreign.close)
            stack.callback(self.peers.close)
            stack.callback(self.blit.close)
            stack.callback(self.transfer.close)
            for queue in tuple(self._queues):
                stack.callback(queue.close)

    def _unmap_doorbells(self) -> None:
        if self._doorbells is not None:
            self.port.munmap(self._doorbells, kfd.DOORBELL_BYTES)
            self._doorbells = None

    def __enter__(self) -> AmdDevice:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = " (closed)" if self._closed else ""
        return f"<AmdDevice {self.name} {self.hardware.name}{closed}>"


if TYPE_CHECKING:

    def _keeps_the_contract(device: AmdDevice) -> Device:
        return device


def hardware_of(node: Node) -> Hardware:
    """The row of a node. UnsupportedDevice names the nearest."""
    found = HARDWARE.get(node.target_version)
    if found is None:
        near = min(HARDWARE, key=lambda version: abs(version - node.target_version))
        raise UnsupportedDevice(
            f"KFD's node {node.number} is {name_of(node.target_version)}, which no row describes",
            hint=f"the nearest is {HARDWARE[near].name}; docs/add-a-gpu.md adds one",
        )
    return found


@functools.cache
def host_port() -> KernelPort | None:
    """This machine's kernel; None where it has none we can ask."""
    try:
        return HostPort()
    except UnsupportedDevice:
        return None


def _found() -> list[tuple[KernelPort, Node, bool]]:
    """Every GPU with its kernel, virtual ones first."""
    ports = [(port, True) for port in room.ports("amd")]
    real = host_port()
    if real is not None:
        ports.append((real, False))
    return [(port, node, virtual) for port, virtual in ports for node in gpu_nodes(port)]


def discover() -> list[DeviceInfo]:
    """The GPUs that are there, without opening any."""
    rows = []
    for number, (port, node, virtual) in enumerate(_found()):
        row = HARDWARE.get(node.target_version)
        arch = name_of(node.target_version)
        rows.append(
            DeviceInfo(
                name=f"amd:{number}",
                arch=arch,
                title=title_of(port, node),
                virtual=virtual,
                usable=row is not None,
                note="" if row is not None else "no row describes this GPU",
            )
        )
    return rows


def open_device(name: str) -> AmdDevice:
    """Open `amd:0` and so on."""
    found = _found()
    number = name.partition(":")[2] or "0"
    if not number.isdigit() or int(number) >= len(found):
        raise _not_found(name, len(found))
    port, node, _ = found[int(number)]
    return AmdDevice(f"amd:{int(number)}", port, node)


def _not_found(name: str, count: int) -> DeviceNotFound:
    """What there is instead, and what may hide the rest."""
    hidden = sum(hidden_nodes(port) for port in [*room.ports("amd"), host_port()] if port)
    text = f"no device {name!r}; {count} AMD GPU{'s are' if count != 1 else ' is'} here"
    if hidden:
        return DeviceNotFound(
            f"{text}, and {hidden} that this process may not see",
            hint="let the container have /dev/kfd and the /dev/dri/renderD* node of each GPU",
        )
    return DeviceNotFound(text, hint="rawgpu doctor; RAWGPU_VIRTUAL=gfx1100 makes a virtual one")
