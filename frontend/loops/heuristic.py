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
from collections.abc import Sequence
from dataclasses import replace

from frontend.graph.node import Op
from frontend.loops import expr as ex
from frontend.loops import stages
from frontend.loops.index import Index, Var
from frontend.loops.lanes import lane_axis
from frontend.loops.machine import Machine
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
from frontend.loops.tiling import Part, Tiling

BLOCK_POINTS = 16_384
"""Points of a map, or multiply-adds, that are worth a grid block: some microseconds."""
PIECE_BYTES = 4096
"""A piece of a row that is long enough for the prefetcher."""
MOST_STREAMED_ROWS = 16
"""More rows than that make a product, bound by arithmetic, of what is bound by memory."""

SCALAR_ROUNDS = 9
"""Rounds of a reduction that a GPU's code writes out, so that scalar loads take several at once."""


def schedule(kernel: Kernel, machine: Machine) -> Kernel:
    """The kernel with steps for its outer loops and each nest."""
    if kernel.outer:
        nests = tuple(_scheduled(n, machine, grid=False) for n in kernel.nests)
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
    schedule_of = _reduction if nest.reduce else _map
    return replace(nest, steps=schedule_of(nest, machine, vector, grid=grid))


# --- what loads cost -----------------------------------------------------------------------------


def _bits(nest: Nest) -> int:
    widths = [
        e.dtype.bits if e.dtype.bits > 16 or not e.dtype.is_float else 32 for e in _vectors(nest)
    ]
    return max(widths, default=32)


