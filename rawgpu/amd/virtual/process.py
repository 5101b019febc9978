"""What the kernel keeps for one process: GPUs it took, buffers, events, queues.

KFD's state belongs to the process, not to a descriptor: closing one frees nothing. Refusals are
`KernelError`, which the port turns into what drivers see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rawgpu.amd.virtual.events import Events
from rawgpu.ioctl.kfd import AllocFlags
from rawgpu.virtual.memory import Extent

if TYPE_CHECKING:
    from rawgpu.amd.virtual.gpu import Gpu
    from rawgpu.amd.virtual.queues import Queue
    from rawgpu.amd.virtual.view import GpuView


class KernelError(Exception):
    """A call is refused with `errno`; `why` is what the kernel's log would say."""

    def __init__(self, errno: int, why: str = "") -> None:
        self.errno = errno
        self.why = why
        super().__init__(f"errno {errno}: {why}")


@dataclass(eq=False)
class RenderFile:
    """An open render node: the owner of an address space."""

    gpu: Gpu
    view: GpuView | None = None


@dataclass(eq=False)
class Buffer:
    """Memory that KFD allocated, mapped or not."""

    owner: Taken
    index: int
    va: int
    size_bytes: int
    flags: AllocFlags
    extent: Extent | None
    mmap_offset: int = 0
    mapped: list[Taken] = field(default_factory=list)
    queues: int = 0
    """Queues that use it."""
    offset: int = 0
    """Where in the extent it begins."""
    adopted: int = 0
    """Of user memory that was not the machine's: its address."""

    @property
    def handle(self) -> int:
        return self.owner.gpu.gpu_id << 32 | self.index


@dataclass(eq=False)
class Taken:
    """One GPU as one process has it (the kernel's `kfd_process_device`)."""

    gpu: Gpu
    process: Process
    file: RenderFile | None = None
    buffers: dict[int, Buffer] = field(default_factory=dict)
    doorbells: Extent | None = None
    doorbell_bits: set[int] = field(default_factory=set)
    next_index: int = 0
    evicted: bool = False
    """After a page fault: queues are off the hardware, and new ones never get on it."""
    scratch_va: int = 0
    trap_handler: tuple[int, int] = (0, 0)

    @property
    def view(self) -> GpuView | None:
        return self.file.view if self.file is not None else None


class Process:
    """All that the kernel has of one process."""

    def __init__(self, pid: int, name: str, number: int) -> None:
        self.pid = pid
        self.name = name
        self.number = number
        self.pasid = 0x8000 + number
        self.taken: dict[int, Taken] = {}
        self.queues: dict[int, Queue] = {}
        self.events = Events(self)
        self.xnack = False
        self.runtime_enabled = False

    def on(self, gpu_id: int) -> Taken | None:
        return self.taken.get(gpu_id)
