"""Failing, tearing down and starting again, over and over in one process: nothing grows.

Alone, and beside a second process on the same GPU, whose results stay right meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from rawgpu.amd.driver.device import AmdDevice
from rawgpu.amd.driver.topology import gpu_nodes
from rawgpu.amd.virtual.machine import Machine
from rawgpu.amd.virtual.port import Port
from rawgpu.errors import FenceTimeout, KernelFault, PageFault, RawGpuError, Reset
from rawgpu.virtual.room import Room
from tests.amd.driver.ledger import Ledger
from tests.amd.driver.objects import SAXPY
from tests.amd.driver.rooms import Engine, saxpy

pytestmark = pytest.mark.virtual
N = 64
WARM = 6
"""Rounds after which nothing may grow any more."""
GROWTH_BYTES = 16 << 20
AWAY = 64 << 20
WAYS: dict[str, type[RawGpuError] | tuple[type[RawGpuError], ...]] = {
    "page fault": PageFault,
    "reset": Reset,
    "memory error": (Reset, KernelFault),
    "endless": FenceTimeout,
}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def stray(dispatch: Any, memory: Any, segment: bytes) -> None:
    memory.write(int.from_bytes(segment[:8], "little") + AWAY, b"1234")


def fail(room: Room, port: Port, engine: Engine, way: str) -> None:
    """Open, fail in this way, close."""
    with AmdDevice("amd:0", port, gpu_nodes(port)[0]) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x = gpu.array(np.zeros(N, np.float32))
        gpu.own_queue()
        engine.work, engine.slices = saxpy, (1,)
        if way == "page fault":
            engine.work = stray
        elif way == "endless":
            engine.slices = (1 << 40,)
        elif way == "reset":
            room.faults.reset(packet=3)
        else:
            room.faults.ecc(packet=3)
        kernel(x, x, np.float32(1), np.int32(N), block=N)
        with pytest.raises(WAYS[way]):
            gpu.synchronize(60)
    engine.work, engine.slices = saxpy, (1,)
    engine.dispatches.clear()
    engine.segments.clear()


def compute(gpu: AmdDevice, engine: Engine, value: float) -> None:
    kernel = engine.load(gpu, SAXPY, "saxpy")
    x, y = (gpu.array(np.full(N, v, np.float32)) for v in (1, value))
    kernel(x, y, np.float32(3), np.int32(N), block=N)
    assert set(y.numpy()) == {3 + value}


def rounds(count: int, way: str, *, beside: bool) -> int:
    """Fail and start again so often; the number of launches that were right."""
    engine, right = Engine(work=saxpy), 0
    with Room("gfx1100", runner=engine, kernel="1.22") as room:
        machine = cast(Machine, room.machines["amd"])
        port, other = Port(machine), Port(machine)
        stranger = AmdDevice("amd:0", other, gpu_nodes(other)[0]) if beside else None
        before, resident = None, 0
        for number in range(count):
            fail(room, port, engine, way)
            with AmdDevice("amd:0", port, gpu_nodes(port)[0]) as gpu:
                compute(gpu, engine, number)
                right += 1
                if stranger is not None:
                    compute(stranger, engine, -number)
                    stranger.trim()
                    right += 1
            room.faults.clear()
            machine.log.clear()
            if number == WARM:
                before, resident = Ledger.of(port), resident_bytes()
        if stranger is not None:
            stranger.close()
        if before is not None:
            assert Ledger.of(port).beyond(before) == {}
            assert resident_bytes() - resident < GROWTH_BYTES
    return right


MATTERS = [
    ("page fault", False), ("page fault", True), ("endless", False), ("endless", True),
    ("reset", False), ("memory error", False),
]  # fmt: skip
"""A reset takes everything from the other process too: so nothing is asked of that one."""


@pytest.mark.parametrize(("way", "beside"), [MATTERS[1], MATTERS[3], MATTERS[4]])
def test_a_process_that_fails_again_and_again(
    way: str, beside: bool, record_property: Callable[[str, object], None]
) -> None:
    right = rounds(WARM + 6, way, beside=beside)
    assert right == (WARM + 6) * (1 + beside)
    record_property("count launches after failures", right)


@pytest.mark.full
@pytest.mark.parametrize(("way", "beside"), MATTERS)
def test_a_thousand_failures_in_one_process(
    way: str, beside: bool, record_property: Callable[[str, object], None]
) -> None:
    right = rounds(1_000, way, beside=beside)
    assert right == 1_000 * (1 + beside)
    record_property("count launches after failures", right)
