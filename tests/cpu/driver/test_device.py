"""The device: facts, programs, launches by hand, and that closing gives everything back."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rawgpu
from rawgpu.contract import Buffer, Parameter
from rawgpu.cpu.driver import host
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.errors import (
    BadElf,
    DeviceClosed,
    DeviceError,
    DeviceNotFound,
    LaunchError,
    OutOfMemory,
    RawGpuError,
)
from rawgpu.native import system
from rawgpu.native.elf import signature_note_ir
from rawgpu.native.threads import GUARD_BYTES
from tests.build import elf as build
from tests.cpu.driver.kernels import SIGNATURES, signed, unsigned

ROOT = Path(__file__).parents[3]


@pytest.fixture
def gpu() -> Any:
    with CpuDevice() as device:
        yield device


def test_saxpy_by_hand(gpu: CpuDevice) -> None:
    n = 100_000
    numpy_x = np.arange(n, dtype=np.float32)
    numpy_y = np.ones(n, np.float32)
    saxpy = gpu.load(signed())["saxpy"]
    x, y = gpu.array(numpy_x), gpu.array(numpy_y)
    saxpy(x, y, np.float32(2.0), np.int32(n), grid=-(-n // 256), block=1)
    np.testing.assert_array_equal(y.numpy(), 2 * numpy_x + 1)
    saxpy(x, y, 1.0, n, grid=-(-n // 256))
    np.testing.assert_array_equal(y.numpy(), 3 * numpy_x + 1)


def test_every_scalar_type_reaches_the_kernel(gpu: CpuDevice) -> None:
    out = gpu.array(np.zeros(8, np.uint64))
    gpu.load(signed())["words"](out, -1, 65535, -2, 1 << 40, 0.5, 1.0, True)
    assert out.numpy().tolist() == [
        out.address, 0xFF, 0xFFFF, 0xFFFFFFFE, 1 << 40, 0x3FE0000000000000, 0x3C00, 1,
    ]  # fmt: skip


def test_signatures_are_those_of_the_note(gpu: CpuDevice) -> None:
    program = gpu.load(signed())
    assert set(program) == set(SIGNATURES)
    assert program["saxpy"].signature == tuple(SIGNATURES["saxpy"])
    assert gpu.load(unsigned())["saxpy"].signature is None


def test_an_unknown_kernel_is_refused_with_the_names_there_are(gpu: CpuDevice) -> None:
    with pytest.raises(LaunchError, match=r"no kernel 'sacspy'; it has .*saxpy"):
        gpu.load(signed())["sacspy"]


def test_a_note_about_a_kernel_that_is_not_there_is_refused(gpu: CpuDevice) -> None:
    from rawgpu.compiler_bridge.llvm import compile_in_process

    text = "define void @f(ptr %a, i64 %b, i64 %e) {\n  ret void\n}\n"
    with pytest.raises(BadElf, match="'g'"):
        gpu.load(compile_in_process(text + signature_note_ir({"g": [Parameter("x", "pointer")]})))


def test_what_is_no_elf_is_refused(gpu: CpuDevice) -> None:
    for image in (b"", b"\x7fELF", bytes(1000)):
        with pytest.raises(BadElf):
            gpu.load(image)


def test_arrays_keep_shape_and_type(gpu: CpuDevice) -> None:
    for value in (
        np.arange(24, dtype=np.int16).reshape(2, 3, 4),
        np.arange(24, dtype=np.float64).reshape(4, 6).T,
        np.zeros((3, 0), np.float32),
        np.float32(3.5),
        [[1, 2], [3, 4]],
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
    ):
        array = gpu.array(value)
        assert array.shape == np.shape(value)
        assert array.dtype == np.asarray(value).dtype
        np.testing.assert_array_equal(array.numpy(), value)
    with pytest.raises(LaunchError, match="object"):
        gpu.array(np.array([object()]))


def test_globals_are_read_and_written(gpu: CpuDevice) -> None:
    program = gpu.load(signed())
    out = gpu.array(np.zeros(1, np.int32))
    assert np.frombuffer(program.read_global("table"), np.int32).tolist() == [1, 2, 3, 4]
    program.write_global("table", np.array([5, 6], np.int32).tobytes())
    program["sum_table"](out)
    assert out.numpy()[0] == 6
    assert program.read_global("fixed") == b"\x09\0\0\0"
    for symbol, data, says in [
        ("table", bytes(17), "17 bytes"),
        ("fixed", bytes(4), "constant"),
        ("add", bytes(1), "no global"),
        ("nothing", bytes(1), "no global"),
    ]:
        with pytest.raises(LaunchError, match=says):
            program.write_global(symbol, data)


def test_kernels_of_a_closed_program_go_on_but_the_program_refuses(gpu: CpuDevice) -> None:
    program = gpu.load(signed())
    add = program["add"]
    x = gpu.array(np.zeros(1, np.float32))
    program.close()
    program.close()
    add(x, 1.0)
    assert x.numpy()[0] == 1.0
    with pytest.raises(DeviceClosed):
        program["add"]
    with pytest.raises(DeviceClosed):
        program.read_global("table")


def test_buffers_keep_the_contract(gpu: CpuDevice) -> None:
    buffer = gpu.alloc(10)
    assert isinstance(buffer, Buffer)
    assert buffer.device is gpu
    assert buffer.host_visible


def test_properties_are_this_machines(gpu: CpuDevice) -> None:
    facts = gpu.properties
    assert facts.compute_units == len(os.sched_getaffinity(0))
    assert facts.lanes in (4, 8, 16)
    assert facts.title
    assert facts.memory_bytes > 1 << 28
    assert list(facts.cache_bytes) == sorted(facts.cache_bytes)
    assert set(gpu.target()) == {"triple", "cpu", "features"}


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    for i, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2M"), (3, "Unified", "x")]
    ):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        (folder / "level").write_text(f"{level}\n")
        (folder / "type").write_text(kind + "\n")
        (folder / "size").write_text(size + "\n")
    assert host.data_caches(tmp_path) == (48 << 10, 2 << 20)
    assert host.data_caches(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("names", "lanes"), [({"avx512f", "avx2"}, 16), ({"avx2"}, 8), ({"asimd"}, 4)]
)
def test_lanes_follow_the_widest_vector_unit(names: Any, lanes: Any) -> None:
    assert host.vector_lanes(frozenset(names)) == lanes


def test_sizes_take_units() -> None:
    assert [host.size_bytes(t) for t in ("5", "2K", "3m", "1G", "1GiB")] == [
        5, 2048, 3 << 20, 1 << 30, 1 << 30,
    ]  # fmt: skip
    with pytest.raises(RawGpuError, match="no size"):
        host.size_bytes("much")


def held() -> tuple[int, int, int]:
    """Descriptors, mappings, threads of this process."""
    proc = Path("/proc/self")
    return (
        len(list((proc / "fd").iterdir())),
        (proc / "maps").read_text().count("\n"),
        len(list((proc / "task").iterdir())),
    )


def use(threads: str) -> None:
    os.environ["RAWGPU_THREADS"] = threads
    try:
        with CpuDevice() as gpu:
            kernels = gpu.load(signed())
            counts = gpu.array(np.zeros(1000, np.int32))
            kernels["count"](counts, 1000, grid=1000)
            recording = gpu.queue().record()
            recording.launch(kernels["count"], [counts, 1], grid=1000, work_ns=10**7)
            recording.replay()
            assert (counts.numpy() == 2).all()
            gpu.alloc(32 << 20).write(b"x")
            gpu.new_signal()
    finally:
        del os.environ["RAWGPU_THREADS"]


def test_closing_gives_everything_back() -> None:
    use("3")
    gc.collect()
    before = held()
    for _ in range(100):
        use("3")
    gc.collect()
    descriptors, mappings, threads = held()
    assert descriptors == before[0]
    assert threads == before[2]
    assert mappings <= before[1] + 4  # the C library's own allocator may have grown


def test_a_device_that_is_dropped_without_closing_ends_its_threads() -> None:
    os.environ["RAWGPU_THREADS"] = "3"
    try:
        before = held()[2]
        gpu = CpuDevice()
        counts = gpu.array(np.zeros(1000, np.int32))
        gpu.load(signed())["count"](counts, 10, grid=1000)
        assert held()[2] == before + 2
        del gpu, counts
        gc.collect()
        assert held()[2] == before
    finally:
        del os.environ["RAWGPU_THREADS"]


def test_code_is_unmapped_when_the_device_closes() -> None:
    gpu = CpuDevice()
    program = gpu.load(signed())
    address = program["add"].address
    assert f"{address & -4096:x}-" in Path("/proc/self/maps").read_text()
    gpu.close()
    assert f"{address & -4096:x}-" not in Path("/proc/self/maps").read_text()
    with pytest.raises(DeviceClosed):
        program["add"]


def test_helpers_start_with_the_first_launch_that_could_use_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAWGPU_THREADS", "3")
    before = held()[2]
    with CpuDevice() as gpu:
        kernels = gpu.load(signed())
        counts = gpu.array(np.zeros(1000, np.int32))
        kernels["count"](counts, 10)
        assert held()[2] == before
        kernels["count"](counts, 10, grid=1000)
        assert held()[2] == before + 2
    assert held()[2] == before


def guards() -> int:
    """Inaccessible runs as large as the guard of a kernel stack."""
    found = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags = line.split()[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        found += flags == "---p" and high - low == GUARD_BYTES
    return found


@pytest.mark.parametrize("value", ["0", "-1", "many", "99999"])
def test_an_impossible_number_of_threads_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    monkeypatch.setenv("RAWGPU_THREADS", value)
    with pytest.raises(DeviceError, match="RAWGPU_THREADS"):
        CpuDevice()


def test_a_thread_that_ends_gives_its_stacks_back(gpu: CpuDevice) -> None:
    kernels = gpu.load(signed())
    x = gpu.array(np.zeros(1, np.float32))
    kernels["add"](x, 1.0)

    def work() -> None:
        kernels["add"](x, 1.0)

    def run_threads(count: int) -> None:
        for _ in range(count):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

    run_threads(3)
    count = gpu.code.image.words("context_count", 1)
    before = count[0], guards()
    run_threads(50)
    assert (count[0], guards()) == before
    assert x.numpy()[0] == 54.0


FORK = """
import os, sys
import numpy as np
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.errors import KernelFault
from tests.cpu.driver.kernels import signed

