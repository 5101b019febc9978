"""What drivers put into queues, taken where the virtual engines consume it, and compared.

A recording is JSON lines: a head, then a step a line, with its packets as hexadecimal words and the
names of the addresses in them. `lines_of` decodes a step by our declarations into named packets
whose fields are text: addresses by name, timeline values by their distance from the step's start.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from rawgpu.amd.spec import aql, pm4, sdma
from rawgpu.amd.spec.hardware import BY_NAME, Hardware
from rawgpu.amd.virtual.cp import MicroEngine
from rawgpu.amd.virtual.dispatch import Client, Dispatch, GpuMemory, Running, Services
from rawgpu.amd.virtual.queues import SDMA_TYPES, Queue, Steps
from rawgpu.amd.virtual.wave import interpret_dispatch
from rawgpu.describe.packet import Packet
from rawgpu.describe.value import show
from rawgpu.ioctl.kfd import QueueType

FOLDER = Path(__file__).parents[2] / "data" / "amd" / "streams"
STEPS = (
    "launch", "two launches", "local", "scratch", "timed", "copy", "timed copy",
    "copy then launch", "recorded",
)  # fmt: skip
"""What both drivers do; see `test_foreign_streams.py`."""
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "gfx1100": ("gfx1100", {}),
    "gfx1201": ("gfx1201", {}),
    "gfx942": ("gfx942", {}),
    "gfx942-pm4": ("gfx942", {"partitioned": True}),
}
"""GPU and options of its room, by the name of the recording. One XCC alone has PM4 queues."""
ELEMENTS, BLOCK, GRID = 200, 64, 4
TURNS = 3
"""Of the loop in the kernel of `scratch`."""
TWO = struct.unpack("<I", struct.pack("<f", 2))[0]
COPY_BYTES = (4 << 20) + 4096
ARGUMENT_BYTES = {"local": 8, "scratch": 12}
SHARED = ("arena", "ib")
"""Memory for arguments and indirect buffers, handed out piece by piece: where is their business."""
PACKED_REGISTERS = ("COMPUTE_PGM", "COMPUTE_DISPATCH_SCRATCH_BASE")
"""Pairs `_LO` and `_HI` that hold an address / 256."""


@dataclass
class Step:
    """The packets of one step, and what the addresses in them stand for."""

    name: str
    places: list[tuple[str, int, int, int | None]] = field(default_factory=list)
    """Name, address, size, and of a timeline what it stood at before."""
    event: int = 0
    """Number of the event that wakes the host."""
    packets: list[dict[str, str]] = field(default_factory=list)
    """`queue` (its kind), `words`, and `buffer`: the indirect buffer that the packet runs."""
    kernargs: list[str] = field(default_factory=list)
    """Explicit arguments of each dispatch."""
    dispatch_packet: str = ""
    """What the kernel of `local` finds at its dispatch pointer."""
    descriptor: str = ""
    """The queue's `amd_queue_t`, of an AQL queue."""


