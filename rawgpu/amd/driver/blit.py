"""Copies and fills by kernels, for compute queues.

They are ordinary launches, so they keep a queue's order and caches without special cases, work
where there is no copy engine, and can be recorded. Compiled for the GPU at first use.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rawgpu.compiler_bridge.cache import cache
from rawgpu.compiler_bridge.llvm import compile_ir
from rawgpu.compiler_bridge.target import AMDGPU_TRIPLE, Target

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.program import AmdKernel

THREADS = 256
BYTES_PER_THREAD = 16
MAX_BLOCKS = 4096

_TEXT = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()

$KERNELS
attributes #0 = { nounwind "target-cpu"="$CPU" "amdgpu-flat-work-group-size"="$THREADS,$THREADS"
  "uniform-work-group-size"="true" $UNUSED }
"""
_KERNEL = """
define amdgpu_kernel void @$NAME($SOURCE, ptr addrspace(1) %target, i64 %count, i64 %stride) #0 {
entry:
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %group, $THREADS
  %number = add i32 %base, %item
  %first = zext i32 %number to i64
  br label %head
head:
  %i = phi i64 [%first, %entry], [%next, %body]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  $LOAD
  %to = getelementptr $TYPE, ptr addrspace(1) %target, i64 %i
  store $TYPE %value, ptr addrspace(1) %to, align $ALIGN
  %next = add i64 %i, %stride
  br label %head
done:
  ret void
}
"""
_LOAD = """%from = getelementptr $TYPE, ptr addrspace(1) %source, i64 %i
  %value = load $TYPE, ptr addrspace(1) %from, align $ALIGN"""
_SPLAT = {
    "i8": "%value = trunc i32 %source to i8",
    "<4 x i32>": """%one = insertelement <4 x i32> poison, i32 %source, i32 0
  %value = shufflevector <4 x i32> %one, <4 x i32> poison, <4 x i32> zeroinitializer""",
}
_UNUSED = (
    "dispatch-ptr", "queue-ptr", "implicitarg-ptr", "dispatch-id", "workgroup-id-y",
    "workgroup-id-z", "workitem-id-y", "workitem-id-z", "lds-kernel-id", "flat-scratch-init",
    "completion-action", "default-queue", "heap-ptr", "hostcall-ptr", "multigrid-sync-arg",
)  # fmt: skip
_TYPES = {"i8": ("bytes", 1), "<4 x i32>": ("quads", 16)}


def text(cpu: str) -> str:
    """The module for `cpu`: copy and fill, by single bytes and by 16."""
    kernels = ""
    for type_, (suffix, align) in _TYPES.items():
        for verb, source, load in (
            ("copy", "ptr addrspace(1) %source", _LOAD),
            ("fill", "i32 %source", _SPLAT[type_]),
        ):
            kernel = _KERNEL.replace("$LOAD", load).replace("$SOURCE", source)
            kernel = kernel.replace("$NAME", f"{verb}_{suffix}").replace("$TYPE", type_)
            kernels += kernel.replace("$ALIGN", str(align))
    unused = " ".join(f'"amdgpu-no-{word}"' for word in _UNUSED)
    whole = _TEXT.replace("$KERNELS", kernels).replace("$CPU", cpu).replace("$UNUSED", unused)
    return whole.replace("$THREADS", str(THREADS))


@functools.cache
def _object(cpu: str) -> bytes:
    source = text(cpu)
    return cache().get_or_build(
        "object", f"blit\0{cpu}\0{source}", lambda: compile_ir(source, Target(AMDGPU_TRIPLE, cpu))
    )


class Blit:
    """The kernels, loaded on one device at first use."""

    def __init__(self, device: AmdDevice) -> None:
        self._device = device
        self._kernels: dict[str, AmdKernel] = {}

    def _kernel(self, name: str) -> AmdKernel:
        if not self._kernels:
            program = self._device.load(_object(self._device.hardware.name))
            self._kernels = {kernel: program[kernel] for kernel in program}
        return self._kernels[name]

    def copy(self, queue: Any, target: Any, source: Any, size_bytes: int) -> None:
        """Append a copy to a queue or recording; buffers are kept by it."""
        self._pieces(queue, "copy", source, target, size_bytes, source.address | target.address)

    def copy_raw(self, queue: Any, target: int, source: int, size_bytes: int) -> None:
        """A copy between addresses; the caller keeps the memory."""
        places = np.uint64(source), np.uint64(target)
        self._pieces(queue, "copy", *places, size_bytes, source | target)

    def fill(self, queue: Any, target: Any, byte: int, size_bytes: int) -> None:
        """Append a fill."""
        pattern = np.uint32(0x01010101 * byte)
        self._pieces(queue, "fill", pattern, target, size_bytes, target.address)

    def _pieces(
        self, queue: Any, verb: str, source: Any, target: Any, size_bytes: int, align: int
    ) -> None:
        """Quads where all is aligned and whole; else bytes."""
        if not size_bytes:
            return
        whole = align % BYTES_PER_THREAD == 0 and size_bytes % BYTES_PER_THREAD == 0
        suffix, count = (
            ("quads", size_bytes // BYTES_PER_THREAD) if whole else ("bytes", size_bytes)
        )
        self.launch(queue, f"{verb}_{suffix}", [source, target], count)

    def launch(self, queue: Any, name: str, places: Sequence[Any], count: int) -> Any:
        """One launch that strides over `count` elements."""
        blocks = min(-(-count // THREADS), MAX_BLOCKS)
        arguments = [*places, np.uint64(count), np.uint64(blocks * THREADS)]
        return queue.launch(self._kernel(name), arguments, grid=blocks, block=THREADS)

    def close(self) -> None:
        self._kernels = {}
