"""The lifted kernels of this process: found again by where their code is, made when it pays.

A launch finds its kernel by entry address and compares the pages of code with what the instruction
cache has: bytes objects, so where nothing was invalidated since it compares identities. Code that
moved, or that was loaded anew, is found by its bytes. Lifted kernels are also kept on disk.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field

from rawgpu.amd.virtual.dispatch import Dispatch, GpuMemory, GpuPageFault
from rawgpu.amd.virtual.lift_kernel import KernelLifter, find_blocks
from rawgpu.amd.virtual.wave import COUNTERS, group_numbers
from rawgpu.amd.virtual.wave_code import PAGE_BYTES, Code
from rawgpu.amd.virtual.wave_interpret import flushed_widths
from rawgpu.amd.virtual.wave_operands import VECTOR_FORMATS, Facts
from rawgpu.amd.virtual.wave_state import facts_of
from rawgpu.compiler_bridge.cache import cache
from rawgpu.compiler_bridge.llvm import compile_in_process, host_target
from rawgpu.compiler_bridge.text import Module
from rawgpu.native.image import Image
from rawgpu.virtual.meaning import NotInEngine

SMALL = 300
"""Static instructions times waves up to which first launches without loops are interpreted."""
INTERPRETED_LAUNCHES = 2
"""How many of these."""
PLAN_VERSION = 10
MOST_PLACES = 4096
ALTERNATIVES = 4
"""Kernels that are remembered of one entry address."""


@dataclass
class Lifted:
    """A lifted kernel, and the code it came from: (first byte, bytes) relative to the entry."""

    low: int
    data: bytes
    image: Image
    address: int
    """Of the native function."""
    not_lifted: dict[str, int]
    count: int
    """Static instructions."""
    vectors: int
    """Of these, those that work on lanes."""
    works_on_caches: bool
    """Has instructions that invalidate caches or write them back."""
    seconds: float
    """Of this thread, for reading the code, lifting and compiling it."""


@dataclass
class Known:
    """What is at an entry address: pages of code, and what to run instead of it."""

    pages: list[tuple[int, bytes]]
    lifted: Lifted | None
    small: bool = False
    """Interpreted so far because that is less work."""
    launches: int = 1

    def is_at(self, memory: GpuMemory) -> bool:
        """Whether the instruction cache has this code now. Raises GpuPageFault for the first."""
        try:
            return all(memory.code(va, PAGE_BYTES) == data for va, data in self.pages)
        except GpuPageFault:
            if memory.code(self.pages[0][0], 4):
                return False
            raise


@dataclass
class Survey:
    """Code reachable from an entry."""

    low: int
    data: bytes
    count: int
    vectors: int
    loops: bool
    works_on_caches: bool
    pages: list[tuple[int, bytes]] = field(default_factory=list)


def survey(code: Code, entry: int) -> Survey:
    """Raises NotInEngine for too much of it."""
    blocks = find_blocks(code, entry)
    if not blocks:
        raise NotInEngine("no instruction at the entry")
    all_of_them = [i for block in blocks.values() for _, i in block.instructions]
    count = len(all_of_them)
    vectors = sum(instruction.format in VECTOR_FORMATS for instruction in all_of_them)
    loops = any(s <= block.start for block in blocks.values() for s in block.successors)
    low = min(blocks)
    last = max(pc + i.size for block in blocks.values() for pc, i in block.instructions)
    cached = any("cache_control" in instruction.meaning for instruction in all_of_them)
    data = code.bytes_at(low, last - low)
    return Survey(low - entry, data, count, vectors, loops, cached, code.fetched_pages())


def lift_text(code: Code, entry: int, facts: Facts, mode: int, *, entry_full: bool) -> KernelLifter:
    """The kernel as LLVM IR; the text is `str` of the lifter's module."""
    lifter = KernelLifter(Module(), code, entry, facts, flushed_widths(mode))
    lifter.lift(entry_full=entry_full)
    return lifter


