"""Kernel faults become exceptions that explain, on every thread, and the process goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawgpu.compiler_bridge.llvm import Target, compile_in_process
from rawgpu.contract import Binding
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.cpu.driver.program import CpuProgram
from rawgpu.errors import (
    ArithmeticFault,
    IllegalInstruction,
    KernelFault,
    PageFault,
    StackOverflow,
)
from rawgpu.native import system
from rawgpu.native.code import BASELINE
from rawgpu.native.threads import GUARD_BYTES, KERNEL_STACK_BYTES
from tests.cpu.driver.kernels import signed

ON_X86 = system.MACHINE == "x86_64"


@pytest.fixture
def gpu() -> Any:
    with CpuDevice() as device:
        yield device


@pytest.fixture
def kernels(gpu: CpuDevice) -> Any:
    return gpu.load(signed())


def fault_of(gpu: CpuDevice, kernel: Any, *arguments: Any, grid: Any = 1) -> KernelFault:
    kernel(*arguments, grid=grid)
    with pytest.raises(KernelFault) as caught:
        gpu.synchronize()
    gpu.synchronize()
    return caught.value


def still_works(gpu: CpuDevice, kernels: CpuProgram) -> None:
    x = gpu.array(np.zeros(4, np.float32))
    kernels["add"](x, 2.0, grid=4)
    assert x.numpy().tolist() == [2.0] * 4


def test_a_write_to_nowhere(gpu: CpuDevice, kernels: CpuProgram) -> None:
    fault = fault_of(gpu, kernels["write_to"], np.uint64(0x1230))
    assert isinstance(fault, PageFault)
    assert (fault.kernel, fault.address, fault.access) == ("write_to", 0x1230, "write")
    assert fault.device_usable
    assert fault.nearest is None
    assert "wrote 0x1230" in str(fault)
    still_works(gpu, kernels)


def test_a_read_from_nowhere(gpu: CpuDevice, kernels: CpuProgram) -> None:
    fault = fault_of(gpu, kernels["read_from"], np.uint64(0x1000))
    assert (type(fault), fault.address, fault.access) == (PageFault, 0x1000, "read")
    assert fault.offset is not None
    assert 0 < fault.offset < 64


def test_a_jump_to_nowhere(gpu: CpuDevice, kernels: CpuProgram) -> None:
    fault = fault_of(gpu, kernels["jump_to"], np.uint64(0x4000))
    assert (type(fault), fault.address, fault.access) == (PageFault, 0x4000, "execute")
    assert fault.offset is None
    still_works(gpu, kernels)


def test_a_jump_into_data(gpu: CpuDevice, kernels: CpuProgram) -> None:
    data = gpu.array(np.zeros(64, np.uint8))
    fault = fault_of(gpu, kernels["jump_to"], data)
    assert (type(fault), fault.address, fault.access) == (PageFault, data.address, "execute")


def test_a_fault_inside_a_function_that_the_kernel_calls(
    gpu: CpuDevice, kernels: CpuProgram
) -> None:
    fault = fault_of(gpu, kernels["clear"], np.uint64(0x3000))
    assert (type(fault), fault.access, fault.offset) == (PageFault, "write", None)
    assert 0x3000 <= fault.address < 0x4000


@pytest.mark.skipif(not ON_X86, reason="x86-64 has addresses that are not canonical")
def test_an_address_that_is_not_canonical(gpu: CpuDevice, kernels: CpuProgram) -> None:
    fault = fault_of(gpu, kernels["read_from"], np.uint64(1 << 60))
    assert fault.address is None
    assert "canonical" in str(fault)


def test_an_illegal_instruction(gpu: CpuDevice, kernels: CpuProgram) -> None:
    fault = fault_of(gpu, kernels["trap"])
    assert type(fault) is IllegalInstruction
    assert (fault.kernel, fault.address) == ("trap", None)
    still_works(gpu, kernels)


@pytest.mark.skipif(not ON_X86, reason="AArch64 divides by zero without a fault")
def test_a_division_by_zero(gpu: CpuDevice, kernels: CpuProgram) -> None:
    out = gpu.array(np.zeros(1, np.int64))
    fault = fault_of(gpu, kernels["divide"], out, 0)
    assert type(fault) is ArithmeticFault
    kernels["divide"](out, 7)
    assert out.numpy()[0] == 14


def test_a_stack_overflow(gpu: CpuDevice, kernels: CpuProgram) -> None:
    out = gpu.array(np.zeros(1, np.int64))
    for _ in range(3):
        assert type(fault_of(gpu, kernels["recurse"], out)) is StackOverflow
    still_works(gpu, kernels)


def test_the_nearest_allocation_is_named(gpu: CpuDevice, kernels: CpuProgram) -> None:
    big = gpu.alloc(8 << 20)
    page = big.address + (1 << 20)
    system.protect_pages(page, system.PAGE_BYTES, system.PROT_NONE)
    fault = fault_of(gpu, kernels["read_from"], np.uint64(page + 8))
    system.protect_pages(page, system.PAGE_BYTES, system.PROT_READ | system.PROT_WRITE)
    assert fault.nearest == f"1048584 bytes into the 8388608-byte buffer at {big.address:#x}"
    assert fault.nearest in str(fault)


def test_the_rest_of_a_faulting_submit_does_not_run(gpu: CpuDevice, kernels: CpuProgram) -> None:
    x = gpu.array(np.zeros(1, np.float32))
    queue = gpu.queue()
    done = gpu.new_signal()
    queue.launch(kernels["add"], [x, 1.0])
    queue.launch(kernels["trap"], [])
    queue.launch(kernels["add"], [x, 10.0])
    queue.signal(done, 1)
    queue.submit()
    with pytest.raises(IllegalInstruction):
        done.wait(1)
    with pytest.raises(IllegalInstruction):
        queue.synchronize()
    assert x.numpy()[0] == 1.0
    queue.launch(kernels["add"], [x, 100.0])
    queue.submit()
    queue.synchronize()
    assert x.numpy()[0] == 101.0


def test_a_fault_in_a_recording_names_the_launch_and_spares_the_recording(
    gpu: CpuDevice, kernels: CpuProgram
) -> None:
    x = gpu.array(np.zeros(1, np.float32))
    queue = gpu.queue()
    recording = queue.record()
    recording.launch(kernels["add"], [x, 1.0])
    recording.launch(kernels["write_to"], [Binding(0)])
    recording.launch(kernels["add"], [x, 10.0])
    recording.replay([64])
    with pytest.raises(PageFault, match="write_to"):
        queue.synchronize()
    assert x.numpy()[0] == 1.0
    room = gpu.alloc(4)
    recording.replay([room.address])
    queue.synchronize()
    assert x.numpy()[0] == 12.0
    assert room.read(4) == b"\1\0\0\0"


def test_the_first_of_several_faults_is_raised_and_only_that(
    gpu: CpuDevice, kernels: CpuProgram
) -> None:
    kernels["write_to"](np.uint64(0x1230))
    kernels["trap"]()
    kernels["write_to"](np.uint64(0x5670))
    with pytest.raises(PageFault) as caught:
        gpu.synchronize()
    assert caught.value.address == 0x1230
    gpu.synchronize()


def test_a_copy_from_a_bad_address_is_a_fault(gpu: CpuDevice) -> None:
    queue = gpu.queue()
    recording = queue.record()
    recording.copy(gpu.alloc(64), Binding(0), 64)
    recording.replay([0x1000])
    with pytest.raises(PageFault) as caught:
        queue.synchronize()
    assert (caught.value.kernel, caught.value.access) == ("copy", "read")


@pytest.mark.parametrize("which", [0, 1, 500, 999])
def test_a_fault_in_a_shared_launch_stops_it_whoever_met_it(
    monkeypatch: pytest.MonkeyPatch, which: Any
) -> None:
    monkeypatch.setenv("RAWGPU_THREADS", "4")
    with CpuDevice() as gpu:
        kernels = gpu.load(signed())
        for _ in range(5):
            fault = fault_of(gpu, kernels["fault_in_block"], which, grid=1000)
            assert (type(fault), fault.address, fault.access) == (PageFault, 0x1000, "write")
            assert fault.kernel == "fault_in_block"
        still_works(gpu, kernels)
        counts = gpu.array(np.zeros(1000, np.int32))
        kernels["count"](counts, 10_000, grid=1000)
        assert (counts.numpy() == 1).all()


def test_faults_on_several_threads_at_once(gpu: CpuDevice, kernels: CpuProgram) -> None:
    many_faults(gpu, kernels, each=200)


@pytest.mark.full
def test_ten_thousand_faults_on_three_threads_leak_nothing(
    gpu: CpuDevice, kernels: CpuProgram
) -> None:
    many_faults(gpu, kernels, each=100)
    before = resident_bytes()
    many_faults(gpu, kernels, each=3400)
    assert resident_bytes() - before < 8 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * system.PAGE_BYTES


def many_faults(gpu: CpuDevice, kernels: CpuProgram, each: int) -> None:
    counts: list[int] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            queue = gpu.queue()
            out = gpu.array(np.zeros(1, np.int64))
            rows = [
                (kernels["write_to"], [np.uint64(64)], PageFault),
                (kernels["trap"], [], IllegalInstruction),
                (kernels["recurse"], [out], StackOverflow),
            ]
            seen = 0
            for turn in range(each):
                kernel, arguments, expected = rows[turn % 3]
                queue.launch(kernel, arguments)
                queue.submit()
                try:
                    queue.synchronize()
                except expected:
                    seen += 1
            counts.append(seen)
            queue.close()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems
    assert counts == [each] * 3
    still_works(gpu, kernels)


PROGRAM = """
import faulthandler, sys
import numpy as np
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.errors import KernelFault
from tests.cpu.driver.kernels import signed

