"""Recordings of the CPU device: packets laid out once; a replay is one foreign call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rawgpu.contract import Argument, Binding, Grid, Kernel
from rawgpu.cpu.driver.packets import Batch, Encoder, block_of
from rawgpu.cpu.driver.program import CpuKernel, blocks_of
from rawgpu.cpu.driver.queue import CHECK_EVERY, CpuQueue, explain_batch, own_kernel
from rawgpu.errors import DeviceClosed, LaunchError
from rawgpu.launch import check_reach
from rawgpu.native import system
from rawgpu.native.layout import Kind, Outcome
from rawgpu.native.threads import thread_context

if TYPE_CHECKING:
    from rawgpu.cpu.driver.device import CpuDevice

_UNBOUND = object()


class CpuRecording:
    """A packet list that is replayed."""

    def __init__(self, device: CpuDevice, queue: CpuQueue) -> None:
        self._device = device
        self._queue = queue
        self._encoder: Encoder | None = Encoder()
        self._batch: Batch | None = None
        self._launches: list[int] = []
        """Packet number of each launch."""
        self._starts: list[int] = []
        """Position of each launch's first argument word."""
        self._replay = device.code.replay
        self._run: Any = None
        self._countdown = 0
        self._bindings: Any = _UNBOUND
        """What the last replay was given, where it can be recognised by identity; else _UNBOUND."""
        self._held: Any = None
        """Keeps the native words that `run.bindings` points to."""
        self._timings = False
        self._timed: Batch | None = None

    # --- building -------------------------------------------------------------------------------

    def launch(
        self,
        kernel: Kernel,
        arguments: Sequence[Argument],
        *,
        grid: Grid = 1,
        block: Grid = 1,
        work_ns: int = 0,
    ) -> int:
        encoder = self._building()
        kernel = own_kernel(kernel, self._device)
        words = kernel.pack(arguments)
        blocks = blocks_of(kernel, grid, block)
        self._starts.append(len(encoder.words))
        keep = [block_of(argument) for argument in arguments]
        self._launches.append(encoder.launch(kernel, words, keep, blocks, work_ns))
        return len(self._launches) - 1

    def copy(self, target: Argument, source: Argument, size_bytes: int) -> int:
        for buffer in (target, source):
            check_reach(self._device, buffer, "the recording is")
        return self._building().copy(target, source, size_bytes)

    def barrier(self) -> None:
        self._building().add("barrier", None, Kind.BARRIER, 0, 0, 0, 0)

    def _building(self) -> Encoder:
        if self._encoder is None:
            raise DeviceClosed("this recording was closed")
        self._batch, self._bindings = None, _UNBOUND
        return self._encoder

    def patch(self, launch: int, argument: int, value: Argument) -> None:
        encoder = self._encoder
        if encoder is None:
            raise DeviceClosed("this recording was closed")
        if not 0 <= launch < len(self._launches):
            raise LaunchError(f"launch {launch} of {len(self._launches)}")
        packet = self._launches[launch]
        kernel: CpuKernel = encoder.kernels[packet]
        keep = encoder.keep[packet]
        if not 0 <= argument < len(keep):
            raise LaunchError(f"{kernel.name}: argument {argument} of {len(keep)}")
        word = kernel.pack.one(argument, value)
        position = self._starts[launch] + argument
        if encoder.patches.pop((True, position), None) is not None or isinstance(word, Binding):
            if isinstance(word, Binding):
                encoder.patches[True, position] = word
            self._batch, self._bindings = None, _UNBOUND
        if isinstance(word, int):
            encoder.words[position] = word
            if self._batch is not None:
                self._batch.words[position] = word
        keep[argument] = block_of(value)

    # --- running --------------------------------------------------------------------------------

    def replay(self, bindings: Sequence[int] | Any = None, *, timings: bool = False) -> None:
        """Run all packets.

        A uint64 array as `bindings` is read in place: pass the same array each time, with new
        contents, and nothing is converted.
        """
        if bindings is not self._bindings:
            self._bind(bindings)
        self._countdown -= 1
        if self._countdown < 0 or timings is not self._timings:
            self._prepare(timings)
        outcome = self._replay(self._run)
        if outcome:
            self._settle(outcome)

    def _settle(self, outcome: int) -> None:
        """What the fast replay could not do."""
        queue, batch = self._queue, self._batch
        assert batch is not None
        context = thread_context()
        if queue.closed:
            raise DeviceClosed(f"{queue.name} was closed")
        if outcome in (Outcome.STRANGER, Outcome.BUSY):
            outcome = self._device.code.replay_as(context.record, self._run)
        if outcome == Outcome.BEHIND:
            self._replay_later(batch)
        elif outcome == Outcome.FAULT:
            queue.stopped(explain_batch(self._device, context, batch))

    def _prepare(self, timings: bool) -> None:
        """What is not done at each replay: helpers, timings, a look at the fault net."""
        batch = self._batch
        assert batch is not None
        self._countdown = CHECK_EVERY
        self._timings = timings
        batch.run.timings = timings
        self._timed = batch if timings else self._timed
        if batch.shared and not self._device.pool.started:
            self._device.pool.start()
        self._device.fault_net.ensure_installed()

    def _bind(self, bindings: Any) -> None:
        """Put the bindings where native code reads them."""
        batch = self._batch
        if batch is None:
            if self._encoder is None:
                raise DeviceClosed("this recording was closed")
            batch = Batch(self._encoder, self._device.pool.record, self._queue.native)
            self._batch, self._run, self._countdown = batch, batch.run, 0
        count = batch.binding_count
        got = 0 if bindings is None else len(bindings)
        if got < count:
            raise LaunchError(f"the recording needs {count} bindings and got {got}")
        self._bindings = _UNBOUND
        if bindings is None:
            self._bindings = None
        elif isinstance(bindings, np.ndarray):
            if bindings.dtype != np.uint64 or not bindings.flags.c_contiguous:
                raise LaunchError(
                    f"bindings are a {bindings.dtype} array, not a contiguous uint64 one"
                )
            self._held = system.ffi.from_buffer("uint64_t[]", bindings)
            self._bindings = bindings
        elif isinstance(bindings, system.ffi.CData):
            self._held = self._bindings = bindings
        else:
            self._held = system.ffi.new("uint64_t[]", list(bindings) or 1)
        if bindings is not None:
            batch.run.bindings = int(system.ffi.cast("uintptr_t", self._held))

    def _replay_later(self, batch: Batch) -> None:
        """Behind packets that wait: a copy of the packets as they stand now."""
        assert self._encoder is not None
        copy = Batch(self._encoder, self._device.pool.record, self._queue.native)
        copy.run.timings = batch.run.timings
        words: Any = system.ffi.cast("uint64_t *", int(batch.run.bindings))
        for row in range(int(copy.run.patch_count)):
            slot, index, offset, _ = copy.patches[4 * row : 4 * row + 4]
            system.ffi.cast("uint64_t *", slot)[0] = (words[index] + offset) & (1 << 64) - 1
        copy.keep = {packet: list(kept) for packet, kept in copy.keep.items()}
        self._timed = copy if copy.run.timings else self._timed
        self._queue.enqueue(copy)

    def timings_ns(self) -> list[int]:
        """How long each launch of the last timed replay took; waits for it."""
        batch = self._timed
        if batch is None:
            raise LaunchError("no replay with timings=True yet")
        self._queue.synchronize()
        return [batch.elapsed_ns(packet) for packet in self._launches]

    def close(self) -> None:
        """Forget the packets. Idempotent."""
        self._encoder = self._batch = self._timed = None
        self._bindings, self._held = _UNBOUND, None