os.environ["RAWGPU_THREADS"] = "4"
gpu = CpuDevice()
kernels = gpu.load(signed())
counts = gpu.array(np.zeros(1000, np.int32))
kernels["count"](counts, 1000, grid=1000)
child = os.fork()
if child == 0:
    kernels["count"](counts, 20000, grid=1000)
    ok = (counts.numpy() == 2).all()
    kernels["write_to"](np.uint64(64))
    try:
        gpu.synchronize()
    except KernelFault:
        pass
    else:
        ok = False
    gpu.close()
    with CpuDevice() as fresh:
        again = fresh.array(np.zeros(1000, np.int32))
        fresh.load(signed())["count"](again, 20000, grid=1000)
        ok = ok and (again.numpy() == 1).all()
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
kernels["count"](counts, 20000, grid=1000)
assert (counts.numpy() == 2).all()
print("child", status)
"""


def test_a_forked_child_goes_on_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "child 0\n", done.stderr


EXIT = """
import threading
import numpy as np
from rawgpu.cpu.driver.device import CpuDevice
from tests.cpu.driver.kernels import signed
gpu = CpuDevice()
kernels = gpu.load(signed())
counts = gpu.array(np.zeros(1000, np.int32))
queue = gpu.queue()
signal = gpu.new_signal()
queue.wait(signal, 1)
queue.launch(kernels["count"], [counts, 1000], grid=1000)
queue.submit()
kernels["count"](counts, 1000, grid=1000)
thread = threading.Thread(target=lambda: kernels["count"](counts, 10), daemon=True)
thread.start()
print("end")
"""


def test_a_process_ends_cleanly_with_a_device_left_open() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", EXIT],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "RAWGPU_THREADS": "4"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


WRONG: dict[str, tuple[type[RawGpuError], Any]] = {
    "load text": (BadElf, lambda gpu: gpu.load("abc")),
    "load None": (BadElf, lambda gpu: gpu.load(None)),
    "load a path": (BadElf, lambda gpu: gpu.load(Path("a.o"))),
    "alloc text": (LaunchError, lambda gpu: gpu.alloc("a")),
    "alloc a fraction": (LaunchError, lambda gpu: gpu.alloc(1.5)),
    "write text": (LaunchError, lambda gpu: gpu.alloc(8).write("x")),
    "write objects": (LaunchError, lambda gpu: gpu.alloc(8).write(np.array([None]))),
    "write at text": (LaunchError, lambda gpu: gpu.alloc(8).write(b"x", "a")),
    "read text": (LaunchError, lambda gpu: gpu.alloc(8).read("a")),
    "synchronize": (LaunchError, lambda gpu: gpu.synchronize("a")),
    "synchronize NaN": (LaunchError, lambda gpu: gpu.synchronize(float("nan"))),
    "synchronize a queue": (LaunchError, lambda gpu: gpu.queue().synchronize("a")),
    "a queue of a kind": (LaunchError, lambda gpu: gpu.queue("compute")),
    "a signal of text": (LaunchError, lambda gpu: gpu.new_signal("a")),
    "a signal below 0": (LaunchError, lambda gpu: gpu.new_signal(-1)),
    "wait for text": (LaunchError, lambda gpu: gpu.new_signal().wait("a")),
    "fill with text": (LaunchError, lambda gpu: gpu.queue().fill(gpu.alloc(8), "a", 8)),
    "copy text": (LaunchError, lambda gpu: gpu.queue().copy("a", gpu.alloc(8), 8)),
    "launch None": (LaunchError, lambda gpu: gpu.queue().launch(None, [])),
    "write a global": (LaunchError, lambda gpu: gpu.load(signed()).write_global("table", "a")),
}


@pytest.mark.parametrize("what", WRONG)
def test_arguments_of_the_wrong_type_are_refused(gpu: CpuDevice, what: str) -> None:
    kind, call = WRONG[what]
    with pytest.raises(kind):
        call(gpu)


@pytest.mark.parametrize("name", ["", "cpu:", "cpu:x", ":0", 3])
def test_a_name_that_is_none_finds_no_device(name: Any) -> None:
    with pytest.raises(DeviceNotFound):
        rawgpu.open(name)


def test_a_closed_device_gives_no_queue() -> None:
    gpu = CpuDevice()
    gpu.close()
    with pytest.raises(DeviceClosed):
        gpu.queue()


def test_a_kernel_that_is_in_no_section_of_code_is_refused(gpu: CpuDevice) -> None:
    for flags in (build.ALLOC, build.ALLOC | build.WRITE, 0):
        elf = build.ElfBuilder(machine={"x86_64": 62, "aarch64": 183}[system.MACHINE])
        elf.section(".text", bytes(16), flags=build.ALLOC | build.EXEC, align=16)
        other = elf.section(".other", bytes(16), flags=flags, align=16)
        elf.symbol("k", section=other, value=0, size=16, kind=build.FUNC)
        with pytest.raises(BadElf, match="'k' is not defined in a section of code"):
            gpu.load(elf.build())


def test_programs_are_unmapped_when_their_last_kernel_goes(gpu: CpuDevice) -> None:
    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    kernel = gpu.load(signed())["add"]
    kernel(gpu.array(np.zeros(1, np.float32)), 1.0)
    before = mappings()
    for _ in range(50):
        kernel = gpu.load(signed())["add"]
        kernel(gpu.array(np.zeros(1, np.float32)), 1.0)
    gc.collect()
    assert mappings() < before + 30


@pytest.mark.parametrize("call", ["mmap", "mprotect"])
def test_no_room_for_a_program_is_out_of_memory(
    gpu: CpuDevice, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoRoom:
        def __getattr__(self, name: str) -> Any:
            real = getattr(system.ffi.dlopen(None), name)
            if name != call:
                return real

            def refused(*arguments: Any) -> Any:
                system.ffi.errno = 12
                return system.ffi.cast("void *", -1) if call == "mmap" else -1

            return refused

    monkeypatch.setattr(system, "libc", NoRoom())
    with pytest.raises(OutOfMemory, match="max_map_count"):
        gpu.load(signed())
