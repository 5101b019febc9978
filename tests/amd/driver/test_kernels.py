"""Real machine code through the driver: what a launch must set up beyond its arguments."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver.device import AmdDevice
from rawgpu.amd.virtual.wave import interpret_dispatch, run_dispatch
from rawgpu.contract import Binding
from tests.amd.driver import objects, rooms
from tests.amd.driver.objects import build
from tests.amd.objects.test_codeobject import link, needs_linker

pytestmark = pytest.mark.virtual
ARCHES = ("gfx1100", "gfx1201", "gfx942", "gfx90a")


@pytest.fixture(params=ARCHES)
def gpu(request: pytest.FixtureRequest) -> Iterator[AmdDevice]:
    with rooms.opened(request.param, interpret_dispatch) as opened:
        yield opened


def kernel_of(gpu: AmdDevice, text: str, name: str, more: str = objects.UNUSED) -> Any:
    return gpu.load(build(text, gpu.hardware.name, more))[name]


def test_private_memory(gpu: AmdDevice) -> None:
    kernel = kernel_of(gpu, objects.SCRATCH, "reverse")
    assert kernel.private_bytes >= 256
    n, groups = 40, 3
    out = gpu.array(np.zeros(n * groups, np.int32))
    kernel(out, np.int32(n), grid=groups, block=n)
    item = np.arange(n)
    wanted = [(n - 1 - item) ** 2 + item + 1000 * g for g in range(groups)]
    assert out.numpy().tolist() == np.concatenate(wanted).tolist()


@pytest.mark.parametrize("arch", ARCHES)
def test_words_across_two_of_private_memory(arch: str) -> None:
    data = np.random.default_rng(0).integers(1, 1 << 32, 64, np.uint32)
    with rooms.opened(arch, run_dispatch) as gpu:
        kernel = kernel_of(gpu, objects.ASKEW, "askew")
        for _ in range(4):  # interpreted at first, then native
            out = gpu.array(np.zeros(64, np.uint32))
            kernel(gpu.array(data), out, grid=1, block=64)
            np.testing.assert_array_equal(out.numpy(), data)


def test_local_memory_and_barriers(gpu: AmdDevice) -> None:
    kernel = kernel_of(gpu, objects.SHARED, "mirror")
    assert kernel.lds_bytes == 1024
    out = gpu.array(np.zeros(512, np.int32))
    kernel(out, grid=2, block=256)
    wanted = np.arange(512).reshape(2, 256)[:, ::-1]
    assert out.numpy().tolist() == wanted.reshape(-1).tolist()


def test_hidden_arguments_and_dispatch_packet(gpu: AmdDevice) -> None:
    kernel = kernel_of(gpu, objects.SHAPE, "shape", "")
    out = gpu.array(np.full(3 * 16 * 4, -1, np.int32))
    kernel(out, grid=(3, 2), block=(16, 2))
    assert out.numpy().tolist() == list(range(3 * 16 * 4))


def test_globals_calls_and_tables(gpu: AmdDevice) -> None:
    program = gpu.load(build(objects.GLOBALS, gpu.hardware.name))
    out = gpu.array(np.zeros(1, np.int32))
    program["bump"](out, np.int32(2))
    # counter 7 + 2 = 9; table[2] = 300; and counter again through the pointer.
    assert out.numpy()[0] == 300 + 9 + 9
    assert program.read_global("counter") == struct.pack("<i", 9)


@needs_linker
def test_a_linked_program_runs(gpu: AmdDevice, tmp_path: Path) -> None:
    image = link(build(objects.GLOBALS, gpu.hardware.name), tmp_path).read_bytes()
    out = gpu.array(np.zeros(1, np.int32))
    gpu.load(image)["bump"](out, np.int32(1))
    assert out.numpy()[0] == 20 + 8 + 8


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
def test_preloaded_arguments(arch: str) -> None:
    more = objects.UNUSED + ' "amdgpu-kernarg-preload-count"="3"'
    with rooms.opened(arch, interpret_dispatch) as gpu:
        kernel = kernel_of(gpu, objects.PRELOAD, "sum", more)
        assert kernel.preload_dwords
        out = gpu.array(np.zeros(1, np.int32))
        kernel(out, np.int32(40), np.int32(2))
        assert out.numpy()[0] == 42


def test_copies_and_fills_of_a_compute_queue(gpu: AmdDevice) -> None:
    data = np.random.default_rng(1).bytes(4096 + 5)
    source, target = gpu.alloc(len(data)), gpu.alloc(len(data))
    source.write(data)
    queue = gpu.queue()
    queue.fill(target, 0x5A, len(data))
    queue.copy(target, source, 4096)
    queue.submit()
    queue.synchronize()
    assert target.read() == data[:4096] + b"\x5a" * 5
    recording = queue.record()
    recording.copy(Binding(1), Binding(0), 100)
    recording.replay([source.address + 4000, target.address])
    assert target.read(100) == data[4000:4100]


def test_reads_and_writes_without_copy_engine_or_bar() -> None:
    data = np.random.default_rng(2).bytes(10_000)
    options: list[dict[str, Any]] = [{"sdma": False}, {"sdma": False, "large_bar": False}]
    for option in options:
        with rooms.opened("gfx1100", interpret_dispatch, **option) as gpu:
            buffer = gpu.alloc(len(data))
            buffer.write(data)
            assert buffer.read() == data


def test_more_waves_of_work_than_the_gpu_holds_and_many_launches(gpu: AmdDevice) -> None:
    kernel = kernel_of(gpu, objects.SAXPY, "saxpy")
    x, y = gpu.array(np.ones(2000, np.float32)), gpu.array(np.zeros(2000, np.float32))
    for _ in range(3):
        kernel(x, y, np.float32(1), np.int32(2000), grid=32, block=64)
    assert set(y.numpy()) == {3}
