"""The device through true packets, on virtual GPUs whose kernels are Python functions."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver.topology import gpu_nodes
from rawgpu.contract import Binding, MemoryKind, Parameter, QueueKind
from rawgpu.errors import (
    BadElf,
    DeviceClosed,
    DeviceError,
    FenceTimeout,
    KernelCallFailed,
    LaunchError,
    OutOfMemory,
    PageFault,
    ProcessMustRestart,
    Reset,
    UnsupportedDevice,
)
from rawgpu.native.note import signature_note_ir
from rawgpu.virtual.room import Room
from tests.amd.driver.objects import EVERYTHING, GLOBALS, SAXPY, build
from tests.amd.driver.rooms import Engine, opened, saxpy

ARCHES = ("gfx1100", "gfx1201", "gfx942", "gfx90a")
N = 500

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("arch", ARCHES)
def test_a_launch_by_hand(arch: str) -> None:
    engine = Engine(work=saxpy)
    x, y = (np.random.default_rng(i).random(N, np.float32) for i in (1, 2))
    with opened(arch, engine) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        left, right = gpu.array(x), gpu.array(y)
        for _ in range(3):
            kernel(left, right, np.float32(2), np.int32(N), grid=-(-N // 64), block=64)
        np.testing.assert_allclose(right.numpy(), y + 6 * x, rtol=1e-5)
        assert [d.groups for d in engine.dispatches] == [(8, 1, 1)] * 3
        assert engine.dispatches[0].group_size == (64, 1, 1)
        assert engine.dispatches[0].wave_size == gpu.hardware.lanes


@pytest.mark.parametrize("arch", ARCHES)
def test_queues_meet_by_signals(arch: str) -> None:
    engine = Engine(work=saxpy)
    x = np.arange(N, dtype=np.float32)
    with opened(arch, engine) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        compute, copies, signal = gpu.queue(), gpu.queue(QueueKind.COPY), gpu.new_signal()
        staging = gpu.alloc(4 * N, MemoryKind.PINNED)
        staging.view().cast("f")[:] = memoryview(x)
        a, b = gpu.alloc(4 * N), gpu.alloc(4 * N)
        b.write(np.ones(N, np.float32))
        arguments = [a, b, np.float32(3), np.int32(N)]
        # The consumer is submitted before the producer: it must wait.
        compute.wait(signal, 1)
        compute.launch(kernel, arguments, grid=8, block=64)
        compute.signal(signal, 2)
        compute.submit()
        copies.copy(a, staging, 4 * N)
        copies.signal(signal, 1)
        copies.submit()
        copies.wait(signal, 2)
        copies.copy(staging, b, 4 * N)
        copies.signal(signal, 3)
        copies.submit()
        signal.wait(3)
        np.testing.assert_allclose(np.frombuffer(staging.view(), np.float32), 3 * x + 1)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_a_recording_is_patched_and_replayed(arch: str) -> None:
    engine = Engine(work=saxpy)
    with opened(arch, engine) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x, y, z = (gpu.array(np.full(N, v, np.float32)) for v in (1, 10, 100))
        recording = gpu.queue().record()
        first = recording.launch(
            kernel, [x, Binding(0), np.float32(1), np.int32(N)], grid=8, block=64
        )
        recording.launch(kernel, [x, Binding(1, 0), np.float32(1), np.int32(N)], grid=8, block=64)
        words = np.array([y.address, z.address], np.uint64)
        for _ in range(10):
            recording.replay(words)
        words[:] = z.address
        recording.patch(first, 2, np.float32(1000))
        recording.replay(words, timings=True)
        times = recording.timings_ns()
        assert len(times) == 2 and all(t > 0 for t in times)
        assert set(y.numpy()) == {20} and set(z.numpy()) == {1111}
        with pytest.raises(LaunchError, match="2 bindings"):
            recording.replay(words[:1])
        recording.close()
        with pytest.raises(DeviceClosed):
            recording.replay(words)


def test_registers_of_a_dispatch_are_those_of_its_descriptor() -> None:
    engine = Engine(work=saxpy)
    with opened("gfx1100", engine) as gpu:
        kernel = gpu.load(build(SAXPY, "gfx1100"))["saxpy"]
        x = gpu.array(np.zeros(64, np.float32))
        kernel(x, x, np.float32(1), np.int32(64), block=64)
        gpu.synchronize()
        dispatch = engine.dispatches[0]
        words = kernel.descriptor
        assert dispatch.entry_va == kernel.entry_va
        assert dispatch.rsrc[0] == words.compute_pgm_rsrc1 | 1 << 20  # PRIV
        assert dispatch.rsrc[1:] == (words.compute_pgm_rsrc2, words.compute_pgm_rsrc3)


def test_hidden_arguments_and_every_user_sgpr() -> None:
    """LLVM asks for all it may: dispatch pointer, queue pointer, 256 bytes of hidden arguments."""
    engine = Engine(kernarg_at=4, kernarg_bytes=8)
    for arch in ("gfx1100", "gfx90a"):
        with opened(arch, engine) as gpu:
            kernel = gpu.load(build(EVERYTHING, arch, ""))["everything"]
            names = [flag.name or "" for flag, _ in kernel.user_sgprs]
            assert any("DISPATCH_PTR" in name for name in names)
            at = 0
            for flag, count in kernel.user_sgprs:
                if "KERNARG" in (flag.name or ""):
                    engine.kernarg_at = at
                at += count
            engine.kernarg_bytes = kernel.arguments.size_bytes
            engine.segments.clear()
            out = gpu.alloc(4096)
            kernel(out, grid=(3, 2), block=(32, 2))
            gpu.synchronize()
            segment = engine.segments[0]
            words = np.frombuffer(segment, np.uint32)
            base = 8 // 4
            assert list(words[base : base + 3]) == [3, 2, 1]
            assert list(np.frombuffer(segment, np.uint16)[10:16]) == [32, 2, 1, 0, 0, 0]
            assert np.frombuffer(segment, np.uint16)[(8 + 64) // 2] == 2


def test_globals_are_read_and_written() -> None:
    with opened("gfx1201") as gpu:
        program = gpu.load(build(GLOBALS, "gfx1201"))
        assert program.read_global("counter") == (7).to_bytes(4, "little")
        program.write_global("counter", b"\x09\0\0\0")
        assert program.read_global("counter")[0] == 9
        with pytest.raises(LaunchError, match="constant"):
            program.write_global("table", b"\0")
        with pytest.raises(LaunchError, match="no global"):
            program.read_global("bump")


@pytest.mark.parametrize("options", [{}, {"large_bar": False}], ids=str)
def test_bytes_go_in_and_come_out(options: dict[str, Any]) -> None:
    data = np.random.default_rng(3).bytes(9 << 20)
    with opened("gfx1100", **options) as gpu:
        buffer = gpu.alloc(len(data))
        buffer.write(data)
        assert buffer.read() == data
        buffer.write(b"hello", 1001)
        assert buffer.read(7, 1000) == data[1000:1001] + b"hello" + data[1006:1007]
        with pytest.raises(DeviceError, match="outside"):
            buffer.write(b"12", len(data) - 1)
        with pytest.raises(DeviceError, match="VRAM"):
            buffer.view()


def test_fill_and_timestamps_of_a_copy_queue() -> None:
    with opened("gfx942") as gpu:
        queue, buffer = gpu.queue(QueueKind.COPY), gpu.alloc(10_000)
        before = queue.timestamp()
        queue.fill(buffer, 0xAB, 9_999)
        after = queue.timestamp()
        queue.submit()
        queue.synchronize()
        assert buffer.read(9_999) == b"\xab" * 9_999
        assert 0 < before.ns <= after.ns


def test_the_ring_wraps_and_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rawgpu.amd.driver.queue.RING_BYTES", 8192)
    engine = Engine(work=saxpy)
    with opened("gfx1100", engine) as gpu:
        kernel = gpu.load(build(SAXPY, "gfx1100"))["saxpy"]
        x, y = gpu.array(np.ones(64, np.float32)), gpu.array(np.zeros(64, np.float32))
        queue = gpu.own_queue()
        count = 5 * queue.ring.size_bytes // 2 // 400
        for _ in range(count):
            kernel(x, y, np.float32(1), np.int32(64), block=64)
        assert queue.ring.written > 2 * queue.ring.size_bytes
        assert set(y.numpy()) == {count}


@pytest.mark.parametrize("start", [0, (1 << 32) - 3, (1 << 40) + 5])
def test_timelines_are_rebased_before_the_wire_wraps(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rawgpu.amd.driver.signal.REBASE_AT", 5)
    with opened("gfx1100") as gpu:
        signal, compute, copies = gpu.new_signal(start), gpu.queue(), gpu.queue(QueueKind.COPY)
        assert signal.value == start
        for value in range(start + 1, start + 24, 2):
            compute.wait(signal, value - 1)  # a timeline has one writer at a time
            compute.signal(signal, value)
            compute.submit()
            copies.wait(signal, value)
            copies.signal(signal, value + 1)
            copies.submit()
        signal.wait(start + 24)
        assert signal.value == start + 24
        signal.wait(start)
        compute.signal(signal, start + (1 << 33))
        compute.submit()
        signal.wait(start + 30)
        assert signal.value == start + (1 << 33)


def test_a_signal_that_nobody_raises_ends_in_a_timeout() -> None:
    with opened("gfx1100") as gpu, pytest.raises(FenceTimeout, match="to reach 1"):
        gpu.new_signal().wait(1, timeout_ms=100)


def test_arguments_that_do_not_fit_are_refused_before_anything_is_submitted() -> None:
    engine = Engine()
    with opened("gfx1100", engine) as gpu:
        kernel = gpu.load(build(SAXPY, "gfx1100"))["saxpy"]
        x = gpu.array(np.zeros(64, np.float32))
        wrong: list[tuple[list[Any], dict[str, Any], str]] = [
            ([x, x, np.float32(1)], {}, "takes 4"),
            ([x, x, 1.0, np.int32(1)], {}, "no type"),
            ([x, x, np.float64(1), np.int32(1)], {}, "8 bytes for a value of 4"),
            ([1, x, np.float32(1), np.int32(1)], {}, "pointer"),
            ([x, x, np.float32(1), np.int32(1)], {"block": 512}, "limit is 256"),
            ([x, x, np.float32(1), np.int32(1)], {"grid": 1 << 30, "block": 64}, "in a row"),
            ([x, x, np.float32(1), np.int32(1)], {"grid": 0}, "positive"),
        ]
        for arguments, shape, text in wrong:
            with pytest.raises(LaunchError, match=text):
                kernel(*arguments, **shape)
        gpu.synchronize()
        assert engine.dispatches == []


def test_code_for_another_gpu_is_refused() -> None:
    with opened("gfx1100") as gpu:
        with pytest.raises(BadElf, match="gfx1100"):
            gpu.load(build(SAXPY, "gfx1201"))
        with pytest.raises(BadElf):
            gpu.load(b"nonsense")


def test_a_page_fault_names_address_buffer_and_kernel() -> None:
    def stray(dispatch: Any, memory: Any, segment: bytes) -> None:
        memory.write(int.from_bytes(segment[:8], "little") + (64 << 20), b"1234")

    with opened("gfx1100", Engine(work=stray)) as gpu:
        kernel = gpu.load(build(SAXPY, "gfx1100"))["saxpy"]
        x = gpu.array(np.zeros(64, np.float32))
        kernel(x, x, np.float32(1), np.int32(64), block=64)
        with pytest.raises(PageFault) as caught:
            gpu.synchronize()
        fault = caught.value
        assert fault.kernel == "saxpy" and fault.access == "write" and not fault.device_usable
        assert fault.address is not None and fault.address & -4096 == x.address + (64 << 20) & -4096
        with pytest.raises(PageFault):
            kernel(x, x, np.float32(1), np.int32(64), block=64)


def test_a_reset_is_reported() -> None:
    with Room("gfx1100", runner=Engine()) as room, driver.open_device("amd:0") as gpu:
        queue, signal = gpu.queue(), gpu.new_signal()
        room.faults.reset(gpu=0, packet=1)
        queue.signal(signal, 1)
        queue.submit()
        with pytest.raises(Reset):
            signal.wait(1, timeout_ms=20_000)


def test_a_hang_ends_in_a_bounded_wait_that_names_the_kernel() -> None:
    with Room("gfx1100", runner=Engine(work=saxpy)) as room, driver.open_device("amd:0") as gpu:
        kernel = gpu.load(build(SAXPY, "gfx1100"))["saxpy"]
        x = gpu.array(np.zeros(64, np.float32))
        gpu.own_queue()
        room.faults.hang(gpu=0, packet=2)
        kernel(x, x, np.float32(1), np.int32(64), block=64)
        with pytest.raises(Reset, match="after a hang") as caught:
            gpu.synchronize(timeout_ms=300)  # to look at its waves costs the GPU's state
        assert caught.value.running == ("saxpy",)


def test_a_lost_interrupt_costs_time_only() -> None:
    with Room("gfx1100", runner=Engine()) as room, driver.open_device("amd:0") as gpu:
        room.faults.lose_interrupt(gpu=0, times=100)
        queue, signal = gpu.queue(), gpu.new_signal()
        queue.signal(signal, 1)
        queue.submit()
        signal.wait(1)


def state(room: Room) -> Any:
    """What the kernel and the port hold for this process."""
    port: Any = room.port("amd")
    taken = port.process.taken.values()
    return (
        sorted(port.files),
        sorted(port.mapped),
        sorted(port.reserved),
        sorted(len(t.buffers) for t in taken),
        len(port.process.queues),
    )


@pytest.mark.parametrize("arch", ARCHES)
def test_closing_gives_everything_back(arch: str) -> None:
    engine = Engine(work=saxpy)
    with Room(arch, runner=engine) as room:
        driver.open_device("amd:0").close()
        before = state(room)
        for _ in range(3):
            with driver.open_device("amd:0") as gpu:
                kernel = engine.load(gpu, SAXPY, "saxpy")
                x = gpu.array(np.zeros(64, np.float32))
                kernel(x, x, np.float32(1), np.int32(64), block=64)
                gpu.queue(QueueKind.COPY)
                x.numpy()
            assert state(room) == before


CALLS = ("AllocMemoryOfGpu", "MapMemoryToGpu", "CreateQueue", "CreateEvent", "mmap")
ERRORS = (errno.ENOMEM, errno.EINVAL, errno.EPERM, errno.ENODEV, errno.EBUSY, errno.EAGAIN)


@pytest.mark.parametrize("call", CALLS)
def test_a_refused_call_is_a_typed_error_and_leaks_nothing(call: str) -> None:
    def use() -> None:
        with driver.open_device("amd:0") as gpu:
            kernel = gpu.load(build(SAXPY, "gfx1100"))["saxpy"]
            x = gpu.array(np.zeros(64, np.float32))
            kernel(x, x, np.float32(1), np.int32(64), block=64)
            x.numpy()

    with Room("gfx1100", runner=Engine(work=saxpy)) as room:
        use()
        before = state(room)
        for number in range(1, 16):
            room.faults.fail(call, errno=ERRORS[number % len(ERRORS)], nth=number)
            with contextlib.suppress(KernelCallFailed, OutOfMemory, DeviceError):
                use()
            room.faults.refusals.clear()
            assert state(room) == before, number
        use()


def test_two_gpus_share_memory() -> None:
    with Room("gfx1100*2", runner=Engine(work=saxpy)):
        assert [info.name for info in driver.discover()] == ["amd:0", "amd:1"]
        with driver.open_device("amd:0") as one, driver.open_device("amd:1") as two:
            kernel = two.load(build(SAXPY, "gfx1100"))["saxpy"]
            x, y = one.array(np.ones(64, np.float32)), two.array(np.zeros(64, np.float32))
            x.buffer.map_on(two)  # type: ignore[attr-defined]
            signal, queue = one.new_signal(), two.queue()
            queue.wait(signal, 1)
            queue.launch(kernel, [x, y, np.float32(5), np.int32(64)], block=64)
            queue.submit()
            first = one.queue()
            first.signal(signal, 1)
            first.submit()
            queue.synchronize()
            assert set(y.numpy()) == {5}


def stray(dispatch: Any, memory: Any, segment: bytes) -> None:
    memory.write(int.from_bytes(segment[:8], "little") + (64 << 20), b"1234")


def test_after_a_page_fault_the_process_goes_on_where_the_kernel_lets_it() -> None:
    engine = Engine()
    with Room("gfx1100", runner=engine, kernel="1.22") as room:
        held = set()
        for _ in range(8):
            engine.work = stray
            with driver.open_device("amd:0") as gpu:
                kernel = engine.load(gpu, SAXPY, "saxpy")
                x = gpu.array(np.zeros(64, np.float32))
                kernel(x, x, np.float32(1), np.int32(64), block=64)
                with pytest.raises(PageFault):
                    gpu.synchronize()
            engine.work = saxpy
            with driver.open_device("amd:0") as gpu:
                kernel = engine.load(gpu, SAXPY, "saxpy")
                x, y = (gpu.array(np.full(64, v, np.float32)) for v in (1, 2))
                kernel(x, y, np.float32(3), np.int32(64), block=64)
                assert set(y.numpy()) == {5}
            held.add(tuple(map(len, state(room)[:3])))
        assert len(held) <= 2, held


def test_after_a_page_fault_an_older_kernel_wants_a_new_process() -> None:
    engine = Engine(work=stray)
    with Room("gfx1100", runner=engine):
        with driver.open_device("amd:0") as gpu:
            kernel = engine.load(gpu, SAXPY, "saxpy")
            x = gpu.array(np.zeros(64, np.float32))
            kernel(x, x, np.float32(1), np.int32(64), block=64)
            with pytest.raises(PageFault):
                gpu.synchronize()
        with pytest.raises(ProcessMustRestart, match="page fault"):
            driver.open_device("amd:0")


@pytest.mark.parametrize("kernel", ["6.1", "6.6", "6.12", "6.12.107", "1.22"])
@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_every_kernel_version_serves_us(kernel: str, arch: str) -> None:
    engine = Engine(work=saxpy)
    with opened(arch, engine, kernel=kernel) as gpu:
        x = gpu.array(np.ones(64, np.float32))
        engine.load(gpu, SAXPY, "saxpy")(x, x, np.float32(1), np.int32(64), block=64)
        assert set(x.numpy()) == {2}


@pytest.mark.parametrize("arch", ["gfx950", "gfx1030", "gfx1103", "gfx1150", "gfx1151", "gfx1200"])
def test_other_gpus_take_a_launch_and_a_copy(arch: str) -> None:
    """Among them some whose HDP registers are not known: the CPU flushes there."""
    engine = Engine(work=saxpy)
    with opened(arch, engine) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x, y = (gpu.array(np.full(64, v, np.float32)) for v in (1, 2))
        kernel(x, y, np.float32(3), np.int32(64), block=64)
        x.buffer.write(np.full(64, 10, np.float32))
        kernel(x, y, np.float32(1), np.int32(64), block=64)
        assert set(y.numpy()) == {15}


def test_a_note_with_types_lets_plain_numbers_in() -> None:
    rows = {
        "saxpy": [
            Parameter("x", "pointer"),
            Parameter("y", "pointer", True),
            Parameter("a", "float32"),
            Parameter("n", "int32"),
        ]
    }
    engine = Engine(work=saxpy)
    with opened("gfx1100", engine) as gpu:
        program = gpu.load(build(SAXPY + signature_note_ir(rows), "gfx1100"))
        kernel = program["saxpy"]
        assert kernel.signature == tuple(rows["saxpy"])
        x = gpu.array(np.ones(64, np.float32))
        kernel(x, x, 2.0, 64, block=64)
        assert set(x.numpy()) == {3}
        with pytest.raises(LaunchError, match="float64 for float32"):
            kernel(x, x, np.float64(2), 64, block=64)
        wrong = {"saxpy": [Parameter("x", "pointer")]}
        with pytest.raises(BadElf, match="disagree"):
            gpu.load(build(SAXPY + signature_note_ir(wrong), "gfx1100"))


def test_a_machine_without_the_driver_has_no_devices() -> None:
    """No room is open, and a host without KFD has no AMD GPU that we could see."""
    for info in driver.discover():
        assert not info.virtual


def test_a_gpu_that_no_row_describes_is_refused_with_the_nearest() -> None:
    with Room("gfx1100", runner=Engine()) as room:
        port: Any = room.port("amd")
        node = gpu_nodes(port)[0]
        odd = dataclasses.replace(
            node, properties={**node.properties, "gfx_target_version": 110900}
        )
        with pytest.raises(UnsupportedDevice, match="gfx1190"):
            driver.AmdDevice("amd:0", port, odd)
