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


SCRATCH = """
define amdgpu_kernel void @reverse(ptr addrspace(1) %out, i32 %n) #0 {
entry:
  %room = alloca [64 x i32], align 4, addrspace(5)
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %g = mul i32 %group, 1000
  br label %fill
fill:
  %i = phi i32 [0, %entry], [%i1, %fill]
  %p = getelementptr [64 x i32], ptr addrspace(5) %room, i32 0, i32 %i
  %v0 = mul i32 %i, %i
  %v = add i32 %v0, %item
  store volatile i32 %v, ptr addrspace(5) %p
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, %n
  br i1 %more, label %fill, label %done
done:
  %last = sub i32 %n, 1
  %k0 = sub i32 %last, %item
  %q = getelementptr [64 x i32], ptr addrspace(5) %room, i32 0, i32 %k0
  %r = load volatile i32, ptr addrspace(5) %q
  %s = add i32 %r, %g
  %base = mul i32 %group, %n
  %at = add i32 %base, %item
  %wide = zext i32 %at to i64
  %to = getelementptr i32, ptr addrspace(1) %out, i64 %wide
  store i32 %s, ptr addrspace(1) %to
  ret void
}
"""
"""Each item fills private memory and reads it back at an index that depends on the item."""

ASKEW = """
define amdgpu_kernel void @askew(ptr addrspace(1) %a, ptr addrspace(1) %o) #0 {
  %room = alloca [16 x i8], align 16, addrspace(5)
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %k = zext i32 %i to i64
  %p = getelementptr i32, ptr addrspace(1) %a, i64 %k
  %q = getelementptr i32, ptr addrspace(1) %o, i64 %k
  %v = load i32, ptr addrspace(1) %p
  store volatile <4 x i32> zeroinitializer, ptr addrspace(5) %room, align 16
  %s = getelementptr i8, ptr addrspace(5) %room, i32 5
  store volatile i32 %v, ptr addrspace(5) %s, align 1
  %r1 = getelementptr i8, ptr addrspace(5) %room, i32 4
  %w1 = load volatile i32, ptr addrspace(5) %r1, align 4
  %r2 = getelementptr i8, ptr addrspace(5) %room, i32 8
  %w2 = load volatile i32, ptr addrspace(5) %r2, align 4
  %w = load volatile i32, ptr addrspace(5) %s, align 1
  %l = lshr i32 %w1, 8
  %h = shl i32 %w2, 24
  %x = or i32 %l, %h
  %same = icmp eq i32 %x, %w
  %y = select i1 %same, i32 %x, i32 0
  store i32 %y, ptr addrspace(1) %q
  ret void
}
"""
"""Stores a word across two of private memory, and gives back what both then have."""

SHARED = """
@lds = internal addrspace(3) global [256 x i32] poison, align 4
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @mirror(ptr addrspace(1) %out) #0 {
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %g = shl i32 %group, 8
  %v = add i32 %g, %item
  %p = getelementptr [256 x i32], ptr addrspace(3) @lds, i32 0, i32 %item
  store i32 %v, ptr addrspace(3) %p
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %m = sub i32 255, %item
  %q = getelementptr [256 x i32], ptr addrspace(3) @lds, i32 0, i32 %m
  %r = load i32, ptr addrspace(3) %q
  %wide = zext i32 %v to i64
  %to = getelementptr i32, ptr addrspace(1) %out, i64 %wide
  store i32 %r, ptr addrspace(1) %to
  ret void
}
"""
"""Four to eight waves of a group exchange values through local memory."""

PRELOAD = """
define amdgpu_kernel void @sum(ptr addrspace(1) inreg %out, i32 inreg %a, i32 inreg %b) #0 {
  %s = add i32 %a, %b
  store i32 %s, ptr addrspace(1) %out
  ret void
}
"""

SHAPE = """
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workgroup.id.y()
define amdgpu_kernel void @shape(ptr addrspace(1) %out) #0 {
  %x = call i32 @llvm.amdgcn.workitem.id.x()
  %y = call i32 @llvm.amdgcn.workitem.id.y()
  %gx = call i32 @llvm.amdgcn.workgroup.id.x()
  %gy = call i32 @llvm.amdgcn.workgroup.id.y()
  %hidden = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %blocks = load i32, ptr addrspace(4) %hidden
  %packet = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %pw = getelementptr i16, ptr addrspace(4) %packet, i32 2
  %width16 = load i16, ptr addrspace(4) %pw
  %width = zext i16 %width16 to i32
  %row = mul i32 %blocks, %width
  %cx0 = mul i32 %gx, %width
  %cx = add i32 %cx0, %x
  %cy0 = shl i32 %gy, 1
  %cy = add i32 %cy0, %y
  %r = mul i32 %cy, %row
  %at = add i32 %r, %cx
  %wide = zext i32 %at to i64
  %to = getelementptr i32, ptr addrspace(1) %out, i64 %wide
  store i32 %at, ptr addrspace(1) %to
  ret void
}
"""
"""Numbers its items with what hidden arguments and the dispatch packet say; blocks of (w, 2)."""
