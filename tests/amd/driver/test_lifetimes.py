"""What a queue was given is done or refused, in whatever order things end."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import rawgpu.amd.virtual  # noqa: F401  (lets rooms have AMD's GPUs)
from rawgpu.amd.driver.device import AmdDevice, open_device
from rawgpu.errors import DeviceClosed
from rawgpu.virtual.room import Room
from tests.amd.driver import objects

pytestmark = pytest.mark.virtual
N = 256


def scaled(gpu: AmdDevice) -> tuple[Any, Any, Any]:
    kernel = gpu.load(objects.build(objects.SAXPY, gpu.hardware.name))["saxpy"]
    return kernel, gpu.array(np.ones(N, np.float32)), gpu.array(np.zeros(N, np.float32))


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_a_wait_that_was_broken_off_loses_nothing(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Room(arch), open_device("amd:0") as gpu:
        kernel, x, y = scaled(gpu)
        queue = gpu.queue()
        queue.launch(kernel, [x, y, np.float32(3), np.int32(N)], grid=N // 64, block=64)
        queue.submit()

        def interrupted() -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(gpu.port, "pause", interrupted)
            with pytest.raises(KeyboardInterrupt):
                queue.synchronize()
        queue.close()
        assert set(y.numpy()) == {3}


def test_a_recording_is_not_replayed_on_what_is_closed() -> None:
    with Room("gfx1100"):
        gpu = open_device("amd:0")
        kernel, x, y = scaled(gpu)
        recording = gpu.queue().record()
        recording.launch(kernel, [x, y, np.float32(3), np.int32(N)], grid=N // 64, block=64)
        recording.replay()
        gpu.close()
        with pytest.raises(DeviceClosed):
            recording.replay()
        with pytest.raises(DeviceClosed):
            recording.replay(timings=True)


def test_a_device_waits_while_threads_open_and_close_queues() -> None:
    with Room("gfx1100"), open_device("amd:0") as gpu:
        kernel, x, y = scaled(gpu)
        wrong: list[BaseException] = []
        stop = threading.Event()

        def waits() -> None:
            try:
                while not stop.is_set():
                    gpu.synchronize()
            except BaseException as error:
                wrong.append(error)

        waiter = threading.Thread(target=waits)
        waiter.start()
        for _ in range(20):
            y = gpu.array(np.zeros(N, np.float32))
            queue = gpu.queue()
            queue.launch(kernel, [x, y, np.float32(3), np.int32(N)], grid=N // 64, block=64)
            queue.submit()
            queue.close()
            assert set(y.numpy()) == {3}
        stop.set()
        waiter.join()
        assert not wrong


def test_a_forked_child_is_told_that_the_gpu_is_its_parents() -> None:
    with Room("gfx1100"), open_device("amd:0") as gpu:
        _, x, _ = scaled(gpu)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from Python 3.12 on: this process has other threads
            child = os.fork()
        if child == 0:
            try:
                x.numpy()
            except DeviceClosed as error:
                os.write(write, str(error).split("\n")[0].encode())
            gpu.close()
            os._exit(0)
        os.close(write)
        assert os.waitpid(child, 0)[1] == 0
        assert b"forked" in os.read(read, 1000)
        os.close(read)
        assert set(x.numpy()) == {1}
