"""Where a queue stands that did not end in time: its waves' program counters, read from memory.

The queue is taken off the hardware for a moment; the kernel has its waves saved, and puts them
back. An engine that hangs does not let go: then the kernel resets the GPU, as it would when the
queue is destroyed. Nothing but this tells user space of a wave that halted, at an illegal
instruction say: its queue only seems to hang.

Source: linux 6.12 amdkfd, GET_QUEUE_WAVE_STATE; `spec/savearea.py`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.amd.spec.savearea import SavedWave, waves_of
from rawgpu.errors import IllegalInstruction, KernelCallFailed, KernelFault
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.queue import Submitter

MOST_PLACES = 8


@dataclass(frozen=True)
class Place:
    """A wave, by kernel and bytes from its first instruction."""

    kernel: str
    offset: int | None
    wave: SavedWave

    def __str__(self) -> str:
        return self.kernel if self.offset is None else f"{self.kernel}+{self.offset:#x}"


def places(queue: Submitter) -> list[Place]:
    """Where the waves of a queue are; none where the kernel does not let us see.

    KernelCallFailed if it does not put the queue back on the hardware.
    """
    device, ring = queue.device, queue.ring
    area = ring.save_area
    if area is None or not area.host_visible:
        return []
    try:
        ring.set_running(False)
    except KernelCallFailed:
        return []
    found: list[SavedWave] = []
    with contextlib.suppress(KernelCallFailed):
        ring.wave_state()
        found = _read(device, queue)
    try:
        ring.set_running(True)
    except KernelCallFailed:
        ring.set_running(True)
    return [_named(device, wave) for wave in found]


def _read(device: AmdDevice, queue: Submitter) -> list[SavedWave]:
    ring = queue.ring
    assert ring.save_area is not None
    size = ring.save_area.size_bytes
    whole = memoryview(ffi.buffer(ffi.cast("char *", ring.save_area.address), size)).cast("B")
    records = device.hardware.save_area.records
    found: list[SavedWave] = []
    for xcc in range(device.node.xccs):
        part = whole[xcc * ring.sizes.save : (xcc + 1) * ring.sizes.save]
        found += waves_of(part, ring.sizes.control_stack, records)
    return found


def _named(device: AmdDevice, wave: SavedWave) -> Place:
    for image in tuple(device.images):
        below = [entry for entry in image.entries if entry[0] <= wave.pc]
        if below and wave.pc < image.address + image.parsed.size_bytes:
            at, name = max(below)
            return Place(name, wave.pc - at, wave)
    return Place("unknown", None, wave)


def in_words(found: list[Place]) -> tuple[str, ...]:
    """`12 waves at saxpy+0x40`, the most crowded places first."""
    crowds = Counter(map(str, found)).most_common(MOST_PLACES)
    return tuple(f"{n} wave{'s' if n > 1 else ''} at {place}" for place, n in crowds)


def halted(queue: Submitter, found: list[Place]) -> KernelFault | None:
    """The error for a wave that the hardware stopped, if one is among these."""
    for place in found:
        wave = place.wave
        if not (wave.illegal_instruction or wave.memory_violation):
            continue
        kind, what = (
            (IllegalInstruction, "an illegal instruction")
            if wave.illegal_instruction
            else (KernelFault, "a memory violation: a misaligned or impossible address")
        )
        return kind(
            f"{queue.device.name}: {place}: {what}; the queue {queue.name} was closed",
            kernel=place.kernel,
            offset=place.offset,
            device_usable=True,
            hint="rawgpu disasm --explain shows the code at this offset; other queues go on",
        )
    return None
