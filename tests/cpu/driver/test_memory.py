"""Memory: alignment, reuse, limits, lifetimes."""

from __future__ import annotations

import gc
import itertools
import mmap
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawgpu.contract import MemoryKind
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.cpu.driver.memory import Allocator, class_bytes
from rawgpu.errors import DeviceClosed, DeviceError, LaunchError, OutOfMemory
from tests.cpu.driver.kernels import signed

HUGE = 2 << 20


@pytest.fixture
def gpu() -> Any:
    with CpuDevice() as device:
        yield device


@given(st.integers(0, 1 << 40))
def test_classes_leave_room_for_the_pad_and_waste_little(size_bytes: int) -> None:
    capacity = class_bytes(size_bytes)
    assert capacity % 64 == 0
    assert capacity >= size_bytes + 64
    assert capacity <= (size_bytes + 64) * 1.125 + 64
    assert class_bytes(capacity - 64) == capacity


@pytest.mark.parametrize("size_bytes", [0, 1, 63, 64, 1000, 4096, 1 << 20, HUGE, 5 << 20])
def test_blocks_are_aligned_and_padded(gpu: CpuDevice, size_bytes: int) -> None:
    buffer = gpu.alloc(size_bytes, MemoryKind.PINNED)
    assert buffer.address % 64 == 0
    if size_bytes >= HUGE:
        assert buffer.address % HUGE == 0
    whole = np.frombuffer(buffer.view(), np.uint8)
    assert len(whole) == size_bytes
    block = buffer.block
    after = block.address - block.segment.address + size_bytes
    assert block.segment.bytes[after : after + 64].nbytes == 64


def test_what_is_written_is_read(gpu: CpuDevice) -> None:
    buffer = gpu.alloc(100)
    buffer.write(bytes(range(100)))
    assert buffer.read() == bytes(range(100))
    buffer.write(np.arange(5, dtype=np.int32), 20)
    assert np.frombuffer(buffer.read(20, 20), np.int32).tolist() == [0, 1, 2, 3, 4]
    buffer.write(np.arange(6, dtype=np.int16).reshape(2, 3).T, 0)
    assert np.frombuffer(buffer.read(12), np.int16).tolist() == [0, 3, 1, 4, 2, 5]
    buffer.write(memoryview(b"xy"), 98)
    assert buffer.read(offset=98) == b"xy"


@pytest.mark.parametrize(("size_bytes", "offset"), [(101, 0), (1, 100), (1, -1), (-1, 0)])
def test_reads_and_writes_outside_are_refused(gpu: CpuDevice, size_bytes: int, offset: Any) -> None:
    buffer = gpu.alloc(100)
    with pytest.raises(DeviceError, match="outside"):
        buffer.read(size_bytes, offset)
    if size_bytes >= 0:
        with pytest.raises(DeviceError, match="outside"):
            buffer.write(bytes(size_bytes), offset)


def test_a_view_is_the_memory_itself(gpu: CpuDevice) -> None:
    buffer = gpu.alloc(16)
    view = buffer.view()
    view[3] = 9
    assert buffer.read()[3] == 9


def test_freed_blocks_are_used_again(gpu: CpuDevice) -> None:
    buffer = gpu.alloc(10_000)
    address = buffer.address
    reused = gpu.memory().reused
    buffer.close()
    again = gpu.alloc(10_001)
    assert again.address == address
    assert gpu.memory().reused == reused + 1


def test_the_last_reference_frees(gpu: CpuDevice) -> None:
    before = gpu.memory()
    buffers = [gpu.alloc(size) for size in (10, 1000, 1 << 20, 3 << 20)]
    during = gpu.memory()
    assert during.allocations == before.allocations + 4
    assert during.in_use_bytes > before.in_use_bytes + (4 << 20)
    del buffers
    gc.collect()
    after = gpu.memory()
    assert (after.in_use_bytes, after.allocations) == (before.in_use_bytes, before.allocations)
    assert after.peak_bytes >= during.in_use_bytes
    gpu.reset_peak()
    assert gpu.memory().peak_bytes == after.in_use_bytes


def test_trim_gives_cached_memory_back(gpu: CpuDevice) -> None:
    keep = gpu.alloc(100)
    buffers = [gpu.alloc(16 << 20) for _ in range(4)]
    small = [gpu.alloc(1000) for _ in range(10_000)]
    reserved = gpu.memory().reserved_bytes
    del buffers, small
    gpu.trim()
    assert gpu.memory().reserved_bytes < reserved - (64 << 20)
    keep.write(b"still here")
    assert keep.read(10) == b"still here"
    gpu.alloc(1000).write(b"x")


def test_a_view_keeps_its_memory(gpu: CpuDevice) -> None:
    view = gpu.alloc(64).view()
    view[:] = bytes([7]) * 64
    gc.collect()
    for _ in range(20):
        gpu.alloc(64).write(bytes(64))
    assert bytes(view) == bytes([7]) * 64


def test_a_view_outlives_its_device() -> None:
    gpu = CpuDevice()
    small, large = gpu.alloc(64), gpu.alloc(4 << 20)
    views = [np.frombuffer(buffer.view(), np.uint8) for buffer in (small, large)]
    for view in views:
        view[:] = 5
    gpu.close()
    assert all((view == 5).all() for view in views)


def test_closed_buffers_refuse(gpu: CpuDevice) -> None:
    buffer = gpu.alloc(4)
    buffer.close()
    buffer.close()
    kernels = gpu.load(signed())
    for use in (
        buffer.view,
        buffer.read,
        lambda: buffer.write(b"x"),
        lambda: buffer.address,
        lambda: kernels["add"](buffer, 1.0),
    ):
        with pytest.raises(DeviceClosed):
            use()


