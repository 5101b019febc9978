"""Runs dispatches as native code: finds or makes the lifted kernel, calls it, finishes the rest.

Lifted kernels are kept by their code's bytes, in memory and on disk. Native code is called inside
the fault net; a fault there is a GPU page fault.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from rawgpu.amd.spec.waves import wave_traits
from rawgpu.amd.virtual.dispatch import Access, Dispatch, GpuMemory, Pause, Running, Services
from rawgpu.amd.virtual.lift_groups import CONTROL, DUMMY, TRAP_X, TRAP_YZ, groups_ir
from rawgpu.amd.virtual.lift_kernel import Exit, KernelLifter, find_blocks
from rawgpu.amd.virtual.wave import (
    COUNTERS,
    Wave,
    group_numbers,
    interpret_dispatch,
    run_group,
)
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.amd.virtual.wave_interpret import flushed_widths
from rawgpu.amd.virtual.wave_operands import Facts
from rawgpu.amd.virtual.wave_state import (
    WaveState,
    Word,
    begin_wave,
    facts_of,
    item_ids,
    place_of,
    poison,
)
from rawgpu.compiler_bridge.cache import cache
from rawgpu.compiler_bridge.llvm import compile_in_process, host_target
from rawgpu.compiler_bridge.text import Module
from rawgpu.native import system
from rawgpu.native.code import native_code
from rawgpu.native.image import Image
from rawgpu.native.threads import thread_context
from rawgpu.virtual.interpret import quiet
from rawgpu.virtual.meaning import NotInEngine

FUEL = 200_000
SMALL = 300
"""Static instructions times waves up to which a first launch without loops is interpreted."""
FAULT_WRITE = 2
"""Bit of x86's page fault error code."""
FAULTED = 255
"""What `launch` gives for a fault."""
PLAN_VERSION = 3


@dataclass
class Lifted:
    """A lifted kernel, and the code it came from: (first byte, bytes) relative to the entry."""

    low: int
    data: bytes
    launch: Any
    image: Image
    not_lifted: dict[str, int]
    count: int


@functools.cache
def _guard() -> Any:
    return system.ffi.cast("void *", native_code().image.address("guarded_call"))


def lift_text(code: Code, entry: int, facts: Facts, mode: int, *, entry_full: bool) -> KernelLifter:
    """The kernel as LLVM IR; the text is `str` of the lifter's module with the group loop."""
    module = Module()
    lifter = KernelLifter(module, code, entry, facts, flushed_widths(mode))
    lifter.lift(entry_full=entry_full)
    module.append(groups_ir())
    return lifter


