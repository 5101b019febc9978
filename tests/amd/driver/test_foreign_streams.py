"""Our packets against tinygrad's, which run on real cards, for the same work: field by field.

tinygrad's streams are kept as data, recorded by `record_tinygrad.py` on the virtual machine. What
differs stands in `DIFFERENCES` with its reason; a difference that is not there, and one that is
there and no longer found, fails. docs/vendors/amd.md has the reasons for people.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver.device import AmdDevice
from rawgpu.contract import QueueKind
from rawgpu.errors import DecodeError
from tests.amd.driver import rooms
from tests.amd.driver.foreign_objects import kept
from tests.amd.virtual import streams
from tests.amd.virtual.streams import Line, Recorder, Step

pytestmark = pytest.mark.virtual


class Client:
    """Our device, with the memory and the programs of all steps."""

    def __init__(self, gpu: AmdDevice, recorder: Recorder) -> None:
        self.gpu, self.recorder = gpu, recorder
        self.queue: Any = gpu.queue()
        self.copies: Any = gpu.queue(QueueKind.COPY)
        self.kernels = {
            name: gpu.load(kept(f"{source}-{gpu.hardware.name}.so"))[name]
            for source, name in (("plain", "saxpy"), ("local", "reverse"), ("stack", "array"))
        }
        self.x, self.y = (gpu.alloc(streams.COPY_BYTES) for _ in range(2))
        self.signal = gpu.new_signal()
        self.array(self.queue)  # so that every step has its scratch
        self.queue.submit()
        gpu.synchronize()

    def begin(self, name: str) -> Step:
        self.settle()
        step = self.recorder.begin(name)
        gpu, queue, copies = self.gpu, self.queue, self.copies
        image = self.kernels[KERNELS.get(name, "saxpy")].image
        scratch = gpu.scratch.region
        step.event = gpu.event.id
        step.places += [
            ("timeline", queue.timeline.address, 4, queue.submitted),
            ("timeline", copies.timeline.address, 4, copies.submitted),
            ("slot", gpu.event.slot, 8, None),
            ("signal", self.signal.address, 4, None),
            ("code", image.address, image.parsed.size_bytes, None),
            ("x", self.x.address, streams.COPY_BYTES, None),
            ("y", self.y.address, streams.COPY_BYTES, None),
            ("scratch", scratch.address, scratch.size_bytes, None),
            ("ring", queue.ring.ring.address, queue.ring.size_bytes, None),
        ]
        return step

    def settle(self) -> None:
        """Let the engines get to the end of what was submitted."""
        while not self.recorder.idle:
            self.gpu.port.pause()

    def arena(self) -> list[tuple[str, int, int, None]]:
        """All other host memory: what arguments and indirect buffers are taken from."""
        regions = [segment.region for segment in self.gpu.host._segments]
        return [("arena", region.address, region.size_bytes, None) for region in regions]

    def end(self, queue: Any) -> None:
        queue.submit()
        self.gpu.synchronize()

    def saxpy(self, queue: Any) -> None:
        values = (np.float32(2), np.int32(streams.ELEMENTS))
        grid, block = streams.GRID, streams.BLOCK
        queue.launch(self.kernels["saxpy"], [self.x, self.y, *values], grid=grid, block=block)

    def array(self, queue: Any) -> None:
        arguments = [self.y, np.int32(streams.TURNS)]
        queue.launch(self.kernels["array"], arguments, grid=streams.GRID, block=streams.BLOCK)


KERNELS = {"local": "reverse", "scratch": "array"}


def launch(client: Client) -> None:
    client.saxpy(client.queue)
    client.end(client.queue)


def two_launches(client: Client) -> None:
    client.saxpy(client.queue)
    client.saxpy(client.queue)
    client.end(client.queue)


def local(client: Client) -> None:
    kernel = client.kernels["reverse"]
    client.queue.launch(kernel, [client.y], grid=streams.GRID, block=streams.BLOCK)
    client.end(client.queue)


def scratch(client: Client) -> None:
    client.array(client.queue)
    client.end(client.queue)


def stamped(client: Client, queue: Any, work: Callable[[], None]) -> None:
    stamps = [queue.timestamp()]
    work()
    stamps.append(queue.timestamp())
    for turn, stamp in enumerate(stamps):
        place = (f"stamp {turn}", stamp.slot.block.address, 8, None)
        client.recorder.steps[-1].places.append(place)
    client.end(queue)


def timed(client: Client) -> None:
    stamped(client, client.queue, lambda: client.saxpy(client.queue))


def copy(client: Client) -> None:
    client.copies.copy(client.y, client.x, streams.COPY_BYTES)
    client.end(client.copies)


def timed_copy(client: Client) -> None:
    stamped(client, client.copies, lambda: client.copies.copy(client.y, client.x, 4096))


def copy_then_launch(client: Client) -> None:
    client.copies.copy(client.y, client.x, 4096)
    client.copies.signal(client.signal, 1)
    client.copies.submit()
    client.queue.wait(client.signal, 1)
    client.saxpy(client.queue)
    client.end(client.queue)


def recorded(client: Client) -> None:
    recording = client.queue.record()
    client.saxpy(recording)
    client.saxpy(recording)
    recording.replay()
    client.gpu.synchronize()


PROGRAMS: dict[str, Callable[[Client], None]] = {
    "launch": launch,
    "two launches": two_launches,
    "local": local,
    "scratch": scratch,
    "timed": timed,
    "copy": copy,
    "timed copy": timed_copy,
    "copy then launch": copy_then_launch,
    "recorded": recorded,
}


@functools.cache
def ours(stream: str) -> dict[str, Step]:
    """What our driver puts into queues, by step."""
    gpu, options = streams.STREAMS[stream]
    recorder = Recorder()
    with rooms.opened(gpu, recorder.runner, **options) as device, recorder.listening():
        client = Client(device, recorder)
        for name in streams.STEPS:
            client.begin(name)
            PROGRAMS[name](client)
            recorder.steps[-1].places += client.arena()
        client.settle()
    return {step.name: step for step in recorder.steps}


@functools.cache
def theirs(stream: str) -> dict[str, Step]:
    """What tinygrad's driver put into queues."""
    _, steps = streams.load(streams.FOLDER / f"{stream}.jsonl")
    return {step.name: step for step in steps}


