"""Recordings: launches encoded once; a replay writes a few packets and rings the doorbell.

A PM4 recording is one indirect buffer, an AQL one a row of packets. Arguments are patched in
memory, which a replay in flight may still be reading: so a recording has several copies of its
arguments and packets, and a replay takes one that is idle.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rawgpu.amd.driver.arguments import Grid3, word_bytes
from rawgpu.amd.driver.dispatch import Launch, launch_of
from rawgpu.amd.driver.program import AmdKernel
from rawgpu.amd.driver.queue import AmdTimestamp, Arena, ComputeQueue, block_of, merged, own_kernel
from rawgpu.contract import Argument, Binding, Grid, Kernel
from rawgpu.errors import DeviceClosed, LaunchError

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice

COPIES = 4
"""Replays that may be in flight before one has to wait."""


@dataclass
class Step:
    """One recorded launch."""

    kernel: AmdKernel
    shape: Grid3
    words: list[Any]
    keep: list[Any]


@dataclass
class Copy:
    """Arguments and packets of one replay at a time."""

    parts: list[list[int] | bytes]
    segments: list[memoryview]
    slots: np.ndarray[Any, np.dtype[np.uint64]]
    """All argument memory, as words."""
    keep: list[Any]
    stamps: list[AmdTimestamp]
    value: int = 0
    """Of the queue's timeline, when the last replay is done."""


@dataclass
class _Patches:
    """Words that bindings fill in: where, from which binding, plus what."""

    places: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


