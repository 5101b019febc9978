"""Kernels that LLVM compiled, run from their machine code: control flow, LDS, atomics, scratch."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.virtual import wave
from rawgpu.amd.virtual.dispatch import Access, GpuPageFault
from tests.amd.virtual.wave_rig import Arena, Kernel, attributes, compile_kernel, finish, services

GENERATIONS = ["gfx1100", "gfx1201", "gfx942", "gfx90a", "gfx1030"]
ITEM = "declare i32 @llvm.amdgcn.workitem.id.x()\ndeclare i32 @llvm.amdgcn.workgroup.id.x()\n"

SUM = (
    ITEM
    + """
@shared = internal addrspace(3) global [256 x i32] poison, align 16
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {
entry:
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %g, 256
  %n = add i32 %base, %i
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %n
  %x = load i32, ptr addrspace(1) %p
  %s = getelementptr i32, ptr addrspace(3) @shared, i32 %i
  store i32 %x, ptr addrspace(3) %s
  br label %head
head:
  %half = phi i32 [128, %entry], [%next, %step]
  fence syncscope("workgroup") seq_cst
  call void @llvm.amdgcn.s.barrier()
  %in.half = icmp ult i32 %i, %half
  br i1 %in.half, label %fold, label %step
fold:
  %j = add i32 %i, %half
  %q = getelementptr i32, ptr addrspace(3) @shared, i32 %j
  %a = load i32, ptr addrspace(3) %s
  %b = load i32, ptr addrspace(3) %q
  %c = add i32 %a, %b
  store i32 %c, ptr addrspace(3) %s
  br label %step
step:
  %next = lshr i32 %half, 1
  %more = icmp ne i32 %next, 0
  br i1 %more, label %head, label %done
done:
  %first = icmp eq i32 %i, 0
  br i1 %first, label %write, label %end
write:
  %total = load i32, ptr addrspace(3) @shared
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %g
  store i32 %total, ptr addrspace(1) %o
  br label %end
end:
  ret void
}
attributes #0 = { ATTRIBUTES }
"""
)

COUNT = (
    ITEM
    + """
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %i
  %x = load i32, ptr addrspace(1) %p
  %slot = and i32 %x, 15
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %slot
  %old = atomicrmw add ptr addrspace(1) %o, i32 %x syncscope("agent") monotonic
  %m = getelementptr i32, ptr addrspace(1) %out, i32 16
  %most = atomicrmw umax ptr addrspace(1) %m, i32 %x syncscope("agent") monotonic
  ret void
}
attributes #0 = { ATTRIBUTES }
"""
)

SCRATCH = (
    ITEM
    + """
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {
entry:
  %room = alloca [64 x i32], align 4, addrspace(5)
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  br label %fill
fill:
  %n = phi i32 [0, %entry], [%n1, %fill]
  %at = getelementptr i32, ptr addrspace(5) %room, i32 %n
  %v = mul i32 %n, %i
  store volatile i32 %v, ptr addrspace(5) %at
  %n1 = add i32 %n, 1
  %more = icmp ult i32 %n1, 64
  br i1 %more, label %fill, label %read
read:
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %i
  %x = load i32, ptr addrspace(1) %p
  %pick = and i32 %x, 63
  %from = getelementptr i32, ptr addrspace(5) %room, i32 %pick
  %y = load volatile i32, ptr addrspace(5) %from
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %y, ptr addrspace(1) %o
  ret void
}
attributes #0 = { ATTRIBUTES }
"""
)


def run(
    text: str, generation: str, data: Any, results: int, groups: int, block: int, *, native: bool
) -> Any:
    arena = Arena(8 << 20)
    image = compile_kernel(text.replace("ATTRIBUTES", attributes(generation, block)), generation)
    kernel = Kernel(arena, image, "k", generation)
    source, target = arena.put(data.tobytes()), arena.space(4 * results)
    arguments = struct.pack("<QQ", source, target)
    dispatch = kernel.dispatch(arguments, (groups, 1, 1), (block, 1, 1))
    engine = wave.run_dispatch if native else wave.interpret_dispatch
    finish(engine(dispatch, arena, services()))
    return np.array(arena.view(target, np.uint32, results))


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_group_of_several_waves_adds_up_in_lds(generation: str, native: bool) -> None:
    data = np.random.default_rng(1).integers(0, 1 << 20, 512, dtype=np.uint32)
    got = run(SUM, generation, data, 2, 2, 256, native=native)
    assert got.tolist() == data.reshape(2, 256).sum(axis=1).tolist()


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_atomics_of_all_lanes_count(generation: str, native: bool) -> None:
    data = np.random.default_rng(2).integers(0, 1 << 20, 128, dtype=np.uint32)
    got = run(COUNT, generation, data, 17, 1, 128, native=native)
    want = [int(data[data & 15 == slot].sum()) for slot in range(16)]
    assert got.tolist() == [*want, int(data.max())]


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_each_lane_has_scratch_of_its_own(generation: str, native: bool) -> None:
    data = np.random.default_rng(3).integers(0, 1 << 20, 64, dtype=np.uint32)
    got = run(SCRATCH, generation, data, 64, 1, 64, native=native)
    assert got.tolist() == [(int(x) & 63) * i for i, x in enumerate(data)]


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
def test_a_page_fault_says_address_and_instruction(native: bool) -> None:
    arena = Arena(1 << 20)
    text = SUM.replace("ATTRIBUTES", attributes("gfx1100", 256))
    kernel = Kernel(arena, compile_kernel(text, "gfx1100"), "k", "gfx1100")
    bad = 0x10_0000_0000 - (4 << 20)
    arguments = struct.pack("<QQ", bad, arena.space(64))
    dispatch = kernel.dispatch(arguments, (1, 1, 1), (256, 1, 1))
    engine = wave.run_dispatch if native else wave.interpret_dispatch
    with pytest.raises(GpuPageFault) as caught:
        finish(engine(dispatch, arena, services()))
    fault = caught.value
    assert bad <= fault.address < bad + 1024
    assert fault.access is Access.READ
    assert kernel.entry <= fault.pc < kernel.entry + 256
    assert fault.kernel_va == kernel.descriptor_va