def found(stream: str, left: dict[str, Step], right: dict[str, Step]) -> list[tuple[str, str]]:
    """Every difference, with the step it is in."""
    gpu, _ = streams.STREAMS[stream]
    rows: list[tuple[str, str]] = []
    for name in streams.STEPS:
        one, two = left[name], right[name]
        lines, others = streams.lines_of(gpu, one), streams.lines_of(gpu, two)
        assert set(lines) == set(others)
        for kind, mine in lines.items():
            rows += [(name, text) for text in streams.differences(mine, others[kind])]
        assert streams.kernargs_of(gpu, one) == streams.kernargs_of(gpu, two)
    last = streams.STEPS[-1]
    rows += [("dispatch packet", t) for t in _pair(streams.dispatch_packet_of, gpu, left, right)]
    if left[last].descriptor:
        rows += [("queue", t) for t in _pair(streams.descriptor_of, gpu, left, right, last)]
    return rows


def _pair(
    read: Callable[[str, Step], Line],
    gpu: str,
    left: dict[str, Step],
    right: dict[str, Step],
    step: str = "local",
) -> list[str]:
    return streams.differences([read(gpu, left[step])], [read(gpu, right[step])])


@dataclass(frozen=True)
class Difference:
    """One that we want: where it is, as often as it occurs, and why."""

    streams: tuple[str, ...]
    steps: tuple[str, ...]
    text: str
    reason: str


EVERY = tuple(streams.STREAMS)
PM4 = ("gfx1100", "gfx1201", "gfx942-pm4")
LAUNCHES = (
    "launch", "two launches", "two launches", "local", "scratch", "timed", "copy then launch",
    "recorded", "recorded",
)  # fmt: skip
SPLIT = (
    "copies are split at 4 MiB, as the kernel does on every version; theirs has packets of up to "
    "1 GiB from SDMA v5 on"
)
ONE_TIMELINE = "their device has one timeline, each of our queues has its own"
IN_MEMORY = (
    "their indirect buffer holds the whole submit, ours the launches: what depends on the queue "
    "stays in the ring, so a recording can be replayed as it is"
)
NOT_FILLED = "ROCr fills it in, so do we; theirs leaves it at 0 and works: firmware needs it not"
DIFFERENCES = (
    Difference(
        ("gfx942",),
        LAUNCHES,
        "KernelDispatch: dimensions: theirs 3, ours 1",
        "we say how many sizes count, as HSA has it; they always say 3",
    ),
    Difference(
        ("gfx1100", "gfx1201"),
        ("copy",),
        "only ours: CopyLinear6 size_bytes=0x400000 source=x target=y",
        SPLIT,
    ),
    *(
        Difference(("gfx1100", "gfx1201"), ("copy",), f"CopyLinear6: {text}", SPLIT)
        for text in (
            "size_bytes: theirs 0x401000, ours 4096",
            "source: theirs x, ours x+0x400000",
            "target: theirs y, ours y+0x400000",
        )
    ),
    Difference(
        EVERY,
        ("copy then launch",),
        "WaitRegMem timeline: reference: theirs timeline+1, ours timeline+0",
        ONE_TIMELINE,
    ),
    Difference(
        ("gfx1100", "gfx1201"),
        ("copy then launch",),
        "ReleaseMem10 timeline: data: theirs timeline+2, ours timeline+1",
        ONE_TIMELINE,
    ),
    Difference(
        ("gfx942", "gfx942-pm4"),
        ("copy then launch",),
        "ReleaseMem timeline: data: theirs timeline+2, ours timeline+1",
        ONE_TIMELINE,
    ),
    *(
        Difference(PM4, ("recorded",), f"only {who}: IndirectBuffer address=arena valid=True", why)
        for who, why in (("theirs", IN_MEMORY), ("ours", IN_MEMORY))
    ),
    *(
        Difference(("gfx942",), ("queue",), f"amd_queue_t: {text}", NOT_FILLED)
        for text in (
            "features: theirs 0, ours 0x1",
            "base_address: theirs 0, ours ring",
            "size: theirs 0, ours 0x4000",
            "group_segment_aperture_base_hi: theirs 0, ours 0x10000",
            "private_segment_aperture_base_hi: theirs 0, ours 0x20000",
            "scratch_backing_memory_byte_size: theirs 0, ours 0x9800000",
        )
    ),
)


