"""How what is bound by memory goes through it.

* Several places are read in turn: from one, memory gives a core what one row of lines in flight
  carries; eight give a third more.
* What is computed with for long is asked for ahead of time: the lines that a core keeps in flight
  by itself lie within the instructions that it sees at once.
* A large result is stored past the caches: a plain store reads the line that it changes, and pushes
  something else out of the cache. Where the result is too large for whoever reads it next to find
  it there, both are in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from frontend.loops.index import Index, Var
from frontend.loops.machine import Machine
from frontend.loops.nest import Kernel, Kind, Loops, Nest, Prefetch, Role, Slot, Stream, apply

MOST_STREAMS = 8
"""Places that are read in turn."""
TEMPORARY_SHARE = 0.125
"""What the same plan reads again is found in the last cache up to about this share of it: other
programs use it too."""


def read_at_once(nest: Nest, machine: Machine) -> Var | None:
    """The output axis of a reduction of which several rows should be read in turn, if there is one.

    For reductions that read every element once, with lanes along it.
    """
    if nest.inner or nest.ordered or not machine.shuffles:
        return None
    long = [v for v in nest.axes if v.extent > 1]
    return max(long, key=lambda v: min(v.extent, MOST_STREAMS), default=None)


def streams_of(nest: Nest) -> int:
    """Rows to read in turn."""
    return max(1, MOST_STREAMS // max(1, len(nest.loads())))


def through_memory(kernel: Kernel, machine: Machine, temporary: Collection[int]) -> Kernel:
    """The kernel with steps for what is large: results past the caches, operands ahead of time.

    `temporary`: the slots that later kernels of the plan read.
    """
    nests = []
    for nest in kernel.nests:
        streams = _streams(nest, kernel, machine, temporary) if machine.streaming else ()
        prefetches = _prefetches(nest, kernel, machine)
        nests.append(replace(nest, steps=(*nest.steps, *streams, *prefetches)))
    return replace(kernel, nests=tuple(nests))


def _streams(
    nest: Nest, kernel: Kernel, machine: Machine, temporary: Collection[int]
) -> Iterator[Stream]:
    """For the large results of the nest that the kernel does not read itself."""
    read = {load.slot for other in kernel.nests for load in other.loads()}
    for number in sorted({s.slot for s in (*nest.stores, *nest.inner)} - read):
        slot = kernel.slots[number]
        least = _least_bytes(nest, machine, is_temporary=number in temporary)
        if slot.role is Role.OUTPUT and _bytes(slot) >= least:
            yield Stream(number)


def _least_bytes(nest: Nest, machine: Machine, *, is_temporary: bool) -> float:
    """How large a result has to be to be stored past the caches."""
    if _rows_apart(nest):
        return machine.l2_bytes / (1 if is_temporary else 2)
    leaves_l2 = 2 * machine.l2_bytes
    return max(leaves_l2, TEMPORARY_SHARE * machine.l3_bytes) if is_temporary else leaves_l2


def _rows_apart(nest: Nest) -> bool:
    """Whether one store of a map does not go on where the last ended.

    No processor guesses where the next one goes, so that every plain store would wait for its line.
    """
    loops = apply(nest.axes, nest.reduce, nest.steps)
    if nest.reduce or any(lo.kind is Kind.UNROLL for lo in loops.order):
        return not nest.reduce
    steps = [_step(s.index, loops) for s in nest.stores]
    return any(step not in (0, _row(loops)) for step in steps)


def _row(loops: Loops) -> int:
    """Lanes of the tile."""
    return next((lo.var.extent for lo in loops.order if lo.kind is Kind.VECTOR), 1)


def _step(index: Index, loops: Loops) -> int | None:
    """How far the index moves in a round of the innermost loop; None if not evenly."""
    inner = next((lo.var for lo in reversed(loops.order) if lo.kind is Kind.LOOP), None)
    return 0 if inner is None else index.substitute(loops.values).coefficient(inner)


def _prefetches(nest: Nest, kernel: Kernel, machine: Machine) -> Iterator[Prefetch]:
    """For operands that no cache held before and that are read once, one row after another."""
    loops = apply(nest.axes, nest.reduce, nest.steps)
    vector = next((lo.var for lo in loops.order if lo.kind is Kind.VECTOR), None)
    if vector is None or any(lo.kind in (Kind.UNROLL, Kind.CHAIN) for lo in loops.order):
        return  # several rows are read in turn, and each row's next line is fetched anyway
    around = {*kernel.outer, *nest.axes, *nest.reduce}
    for number in sorted({load.slot for load in nest.loads()}):
        slot = kernel.slots[number]
        mine = [load.index for load in nest.loads() if load.slot == number]
        if len(mine) > 1 or mine[0].variables() != around:
            continue
        in_rows = mine[0].substitute(loops.values).coefficient(vector) == 1
        if not in_rows or _step(mine[0], loops) not in (0, _row(loops)):
            continue
        if slot.role is Role.INPUT and _bytes(slot) >= machine.l2_bytes and machine.prefetch_bytes:
            yield Prefetch(number, machine.prefetch_bytes)


def _bytes(slot: Slot) -> int:
    return slot.size * slot.dtype.size_bytes
