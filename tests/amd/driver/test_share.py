"""Memory from elsewhere: pinned arrays and dma-bufs."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from rawgpu.amd.driver.device import open_device
from rawgpu.contract import QueueKind
from rawgpu.errors import DeviceClosed, DeviceError
from rawgpu.virtual.room import Room
from tests.amd.driver.objects import SAXPY
from tests.amd.driver.rooms import Engine, opened, saxpy
from tests.amd.driver.test_device import state

pytestmark = pytest.mark.virtual


def test_an_array_is_used_where_it_is() -> None:
    engine = Engine(work=saxpy)
    pages = mmap.mmap(-1, 8192)
    array = np.frombuffer(pages, np.float32)
    array[:] = 1
    with opened("gfx1100", engine) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        pinned = gpu.pin(array)
        assert pinned.address == array.ctypes.data
        kernel(pinned, pinned, np.float32(2), np.int32(64), block=64)
        gpu.synchronize()
        assert set(array[:64]) == {3} and set(array[64:]) == {1}
        pinned.close()
        pinned.close()
        with pytest.raises(DeviceClosed):
            _ = pinned.address
        with pytest.raises(DeviceError, match="whole pages"):
            gpu.pin(array[1:])
        gpu.pin(array)
    assert set(array[:64]) == {3}


def test_a_buffer_goes_from_one_gpu_to_another_by_dma_buf() -> None:
    size = 2 << 20
    with Room("gfx1100*2", runner=Engine()) as room:
        for index in range(2):
            open_device(f"amd:{index}").close()
        before = state(room)
        with open_device("amd:0") as one, open_device("amd:1") as two:
            source, target = one.alloc(size), two.alloc(size)
            data = np.random.default_rng(5).bytes(size)
            source.write(data)
            one.flush_hdp()
            fd = source.export_dmabuf()
            taken = two.import_dmabuf(fd, size)
            one.port.close(fd)
            queue = two.queue(QueueKind.COPY)
            queue.copy(target, taken, size)  # type: ignore[arg-type]
            queue.submit()
            queue.synchronize()
            assert target.read() == data
            with pytest.raises(DeviceError, match="exported"):
                one.alloc(100), one.alloc(100).export_dmabuf()
        assert state(room) == before