def test_a_closed_device_refuses() -> None:
    gpu = CpuDevice()
    buffer, queue, kernels, signal = gpu.alloc(4), gpu.queue(), gpu.load(signed()), gpu.new_signal()
    array = gpu.array(np.zeros(1, np.float32))
    add = kernels["add"]
    gpu.close()
    gpu.close()
    uses = [
        buffer.view, queue.submit, gpu.synchronize, gpu.memory, array.numpy,
        lambda: gpu.alloc(1), lambda: gpu.load(signed()), lambda: add(array, 1.0),
        lambda: signal.value, gpu.new_signal, lambda: kernels.read_global("table"),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(DeviceClosed):
            use()


def test_pending_work_keeps_its_buffers(gpu: CpuDevice) -> None:
    add = gpu.load(signed())["add"]
    signal = gpu.new_signal()
    queue = gpu.queue()
    out = gpu.alloc(4)
    x = gpu.array(np.ones(1, np.float32))
    queue.wait(signal, 1)
    queue.launch(add, [x, 1.0])
    queue.copy(out, x.buffer, 4)
    queue.submit()
    x.close()
    del x
    gc.collect()
    filler = [gpu.array(np.full(1, 50, np.float32)) for _ in range(8)]
    other = gpu.queue()
    other.signal(signal, 1)
    other.submit()
    assert np.frombuffer(out.read(), np.float32)[0] == 2.0
    assert all(f.numpy()[0] == 50 for f in filler)


def test_a_limit_is_kept_and_trimmed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAWGPU_CPU_MEMORY", "64M")
    with CpuDevice() as gpu:
        assert gpu.properties.memory_bytes == 64 << 20
        for _ in range(10):
            gpu.alloc(16 << 20).close()
            gpu.alloc(24 << 20).close()
        held = gpu.alloc(20 << 20)
        with pytest.raises(OutOfMemory) as caught:
            gpu.alloc(60 << 20)
        assert caught.value.requested_bytes == 60 << 20
        assert caught.value.limit_bytes == 64 << 20
        assert caught.value.in_use_bytes >= 20 << 20
        held.write(b"fine")
        assert gpu.alloc(20 << 20).read(1, 0) is not None
        assert held.read(4) == b"fine"


@pytest.mark.parametrize("size_bytes", [1 << 46, 1 << 62, (1 << 64) - 1, 1 << 70])
def test_more_than_there_is_is_refused_and_all_goes_on(gpu: CpuDevice, size_bytes: int) -> None:
    with pytest.raises(OutOfMemory) as caught:
        gpu.alloc(size_bytes)
    assert caught.value.requested_bytes == size_bytes
    assert len(gpu.alloc(1000).read()) == 1000


def test_a_negative_size_is_refused(gpu: CpuDevice) -> None:
    with pytest.raises(LaunchError):
        gpu.alloc(-1)


def test_out_of_address_space_leaves_everything_usable() -> None:
    program = """
import resource
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.errors import OutOfMemory
gpu = CpuDevice()
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), -1))
held = []
try:
    while True:
        held.append(gpu.alloc(16 << 20))
except OutOfMemory as error:
    assert error.limit_bytes is None
print(len(held) >= 8)
held[0].write(b"abc")
del held[1:]
print(len(gpu.alloc(100 << 20).read(10)), held[0].read(3))
gpu.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[3],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "True\n10 b'abc'\n", done.stderr


def test_freeing_from_many_threads_keeps_the_books_right(gpu: CpuDevice) -> None:
    before = gpu.memory()

    def work() -> None:
        for size in range(1, 400):
            a, b = gpu.alloc(size * 16), gpu.alloc(size)
            a.write(bytes(16))
            del a, b

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    after = gpu.memory()
    assert (after.in_use_bytes, after.allocations) == (before.in_use_bytes, before.allocations)


def test_no_two_live_blocks_overlap(gpu: CpuDevice) -> None:
    rng = np.random.default_rng(5)
    live: list[tuple[int, int, object]] = []
    for _ in range(2000):
        if live and rng.random() < 0.45:
            live.pop(int(rng.integers(len(live))))
        else:
            size = int(2 ** rng.uniform(0, 21))
            buffer = gpu.alloc(size)
            live.append((buffer.address, buffer.address + size + 64, buffer))
    spans = sorted((low, high) for low, high, _ in live)
    assert all(high <= low for (_, high), (low, _) in itertools.pairwise(spans))


def test_the_nearest_buffer_is_described() -> None:
    allocator = Allocator("cpu:0", None, lambda: None)
    block = allocator.alloc(1000)
    start = block.address
    inside, behind = allocator.nearest(start + 10), allocator.nearest(start + 1008)
    before, far = allocator.nearest(start - 4), allocator.nearest(start + (64 << 20))
    assert inside == f"10 bytes into the 1000-byte buffer at {start:#x}"
    assert behind == f"8 bytes past the end of the 1000-byte buffer at {start:#x}"
    assert before == f"4 bytes before the 1000-byte buffer at {start:#x}"
    assert far is None
    allocator.close()


def test_memory_is_anonymous_and_private(gpu: CpuDevice) -> None:
    buffer = gpu.alloc(8 << 20)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, _, device, inode = line.split()[:5]
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= buffer.address < high:
            assert (flags, device, inode) == ("rw-p", "00:00", "0")
            assert mmap.PAGESIZE
            return
    raise AssertionError("not mapped")
