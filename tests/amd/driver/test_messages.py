"""Errors name the device, the memory and the way out, as a user knows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver.device import AmdDevice, discover, open_device
from rawgpu.amd.driver.topology import gpu_nodes, title_of
from rawgpu.contract import MemoryKind, QueueKind
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.cpu.driver.device import open_device as open_cpu
from rawgpu.errors import (
    BadElf,
    FenceTimeout,
    KernelFault,
    LaunchError,
    OutOfMemory,
    PageFault,
    ProcessMustRestart,
    in_units,
)
from rawgpu.virtual.room import Room
from tests.amd.driver.objects import SAXPY, build
from tests.amd.driver.rooms import Engine, saxpy
from tests.cpu.driver import kernels

pytestmark = pytest.mark.virtual
ARCH, N = "gfx1100", 64
GIB = 1 << 30

TRAPS = """
define amdgpu_kernel void @traps(ptr addrspace(1) %p) #0 {
  %v = load volatile i32, ptr addrspace(1) %p
  %c = icmp eq i32 %v, 0
  br i1 %c, label %bad, label %good
bad:
  call void @llvm.trap()
  unreachable
good:
  ret void
}
declare void @llvm.trap()
"""
ENDLESS = """
define amdgpu_kernel void @endless() #0 {
  br label %again
again:
  br label %again
}
define amdgpu_kernel void @waits(ptr addrspace(1) %p) #0 {
  br label %again
again:
  %v = load atomic i32, ptr addrspace(1) %p syncscope("") monotonic, align 4
  %c = icmp eq i32 %v, 0
  br i1 %c, label %again, label %good
