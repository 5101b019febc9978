"""Runs dispatches as native code, and interprets in between what native code leaves.

Native code is called inside the fault net; a fault there is a GPU page fault. What a launch needs
of memory for itself, registers of waves and LDS, is kept and used again (`Workplace`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rawgpu.amd.spec.waves import wave_traits
from rawgpu.amd.virtual.dispatch import (
    Access,
    Dispatch,
    GpuMemory,
    Live,
    Pause,
    Running,
    Services,
    WaveHalted,
)
from rawgpu.amd.virtual.lift_groups import (
    AT_BARRIER,
    CONTROL,
    DUMMY,
    ENDED,
    POISON_STEP_BYTES,
    TRAP_X,
    TRAP_YZ,
    VARIANT,
    Exit,
    group_loop,
)
from rawgpu.amd.virtual.lift_library import LIBRARY, Lifted
from rawgpu.amd.virtual.wave import COUNTERS, Wave, group_numbers, interpret_dispatch
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.amd.virtual.wave_state import (
    POISONED_SCALARS,
    SAMPLE_WORDS,
    SAMPLES,
    VECTOR_OFFSET,
    WaveState,
    Word,
    aligned_bytes,
    facts_of,
    item_ids,
    poison_at,
    poison_block,
    poisoned_rows,
    registers_of,
    state_bytes,
    words_of,
)
from rawgpu.native.code import native_code
from rawgpu.native.threads import thread_context
from rawgpu.virtual.interpret import quiet

FUEL = 200_000
"""Back edges in a slice."""
INTERPRETED_FUEL = 1000
"""What an interpreted instruction counts for."""
FAULT_WRITE = 2
"""Bit of x86's page fault error code."""
FAULTED = 255
"""What `launch` gives for a fault."""
LDS_SLACK = 64
ALL_ONES = (1 << 64) - 1
NO_SAMPLES = memoryview(bytes(24 * SAMPLES)).cast("L")
W = CONTROL.word


def _address(array: Any) -> int:
    return int(array.ctypes.data)


# What depends on the shape of a launch alone.


@dataclass(frozen=True)
class Shape:
    """A control block filled in as far as it is the same for all launches of a shape."""

    words: Any
    kept: tuple[Any, ...]
    """Arrays that `words` points to."""


@functools.lru_cache(maxsize=1024)
def _variant(
    size: tuple[int, int, int], lanes: int, ids: int, *, packed: bool
) -> tuple[Any, int, tuple[Any, ...]]:
    """A `VARIANT` record, the bytes of a wave's rows, and arrays to keep."""
    rows, masks = item_ids(size, lanes, ids, packed=packed)
    exec_masks = np.array(masks, np.uint64)
    record = np.zeros(VARIANT.words, np.uint64)
    record[VARIANT.word["waves"]] = len(masks)
    record[VARIANT.word["masks"]] = _address(exec_masks)
    record[VARIANT.word["rows"]] = _address(rows)
    return record, rows[0].nbytes, (rows, exec_masks)


