"""Stacks and contexts of threads that run packets, and the worker threads of a device.

A context belongs to a thread, not to a device: it holds the stack kernels run on and the alternate
stack for signals, and lives as long as the thread (`thread_context`) or the worker (`WorkerPool`).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from rawgpu.errors import DeviceError
from rawgpu.native import system
from rawgpu.native.code import NativeCode, native_code
from rawgpu.native.faultnet import ALT_STACK_BYTES, MAX_CONTEXTS, SIGNALS
from rawgpu.native.layout import CONTEXT, POOL
from rawgpu.native.pool import SYS_FUTEX

KERNEL_STACK_BYTES = 8 << 20
GUARD_BYTES = 1 << 20
"""Below the stack; a frame larger than this can step over it, as with any guard."""
SPIN_NS = 100_000
SHARE_THRESHOLD_NS = 40_000
WORKER_STACK_BYTES = 128 << 10
MAX_THREADS = 1024

_lock = threading.Lock()
_free_slots: list[int] = []
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


class Context:
    """One context record, its kernel stack and its alternate signal stack."""

    def __init__(self, code: NativeCode) -> None:
        self.slot = _take_slot(code)
        self._map_bytes = GUARD_BYTES + KERNEL_STACK_BYTES + system.PAGE_BYTES + ALT_STACK_BYTES
        self._base = system.map_pages(self._map_bytes, system.PROT_NONE, system.MAP_NORESERVE)
        rights = system.PROT_READ | system.PROT_WRITE
        self.stack_low = self._base + GUARD_BYTES
        self.stack_top = self.stack_low + KERNEL_STACK_BYTES
        self.alt_low = self.stack_top + system.PAGE_BYTES
        system.protect_pages(self.stack_low, KERNEL_STACK_BYTES, rights)
        system.protect_pages(self.alt_low, ALT_STACK_BYTES, rights)
        self.alternate: Any = system.ffi.new(
            "struct stack_t *", {"sp": self.alt_low, "flags": 0, "size": ALT_STACK_BYTES}
        )
        address = code.image.address("contexts") + self.slot * CONTEXT.size_bytes
        self.record: Any = system.ffi.cast("struct context *", address)
        self.record.thread = self.record.active = self.record.job = 0
        self.record.stack_top, self.record.stack_low = self.stack_top, self.stack_low
        self.record.alternate = int(system.ffi.cast("uintptr_t", self.alternate))
        self._pid = os.getpid()

    def in_guard(self, address: int) -> bool:
        """Whether `address` is in the inaccessible run that ends the kernel stack."""
        return self._base <= address < self.stack_low

    def close(self) -> None:
        """Unmap the stacks. The thread must not run packets any more. Idempotent."""
        base, self._base = self._base, 0
        if not base:
            return
        self.record.thread = self.record.active = 0
        system.unmap_pages(base, self._map_bytes)
        _free_slots.append(self.slot)


class _ThreadContext(Context):
    """The context of a Python thread, with its alternate stack in force until the thread ends."""

    def __init__(self, code: NativeCode) -> None:
        super().__init__(code)
        self._thread = threading.get_ident()
        self._before: Any = system.ffi.new("struct stack_t *")
        system.libc.sigaltstack(self.alternate, self._before)

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if finalizing():  # the modules may be gone, and the memory soon is
            return
        if self._thread == threading.get_ident():
            now: Any = system.ffi.new("struct stack_t *")
            system.libc.sigaltstack(system.ffi.NULL, now)
            if now.sp == self.alt_low:
                system.libc.sigaltstack(self._before, system.ffi.NULL)
        self.close()


def _take_slot(code: NativeCode) -> int:
    with _lock:
        if _free_slots:
            return _free_slots.pop()
        count = code.image.words("context_count", 1)
        if count[0] == MAX_CONTEXTS:
            raise DeviceError(f"{MAX_CONTEXTS} threads run kernels at once, the most there can be")
        count[0] += 1
        return int(count[0]) - 1


class _Local(threading.local):
    context: _ThreadContext


_local = _Local()


def thread_context() -> _ThreadContext:
    """The calling thread's context, made at its first call."""
    try:
        return _local.context
    except AttributeError:
        _local.context = context = _ThreadContext(native_code())
        return context