class Recorder:
    """Listens to the engines and the dispatches of a room while `recording`."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._buffers: dict[Queue, bytes] = {}
        """The indirect buffer of the packet that each queue is at."""
        self._queues: set[Queue] = set()

    @property
    def idle(self) -> bool:
        """Whether all is consumed: a signal may be seen before the packets behind it are run."""
        return not any(queue.busy for queue in self._queues)

    def begin(self, name: str) -> Step:
        self.steps.append(Step(name))
        return self.steps[-1]

    def consumed(self, queue: Queue, units: int) -> None:
        """A packet was run."""
        self._queues.add(queue)
        buffer = self._buffers.pop(queue, b"")
        if not self.steps:
            return
        kind = queue.shape.kind
        raw = queue.fetched[: units * queue.shape.unit]
        packet = {"queue": "sdma" if kind in SDMA_TYPES else kind.name.lower(), "words": raw.hex()}
        if buffer:
            packet["buffer"] = buffer.hex()
        self.steps[-1].packets.append(packet)
        if kind is QueueType.COMPUTE_AQL:
            head = queue.shape.write_pointer - 0x38
            raw = queue.view.read(head, aql.AmdQueue.about.size, Client.COMMAND)
            self.steps[-1].descriptor = raw.hex()

    def run_buffer(self, engine: MicroEngine, address: int, size_dwords: int) -> None:
        """An indirect buffer begins; each XCC runs it."""
        data = engine.view.read(address, 4 * size_dwords, Client.COMMAND)
        self._buffers[engine.queue] = data

    def runner(self, dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running:
        """Runs waves, and notes their arguments, to which user SGPRs point."""
        if self.steps and dispatch.xcc == 0:
            step = self.steps[-1]
            at = 2 if step.name == "local" else 0  # behind the dispatch packet's address
            low, high = dispatch.user_sgprs[at : at + 2]
            size = ARGUMENT_BYTES.get(step.name, 24)
            data = memory.read(low | high << 32, size, Client.SCALAR)
            step.kernargs.append(data.ljust(24, b"\0").hex())
            if step.name == "local":
                low, high = dispatch.user_sgprs[:2]
                data = memory.read(low | high << 32, aql.PACKET_BYTES, Client.SCALAR)
                step.dispatch_packet = data.hex()
        return interpret_dispatch(dispatch, memory, services)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        advance, run_buffer = Queue.advance, MicroEngine.run_buffer

        def consumed(queue: Queue, units: int) -> None:
            self.consumed(queue, units)
            advance(queue, units)

        def ran(engine: MicroEngine, address: int, size_dwords: int) -> Steps:
            self.run_buffer(engine, address, size_dwords)
            return run_buffer(engine, address, size_dwords)

        with (
            mock.patch.object(Queue, "advance", consumed),
            mock.patch.object(MicroEngine, "run_buffer", ran),
        ):
            yield


# --- files --------------------------------------------------------------------------------------


def save(path: Path, head: dict[str, str], steps: Sequence[Step]) -> None:
    rows = [head, *(vars(step) for step in steps)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def load(path: Path) -> tuple[dict[str, str], list[Step]]:
    head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    return head, [Step(**row) for row in rows]


# --- decoding -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A packet: what kind it is, and its fields as text."""

    kind: str
    fields: dict[str, str]


class _Reader:
    def __init__(self, hardware: Hardware, step: Step) -> None:
        self.hardware = hardware
        self.step = step

    def address(self, value: int) -> str:
        """The name of what lies there, with the distance from its start if it is not 0."""
        for name, start, size, _ in self.step.places:
            if start <= value < start + size:
                offset = value - start
                return f"{name}+{offset:#x}" if offset and name not in SHARED else name
        return f"{value:#x}"

    def value(self, address: int, value: int) -> str:
        """A number that is written to, or awaited at, an address."""
        for name, start, size, base in self.step.places:
            if start <= address < start + size:
                if base is not None:
                    return f"{name}{value - base:+d}"
                if name == "slot" and value == self.step.event:
                    return "event"
        return show(value)

    def lines(self) -> dict[str, list[Line]]:
        """The packets of each kind of queue, in order."""
        found: dict[str, list[Line]] = {}
        for packet in self.step.packets:
            words = bytes.fromhex(packet["words"])
            queue = "sdma" if packet["queue"] == "sdma" else "compute"
            into = found.setdefault(queue, [])
            if queue == "sdma":
                into += map(self.plain, self.hardware.sdma.decode(words))
                continue
            kinds = aql.AQL if packet["queue"] == "compute_aql" else self.hardware.pm4
            into += [line for outer in kinds.decode(words) for line in self.packet(outer)]
            inner = bytes.fromhex(packet.get("buffer", ""))
            into += [line for one in self.hardware.pm4.decode(inner) for line in self.packet(one)]
        return found

    def packet(self, packet: Packet) -> list[Line]:
        if isinstance(packet, aql.VendorPm4):
            words = [getattr(packet, f"indirect_buffer_{i}") for i in range(4)]
            inner = self.packet(self.hardware.pm4.decode_at(words))
            head = packet.replace(**{f"indirect_buffer_{i}": 0 for i in range(4)})
            return [self.plain(head), *inner]
        if isinstance(packet, (pm4.SetShReg, pm4.SetUconfigReg)):
            return [self.registers(packet.register, packet.values)]
        return [self.plain(packet)]

    def registers(self, at: int, values: Sequence[int]) -> Line:
        """A row of registers. Addresses are put together; other registers show their fields."""
        names = [self.hardware.registers.at(at + 4 * i).about.name for i in range(len(values))]
        fields: dict[str, str] = {}
        for i, (name, value) in enumerate(zip(names, values, strict=True)):
            stem, _, half = name.rpartition("_")
            if stem in PACKED_REGISTERS and half in ("LO", "HI"):
                if half == "HI":
                    fields[stem] = self.address((value << 32 | values[i - 1]) << 8)
            elif "USER_DATA" in name:
                whole = value << 32 | values[i - 1]
                named = self.address(whole) if i else ""
                if named.startswith("0x") or not named:
                    fields[name] = f"{value:#x}"
                else:
                    fields[names[i - 1]] = named
            else:
                register = self.hardware.registers.named(name).decode(value)
                shown = {f.name: getattr(register, f.name) for f in type(register).about.fields}
                fields |= {f"{name}.{k}": show(v) for k, v in shown.items() if v}
        return Line(f"SetReg {names[0]}", fields)

    def plain(self, packet: Packet) -> Line:
        values = {f.name: getattr(packet, f.name) for f in type(packet).about.fields}
        fields: dict[str, str] = {}
        in_memory = values.get("mem_space") is not pm4.Space.REGISTER
        for name, value in values.items():
            if name in ADDRESSES and in_memory:
                fields[name] = self.address(value)
            elif name in VALUES and in_memory:
                fields[name] = self.value(values.get("address", 0), value)
            elif name in CONTEXTS and value and value == self.step.event:
                fields[name] = "event"
            elif name not in LENGTHS:
                fields[name] = show(value)
        title = type(packet).__name__
        if isinstance(packet, (pm4.ReleaseMem, pm4.WaitRegMem, sdma.Fence, sdma.PollRegmem)):
            title += f" {fields['address']}"
        return Line(title, fields)