def _shape_of(dispatch: Dispatch) -> Shape:
    d = dispatch
    return _shape(
        d.generation, d.wave_size, d.groups, d.start, d.group_size, d.partial, d.item_ids,
        len(d.user_sgprs), d.group_id_sgprs, d.group_info_sgpr, d.scratch_enabled,
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _shape(
    generation: str,
    lanes: int,
    groups: tuple[int, int, int],
    start: tuple[int, int, int],
    size: tuple[int, int, int],
    partial: tuple[int, int, int],
    ids: int,
    users: int,
    group_ids: tuple[bool, bool, bool],
    info: bool,
    scratch: bool,
) -> Shape:
    traits = wave_traits(generation)
    table, kept, row_bytes = np.zeros(8, np.uint64), [], 0
    for which in range(8):
        own = tuple(
            p if p and which >> axis & 1 else full
            for axis, (full, p) in enumerate(zip(size, partial, strict=True))
        )
        record, row_bytes, arrays = _variant(
            (own[0], own[1], own[2]), lanes, ids, packed=traits.packed_ids
        )
        table[which] = _address(record)
        kept += [record, arrays]
    places, at = [], users
    for wanted in group_ids:
        given = wanted and not traits.ids_in_traps
        places.append(4 * at if given else DUMMY)
        at += given
    if traits.ids_in_traps:
        places = [TRAP_X, TRAP_YZ, DUMMY]
    place_info = DUMMY
    if info:
        place_info, at = 4 * at, at + 1
    wants_offset = scratch and not traits.architected_scratch
    last = [count - 1 if part else ALL_ONES for count, part in zip(groups, partial, strict=True)]
    words = np.zeros(CONTROL.words, np.uint64)
    fields = {
        "stride": state_bytes(lanes), "count_x": groups[0], "count_y": groups[1],
        "start_x": start[0], "start_y": start[1], "start_z": start[2],
        "last_x": last[0], "last_y": last[1], "last_z": last[2],
        "variants": _address(table), "row_count": row_bytes, "user_count": 4 * users,
        "place_x": places[0], "place_y": places[1], "place_z": places[2],
        "place_info": place_info, "place_offset": 4 * at if wants_offset else DUMMY,
        "traps": traits.ids_in_traps, "poison_scalars": 4 * POISONED_SCALARS,
        "accumulators_at": VECTOR_OFFSET + 256 * 4 * lanes,
    }  # fmt: skip
    for name, value in fields.items():
        words[W[name]] = value
    return Shape(words, (table, *kept))


# What launches use in turns.


class Workplace:
    """Registers for the waves of a group, LDS and a control block; one launch has it at a time."""

    def __init__(self, lanes: int, waves: int, lds_bytes: int) -> None:
        self.lanes, self.waves, self.lds_bytes = lanes, waves, lds_bytes
        stride = state_bytes(lanes)
        self.block = aligned_bytes(stride * waves)
        self.states = [
            WaveState(lanes, self.block[i * stride : (i + 1) * stride]) for i in range(waves)
        ]
        self.lds = aligned_bytes(lds_bytes + LDS_SLACK)
        self.lds_address = _address(self.lds)
        self._status = np.zeros(waves, np.uint64)
        self.status = words_of(self._status)
        self._control = np.zeros(CONTROL.words, np.uint64)
        self.words, self.control = self._control, words_of(self._control)
        self.address, self.status_address = _address(self._control), _address(self._status)
        self._users = np.zeros(32, np.uint32)
        self.users: Any = self._users
        self.users_address = _address(self._users)
        self.ready_for: tuple[int, ...] = ()

    def prepare(self, memory: GpuMemory, dispatch: Dispatch) -> None:
        """Words of the states that stay the same while a dispatch runs."""
        waves = dispatch.waves_per_group
        wanted = (memory.delta, memory.limit, dispatch.lds_bytes, dispatch.entry_va, waves)
        if wanted == self.ready_for:
            return
        for state in self.states[:waves]:
            state.put(Word.DELTA, memory.delta)
            state.put(Word.LIMIT, memory.limit)
            state.put(Word.LDS, self.lds_address)
            state.put(Word.LDS_BYTES, dispatch.lds_bytes)
            state.put(Word.CODE, dispatch.entry_va)
        self.ready_for = wanted


_places: weakref.WeakKeyDictionary[GpuMemory, list[Workplace]] = weakref.WeakKeyDictionary()
"""Those that no launch has, by GPU and process: what one leaves in registers another may see."""
LDS_ROOM = 64 << 10


def take_workplace(memory: GpuMemory, dispatch: Dispatch) -> Workplace:
    """A workplace large enough for the dispatch; `give_back` it."""
    lanes, waves, lds = dispatch.wave_size, dispatch.waves_per_group, dispatch.lds_bytes
    free = _places.get(memory)
    if free is None:
        free = _places[memory] = []
    for at, place in enumerate(free):
        if place.lanes == lanes and place.waves >= waves and place.lds_bytes >= lds:
            return free.pop(at)
    return Workplace(lanes, max(waves, 8), max(lds, LDS_ROOM))


def give_back(memory: GpuMemory, place: Workplace) -> None:
    free = _places.get(memory)
    if free is not None:
        free.insert(0, place)
        del free[4:]


def lifted_dispatch(dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running:
    """Execute all waves, natively where that is worth it."""
    if not group_numbers(dispatch):
        return
    lifted = None
    if not dispatch.float_mode & 15:  # neither engine models directed rounding; one says so
        lifted = LIBRARY.find(dispatch, memory)
    if lifted is None:
        yield from interpret_dispatch(dispatch, memory, services)
        return
    COUNTERS.dispatches_lifted += 1
    runner = NativeRunner(lifted, dispatch, memory, services)
    yield from runner.run()
    runner.close()  # not where a wave halted: it keeps its registers


@dataclass(eq=False)
class LiveWave:
    """A wave between two runs of native code."""

    dispatch: Dispatch
    state: WaveState

    @property
    def place(self) -> int:
        return self.dispatch.entry_va + self.state.get(Word.PC) & ALL_ONES

    def registers(self) -> tuple[int, bytes, bytes]:
        return registers_of(self.state, self.dispatch)


class NativeRunner:
    """One dispatch being run natively."""

    def __init__(
        self, lifted: Lifted, dispatch: Dispatch, memory: GpuMemory, services: Services
    ) -> None:
        self.lifted, self.dispatch = lifted, dispatch
        self.memory, self.services = memory, services
        self.place = take_workplace(memory, dispatch)
        self._waves: dict[int, Wave] = {}
        self._code: Code | None = None
        self._begin()

    def close(self) -> None:
        """Let others have the workplace."""
        give_back(self.memory, self.place)

    def _begin(self) -> None:
        place, d = self.place, self.dispatch
        place.prepare(self.memory, d)
        shape = _shape_of(d)
        place.words[:] = shape.words
        self._shape = shape
        numbers, control = group_numbers(d), place.control
        place.users[: len(d.user_sgprs)] = d.user_sgprs
        control[W["kernel"]] = self.lifted.address
        control[W["states"]] = place.block.ctypes.data
        control[W["status"]] = place.status_address
        control[W["fuel"]] = FUEL
        control[W["random"]] = self.services.chance.word()
        control[W["next"]], control[W["end"]] = numbers.start, numbers.stop
        control[W["step"]] = numbers.step
        control[W["users"]] = place.users_address
        control[W["mode"]] = d.float_mode
        control[W["slots"]] = max(1, d.scratch_waves)
        control[W["scratch"]], control[W["wave_bytes"]] = d.scratch_base, d.scratch_wave_bytes
        control[W["most_waves"]] = d.waves_per_group
        if self.memory.strict:
            self._poison()

    def _poison(self) -> None:
        place, d, control = self.place, self.dispatch, self.place.control
        block, at = poison_block(), poison_at(self.services)
        plain, others = poisoned_rows(d)
        control[W["poison"]] = _address(block) + at
        control[W["poison_vectors"]] = plain * 4 * d.wave_size
        control[W["poison_accumulators"]] = others * 4 * d.wave_size
        if d.lds_bytes:
            place.lds[: d.lds_bytes] = block[at : at + d.lds_bytes]

    def run(self) -> Running:
        """Raises GpuPageFault."""
        control = self.place.control
        while True:
            why = self.call()
            if why is Exit.END:
                return
            if why is Exit.INTERPRET:
                if self._interpret_live() == "sleep":
                    yield from self._pause(Pause.WAITING)
                if control[W["fuel"]] < 1 << 63:  # not negative
                    continue
            control[W["fuel"]] = FUEL
            yield from self._pause(Pause.SLICE)

    def _pause(self, why: Pause) -> Running:
        """Give way; who asks meanwhile sees the waves."""
        mine = self._live()
        self.services.live += mine
        yield why
        for wave in mine:
            self.services.live.remove(wave)

    def _interpret_live(self) -> str:
        """As `interpret`; if the wave halts, the waves are live for ever."""
        try:
            return self.interpret()
        except WaveHalted:
            self.services.live += self._live()
            raise

    def _live(self) -> list[Live]:
        """The waves of the group that is under way, and not at their ends."""
        place, control = self.place, self.place.control
        if not control[W["running"]]:
            return []
        return [
            LiveWave(self.dispatch, place.states[index])
            for index in range(control[W["waves"]])
            if place.status[index] != ENDED
        ]

    def call(self) -> Exit:
        """Run native code until it leaves. Raises GpuPageFault."""
        place, memory = self.place, self.memory
        strict = memory.strict and not self.lifted.works_on_caches
        if strict:
            place.states[0].words[SAMPLE_WORDS] = NO_SAMPLES
            memory.native.enter()
        else:
            memory.native_begins()
        native_code().fault_net.ensure_installed()
        record, loop = thread_context().record, group_loop()
        record.job = place.address
        found = int(loop.launch(record, loop.guard))
        if strict:
            self._leave()
        control = place.control
        COUNTERS.lifted += control[W["executed"]]
        COUNTERS.lifted_vectors += control[W["vectors"]]
        control[W["executed"]] = control[W["vectors"]] = 0
        if found == FAULTED:
            raise self._fault(record)
        return EXITS[found]

    def _leave(self) -> None:
        """Tell the caches what the first wave accessed."""
        words = self.place.states[0].words[SAMPLE_WORDS].tolist()
        scalar, loads, stores = (
            [va for va in words[at : at + SAMPLES] if va] for at in (0, SAMPLES, 2 * SAMPLES)
        )
        low = (1 << 56) - 1
        self.memory.native.leave(scalar, loads, [(va & low, (va >> 56) + 1) for va in stores])

    def _fault(self, record: Any) -> Exception:
        state = self.place.states[self.place.control[W["current"]]]
        write = bool(int(record.error) & FAULT_WRITE)
        fault = self.memory.fault_at(int(record.address), Access.WRITE if write else Access.READ)
        fault.pc = self.dispatch.entry_va + state.get(Word.FAULT_PC) & ALL_ONES
        fault.kernel_va = self.dispatch.kernel_va
        return fault

    def begin_alone(self, fill: Callable[[WaveState], None]) -> WaveState:
        """For tests: a group of one wave under way, whose registers `fill` sets; its state."""
        control = self.place.control
        control[W["next"]] = control[W["end"]] = control[W["at"]] = self.place.status[0] = 0
        control[W["running"]] = control[W["waves"]] = control[W["direction"]] = 1
        fill(self.place.states[0])
        return self.place.states[0]

    # What native code leaves to the interpreter.

    def interpret(self) -> str:
        """Execute one instruction of the wave that left native code; the outcome's kind."""
        place, control = self.place, self.place.control
        index = control[W["current"]]
        state, wave = place.states[index], self._wave(index)
        wave.pc = self.dispatch.entry_va + state.get(Word.PC) & ALL_ONES
        wave.machine.take_mode(state.get(Word.MODE))
        with quiet():
            kind = wave.step().kind
        state.put(Word.PC, wave.pc - self.dispatch.entry_va)
        if kind == "end":
            place.status[index] = ENDED
        elif kind in ("barrier", "barrier_wait"):
            place.status[index] = AT_BARRIER
        if kind in ("end", "barrier", "barrier_wait", "sleep"):
            control[W["at"]] += 1
        control[W["fuel"]] = control[W["fuel"]] - INTERPRETED_FUEL & ALL_ONES
        return kind

    def _wave(self, index: int) -> Wave:
        found = self._waves.get(index)
        if found is None:
            facts = facts_of(self.dispatch)
            if self._code is None:
                self._code = Code(facts.family, facts.wave, self.memory)
            place, d = self.place, self.dispatch
            found = self._waves[index] = Wave(
                place.states[index], self._code, place.lds[: d.lds_bytes], facts, d, self.memory,
                self.services,
            )  # fmt: skip
        return found


EXITS = tuple(Exit)
assert POISON_STEP_BYTES % 64 == 0
