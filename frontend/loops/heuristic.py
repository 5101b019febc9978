"""Schedules chosen without search, from a small model of the machine.

The rules, in the order they are asked:

* The vector axis is the one that makes loads cheapest: a load whose index does not move with the
  axis is one scalar, step 1 is one vector, anything else costs a gather, unless it can be
  transposed in registers.
* A reduction keeps as many accumulators as the registers hold: along an unrolled output axis that
  shares the vector loads, along the vector axis, and, where lanes run along the reduction, along
  that.
* An operand that every register tile reads again, in an order the vector axis does not like, is
  staged.
* Outer output loops become the grid until a block has a few ten thousand points of work.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from frontend.graph.node import Op
from frontend.loops import expr as ex
from frontend.loops.index import Index, Var
from frontend.loops.lanes import lane_axis
from frontend.loops.limits import settled
from frontend.loops.machine import Machine
from frontend.loops.maps import BLOCK_POINTS, map_steps, widest_bits
from frontend.loops.nest import (
    Kernel,
    Kind,
    Mark,
    Nest,
    Reduction,
    Split,
    Stage,
    Step,
    Store,
    apply,
)
from frontend.loops.products import along_output, sharing_axis, staged_load
from frontend.loops.stages import copy_of
from frontend.loops.streams import MOST_STREAMS, read_at_once, streams_of, through_memory
from frontend.loops.tiling import Tiling

COPY_ROWS = 20
"""What the copy of a panel costs, in rows that it serves."""
LEAST_STAGED_ROWS = 64
"""Rows for whose sake a panel is worth turning."""


def schedule(kernel: Kernel, machine: Machine, temporary: Collection[int] = ()) -> Kernel:
    """The kernel with steps for its outer loops and each nest.

    `temporary`: the slots that later kernels of the plan read.
    """
    return through_memory(_with_steps(kernel, machine), machine, temporary)


def _with_steps(kernel: Kernel, machine: Machine) -> Kernel:
    if kernel.outer:
        nests = settled([_scheduled(n, machine, grid=False) for n in kernel.nests])
        return replace(kernel, nests=nests, outer_steps=_outer_steps(kernel))
    grid = len(kernel.nests) == 1
    return replace(kernel, nests=tuple(_scheduled(n, machine, grid=grid) for n in kernel.nests))


def _outer_steps(kernel: Kernel) -> tuple[Step, ...]:
    """Mark shared loops as grid until a block has about BLOCK_POINTS."""
    steps: list[Step] = []
    below = sum(n.points for n in kernel.nests) * math.prod(v.extent for v in kernel.outer)
    for v in kernel.outer:
        below //= v.extent
        if below >= BLOCK_POINTS or v.extent == 1:
            steps.append(Mark(v.name, Kind.GRID))
            if below < 4 * BLOCK_POINTS:
                break
            continue
        chunk = -(-BLOCK_POINTS // below)
        if chunk < v.extent:
            steps += [Split(v.name, chunk), Mark(f"{v.name}/{chunk}", Kind.GRID)]
        break
    return tuple(steps)


def _scheduled(nest: Nest, machine: Machine, *, grid: bool) -> Nest:
    if nest.ordered:
        return replace(nest, steps=_ordered(nest, machine, grid=grid))
    if not (nest.axes or nest.reduce):
        return replace(nest, steps=())
    vector = None
    if machine.block_lanes:
        nest, vector = lane_axis(nest, machine)
    schedule_of = _reduction if nest.reduce else map_steps
    return replace(nest, steps=schedule_of(nest, machine, vector, grid=grid))


# --- what loads cost -----------------------------------------------------------------------------


def _load_cost(index: Index, var: Var, machine: Machine) -> float:
    step = index.coefficient(var)
    if step == 0:
        return 0.5
    if step == 1:
        return 1.0
    if step == -1 and machine.shuffles:
        return 1.5
    if step in (2, 3, 4):
        return 2.0 * step
    return 16.0


def _reuse(nest: Nest, index: Index, vector: Var) -> int:
    """How many rounds of an unrolled output axis can share what was loaded at `index`."""
    if not nest.reduce:
        return 1
    still = [v.extent for v in nest.axes if v != vector and not index.depends_on(v)]
    return max(1, min(8 if vector in nest.axes else 4, max(still, default=1)))


def _store_cost(stores: Sequence[Store], var: Var) -> float:
    costs: dict[int | None, float] = {1: 1.0, 0: 2.0}
    return sum(costs.get(s.index.coefficient(var), 16.0) for s in stores)


def _vector_axis(nest: Nest, machine: Machine) -> Var:
    """The axis whose lanes make loads and stores cheapest; an output axis wins a tie."""
    loads = nest.loads()
    often = set(ex.walk((*(r.value for r in nest.reductions), *(s.value for s in nest.inner))))
    reduce_points = math.prod(v.extent for v in nest.reduce)
    best: tuple[float, Var] | None = None
    for v in (*reversed(nest.axes), *reversed(nest.reduce)):
        staged = _staged(nest, machine, v)
        cost = 1.0 + sum(
            _staged_cost(nest, load.index, v)
            if load is staged
            else _load_cost(load.index, v, machine) / _reuse(nest, load.index, v)
            if load in often
            else _load_cost(load.index, v, machine) / max(1, reduce_points)
            for load in loads
        )
        if v in nest.reduce:
            cost += 0.25 + 8.0 / max(1, reduce_points)
        else:
            cost += _store_cost(nest.stores, v) / max(1, reduce_points)
        lanes = machine.lanes(widest_bits(nest))
        filled = v.extent / (-(-v.extent // lanes) * lanes)
        cost /= filled
        if best is None or cost < best[0]:
            best = (cost, v)
    assert best is not None
    return best[1]


def _staged_cost(nest: Nest, index: Index, vector: Var) -> float:
    """A load of a panel, and its share of the copy that made the panel."""
    rows = max((v.extent for v in nest.axes if not index.depends_on(v)), default=1)
    return min(1.0, 1.0 / _reuse(nest, index, vector) + COPY_ROWS / rows)


def _staged(nest: Nest, machine: Machine, vector: Var) -> ex.Load | None:
    """The load that would be read as a panel, so that its order in memory does not matter."""
    shared = sharing_axis(nest, vector) if vector in nest.axes and machine.shuffles else None
    if shared is None or shared.extent < LEAST_STAGED_ROWS:
        return None
    return staged_load(nest, machine, vector, shared, 4 * machine.lanes(widest_bits(nest)))


# --- reductions ----------------------------------------------------------------------------------


def _reduction(
    nest: Nest, machine: Machine, vector: Var | None = None, *, grid: bool
) -> tuple[Step, ...]:
    vector = vector or _vector_axis(nest, machine)
    if nest.inner and vector not in nest.reduce and not nest.axes:
        vector = nest.reduce[-1]
    if vector in nest.reduce:
        return _along_reduction(nest, machine, vector, grid=grid)
    lanes = machine.lanes(widest_bits(nest))
    steps = along_output(
        nest, machine, vector, lanes=lanes, block_points=BLOCK_POINTS if grid else 0
    )
    return _with_copies(nest, machine, steps)


def _with_copies(nest: Nest, machine: Machine, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, where the copy of each stage, a map inside one block, has steps of its own."""
    loops = apply(nest.axes, nest.reduce, steps)
    return tuple(
        replace(
            step, steps=map_steps(copy_of(step, nest, loops, {}, {}, -1).nest, machine, grid=False)
        )
        if isinstance(step, Stage)
        else step
        for step in steps
    )


