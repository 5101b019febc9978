"""Recordings: encoded once, replayed with other addresses, patched, timed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from rawgpu.contract import Binding
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.cpu.driver.program import CpuProgram
from rawgpu.cpu.driver.queue import CpuQueue
from rawgpu.errors import DeviceClosed, LaunchError
from rawgpu.native import system
from tests.cpu.driver.kernels import signed, unsigned


@pytest.fixture
def gpu() -> Any:
    with CpuDevice() as device:
        yield device


@pytest.fixture
def kernels(gpu: CpuDevice) -> Any:
    return gpu.load(signed())


@pytest.fixture
def queue(gpu: CpuDevice) -> Any:
    return gpu.queue()


def zeros(gpu: CpuDevice, count: Any = 4) -> Any:
    return gpu.array(np.zeros(count, np.float32))


def test_a_recording_replays_as_often_as_asked(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    x = zeros(gpu)
    recording = queue.record()
    assert recording.launch(kernels["add"], [x, 1.0], grid=4) == 0
    recording.barrier()
    assert recording.launch(kernels["add"], [x, 0.5], grid=2) == 1
    for _ in range(10):
        recording.replay()
    queue.synchronize()
    assert x.numpy().tolist() == [15, 15, 10, 10]


@pytest.mark.parametrize("form", ["list", "tuple", "numpy", "cffi"])
def test_bindings_come_as_any_sequence(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue, form: Any
) -> None:
    x, y = zeros(gpu), zeros(gpu)
    recording = queue.record()
    recording.launch(kernels["add"], [Binding(0), 1.0], grid=2)
    recording.launch(kernels["add"], [Binding(1, 8), 2.0], grid=2)
    recording.copy(Binding(0, 8), Binding(1, 8), 8)
    make = {
        "list": list,
        "tuple": tuple,
        "numpy": lambda rows: np.array(rows, np.uint64),
        "cffi": lambda rows: system.ffi.new("uint64_t[]", rows),
    }[form]
    recording.replay(make([x.address, y.address]))
    assert x.numpy().tolist() == [1, 1, 2, 2]
    assert y.numpy().tolist() == [0, 0, 2, 2]
    recording.replay(make([y.address, x.address]))
    assert x.numpy().tolist() == [1, 1, 4, 4]


def test_a_reused_array_of_bindings_is_read_anew(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    x, y = zeros(gpu, 1), zeros(gpu, 1)
    recording = queue.record()
    recording.launch(kernels["add"], [Binding(0), 1.0])
    bindings = np.array([x.address], np.uint64)
    recording.replay(bindings)
    bindings[0] = y.address
    recording.replay(bindings)
    recording.replay([x.address])
    recording.replay(bindings)
    assert (x.numpy()[0], y.numpy()[0]) == (2.0, 2.0)


def test_too_few_or_wrong_bindings_are_refused(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    recording = queue.record()
    recording.launch(kernels["add"], [Binding(1), 1.0])
    with pytest.raises(LaunchError, match="needs 2 bindings and got 0"):
        recording.replay()
    with pytest.raises(LaunchError, match="needs 2 bindings and got 1"):
        recording.replay([1])
    with pytest.raises(LaunchError, match="uint64"):
        recording.replay(np.zeros(2, np.int64))
    with pytest.raises(LaunchError, match="contiguous"):
        recording.replay(np.zeros(4, np.uint64)[::2])


def test_patching_changes_all_replays_from_then_on(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    x, y = zeros(gpu), zeros(gpu)
    recording = queue.record()
    recording.launch(kernels["add"], [x, 1.0], grid=4)
    recording.launch(kernels["add"], [x, 1.0], grid=4)
    recording.patch(1, 1, 10.0)
    recording.replay()
    assert x.numpy()[0] == 11.0
    recording.patch(0, 1, np.float32(0.5))
    recording.patch(1, 0, y)
    recording.replay()
    assert (x.numpy()[0], y.numpy()[0]) == (11.5, 10.0)


def test_patching_turns_bindings_into_values_and_back(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    x, y = zeros(gpu, 1), zeros(gpu, 1)
    recording = queue.record()
    recording.launch(kernels["add"], [Binding(0), 1.0])
    recording.replay([x.address])
    recording.patch(0, 0, y)
    recording.replay()
    recording.patch(0, 0, Binding(1))
    recording.replay([0, x.address])
    assert (x.numpy()[0], y.numpy()[0]) == (2.0, 1.0)


def test_wrong_patches_are_refused(gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue) -> None:
    recording = queue.record()
    recording.launch(kernels["add"], [zeros(gpu), 1.0])
    for launch, argument, value in [(1, 0, 1.0), (-1, 0, 1.0), (0, 2, 1.0), (0, 1, np.int32(1))]:
        with pytest.raises(LaunchError):
            recording.patch(launch, argument, value)
    recording.replay()


def test_launches_can_be_appended_after_a_replay(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    x = zeros(gpu, 1)
    recording = queue.record()
    recording.launch(kernels["add"], [x, 1.0])
    recording.replay()
    recording.launch(kernels["add"], [x, 10.0])
    recording.replay()
    assert x.numpy()[0] == 12.0


def test_an_empty_recording_replays(queue: CpuQueue) -> None:
    recording = queue.record()
    recording.replay()
    recording.replay()
    queue.synchronize()


def test_timings_are_per_launch_and_only_when_asked(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    counts = gpu.array(np.zeros(1, np.int32))
    recording = queue.record()
    recording.launch(kernels["count"], [counts, 1])
    recording.barrier()
    recording.launch(kernels["count"], [counts, 1_000_000])
    recording.replay()
    with pytest.raises(LaunchError, match="timings=True"):
        recording.timings_ns()
    recording.replay(timings=True)
    short, long = recording.timings_ns()
    assert 0 <= short < long
    recording.replay()
    assert recording.timings_ns() == [short, long]
    assert counts.numpy()[0] == 6


def test_a_replay_behind_a_blocked_queue_keeps_its_bindings(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    x, y = zeros(gpu, 1), zeros(gpu, 1)
    signal = gpu.new_signal()
    recording = queue.record()
    recording.launch(kernels["add"], [Binding(0), 1.0])
    recording.launch(kernels["add"], [x, 10.0])
    bindings = np.array([x.address], np.uint64)
    recording.replay(bindings)
    queue.wait(signal, 1)
    queue.submit()
    recording.replay(bindings)
    bindings[0] = y.address
    recording.patch(1, 1, 100.0)
    recording.replay(bindings, timings=True)
    other = gpu.queue()
    other.signal(signal, 1)
    other.submit()
    assert (x.numpy()[0], y.numpy()[0]) == (122.0, 1.0)
    assert len(recording.timings_ns()) == 2


def test_a_chain_of_ten_thousand_launches(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    x = zeros(gpu, 1)
    recording = queue.record()
    for _ in range(10_000):
        recording.launch(kernels["add"], [x, 1.0])
    for turn in range(3):
        recording.patch(5000, 1, float(turn))
        recording.replay()
    assert x.numpy()[0] == 3 * 9999 + 0 + 1 + 2


def test_buffers_of_a_recording_outlive_their_last_other_reference(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    recording = queue.record()
    x = gpu.array(np.zeros(1, np.float32))
    address = x.address
    recording.launch(kernels["add"], [x, 1.0])
    x.close()
    del x
    gc.collect()
    others = [gpu.array(np.full(1, 7, np.float32)) for _ in range(20)]
    assert address not in {other.address for other in others}
    recording.replay()
    assert all(other.numpy()[0] == 7 for other in others)


def test_a_closed_recording_refuses_and_frees(
    gpu: CpuDevice, kernels: CpuProgram, queue: CpuQueue
) -> None:
    recording = queue.record()
    recording.launch(kernels["add"], [gpu.array(np.zeros(1, np.float32)), 1.0])
    recording.replay()
    held = gpu.memory().allocations
    recording.close()
    recording.close()
    gc.collect()
    assert gpu.memory().allocations == held - 1
    for use in (recording.replay, recording.barrier, lambda: recording.patch(0, 0, 1)):
        with pytest.raises(DeviceClosed):
            use()


def test_without_signatures_scalars_must_be_numpys(gpu: CpuDevice, queue: CpuQueue) -> None:
    kernels = gpu.load(unsigned())
    x = zeros(gpu, 1)
    recording = queue.record()
    with pytest.raises(LaunchError, match="no signature"):
        recording.launch(kernels["add"], [x, 1.0])
    recording.launch(kernels["add"], [x, np.float32(1.0)])
    recording.replay()
    assert x.numpy()[0] == 1.0
