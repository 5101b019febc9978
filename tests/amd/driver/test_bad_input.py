"""What is wrong from outside: each a typed error that says what to do, and nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import random
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver.device import AmdDevice
from rawgpu.amd.driver.topology import gpu_nodes
from rawgpu.amd.spec.descriptor import DESCRIPTOR_BYTES
from rawgpu.contract import Binding, MemoryKind, QueueKind
from rawgpu.describe.request import Request
from rawgpu.errors import (
    BadElf,
    BadFile,
    DeviceClosed,
    DeviceError,
    DeviceNotFound,
    DevicePermission,
    LaunchError,
    RawGpuError,
    UnsupportedDevice,
)
from rawgpu.ioctl import kfd
from rawgpu.virtual.room import Room
from tests.amd.driver.ledger import Ledger
from tests.amd.driver.objects import EVERYTHING, GLOBALS, SAXPY, SHARED, build
from tests.amd.driver.rooms import Engine, saxpy

pytestmark = pytest.mark.virtual
R = TypeVar("R", bound=Request)
ARCH, N = "gfx1100", 64


@contextlib.contextmanager
def room(**options: Any) -> Iterator[Any]:
    """The port of a room; nothing may be left of it when the test's part is over."""
    with Room(ARCH, runner=Engine(work=saxpy), **options) as entered:
        port: Any = entered.port("amd")
        before = Ledger.of(port)
        yield entered
        assert not {k for k in Ledger.of(port).beyond(before) if k in PER_OPEN}, "left behind"


@pytest.fixture(autouse=True, scope="module")
def _what_a_process_opens_once() -> None:
    """The compiler's processes, and the file that tells which pages were written."""
    build(SAXPY, ARCH)
    with Room(ARCH, runner=Engine()), driver.open_device("amd:0") as gpu:
        gpu.alloc(64).write(bytes(64))
        gpu.synchronize()
        gpu.own_queue()
        gpu.port.pause()


PER_OPEN = ("queues", "queues on GPUs", "bars", "descriptors", "threads")


def helps(error: RawGpuError, *words: str) -> None:
    """There is a line that says what to do, with these words in it."""
    assert error.hint, error
    for word in words:
        assert word in error.hint, error.hint


# --- the machine ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["ENOENT", "EACCES", "EPERM", "ENOMEM", "EINVAL"])
@pytest.mark.parametrize("nth", [1, 2], ids=["kfd", "render"])
def test_a_device_node_that_cannot_be_opened(number: str, nth: int) -> None:
    kinds = {"ENOENT": DeviceNotFound, "EACCES": DevicePermission, "EPERM": DevicePermission}
    with room() as entered:
        before = Ledger.of(entered.port("amd"))
        entered.faults.fail("open", errno=getattr(errno, number), nth=nth)
        with pytest.raises(kinds.get(number, RawGpuError)) as caught:
            driver.open_device("amd:0")
        assert "/dev/kfd" in str(caught.value) or "/dev/dri/renderD" in str(caught.value)
        if number in kinds:
            helps(caught.value)
        beyond = Ledger.of(entered.port("amd")).beyond(before)
        assert set(beyond) <= {"files"}  # /dev/kfd stays open for the process's life
        with driver.open_device("amd:0") as gpu:
            gpu.alloc(64)


def test_gpus_that_a_container_hides() -> None:
    with Room(f"{ARCH}*3", runner=Engine(), hidden=(0, 2)):
        assert [info.name for info in driver.discover()] == ["amd:0"]
        with driver.open_device("amd:0") as gpu:
            gpu.alloc(64)
        with pytest.raises(DeviceNotFound, match="1 AMD GPU is here, and 2 that") as caught:
            driver.open_device("amd:1")
        helps(caught.value, "/dev/kfd", "renderD")


@pytest.mark.parametrize("name", ["amd:7", "amd:x", "amd:-1"])
def test_a_device_that_is_not_there(name: str) -> None:
    with room(), pytest.raises(DeviceNotFound) as caught:
        driver.open_device(name)
    helps(caught.value, "doctor")


