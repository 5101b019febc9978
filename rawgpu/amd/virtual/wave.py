"""Runs the waves of a dispatch: what `dispatch.Runner` promises.

Work-groups run one after another, the waves of a group in turns that end at barriers and at the
end of a slice. Small launches are interpreted; hot ones are lifted to native code (`lift_run.py`),
and an instruction that the lifter does not do is interpreted in between.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rawgpu.amd.virtual.dispatch import (
    Dispatch,
    GpuMemory,
    GpuPageFault,
    HaltCause,
    NotModelled,
    Pause,
    Running,
    Services,
    WaveHalted,
)
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.amd.virtual.wave_execute import Execution, Outcome
from rawgpu.amd.virtual.wave_interpret import InterpreterMachine
from rawgpu.amd.virtual.wave_operands import Facts
from rawgpu.amd.virtual.wave_special import INDEX_MODE_BIT, indexed
from rawgpu.amd.virtual.wave_state import (
    WaveState,
    Word,
    begin_wave,
    facts_of,
    place_of,
    poison,
    registers_of,
)
from rawgpu.virtual.interpret import quiet
from rawgpu.virtual.meaning import NotInEngine

SLICE_INSTRUCTIONS = 4000
CACHED = "glc", "sc0", "sc1", "scope"
"""Fields that send a load past the first level of caches."""


@dataclass
class Counters:
    """What was executed, for measurements and for tests."""

    interpreted: int = 0
    lifted: int = 0
    lifted_vectors: int = 0
    """Of `lifted` those that work on lanes: vector arithmetic, and memory accesses of vectors."""
    dispatches_lifted: int = 0
    not_lifted: dict[str, int] | None = None


COUNTERS = Counters()


class Wave:
    """A wave being interpreted. `run` goes on until it ends or must wait for others."""

    def __init__(
        self,
        state: WaveState,
        code: Code,
        lds: Any,
        facts: Facts,
        dispatch: Dispatch,
        memory: GpuMemory,
        services: Services,
    ) -> None:
        self.state, self.code = state, code
        self.dispatch, self.memory = dispatch, memory
        self.machine = InterpreterMachine(state, lds, facts, dispatch, memory, services)
        self.execution = Execution(self.machine, facts)
        self.pc = dispatch.entry_va
        self.signalled = False

    @property
    def place(self) -> int:
        return self.pc

    def registers(self) -> tuple[int, bytes, bytes]:
        return registers_of(self.state, self.dispatch)

    def step(self) -> Outcome:
        """Execute one instruction."""
        instruction = self.code.at(self.pc)
        if self.state.get(Word.MODE) >> INDEX_MODE_BIT & 1:
            instruction = indexed(instruction, int(self.state.s[self.execution.facts.m0]))
        get = instruction.get
        self.machine.past_first_level = any(get(name) for name in CACHED)
        try:
            outcome = self.execution.execute(instruction, self.pc)
        except GpuPageFault as fault:
            fault.pc, fault.kernel_va = self.pc, self.dispatch.kernel_va
            raise
        except NotInEngine as error:
            raise NotModelled(
                f"{self.dispatch.generation}: {instruction.name} at {self.pc:#x}: {error}"
            ) from error
        COUNTERS.interpreted += 1
        following = self.pc + instruction.size
        if outcome.kind == "branch":
            taken = outcome.argument is None or bool(outcome.argument[0])
            if taken:
                following = self.execution.branch_target(instruction, self.pc)
        elif outcome.kind == "jump":
            following = int(outcome.argument[0])
        elif outcome.kind == "cache":
            self._cache(instruction.name)
        elif outcome.kind == "trap":
            raise WaveHalted(HaltCause.TRAP, self.pc, f"s_trap {instruction.get('simm16')}")
        self.pc = following
        return outcome

    def _cache(self, name: str) -> None:
        memory = self.memory
        if "icache" in name:
            memory.invalidate(code=True)
        elif name.startswith(("s_dcache", "s_buffer")):
            memory.invalidate(scalar=True)
        elif "wb" in name and "inv" not in name:
            memory.write_back()
        else:
            memory.invalidate(vector=True, l2="buffer_inv" in name)

    def run(self, limit: int) -> str:
        """Up to `limit` instructions: "end", "barrier", "sleep", or "slice" where more are left."""
        with quiet():
            for _ in range(limit):
                kind = self.step().kind
                if kind in ("end", "barrier", "sleep"):
                    return kind
                if kind == "barrier_wait":
                    return "barrier"
        return "slice"


def run_dispatch(dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running:
    """Execute all waves. Yields at the end of each slice."""
    from rawgpu.amd.virtual.lift_run import lifted_dispatch

    yield from lifted_dispatch(dispatch, memory, services)


def group_numbers(dispatch: Dispatch) -> range:
    """The groups that run on this XCC."""
    return range(dispatch.xcc, dispatch.total_groups, dispatch.xccs)


def interpret_dispatch(dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running:
    """Execute all waves in the interpreter."""
    facts = facts_of(dispatch)
    code = Code(facts.family, facts.wave, memory)
    lds = np.zeros(dispatch.lds_bytes, np.uint8)
    states = [WaveState(facts.wave) for _ in range(dispatch.waves_per_group)]
    for number in group_numbers(dispatch):
        place = place_of(dispatch, number)
        waves = []
        for index in range(-(-place.items // facts.wave)):
            if memory.strict:
                poison(states[index], dispatch, services)
            slot = (number * len(states) + index) % max(1, dispatch.scratch_waves)
            begin_wave(states[index], dispatch, place, index, slot)
            waves.append(Wave(states[index], code, lds, facts, dispatch, memory, services))
        if memory.strict and len(lds):
            lds[:] = np.frombuffer(services.chance.bytes(len(lds)), np.uint8)
        yield from run_group(waves, services)


def run_group(waves: Sequence[Wave], services: Services) -> Generator[Pause, None, None]:
    """Waves in turns until all have ended; at a barrier each waits for all that still live."""
    live = list(waves)
    waiting: list[Wave] = []
    services.live += live  # one that halts stays there
    while live:
        index = services.chance.below(len(live)) if len(live) > 1 else 0
        wave = live[index]
        kind = wave.run(SLICE_INSTRUCTIONS)
        if kind == "end":
            services.live.remove(live.pop(index))
        elif kind == "barrier":
            waiting.append(live.pop(index))
        elif kind == "sleep":
            yield Pause.WAITING
        if not live and waiting:
            live, waiting = waiting, []
        if kind == "slice":
            yield Pause.SLICE
    yield Pause.SLICE
