"""What a command processor hands to the shader engine, and what the engine asks of the GPU.

The command processors (`cp.py`, `aql.py`) build a `Dispatch` from registers or from a descriptor. A
`Runner` turns it into a generator that executes the waves; the scheduler steps the generator, so
dispatches, queues and DMA engines interleave in an order that the room's seed decides. `wave.py`
has the real runner; `EmptyRunner` is for packets without machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias

import numpy as np

from rawgpu.virtual.schedule import Chance

Addresses: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class Client(Enum):
    """Who accesses memory: decides which caches and rights count, and how a fault is named."""

    CODE = "SQC (inst)"
    SCALAR = "SQC (data)"
    VECTOR = "TCP"
    COMMAND = "CPF"
    SDMA = "SDMA0"


class Access(Enum):
    """What was tried."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"


class GpuPageFault(Exception):
    """An access that a GPU's page tables refuse.

    Never leaves the room: it becomes an event. Whoever knows more fills in `kernel_va` (the kernel
    descriptor or entry) and `pc`.
    """

    def __init__(
        self, address: int, access: Access, *, present: bool = False, client: Client = Client.VECTOR
    ) -> None:
        self.address = address
        self.access = access
        self.present = present
        """True where the page is mapped, but without this right."""
        self.client = client
        self.kernel_va = 0
        self.pc = 0
        super().__init__(f"{access.value} at {address:#x}")


class HaltCause(Enum):
    """Why a wave stopped for ever; the value is the number of the kernel's log line."""

    ILLEGAL_INSTRUCTION = 1
    MEMORY_VIOLATION = 2
    TRAP = 3


class WaveHalted(Exception):
    """A wave that stopped without ending. User space is not told: its queue seems to hang."""

    def __init__(self, cause: HaltCause, pc: int, detail: str = "") -> None:
        self.cause = cause
        self.pc = pc
        self.detail = detail
        super().__init__(f"{cause.name.lower()} at {pc:#x}{': ' if detail else ''}{detail}")


class NotModelled(NotImplementedError):
    """A feature that the virtual GPU has not; the text names it. Leaves the room as it is."""


class NativeMemory(Protocol):
    """How caches look to native code, which goes past them. `native_caches.py` keeps it."""

    def enter(self) -> None:
        """Before native code: nothing is held back, stale lines show."""
        ...

    def leave(
        self, scalar: Sequence[int], loads: Sequence[int], stores: Sequence[tuple[int, int]]
    ) -> None:
        """After it: some of the addresses that it read, and (address, bytes) that it wrote."""
        ...