def _simple(r: Reduction) -> bool:
    return r.kind not in (Op.ARGMAX, Op.ARGMIN)


def _along_reduction(nest: Nest, machine: Machine, vector: Var, *, grid: bool) -> tuple[Step, ...]:
    """Lanes run along the reduction; partial sums meet at the end."""
    lanes = machine.lanes(widest_bits(nest))
    tiling = Tiling(nest)
    budget = max(1, machine.registers // 3)
    shared = sharing_axis(nest, vector)
    rows = 1
    columns = sharing_axis(nest, vector, but=shared) if shared is not None else None
    if shared is not None and not nest.inner:
        # all that a matrix times a vector reads of memory is the matrix
        most = MOST_STREAMS if columns is None and machine.shuffles else 4
        rows = min(most, shared.extent)
        tiling.tile(shared, rows, Kind.UNROLL)
    if columns is not None and rows > 1 and not nest.inner:
        width = min(4, columns.extent)
        tiling.tile(columns, width, Kind.UNROLL)
        rows *= width
    if shared is None and (several := read_at_once(nest, machine)) is not None:
        rows = min(several.extent, streams_of(nest), budget // len(nest.reductions))
        tiling.tile(several, rows, Kind.UNROLL)
    copies = max(1, budget // max(1, rows * len(nest.reductions)))
    copies = min(copies, 2 if nest.inner or not all(map(_simple, nest.reductions)) else 8)
    tiling.tile(vector, lanes * copies, Kind.VECTOR)
    reduce = [(part, Kind.LOOP) for part in tiling.left(*nest.reduce)]
    return tiling.finish(tiling.left(*nest.axes), reduce, BLOCK_POINTS if grid else 0)


# --- scans and scatters --------------------------------------------------------------------------


def _ordered(nest: Nest, machine: Machine, *, grid: bool) -> tuple[Step, ...]:
    """Points run in axis order; only axes outside that order may be lanes, rows or grid."""
    lanes = machine.lanes(widest_bits(nest))
    tiling = Tiling(nest)
    free = [v for v in nest.axes if v not in nest.ordered]
    vector = _ordered_vector(nest, free)
    if vector is not None:
        tiling.tile(vector, lanes * 4, Kind.VECTOR)
    elif free and nest.reduce:
        scanned = nest.reduce[0]
        steps = {load.index.coefficient(scanned) for load in nest.loads()}
        along = machine.shuffles and steps <= {0, 1}
        tiling.tile(free[-1], 4 if along else 8, Kind.UNROLL)
        if along:
            tiling.tile(scanned, lanes, Kind.VECTOR)
    outer = tiling.left(*free)
    inner = tiling.left(*(v for v in nest.axes if v in nest.ordered))
    reduce = [(part, Kind.LOOP) for part in tiling.left(*nest.reduce)]
    blocks = outer if grid and nest.points > BLOCK_POINTS else []
    return tiling.steps([*outer, *inner], reduce, blocks)


def _ordered_vector(nest: Nest, free: Sequence[Var]) -> Var | None:
    """A free axis along which every store writes neighbours."""
    bound = {v for s in nest.stores if s.position is not None for v in s.position.variables}
    stores = (*nest.stores, *nest.inner)
    for v in free:
        if v not in bound and all(s.index.coefficient(v) == 1 for s in stores):
            return v if v.extent >= 2 else None
    return None
