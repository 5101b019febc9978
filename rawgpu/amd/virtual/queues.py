"""Hardware queues: a ring, its pointers, its doorbell, and the work that is under way.

An engine (`cp.py`, `aql.py`, `sdma.py`) is a generator that consumes the ring. What it starts and
does not wait for, dispatches and end-of-pipe events, are `Job`s; the queue steps one of them or the
engine, as the seed decides.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rawgpu.amd.virtual.dispatch import (
    Client,
    Dispatch,
    Misuse,
    Pause,
    Running,
    Services,
    WaveHalted,
)
from rawgpu.ioctl.kfd import QueueType
from rawgpu.virtual.faults import Strike
from rawgpu.virtual.memory import ffi, poke

if TYPE_CHECKING:
    from rawgpu.amd.virtual.gpu import Gpu
    from rawgpu.amd.virtual.process import Buffer, Process
    from rawgpu.amd.virtual.view import GpuView
    from rawgpu.virtual.schedule import Chance

Steps: TypeAlias = Generator[Pause, None, None]
"""An engine or a part of it: each step does one thing, or says that it waits."""

NEVER_RUNG = 0xFFFF_FFFF_FFFF_FFFF
"""What a fresh doorbell slot holds, so that ringing it with 0 is seen."""
LAZIEST_STEPS = 96
EVERY_XCC = -1
"""In place of an XCC's number: an event behind the jobs of all."""
SDMA_TYPES = (QueueType.SDMA, QueueType.SDMA_XGMI, QueueType.SDMA_BY_ENG_ID)


@dataclass(kw_only=True)
class Shape:
    """What CREATE_QUEUE and UPDATE_QUEUE say."""

    kind: QueueType
    ring: int
    ring_bytes: int
    write_pointer: int
    read_pointer: int
    percentage: int
    priority: int
    eop: int = 0
    eop_bytes: int = 0
    save_area: int = 0
    save_bytes: int = 0
    control_bytes: int = 0
    engine: int = 0

    @property
    def xcc(self) -> int:
        """The XCC that a PM4 queue runs on, where there are several."""
        return self.percentage >> 8 & 0xFF

    @property
    def unit(self) -> int:
        """Bytes that the pointers count in."""
        if self.kind in SDMA_TYPES:
            return 1
        return 64 if self.kind is QueueType.COMPUTE_AQL else 4


@dataclass(eq=False)
class Job:
    """Work under way: a dispatch's waves, or an event that waits for the jobs before it."""

    xcc: int
    waves: Running | None = None
    event: Callable[[], None] | None = None
    slices: int = 0
    stuck: bool = False
    delay: int = 0
    """Steps of its queue that it lets pass before it begins."""