class Library:
    """The lifted kernels of this process."""

    def __init__(self) -> None:
        self._places: dict[tuple[object, ...], list[Known]] = {}
        self._made: dict[tuple[object, ...], list[Lifted]] = {}
        self._refused: set[tuple[object, ...]] = set()

    def made(self) -> list[Lifted]:
        """All kernels, in the order in which they were made."""
        return [lifted for lifts in self._made.values() for lifted in lifts]

    def forget(self) -> None:
        """Find or make every kernel anew."""
        self._places.clear()
        self._made.clear()
        self._refused.clear()

    def find(
        self, dispatch: Dispatch, memory: GpuMemory, *, at_once: bool = False
    ) -> Lifted | None:
        """The kernel for this launch; None where it is not worth it or cannot be done.

        `at_once`: worth it in any case.
        """
        full = not any(dispatch.partial) and dispatch.items % dispatch.wave_size == 0
        place = (
            dispatch.entry_va, dispatch.generation, dispatch.wave_size, dispatch.float_mode, full,
            dispatch.dx10_clamp, dispatch.apertures,
        )  # fmt: skip
        alternatives = self._places.get(place)
        if alternatives is not None:
            for known in alternatives:
                if known.is_at(memory):
                    if not known.small:
                        return known.lifted
                    known.launches += 1
                    if known.launches <= INTERPRETED_LAUNCHES and not at_once:
                        return None
                    alternatives.remove(known)
                    at_once = True
                    break
        known = self._look(dispatch, memory, full, at_once)
        if len(self._places) >= MOST_PLACES:
            self._places.clear()
        self._places[place] = [known, *(alternatives or [])[: ALTERNATIVES - 1]]
        return known.lifted

    def _look(self, dispatch: Dispatch, memory: GpuMemory, full: bool, at_once: bool) -> Known:
        """What the code at the entry is."""
        facts, entry, mode = facts_of(dispatch), dispatch.entry_va, dispatch.float_mode
        code = Code(facts.family, facts.wave, memory)
        key = (facts, mode, full, code.bytes_at(entry, 64))
        for lifted in self._made.get(key, ()):
            if code.bytes_at(entry + lifted.low, len(lifted.data)) == lifted.data:
                return Known(code.fetched_pages(), lifted)
        began = time.thread_time()
        try:
            found = survey(code, entry)
        except NotInEngine as error:
            _count_refusal(str(error))
            return Known(code.fetched_pages(), None)
        work = found.count * len(group_numbers(dispatch)) * dispatch.waves_per_group
        if not found.loops and work <= SMALL and not at_once:
            return Known(found.pages, None, small=True)
        whole = (*key, found.data)
        if whole in self._refused:
            return Known(found.pages, None)
        try:
            made = _make(code, entry, facts, mode, full, found)
            made.seconds = time.thread_time() - began
        except NotInEngine as error:
            self._refused.add(whole)
            _count_refusal(str(error))
            return Known(found.pages, None)
        self._made.setdefault(key, []).append(made)
        return Known(found.pages, made)


def _make(code: Code, entry: int, facts: Facts, mode: int, full: bool, found: Survey) -> Lifted:
    host = host_target()
    digest = hashlib.sha256(found.data).hexdigest()
    parts = (PLAN_VERSION, facts, mode, full, found.low, digest, host)
    not_lifted: dict[str, int] = {}

    def build() -> bytes:
        lifter = lift_text(code, entry, facts, mode, entry_full=full)
        not_lifted.update(lifter.not_lifted)
        return compile_in_process(str(lifter.module), host, passes="none", level=2)

    image = Image(cache().get_or_build("plan", f"lifted {parts!r}", build))
    for name in not_lifted:
        _count_refusal(name)
    address = image.address("kernel")
    return Lifted(
        low=found.low,
        data=found.data,
        image=image,
        address=address,
        not_lifted=not_lifted,
        count=found.count,
        vectors=found.vectors,
        works_on_caches=found.works_on_caches,
        seconds=0.0,
    )


LIBRARY = Library()


def _count_refusal(name: str) -> None:
    if COUNTERS.not_lifted is None:
        COUNTERS.not_lifted = {}
    COUNTERS.not_lifted[name] = COUNTERS.not_lifted.get(name, 0) + 1