def worker_count() -> int:
    """How many helpers a device has: one for each processor we may use but the caller's own.

    RAWGPU_THREADS says how many threads work in all, the caller's included.
    """
    wanted = os.environ.get("RAWGPU_THREADS", "")
    if not wanted:
        return len(os.sched_getaffinity(0)) - 1
    if not wanted.isdigit() or not 1 <= int(wanted) <= MAX_THREADS:
        raise DeviceError(
            f"RAWGPU_THREADS is {wanted!r}", hint=f"a number from 1 to {MAX_THREADS}, or nothing"
        )
    return int(wanted) - 1


class WorkerPool:
    """The helpers of one device. Threads start with the first launch that could use them."""

    def __init__(self, code: NativeCode, workers: int) -> None:
        self._code = code
        self._workers = workers
        self._threads: list[int] = []
        self._contexts: list[Context] = []
        self._lock = threading.Lock()
        # Pages of its own, not the interpreter's heap: helpers may read it until the process ends.
        self._page = system.map_pages(POOL.size_bytes, system.PROT_READ | system.PROT_WRITE)
        self.record: Any = system.ffi.cast("struct pool *", self._page)
        self.record.spin_ns, self.record.threshold_ns = SPIN_NS, SHARE_THRESHOLD_NS
        self.record.futex_number = SYS_FUTEX[system.MACHINE]
        for name in ("clock_gettime", "syscall", "sched_yield", "sigaltstack"):
            setattr(self.record, name, system.address_of(name))
        self.started = workers == 0
        _pools.add(self)

    @property
    def address(self) -> int:
        return int(system.ffi.cast("uintptr_t", self.record))

    def start(self) -> None:
        """Start the helpers, once."""
        with self._lock:
            if self.started:
                return
            self.started = True
            for _ in range(self._workers):
                context = Context(self._code)
                context.record.job = self.address
                self._contexts.append(context)
                thread = _start_thread(self._code.image.address("worker"), context.record)
                if thread is None:
                    break
                self._threads.append(thread)
            self.record.threads = len(self._threads)

    def context_at(self, address: int) -> Context | None:
        """The helper whose kernel stack's guard holds `address`."""
        return next((context for context in self._contexts if context.in_guard(address)), None)

    def close(self) -> None:
        """Stop and join the helpers. No launch may be running. Idempotent."""
        with self._lock:
            self.started = True
            threads, self._threads = self._threads, []
            self.record.threads = 0
            if threads:
                self._code.stop_workers(self.record)
            for thread in threads:
                system.libc.pthread_join(thread, system.ffi.NULL)
            for context in self._contexts:
                context.close()
            self._contexts = []

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():
            self.close()
            system.unmap_pages(self._page, POOL.size_bytes)

    def after_fork(self) -> None:
        """In a child: the helpers do not exist; go on without them."""
        self._lock = threading.Lock()
        self._threads = []
        self.started = True
        for field in ("threads", "lock", "open", "inside", "sleepers"):
            setattr(self.record, field, 0)


def _start_thread(function: int, argument: Any) -> int | None:
    """Start a native thread that takes no signal but faults; Python's threads get the others.

    None where the system has no thread left: the device then works with fewer helpers.
    """
    ffi, libc = system.ffi, system.libc
    attributes = ffi.new("uint64_t[16]")
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setstacksize(attributes, WORKER_STACK_BYTES)
    blocked, before = ffi.new("uint64_t[16]"), ffi.new("uint64_t[16]")
    blocked[0] = (1 << 64) - 1
    for signal in SIGNALS:
        blocked[0] &= ~(1 << signal - 1)
    set_mask = 2
    libc.pthread_sigmask(set_mask, blocked, before)
    try:
        thread = ffi.new("uintptr_t *")
        failed = libc.pthread_create(thread, attributes, ffi.cast("void *", function), argument)
    finally:
        libc.pthread_sigmask(set_mask, before, ffi.NULL)
        libc.pthread_attr_destroy(attributes)
    return None if failed else int(thread[0])


def _forget_other_threads() -> None:
    """Clear contexts of threads that a fork left behind; new threads may get their places."""
    if not native_code.cache_info().currsize:
        return
    image = native_code().image
    mine = _local.context.slot if hasattr(_local, "context") else None
    for slot in range(image.words("context_count", 1)[0]):
        if slot != mine:
            address = image.address("contexts") + slot * CONTEXT.size_bytes
            record: Any = system.ffi.cast("struct context *", address)
            record.thread = record.active = 0


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _forget_other_threads()
    for pool in list(_pools):
        pool.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
