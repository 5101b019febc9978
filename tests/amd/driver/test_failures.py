"""What a user hears when a kernel or a GPU fails: the right error, soon, with the truth in it.

Kernels here are machine code that really goes astray; both wave engines must tell the same.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver.device import AmdDevice
from rawgpu.amd.virtual import lift_library
from rawgpu.amd.virtual.wave import interpret_dispatch, run_dispatch
from rawgpu.contract import QueueKind
from rawgpu.errors import (
    FenceTimeout,
    IllegalInstruction,
    KernelFault,
    PageFault,
    ProcessMustRestart,
    RawGpuError,
    Reset,
)
from rawgpu.virtual.room import Room
from tests.amd.driver.ledger import Ledger
from tests.amd.driver.objects import SAXPY, build

pytestmark = pytest.mark.virtual
ARCHES = ("gfx1100", "gfx1201", "gfx942", "gfx90a")
PERMITTING = "1.22"
"""A kernel under which a process goes on after a page fault."""
N = 64
AWAY = 1 << 20
"""From a buffer of 2 MiB, mapped alone, to where nothing is."""
BIG = 2 << 20

STRAY = """
define amdgpu_kernel void @writes(ptr addrspace(1) %p, i64 %by) #0 {
  %q = getelementptr i8, ptr addrspace(1) %p, i64 %by
  store i32 7, ptr addrspace(1) %q
  ret void
}
define amdgpu_kernel void @reads(ptr addrspace(1) %p, i64 %by) #0 {
  %q = getelementptr i8, ptr addrspace(1) %p, i64 %by
  %v = load volatile i32, ptr addrspace(1) %q
  ret void
}
define amdgpu_kernel void @jumps(ptr addrspace(1) %p, i64 %by) #0 {
  %q = getelementptr i8, ptr addrspace(1) %p, i64 %by
  %f = addrspacecast ptr addrspace(1) %q to ptr
  call void %f()
  ret void
}
define amdgpu_kernel void @spins(ptr addrspace(1) %p, i64 %by) #0 {
  br label %again
again:
  call void @llvm.amdgcn.s.sleep(i32 1)
  br label %again
}
define amdgpu_kernel void @fine(ptr addrspace(1) %p, i64 %by) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %k = zext i32 %i to i64
  %q = getelementptr i32, ptr addrspace(1) %p, i64 %k
  store i32 5, ptr addrspace(1) %q
  ret void
}
declare void @llvm.amdgcn.s.sleep(i32)
"""
NONSENSE = """
define amdgpu_kernel void @nonsense(ptr addrspace(1) %p, i64 %by) #0 {
  store i32 1, ptr addrspace(1) %p
  ret void
}
"""
ENDS = (0xBF810000, 0xBFB00000)
"""S_ENDPGM before and from gfx11 on."""
ENGINES: dict[str, Any] = {"interpreted": interpret_dispatch, "lifted": run_dispatch}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Either way of running waves; nothing is too small for the lifter."""
    monkeypatch.setattr(lift_library, "SMALL", -1)
    return ENGINES[request.param]


@contextlib.contextmanager
def opened(arch: str, engine: Any, **options: Any) -> Iterator[tuple[Room, AmdDevice, Any]]:
    """A room, its GPU, and the kernels that go astray."""
    with Room(arch, runner=engine, **options) as room, driver.open_device("amd:0") as gpu:
        yield room, gpu, gpu.load(build(STRAY, arch))


def nonsense(arch: str) -> bytes:
    """An object whose kernel ends in no instruction."""
    data = build(NONSENSE, arch)
    for end in ENDS:
        word = end.to_bytes(4, "little")
        if data.count(word) == 1:
            return data.replace(word, b"\xff" * 4)
    raise AssertionError("no end")


def launch(gpu: AmdDevice, kernel: Any, at: Any, by: int) -> None:
    kernel(at, np.int64(by), block=N)
    gpu.synchronize(timeout_ms=2_000)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("name", "access"), [("writes", "write"), ("reads", "read")])
def test_a_stray_access_names_address_buffer_and_kernel(
    arch: str, name: str, access: str, engine: Any
) -> None:
    with opened(arch, engine, kernel=PERMITTING) as (_, gpu, program):
        buffer = gpu.alloc(BIG)
        launch(gpu, program["fine"], buffer, 0)
        program["fine"](buffer, np.int64(0), block=N)
        program[name](buffer, np.int64(BIG + 100), block=N)
        with pytest.raises(PageFault) as caught:
            gpu.synchronize()
        fault = caught.value
        assert fault.address is not None
        assert fault.address & -4096 == buffer.address + BIG
        assert (fault.access, fault.device_usable) == (access, False)
        assert fault.kernel in ("fine", name)  # the kernel tells the page, not the launch
        assert fault.nearest is not None and f"{BIG}-byte buffer" in fault.nearest
        assert "past the end" in fault.nearest and "no page is mapped" in fault.message
        assert name in fault.message


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("present", [True, False])
def test_a_jump_to_where_no_code_is(arch: str, present: bool, engine: Any) -> None:
    with opened(arch, engine, kernel=PERMITTING) as (_, gpu, program):
        data = np.frombuffer(mmap.mmap(-1, 4096), np.float32)
        pinned, buffer = gpu.pin(data), gpu.alloc(BIG)
        place, by = (pinned, 0) if present else (buffer, BIG + 256)
        with pytest.raises(PageFault) as caught:
            launch(gpu, program["jumps"], place, by)
        fault = caught.value
        assert fault.address is not None and fault.kernel == "jumps"
        assert fault.address & -4096 == (place.address + by) & -4096
        assert fault.access == "execute"
        words = "does not allow" if present else "no page is mapped"
        assert words in fault.message