@pytest.mark.parametrize("stream", EVERY)
def test_packets_equal_those_of_a_driver_that_works_on_cards(stream: str) -> None:
    wanted = Counter(
        (step, row.text) for row in DIFFERENCES if stream in row.streams for step in row.steps
    )
    different = Counter(found(stream, theirs(stream), ours(stream)))
    assert different - wanted == Counter(), "differences that are not listed"
    assert wanted - different == Counter(), "differences that are listed and are gone"


@pytest.mark.parametrize("stream", EVERY)
def test_recordings_hold_what_they_should(stream: str) -> None:
    """Every step, with its packets and launches, so that equality says something."""
    head, steps = streams.load(streams.FOLDER / f"{stream}.jsonl")
    gpu, _ = streams.STREAMS[stream]
    assert head["gpu"] == gpu and head["driver"].startswith("tinygrad ")
    assert tuple(step.name for step in steps) == streams.STEPS
    launches = Counter(LAUNCHES)
    for step in steps:
        lines = streams.lines_of(gpu, step)
        kinds = [line.kind for row in lines.values() for line in row]
        assert len(step.kernargs) == launches[step.name]
        assert sum(k.startswith(("DispatchDirect", "KernelDispatch")) for k in kinds) == len(
            step.kernargs
        )
        assert ("sdma" in lines) == ("copy" in step.name)
        assert "x y 0xc840000000" in streams.kernargs_of(gpu, step) or not {
            "launch", "two launches", "recorded"
        } & {step.name}  # fmt: skip


@pytest.mark.parametrize(("stream", "name"), [("gfx1100", "launch"), ("gfx942", "copy")])
def test_a_flipped_bit_is_seen(stream: str, name: str) -> None:
    """A bit of each dword in turn: it cannot be decoded, or it is a difference."""
    gpu, _ = streams.STREAMS[stream]
    step, chance = theirs(stream)[name], random.Random(7)
    right = streams.lines_of(gpu, step)
    seen = 0
    for number, packet in enumerate(step.packets):
        for at in range(0, len(packet["words"]) // 2, 4):
            raw = bytearray.fromhex(packet["words"])
            raw[at + chance.randrange(4)] ^= 1 << chance.randrange(8)
            rest = step.packets[number + 1 :]
            packets = [*step.packets[:number], {**packet, "words": raw.hex()}, *rest]
            try:
                wrong = streams.lines_of(gpu, dataclasses.replace(step, packets=packets))
            except DecodeError:
                seen += 1
                continue
            noticed = any(streams.differences(right[kind], wrong[kind]) for kind in right)
            # Where in their arena drivers put things is not compared.
            shared = any("arena" in line.fields.values() for line in _one(gpu, step, packet))
            assert noticed or shared, f"bit flipped in dword {at // 4} of {packet}"
            seen += noticed
    dwords = sum(len(packet["words"]) for packet in step.packets) // 8
    assert dwords > 20 and seen >= dwords - 4


def _one(gpu: str, step: Step, packet: dict[str, str]) -> list[Line]:
    lines = streams.lines_of(gpu, dataclasses.replace(step, packets=[packet]))
    return [line for row in lines.values() for line in row]