good:
  ret void
}
"""


@pytest.fixture
def pair() -> Iterator[tuple[AmdDevice, AmdDevice]]:
    engine = Engine(work=saxpy)
    with Room(f"{ARCH}*2", runner=engine), open_device("amd:0") as one, open_device("amd:1") as two:
        engine.load(one, SAXPY, "saxpy")
        yield one, two


def saxpy_on(gpu: AmdDevice) -> Any:
    return gpu.load(build(SAXPY, ARCH))["saxpy"]


def ones(gpu: Any) -> Any:
    return gpu.array(np.ones(N, np.float32))


def test_memory_of_another_gpu_is_refused_until_it_is_mapped(
    pair: tuple[AmdDevice, AmdDevice],
) -> None:
    one, two = pair
    kernel, here, there = saxpy_on(one), ones(one), ones(two)
    rest = np.float32(2), np.int32(N)
    text = "saxpy, argument 1 'y': an array of amd:1, and the kernel is on amd:0\n  try: copy it"
    with pytest.raises(LaunchError, match=text):
        kernel(here, there, *rest, block=N)
    pinned = two.alloc(4 * N, MemoryKind.PINNED)
    with pytest.raises(LaunchError, match="argument 0 'x': memory of amd:1, and the k"):
        kernel(pinned, here, *rest, block=N)
    queue, copies, recording = one.queue(), one.queue(QueueKind.COPY), one.queue().record()
    for use in (
        lambda: queue.launch(kernel, [here, there, *rest], block=N),
        lambda: queue.copy(here.buffer, there.buffer, 4 * N),
        lambda: queue.fill(there.buffer, 0, 4 * N),
        lambda: copies.copy(there.buffer, here.buffer, 4 * N),
        lambda: copies.fill(there.buffer, 0, 4 * N),
        lambda: recording.launch(kernel, [here, there, *rest], block=N),
        lambda: recording.copy(here, there, 4 * N),
    ):
        with pytest.raises(LaunchError, match=r"amd:1, and the (kernel|queue) is on amd:0"):
            use()
    launch = recording.launch(kernel, [here, here, *rest], block=N)
    with pytest.raises(LaunchError, match="an array of amd:1"):
        recording.patch(launch, 0, there)
    for memory in (there.buffer, pinned):
        memory.map_on(one)
    one.flush_hdp()
    kernel(here, there, *rest, block=N)
    one.synchronize()
    assert set(there.numpy()) == {3}
    kernel(np.uint64(here.address), there, *rest, block=N)  # a raw address is nobody's
    kernel(pinned, there, np.float32(0), np.int32(N), block=N)
    one.synchronize()
    assert set(there.numpy()) == {5}


def test_a_gpu_opened_twice_is_one_gpu() -> None:
    engine = Engine(work=saxpy)
    with Room(ARCH, runner=engine), open_device("amd:0") as one, open_device("amd:0") as two:
        kernel = engine.load(one, SAXPY, "saxpy")
        here, there = ones(one), ones(two)
        kernel(here, there, np.float32(2), np.int32(N), block=N)
        one.synchronize()
        assert set(there.numpy()) == {3}


def test_memory_of_cpu_and_gpu_are_not_mixed() -> None:
    engine = Engine(work=saxpy)
    with Room(ARCH, runner=engine), open_device("amd:0") as gpu, open_cpu("cpu:0") as cpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        here, there = ones(gpu), ones(cpu)
        with pytest.raises(LaunchError, match=r"argument 0 'x': an array of cpu:0, .* is on amd:0"):
            kernel(there, here, np.float32(2), np.int32(N), block=N)
        native = cpu.load(kernels.signed())["saxpy"]
        with pytest.raises(LaunchError, match=r"argument 1 'y': an array of amd:0, .* is on cpu:0"):
            native(there, here, 2.0, N)
        with pytest.raises(LaunchError, match="amd:0, and the queue is on cpu:0"):
            cpu.queue().copy(there.buffer, here.buffer, 4 * N)
        pinned = gpu.alloc(4 * N, MemoryKind.PINNED)
        pinned.write(np.ones(N, np.float32))
        native(there, pinned, 2.0, N)  # the CPU reaches that
        cpu.synchronize()
        assert set(np.frombuffer(pinned.view(), np.float32)) == {3}


def test_memory_of_one_cpu_device_is_the_other_s() -> None:
    with CpuDevice("cpu:0") as one, CpuDevice("cpu:0") as two:
        kernel, here, there = one.load(kernels.signed())["saxpy"], ones(one), ones(two)
        kernel(here, there, 2.0, N)
        one.synchronize()
        assert set(there.numpy()) == {3}


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (GIB, "it is 1 GiB past the end of the 400-byte buffer at {at:#x}"),
        (400 + 70_000_000, "it is 66.8 MiB past the end of the 400-byte buffer at {at:#x}"),
        (None, "a null pointer?"),
        (-(1 << 35), "it is 32 GiB before the 400-byte buffer at {at:#x}"),
        (1 << 38, "no buffer is near"),
    ],
)
def test_a_page_fault_says_what_is_near(by: int | None, says: str) -> None:
    with Room(ARCH), open_device("amd:0") as gpu:
        x = gpu.array(np.zeros(100, np.float32))
        at = x.address
        kernel = saxpy_on(gpu)
        if by is not None:
            by += 400 if by == GIB else 0
        wild = np.uint64(8 if by is None else at + by)
        kernel(wild, x, np.float32(1), np.int32(1), block=N)
        with pytest.raises(PageFault) as caught:
            gpu.synchronize()
        # The kernel tells the page; what is exact to the byte is not to be had from all of them.
        found = caught.value.message
        words = says.format(at=at)
        assert words in found, found
        assert (caught.value.nearest is None) == ("buffer at" not in words)
        hint = caught.value.hint or ""
        assert "the kernel driver (KFD 1." in hint and "for this process on amd:0" in hint
        assert "new room" in hint
        with pytest.raises(ProcessMustRestart, match=r"amd:0: .* kernel driver .* on amd:0"):
            open_device("amd:0")


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201", "gfx942", "gfx90a"])
def test_a_trap_is_a_kernel_fault(arch: str) -> None:
    with Room(arch), open_device("amd:0") as gpu:
        kernel = gpu.load(build(TRAPS, arch))["traps"]
        kernel(gpu.array(np.zeros(N, np.int32)), block=N)
        with pytest.raises(KernelFault, match=r"traps\+0x.*the kernel trapped \(s_trap 2\)") as got:
            gpu.synchronize(timeout_ms=200)
        assert (got.value.kernel, got.value.device_usable) == ("traps", True)
        kernel(gpu.array(np.ones(N, np.int32)), block=N)
        gpu.synchronize(timeout_ms=2000)


def test_waves_that_stand_still_are_not_waited_for_in_full_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "FIRST_SPINS", 8)
    with Room(ARCH), open_device("amd:0") as gpu:
        kernel = gpu.load(build(ENDLESS, ARCH))["endless"]
        kernel(block=N)
        for limit, waited in ((60, 60), (20_000, 500)):
            with pytest.raises(FenceTimeout, match=rf"waited {waited} ms for .*at endless") as got:
                gpu.synchronize(timeout_ms=limit)
            hint = got.value.hint or ""
            assert "close the device and open it again" in hint and "larger" not in hint
        gpu.close()
        with open_device("amd:0") as fresh:
            x, y = ones(fresh), ones(fresh)
            saxpy_on(fresh)(x, y, np.float32(2), np.int32(N), block=N)
            assert set(y.numpy()) == {3}


def test_waves_that_move_are_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that looks at memory until somebody writes there."""
    monkeypatch.setattr(driver, "FIRST_SPINS", 8)
    with Room(ARCH), open_device("amd:0") as gpu:
        kernel = gpu.load(build(ENDLESS, ARCH))["waits"]
        flag = gpu.alloc(4, MemoryKind.PINNED)
        flag.write(bytes(4))
        kernel(flag, block=1)
        with pytest.raises(FenceTimeout, match="at waits"):
            gpu.synchronize(timeout_ms=60)
        flag.view()[:4] = b"\1\0\0\0"
        gpu.synchronize(timeout_ms=20_000)


