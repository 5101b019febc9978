"""What every backend keeps: devices, memory, programs, queues, signals and recordings.

Drivers implement these protocols, `runtime` hands them out, `frontend` and the command line use
nothing else. Read `errors.py` first; `cpu/driver/` is the smallest complete backend.

Words: a *launch* runs one kernel over a *grid*, which counts blocks everywhere. A *queue* runs
packets in order; several queues of a device run side by side and meet through *signals*: 64-bit
counters that only grow. A *recording* is a packet list encoded once and replayed with patched
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

Scalar: TypeAlias = "int | float | bool | np.generic"


class MemoryKind(Enum):
    """Where a buffer lives and who can reach it."""

    DEVICE = "device"
    """Fastest for the device; the host reads and writes it by queue copies or through a window."""
    PINNED = "pinned"
    """Host memory that the device can reach at the same address."""


class QueueKind(Enum):
    """What a queue is for; a device without copy engines gives a compute queue for COPY."""

    COMPUTE = "compute"
    COPY = "copy"


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    """A device that is there, found without opening it."""

    name: str
    """Vendor and number, such as `cpu:0` or `amd:1`; what `rawgpu.open` takes."""
    arch: str
    """The compiler's name of the architecture: `x86_64`, `gfx1100`, `sm_90`."""
    title: str
    """The product's name as the system gives it."""
    virtual: bool = False
    usable: bool = True
    """False when a node is there but cannot be opened; `note` says why."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class DeviceProperties:
    """Facts about an open device. Sizes in bytes; 0 where a device has none of it."""

    name: str
    arch: str
    title: str
    lanes: int
    """Lanes that execute together: the wave on a GPU, float32 vector lanes on a CPU."""
    compute_units: int
    memory_bytes: int
    local_memory_bytes: int
    max_block_threads: int
    max_grid: tuple[int, int, int]
    cache_bytes: tuple[int, ...]
    """Data cache sizes, first level first."""
    features: frozenset[str] = field(default_factory=frozenset)
    evidence: str = ""
    """What says that this row is right: vendor header, recorded trace, run on this chip."""


@dataclass(frozen=True, kw_only=True)
class MemoryStatistics:
    """The sub-allocator's books, in bytes."""

    in_use_bytes: int
    """Held by live buffers."""
    reserved_bytes: int
    """Held from the system, live or cached."""
    peak_bytes: int
    """Highest `in_use_bytes` since the last `reset_peak`."""
    allocations: int
    """Live buffers."""
    reused: int
    """Allocations that were served from the cache."""


@runtime_checkable
class Buffer(Protocol):
    """A range of device memory. Freed when closed, or with its last reference."""

    @property
    def address(self) -> int:
        """Device virtual address; equal to the host's where `host_visible`."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def host_visible(self) -> bool: ...

    @property
    def device(self) -> Device: ...

    def view(self) -> memoryview:
        """The bytes, writable, not copied. Raises DeviceError where the host cannot see them."""

    def write(
        self, data: bytes | bytearray | memoryview | np.ndarray[Any, Any], offset: int = 0
    ) -> None:
        """Copy host bytes in; returns when they are there."""

    def read(self, size_bytes: int | None = None, offset: int = 0) -> bytes:
        """Copy bytes out after everything submitted so far that writes them."""

    def close(self) -> None:
        """Give the memory back. Idempotent."""


@dataclass(frozen=True)
class Binding:
    """An argument filled in at each replay: `bindings[index] + offset_bytes`."""

    index: int
    offset_bytes: int = 0


class Array(Protocol):
    """A typed array in device memory, for launches by hand."""

    @property
    def address(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The contents, copied, after everything submitted so far that writes them."""

    def close(self) -> None: ...


Argument: TypeAlias = "Buffer | Array | Binding | Scalar"
Grid: TypeAlias = "int | tuple[int, ...]"


@dataclass(frozen=True)
class Parameter:
    """One argument of a kernel's signature. `dtype` is a NumPy dtype name, or `pointer`."""

    name: str
    dtype: str
    writes: bool = False


class Kernel(Protocol):
    """One entry point of a program. A call launches on the device's own queue and waits not."""

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> tuple[Parameter, ...] | None:
        """None where the file says nothing: then every scalar must be a NumPy scalar."""

    def __call__(self, *arguments: Argument, grid: Grid = 1, block: Grid = 1) -> None: ...


class Program(Protocol):
    """A loaded ELF: kernels by name, and globals by symbol."""

    def __getitem__(self, name: str) -> Kernel: ...

    def __iter__(self) -> Iterator[str]: ...

    def read_global(self, symbol: str) -> bytes: ...

    def write_global(self, symbol: str, data: bytes) -> None: ...

    def close(self) -> None: ...


