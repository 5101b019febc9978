"""Queues and signals: order, other queues, other threads, timeouts, refusals."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from rawgpu.contract import Binding, QueueKind
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.cpu.driver.program import CpuProgram
from rawgpu.errors import DeviceClosed, FenceTimeout, LaunchError
from tests.cpu.driver.kernels import signed


@pytest.fixture
def gpu() -> Any:
    with CpuDevice() as device:
        yield device


@pytest.fixture
def kernels(gpu: CpuDevice) -> Any:
    return gpu.load(signed())


def test_nothing_runs_before_submit(gpu: CpuDevice, kernels: CpuProgram) -> None:
    x = gpu.array(np.zeros(2, np.float32))
    queue = gpu.queue()
    queue.launch(kernels["add"], [x, 1.0], grid=2)
    assert x.numpy().tolist() == [0, 0]
    queue.submit()
    queue.synchronize()
    assert x.numpy().tolist() == [1, 1]


def test_packets_run_in_order(gpu: CpuDevice, kernels: CpuProgram) -> None:
    x, y = gpu.array(np.zeros(4, np.float32)), gpu.array(np.ones(4, np.float32))
    queue = gpu.queue(QueueKind.COPY)
    queue.fill(y.buffer, 0, 16)
    queue.launch(kernels["add"], [x, 2.0], grid=4)
    queue.barrier()
    queue.copy(y.buffer, x.buffer, 8)
    queue.launch(kernels["add"], [x, 1.0], grid=4)
    queue.submit()
    queue.synchronize()
    assert x.numpy().tolist() == [3, 3, 3, 3]
    assert y.numpy().tolist() == [2, 2, 0, 0]


def test_timestamps_grow(gpu: CpuDevice, kernels: CpuProgram) -> None:
    counts = gpu.array(np.zeros(1, np.int32))
    queue = gpu.queue()
    before = queue.timestamp()
    queue.launch(kernels["count"], [counts, 100_000])
    after = queue.timestamp()
    assert before.ns == 0
    queue.submit()
    queue.synchronize()
    assert after.ns > before.ns > 0


def test_a_signal_is_stored_when_the_queue_passes_it(gpu: CpuDevice) -> None:
    signal = gpu.new_signal(5)
    queue = gpu.queue()
    queue.signal(signal, 9)
    assert signal.value == 5
    queue.submit()
    signal.wait(9)
    assert signal.value == 9


@pytest.mark.parametrize("waiter_first", [True, False])
def test_queues_meet_through_signals_in_either_order_of_submits(
    gpu: CpuDevice, kernels: CpuProgram, waiter_first: Any
) -> None:
    x = gpu.array(np.zeros(1, np.float32))
    signal = gpu.new_signal()
    first, second = gpu.queue(), gpu.queue()
    first.wait(signal, 1)
    first.launch(kernels["add"], [x, 10.0])
    second.launch(kernels["add"], [x, 1.0])
    second.copy(x.buffer, x.buffer, 4)
    second.signal(signal, 1)
    for queue in (first, second) if waiter_first else (second, first):
        queue.submit()
    gpu.synchronize()
    assert x.numpy()[0] == 11.0


def test_queues_may_take_turns_many_times(gpu: CpuDevice, kernels: CpuProgram) -> None:
    x = gpu.array(np.zeros(1, np.float32))
    ping, pong = gpu.new_signal(), gpu.new_signal()
    left, right = gpu.queue(), gpu.queue()
    for turn in range(1, 51):
        left.wait(pong, turn - 1)
        left.launch(kernels["add"], [x, 1.0])
        left.signal(ping, turn)
        right.wait(ping, turn)
        right.launch(kernels["add"], [x, 1.0])
        right.signal(pong, turn)
    right.submit()
    left.submit()
    pong.wait(50)
    assert x.numpy()[0] == 100.0


def test_looking_at_a_signal_lets_blocked_queues_go_on(gpu: CpuDevice) -> None:
    first, second = gpu.new_signal(), gpu.new_signal()
    queue = gpu.queue()
    queue.wait(first, 1)
    queue.signal(second, 1)
    queue.submit()
    assert second.value == 0
    other = gpu.queue()
    other.signal(first, 1)
    other.submit()
    assert second.value == 1


def test_a_wait_that_never_ends_times_out_and_says_where(gpu: CpuDevice) -> None:
    signal = gpu.new_signal()
    queue = gpu.queue()
    queue.wait(signal, 3)
    queue.submit()
    with pytest.raises(
        FenceTimeout, match="waits for a signal to reach 3, which is at 0"
    ) as caught:
        queue.synchronize(timeout_ms=20)
    assert caught.value.running == (f"{queue.name}: wait",)
    with pytest.raises(FenceTimeout, match="did not reach 4"):
        signal.wait(4, timeout_ms=20)
    other = gpu.queue()
    other.signal(signal, 3)
    other.submit()
    queue.synchronize()


def test_a_wait_for_a_signal_whose_queue_faulted_raises_that_fault(
    gpu: CpuDevice, kernels: CpuProgram
) -> None:
    from rawgpu.errors import IllegalInstruction

    signal = gpu.new_signal()
    waiter, faulter = gpu.queue(), gpu.queue()
    waiter.wait(signal, 1)
    waiter.submit()
    faulter.launch(kernels["trap"], [])
    faulter.signal(signal, 1)
    faulter.submit()
    for queue in (waiter, faulter):
        with pytest.raises(IllegalInstruction):
            queue.synchronize()
        queue.synchronize()


def test_another_thread_can_signal(gpu: CpuDevice, kernels: CpuProgram) -> None:
    x = gpu.array(np.zeros(1, np.float32))
    signal = gpu.new_signal()
    queue = gpu.queue()
    queue.wait(signal, 1)
    queue.launch(kernels["add"], [x, 5.0])
    queue.submit()

    def later() -> None:
        time.sleep(0.05)
        other = gpu.queue()
        other.signal(signal, 1)
        other.submit()

    thread = threading.Thread(target=later)
    thread.start()
    queue.synchronize()
    thread.join()
    assert x.numpy()[0] == 5.0


def test_many_threads_with_queues_of_their_own(gpu: CpuDevice, kernels: CpuProgram) -> None:
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            queue = gpu.queue()
            x = gpu.array(np.zeros(8, np.float32))
            recording = queue.record()
            recording.launch(kernels["add"], [x, 1.0], grid=8)
            for _ in range(100):
                recording.replay()
                queue.launch(kernels["add"], [x, 1.0], grid=8)
                queue.submit()
            queue.synchronize()
            assert (x.numpy() == 200).all()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


def test_many_threads_on_one_queue_lose_nothing(gpu: CpuDevice, kernels: CpuProgram) -> None:
    x = gpu.array(np.zeros(1, np.float32))
    queue = gpu.queue()
    recording = queue.record()
    recording.launch(kernels["add"], [x, 1.0])

    def work() -> None:
        for _ in range(500):
            recording.replay()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.synchronize()
    assert x.numpy()[0] == 2000.0


def test_many_threads_may_launch_by_hand(gpu: CpuDevice, kernels: CpuProgram) -> None:
    x = gpu.array(np.zeros(1, np.float32))
    threads = [
        threading.Thread(target=lambda: [kernels["add"](x, 1.0) for _ in range(300)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.numpy()[0] == 1200.0


def test_a_launch_by_hand_waits_its_turn_behind_a_blocked_queue(
    gpu: CpuDevice, kernels: CpuProgram
) -> None:
    # The device's own queue is never blocked, so a queue of ours stands in for it.
    x = gpu.array(np.zeros(1, np.float32))
    signal = gpu.new_signal()
    queue = gpu._own
    queue.wait(signal, 1)
    queue.launch(kernels["add"], [x, 1.0])
    queue.submit()
    kernels["add"](x, 2.0)
    assert x.buffer.view().tobytes() == bytes(4)
    other = gpu.queue()
    other.signal(signal, 1)
    other.submit()
    assert x.numpy()[0] == 3.0


def test_shared_launches_run_each_block_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAWGPU_THREADS", "3")
    with CpuDevice() as gpu:
        kernels = gpu.load(signed())
        queue = gpu.queue()
        for grid in (1, 2, 3, 7, 64, 1000, 4096):
            counts = gpu.array(np.zeros(grid, np.int32))
            for work_ns in (0, 1, 10_000_000):
                queue.launch(kernels["count"], [counts, 2000], grid=grid, work_ns=work_ns)
            queue.submit()
            queue.synchronize()
            assert (counts.numpy() == 3).all()


def test_queues_share_the_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAWGPU_THREADS", "3")
    with CpuDevice() as gpu:
        count = gpu.load(signed())["count"]
        arrays = [gpu.array(np.zeros(200, np.int32)) for _ in range(4)]

        def work(array: Any) -> None:
            queue = gpu.queue()
            for _ in range(50):
                queue.launch(count, [array, 500], grid=200, work_ns=10**7)
                queue.submit()
            queue.synchronize()

        threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all((array.numpy() == 50).all() for array in arrays)


def test_grids_of_several_sizes_multiply(gpu: CpuDevice, kernels: CpuProgram) -> None:
    counts = gpu.array(np.zeros(24, np.int32))
    kernels["count"](counts, 1, grid=(2, 3, 4))
    assert (counts.numpy() == 1).all()


REFUSED = [
    (lambda q, k, x: q.launch(k["add"], [x]), "takes 2 arguments"),
    (lambda q, k, x: q.launch(k["add"], [x, 1.0], block=2), "block=1"),
    (lambda q, k, x: q.launch(k["add"], [x, 1.0], block=(1, 2)), "block=1"),
    (lambda q, k, x: q.launch(k["add"], [x, 1.0], grid=0), "not a positive integer"),
    (lambda q, k, x: q.launch(k["add"], [x, 1.0], grid=-1), "not a positive integer"),
    (lambda q, k, x: q.launch(k["add"], [x, 1.0], grid=(1, 2, 3, 4)), "1 to 3 sizes"),
    (lambda q, k, x: q.launch(k["add"], [x, 1.0], grid=2.0), "grid"),
    (lambda q, k, x: q.launch(k["add"], [Binding(0), 1.0]), "recording"),
    (lambda q, k, x: q.copy(x.buffer, x.buffer, 17), "17 bytes"),
    (lambda q, k, x: q.fill(x.buffer, 0, 17), "17 bytes"),
    (lambda q, k, x: q.fill(x.buffer, 256, 4), "no byte"),
]


@pytest.mark.parametrize(("build", "says"), REFUSED)
def test_what_does_not_fit_is_refused_and_nothing_is_submitted(
    gpu: CpuDevice, kernels: CpuProgram, build: Any, says: str
) -> None:
    x = gpu.array(np.zeros(4, np.float32))
    queue = gpu.queue()
    with pytest.raises(LaunchError, match=says):
        build(queue, kernels, x)
    queue.submit()
    queue.synchronize()
    assert x.numpy().tolist() == [0] * 4


def test_a_kernel_of_another_device_is_refused(gpu: CpuDevice, kernels: CpuProgram) -> None:
    with CpuDevice() as other, pytest.raises(LaunchError, match="another device"):
        other.queue().launch(kernels["trap"], [])


def test_a_closed_queue_refuses(gpu: CpuDevice, kernels: CpuProgram) -> None:
    queue = gpu.queue()
    recording = queue.record()
    recording.launch(kernels["add"], [gpu.alloc(4), 1.0])
    recording.replay()
    queue.close()
    queue.close()
    with pytest.raises(DeviceClosed):
        queue.submit()
    with pytest.raises(DeviceClosed):
        recording.replay()
