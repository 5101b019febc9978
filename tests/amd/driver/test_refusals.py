"""Every request that the driver makes, refused with every errno that matters, wherever it is made.

A run opens a device, uses all of it and closes it, on virtual machines that refuse one call of it.
What comes is a typed error, or a right result where the driver can do without the call or makes it
again; nothing is left behind; and the device can be opened and used afterwards. The calls are not
listed here: they are read from a recorded trace of the run.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import mmap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver.device import AmdDevice
from rawgpu.amd.driver.topology import gpu_nodes
from rawgpu.amd.virtual.machine import Machine
from rawgpu.amd.virtual.port import Port
from rawgpu.contract import MemoryKind, QueueKind
from rawgpu.errors import (
    DeviceError,
    FenceTimeout,
    KernelCallFailed,
    OutOfMemory,
    PageFault,
    RawGpuError,
)
from rawgpu.ioctl.port import KernelPort
from rawgpu.trace.record import Recorder
from rawgpu.virtual.room import Room
from tests.amd.driver.ledger import Ledger
from tests.amd.driver.objects import SAXPY
from tests.amd.driver.rooms import Engine, saxpy

pytestmark = pytest.mark.virtual
N = 64
ERRORS = ("ENOMEM", "EINTR", "EAGAIN", "EBUSY", "EINVAL", "ENODEV", "EPERM")
AGAIN = ("EINTR", "EAGAIN")
"""Answers after which a request is made again, and all is well."""
OPTIONAL = {
    "RuntimeEnable": "another library may have the debugger on; nothing depends on it",
    "Info": "tells the clock's frequency and a fault's exact address; there are defaults",
    "AvailableMemory": "only makes the text of OutOfMemory better",
    "UpdateQueue": "takes a queue that is late off the hardware, to see its waves, and back",
    "GetQueueWaveState": "the same",
}
"""Requests that may be refused without anybody noticing."""
GIVEN_BACK = ("UnmapMemoryFromGpu", "FreeMemoryOfGpu", "DestroyQueue", "DestroyEvent", "munmap")
"""Calls that are made again before the device is closed."""
OTHERS = ("open", "mmap", "munmap")
"""Calls that are no requests and may be refused as well."""
LONGEST_S = 10.0


def everything(ports: list[KernelPort], engine: Engine) -> None:
    """Every kind of memory, queue and wait, with right results."""
    port = ports[0]
    nodes = gpu_nodes(port)
    with contextlib.ExitStack() as stack:
        gpu = stack.enter_context(AmdDevice("amd:0", port, nodes[0]))
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x = gpu.array(np.ones(N, np.float32))
        out = gpu.alloc(4 * N, MemoryKind.PINNED)
        out.view()[:] = bytes(4 * N)
        launch = [x, out, np.float32(2), np.int32(N)]
        kernel(*launch, block=N)
        gpu.synchronize()
        check(out.view(), 2)
        pinned = gpu.pin(np.frombuffer(mmap.mmap(-1, 4096), np.float32))
        big = gpu.alloc(2 << 20)
        with contextlib.ExitStack() as exported:
            fd = big.export_dmabuf()
            exported.callback(port.close, fd)
            foreign = gpu.import_dmabuf(fd, 2 << 20)
        copies, signal = gpu.queue(QueueKind.COPY), gpu.new_signal()
        copies.copy(big, x.buffer, 4 * N)
        copies.signal(signal, 1)
        copies.submit()
        signal.wait(1)
        check(big.read(4 * N), 1)
        recording = gpu.own_queue().record()
        recording.launch(kernel, launch, block=N)
        recording.replay()
        gpu.synchronize()
        check(out.view(), 4)
        if len(nodes) > 1:
            other = stack.enter_context(AmdDevice("amd:1", port, nodes[1]))
            big.map_on(other)
        gpu.scratch_for(64)
        with contextlib.suppress(OutOfMemory):
            gpu.alloc(1 << 39)
        copies.close()
        foreign.close()
        pinned.close()
        gpu.trim()


def a_page_fault(ports: list[KernelPort], engine: Engine) -> None:
    """A fault, what the driver asks about it, and the further context that goes on after it."""
    port = ports[0]
    nodes = gpu_nodes(port)
    for turn in range(2):
        with AmdDevice("amd:0", port, nodes[0]) as gpu:
            engine.work = stray
            kernel = engine.load(gpu, SAXPY, "saxpy")
            x = gpu.array(np.zeros(N, np.float32))
            kernel(x, x, np.float32(1), np.int32(N), block=N)
            fault = ended(gpu, 30_000)
            assert isinstance(fault, PageFault) and fault.address is not None
            assert fault.address & -4096 == x.address + AWAY & -4096, turn
        engine.work = saxpy
        with AmdDevice("amd:0", port, nodes[0]) as gpu:
            out = gpu.alloc(4 * N, MemoryKind.PINNED)
            out.view()[:] = bytes(4 * N)
            kernel = engine.load(gpu, SAXPY, "saxpy")
            x = gpu.array(np.ones(N, np.float32))
            kernel(x, out, np.float32(2), np.int32(N), block=N)
            gpu.synchronize()
            check(out.view(), 2)


def a_long_launch(ports: list[KernelPort], engine: Engine) -> None:
    """A wait that runs out; the queue is looked at, goes on, and is destroyed under way."""
    engine.slices = (1 << 40,)
    port = ports[0]
    with AmdDevice("amd:0", port, gpu_nodes(port)[0]) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x = gpu.array(np.zeros(N, np.float32))
        kernel(x, x, np.float32(1), np.int32(N), block=N)
        late = ended(gpu, 60)
        assert isinstance(late, FenceTimeout) and late.running == ("saxpy",)


def ended(gpu: AmdDevice, timeout_ms: int) -> DeviceError | None:
    """What a wait for the device says; refusals go on up."""
    try:
        gpu.synchronize(timeout_ms)
    except DeviceError as error:
        return error
    return None


AWAY = 64 << 20


def stray(dispatch: Any, memory: Any, segment: bytes) -> None:
    memory.write(int.from_bytes(segment[:8], "little") + AWAY, b"1234")


def check(data: Any, value: float) -> None:
    assert set(np.frombuffer(data, np.float32)[:N]) == {value}


@dataclass(frozen=True)
class Story:
    """A room, and what is done in it."""

    spec: str
    kernel: str
    run: Callable[[list[KernelPort], Engine], None]


STORIES = {
    "gfx1100": Story("gfx1100*2", "6.12", everything),
    "gfx942": Story("gfx942", "6.12.107", everything),
    "fault": Story("gfx1100", "1.22", a_page_fault),
    "late": Story("gfx1100", "6.12", a_long_launch),
}


@contextlib.contextmanager
def entered(story: Story) -> Iterator[tuple[Room, Machine, Engine]]:
    engine = Engine(work=saxpy, slices=(1, 200))
    with Room(story.spec, runner=engine, kernel=story.kernel) as room:
        yield room, cast(Machine, room.machines["amd"]), engine


@contextlib.contextmanager
def process(machine: Machine) -> Iterator[Port]:
    """A process of its own in the room, which ends."""
    port = Port(machine)
    yield port
    port.exit()
    machine.ports.remove(port)


@functools.cache
def calls(name: str) -> dict[str, int]:
    """How often the story makes each request, from a recorded trace of it."""
    story = STORIES[name]
    file = io.StringIO()
    with entered(story) as (_, machine, engine), process(machine) as port:
        story.run([Recorder(port, file)], engine)
    rows = [json.loads(line) for line in file.getvalue().splitlines()[1:]]
    found = Counter(row.get("request", row["call"]).rstrip("0123456789") for row in rows)
    return {call: n for call, n in found.items() if call[0].isupper() or call in OTHERS}


PACED = ("WaitEvents",)
"""Requests whose number is up to how far the GPU is when the driver looks."""


def may_succeed(call: str, error: str) -> bool:
    """Whether the driver gets over it; then the results must be right."""
    if call in ("AllocMemoryOfGpu", "mmap") and error == "ENOMEM":
        return True  # what the allocator keeps in store is given back, and the kernel asked again
    return (error in AGAIN and call[0].isupper()) or call in GIVEN_BACK or call in OPTIONAL


@pytest.fixture(autouse=True)
def _waits_ask_the_kernel_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "FIRST_SPINS", 2)
    monkeypatch.setattr(driver, "SPINS", 2)


def refuse(
    name: str, cells: list[tuple[str, int, str]], *, again: Callable[[str], bool]
) -> Counter[str]:
    """Run the story once for each cell: the request, which one of its kind, and the errno.

    And once more without refusal, in the same process, where `again` says so of the errno.
    """
    story = STORIES[name]
    seen: Counter[str] = Counter()
    with entered(story) as (room, machine, engine):
        with process(machine) as port:
            story.run([port], engine)
            clean = Ledger.of(port)
        for call, nth, error in cells:
            where = f"{call} {nth} {error}"
            room.faults.clear()
            engine.work = saxpy
            with process(machine) as port:
                room.faults.fail(call, errno=getattr(errno, error), nth=nth)
                begin = time.monotonic()
                outcome = "succeeded"
                try:
                    story.run([port], engine)
                except RawGpuError as caught:
                    outcome = type(caught).__name__
                assert time.monotonic() - begin < LONGEST_S, where
                if list(room.faults.pending()):
                    assert call in PACED and outcome == "succeeded" and nth > 1, where
                    outcome = "not made this time"
                    room.faults.clear()
                elif outcome == "succeeded":
                    assert may_succeed(call, error), f"{where}: nobody noticed"
                elif call in GIVEN_BACK or call in OPTIONAL or error in AGAIN:
                    assert not may_succeed(call, error), f"{where}: {outcome}"
                assert Ledger.of(port).beyond(clean) == {}, where
                if again(error):
                    engine.work = saxpy
                    story.run([port], engine)
                    assert Ledger.of(port).beyond(clean) == {}, where
            seen[outcome] += 1
    return seen


@pytest.mark.parametrize("name", ["gfx1100", "fault", "late"])
def test_a_refused_request_is_a_typed_error_and_leaks_nothing(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """Each request with each errno once; which of its kind is refused, the errno decides.

    What every errno is followed by, opening and using the device again, is tried with one of them.
    """
    cells = [
        (call, 1 + number * (count - 1) // max(len(ERRORS) - 1, 1), error)
        for call, count in calls(name).items()
        for number, error in enumerate(ERRORS)
        if name == "gfx1100" or call not in calls("gfx1100")
    ]
    seen = refuse(name, cells, again=lambda error: error == "ENODEV")
    record_property("count refused requests", seen.total())


@pytest.mark.parametrize("call", GIVEN_BACK)
def test_what_a_kernel_will_not_take_back_is_given_back_later(call: str) -> None:
    """It refuses until further notice: closing says so, and the next open and close makes up."""
    story = STORIES["gfx1100"]
    with entered(story) as (room, machine, engine), process(machine) as port:
        story.run([port], engine)
        clean = Ledger.of(port)
        room.faults.fail(call, errno=errno.EIO, times=1 << 30)
        with pytest.raises(KernelCallFailed, match="does not take back"):
            story.run([port], engine)
        assert Ledger.of(port).beyond(clean)
        room.faults.clear()
        story.run([port], engine)
        assert Ledger.of(port).beyond(clean) == {}


@pytest.mark.full
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", STORIES)
def test_each_request_refused_wherever_it_is_made(
    name: str, error: str, record_property: Callable[[str, object], None]
) -> None:
    cells = [(call, n, error) for call, count in calls(name).items() for n in range(1, count + 1)]
    seen = refuse(name, cells, again=lambda error: True)
    record_property("count refused requests", seen.total())
