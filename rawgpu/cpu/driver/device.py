"""The CPU as a device."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rawgpu.contract import (
    Argument,
    Binding,
    Device,
    DeviceInfo,
    DeviceProperties,
    Grid,
    MemoryKind,
    MemoryStatistics,
    QueueKind,
)
from rawgpu.cpu.driver import host
from rawgpu.cpu.driver.memory import Allocator, CpuBuffer
from rawgpu.cpu.driver.program import CpuKernel, CpuProgram, blocks_of
from rawgpu.cpu.driver.queue import CpuQueue, CpuSignal
from rawgpu.errors import DeviceClosed, LaunchError
from rawgpu.launch import (
    Arrays,
    counter_value,
    memory_kind,
    object_bytes,
    queue_kind,
    wait_limit,
    whole_number,
)
from rawgpu.native import system
from rawgpu.native.code import native_code
from rawgpu.native.image import Image
from rawgpu.native.threads import WorkerPool, worker_count

_devices: weakref.WeakSet[CpuDevice] = weakref.WeakSet()


class CpuDevice(Arrays):
    """An open CPU device; a context manager."""

    def __init__(self, name: str = "cpu:0") -> None:
        system.require_linux()
        self.name = name
        self.code = native_code()
        self.fault_net = self.code.fault_net
        self.fault_net.ensure_installed()
        self.pool = WorkerPool(self.code, worker_count())
        self.allocator = Allocator(name, host.memory_limit(), self.synchronize)
        self.blocked: set[CpuQueue] = set()
        """Queues that have something pending."""
        self._queues: list[CpuQueue] = []
        self._images: weakref.WeakSet[Image] = weakref.WeakSet()
        self._made = 0
        self._closed = False
        self._lock = threading.RLock()
        self._own = self.queue()
        self._own_lock = threading.Lock()
        self._properties: DeviceProperties | None = None
        _devices.add(self)

    # --- facts ----------------------------------------------------------------------------------

    @property
    def properties(self) -> DeviceProperties:
        if self._properties is None:
            self._properties = host.properties(self.name, self.allocator.limit_bytes)
        return self._properties

    def target(self) -> Mapping[str, str]:
        from rawgpu.compiler_bridge.llvm import host_target

        target = host_target()
        return {"triple": target.triple, "cpu": target.cpu, "features": target.features}

    # --- memory ---------------------------------------------------------------------------------

    def alloc(self, size_bytes: int, kind: MemoryKind = MemoryKind.DEVICE) -> CpuBuffer:
        """Uninitialised memory; both kinds are the same here."""
        self.check_open()
        size_bytes = whole_number("a buffer's size", size_bytes)
        memory_kind(kind)
        if size_bytes < 0:
            raise LaunchError(f"a buffer of {size_bytes} bytes")
        return CpuBuffer(self, self.allocator.alloc(size_bytes), size_bytes)

    def reaches(self, memory: Any) -> bool:
        """Whether kernels here may use another device's memory: another CPU device's, or pinned."""
        memory = getattr(memory, "buffer", memory)
        return isinstance(memory.device, CpuDevice) or getattr(memory, "host_visible", False)

    def memory(self) -> MemoryStatistics:
        self.check_open()
        return self.allocator.statistics()

    def reset_peak(self) -> None:
        self.allocator.reset_peak()

    def trim(self) -> None:
        self.allocator.trim()

    # --- programs and queues --------------------------------------------------------------------

    def load(self, image: bytes) -> CpuProgram:
        """Load an object file, given as its bytes. Raises BadElf."""
        self.check_open()
        loaded = Image(object_bytes(image, self.name, "x86-64", "AArch64"))
        self._images.add(loaded)
        return CpuProgram(self, loaded)

    def queue(self, kind: QueueKind = QueueKind.COMPUTE) -> CpuQueue:
        """A new queue; a CPU has no copy engine, so both kinds are the same."""
        self.check_open()
        kind = queue_kind(kind)
        with self._lock:
            queue = CpuQueue(self, f"{kind.value}{self._made}")
            self._made += 1
            self._queues.append(queue)
            return queue

    def forget(self, queue: CpuQueue) -> None:
        """A closed queue is no longer ours."""
        with self._lock:
            self.blocked.discard(queue)
            if queue in self._queues:
                self._queues.remove(queue)

    def new_signal(self, value: int = 0) -> CpuSignal:
        self.check_open()
        return CpuSignal(self, counter_value(value))

    def run(
        self,
        kernel: CpuKernel,
        arguments: Sequence[Argument],
        grid: Grid,
        block: Grid,
    ) -> None:
        """A launch by hand, on the device's own queue."""
        self.check_open()
        words = kernel.pack(arguments)
        if Binding in map(type, words):
            raise LaunchError(f"{kernel.name}: only a recording can have bindings")
        blocks = blocks_of(kernel, grid, block)
        with self._own_lock:
            self._own.launch_now(kernel, words, arguments, blocks)

    # --- waiting --------------------------------------------------------------------------------

    def advance(self) -> None:
        """Run every queue as far as it goes, until none moves."""
        moved = True
        while moved:
            moved = False
            for queue in tuple(self.blocked):
                moved = queue.advance() or moved

    def wait_counter(self, address: int, value: int, timeout_ns: int) -> bool:
        """Wait for a counter, without the interpreter's lock."""
        return bool(self.code.wait_counter(self.pool.record, address, value, timeout_ns))

    def running(self) -> tuple[str, ...]:
        """Names of the packets that queues stopped at."""
        names = []
        for queue in tuple(self.blocked):
            batch = next(iter(queue.pending), None)
            if batch is not None and batch.run.position < len(batch.names):
                names.append(f"{queue.name}: {batch.names[batch.run.position]}")
        return tuple(names)

    def synchronize(self, timeout_ms: int = 30_000) -> None:
        self.check_open()
        end = time.monotonic() + wait_limit(timeout_ms) / 1000
        for queue in tuple(self._queues):
            left_ms = max(int((end - time.monotonic()) * 1000), 0)
            if not queue.closed:
                queue.synchronize(left_ms)

    # --- the end --------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed:
            raise DeviceClosed(f"{self.name} is closed")

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Give back memory, code and threads; what is still pending is dropped. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for queue in tuple(self._queues):
            queue.close()
        self.pool.close()
        for image in tuple(self._images):
            image.close()
        self.allocator.close()

    def after_fork(self) -> None:
        """In a child: go on with this thread alone."""
        self._lock, self._own_lock = threading.RLock(), threading.Lock()
        self.allocator.after_fork()
        for queue in self._queues:
            queue.after_fork()

    def __enter__(self) -> CpuDevice:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CpuDevice {self.name}{' (closed)' if self._closed else ''}>"


if TYPE_CHECKING:

    def _keeps_the_contract(device: CpuDevice) -> Device:
        return device


def discover() -> list[DeviceInfo]:
    """The CPU, if it is one we run on."""
    return host.discover()


def open_device(name: str) -> CpuDevice:
    return CpuDevice(name)


def _after_fork_in_child() -> None:
    for device in list(_devices):
        device.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
