"""Each flush, fence and wait that the driver emits is taken away in turn: then something fails.

The work: the host writes, a kernel reads it; a second kernel reads what the first wrote; a copy
engine brings the result out, and new data in, for another round. Where a removal cannot be seen,
`UNSEEN` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver.dispatch import Boundaries
from rawgpu.amd.spec import pm4
from rawgpu.amd.virtual.dispatch import Misuse
from rawgpu.amd.virtual.wave import interpret_dispatch
from rawgpu.contract import MemoryKind, QueueKind
from rawgpu.errors import RawGpuError
from rawgpu.virtual.room import Room
from tests.amd.driver.objects import SAXPY, build
from tests.amd.driver.rooms import Engine, opened, saxpy

pytestmark = pytest.mark.virtual
N = 512
ARCHES = ("gfx1100", "gfx90a")


def rounds(arch: str, seed: int, *, copying: bool) -> bool:
    """Whether three rounds give the right data."""
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


def code_in_place_of_code(arch: str, seed: int) -> bool:
    """Whether a program that is loaded where another was is the one that runs."""
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


def without(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A removal of one packet of `Boundaries`."""

    def remove(patch: pytest.MonkeyPatch) -> None:
        build_boundaries = Boundaries.__init__

        def init(self: Boundaries, *arguments: Any) -> None:
            build_boundaries(self, *arguments)
            kept = getattr(self, name)
            if name == "flush_hdp":
                # A harmless wait in its place: empty would mean that the host flushes.
                setattr(self, name, pm4.Nop(payload=(0,)).encode())
            else:
                setattr(self, name, (lambda *_: []) if callable(kept) else [])

        patch.setattr(Boundaries, "__init__", init)

    return remove


def no_partial_flush(patch: pytest.MonkeyPatch) -> None:
    """A dispatch does not wait for the one before."""
    patch.setattr(pm4.EventWrite, "encode", lambda self: pm4.Nop(payload=(0,)).encode())


REMOVALS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "HDP flush": without("flush_hdp"),
    "caches at the start of a submit": without("acquire_all"),
    "completion signal": without("signal"),
    "wait for a signal": without("wait"),
}
UNSEEN = {
    "wake": "a wait looks at memory too: without the interrupt it takes longer, nothing else",
}


def slow_launches(arch: str, seed: int) -> bool:
    """Whether of two launches the second reads what the first, which takes long, wrote."""
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


@pytest.mark.parametrize("arch", ARCHES)
def test_without_the_partial_flush_dispatches_overlap(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(slow_launches(arch, seed) for seed in range(3))
    no_partial_flush(monkeypatch)
    assert not all(slow_launches(arch, seed) for seed in range(6))


@pytest.mark.parametrize("arch", ARCHES)
def test_with_everything_in_place_the_data_is_right(arch: str) -> None:
    assert all(rounds(arch, seed, copying=bool(seed)) for seed in range(2))
    assert code_in_place_of_code(arch, 1)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("removal", REMOVALS)
def test_without_it_something_fails(
    arch: str, removal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    REMOVALS[removal](monkeypatch)
    for seed in range(6):
        try:
            if not rounds(arch, seed, copying=seed % 2 == 0):
                return
            if not code_in_place_of_code(arch, seed):
                return
        except (RawGpuError, Misuse):
            return
    pytest.fail(f"nobody missed the {removal}")