@dataclass(eq=False)
class Queue:
    """One user queue on the hardware."""

    id: int
    process: Process
    gpu: Gpu
    view: GpuView
    shape: Shape
    doorbell: int
    """Host address of its doorbell."""
    bit: int
    """Its doorbell's number in the process's page."""
    chance: Chance
    buffers: list[Buffer] = field(default_factory=list)
    vmid: int = 8
    wptr: int = 0
    rptr: int = 0
    rung: int = NEVER_RUNG
    dead: str | None = None
    active: bool = True
    hung: bool = False
    lag: int = 0
    """Steps of others that it lets pass, though its doorbell was rung."""
    halts: list[WaveHalted] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    front: Steps | None = None
    fetched: bytes = b""
    """What was read of the ring from `rptr` on."""
    cu_mask: tuple[int, ...] = ()
    saved: tuple[int, int] = (0, 0)
    """Bytes of control stack and of waves that were written when it was last stopped."""
    services: Services | None = None
    """Of its waves, once there are any."""
    dispatches: dict[tuple[object, ...], list[Dispatch]] = field(default_factory=dict)
    """AQL: what launches came to, by all that they say."""

    def __post_init__(self) -> None:
        self._bell = ffi.cast("uint64_t *", self.doorbell)

    # Doorbell and pointers.

    def look_at_doorbell(self) -> None:
        """Take a new value, if the process rang."""
        value = self._bell[0]
        if value == self.rung:
            return
        self.rung = value
        if self.shape.kind is QueueType.COMPUTE_AQL:
            value += 1
        memory = struct.unpack("<Q", self.view.read(self.shape.write_pointer, 8, Client.SDMA))[0]
        self._check(value, memory)
        self.wptr = value
        self.lag = self._laziness()

    def _laziness(self) -> int:
        """Strict: what is not ordered by a wait happens in any order, now and then much later."""
        if not self.gpu.machine.strict or self.chance.one_in(2):
            return 0
        return self.chance.below(LAZIEST_STEPS)

    def wake(self) -> bool:
        """Let nothing tarry any more; whether anything did."""
        lazy = [job for job in self.jobs if job.delay]
        for job in lazy:
            job.delay = 0
        late, self.lag = self.lag > 0, 0
        return late or bool(lazy)

    def _check(self, value: int, memory: int) -> None:
        ahead = (value - self.rptr) * self.shape.unit
        if memory < value:  # it may be ahead: another thread has stored it and not rung yet
            raise Misuse(
                f"queue {self.id}: the doorbell says {value}, and the write pointer in memory is "
                f"{memory}; store the pointer, fence, then ring"
            )
        if not 0 <= ahead <= self.shape.ring_bytes:
            raise Misuse(
                f"queue {self.id}: the doorbell says {value}, {ahead} bytes past the read pointer, "
                f"and the ring has {self.shape.ring_bytes}"
            )

    def advance(self, units: int) -> None:
        """The engine is past so much of the ring."""
        self.rptr += units
        self.fetched = self.fetched[units * self.shape.unit :]
        self.view.write(self.shape.read_pointer, struct.pack("<Q", self.rptr), Client.SDMA)

    def fetch(self, size_bytes: int) -> bool:
        """Have so many bytes of the ring at `rptr` in `fetched`; False: not written yet.

        The hardware reads ahead as it likes: as far as the seed decides.
        """
        if len(self.fetched) >= size_bytes:
            return True
        there = (self.wptr - self.rptr) * self.shape.unit
        if there < size_bytes:
            return False
        ahead = there if self.chance.one_in(2) else size_bytes
        start = (self.rptr * self.shape.unit + len(self.fetched)) % self.shape.ring_bytes
        wanted = ahead - len(self.fetched)
        first = min(wanted, self.shape.ring_bytes - start)
        client = Client.SDMA if self.shape.kind in SDMA_TYPES else Client.COMMAND
        self.fetched += self.view.read(self.shape.ring + start, first, client)
        if wanted > first:
            self.fetched += self.view.read(self.shape.ring, wanted - first, client)
        return True

    # Steps.

    def stop(self, why: str) -> None:
        """Never run again."""
        if self.dead is None:
            self.dead = why
        self.jobs.clear()
        self.front = None

    @property
    def busy(self) -> bool:
        """Whether there is work that is not done."""
        return bool(self.jobs) or self.rptr != self.wptr

    @property
    def idle(self) -> bool:
        """Whether a step cannot do anything: nothing is left and nobody rang."""
        done = self.rptr == self.wptr and not self.jobs and self._bell[0] == self.rung
        return done or self.dead is not None

    def add_dispatch(self, waves: Running, xcc: int) -> None:
        self.jobs.append(Job(xcc, waves=waves, delay=self._laziness()))

    def add_event(self, event: Callable[[], None], xcc: int) -> None:
        """`event` happens once every job of its XCC, or of all, before it is done."""
        self.jobs.append(Job(xcc, event=event))

    def dispatches_done(self, xcc: int | None = None) -> bool:
        return not any(
            job.waves is not None and (xcc is None or job.xcc == xcc) for job in self.jobs
        )

    def step(self) -> bool:
        """Do one thing; False if everything waits."""
        if self.dead is not None or not self.active or self.hung:
            return False
        self.look_at_doorbell()
        if self.lag:
            self.lag -= 1
            return False
        if not self.jobs:
            return self._step_front()
        choices: list[Job | None] = [None, *self._ready()]
        while choices:
            choice = choices.pop(self.chance.below(len(choices)) if len(choices) > 1 else 0)
            if self._step_front() if choice is None else self._step_job(choice):
                return True
        return False

    def _ready(self) -> list[Job]:
        """Jobs that can take a step: dispatches, and events with no job before them."""
        ready = []
        seen: set[int] = set()
        for job in self.jobs:
            if job.delay:
                job.delay -= 1
            elif job.waves is not None:
                if not job.stuck:
                    ready.append(job)
            elif not seen if job.xcc == EVERY_XCC else job.xcc not in seen:
                ready.append(job)
            seen.add(job.xcc)
        return ready

    def _step_front(self) -> bool:
        return self.front is not None and next(self.front) is Pause.SLICE

    def _step_job(self, job: Job) -> bool:
        if job.event is not None:
            self.jobs.remove(job)
            job.event()
            return True
        assert job.waves is not None
        try:
            pause = next(job.waves)
        except StopIteration:
            self.jobs.remove(job)
            return True
        except WaveHalted as halt:
            job.stuck = True
            self.gpu.wave_halted(self, halt)
            return True
        job.slices += 1
        self.gpu.machine.slice_ran(job.slices)
        return pause is Pause.SLICE

    def strike(self) -> bool:
        """Count a packet; True if a planted fault strikes and the packet is not run."""
        struck = self.gpu.machine.faults.at_packet(self.gpu.number)
        if struck is None:
            return False
        if struck is Strike.HANG:
            self.hung = True
        elif struck is Strike.ECC:
            self.gpu.machine.memory_error(self.gpu)
        else:
            self.gpu.reset()
        return True


def ring_doorbell(address: int, value: int) -> None:
    """A store to a doorbell as a process makes it; for tests."""
    poke(address, struct.pack("<Q", value))
