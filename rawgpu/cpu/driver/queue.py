"""Queues, signals and recordings of the CPU device.

The submitting thread runs its packets itself, at once. A queue that meets an unreached signal keeps
the rest and goes on when any queue of the device made progress, or when someone waits; so no order
of submits can dead-lock. After a fault the rest of what was submitted is dropped and the next wait
raises.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rawgpu.contract import Argument, Buffer, Grid, Kernel, Signal, Timestamp
from rawgpu.cpu.driver.fault import explain
from rawgpu.cpu.driver.packets import Batch, Encoder, block_of
from rawgpu.cpu.driver.program import CpuKernel, blocks_of
from rawgpu.errors import DeviceClosed, FenceTimeout, KernelFault, LaunchError
from rawgpu.launch import check_reach, counter_value, wait_limit, whole_number
from rawgpu.native import system
from rawgpu.native.layout import PACKET, Kind, Outcome
from rawgpu.native.threads import thread_context

if TYPE_CHECKING:
    from rawgpu.cpu.driver.device import CpuDevice

_DONE, _BLOCKED, _FAULT = int(Outcome.DONE), int(Outcome.BLOCKED), int(Outcome.FAULT)
_TARGET, _SIZE = PACKET.word["target"], PACKET.word["size"]
DIRECT_WORDS = 64
CHECK_EVERY = 256
"""Launches between looks at whether our handler is still on top; a look is a system call."""
WAIT_SLICE_NS = 2_000_000
"""A blocked wait looks at the other queues at least this often."""


class CpuSignal:
    """A 64-bit counter in memory of its own cache line."""

    def __init__(self, device: CpuDevice, value: int = 0) -> None:
        self.device = device
        self.block = device.allocator.alloc(64)
        self.address = self.block.address
        self._word: Any = system.ffi.cast("uint64_t *", self.address)
        self._word[0] = value
        self.fault: KernelFault | None = None
        """Why it may never be reached."""

    @property
    def value(self) -> int:
        self.device.check_open()
        if self.device.blocked:
            self.device.advance()
        return int(self._word[0])

    def wait(self, value: int, timeout_ms: int = 30_000) -> None:
        value = counter_value(value)
        end = time.monotonic_ns() + int(wait_limit(timeout_ms) * 1_000_000)
        while self.value < value:
            if self.fault is not None:
                raise self.fault
            left = end - time.monotonic_ns()
            if left <= 0:
                raise FenceTimeout(
                    f"{self.device.name}: signal stayed at {self.value} and did not reach {value} "
                    f"in {timeout_ms} ms",
                    running=self.device.running(),
                )
            self.device.wait_counter(self.address, value, min(left, WAIT_SLICE_NS))


class CpuQueue:
    """Packets in order. Any thread may submit; one at a time runs them."""

    def __init__(self, device: CpuDevice, name: str) -> None:
        self._device = device
        self.name = name
        self._encoder = Encoder()
        self.pending: deque[Batch] = deque()
        self.lock = threading.Lock()
        """Held by the thread that runs what is pending. Replays use the record's lock alone."""
        self.native: Any = system.ffi.new("struct queue *")
        self.fault: KernelFault | None = None
        self.closed = False
        self._direct: Batch | None = None
        self._countdown = 0

    # --- building -------------------------------------------------------------------------------

    def wait(self, signal: Signal, value: int) -> None:
        self._check_open()
        signal, value = self._own(signal), counter_value(value)
        self._encoder.add("wait", signal, Kind.WAIT, signal.address, 0, value, 0)

    def signal(self, signal: Signal, value: int) -> None:
        self._check_open()
        signal, value = self._own(signal), counter_value(value)
        self._encoder.add("signal", signal, Kind.SIGNAL, signal.address, 0, value, 0)

    def launch(
        self,
        kernel: Kernel,
        arguments: Sequence[Argument],
        *,
        grid: Grid = 1,
        block: Grid = 1,
        work_ns: int = 0,
    ) -> None:
        """Append a launch. Short ones, by the estimate `work_ns`, stay on this thread."""
        self._check_open()
        kernel = own_kernel(kernel, self._device)
        words = kernel.pack(arguments)
        if any(not isinstance(word, int) for word in words):
            raise LaunchError(f"{kernel.name}: only a recording can have bindings")
        keep = [block_of(argument) for argument in arguments]
        self._encoder.launch(kernel, words, keep, blocks_of(kernel, grid, block), work_ns)

    def copy(self, target: Buffer, source: Buffer, size_bytes: int) -> None:
        self._check_open()
        for buffer, what in ((target, "target"), (source, "source")):
            check_size(what, buffer, size_bytes)
            check_reach(self._device, buffer, "the queue is")
        self._encoder.copy(target, source, size_bytes)

    def fill(self, target: Buffer, byte: int, size_bytes: int) -> None:
        self._check_open()
        check_size("target", target, size_bytes)
        check_reach(self._device, target, "the queue is")
        if not 0 <= whole_number("fill's byte", byte) <= 255:
            raise LaunchError(f"fill with {byte}, which is no byte")
        encoder = self._encoder
        encoder.keep[len(encoder.packets)] = [block_of(target)]
        encoder.add("fill", None, Kind.FILL, target.address, byte, size_bytes, 0)

    def _own(self, signal: Signal) -> CpuSignal:
        if not isinstance(signal, CpuSignal) or signal.device is not self._device:
            raise LaunchError("this signal belongs to another device")
        return signal

    def timestamp(self) -> Timestamp:
        self._check_open()
        slot: Any = system.ffi.new("uint64_t[1]")
        encoder = self._encoder
        encoder.keep[len(encoder.packets)] = [slot]
        address = int(system.ffi.cast("uintptr_t", slot))
        encoder.add("timestamp", None, Kind.TIMESTAMP, address, 0, 0, 0)
        return Timestamp(slot)

    def barrier(self) -> None:
        self._check_open()
        self._encoder.add("barrier", None, Kind.BARRIER, 0, 0, 0, 0)

    # --- running --------------------------------------------------------------------------------

    def launch_now(
        self, kernel: CpuKernel, words: list[Any], arguments: Sequence[Argument], blocks: int
    ) -> None:
        """Launch and submit in one go. One caller at a time."""
        if self.pending or self._encoder.packets or len(words) > DIRECT_WORDS:
            keep = [block_of(argument) for argument in arguments]
            self._encoder.launch(kernel, words, keep, blocks, 0)
            self.submit()
            return
        direct = self._direct
        if direct is None:
            encoder = Encoder()
            encoder.launch(kernel, [0] * DIRECT_WORDS, [], 1, 0)
            direct = self._direct = Batch(encoder, self._device.pool.record, self.native)
        if blocks > 1 and not self._device.pool.started:
            self._device.pool.start()
        self._countdown -= 1
        if self._countdown < 0:
            self._countdown = CHECK_EVERY
            self._device.fault_net.ensure_installed()
        direct.words[0 : len(words)] = words
        direct.packets[_TARGET] = kernel.address
        direct.packets[_SIZE] = blocks
        outcome = self._device.code.replay(direct.run)
        if outcome and outcome != _FAULT:
            outcome = self._device.code.replay_as(thread_context().record, direct.run)
        if outcome == _FAULT:
            self.stopped(explain(self._device, thread_context(), kernel.name, kernel, 0))
        assert outcome in (_DONE, _FAULT), outcome

    def submit(self) -> None:
        self._check_open()
        encoder, self._encoder = self._encoder, Encoder()
        if encoder.packets:
            self.enqueue(Batch(encoder, self._device.pool.record, self.native))

    def enqueue(self, batch: Batch) -> None:
        """Run a batch after what is pending, as far as it goes."""
        if batch.shared and not self._device.pool.started:
            self._device.pool.start()
        self._device.fault_net.ensure_installed()
        self.pending.append(batch)
        self.native.pending = 1
        # Listed before it runs: so a signal after its last look finds it in the list.
        self._device.blocked.add(self)
        self._device.advance()

    def advance(self) -> bool:
        """Run what can run. False when nothing moved, or another thread is at it."""
        moved = False
        # Once more after each release: another thread may have submitted and found the lock taken.
        while self.pending and self.lock.acquire(blocking=False):
            try:
                progress, blocked = self._advance_locked()
            finally:
                self.lock.release()
            moved = moved or progress
            if blocked:
                break
        return moved

    def _advance_locked(self) -> tuple[bool, bool]:
        """Whether something ran, and whether a signal is missing."""
        moved = False
        context = thread_context()
        run_packets = self._device.code.run_packets
        while self.pending:
            batch = self.pending[0]
            before = batch.run.position
            outcome = run_packets(context.record, batch.run)
            moved = moved or outcome == _DONE or batch.run.position != before
            if outcome == _BLOCKED:
                return moved, True
            if outcome == _FAULT:
                self._drop(explain_batch(self._device, context, batch))
                return True, False
            self.pending.popleft()
        self._emptied()
        return moved, False

    def _emptied(self) -> None:
        self._device.blocked.discard(self)
        self.native.pending = 0
        if self.pending:  # submitted by another thread just now
            self.native.pending = 1
            self._device.blocked.add(self)

    def _drop(self, fault: KernelFault) -> None:
        """Forget everything submitted; whoever waits for its signals learns why."""
        self.stopped(fault)
        for batch in self.pending:
            for owner in batch.kernels:
                if isinstance(owner, CpuSignal):
                    owner.fault = fault
        self.pending.clear()
        self._emptied()

    def blocked_on(self) -> tuple[CpuSignal, int] | None:
        """The signal and value that the first pending packet waits for."""
        try:
            batch = self.pending[0]
        except IndexError:
            return None
        position = int(batch.run.position)
        if position < len(batch.kernels) and isinstance(batch.kernels[position], CpuSignal):
            at = position * PACKET.words
            if batch.packets[at] == Kind.WAIT:
                return batch.kernels[position], int(batch.packets[at + PACKET.word["size"]])
        return None

    def synchronize(self, timeout_ms: int = 30_000) -> None:
        self._check_open()
        end = time.monotonic_ns() + int(wait_limit(timeout_ms) * 1_000_000)
        while self.pending:
            self._device.advance()
            if not self.pending:
                break
            left = end - time.monotonic_ns()
            waited = self.blocked_on()
            if waited is not None and waited[0].fault is not None and waited[0].value < waited[1]:
                with self.lock:
                    self._drop(waited[0].fault)
                break
            if left <= 0:
                raise self._timeout(timeout_ms, waited)
            if waited is None:  # another thread runs it
                if self.lock.acquire(timeout=min(left, WAIT_SLICE_NS) / 1e9):
                    self.lock.release()
            else:
                address, value = waited[0].address, waited[1]
                self._device.wait_counter(address, value, min(left, WAIT_SLICE_NS))
        self.raise_fault()

    def _timeout(self, timeout_ms: int, waited: tuple[CpuSignal, int] | None) -> FenceTimeout:
        what = "a launch still runs"
        if waited is not None:
            what = f"it waits for a signal to reach {waited[1]}, which is at {waited[0].value}"
        return FenceTimeout(
            f"{self._device.name}: {self.name} did not end in {timeout_ms} ms: {what}",
            running=self._device.running(),
            hint="submit the queue that signals, or raise timeout_ms",
        )

    def stopped(self, fault: KernelFault) -> None:
        """Keep the fault for the next wait; the first one, if none asked since."""
        if self.fault is None:
            self.fault = fault

    def raise_fault(self) -> None:
        """Raise the fault that stopped this queue, once."""
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault

    def record(self) -> CpuRecording:
        from rawgpu.cpu.driver.recording import CpuRecording

        self._check_open()
        return CpuRecording(self._device, self)

    def close(self) -> None:
        """Drop what is pending. Idempotent."""
        with self.lock:
            self.closed = True
            self.pending.clear()
            self.native.pending = 1  # so that a replay looks again
            while self.native.lock:  # a replay that another thread is running
                time.sleep(0.0002)
            self._device.forget(self)

    def after_fork(self) -> None:
        """In a child: what another thread was running is lost."""
        if not self.lock.acquire(blocking=False):
            self.pending.clear()
        self.lock = threading.Lock()
        self.native.lock = 0

    def _check_open(self) -> None:
        if self.closed:
            raise DeviceClosed(f"{self.name} was closed")


