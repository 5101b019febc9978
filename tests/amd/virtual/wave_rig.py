"""Runs kernels on the wave engine with no packets and no kernel driver.

The arena's GPU addresses are host addresses, less a delta, as in the virtual GPU.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rawgpu.amd.objects import codeobject
from rawgpu.amd.spec.descriptor import KernelDescriptor, Properties
from rawgpu.amd.virtual.dispatch import (
    Access,
    Client,
    Dispatch,
    GpuPageFault,
    Pause,
    Services,
)
from rawgpu.compiler_bridge.llvm import Target, compile_ir
from rawgpu.native import system
from rawgpu.virtual.schedule import Chance

BASE = 0x10_0000_0000
SCRATCH_WORD3 = {"gfx90a": 0x00EA4FAC, "gfx1030": 0x21C14FAC}
"""Word 3 of a scratch descriptor: 4-byte elements, the lane's number added, index stride of 64
lanes on gfx90a and of 32 on gfx1030. Source: LLVM 22, AMDGPU getDefaultRsrcDataFormat and
getScratchRsrcWords23."""


class Arena:
    """`GpuMemory` over one run of host pages."""

    strict = False

    def __init__(self, size_bytes: int = 64 << 20) -> None:
        self.size = size_bytes
        rights = system.PROT_READ | system.PROT_WRITE
        # Inaccessible pages on both sides catch what native code does beyond the ends.
        self.room = 1 << 30
        whole = system.map_pages(size_bytes + 2 * self.room, system.PROT_NONE, system.MAP_NORESERVE)
        host = whole + self.room
        system.protect_pages(host, size_bytes, rights)
        self.host = host
        buffer = system.ffi.buffer(system.ffi.cast("char *", host), size_bytes)
        self.bytes: Any = np.frombuffer(buffer, np.uint8)
        self.next = 256
        self.limit = 1 << 40

    @property
    def delta(self) -> int:
        return self.host - BASE

    def put(self, data: Any, align: int = 256) -> int:
        """Copy `data` in; its GPU address."""
        raw = np.frombuffer(bytes(data), np.uint8)
        va = self.space(len(raw), align)
        self.bytes[va - BASE : va - BASE + len(raw)] = raw
        return va

    def space(self, size_bytes: int, align: int = 256) -> int:
        at = (self.next + align - 1) & -align
        self.next = at + size_bytes
        assert self.next < self.size
        return BASE + at

    def view(self, va: int, dtype: Any, count: int) -> Any:
        at = va - BASE
        return self.bytes[at : at + count * np.dtype(dtype).itemsize].view(dtype)

    def _at(self, va: int, size_bytes: int, access: Access) -> int:
        at = va - BASE
        if not 0 <= at <= self.size - size_bytes:
            raise GpuPageFault(va, access)
        return at

    def read(
        self,
        va: int,
        size_bytes: int,
        client: Client = Client.VECTOR,
        *,
        past_first_level: bool = False,
    ) -> bytes:
        at = self._at(va, size_bytes, Access.READ)
        return bytes(self.bytes[at : at + size_bytes])

    def write(self, va: int, data: bytes, client: Client = Client.VECTOR) -> None:
        at = self._at(va, len(data), Access.WRITE)
        self.bytes[at : at + len(data)] = np.frombuffer(data, np.uint8)

    def gather(self, addresses: Any, size_bytes: int, *, past_first_level: bool = False) -> Any:
        for va in addresses.tolist():
            self._at(va, size_bytes, Access.READ)
        at = (addresses - np.uint64(BASE)).astype(np.int64)
        return self.bytes[at[:, None] + np.arange(size_bytes)]

    def scatter(self, addresses: Any, data: Any) -> None:
        for va in addresses.tolist():
            self._at(va, data.shape[1], Access.WRITE)
        at = (addresses - np.uint64(BASE)).astype(np.int64)
        self.bytes[at[:, None] + np.arange(data.shape[1])] = data

    def atomic(self, va: int, size_bytes: int, change: Callable[[bytes], bytes]) -> bytes:
        old = self.read(va, size_bytes)
        self.write(va, change(old))
        return old

    def window(self, va: int, size_bytes: int, access: Access = Access.READ) -> int:
        return self._at(va, size_bytes, access) + self.host

    def fault_at(self, host_address: int, access: Access) -> GpuPageFault:
        return GpuPageFault(host_address - self.delta, access)

    def code(self, va: int, size_bytes: int) -> bytes:
        at = self._at(va, 1, Access.EXECUTE)
        return bytes(self.bytes[at : at + size_bytes])

    def native_begins(self) -> None: ...

    @property
    def native(self) -> Any:
        raise AssertionError("an arena is not strict: it has no caches")

    def write_back(self) -> None: ...
    def invalidate(self, **which: bool) -> None: ...


def services(seed: int = 0) -> Services:
    ticks = iter(range(1 << 40))
    return Services(chance=Chance(seed), clock=lambda: next(ticks), message=lambda number, m0: None)


class Kernel:
    """A kernel of a code object in an arena."""

    def __init__(self, arena: Arena, image: bytes, name: str, generation: str) -> None:
        parsed = codeobject.parse(image)
        self.arena, self.generation, self.name = arena, generation, name
        base = arena.space(parsed.size_bytes + 4096, 4096)
        data = parsed.image_at(base)
        arena.bytes[base - BASE : base - BASE + len(data)] = np.frombuffer(bytes(data), np.uint8)
        where = parsed.globals[f"{name}.kd"]
        self.descriptor_va = base + where.offset
        self.descriptor = KernelDescriptor.decode(bytes(data[where.offset : where.offset + 64]))
        self.entry = self.descriptor_va + self.descriptor.kernel_code_entry_byte_offset

    def dispatch(
        self, arguments: bytes, groups: Sequence[int], block: Sequence[int], **changes: Any
    ) -> Dispatch:
        d = self.descriptor
        props, rsrc1, rsrc2 = d.kernel_code_properties, d.compute_pgm_rsrc1, d.compute_pgm_rsrc2
        wave = 32 if props & Properties.ENABLE_WAVEFRONT_SIZE32 else 64
        private = d.private_segment_fixed_size
        wave_bytes = (private * wave + 1023) & -1024
        scratch = self.arena.space(wave_bytes * 64, 4096) if private else 0
        words: list[int] = []
        kernarg = self.arena.put(arguments + bytes(256), 64)
        for flag, count in (
            (Properties.ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER, 4),
            (Properties.ENABLE_SGPR_DISPATCH_PTR, 2),
            (Properties.ENABLE_SGPR_QUEUE_PTR, 2),
            (Properties.ENABLE_SGPR_KERNARG_SEGMENT_PTR, 2),
            (Properties.ENABLE_SGPR_DISPATCH_ID, 2),
            (Properties.ENABLE_SGPR_FLAT_SCRATCH_INIT, 2),
            (Properties.ENABLE_SGPR_PRIVATE_SEGMENT_SIZE, 1),
        ):
            if props & flag:
                value = {
                    Properties.ENABLE_SGPR_KERNARG_SEGMENT_PTR: kernarg,
                    Properties.ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER: scratch | 1 << 63,  # swizzled
                    Properties.ENABLE_SGPR_FLAT_SCRATCH_INIT: scratch,
                }.get(flag, 0)
                top = [0xFFFFFFFF, SCRATCH_WORD3.get(self.generation, 0)]
                words += [value & 0xFFFFFFFF, value >> 32, *top][:count]
        count = rsrc2 >> 1 & 31
        words += [0] * (count - len(words))
        is9 = self.generation.startswith("gfx9")
        entry = self.entry
        preload = d.kernarg_preload & 127
        if preload:
            offset = (d.kernarg_preload >> 7) * 4
            at = sum(2 if props & flag else 0 for flag in (Properties.ENABLE_SGPR_DISPATCH_PTR,))
            at = count - preload
            data = struct.unpack(f"<{preload}I", (arguments + bytes(256))[offset:][: 4 * preload])
            words[at : at + preload] = data
            entry += 256
        fields: dict[str, Any] = {
            "generation": self.generation, "kernel_va": self.descriptor_va, "entry_va": entry,
            "groups": tuple(groups), "group_size": tuple(block), "wave_size": wave,
            "user_sgprs": tuple(words), "group_info_sgpr": bool(rsrc2 >> 10 & 1),
            "group_id_sgprs": tuple(bool(rsrc2 >> i & 1) for i in (7, 8, 9)),
            "item_ids": rsrc2 >> 11 & 3, "vgprs": 256, "sgprs": 104,
            "float_mode": rsrc1 >> 12 & 255, "ieee": bool(rsrc1 >> 23 & 1) or is9,
            "dx10_clamp": True, "lds_bytes": d.group_segment_fixed_size,
            "scratch_base": scratch, "scratch_wave_bytes": wave_bytes, "scratch_waves": 64,
            "scratch_enabled": bool(rsrc2 & 1),
        }  # fmt: skip
        return Dispatch(**{**fields, **changes})


def finish(running: Any, limit: int = 1 << 30) -> int:
    """Step to the end; how many pauses there were."""
    count = 0
    for pause in running:
        assert isinstance(pause, Pause)
        count += 1
        assert count < limit
    return count


def compile_kernel(text: str, generation: str) -> bytes:
    """LLVM IR for AMD GPUs to an object."""
    return compile_ir(text, Target("amdgcn-amd-amdhsa", generation), passes="light")


UNUSED = [
    "dispatch-ptr",
    "queue-ptr",
    "implicitarg-ptr",
    "dispatch-id",
    "lds-kernel-id",
    "workgroup-id-y",
    "workgroup-id-z",
    "workitem-id-y",
    "workitem-id-z",
    "flat-scratch-init",
    "completion-action",
    "default-queue",
    "heap-ptr",
    "hostcall-ptr",
    "multigrid-sync-arg",
]


def attributes(generation: str, block: int) -> str:
    """Function attributes for kernels of `block` work-items in one dimension."""
    words = " ".join(f'"amdgpu-no-{word}"' for word in UNUSED)
    return (
        f'nounwind "target-cpu"="{generation}" "amdgpu-flat-work-group-size"="{block},{block}" '
        f'"uniform-work-group-size"="true" {words}'
    )
