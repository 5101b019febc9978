"""The machine code that was loaded is what runs: one opcode changed in GPU memory, another result.

LLVM says what the change is: two kernels that differ in nothing but add and subtract.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver.region import Region
from rawgpu.amd.virtual.wave import COUNTERS, interpret_dispatch, run_dispatch
from rawgpu.compiler_bridge.llvm import Target, compile_ir
from rawgpu.virtual.room import Room

pytestmark = pytest.mark.virtual
BLOCK, BLOCKS = 128, 8
ENGINES: dict[str, Any] = {"lifted": run_dispatch, "interpreted": interpret_dispatch}

# A loop, so that no engine thinks the launch too small to lift.
KERNEL = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @sum(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %times) #0 {
entry:
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = shl i32 %g, 7
  %j = add i32 %b, %i
  %k = zext i32 %j to i64
  %px = getelementptr float, ptr addrspace(1) %x, i64 %k
  %py = getelementptr float, ptr addrspace(1) %y, i64 %k
  %vx = load float, ptr addrspace(1) %px
  %vy = load float, ptr addrspace(1) %py
  br label %loop
loop:
  %n = phi i32 [0, %entry], [%m, %loop]
  %t = phi float [%vy, %entry], [%s, %loop]
  %s = OPERATION float %t, %vx
  %m = add i32 %n, 1
  %more = icmp ult i32 %m, %times
  br i1 %more, label %loop, label %done, !llvm.loop !0
done:
  store float %s, ptr addrspace(1) %py
  ret void
}
attributes #0 = { nounwind "target-cpu"="CPU" "amdgpu-flat-work-group-size"="128,128"
  "uniform-work-group-size"="true" }
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.unroll.disable"}
"""


@functools.cache
def program(arch: str, operation: str) -> bytes:
    text = KERNEL.replace("CPU", arch).replace("OPERATION", operation)
    return compile_ir(text, Target("amdgcn-amd-amdhsa", arch, ""))


def difference(before: bytes, after: bytes) -> tuple[int, bytes]:
    """The one dword in which two images differ."""
    assert len(before) == len(after)
    places = [at for at in range(0, len(before), 4) if before[at : at + 4] != after[at : at + 4]]
    (at,) = places
    return at, after[at : at + 4]


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201", "gfx90a", "gfx942"])
@pytest.mark.parametrize("engine", ENGINES)
def test_an_opcode_changed_in_gpu_memory_changes_the_result(arch: str, engine: str) -> None:
    with Room(arch, runner=ENGINES[engine]), driver.open_device("amd:0") as gpu:
        code, other = gpu.load(program(arch, "fadd")), gpu.load(program(arch, "fsub"))
        start = np.arange(BLOCK * BLOCKS, dtype=np.float32)
        x, times = gpu.array(np.full(len(start), 3, np.float32)), 5

        def result() -> Any:
            y = gpu.array(start)
            code["sum"](x, y, np.int32(times), grid=BLOCKS, block=BLOCK)
            return y.numpy()

        lifted = COUNTERS.dispatches_lifted
        np.testing.assert_array_equal(result(), start + 3 * times)
        image, changed = code["sum"].image, other["sum"].image
        at, dword = difference(image.data, changed.data)
        region: Region = image.block.segment.region
        assert region.host_visible
        offset = image.address - image.block.address + at
        gpu.transfer.write(image.block, offset, memoryview(dword))
        np.testing.assert_array_equal(result(), start - 3 * times)
        assert (COUNTERS.dispatches_lifted > lifted) == (engine == "lifted")