class Library:
    """The lifted kernels of this process."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[Lifted]] = {}
        self._refused: set[tuple[object, ...]] = set()

    def find(
        self, code: Code, dispatch: Dispatch, facts: Facts, *, entry_full: bool
    ) -> Lifted | None:
        """The kernel for this launch; None where it is not worth it or cannot be done."""
        entry, mode = dispatch.entry_va, dispatch.float_mode
        start = code.bytes_at(entry, 64)
        key = (facts, mode, entry_full, start)
        for lifted in self._known.get(key, ()):
            if code.bytes_at(entry + lifted.low, len(lifted.data)) == lifted.data:
                return lifted
        blocks = find_blocks(code, entry)
        count = sum(len(block.instructions) for block in blocks.values())
        loops = any(s <= block.start for block in blocks.values() for s in block.successors)
        waves = len(group_numbers(dispatch)) * dispatch.waves_per_group
        if not loops and count * waves <= SMALL:
            return None
        low = min(blocks)
        last = max(pc + i.size for block in blocks.values() for pc, i in block.instructions)
        data = code.bytes_at(low, last - low)
        whole = (*key, data)
        if whole in self._refused:
            return None
        try:
            made = self._make(code, entry, facts, mode, entry_full, low - entry, data)
        except NotInEngine as error:
            self._refused.add(whole)
            _count_refusal(str(error))
            return None
        made.count = count
        self._known.setdefault(key, []).append(made)
        return made

    def _make(
        self, code: Code, entry: int, facts: Facts, mode: int, full: bool, low: int, data: bytes
    ) -> Lifted:
        host = host_target()
        parts = (PLAN_VERSION, facts, mode, full, low, hashlib.sha256(data).hexdigest(), host)
        not_lifted: dict[str, int] = {}

        def build() -> bytes:
            lifter = lift_text(code, entry, facts, mode, entry_full=full)
            not_lifted.update(lifter.not_lifted)
            return compile_in_process(str(lifter.module), host, passes="none", level=2)

        image = Image(cache().get_or_build("plan", f"lifted {parts!r}", build))
        for name in not_lifted:
            _count_refusal(name)
        call = system.ffi.cast("uint64_t (*)(void *, void *)", image.address("launch"))
        return Lifted(low, data, call, image, not_lifted, 0)


LIBRARY = Library()


def _count_refusal(name: str) -> None:
    if COUNTERS.not_lifted is None:
        COUNTERS.not_lifted = {}
    COUNTERS.not_lifted[name] = COUNTERS.not_lifted.get(name, 0) + 1


def lifted_dispatch(dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running:
    """Execute all waves, natively where that is worth it."""
    facts = facts_of(dispatch)
    code = Code(facts.family, facts.wave, memory)
    whole = not any(dispatch.partial) and dispatch.items % facts.wave == 0
    lifted = LIBRARY.find(code, dispatch, facts, entry_full=whole)
    if lifted is None or dispatch.float_mode & 15:
        yield from interpret_dispatch(dispatch, memory, services)
        return
    COUNTERS.dispatches_lifted += 1
    runner = NativeRunner(lifted, code, facts, dispatch, memory, services)
    if dispatch.waves_per_group == 1 and not any(dispatch.partial):
        yield from runner.run_single_waves()
    else:
        yield from runner.run_groups()


class NativeRunner:
    """One dispatch being run natively."""

    def __init__(
        self,
        lifted: Lifted,
        code: Code,
        facts: Facts,
        dispatch: Dispatch,
        memory: GpuMemory,
        services: Services,
    ) -> None:
        self.lifted, self.code, self.facts = lifted, code, facts
        self.dispatch, self.memory, self.services = dispatch, memory, services
        self.lds = np.zeros(dispatch.lds_bytes + 64, np.uint8)
        if memory.strict:
            self.lds[:] = np.frombuffer(services.chance.bytes(len(self.lds)), np.uint8)
        self.control = np.zeros(CONTROL.words, np.uint64)

    def _state(self) -> WaveState:
        state = WaveState(self.facts.wave)
        if self.memory.strict:
            poison(state, self.dispatch, self.services)
        state.put(Word.DELTA, self.memory.delta)
        state.put(Word.LIMIT, self.memory.limit)
        state.put(Word.LDS, self.lds.ctypes.data)
        state.put(Word.LDS_BYTES, self.dispatch.lds_bytes)
        state.put(Word.CODE, self.dispatch.entry_va)
        return state

    def _set(self, **fields: int) -> None:
        for name, value in fields.items():
            self.control[CONTROL.word[name]] = value & ((1 << 64) - 1)

    def _call(self, state: WaveState, fuel: int) -> Exit:
        """Run native code. Raises GpuPageFault."""
        self.memory.native_begins()
        code, context = native_code(), thread_context()
        code.fault_net.ensure_installed()
        state.put(Word.FUEL, fuel)
        before = state.get(Word.COUNT)
        record = context.record
        record.job = self.control.ctypes.data
        found = int(self.lifted.launch(record, _guard()))
        COUNTERS.lifted += state.get(Word.COUNT) - before
        if found == FAULTED:
            raise self._fault(state, record)
        return Exit(found)

    def _fault(self, state: WaveState, record: Any) -> Exception:
        write = bool(int(record.error) & FAULT_WRITE)
        fault = self.memory.fault_at(int(record.address), Access.WRITE if write else Access.READ)
        fault.pc = self.dispatch.entry_va + state.get(Word.FAULT_PC)
        fault.kernel_va = self.dispatch.kernel_va
        return fault

    # Groups of one wave: all in one call.

    def run_single_waves(self) -> Running:
        dispatch, state = self.dispatch, self._state()
        numbers = group_numbers(dispatch)
        machine = wave_traits(dispatch.generation)
        users = np.array(dispatch.user_sgprs or (0,), np.uint32)
        rows, mask = item_ids(dispatch, place_of(dispatch, 0), 0)
        if machine.packed_ids:
            rows = rows[0] | rows[1] << 10 | rows[2] << 20
            if dispatch.item_ids < 2:
                rows &= 0xFFFFF
        else:
            rows = rows[: dispatch.item_ids + 1]
        rows = np.ascontiguousarray(rows)
        places = self._id_places(machine.ids_in_traps)
        first = place_of(dispatch, 0)
        begin_wave(state, dispatch, first, 0, 0)  # what is the same in all groups
        self._set(
            state=state.address, groups=1, next=numbers.start, end=numbers.stop,
            step=numbers.step, count_x=dispatch.groups[0], count_y=dispatch.groups[1],
            start_x=dispatch.start[0], start_y=dispatch.start[1], start_z=dispatch.start[2],
            users=users.ctypes.data, user_count=4 * len(dispatch.user_sgprs),
            place_x=places[0], place_y=places[1], place_z=places[2],
            traps=machine.ids_in_traps, rows=rows.ctypes.data, row_count=rows.nbytes,
            exec=mask, mode=dispatch.float_mode, slots=max(1, dispatch.scratch_waves),
            scratch=dispatch.scratch_base, wave_bytes=dispatch.scratch_wave_bytes,
        )  # fmt: skip
        while True:
            why = self._call(state, FUEL)
            if why is Exit.END:
                return
            if why is not Exit.GROUPS:
                self._set(groups=0)
                yield from self._finish_wave(state, why)
                self._set(groups=1)
                done = int(self.control[CONTROL.word["next"]]) + numbers.step
                self._set(next=done)
                if done >= numbers.stop:
                    return
            yield Pause.SLICE

    def _id_places(self, traps: bool) -> list[int]:
        if traps:
            return [TRAP_X, TRAP_YZ, DUMMY]
        at, places = len(self.dispatch.user_sgprs), []
        for wanted in self.dispatch.group_id_sgprs:
            places.append(4 * at if wanted else DUMMY)
            at += wanted
        return places

    def _wave(self, state: WaveState) -> Wave:
        lds = self.lds[: self.dispatch.lds_bytes]
        return Wave(state, self.code, lds, self.facts, self.dispatch, self.memory, self.services)

    def _finish_wave(self, state: WaveState, why: Exit) -> Running:
        """Go on with a wave that native code left, until it ends; barriers are alone here."""
        wave = MixedWave(self, state, self._wave(state))
        wave.left = why
        while (kind := wave.run(1)) != "end":
            if kind == "slice":
                yield Pause.SLICE
            elif kind == "sleep":
                yield Pause.WAITING

    # Groups of several waves: in turns.

    def run_groups(self) -> Running:
        dispatch, facts = self.dispatch, self.facts
        states = [self._state() for _ in range(dispatch.waves_per_group)]
        self._set(groups=0)
        for number in group_numbers(dispatch):
            place = place_of(dispatch, number)
            waves: list[Any] = []
            for index in range(-(-place.items // facts.wave)):
                slot = (number * len(states) + index) % max(1, dispatch.scratch_waves)
                begin_wave(states[index], dispatch, place, index, slot)
                waves.append(MixedWave(self, states[index], self._wave(states[index])))
            yield from run_group(waves, self.services, quiet_end=True)
        yield Pause.SLICE


class MixedWave:
    """A wave that runs natively, and in the interpreter where it must."""

    def __init__(self, runner: NativeRunner, state: WaveState, wave: Wave) -> None:
        self.runner, self.state, self.wave = runner, state, wave
        self.left: Exit | None = None

    def run(self, limit: int) -> str:
        """As `Wave.run`; a slice is a load of fuel."""
        entry = self.runner.dispatch.entry_va
        for _ in range(64):
            why, self.left = self.left, None
            if why is None:
                self.runner._set(state=self.state.address)
                why = self.runner._call(self.state, FUEL)
            if why is Exit.END:
                return "end"
            if why is Exit.SLICE:
                return "slice"
            if why is Exit.BARRIER:
                return "barrier"
            if why is Exit.JUMP:
                continue
            self.wave.pc = entry + self.state.get(Word.PC)
            with quiet():
                outcome = self.wave.step()
            self.state.put(Word.PC, self.wave.pc - entry)
            if outcome.kind in ("end", "barrier", "sleep"):
                return outcome.kind
            if outcome.kind == "barrier_wait":
                return "barrier"
        return "slice"
