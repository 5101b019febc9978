"""Kernels for the CPU driver's tests: one object with signatures, one without."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from rawgpu.compiler_bridge.llvm import Target, compile_in_process
from rawgpu.contract import Parameter
from rawgpu.cpu.driver.device import CpuDevice
from rawgpu.native import system
from rawgpu.native.code import BASELINE
from rawgpu.native.elf import signature_note_ir

_IR = """
@table = global [4 x i32] [i32 1, i32 2, i32 3, i32 4]
@fixed = constant i32 9
declare void @llvm.trap()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; x[i] += a for each block i
define void @add(ptr %args, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %args
  %a.at = getelementptr i64, ptr %args, i64 1
  %a = load float, ptr %a.at
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%next, %head]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %w = fadd float %v, %a
  store float %w, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %head, label %done
done:
  ret void
}

; y[i] += a * x[i], 256 elements a block, up to n
define void @saxpy(ptr %args, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %args
  %y.at = getelementptr i64, ptr %args, i64 1
  %y = load ptr, ptr %y.at
  %a.at = getelementptr i64, ptr %args, i64 2
  %a = load float, ptr %a.at
  %n.at = getelementptr i64, ptr %args, i64 3
  %n32 = load i32, ptr %n.at
  %n = sext i32 %n32 to i64
  %first = mul i64 %begin, 256
  %most = mul i64 %end, 256
  %short = icmp slt i64 %n, %most
  %stop = select i1 %short, i64 %n, i64 %most
  br label %head
head:
  %i = phi i64 [%first, %entry], [%next, %body]
  %go = icmp slt i64 %i, %stop
  br i1 %go, label %body, label %done
body:
  %px = getelementptr float, ptr %x, i64 %i
  %vx = load float, ptr %px
  %py = getelementptr float, ptr %y, i64 %i
  %vy = load float, ptr %py
  %m = fmul float %vx, %a
  %s = fadd float %vy, %m
  store float %s, ptr %py
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

; writes all eight arguments' words to out
define void @words(ptr %args, i64 %begin, i64 %end) {
  %out = load ptr, ptr %args
  %v = load <8 x i64>, ptr %args, align 8
  store <8 x i64> %v, ptr %out, align 8
  ret void
}

; adds one to counts[block] for each block, after spinning `turns` times
define void @count(ptr %args, i64 %begin, i64 %end) {
entry:
  %counts = load ptr, ptr %args
  %turns.at = getelementptr i64, ptr %args, i64 1
  %turns = load i64, ptr %turns.at
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%next, %store]
  br label %spin
spin:
  %t = phi i64 [0, %head], [%t.next, %spin]
  %t.next = add i64 %t, 1
  call void asm sideeffect "", ""()
  %again = icmp ult i64 %t.next, %turns
  br i1 %again, label %spin, label %store
store:
  %p = getelementptr i32, ptr %counts, i64 %i
  %v = load i32, ptr %p
  %w = add i32 %v, 1
  store i32 %w, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %head, label %done
done:
  ret void
}

define void @write_to(ptr %args, i64 %begin, i64 %end) {
  %p = load ptr, ptr %args
  store i32 1, ptr %p
  ret void
}

define void @read_from(ptr %args, i64 %begin, i64 %end) {
  %p = load ptr, ptr %args
  %v = load volatile i32, ptr %p
  ret void
}

define void @jump_to(ptr %args, i64 %begin, i64 %end) {
  %p = load ptr, ptr %args
  call void %p()
  ret void
}

define void @clear(ptr %args, i64 %begin, i64 %end) {
  %p = load ptr, ptr %args
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 4096, i1 false)
  ret void
}

define void @trap(ptr %args, i64 %begin, i64 %end) {
  call void @llvm.trap()
  ret void
}

define void @divide(ptr %args, i64 %begin, i64 %end) {
  %p = load ptr, ptr %args
  %b.at = getelementptr i64, ptr %args, i64 1
  %b = load i64, ptr %b.at
  %q = sdiv i64 100, %b
  store i64 %q, ptr %p
  ret void
}

define internal i64 @deeper(i64 %n) noinline {
  %room = alloca [512 x i8], align 16
  store volatile i64 %n, ptr %room
  %m = add i64 %n, 1
  %r = call i64 @deeper(i64 %m)
  %v = load volatile i64, ptr %room
  %s = add i64 %r, %v
  ret i64 %s
}

define void @recurse(ptr %args, i64 %begin, i64 %end) {
  %p = load ptr, ptr %args
  %v = call i64 @deeper(i64 0)
  store i64 %v, ptr %p
  ret void
}

; faults in the block whose number is `which`, after spinning
define void @fault_in_block(ptr %args, i64 %begin, i64 %end) {
entry:
  %which = load i64, ptr %args
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%next, %on]
  br label %spin
spin:
  %t = phi i64 [0, %head], [%t.next, %spin]
  %t.next = add i64 %t, 1
  call void asm sideeffect "", ""()
  %again = icmp ult i64 %t.next, 20000
  br i1 %again, label %spin, label %check
check:
  %bad = icmp eq i64 %i, %which
  br i1 %bad, label %fault, label %on
fault:
  store volatile i32 1, ptr inttoptr (i64 4096 to ptr)
  br label %on
on:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %head, label %done
done:
  ret void
}

define void @sum_table(ptr %args, i64 %begin, i64 %end) {
  %out = load ptr, ptr %args
  %v = load <4 x i32>, ptr @table
  %e = extractelement <4 x i32> %v, i64 1
  store i32 %e, ptr %out
  ret void
}
"""

_X, _POINTER = Parameter("x", "pointer", True), Parameter("p", "pointer", True)
SIGNATURES = {
    "add": [_X, Parameter("a", "float32")],
    "saxpy": [
        Parameter("x", "pointer"), Parameter("y", "pointer", True),
        Parameter("a", "float32"), Parameter("n", "int32"),
    ],
    "words": [Parameter("out", "pointer", True)]
    + [Parameter(f"a{i}", t) for i, t in enumerate(
        ("int8", "uint16", "int32", "int64", "float64", "float16", "bool"))],
    "count": [_X, Parameter("turns", "int64")],
    "write_to": [_POINTER], "read_from": [_POINTER], "jump_to": [_POINTER], "clear": [_POINTER],
    "trap": [], "divide": [_POINTER, Parameter("b", "int64")], "recurse": [_POINTER],
    "fault_in_block": [Parameter("which", "int64")], "sum_table": [_POINTER],
}  # fmt: skip


def _target() -> Target:
    return Target(*BASELINE[system.MACHINE], "")


@functools.cache
def signed() -> bytes:
    """The kernels with their signatures."""
    return compile_in_process(_IR + signature_note_ir(SIGNATURES), _target())


@functools.cache
def unsigned() -> bytes:
    """The same kernels, about whose arguments the file says nothing."""
    return compile_in_process(_IR, _target())


@contextmanager
def opened() -> Iterator[tuple[CpuDevice, object]]:
    """A device with the kernels loaded."""
    with CpuDevice("cpu:0") as gpu:
        yield gpu, gpu.load(signed())