@pytest.mark.parametrize("arch", ARCHES)
def test_an_illegal_instruction_is_found_and_only_its_queue_is_lost(arch: str, engine: Any) -> None:
    """The kernel says nothing to user space: the driver asks where the waves are."""
    with opened(arch, engine) as (_, gpu, program):
        buffer = gpu.alloc(BIG)
        code = gpu.load(nonsense(arch))["nonsense"]
        with pytest.raises(IllegalInstruction) as caught:
            launch(gpu, code, buffer, 0)
        fault = caught.value
        assert (fault.kernel, fault.device_usable) == ("nonsense", True)
        assert fault.offset is not None
        at = code.entry_va + fault.offset - code.image.address
        assert code.image.data[at : at + 4] == b"\xff\xff\xff\xff"
        launch(gpu, program["fine"], buffer, 0)
        assert set(np.frombuffer(buffer.read(4 * N), np.uint32)) == {5}


@pytest.mark.parametrize("arch", ARCHES)
def test_an_endless_loop_ends_in_a_bounded_wait_that_says_where(arch: str, engine: Any) -> None:
    with opened(arch, engine) as (_, gpu, program):
        buffer, spins = gpu.alloc(BIG), program["spins"]
        begin = time.monotonic()
        spins(buffer, np.int64(0), grid=2, block=N)
        with pytest.raises(FenceTimeout) as caught:
            gpu.synchronize(timeout_ms=300)
        assert time.monotonic() - begin < 60
        error = caught.value
        assert error.running == ("spins",)
        assert error.waves and all(" at spins+0x" in words for words in error.waves)
        offset = int(error.waves[0].rpartition("+")[2], 16)
        at = spins.entry_va + offset - spins.image.address
        assert at < len(spins.image.data)
        assert error.waves[0] in error.message
        # Others are not disturbed, and the queue goes on where it was.
        other = gpu.queue()
        other.launch(program["fine"], [buffer, np.int64(0)], block=N)
        other.submit()
        other.synchronize(2_000)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_after_a_fault_what_the_hint_says_is_true(arch: str) -> None:
    """Where the process may go on, opening again works; where not, the hint does not say so."""
    for kernel in (PERMITTING, "6.12"):
        with Room(arch, kernel=kernel):
            with driver.open_device("amd:0") as gpu:
                program = gpu.load(build(STRAY, arch))
                with pytest.raises(PageFault) as caught:
                    launch(gpu, program["writes"], gpu.alloc(BIG), BIG)
            hint = caught.value.hint or ""
            if kernel == PERMITTING:
                assert "open it again" in hint
                driver.open_device("amd:0").close()
            else:
                assert "new process" in hint and "open it again" not in hint
                with pytest.raises(ProcessMustRestart, match="page fault"):
                    driver.open_device("amd:0")


@pytest.mark.parametrize("way", ["reset", "ecc", "hang", "lost interrupt"])
@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_a_gpu_that_fails_in_the_middle_of_a_queue(arch: str, way: str) -> None:
    """At each of the packets of a launch in turn."""
    ends: set[str] = set()
    for packet in range(1, 12):
        with Room(arch, seed=packet) as room:
            port: Any = room.port("amd")
            saxpy_of(arch)
            before = Ledger.of(port)
            with driver.open_device("amd:0") as gpu:
                kernel = gpu.load(build(SAXPY, arch))["saxpy"]
                x, y = (gpu.array(np.full(N, v, np.float32)) for v in (1, 2))
                plant(room, way, packet)
                kernel(x, y, np.float32(3), np.int32(N), block=N)
                begin = time.monotonic()
                try:
                    gpu.synchronize(timeout_ms=400)
                    assert set(y.numpy()) == {5}
                    ends.add("done")
                except RawGpuError as error:
                    ends.add(type(error).__name__)
                    told(error, way)
                assert time.monotonic() - begin < 60
                room.faults.clear()
            assert Ledger.of(port).beyond(before) == {}
            saxpy_of(arch)
    assert (way == "lost interrupt") == (ends == {"done"}), ends


def saxpy_of(arch: str) -> None:
    """Open, compute, close."""
    with driver.open_device("amd:0") as gpu:
        kernel = gpu.load(build(SAXPY, arch))["saxpy"]
        x, y = (gpu.array(np.full(N, v, np.float32)) for v in (1, 2))
        kernel(x, y, np.float32(3), np.int32(N), block=N)
        assert set(y.numpy()) == {5}


def plant(room: Room, way: str, packet: int) -> None:
    if way == "lost interrupt":
        room.faults.lose_interrupt(nth=1, times=packet)
    else:
        getattr(room.faults, way)(packet=packet)


def told(error: RawGpuError, way: str) -> None:
    """What the error says of it."""
    if way == "ecc":
        assert isinstance(error, (KernelFault, Reset)) and "ECC" in str(error)
    elif way == "reset":
        assert isinstance(error, Reset) and "memory is lost" in str(error)
    else:
        # A hung engine does not let go of its queue: looking at it costs the GPU's state.
        assert isinstance(error, Reset) and "hang" in str(error)


def test_a_wait_that_nobody_ends_disturbs_no_queue() -> None:
    with Room("gfx1100"), driver.open_device("amd:0") as gpu:
        queue, copies, signal = gpu.queue(), gpu.queue(QueueKind.COPY), gpu.new_signal()
        for waiting in (queue, copies):
            waiting.wait(signal, 1)
            waiting.submit()
        with pytest.raises(FenceTimeout):
            queue.synchronize(100)
        with pytest.raises(FenceTimeout):
            copies.synchronize(100)
        other = gpu.queue()
        other.signal(signal, 1)
        other.submit()
        queue.synchronize()
        copies.synchronize()