def own_kernel(kernel: Kernel, device: CpuDevice) -> CpuKernel:
    """The kernel, if it is of a program that this device loaded."""
    if not isinstance(kernel, CpuKernel):
        raise LaunchError(f"a {type(kernel).__name__} is no kernel of {device.name}")
    if kernel.device is not device:
        raise LaunchError(f"{kernel.name} belongs to another device")
    return kernel


def check_size(what: str, buffer: Any, size_bytes: int) -> None:
    """A copy or fill must stay inside the buffer."""
    room = getattr(getattr(buffer, "buffer", buffer), "size_bytes", None)
    if room is None:
        raise LaunchError(f"the {what} is a buffer, not a {type(buffer).__name__}")
    if not 0 <= whole_number("a size", size_bytes) <= room:
        raise LaunchError(f"{size_bytes} bytes for a {what} of {room}")


def explain_batch(device: CpuDevice, context: Any, batch: Batch) -> KernelFault:
    """The exception for the packet at which `batch` stopped."""
    position = int(batch.run.position)
    owner = batch.kernels[position]
    kernel = owner if isinstance(owner, CpuKernel) else None
    return explain(device, context, batch.names[position], kernel, position)


if TYPE_CHECKING:
    from rawgpu.cpu.driver.recording import CpuRecording