ADDRESSES = ("address", "source", "target", "kernel_object", "kernarg_address")
VALUES = ("reference", "data", "value")
CONTEXTS = ("int_ctxid", "int_context")
LENGTHS = ("exec_count", "size_dwords")
"""Follow from what they count, which is compared itself."""


def lines_of(gpu: str, step: Step) -> dict[str, list[Line]]:
    """The step's packets by kind of queue, decoded and named."""
    return _Reader(BY_NAME[gpu], step).lines()


def kernargs_of(gpu: str, step: Step) -> list[str]:
    """The arguments of each dispatch: addresses by name."""
    reader = _Reader(BY_NAME[gpu], step)
    return [
        " ".join(reader.address(word) for (word,) in struct.iter_unpack("<Q", bytes.fromhex(raw)))
        for raw in step.kernargs
    ]


def differences(theirs: Sequence[Line], ours: Sequence[Line]) -> list[str]:
    """Where two rows of packets differ, as text; fields of the same packets one by one."""
    left, right = [line.kind for line in theirs], [line.kind for line in ours]
    found: list[str] = []
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            for mine, other in zip(theirs[a:b], ours[c:d], strict=True):
                found += _fields(mine, other)
            continue
        found += [f"only theirs: {line.kind} {_text(line)}" for line in theirs[a:b]]
        found += [f"only ours: {line.kind} {_text(line)}" for line in ours[c:d]]
    return found


def _fields(theirs: Line, ours: Line) -> list[str]:
    names = list(dict.fromkeys([*theirs.fields, *ours.fields]))
    return [
        f"{theirs.kind}: {name}: theirs {theirs.fields.get(name, '-')}, ours "
        f"{ours.fields.get(name, '-')}"
        for name in names
        if theirs.fields.get(name) != ours.fields.get(name)
    ]


def _text(line: Line) -> str:
    shown = {k: v for k, v in line.fields.items() if v not in ("0", "False", "none")}
    return " ".join(f"{key}={value}" for key, value in shown.items())


def descriptor_of(gpu: str, step: Step) -> Line:
    """`amd_queue_t` of an AQL queue; without what changes with each packet."""
    reader = _Reader(BY_NAME[gpu], step)
    values = dict(vars(aql.AmdQueue.decode(bytes.fromhex(step.descriptor))))
    for name in ("write_dispatch_id", "read_dispatch_id"):
        del values[name]
    low, high, *rest = values.pop("scratch_resource_descriptor")
    fields = {
        name: reader.address(value) if value else "0"
        for name, value in values.items()
        if isinstance(value, int)
    }
    fields["scratch_resource_descriptor.base"] = reader.address(high << 32 & (1 << 47) - 1 | low)
    for i, word in enumerate((high >> 16, *rest)):
        fields[f"scratch_resource_descriptor[{i + 1}]"] = f"{word:#x}"
    return Line("amd_queue_t", fields)


def dispatch_packet_of(gpu: str, step: Step) -> Line:
    """The packet that the kernel of `local` was shown: the fields that tinygrad fills in."""
    raw = b"\2" + bytes.fromhex(step.dispatch_packet)[1:]
    packet = aql.KernelDispatch.decode(raw, strict=False)
    fields = _Reader(BY_NAME[gpu], step).plain(packet).fields
    return Line("dispatch packet", {k: v for k, v in fields.items() if k.startswith(SHOWN)})


SHOWN = ("workgroup_size", "grid_size", "private_segment", "group_segment", "kernarg_address")