when = sys.argv[1]
if when == "before":
    faulthandler.enable()
gpu = CpuDevice()
kernels = gpu.load(signed())
if when == "after":
    faulthandler.enable()
if when == "again":
    faulthandler.enable()
    faulthandler.disable()
    faulthandler.enable()

def fault():
    kernels["write_to"](np.uint64(64))
    try:
        gpu.synchronize()
    except KernelFault as error:
        print("caught", error.address, flush=True)

recording = gpu.queue().record()
recording.launch(kernels["trap"], [])
fault()
if when == "between":
    faulthandler.enable()
for _ in range(20):
    fault()
print("alive", flush=True)
if "crash" in sys.argv:
    faulthandler._sigsegv()
"""


def run_program(*arguments: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, *flags, "-c", PROGRAM, *arguments],
        cwd=root, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("when", ["never", "before", "after", "between", "again"])
def test_kernel_faults_are_caught_whenever_faulthandler_comes(when: str) -> None:
    done = run_program(when)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("caught") == 21
    if when != "between":  # there the first may pass through the newcomer, which prints
        assert done.stdout.count("caught 64") == 21
        assert "Fatal Python error" not in done.stderr


@pytest.mark.parametrize("when", ["before", "after", "between", "again"])
def test_a_real_crash_still_gives_faulthandlers_traceback(when: str) -> None:
    done = run_program(when, "crash")
    assert "alive" in done.stdout
    assert done.returncode == -11, (done.returncode, done.stderr)
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1
    assert "Current thread" in done.stderr


def test_a_real_crash_ends_the_process_as_it_would_without_us() -> None:
    done = run_program("never", "crash")
    assert (done.returncode, done.stderr) == (-11, "")


def test_a_real_crash_with_faulthandler_from_the_command_line() -> None:
    done = run_program("never", "crash", flags=("-X", "faulthandler"))
    assert done.returncode == -11
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1


def test_the_guard_is_as_large_as_it_says() -> None:
    assert GUARD_BYTES >= 1 << 20
    assert KERNEL_STACK_BYTES >= 1 << 20


LEAVES_FLAGS = """
define void @aligned_only(ptr %args, i64 %begin, i64 %end) {
  call void asm sideeffect "pushfq; orl $$0x40000,(%rsp); popfq", "~{memory}"()
  ret void
}
define void @backwards(ptr %args, i64 %begin, i64 %end) {
  call void asm sideeffect "std", "~{memory}"()
  ret void
}
define void @aligned_only_then_faults(ptr %args, i64 %begin, i64 %end) {
  call void asm sideeffect "pushfq; orl $$0x40000,(%rsp); popfq; movq -127(%rsp), %rax",
    "~{rax},~{memory}"()
  ret void
}
define void @backwards_then_faults(ptr %args, i64 %begin, i64 %end) {
  call void asm sideeffect "std; ud2", "~{memory}"()
  ret void
}
define void @steps(ptr %args, i64 %begin, i64 %end) {
  call void asm sideeffect "pushfq; orl $$0x100,(%rsp); popfq; nop", "~{memory}"()
  ret void
}
"""

IN_A_PROCESS = """
import sys
import numpy as np
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.errors import KernelFault
with CpuDevice() as gpu:
    kernels = gpu.load(open(sys.argv[1], "rb").read())
    for turn in range(3):
        for name in kernels:
            for grid in (1, 64):
                kernels[name](grid=grid)
                try:
                    gpu.synchronize()
                except KernelFault as fault:
                    print(name, type(fault).__name__)
                data = np.arange(100_003, dtype=np.uint8)
                x, y = gpu.array(data), gpu.array(np.zeros_like(data))
                queue = gpu.queue()
                queue.launch(kernels[name], [])
                queue.copy(y.buffer, x.buffer, data.nbytes)
                queue.submit()
                try:
                    queue.synchronize()
                    assert (y.numpy() == data).all(), name
                except KernelFault:
                    pass
                assert bytes(data) == bytes(x.numpy()), name
print("ends")
"""


@pytest.mark.skipif(not ON_X86, reason="flags of x86-64")
def test_flags_that_a_kernel_leaves_do_not_reach_beyond_it(tmp_path: Path) -> None:
    path = tmp_path / "flags.o"
    path.write_bytes(compile_in_process(LEAVES_FLAGS, Target(*BASELINE["x86_64"], "")))
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    told = set(done.stdout.splitlines())
    assert told == {
        "aligned_only_then_faults MisalignedAccess",
        "backwards_then_faults IllegalInstruction",
        "steps IllegalInstruction",
        "ends",
    }