class Signal(Protocol):
    """A 64-bit timeline that only grows."""

    @property
    def value(self) -> int: ...

    def wait(self, value: int, timeout_ms: int = 30_000) -> None:
        """Return once `value` is reached; raise FenceTimeout, or what stopped the queue."""


@dataclass(frozen=True)
class Timestamp:
    """A slot that a queue fills with the device's clock; `ns` after the queue passed it."""

    slot: Any

    @property
    def ns(self) -> int:
        return int(self.slot[0])


class Recording(Protocol):
    """Packets encoded once; replayed by one foreign call or one doorbell."""

    def launch(
        self,
        kernel: Kernel,
        arguments: Sequence[Argument],
        *,
        grid: Grid = 1,
        block: Grid = 1,
        work_ns: int = 0,
    ) -> int:
        """Append a launch; returns its number, for `patch`.

        `work_ns` estimates the time of the whole launch on one compute unit; 0 if unknown. A device
        may use it to decide how many units to wake.
        """

    def copy(self, target: Argument, source: Argument, size_bytes: int) -> int: ...

    def barrier(self) -> None: ...

    def patch(self, launch: int, argument: int, value: Argument) -> None:
        """Replace one argument of one launch for all replays from now on."""

    def replay(
        self,
        bindings: Sequence[int] | np.ndarray[Any, np.dtype[np.uint64]] | None = None,
        *,
        timings: bool = False,
    ) -> None:
        """Submit all packets with these binding addresses. Asynchronous, as `Queue.submit`.

        Fastest with one uint64 array that the caller keeps and refills.
        """

    def timings_ns(self) -> list[int]:
        """Per launch, of the last replay with `timings=True`."""

    def close(self) -> None: ...


class Queue(Protocol):
    """Packets in order. Build, then `submit`; nothing runs before."""

    def wait(self, signal: Signal, value: int) -> None: ...

    def signal(self, signal: Signal, value: int) -> None: ...

    def launch(
        self,
        kernel: Kernel,
        arguments: Sequence[Argument],
        *,
        grid: Grid = 1,
        block: Grid = 1,
        work_ns: int = 0,
    ) -> None: ...

    def copy(self, target: Buffer, source: Buffer, size_bytes: int) -> None: ...

    def fill(self, target: Buffer, byte: int, size_bytes: int) -> None: ...

    def timestamp(self) -> Timestamp: ...

    def barrier(self) -> None: ...

    def submit(self) -> None:
        """Hand over what was built. Returns at once; faults show at the next wait."""

    def record(self) -> Recording:
        """A new, empty recording that replays on this queue."""

    def synchronize(self, timeout_ms: int = 30_000) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class PeerCopy:
    """Bytes to move from one device's buffer to another's."""

    target: Buffer
    target_offset: int
    source: Buffer
    source_offset: int
    size_bytes: int


@runtime_checkable
class Puller(Protocol):
    """A queue that can read the memory of other devices by itself."""

    def pull(self, source_queue: Queue, copies: Sequence[PeerCopy]) -> bool:
        """Submit copies from one other device; False where no way leads there.

        They run after what was submitted on either queue, and before what either is given next.
        Does not wait.
        """


class Device(Protocol):
    """An open device; a context manager. Closing gives back every handle, mapping and thread."""

    @property
    def properties(self) -> DeviceProperties: ...

    @property
    def closed(self) -> bool:
        """Whether it was closed, by its owner or with the virtual room it was in."""

    def alloc(self, size_bytes: int, kind: MemoryKind = MemoryKind.DEVICE) -> Buffer: ...

    def array(self, value: Any) -> Array:
        """A copy of a NumPy array, or of anything that becomes one, in device memory."""

    def load(self, image: bytes) -> Program:
        """Load an ELF. Raises BadElf for anything that is not one for this device."""

    def queue(self, kind: QueueKind = QueueKind.COMPUTE) -> Queue: ...

    def new_signal(self, value: int = 0) -> Signal: ...

    def synchronize(self, timeout_ms: int = 30_000) -> None:
        """Wait for everything submitted on every queue."""

    def memory(self) -> MemoryStatistics: ...

    def reset_peak(self) -> None:
        """Let `MemoryStatistics.peak_bytes` start again from what is in use now."""

    def trim(self) -> None:
        """Give cached, unused memory back to the system."""

    def target(self) -> Mapping[str, str]:
        """What the code generator needs to know: `triple`, `cpu`, `features`."""

    def close(self) -> None: ...

    def __enter__(self) -> Device: ...

    def __exit__(self, *exc: object) -> None: ...
