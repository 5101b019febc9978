"""Our own native code: texts put together, compiled once, loaded by our loader, called by cffi."""

from __future__ import annotations

import functools
from typing import Any

from rawgpu.compiler_bridge.cache import cache
from rawgpu.compiler_bridge.llvm import Target, compile_in_process
from rawgpu.native import system
from rawgpu.native.drain import drain_ir
from rawgpu.native.faultnet import FaultNet, handler_ir
from rawgpu.native.image import Image
from rawgpu.native.order import order_ir
from rawgpu.native.pool import pool_ir

BASELINE = {
    "x86_64": ("x86_64-unknown-linux-gnu", "x86-64"),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic"),
}
"""Triple and processor, the oldest of each: nothing here gains from newer instructions."""

PROTOTYPES = {
    "run_packets": "uint64_t (*)(struct context *, struct run *)",
    "replay": "uint64_t (*)(struct run *)",
    "replay_as": "uint64_t (*)(struct context *, struct run *)",
    "stop_workers": "void (*)(void *)",
    "wait_counter": "uint64_t (*)(void *, uintptr_t, uint64_t, uint64_t)",
    "store32": "void (*)(uintptr_t, uint32_t)",
    "store64": "void (*)(uintptr_t, uint64_t)",
    "load32": "uint32_t (*)(uintptr_t)",
    "load64": "uint64_t (*)(uintptr_t)",
    "fence_device": "void (*)(void)",
    "copy32": "void (*)(uintptr_t, const void *, uint64_t)",
    "copy64": "void (*)(uintptr_t, const void *, uint64_t)",
}


def native_ir(machine: str) -> str:
    """The whole text for `machine`."""
    return handler_ir(machine) + drain_ir() + pool_ir(machine) + order_ir(machine)


class NativeCode:
    """The loaded object. One per process, never unloaded: the fault handler lives in it."""

    def __init__(self, image: bytes) -> None:
        self.image = Image(image)
        call: dict[str, Any] = {
            name: system.ffi.cast(prototype, self.image.address(name))
            for name, prototype in PROTOTYPES.items()
        }
        self.run_packets = call["run_packets"]
        self.replay, self.replay_as = call["replay"], call["replay_as"]
        self.stop_workers, self.wait_counter = call["stop_workers"], call["wait_counter"]
        self.store32, self.store64 = call["store32"], call["store64"]
        self.load32, self.load64 = call["load32"], call["load64"]
        self.fence_device = call["fence_device"]
        self.copy32, self.copy64 = call["copy32"], call["copy64"]
        self.fault_net = FaultNet(self.image)


def _compiled(machine: str) -> bytes:
    """The object for `machine`, from the disk cache if it was ever compiled."""
    text, (triple, cpu) = native_ir(machine), BASELINE[machine]

    def build() -> bytes:
        return compile_in_process(text, Target(triple, cpu))

    return cache().get_or_build("native", "\0".join((triple, cpu, text)), build)


@functools.cache
def native_code() -> NativeCode:
    """The process's native code, loaded at the first call."""
    system.require_linux()
    return NativeCode(_compiled(system.MACHINE))
