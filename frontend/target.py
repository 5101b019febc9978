"""What code generation knows of a device: its machine model, and how its text is written.

One row for each kind of device. The text level is looked up by the architecture in the target's
triple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frontend.instructions.ir import Region
from frontend.loops.heuristic import Machine
from frontend.text.llvm import kernel_text
from rawgpu.compiler_bridge import llvm

if TYPE_CHECKING:
    from rawgpu.contract import Device


@dataclass(frozen=True)
class Target:
    """A device as the generator sees it."""

    machine: Machine
    llvm: llvm.Target

    def text(self, name: str, body: Region) -> str:
        """The kernel's text."""
        return kernel_text(name, body, self.llvm)

    def assembly(self, text: str) -> str:
        return llvm.assembly(text, self.llvm)

    @property
    def key(self) -> str:
        """All that the generated text depends on."""
        return repr((self.machine, self.llvm))


def target_of(device: Device) -> Target:
    """The row for an open device. Raises UnsupportedDevice for an architecture without one."""
    facts = device.target()
    target = llvm.Target(facts["triple"], facts["cpu"], facts["features"])
    caches = (*device.properties.cache_bytes, 32 << 10, 512 << 10)
    return Target(_cpu_machine(target, caches[0], caches[1]), target)


def _cpu_machine(target: llvm.Target, l1_bytes: int, l2_bytes: int) -> Machine:
    if "avx512f" in target.enabled:
        return Machine(64, 32, True, l1_bytes, l2_bytes)
    if target.arch == "aarch64":
        return Machine(16, 32, False, l1_bytes, l2_bytes)
    return Machine(32, 16, False, l1_bytes, l2_bytes)