def test_no_room_says_what_was_asked_and_what_there_is() -> None:
    with Room(ARCH), open_device("amd:0") as gpu:
        for asked in ("32 TiB", "320 GiB", "64 GiB"):
            number, unit = asked.split()
            size = int(number) * {"GiB": GIB, "TiB": 1 << 40}[unit]
            with pytest.raises(OutOfMemory, match=f"amd:0: .*{asked} of VRAM.*24 GiB") as caught:
                gpu.alloc(size)
            assert caught.value.requested_bytes == size
            assert caught.value.limit_bytes == 24 * GIB


def test_what_load_was_given_instead_of_code(tmp_path: Path) -> None:
    with Room(ARCH, runner=Engine()), open_device("amd:0") as gpu, open_cpu("cpu:0") as cpu:
        for device in (gpu, cpu):
            wrong: Any = "saxpy.o"
            with pytest.raises(BadElf, match=re.escape("Path('saxpy.o').read_bytes()")):
                device.load(wrong)
            wrong = tmp_path
            with pytest.raises(BadElf, match="read_bytes"):
                device.load(wrong)
            wrong = 7
            with pytest.raises(BadElf, match=r"not an int\n.*pass the bytes of the file"):
                device.load(wrong)
        with pytest.raises(BadElf, match="code for an AMD GPU, and the device is cpu:0"):
            cpu.load(build(SAXPY, ARCH))
        with pytest.raises(BadElf, match=r"code for (x86-64|AArch64), and the device is amd:0"):
            gpu.load(kernels.signed())
        with pytest.raises(BadElf, match="code for gfx1201, and amd:0 is gfx1100"):
            gpu.load(build(SAXPY, "gfx1201"))
        program = gpu.load(build(SAXPY, ARCH))
        assert repr(program) == "<AmdProgram on amd:0: saxpy>"
        x = ones(gpu)
        with pytest.raises(
            LaunchError, match=r"4 .*\(x: pointer, y: pointer, a: 4 bytes, n: 4 bytes\)"
        ):
            program["saxpy"](x, x, np.float32(1))
        with pytest.raises(LaunchError, match=r"saxpy, argument 2 'a': plain number"):
            program["saxpy"](x, x, 1.0, np.int32(1))
        program.close()
        assert repr(program) == "<AmdProgram (closed)>"


def test_a_gpu_is_called_by_its_product_s_name() -> None:
    with Room(ARCH, runner=Engine()) as room:
        port: Any = room.port("amd")
        node = gpu_nodes(port)[0]
        assert node.name == "ip discovery"
        product = f"/sys/class/drm/renderD{node['drm_render_minor']}/device/product_name"
        name = port.read(product).decode().strip()
        assert [row.title for row in discover() if row.virtual] == [name]
        with open_device("amd:0") as gpu:
            assert gpu.properties.title == name
        del port.machine.files[product]
        assert title_of(port, node) == ARCH


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (10_239, "10239 bytes"),
        (10_240, "10 KiB"),
        (1 << 20, "1 MiB"),
        (GIB - 4096, "1 GiB"),
        (3 * GIB // 2, "1.5 GiB"),
        (32 << 40, "32 TiB"),
        (1 << 64, "16 EiB"),
        (1 << 70, "1024 EiB"),
    ],
)
def test_sizes_in_units(size: int, words: str) -> None:
    assert in_units(size) == words
