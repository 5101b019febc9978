"""Where a queue stands that did not end in time: its waves' program counters, read from memory.

The queue is taken off the hardware for a moment; the kernel has its waves saved, and puts them
back. An engine that hangs does not let go: then the kernel resets the GPU, as it would when the
queue is destroyed. Nothing but this tells user space of a wave that halted, at an illegal
instruction or at a trap of its own: its queue only seems to hang.

Source: linux 6.12 amdkfd, GET_QUEUE_WAVE_STATE; `spec/savearea.py`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.amd.spec.generations import GENERATIONS
from rawgpu.amd.spec.isa.decoder import decoder_for
from rawgpu.amd.spec.savearea import SavedWave, waves_of
from rawgpu.errors import DecodeError, IllegalInstruction, KernelCallFailed, KernelFault
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.program import Image
    from rawgpu.amd.driver.queue import Submitter

MOST_PLACES = 8
HINT_MOVING = (
    "a larger timeout_ms if the work is that long; if it never ends, close the device and open it "
    "again (rawgpu disasm --explain shows the code where the waves are)"
)
HINT_STILL = (
    "close the device and open it again: the waves stood still while they were looked at, or go "
    "round in few instructions (rawgpu disasm --explain shows which)"
)


@dataclass(frozen=True)
class Place:
    """A wave, by kernel and bytes from its first instruction."""

    kernel: str
    offset: int | None
    wave: SavedWave
    trap: str | None = None
    """The instruction by which the wave stopped itself, if it did."""

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
            return Place(name, wave.pc - at, wave, _trap_at(device, image, wave.pc))
    return Place("unknown", None, wave)


def _trap_at(device: AmdDevice, image: Image, pc: int) -> str | None:
    """`s_trap 2`, if the wave is at a trap; `s_sethalt 5`, if it is at or right behind a halt.

    A trap leaves the program counter where it is, a halt moves it on. What compilers make of
    `llvm.trap` is one, the other, or both.
    """
    hardware = device.hardware
    decoder = decoder_for(GENERATIONS[hardware.name].family, hardware.lanes)
    for at, names in ((pc, ("s_trap", "s_sethalt")), (pc - 4, ("s_sethalt",))):
        start = at - image.address
        try:
            found = decoder.decode(image.data[start : start + 4], 0) if start >= 0 else None
        except DecodeError:
            continue  # the middle of a longer one, or no instruction at all
        if found is not None and found.name in names and (immediate := found.get("simm16")):
            return f"{found.name} {immediate}"
    return None


def in_words(found: list[Place]) -> tuple[str, ...]:
    """`12 waves at saxpy+0x40`, the most crowded places first."""
    crowds = Counter(map(str, found)).most_common(MOST_PLACES)
    return tuple(f"{n} wave{'s' if n > 1 else ''} at {place}" for place, n in crowds)


def halted(queue: Submitter, found: list[Place]) -> KernelFault | None:
    """The error for a wave that the hardware stopped, if one is among these."""
    for place in found:
        wave = place.wave
        kind: type[KernelFault] = KernelFault
        if wave.illegal_instruction:
            kind, what = IllegalInstruction, "an illegal instruction"
        elif wave.memory_violation:
            what = "a memory violation: a misaligned or impossible address"
        elif place.trap is not None:
            what = f"the kernel trapped ({place.trap}): an assertion of its own, or llvm.trap"
        else:
            continue
        return kind(
            f"{queue.device.name}: {place}: {what}; the queue {queue.name} was closed",
            kernel=place.kernel,
            offset=place.offset,
            device_usable=True,
            hint="rawgpu disasm --explain shows the code at this offset; other queues go on",
        )
    return None