class GpuMemory(Protocol):
    """One GPU's view of memory, through the page tables of one process.

    Every access raises GpuPageFault where a page is not mapped, or not with the right. Reads and
    writes of the first four go through the caches of the client where strict mode models them.
    """

    strict: bool

    def read(
        self,
        va: int,
        size_bytes: int,
        client: Client = Client.VECTOR,
        *,
        past_first_level: bool = False,
    ) -> bytes:
        """`past_first_level`: as instructions with GLC, SC or a device scope read."""
        ...

    def write(self, va: int, data: bytes, client: Client = Client.VECTOR) -> None: ...

    def gather(
        self, addresses: Addresses, size_bytes: int, *, past_first_level: bool = False
    ) -> Bytes:
        """`size_bytes` from each address, as an array of shape (lanes, size_bytes)."""
        ...

    def scatter(self, addresses: Addresses, data: Bytes) -> None:
        """Rows of `data` to the addresses, in lane order: the last of equal addresses stays."""
        ...

    def atomic(self, va: int, size_bytes: int, change: Callable[[bytes], bytes]) -> bytes:
        """Replace memory by `change` of it, beyond all caches but L2; the bytes before."""
        ...

    def window(self, va: int, size_bytes: int, access: Access = Access.READ) -> int:
        """The host address of a GPU range, after its rights were checked, for native code.

        `va + delta` below `limit`. Caches are written back first.
        """
        ...

    @property
    def delta(self) -> int:
        """What native code adds to any GPU address below `limit`.

        Where the GPU has no page, or not the right, the host has none either, and the access is a
        SIGSEGV at `va + delta`; `fault_at` says what it means.
        """
        ...

    @property
    def limit(self) -> int:
        """The first address that native code may not touch by adding `delta`."""
        ...

    def fault_at(self, host_address: int, access: Access) -> GpuPageFault:
        """The page fault behind a SIGSEGV in the GPU's view."""
        ...

    def code(self, va: int, size_bytes: int) -> bytes:
        """Instructions as the instruction cache has them: old ones, where nobody flushed it.

        Whole pages are fetched and kept until invalidated. Ends early where the mapping ends.
        """
        ...

    def native_begins(self) -> None:
        """Before native code runs through `delta`: caches are written back and emptied."""
        ...

    @property
    def native(self) -> NativeMemory:
        """For code without instructions that work on caches, instead of `native_begins`."""
        ...

    def write_back(self) -> None:
        """Give memory what L2 holds back: buffer_wbl2 and the like."""
        ...

    def invalidate(
        self, *, code: bool = False, scalar: bool = False, vector: bool = False, l2: bool = False
    ) -> None:
        """Forget what caches have: s_icache_inv, s_dcache_inv, buffer_gl0_inv, buffer_inv."""
        ...


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """One kernel launch, as the hardware's registers describe it."""

    generation: str
    """The row's name, such as `gfx1100`."""
    kernel_va: int
    """What names the kernel: its descriptor with AQL, its entry with PM4."""
    entry_va: int
    """The first instruction, after any preload skip."""
    groups: tuple[int, int, int]
    """Work-groups in each dimension that are run, beginning at `start`."""
    start: tuple[int, int, int] = (0, 0, 0)
    group_size: tuple[int, int, int]
    """Work-items of a full group."""
    partial: tuple[int, int, int] = (0, 0, 0)
    """Work-items of the last group in each dimension; 0 where it is full."""
    wave_size: int
    user_sgprs: tuple[int, ...]
    """s0 and following."""
    group_id_sgprs: tuple[bool, bool, bool]
    """Whether work-group ids x, y, z follow in SGPRs (or count in the trap registers)."""
    group_info_sgpr: bool
    item_ids: int
    """0: x; 1: x and y; 2: x, y and z, packed or in v0-v2 as the generation has it."""
    vgprs: int
    """Vector registers allocated to each lane."""
    accumulator_offset: int = 0
    """gfx90a and following CDNA: the first vector register that is an accumulator."""
    sgprs: int
    float_mode: int
    """MODE bits 7:0: rounding and denormals."""
    ieee: bool
    dx10_clamp: bool
    fp16_overflow: bool = False
    trap_mask: int = 0
    """Float exceptions that trap, as in RSRC2.EXCP_EN."""
    privileged: bool = False
    workgroup_processor_mode: bool = False
    lds_bytes: int
    scratch_base: int = 0
    """Address of wave 0's scratch; 0 where scratch is off."""
    scratch_wave_bytes: int = 0
    scratch_waves: int = 0
    """How many waves have scratch; a wave's slot is below this."""
    scratch_enabled: bool = False
    apertures: tuple[int, int] = (1 << 48, 2 << 48)
    """Where flat addresses mean LDS and scratch; 4 GiB each."""
    xcc: int = 0
    xccs: int = 1
    """Groups whose number modulo `xccs` is `xcc` run here."""
    rsrc: tuple[int, int, int] = (0, 0, 0)
    """COMPUTE_PGM_RSRC1, 2, 3 as written."""

    @property
    def items(self) -> int:
        x, y, z = self.group_size
        return x * y * z

    @property
    def waves_per_group(self) -> int:
        return -(-self.items // self.wave_size)

    @property
    def total_groups(self) -> int:
        x, y, z = self.groups
        return x * y * z


class Live(Protocol):
    """A wave under way, for who saves it."""

    @property
    def dispatch(self) -> Dispatch: ...

    @property
    def place(self) -> int:
        """Its program counter."""
        ...

    def registers(self) -> tuple[int, bytes, bytes]:
        """EXEC, the scalar registers and the vector registers that it was given."""
        ...


@dataclass(kw_only=True)
class Services:
    """What waves ask of their GPU besides memory."""

    chance: Chance
    """The only source of chance: which wave goes next, where one yields, what poison is."""
    clock: Callable[[], int]
    """The GPU's constant-frequency counter, for s_memtime and s_memrealtime."""
    message: Callable[[int, int], None]
    """s_sendmsg: number and M0."""
    device_number: int = 0
    log: list[str] = field(default_factory=list)
    """Lines for the kernel log."""
    live: list[Live] = field(default_factory=list)
    """The waves that have begun and not ended, for who takes the queue off the hardware."""


class Pause(Enum):
    """Why a running dispatch gives way."""

    SLICE = "ran its slice of instructions"
    WAITING = "every wave sleeps or polls memory: others must go on first"


Running: TypeAlias = Generator[Pause, None, None]
"""A dispatch being run: each step executes a slice. Ends when every wave has ended.

May raise GpuPageFault, WaveHalted or NotModelled.
"""


class Runner(Protocol):
    """Executes dispatches. `wave.run_dispatch` keeps it."""

    def __call__(self, dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running: ...


def run_nothing(dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running:
    """A runner for tests of packets: reads the entry's instructions and ends at once."""
    memory.code(dispatch.entry_va, 4)
    yield Pause.SLICE


class Misuse(Exception):
    """The program did what real hardware answers with silence, a hang or wrong data.

    Leaves the room at the call that let the GPU run into it, so that a test stops there.
    """