class OldKernel:
    """A port whose kernel says that it speaks another version."""

    def __init__(self, port: Any, major: int, minor: int) -> None:
        self._port, self._version = port, (major, minor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def ioctl(self, fd: int, request: R) -> R:
        answer: R = self._port.ioctl(fd, request)
        if isinstance(answer, kfd.GetVersion):
            major, minor = self._version
            return answer.replace(major_version=major, minor_version=minor)
        return answer


@pytest.mark.parametrize("version", [(1, 3), (0, 9), (2, 0)])
def test_a_kernel_module_that_is_too_old_or_of_another_kind(version: tuple[int, int]) -> None:
    with room() as entered:
        port: Any = OldKernel(entered.port("amd"), *version)
        with pytest.raises(UnsupportedDevice, match=f"{version[0]}.{version[1]}") as caught:
            AmdDevice("amd:0", port, gpu_nodes(port)[0])
        helps(caught.value, "kernel of version")


def test_a_gpu_that_no_row_describes() -> None:
    with room() as entered:
        port = entered.port("amd")
        node = gpu_nodes(port)[0]
        odd = dataclasses.replace(
            node, properties={**node.properties, "gfx_target_version": 110900}
        )
        with pytest.raises(UnsupportedDevice, match="gfx1190") as caught:
            AmdDevice("amd:0", port, odd)
        helps(caught.value, "nearest", "add-a-gpu")


def test_topology_files_that_are_no_topology() -> None:
    with room() as entered:
        files = entered.machines["amd"].files
        path = next(p for p in files if p.endswith("1/properties") and "mem_banks" not in p)
        for text in (b"simd_count", b"simd_count x\n", b"\xff\xfe\n", b"simd_count 1 2\n"):
            before, files[path] = files[path], text
            with pytest.raises(BadFile):
                driver.open_device("amd:0")
            files[path] = before


# --- programs ------------------------------------------------------------------------------------


def damaged(data: bytes, chance: random.Random) -> bytes:
    """A code object with something wrong: bits, numbers of the headers, pieces, its end."""
    image = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(image))
        match chance.randrange(6):
            case 0:
                image[at] ^= 1 << chance.randrange(8)
            case 1:
                image[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                size = chance.choice((2, 4, 8))
                value = chance.choice(
                    (0, 1, -1, 1 << 31, 1 << 40, len(image), chance.getrandbits(64))
                )
                at -= at % size
                image[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
            case 3:
                other = chance.randrange(len(image))
                image[at : at + 16] = image[other : other + 16]
            case 4:
                del image[at : at + chance.choice((1, 4, 24, 64))]
            case _:
                del image[max(at, 1) :]
        if not image:
            break
    return bytes(image)


def load_damaged(count: int, seed: int) -> Counter[str]:
    """Load so many; only a BadFile may come, soon, and nothing may stay."""
    sources = [build(text, ARCH) for text in (SAXPY, GLOBALS, SHARED)]
    sources.append(build(EVERYTHING, ARCH, ""))
    chance = random.Random(seed)
    ends: Counter[str] = Counter()
    with Room(ARCH, runner=Engine(), strict=False) as entered, driver.open_device("amd:0") as gpu:
        gpu.load(sources[0])
        port: Any = entered.port("amd")
        before = Ledger.of(port)
        for number in range(count):
            image = damaged(sources[number % len(sources)], chance)
            begin = time.monotonic()
            try:
                program = gpu.load(image)
            except BadFile as error:
                ends[type(error).__name__] += 1
            else:
                ends["loaded"] += 1
                program.close()
            assert time.monotonic() - begin < 5, (seed, number)
        gpu.synchronize()
        beyond = Ledger.of(port).beyond(before)
        beyond.pop("bytes of host memory", None)
        beyond.pop("bytes mapped for GPUs", None)
        assert set(beyond) <= CACHED, beyond
    return ends


CACHED = {
    "mappings of memory", "reserved ranges", "buffers", "buffers mapped on GPUs", "ranges of GPUs",
    "bytes of VRAM",
}  # fmt: skip
"""What the allocator may keep in store."""


def test_damaged_code_objects_are_refused(
    record_property: Callable[[str, object], None],
) -> None:
    ends = load_damaged(2_000, seed=1)
    assert ends["BadElf"] > 500 and ends["loaded"] > 100, ends
    record_property("count damaged code objects", ends.total())


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_damaged_code_objects_are_refused(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    ends = load_damaged(5_000, seed)
    record_property("count damaged code objects", ends.total())


def test_files_that_are_no_code_for_this_gpu() -> None:
    good = build(SAXPY, ARCH)
    wrong: dict[str, bytes] = {
        "empty": b"",
        "text": b"#!/bin/sh\n",
        "head only": good[:64],
        "32 bits": good[:4] + b"\1" + good[5:],
        "big endian": good[:5] + b"\2" + good[6:],
        "x86": good[:18] + struct.pack("<H", 62) + good[20:],
        "another GPU": build(SAXPY, "gfx1201"),
        "an older one": build(SAXPY, "gfx90a"),
    }
    with room(), driver.open_device("amd:0") as gpu:
        gpu.load(good)
        before = gpu.memory().in_use_bytes
        for what, image in wrong.items():
            with pytest.raises(BadElf) as caught:
                gpu.load(image)
            if what in ("another GPU", "an older one"):
                helps(caught.value, "-mcpu=gfx1100")
        assert gpu.memory().in_use_bytes == before


def test_more_local_memory_than_the_gpu_has() -> None:
    image = bytearray(build(SHARED, ARCH))
    with room(), driver.open_device("amd:0") as gpu:
        kernel = gpu.load(bytes(image))["mirror"]
        size = struct.pack("<I", kernel.lds_bytes)
        at = image.find(kernel.image.data[kernel.descriptor_va - kernel.image.address :][:8])
        assert at >= 0 and image[at : at + 4] == size and len(image) > at + DESCRIPTOR_BYTES
        image[at : at + 4] = struct.pack("<I", (64 << 10) + 4)
        with pytest.raises(BadElf, match="65540 bytes of local memory, and gfx1100 has 65536"):
            gpu.load(bytes(image))


# --- launches ------------------------------------------------------------------------------------


def untouched(queue: Any) -> tuple[Any, ...]:
    """What a queue would submit, and what it has submitted."""
    return (
        queue.ring.written,
        queue.submitted,
        [list(part) for part in queue._parts],
        len(queue._names),
    )


def test_launches_that_do_not_fit_leave_the_queue_as_it_was() -> None:
    with room(), driver.open_device("amd:0") as gpu:
        kernel = gpu.load(build(SAXPY, ARCH))["saxpy"]
        x, gone = gpu.array(np.zeros(N, np.float32)), gpu.alloc(4 * N)
        gone.close()
        fine: list[Any] = [x, x, np.float32(1), np.int32(N)]
        wrong: list[tuple[list[Any], dict[str, Any], type[RawGpuError], str]] = [
            (fine[:3], {}, LaunchError, "takes 4"),
            ([*fine, x], {}, LaunchError, "takes 4"),
            ([x, x, 1.0, np.int32(1)], {}, LaunchError, "no type"),
            ([x, x, np.float64(1), np.int32(1)], {}, LaunchError, "8 bytes for a value of 4"),
            ([1, x, np.float32(1), np.int32(1)], {}, LaunchError, "pointer"),
            ([x, x, x, np.int32(1)], {}, LaunchError, "argument 2"),
            ([gone, x, np.float32(1), np.int32(1)], {}, DeviceClosed, "closed"),
            ([Binding(0), x, np.float32(1), np.int32(1)], {}, LaunchError, "recording"),
            (fine, {"block": 512}, LaunchError, "limit is 256"),
            (fine, {"block": (1 << 11, 1, 1)}, LaunchError, "limit is 256"),
            (fine, {"grid": 1 << 30, "block": 64}, LaunchError, "in a row"),
            (fine, {"grid": (1, 1 << 33)}, LaunchError, "in a row"),
            (fine, {"grid": 0}, LaunchError, "positive"),
            (fine, {"grid": -1}, LaunchError, "positive"),
            (fine, {"grid": (1, 2, 3, 4)}, LaunchError, "grid"),
        ]
        queue = gpu.queue()
        queue.launch(kernel, fine, block=N)
        before = untouched(queue)
        for arguments, shape, kind, text in wrong:
            with pytest.raises(kind, match=text):
                queue.launch(kernel, arguments, **shape)
            assert untouched(queue) == before, (arguments, shape)
        queue.submit()
        queue.synchronize()


def test_copies_that_do_not_fit_leave_the_queue_as_it_was() -> None:
    with room(), driver.open_device("amd:0") as gpu:
        a, b, gone = gpu.alloc(100), gpu.alloc(50), gpu.alloc(100)
        gone.close()
        for queue in (gpu.queue(), gpu.queue(QueueKind.COPY)):
            packets = "_packets" if hasattr(queue, "_packets") else "_parts"
            calls: list[Callable[[], Any]] = [
                lambda q=queue: q.copy(b, a, 51),  # type: ignore[misc]
                lambda q=queue: q.copy(a, b, -1),  # type: ignore[misc]
                lambda q=queue: q.copy(a, gone, 10),  # type: ignore[misc]
                lambda q=queue: q.copy(gone, a, 10),  # type: ignore[misc]
                lambda q=queue: q.fill(b, 1, 51),  # type: ignore[misc]
                lambda q=queue: q.fill(b, 256, 5),  # type: ignore[misc]
                lambda q=queue: q.fill(gone, 1, 5),  # type: ignore[misc]
            ]
            for call in calls:
                with pytest.raises((LaunchError, DeviceClosed)):
                    call()
                assert not getattr(queue, packets)


def test_a_submit_that_is_too_large_never_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rawgpu.amd.driver.queue.RING_BYTES", 8192)
    monkeypatch.setattr("rawgpu.amd.driver.copyqueue.RING_BYTES", 4096)
    with room(), driver.open_device("amd:0") as gpu:
        kernel = gpu.load(build(SAXPY, ARCH))["saxpy"]
        x, y = gpu.array(np.ones(N, np.float32)), gpu.array(np.zeros(N, np.float32))
        queue, copies = gpu.queue(), gpu.queue(QueueKind.COPY)
        for _ in range(50):
            queue.launch(kernel, [x, y, np.float32(1), np.int32(N)], block=N)
        for _ in range(200):
            copies.copy(y.buffer, x.buffer, 4 * N)
        for full in (queue, copies):
            before = full.submitted
            with pytest.raises(DeviceError, match="in one submit") as caught:
                full.submit()
            helps(caught.value, "more often")
            assert (full.submitted, full.ring.written) == (before, 0)
            full.synchronize(1_000)
        queue.launch(kernel, [x, y, np.float32(3), np.int32(N)], block=N)
        queue.submit()
        queue.synchronize()
        assert set(y.numpy()) == {3}


def test_memory_that_is_not_what_it_should_be() -> None:
    with room(), driver.open_device("amd:0") as gpu:
        whole = np.zeros(8192, np.uint8)
        at = -whole.ctypes.data % 4096
        with pytest.raises(DeviceError, match="whole pages") as caught:
            gpu.pin(whole[at + 1 : at + 4097])
        helps(caught.value, "mmap")
        with pytest.raises(DeviceError, match="contiguous"):
            gpu.pin(whole[::2])
        small = gpu.alloc(100)
        with pytest.raises(DeviceError, match="shares") as caught:
            small.export_dmabuf()
        helps(caught.value, "1 MiB")
        with pytest.raises(LaunchError):
            gpu.alloc(-1)
        pinned = gpu.alloc(64, MemoryKind.PINNED)
        pinned.close()
        with pytest.raises(DeviceClosed):
            pinned.view()
        with pytest.raises(DeviceClosed):
            small_closed(small)
    with pytest.raises(DeviceClosed):
        gpu.alloc(64)


def small_closed(buffer: Any) -> None:
    buffer.close()
    buffer.read()
