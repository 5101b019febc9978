"""Each flush, fence and wait that the driver emits is taken away in turn: then something fails.

`order_sites.py` finds the places in the driver's source. Each has a line in `SEEN`, which says what
work misses it on which GPUs, or in `UNSEEN`, which says why nothing can. `tests/amd/virtual` has
the same for each packet and cache bit on the wire, taken away at the receiving end.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver import hdp as driver_hdp
from rawgpu.amd.driver import queue as queues
from rawgpu.amd.driver.copyqueue import CopyQueue
from rawgpu.amd.driver.device import AmdDevice
from rawgpu.amd.driver.dispatch import Boundaries
from rawgpu.amd.driver.hdp import HdpFlush
from rawgpu.amd.spec import aql, hardware, pm4, sdma
from rawgpu.amd.virtual import aql as aql_engine
from rawgpu.amd.virtual.dispatch import Misuse
from rawgpu.amd.virtual.wave import interpret_dispatch
from rawgpu.contract import Binding, MemoryKind, QueueKind
from rawgpu.errors import RawGpuError
from rawgpu.virtual.room import Room
from tests.amd.driver.objects import SAXPY, build
from tests.amd.driver.order_sites import sites
from tests.amd.driver.rooms import Engine, opened, saxpy

pytestmark = pytest.mark.virtual
N = 128
SEEDS = 8

# --- work whose results are wrong where order is missing ----------------------------------------


def rounds(arch: str, seed: int, *, copying: bool) -> bool:
    """The host writes, kernels read what kernels wrote, a copy engine brings data out and in."""
    with Room(arch, runner=interpret_dispatch, seed=seed), driver.open_device("amd:0") as gpu:
        kernel = gpu.load(build(SAXPY, arch))["saxpy"]
        x, y, z = gpu.alloc(4 * N), gpu.alloc(4 * N), gpu.alloc(4 * N)
        out = gpu.alloc(4 * N, MemoryKind.PINNED)
        compute, copies = gpu.queue(), gpu.queue(QueueKind.COPY)
        signal, tail, two = gpu.new_signal(), np.int32(N), np.float32(2)
        good = True

        def launch(source: Any, target: Any) -> None:
            compute.launch(kernel, [source, target, two, tail], grid=N // 64, block=64)

        for turn in range(3):
            value, at = 10.0**turn, 4 * turn
            x.write(np.full(N, value, np.float32))
            y.write(np.zeros(N, np.float32))
            z.write(np.zeros(N, np.float32))
            out.view()[:] = bytes(4 * N)
            launch(x, y)  # y = 2 v
            launch(y, z)  # z = 4 v
            if copying:
                compute.signal(signal, at + 1)
                copies.wait(signal, at + 1)
                for _ in range(100):  # the copy engine dawdles
                    copies.timestamp()
                copies.copy(x, z, 4 * N)
                copies.signal(signal, at + 2)
                compute.wait(signal, at + 2)
                launch(x, z)  # z = 4 v + 8 v
                compute.signal(signal, at + 3)
                copies.wait(signal, at + 3)
                copies.copy(out, z, 4 * N)
                copies.signal(signal, at + 4)
                compute.submit()
                copies.submit()
            else:
                launch(z, out)  # out = 8 v
                compute.signal(signal, at + 4)
                compute.submit()
            signal.wait(at + 4, timeout_ms=5_000)
            wanted = {(12 if copying else 8) * value}
            good = good and set(np.frombuffer(out.view(), np.float32)) == wanted
        return good


def with_copies(arch: str, seed: int) -> bool:
    return rounds(arch, seed, copying=True)


def without_copies(arch: str, seed: int) -> bool:
    return rounds(arch, seed, copying=False)


def code_in_place_of_code(arch: str, seed: int) -> bool:
    """A program that is loaded where another was is the one that runs."""
    with Room(arch, runner=interpret_dispatch, seed=seed), driver.open_device("amd:0") as gpu:
        x, out = gpu.alloc(4 * N), gpu.alloc(4 * N, MemoryKind.PINNED)
        x.write(np.ones(N, np.float32))
        addresses = set()
        for operation in ("fadd", "fsub"):
            text = SAXPY.replace("%s = fadd float %m, %vy", f"%s = {operation} float %m, %vy")
            program = gpu.load(build(text, arch))
            kernel = program["saxpy"]
            addresses.add(kernel.entry_va)
            out.view()[:] = np.ones(N, np.float32).tobytes()
            queue = gpu.own_queue()
            queue.launch(kernel, [x, out, np.float32(2), np.int32(N)], grid=N // 64, block=64)
            queue.submit()
            queue.synchronize()
            found = set(np.frombuffer(out.view(), np.float32))
            program.close()
            del program, kernel
        assert len(addresses) == 1, addresses
        return found == {1}


def slow_launches(arch: str, seed: int) -> bool:
    """Of two launches the second reads what the first, which takes long, wrote."""
    engine = Engine(work=saxpy, slices=(60, 1))
    with opened(arch, engine, seed=seed) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x, y, z = (gpu.array(np.full(64, v, np.float32)) for v in (1, 0, 0))
        queue = gpu.queue()
        for source, target in ((x, y), (y, z)):
            queue.launch(kernel, [source, target, np.float32(2), np.int32(64)], block=64)
        queue.submit()
        queue.synchronize()
        return set(z.numpy()) == {4}


UNIFORM = """
define amdgpu_kernel void @first(ptr addrspace(4) %x, ptr addrspace(1) %out) #0 {
  %v = load i32, ptr addrspace(4) %x
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = shl i32 %g, 6
  %j = add i32 %b, %i
  %k = zext i32 %j to i64
  %p = getelementptr i32, ptr addrspace(1) %out, i64 %k
  store i32 %v, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @store(ptr addrspace(1) %x, i32 %v) #0 {
  store i32 %v, ptr addrspace(1) %x
  ret void
}
"""


def uniform_reads(arch: str, seed: int) -> bool:
    """Kernels read a word through the scalar cache, before and after another writes it."""
    with Room(arch, runner=interpret_dispatch, seed=seed), driver.open_device("amd:0") as gpu:
        program = gpu.load(build(UNIFORM, arch))
        first, store = program["first"], program["store"]
        x, one, two = gpu.alloc(4 * N), gpu.alloc(4 * N), gpu.alloc(4 * N)
        x.write(np.full(N, 7, np.int32))
        queue = gpu.queue()
        queue.launch(first, [x, one], grid=N // 64, block=64)
        queue.launch(store, [x, np.int32(8)], block=1)
        queue.launch(first, [x, two], grid=N // 64, block=64)
        queue.submit()
        queue.synchronize()
        seen = [set(np.frombuffer(b.read(), np.int32)) for b in (one, two)]
        return seen == [{7}, {8}]


def replays(arch: str, seed: int) -> bool:
    """A recording reads what the host wrote since the last replay, and arguments that changed."""
    with Room(arch, runner=interpret_dispatch, seed=seed), driver.open_device("amd:0") as gpu:
        kernel = gpu.load(build(SAXPY, arch))["saxpy"]
        x, y = gpu.alloc(4 * N), gpu.alloc(4 * N)
        outs = [gpu.alloc(4 * N, MemoryKind.PINNED) for _ in range(2)]
        recording = gpu.queue().record()
        arguments = [x, y, np.float32(2), np.int32(N)]
        recording.launch(kernel, arguments, grid=N // 64, block=64)
        arguments = [y, Binding(0), np.float32(2), np.int32(N)]
        recording.launch(kernel, arguments, grid=N // 64, block=64)
        good = True
        for turn in range(4):
            out = outs[turn % 2]
            x.write(np.full(N, 10.0**turn, np.float32))
            y.write(np.zeros(N, np.float32))
            out.view()[:] = bytes(4 * N)
            recording.replay(np.array([out.address], np.uint64), timings=bool(turn & 2))
            gpu.synchronize(5_000)
            if turn & 2:
                good = good and all(t > 0 for t in recording.timings_ns())
            found = set(np.frombuffer(out.view(), np.float32))
            good = good and found == {4 * 10.0**turn}
        return good


def clocks(arch: str, seed: int) -> bool:
    """A clock is read when all before it is done."""
    engine = Engine(work=saxpy, slices=(200,))
    with opened(arch, engine, seed=seed) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x = gpu.array(np.zeros(64, np.float32))
        queue = gpu.queue()
        before = queue.timestamp()
        queue.launch(kernel, [x, x, np.float32(1), np.int32(64)], block=64)
        after = queue.timestamp()
        queue.submit()
        queue.synchronize()
        return after.ns - before.ns > 1_000_000


def copies_alone(arch: str, seed: int) -> bool:
    """A copy engine reads what the host just wrote to VRAM; its signals end waits."""
    with Room(arch, runner=interpret_dispatch, seed=seed), driver.open_device("amd:0") as gpu:
        x, out = gpu.alloc(4 * N), gpu.alloc(4 * N, MemoryKind.PINNED)
        copies, signal = gpu.queue(QueueKind.COPY), gpu.new_signal()
        good = True
        for turn in range(1, 4):
            x.write(np.full(N, turn, np.float32))
            copies.copy(out, x, 4 * N)
            copies.signal(signal, turn)
            copies.submit()
            signal.wait(turn, timeout_ms=3_000)
            good = good and set(np.frombuffer(out.view(), np.float32)) == {turn}
            copies.synchronize(3_000)
        return good


def signals_to_and_fro(arch: str, seed: int) -> bool:
    """Two queues raise one signal in turns, each waiting for the other."""
    with Room(arch, runner=interpret_dispatch, seed=seed), driver.open_device("amd:0") as gpu:
        compute, copies, signal = gpu.queue(), gpu.queue(QueueKind.COPY), gpu.new_signal()
        for turn in range(1, 20, 2):
            compute.signal(signal, turn)
            compute.wait(signal, turn + 1)
            copies.wait(signal, turn)
            copies.signal(signal, turn + 1)
        compute.submit()
        copies.submit()
        compute.synchronize(2_000)
        copies.synchronize(2_000)
        return signal.value == 20


def two_gpus(arch: str, seed: int) -> bool:
    """One GPU's kernel reads what the host wrote to the other's VRAM."""
    with (
        Room(f"{arch}*2", runner=interpret_dispatch, seed=seed),
        driver.open_device("amd:0") as one,
        driver.open_device("amd:1") as two,
    ):
        kernel = two.load(build(SAXPY, arch))["saxpy"]
        x, out = one.alloc(4 * N), two.alloc(4 * N, MemoryKind.PINNED)
        good = True
        for turn in range(1, 4):
            x.write(np.full(N, turn, np.float32))
            if turn == 1:
                x.map_on(two)
            out.view()[:] = bytes(4 * N)
            queue = two.own_queue()
            arguments = [x, out, np.float32(2), np.int32(N)]
            queue.launch(kernel, arguments, grid=N // 64, block=64)
            queue.submit()
            queue.synchronize()
            good = good and set(np.frombuffer(out.view(), np.float32)) == {2 * turn}
        return good


Work = Callable[[str, int], bool]
ALL: tuple[Work, ...] = (
    with_copies, without_copies, code_in_place_of_code, slow_launches, uniform_reads, replays,
    clocks, copies_alone, signals_to_and_fro, two_gpus,
)  # fmt: skip


# --- taking away --------------------------------------------------------------------------------


def called_from(place: str, line: int) -> bool:
    """Whether the caller's caller is that function, at that line."""
    frame = sys._getframe(2)
    return frame.f_code.co_qualname == place and frame.f_lineno == line


