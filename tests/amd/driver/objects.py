"""Small modules in LLVM's language, and the objects that LLVM makes of them."""

from __future__ import annotations

import functools

from rawgpu.compiler_bridge.llvm import compile_ir
from rawgpu.compiler_bridge.target import AMDGPU_TRIPLE, Target

UNUSED = " ".join(
    f'"amdgpu-no-{word}"'
    for word in (
        "dispatch-ptr", "queue-ptr", "implicitarg-ptr", "dispatch-id", "workgroup-id-y",
        "workgroup-id-z", "workitem-id-y", "workitem-id-z", "lds-kernel-id", "flat-scratch-init",
    )
)  # fmt: skip

HEAD = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
"""
ATTRIBUTES = (
    'attributes #0 = {{ nounwind "target-cpu"="{cpu}" "amdgpu-flat-work-group-size"="1,256" '
    '"uniform-work-group-size"="true" {more} }}\n'
)

SAXPY = """
define amdgpu_kernel void @saxpy(ptr addrspace(1) %x, ptr addrspace(1) %y, float %a, i32 %n) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = shl i32 %g, 6
  %j = add i32 %b, %i
  %in = icmp slt i32 %j, %n
  br i1 %in, label %do, label %end
do:
  %k = zext i32 %j to i64
  %px = getelementptr float, ptr addrspace(1) %x, i64 %k
  %py = getelementptr float, ptr addrspace(1) %y, i64 %k
  %vx = load float, ptr addrspace(1) %px
  %vy = load float, ptr addrspace(1) %py
  %m = fmul float %vx, %a
  %s = fadd float %m, %vy
  store float %s, ptr addrspace(1) %py
  br label %end
end:
  ret void
}
"""

GLOBALS = """
@counter = addrspace(1) global i32 7, align 4
@table = addrspace(4) constant [4 x i32] [i32 1, i32 20, i32 300, i32 4000], align 4
@pointer = addrspace(1) global ptr addrspace(1) @counter, align 8
define i32 @helper(i32 %v) noinline #1 {
  %old = load volatile i32, ptr addrspace(1) @counter
  %s = add i32 %old, %v
  store volatile i32 %s, ptr addrspace(1) @counter
  ret i32 %s
}
define amdgpu_kernel void @bump(ptr addrspace(1) %out, i32 %n) #0 {
  %r = call i32 @helper(i32 %n)
  %p = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 %n
  %t = load i32, ptr addrspace(4) %p
  %q = load ptr addrspace(1), ptr addrspace(1) @pointer
  %c = load i32, ptr addrspace(1) %q
  %u = add i32 %t, %r
  %w = add i32 %u, %c
  store i32 %w, ptr addrspace(1) %out
  ret void
}
attributes #1 = { nounwind noinline }
"""

EVERYTHING = """
define amdgpu_kernel void @everything(ptr addrspace(1) %out) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %k = zext i32 %i to i64
  %p = getelementptr i32, ptr addrspace(1) %out, i64 %k
  store i32 %i, ptr addrspace(1) %p
  ret void
}
"""
"""With nothing marked unused, LLVM asks for every SGPR and hidden argument."""


@functools.cache
def build(text: str, cpu: str, more: str = UNUSED) -> bytes:
    """An object of `text` for `cpu`."""
    whole = HEAD + text + ATTRIBUTES.format(cpu=cpu, more=more)
    return compile_ir(whole, Target(AMDGPU_TRIPLE, cpu))
