"""Real objects for the loader's tests, compiled once per process."""

from __future__ import annotations

import functools

from rawgpu.compiler_bridge.llvm import Target, compile_in_process
from rawgpu.contract import Parameter
from rawgpu.native.elf import signature_note_ir

X86_64 = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "")
AARCH64 = Target("aarch64-unknown-linux-gnu", "generic", "")

# Locals and globals, constants, calls within and without, COMMON, .bss, a jump table, vectors.
RICH = """
@counter = global i64 5
@table = internal constant [4 x i32] [i32 10, i32 20, i32 30, i32 40], align 16
@scratch = internal global [100 x i32] zeroinitializer, align 64
@shared = common global [16 x i64] zeroinitializer, align 32
@pointer = global ptr @counter
@names = constant [2 x ptr] [ptr @table, ptr @counter]
@bytes = internal constant [3 x i8] c"abc"
@wide = internal constant <4 x float> <float 1.0, float 2.0, float 3.0, float 4.0>
@small = internal global i8 7
@half = internal global i16 300
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define i64 @answer() {
  ret i64 42
}

define internal i64 @hidden(i64 %x) noinline {
  %c = load i64, ptr @counter
  %s = add i64 %x, %c
  ret i64 %s
}

define i64 @bump(i64 %by) {
  %old = load i64, ptr @counter
  %new = add i64 %old, %by
  store i64 %new, ptr @counter
  ret i64 %new
}

define i64 @lookup(i64 %i) {
  %p = getelementptr i32, ptr @table, i64 %i
  %v = load i32, ptr %p
  %w = zext i32 %v to i64
  %h = call i64 @hidden(i64 %w)
  %b = load i8, ptr @small
  %bl = zext i8 %b to i64
  %t = load i16, ptr @half
  %tl = zext i16 %t to i64
  %u = add i64 %h, %bl
  %r = add i64 %u, %tl
  ret i64 %r
}

define i64 @through(i64 %i) {
  %p = getelementptr ptr, ptr @names, i64 %i
  %q = load ptr, ptr %p
  %v = load i32, ptr %q
  %w = zext i32 %v to i64
  ret i64 %w
}

define i64 @indirect() {
  %p = load ptr, ptr @pointer
  %v = load i64, ptr %p
  ret i64 %v
}

define i64 @fill(i64 %n) {
  call void @llvm.memset.p0.i64(ptr @scratch, i8 1, i64 %n, i1 false)
  %v = load i32, ptr @scratch
  %w = zext i32 %v to i64
  ret i64 %w
}

define void @move(ptr %to, ptr %of, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %of, i64 %n, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %of, i64 %n, i1 false)
  ret void
}

define i64 @commons(i64 %i, i64 %v) {
  %p = getelementptr i64, ptr @shared, i64 %i
  %old = load i64, ptr %p
  store i64 %v, ptr %p
  ret i64 %old
}

define float @vector(i64 %i) {
  %v = load <4 x float>, ptr @wide
  %w = fmul <4 x float> %v, <float 0.5, float 1.5, float 2.5, float 3.5>
  %e = extractelement <4 x float> %w, i64 %i
  ret float %e
}

define i64 @choose(i64 %i) {
  switch i64 %i, label %other [
    i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e
    i64 5, label %f
  ]
a:
  ret i64 1000
b:
  %x = call i64 @answer()
  ret i64 %x
c:
  %y = call i64 @bump(i64 0)
  ret i64 %y
d:
  ret i64 -3
e:
  ret i64 77
f:
  %z = call i64 @indirect()
  ret i64 %z
other:
  ret i64 -1
}
""" + signature_note_ir({"answer": [], "bump": [Parameter("by", "int64")]})


@functools.cache
def rich(target: Target = X86_64) -> bytes:
    return compile_in_process(RICH, target)