def nothing(value: Any) -> Any:
    """In place of a packet, or of what makes one: none."""
    return (lambda *_: []) if callable(value) else []


def take_away(site: str, patch: pytest.MonkeyPatch, arch: str) -> None:
    """Have the driver emit nothing at this site."""
    place, _, what = site.partition(" #")[0].partition(": ")
    line = sites()[site]
    if what == "caches.dispatch":
        row = hardware.BY_NAME[arch]
        gone = dataclasses.replace(row.caches, dispatch=pm4.Nop(payload=(0,)))
        changed = dataclasses.replace(row, caches=gone)
        patch.setitem(hardware.HARDWARE, row.target_version, changed)
    elif what == "EventWrite":
        patch.setattr(pm4.EventWrite, "encode", lambda self: pm4.Nop(payload=(0,)).encode())
    elif what == "Trap":
        patch.setattr(sdma.Trap, "encode", lambda self: [0])
    elif what == "predicated":
        patch.setattr(queues, "predicated", lambda words: words)
    elif what == "device.flush_hdp":
        flush = AmdDevice.flush_hdp

        def unless(self: AmdDevice) -> None:
            if not called_from(place, line):
                flush(self)

        patch.setattr(AmdDevice, "flush_hdp", unless)
    else:
        owner = CopyQueue if what.startswith("_") else Boundaries
        _hide(owner, what, place, line, patch)


