"""A virtual machine whose shader engines are Python functions: for tests of the driver alone."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import rawgpu.amd.virtual  # noqa: F401  (lets rooms have AMD's GPUs)
from rawgpu.amd.driver.device import AmdDevice, open_device
from rawgpu.amd.driver.program import AmdKernel
from rawgpu.amd.spec.descriptor import Properties
from rawgpu.amd.virtual.dispatch import Client, Dispatch, GpuMemory, Pause, Running, Services
from rawgpu.virtual.room import Room
from tests.amd.driver.objects import build

KERNARG = Properties.ENABLE_SGPR_KERNARG_SEGMENT_PTR

Work = Callable[[Dispatch, GpuMemory, bytes], None]


@dataclass
class Engine:
    """A runner: keeps every dispatch, and calls what `works` has for its kernel.

    A work gets the argument segment that s[kernarg:kernarg+1] points to.
    """

    kernarg_at: int = 0
    kernarg_bytes: int = 256
    dispatches: list[Dispatch] = field(default_factory=list)
    segments: list[bytes] = field(default_factory=list)
    work: Work | None = None
    slices: tuple[int, ...] = (1,)
    """How long dispatches take before they work, in turn."""
    started: int = 0

    def load(self, gpu: AmdDevice, text: str, name: str) -> AmdKernel:
        """A kernel, whose arguments are found from now on."""
        kernel = gpu.load(build(text, gpu.hardware.name))[name]
        before = [n for flag, n in kernel.user_sgprs if flag < KERNARG]
        self.kernarg_at = sum(before)
        return kernel

    def __call__(self, dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running:
        memory.code(dispatch.entry_va, 4)
        slices = self.slices[self.started % len(self.slices)]
        self.started += 1
        for _ in range(slices):
            yield Pause.SLICE
        if dispatch.xcc == 0:
            low, high = dispatch.user_sgprs[self.kernarg_at : self.kernarg_at + 2]
            segment = memory.read(low | high << 32, self.kernarg_bytes, Client.SCALAR)
            self.dispatches.append(dispatch)
            self.segments.append(segment)
            if self.work is not None:
                self.work(dispatch, memory, segment)


@contextlib.contextmanager
def opened(arch: str, engine: Engine | None = None, **options: Any) -> Iterator[AmdDevice]:
    """The first GPU of a new room."""
    with Room(arch, runner=engine or Engine(), **options), open_device("amd:0") as gpu:
        yield gpu


def saxpy(dispatch: Dispatch, memory: GpuMemory, segment: bytes) -> None:
    """What `objects.SAXPY` computes."""
    x, y, a, n = struct.unpack_from("<QQfi", segment)
    count = min(n, dispatch.total_groups * dispatch.items)
    left = struct.unpack(f"<{count}f", memory.read(x, 4 * count))
    right = struct.unpack(f"<{count}f", memory.read(y, 4 * count))
    memory.write(
        y, struct.pack(f"<{count}f", *(a * p + q for p, q in zip(left, right, strict=True)))
    )