class AmdRecording:
    """A packet list that is replayed."""

    def __init__(self, device: AmdDevice, queue: ComputeQueue) -> None:
        self._device = device
        self._queue = queue
        self._steps: list[Step] | None = []
        self._copies: list[Copy] = []
        self._timed: Copy | None = None
        self._turn = 0
        self._patches = _Patches()
        self._rows: tuple[Any, Any, Any] | None = None
        self._count = 0

    # --- building -------------------------------------------------------------------------------

    def _building(self) -> list[Step]:
        if self._steps is None:
            raise DeviceClosed("this recording was closed")
        return self._steps

    def launch(
        self,
        kernel: Kernel,
        arguments: Sequence[Argument],
        *,
        grid: Grid = 1,
        block: Grid = 1,
        work_ns: int = 0,
    ) -> int:
        steps = self._building()
        own = own_kernel(kernel, self._device)
        words = own.pack(arguments)
        keep = [block_of(argument) for argument in arguments]
        steps.append(Step(own, own.shape(grid, block), words, keep))
        self._changed()
        return len(steps) - 1

    def copy(self, target: Argument, source: Argument, size_bytes: int) -> int:
        """A copy by a kernel. Returns its number."""
        self._building()
        if not size_bytes:
            raise LaunchError("a copy of 0 bytes")
        return int(self._device.blit.launch(self, "copy_bytes", [source, target], size_bytes))

    def barrier(self) -> None:
        """Nothing to add: each launch waits for those before it and sees what they wrote."""
        self._building()

    def patch(self, launch: int, argument: int, value: Argument) -> None:
        steps = self._building()
        if not 0 <= launch < len(steps):
            raise LaunchError(f"launch {launch} of {len(steps)}")
        step = steps[launch]
        if not 0 <= argument < len(step.words):
            raise LaunchError(f"{step.kernel.name}: argument {argument} of {len(step.words)}")
        step.words[argument] = step.kernel.arguments.pack_one(argument, value)
        step.keep[argument] = block_of(value)
        self._changed()

    def _changed(self) -> None:
        """Encode again at the next replay. Copies in flight are kept by their submission."""
        self._copies, self._timed, self._rows = [], None, None

    # --- running --------------------------------------------------------------------------------

    def replay(self, bindings: Sequence[int] | Any = None, *, timings: bool = False) -> None:
        """Submit all packets. A uint64 array as `bindings` is read at once, never kept."""
        steps = self._building()
        self._queue.check_open()
        if not steps:
            return
        copy = self._idle_copy(timings)
        rows = self._rows
        assert rows is not None
        if self._count:
            got = 0 if bindings is None else len(bindings)
            if got < self._count:
                raise LaunchError(f"the recording needs {self._count} bindings and got {got}")
            places, indices, offsets = rows
            copy.slots[places] = np.asarray(bindings, np.uint64)[indices] + offsets
        queue = self._queue
        queue.replay(copy.parts, copy.keep, [step.kernel.name for step in steps])
        copy.value = queue.submitted

    def _idle_copy(self, timings: bool) -> Copy:
        if timings:
            if self._timed is None:
                self._timed = self._encode(timings=True)
            copy = self._timed
        else:
            if len(self._copies) < COPIES and all(map(self._busy, self._copies)):
                self._copies.append(self._encode(timings=False))
                self._turn = len(self._copies) - 1
            else:
                self._turn = (self._turn + 1) % len(self._copies)
            copy = self._copies[self._turn]
        if self._busy(copy):
            timeline = self._queue.timeline
            self._device.wait_until(
                lambda: timeline.peek() >= copy.value, 30_000, f"a replay on {self._queue.name}"
            )
        return copy

    def _busy(self, copy: Copy) -> bool:
        return self._queue.timeline.peek() < copy.value

    def _encode(self, *, timings: bool) -> Copy:
        """Arguments and packets in memory of their own."""
        steps, queue, device = self._building(), self._queue, self._device
        private = max(step.kernel.private_bytes for step in steps)
        scratch = device.scratch_for(private)
        launches = [
            launch_of(step.kernel, step.shape, scratch, queue.ring.queue_va, queue.mode)
            for step in steps
        ]
        arena = Arena(device)
        size = sum(-(-launch.room_bytes // 64) * 64 for launch in launches)
        address, memory, chunk = arena.take(size)
        slots = np.frombuffer(memory, np.uint8)[: size // 8 * 8].view(np.uint64)
        copy = Copy([], [], slots, [chunk, scratch], [])
        patches = _Patches()
        at = 0
        parts: list[list[int] | bytes] = []
        if timings:
            self._stamp(copy, parts)
        for step, launch in zip(steps, launches, strict=True):
            segment = memory[at : at + launch.room_bytes]
            self._store(step, launch, segment, at, patches)
            words = launch.place(address + at, segment)
            if launch.preloads and any(isinstance(w, Binding) for w in step.words):
                raise LaunchError(f"{step.kernel.name} preloads arguments: no bindings here")
            parts.append(words if queue.mode == "pm4" else queue.pack_launch(words))
            copy.keep += (step.kernel.image.block, *filter(None, step.keep))
            if timings:
                self._stamp(copy, parts)
            at += -(-launch.room_bytes // 64) * 64
        self._freeze(parts, copy, arena)
        self._settle(patches)
        return copy

    def _stamp(self, copy: Copy, parts: list[list[int] | bytes]) -> None:
        stamp = AmdTimestamp(self._device)
        copy.stamps.append(stamp)
        copy.keep.append(stamp)
        boundaries = self._queue.boundaries
        words = self._queue.once(boundaries.timestamp(stamp.block.address))
        parts.append(words + boundaries.acquire_all)

    def _store(
        self, step: Step, launch: Launch, segment: memoryview, at: int, patches: _Patches
    ) -> None:
        """Fill in a launch's arguments, and note those that bindings give."""
        segment[: len(launch.template)] = launch.template
        arguments = step.kernel.arguments
        for number, word in enumerate(step.words):
            place = arguments.place(number)
            if isinstance(word, Binding):
                if place.offset % 8 or place.size_bytes != 8:
                    raise LaunchError(f"{step.kernel.name}: argument {number} cannot be bound")
                patches.places.append((at + place.offset) // 8)
                patches.indices.append(word.index)
                patches.offsets.append(word.offset_bytes & (1 << 64) - 1)
            else:
                end = place.offset + place.size_bytes
                segment[place.offset : end] = word_bytes(word, place.size_bytes)

    def _freeze(self, parts: list[list[int] | bytes], copy: Copy, arena: Arena) -> None:
        """PM4 goes into memory; what runs it, and AQL packets, stay as they are."""
        for part in merged(parts):
            if isinstance(part, list):
                runner, chunk = self._queue.freeze(part, arena)
                copy.parts.append(runner)
                copy.keep.append(chunk)
            else:
                copy.parts.append(part)

    def _settle(self, patches: _Patches) -> None:
        self._rows = (
            np.array(patches.places, np.int64),
            np.array(patches.indices, np.int64),
            np.array(patches.offsets, np.uint64),
        )
        self._count = 1 + max(patches.indices, default=-1)

    def timings_ns(self) -> list[int]:
        """How long each launch of the last timed replay took; waits for it."""
        copy = self._timed
        if copy is None or not copy.value:
            raise LaunchError("no replay with timings=True yet")
        self._queue.synchronize()
        ticks = [stamp.ticks for stamp in copy.stamps]
        hz = self._device.clock_hz
        return [(b - a) * 1_000_000_000 // hz for a, b in itertools.pairwise(ticks)]

    def close(self) -> None:
        """Forget the packets. Idempotent."""
        self._steps = None
        self._copies, self._timed = [], None