def _hide(owner: type, what: str, place: str, line: int, patch: pytest.MonkeyPatch) -> None:
    """An attribute that gives nothing where it is looked up at that line."""

    def look(self: Any, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name == what and called_from(place, line):
            # Empty would mean that the host flushes: a harmless packet instead.
            return pm4.Nop(payload=(0,)).encode() if name == "flush_hdp" else nothing(value)
        return value

    patch.setattr(owner, "__getattribute__", look)


HEADERS = [
    f"{kind.__name__}: {field}"
    for kind in (aql.KernelDispatch, aql.VendorPm4)
    for field in ("barrier", "acquire", "release")
]
"""What the header of each AQL packet that the driver sends orders."""


def take_from_header(what: str, patch: pytest.MonkeyPatch) -> None:
    """Have the engine of AQL queues not see it."""
    kind, _, field = what.partition(": ")
    decoded = aql_engine._decoded

    def without(raw: bytes) -> Any:
        packet = decoded(raw)
        if type(packet).__name__ == kind:
            packet = packet.replace(**{field: False if field == "barrier" else aql.Scope.NONE})
        return packet

    patch.setattr(aql_engine, "_decoded", without)


def misses(works: Sequence[Work], arch: str, seeds: int = SEEDS) -> str | None:
    """The first of these works that goes wrong, and how."""
    for seed in range(seeds):
        for work in works:
            try:
                if not work(arch, seed):
                    return f"{work.__name__} {seed}: wrong"
            except (RawGpuError, Misuse) as error:
                return f"{work.__name__} {seed}: {type(error).__name__}"
    return None


# --- what is missed -----------------------------------------------------------------------------

SEEN: dict[str, tuple[tuple[str, Work], ...]] = {
    "CopyQueue.wait: _wait": (("gfx1100", signals_to_and_fro),),
    "CopyQueue.signal: _fence": (("gfx1100", copies_alone),),
    "CopyQueue.submit: device.flush_hdp": (("gfx1100", copies_alone), ("gfx942", copies_alone)),
    "CopyQueue._end: _fence": (("gfx1100", copies_alone),),
    "_pm4: caches.dispatch": (("gfx1100", uniform_reads), ("gfx90a", uniform_reads)),
    "_pm4: EventWrite": (("gfx1100", slow_launches), ("gfx90a", slow_launches)),
    "AmdBuffer.map_on: device.flush_hdp": (("gfx1100", two_gpus),),
    "Transfer.write: device.flush_hdp": (("gfx1100", two_gpus),),
    "ComputeQueue.wait: wait": (("gfx1100", with_copies), ("gfx942", signals_to_and_fro)),
    "ComputeQueue.signal: signal": (("gfx1100", without_copies), ("gfx942", without_copies)),
    "ComputeQueue._look_afresh: flush_hdp": (
        ("gfx1100", without_copies), ("gfx90a", without_copies), ("gfx942", without_copies),
    ),
    "ComputeQueue._look_afresh: acquire_all": (
        ("gfx1100", code_in_place_of_code), ("gfx90a", code_in_place_of_code),
    ),
    "ComputeQueue.timestamp: timestamp": (("gfx1100", clocks), ("gfx942", clocks)),
    "ComputeQueue.end: signal": (("gfx1100", slow_launches), ("gfx942", slow_launches)),
    "ComputeQueue.hand_over: device.flush_hdp": (("gfx1150", without_copies),),
    "ComputeQueue.replay: flush_hdp": (("gfx1100", replays), ("gfx942", replays)),
    "ComputeQueue.replay: acquire_all": (("gfx90a", replays),),
    "AqlQueue.once: predicated": (("gfx942", signals_to_and_fro),),
    "AmdRecording._stamp: timestamp": (("gfx1100", replays), ("gfx942", replays)),
    "KernelDispatch: barrier": (("gfx942", slow_launches),),
    "KernelDispatch: acquire": (("gfx942", uniform_reads),),
    "KernelDispatch: release": (("gfx942", uniform_reads),),
    "VendorPm4: barrier": (("gfx942", with_copies),),
}  # fmt: skip
"""What goes wrong where a site emits nothing."""
WAKE = "a wait looks at memory too: without the interrupt it takes longer, and nothing else"
IN_ORDER = (
    "a ring is read in order, and each launch waits for those before it and acquires what they "
    "wrote; the wait keeps the order that is known to work on hardware"
)
AFTER_CLOCK = (
    "nothing but the clock was written, and every launch acquires by itself what others wrote; it "
    "keeps the order that is known to work on hardware"
)
UNSEEN = {
    "CopyQueue._end: _fence #2": WAKE,
    "CopyQueue._end: Trap": WAKE,
    "ComputeQueue.end: wake": WAKE,
    "ComputeQueue.begin: wait": IN_ORDER,
    "CopyQueue.submit: _wait": "the engine does one packet of a ring at a time, in order",
    "ComputeQueue.timestamp: acquire_all": AFTER_CLOCK,
    "AmdRecording._stamp: acquire_all": AFTER_CLOCK,
    "Peers._try: device.flush_hdp": "the write before it flushes: its buffer is mapped on both",
    "AqlQueue.hand_over: device.flush_hdp": "every GPU with AQL queues has the flush as a packet",
    "VendorPm4: acquire": "the PM4 in it, or the launch after it, acquires",
    "VendorPm4: release": "the PM4 in it releases what matters to others",
    "HdpFlush.flush: fence_device": "one processor sees its own stores; `test_fences` has it",
    "Ring.ring_doorbell: fence_device": "one processor sees its own stores; `test_fences` has it",
}
"""Why nothing can go wrong, or nothing that the room could show."""
PAIRS = [
    pytest.param(site, arch, work, id=f"{site}-{arch}", marks=[pytest.mark.full] * (number > 0))
    for site, pairs in SEEN.items()
    for number, (arch, work) in enumerate(pairs)
]
"""A site on one GPU each time, on all of its GPUs in a full run."""


def test_every_place_that_keeps_order_has_its_line() -> None:
    assert sorted([*sites(), *HEADERS]) == sorted([*SEEN, *UNSEEN])
    assert not SEEN.keys() & UNSEEN.keys()


WITH_ALL = sorted({(arch, w.__name__) for pairs in SEEN.values() for arch, w in pairs})


@pytest.mark.parametrize(("arch", "name"), WITH_ALL)
def test_with_everything_in_place_the_data_is_right(arch: str, name: str) -> None:
    assert misses([globals()[name]], arch, 1) is None


@pytest.mark.full
@pytest.mark.parametrize(("arch", "name"), WITH_ALL)
def test_with_everything_in_place_no_seed_is_wrong(arch: str, name: str) -> None:
    assert misses([globals()[name]], arch, 4 * SEEDS) is None


@pytest.mark.parametrize(("site", "arch", "work"), PAIRS)
def test_without_it_something_fails(
    site: str,
    arch: str,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    if site in HEADERS:
        take_from_header(site, monkeypatch)
    else:
        take_away(site, monkeypatch, arch)
    assert misses([work], arch), f"nobody missed {site}"
    record_property("count removals noticed", 1)


@pytest.mark.full
@pytest.mark.parametrize("site", [site for site in UNSEEN if "fence_device" not in site])
@pytest.mark.parametrize("arch", ["gfx1100", "gfx90a", "gfx942"])
def test_what_is_said_to_be_unseen_is(
    site: str, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line in `UNSEEN` that some work does miss belongs in `SEEN`."""
    if site in HEADERS:
        take_from_header(site, monkeypatch)
    else:
        take_away(site, monkeypatch, arch)
    assert misses(ALL, arch, 3) is None


class Fences:
    """Native code that notes what it is told, in order."""

    def __init__(self, real: Any, notes: list[str]) -> None:
        self._real, self._notes = real, notes

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)

        def noted(*arguments: Any) -> Any:
            self._notes.append(name)
            return value(*arguments)

        return noted if name in ("fence_device", "store32", "store64") else value


def test_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets, a fence, the write pointer, the doorbell; and a fence before the flush register."""
    with opened("gfx1100", Engine(work=saxpy)) as gpu:
        notes: list[str] = []
        for queue in (gpu.queue(), gpu.queue(QueueKind.COPY)):
            ring = queue.ring
            write = ring.write
            monkeypatch.setattr(ring, "_code", Fences(ring._code, notes))
            monkeypatch.setattr(
                ring, "write", lambda data, w=write: (notes.append("ring"), w(data))
            )
            port: Any = gpu.port
            bell = port.store_doorbell
            monkeypatch.setattr(
                port, "store_doorbell", lambda *a, b=bell: (notes.append("doorbell"), b(*a))
            )
            notes.clear()
            queue.signal(gpu.new_signal(), 1)
            queue.submit()
            assert notes[-4:] == ["ring", "fence_device", "store64", "doorbell"], notes
            queue.synchronize()
            monkeypatch.undo()
        code = Fences(driver_hdp.native_code(), notes)
        monkeypatch.setattr(driver_hdp, "native_code", lambda: code)
        notes.clear()
        HdpFlush(gpu).flush()
        assert notes == ["fence_device", "store32"]