def _vectors(nest: Nest) -> list[ex.Expr]:
    return [e for e in ex.walk(nest.expressions()) if e.variables and e.dtype.kind != "b"]


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
    reduce_points = math.prod(v.extent for v in nest.reduce)
    best: tuple[float, Var] | None = None
    for v in (*reversed(nest.axes), *reversed(nest.reduce)):
        cost = 1.0 + sum(
            _load_cost(load.index, v, machine) / _reuse(nest, load.index, v) for load in loads
        )
        if v in nest.reduce:
            cost += 0.25 + 8.0 / max(1, reduce_points)
        else:
            cost += _store_cost(nest.stores, v) / max(1, reduce_points)
        lanes = machine.lanes(_bits(nest))
        filled = v.extent / (-(-v.extent // lanes) * lanes)
        cost /= filled
        if best is None or cost < best[0]:
            best = (cost, v)
    assert best is not None
    return best[1]


# --- maps ----------------------------------------------------------------------------------------


def _map(
    nest: Nest, machine: Machine, vector: Var | None = None, *, grid: bool
) -> tuple[Step, ...]:
    if not nest.axes:
        return ()
    lanes = machine.lanes(_bits(nest))
    vector = vector or _map_vector(nest)
    turned = _transposed_axis(nest, vector, lanes) if machine.shuffles else None
    tiling = Tiling(nest)
    if turned is not None:
        tiling.tile(turned, lanes, Kind.UNROLL)
    if vector.extent > 4 * BLOCK_POINTS and grid and turned is None:
        tiling.split(vector, BLOCK_POINTS)
    tiling.tile(vector, lanes * 4 if turned is None else lanes * 2, Kind.VECTOR)
    return _finish(tiling, tiling.left(*nest.axes), [], grid=grid)


def _map_vector(nest: Nest) -> Var:
    for v in reversed(nest.axes):
        if any(s.index.coefficient(v) == 1 for s in nest.stores):
            return v
    return nest.axes[-1]


def _transposed_axis(nest: Nest, vector: Var, lanes: int) -> Var | None:
    """The axis along which the loads lie that the vector axis would have to gather."""
    for load in nest.loads():
        if load.index.coefficient(vector) in (0, 1, None) or vector.extent < lanes:
            continue
        for v in nest.axes:
            if v != vector and v.extent >= lanes and load.index.coefficient(v) == 1:
                return v
    return None


def _finish(
    tiling: Tiling,
    outputs: Sequence[Part],
    reduce: Sequence[tuple[Part, Kind]],
    *,
    grid: bool,
    below_grid: Part | None = None,
) -> tuple[Step, ...]:
    """The steps, with the outer loops as the grid, which ends before the loop `below_grid`."""
    if not grid:
        return tiling.steps(outputs, reduce)
    outputs, blocks = tiling.grid(outputs, reduce, BLOCK_POINTS, below_grid)
    return tiling.steps(outputs, reduce, blocks)


# --- reductions ----------------------------------------------------------------------------------


def _reduction(
    nest: Nest, machine: Machine, vector: Var | None = None, *, grid: bool
) -> tuple[Step, ...]:
    vector = vector or _vector_axis(nest, machine)
    if nest.inner and vector not in nest.reduce and not nest.axes:
        vector = nest.reduce[-1]
    if vector in nest.reduce:
        return _along_reduction(nest, machine, vector, grid=grid)
    return _along_output(nest, machine, vector, grid=grid)


def _simple(r: Reduction) -> bool:
    return r.kind not in (Op.ARGMAX, Op.ARGMIN)


def _along_reduction(nest: Nest, machine: Machine, vector: Var, *, grid: bool) -> tuple[Step, ...]:
    """Lanes run along the reduction; partial sums meet at the end."""
    lanes = machine.lanes(_bits(nest))
    tiling = Tiling(nest)
    budget = max(1, machine.registers // 3)
    shared = _sharing_axis(nest, vector)
    rows = 1
    if shared is not None and not nest.inner:
        rows = min(4, shared.extent)
        tiling.tile(shared, rows, Kind.UNROLL)
    columns = _sharing_axis(nest, vector, but=shared) if rows > 1 else None
    if columns is not None and not nest.inner:
        width = min(4, columns.extent)
        tiling.tile(columns, width, Kind.UNROLL)
        rows *= width
    copies = max(1, budget // max(1, rows * len(nest.reductions)))
    copies = min(copies, 2 if nest.inner or not all(map(_simple, nest.reductions)) else 8)
    tiling.tile(vector, lanes * copies, Kind.VECTOR)
    reduce = [(part, Kind.LOOP) for part in tiling.left(*nest.reduce)]
    return _finish(tiling, tiling.left(*nest.axes), reduce, grid=grid)


def _sharing_axis(nest: Nest, vector: Var, but: Var | None = None) -> Var | None:
    """An output axis that vector loads do not move with, so that unrolling it reuses them."""
    vectors = [load for load in nest.loads() if load.index.depends_on(vector)]
    if len(vectors) < 1:
        return None
    best: tuple[int, Var] | None = None
    for v in nest.axes:
        if v in (vector, but):
            continue
        kept = sum(not load.index.depends_on(v) for load in vectors)
        if kept and (best is None or (kept, v.extent) > (best[0], best[1].extent)):
            best = (kept, v)
    return best[1] if best else None


def _along_output(nest: Nest, machine: Machine, vector: Var, *, grid: bool) -> tuple[Step, ...]:
    """Lanes run along an output axis; every lane has its own sums."""
    lanes = machine.lanes(_bits(nest))
    tiling = Tiling(nest)
    shared = _sharing_axis(nest, vector)
    wide = _streamed_tile(nest, machine, vector, shared, lanes)
    rows, columns = wide or _register_tile(nest, machine, vector, shared, lanes)
    staged = _staged_load(nest, machine, vector, shared, columns * lanes)
    if shared is not None and rows > 1:
        if staged is not None:
            tiling.split(shared, _block_rows(nest, machine, shared, rows))
        tiling.tile(shared, rows, Kind.UNROLL)
    lane = tiling.tile(vector, columns * lanes, Kind.VECTOR)
    outputs = tiling.left(*(v for v in nest.axes if v not in (vector, shared)))
    rounds = tiling.left(shared) if shared is not None else []
    outputs += [*rounds[:-1], *tiling.left(vector), *rounds[-1:]]
    written = 48 // (rows * columns) if wide is None else 2
    if machine.block_lanes:
        reduce = _reduce_loops(nest, tiling, max(SCALAR_ROUNDS, written), even=True)
    else:
        reduce = _reduce_loops(nest, tiling, max(1, written))
    if staged is None or not rounds:
        return _finish(tiling, outputs, reduce, grid=grid)
    steps = _finish(tiling, outputs, reduce, grid=grid, below_grid=rounds[-1])
    used = [v.name for v in nest.reduce if staged.index.depends_on(v)]
    return _with_copy(nest, machine, steps, Stage(staged.slot, rounds[-1].name, (*used, lane.name)))


def _with_copy(
    nest: Nest, machine: Machine, steps: tuple[Step, ...], stage: Stage
) -> tuple[Step, ...]:
    """The steps and a stage whose copy, a map inside one block, has steps of its own."""
    loops = apply(nest.axes, nest.reduce, steps)
    copy = stages.copy_of(stage, nest, loops, {}, {}, panel=-1)
    return (*steps, replace(stage, steps=_map(copy.nest, machine, grid=False)))


def _block_rows(nest: Nest, machine: Machine, shared: Var, rows: int) -> int:
    """Rounds of the shared axis that one staged panel serves: as many as L2 holds."""
    depth = math.prod(v.extent for v in nest.reduce)
    fitting = max(64, machine.l2_bytes // 2 // (4 * depth))
    blocks = max(1, -(-shared.extent // fitting))
    block = -(-shared.extent // blocks)
    return -(-block // rows) * rows


def _reduce_loops(
    nest: Nest, tiling: Tiling, budget: int, *, even: bool = False
) -> list[tuple[Part, Kind]]:
    """Short innermost reduction loops are written out, long ones by `budget` rounds.

    `even`: by the power of two below.
    """
    loops: list[tuple[Part, Kind]] = []
    written = 1
    for v in reversed(nest.reduce):
        if written * v.extent <= max(budget, 4):
            loops[:0] = [(part, Kind.CHAIN) for part in tiling.left(v)]
            written *= v.extent
            continue
        factor = max(1, budget // written)
        factor = 1 << factor.bit_length() - 1 if even else factor
        if factor > 1:
            tiling.split(v, factor)
        outer, *inner = tiling.left(v)
        loops[:0] = [(outer, Kind.LOOP), *((part, Kind.CHAIN) for part in inner)]
        written = budget + 1
    return sorted(loops, key=lambda pair: pair[1] is Kind.CHAIN)


def _streamed_tile(
    nest: Nest, machine: Machine, vector: Var, shared: Var | None, lanes: int
) -> tuple[int, int] | None:
    """(rounds of the shared axis, vectors) where a few rows meet a matrix that no cache holds.

    The matrix is read once, and fast only in long pieces of its rows. So the tile is wider than the
    registers: accumulators that do not fit go through the first-level cache, which costs less.
    """
    rows = 1 if shared is None else shared.extent
    plain = len(nest.reductions) == 1 and _simple(nest.reductions[0]) and not nest.inner
    if rows > MOST_STREAMED_ROWS or not plain or not machine.shuffles:
        return None
    streamed = [load for load in nest.loads() if load.index.depends_on(vector)]
    if len(streamed) != 1 or (shared is not None and streamed[0].index.depends_on(shared)):
        return None
    (load,) = streamed
    moving = [v for v in (vector, *nest.reduce) if load.index.depends_on(v)]
    step = load.index.coefficient(moving[-1])
    size = math.prod(v.extent for v in moving) * load.dtype.size_bytes
    if load.index.coefficient(vector) != 1 or size <= machine.l2_bytes:
        return None
    if step is None or step * load.dtype.size_bytes < PIECE_BYTES // 4:
        return None
    vectors = -(-vector.extent // lanes)
    blocks = max(vectors // 4, min(32, vectors // 2))  # leave some for other cores
    columns = min(PIECE_BYTES // load.dtype.size_bytes // lanes, blocks)
    columns = min(columns, machine.l1_bytes // 4 // (rows * machine.vector_bytes))
    return (rows, columns) if rows * columns > machine.registers - 8 else None


def _register_tile(
    nest: Nest, machine: Machine, vector: Var, shared: Var | None, lanes: int
) -> tuple[int, int]:
    """(rounds of the shared axis, vectors) of the register tile with the fewest loads a product."""
    budget = machine.registers - 8 if machine.registers >= 32 else machine.registers - 4
    budget = max(1, budget // max(1, len(nest.reductions)))
    vectors = -(-vector.extent // lanes)
    if shared is None:
        # long rows of a register tile help a core's streams; on a GPU other blocks do
        return 1, max(1, min(vectors, budget if machine.shuffles else 4))
    best: tuple[float, int, int] | None = None
    for columns in range(1, min(vectors, 6, budget) + 1):
        for rows in range(1, min(shared.extent, budget // columns, 16) + 1):
            loads = (rows * 0.6 + columns) / (rows * columns)
            latency = max(1.0, 8 / (rows * columns))
            whole = -(-vectors // columns) * columns / vectors
            whole *= -(-shared.extent // rows) * rows / shared.extent
            cost = (1.0 + loads * 0.5) * latency * whole
            if best is None or cost < best[0]:
                best = (cost, rows, columns)
    assert best is not None
    return best[1], best[2]


def _staged_load(
    nest: Nest, machine: Machine, vector: Var, shared: Var | None, width: int
) -> ex.Load | None:
    """The operand to stage: it moves with the vector axis, and every round of `shared` reads it."""
    if shared is None or shared.extent < 32:
        return None
    if any(isinstance(e, ex.Masked | ex.Lookup) for e in ex.walk(nest.expressions())):
        return None
    for load in nest.loads():
        step = load.index.coefficient(vector)
        if step == 0 or load.index.depends_on(shared):
            continue
        used = [v for v in nest.reduce if load.index.depends_on(v)]
        strides = [load.index.coefficient(v) for v in (vector, *used)]
        if not used or None in strides or sum(o.slot == load.slot for o in nest.loads()) != 1:
            continue
        size = width * math.prod(v.extent for v in used) * load.dtype.size_bytes
        # neighbouring rows of a wide operand lie in different pages and on the same cache sets
        crowded = (strides[-1] or 0) * load.dtype.size_bytes >= 1024
        if size <= machine.stage_bytes and (step != 1 or crowded):
            return load
    return None


# --- scans and scatters --------------------------------------------------------------------------


def _ordered(nest: Nest, machine: Machine, *, grid: bool) -> tuple[Step, ...]:
    """Points run in axis order; only axes outside that order may be lanes, rows or grid."""
    lanes = machine.lanes(_bits(nest))
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
