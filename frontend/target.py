"""What code generation knows of a device: its machine model, and how its text is written.

One row for each kind of device. The text level is looked up by the architecture in the target's
triple.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frontend.instructions.ir import Region
from frontend.loops.machine import Machine
from frontend.text import amdgpu, cpu
from rawgpu.compiler_bridge import llvm
from rawgpu.compiler_bridge.target import MINIMUM_FEATURES
from rawgpu.errors import UnsupportedDevice

if TYPE_CHECKING:
    from rawgpu.contract import Device


@dataclass(frozen=True)
class Target:
    """A device as the generator sees it."""

    machine: Machine
    llvm: llvm.Target

    def text(self, name: str, body: Region, buffers: int) -> str:
        """The text of a kernel that takes `buffers` addresses."""
        return TEXTS[self.llvm.arch](self, name, body, buffers)

    def assembly(self, text: str) -> str:
        return llvm.assembly(text, self.llvm)

    @property
    def key(self) -> str:
        """All that the generated text depends on."""
        return repr((self.machine, self.llvm))


def _cpu_text(target: Target, name: str, body: Region, buffers: int) -> str:
    return cpu.kernel_text(name, body, target.llvm)


def _amd_text(target: Target, name: str, body: Region, buffers: int) -> str:
    return amdgpu.kernel_text(name, body, target.llvm, buffers, target.machine.block_lanes)


TEXTS: dict[str, Callable[[Target, str, Region, int], str]] = {
    "x86_64": _cpu_text,
    "aarch64": _cpu_text,
    "amdgcn": _amd_text,
}
"""How each architecture's text is written, by the first word of its triple."""


def target_of(device: Device) -> Target:
    """The row for an open device. Raises UnsupportedDevice for an architecture without one."""
    facts = device.target()
    target = llvm.Target(facts["triple"], facts["cpu"], facts["features"])
    if target.arch not in TEXTS:
        known = ", ".join(TEXTS)
        raise UnsupportedDevice(f"no code generation for {target.arch}; there is for {known}")
    if target.arch == "amdgcn":
        return Target(_amd_machine(device), target)
    missing = [f for f in MINIMUM_FEATURES.get(target.arch, ()) if f not in target.enabled]
    if missing:
        raise UnsupportedDevice(
            f"{device.properties.name}: this processor lacks {', '.join(missing)}; the code "
            "generator needs x86-64-v3 (2013) or any AArch64"
        )
    machine = _cpu_machine(target, *device.properties.cache_bytes[:3])
    return Target(replace(machine, cores=max(1, device.properties.compute_units)), target)


def _cpu_machine(
    target: llvm.Target, l1_bytes: int = 32 << 10, l2_bytes: int = 512 << 10, l3_bytes: int = 0
) -> Machine:
    if "avx512f" in target.enabled:
        machine = Machine(64, 32, masked=True, streaming=True, prefetch_bytes=2048)
    elif target.arch == "aarch64":
        machine = Machine(16, 32)
    else:
        machine = Machine(32, 16, streaming=True, prefetch_bytes=2048)
    return replace(machine, l1_bytes=l1_bytes, l2_bytes=l2_bytes, l3_bytes=l3_bytes)


def _amd_machine(device: Device) -> Machine:
    """A block is a wave; half of local memory, so that two blocks can share it."""
    local = device.properties.local_memory_bytes // 2
    return Machine(
        registers=48,
        masked=True,
        block_lanes=device.properties.lanes,
        row_bytes=local,
        stage_bytes=local,
    )
