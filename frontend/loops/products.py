"""Schedules of reductions whose lanes run along an output axis: products, convolutions, columns.

A tile of sums stays in registers. What it reads again and again is copied into panels of the
block's own memory, laid out as the tile reads it:

    grid n/256                            the streamed operand's panels fit the second-level cache
      stage the operand with lanes        [n%256/64, k, n%64]
      for m/96                            where the other operand's columns are far apart …
        stage it                          … [k, m%96]
        for n%256/64: for m%96/6: for k: tile of 6 rows by 4 vectors

A reduction too deep for a panel is cut, and a matrix that no cache holds is read in pieces of many
rows; the sums then wait in memory between the pieces (`instructions/carried.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from frontend.graph.node import Op
from frontend.loops import expr as ex
from frontend.loops.index import Var
from frontend.loops.machine import Machine
from frontend.loops.nest import Kind, Nest, Stage, Step
from frontend.loops.tiling import Part, Tiling

MOST_STREAMED_ROWS = 16
"""More rows than that make a product, bound by arithmetic, of what is bound by memory."""
STREAMED_POINTS, STREAMED_ROWS = 192, 8
"""Multiply-adds of vectors that one piece of a streamed matrix is, and rows written out in it.

So many rows make many streams, and short sums, which lose little to rounding.
"""
LEAST_BLOCK_ROWS = 512
"""Rows of a product that pay for the copy of a panel: it costs as much as some twenty rows."""
MANY_ROWS = 256
"""Rows that pay for the copy of a panel that could as well be read where it lies."""
GROUP_ROWS, MOST_PANELS = 96, 4
"""Rows whose copy serves several panels, where the rows are copied too."""
FAR_BYTES = 1024
"""Neighbours along a reduction that lie so far apart crowd pages and cache sets."""
CLASHING_BYTES = 2048
"""Multiples of it fall on one or two sets of a first-level cache."""
SUMMED_ROUNDS = 256
"""Products that one accumulator takes before it is added to the rest."""
SCALAR_ROUNDS = 9
"""Rounds of a reduction that a GPU's code writes out, so that scalar loads take several at once."""


def along_output(
    nest: Nest, machine: Machine, vector: Var, *, lanes: int, block_points: int
) -> tuple[Step, ...]:
    """Steps where every lane of `vector` has its own sums; stages are left without steps.

    `lanes`: of a full vector. `block_points`: work that is worth a grid block; 0 for no grid.
    """
    shared = sharing_axis(nest, vector)
    tile = Tile(nest, machine, vector, shared, lanes, block_points)
    if _is_streamed(tile):
        return _streamed(tile)
    return _tiled(tile)


@dataclass(frozen=True)
class Tile:
    """What is to be scheduled."""

    nest: Nest
    machine: Machine
    vector: Var
    shared: Var | None
    """The output axis that reads the vectors again."""
    lanes: int
    block_points: int

    @property
    def rest(self) -> list[Var]:
        """The other output axes."""
        return [v for v in self.nest.axes if v not in (self.vector, self.shared)]

    @property
    def depth(self) -> int:
        return math.prod(v.extent for v in self.nest.reduce)


def sharing_axis(nest: Nest, vector: Var, but: Var | None = None) -> Var | None:
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


# --- register tiles ------------------------------------------------------------------------------


def _tiled(t: Tile) -> tuple[Step, ...]:
    rows, columns = _register_tile(t)
    tiling = Tiling(t.nest)
    panel = staged_load(t.nest, t.machine, t.vector, t.shared, columns * t.lanes)
    if panel is not None and t.shared is not None and rows > 1:
        return _staged(t, tiling, panel, t.shared, rows, columns)
    if t.shared is not None and rows > 1:
        tiling.tile(t.shared, rows, Kind.UNROLL)
    tiling.tile(t.vector, columns * t.lanes, Kind.VECTOR)
    rounds = tiling.left(t.shared) if t.shared is not None else []
    outputs = [*tiling.left(*t.rest), *rounds[:-1], *tiling.left(t.vector), *rounds[-1:]]
    reduce = _reduce_loops(t, tiling, 48 // (rows * columns))
    return tiling.finish(outputs, reduce, t.block_points)


def _register_tile(t: Tile) -> tuple[int, int]:
    """(rounds of the shared axis, vectors) of the register tile with the fewest loads a product."""
    machine = t.machine
    budget = machine.registers - 8 if machine.registers >= 32 else machine.registers - 4
    budget = max(1, budget // max(1, len(t.nest.reductions)))
    vectors = -(-t.vector.extent // t.lanes)
    if t.shared is None:
        # long rows of a register tile help a core's streams; on a GPU other blocks do
        return 1, max(1, min(vectors, budget if machine.shuffles else 4))
    best: tuple[float, int, int] | None = None
    for columns in range(1, min(vectors, 6, budget) + 1):
        for rows in range(1, min(t.shared.extent, budget // columns, 16) + 1):
            loads = (rows * 0.6 + columns) / (rows * columns)
            latency = max(1.0, 8 / (rows * columns))
            whole = -(-vectors // columns) * columns / vectors
            whole *= -(-t.shared.extent // rows) * rows / t.shared.extent
            cost = (1.0 + loads * 0.5) * latency * whole
            if best is None or cost < best[0]:
                best = (cost, rows, columns)
    assert best is not None
    return best[1], best[2]


def _reduce_loops(t: Tile, tiling: Tiling, budget: int) -> list[tuple[Part, Kind]]:
    """Short innermost reduction loops are written out, long ones by `budget` rounds."""
    even = t.machine.block_lanes > 0
    apart = [] if even else _summed_apart(t, tiling)
    budget = max(SCALAR_ROUNDS, budget) if even else max(1, budget)
    loops: list[tuple[Part, Kind]] = []
    written = 1
    for v in reversed(t.nest.reduce):
        extent = math.prod(part.extent for part in tiling.left(v))
        if written * extent <= max(budget, 4):
            loops[:0] = [(part, Kind.CHAIN) for part in tiling.left(v)]
            written *= extent
            continue
        factor = max(1, budget // written)
        factor = 1 << factor.bit_length() - 1 if even else factor
        if factor > 1:
            tiling.split(v, factor)
        outer, *inner = tiling.left(v)
        loops[:0] = [(outer, Kind.LOOP), *((part, Kind.CHAIN) for part in inner)]
        written = budget + 1
    return [*apart, *sorted(loops, key=lambda pair: pair[1] is Kind.CHAIN)]


def _summed_apart(t: Tile, tiling: Tiling) -> list[tuple[Part, Kind]]:
    """The loop over parts of a long sum of products. Their sums cost a few stores to the stack.

    Axes that end early have bounds that all nests share, which longer parts would make coarser.
    """
    sums = all(r.kind is Op.SUM and r.dtype.is_float for r in t.nest.reductions)
    plain = not (t.nest.inner or t.nest.ordered or t.nest.limits)
    if not sums or not plain or len(t.nest.loads()) < 2:
        return []
    first, *others = t.nest.reduce
    inside = math.prod(tiling.inner(v).extent for v in others)
    rounds = max(1, SUMMED_ROUNDS // inside)
    if tiling.inner(first).extent < 2 * rounds or inside > SUMMED_ROUNDS:
        return []
    tiling.split(first, rounds)
    return [(tiling.take_outer(first), Kind.PART)]


# --- panels --------------------------------------------------------------------------------------


def _staged(
    t: Tile, tiling: Tiling, panel: ex.Load, shared: Var, rows: int, columns: int
) -> tuple[Step, ...]:
    """The operand with lanes is copied for a block, and the other one too where it lies badly."""
    width = columns * t.lanes
    turned = _turned_load(t, shared, width)
    panels = MOST_PANELS if turned else 1
    deep = _cut_depth(t, tiling, panel, panels * width)
    tiling.split(shared, _block_rows(t, shared, rows, panels * width if deep else 0))
    if turned:
        tiling.split(shared, GROUP_ROWS // rows * rows)
        tiling.split(t.vector, panels * width)
    group = tiling.inner(shared)
    tiling.tile(shared, rows, Kind.UNROLL)
    lane = tiling.tile(t.vector, width, Kind.VECTOR)
    outer, inner = tiling.left(shared), tiling.left(t.vector)
    used = [tiling.inner(v).name for v in t.nest.reduce if panel.index.depends_on(v)]
    if turned is None or len(outer) < 2:
        at = outer[-1]
        outputs = [*tiling.left(*t.rest), *outer[:-1], *inner, *deep, at]
        stages = [Stage(panel.slot, at.name, (*used, lane.name))]
    else:
        at = outer[-2]
        outputs = [*tiling.left(*t.rest), *outer[:-2], *inner[:-1], *deep, at, inner[-1], outer[-1]]
        stages = [
            Stage(panel.slot, at.name, (inner[-1].name, *used, lane.name)),
            Stage(turned.slot, inner[-1].name, (*used, group.name)),
        ]
    reduce = _reduce_loops(t, tiling, 48 // (rows * columns))
    steps = tiling.finish(outputs, reduce, t.block_points, below_grid=deep[0] if deep else at)
    return (*steps, *stages)


def staged_load(
    nest: Nest, machine: Machine, vector: Var, shared: Var | None, width: int
) -> ex.Load | None:
    """The operand to stage: it moves with the vector axis, and every round of `shared` reads it."""
    if shared is None or shared.extent < 32 or _has_conditions(nest):
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
        # neighbouring rows of a wide operand lie in different pages, and on the same cache sets
        # where they lie some pages apart
        apart = (strides[-1] or 0) * load.dtype.size_bytes
        clashes = apart != 0 and apart % CLASHING_BYTES == 0
        crowded = apart >= FAR_BYTES if shared.extent >= MANY_ROWS else clashes
        if (size <= machine.stage_bytes or _can_wait(nest, machine)) and (step != 1 or crowded):
            return load
    return None


def _has_conditions(nest: Nest) -> bool:
    return any(isinstance(e, ex.Masked | ex.Lookup) for e in ex.walk(nest.expressions()))


def _can_wait(nest: Nest, machine: Machine) -> bool:
    """Whether sums may wait in memory while other tiles run."""
    plain = all(
        r.kind not in (Op.ARGMAX, Op.ARGMIN) and r.dtype.kind != "b" for r in nest.reductions
    )
    return plain and machine.shuffles and not nest.inner and not nest.ordered


def _turned_load(t: Tile, shared: Var, width: int) -> ex.Load | None:
    """The operand without lanes, where its columns are far apart and its rows are neighbours."""
    if not t.machine.shuffles or t.vector.extent < 2 * width or shared.extent < GROUP_ROWS:
        return None
    for load in t.nest.loads():
        if load.index.depends_on(t.vector) or load.index.coefficient(shared) != 1:
            continue
        steps = [load.index.coefficient(v) for v in t.nest.reduce if load.index.depends_on(v)]
        alone = sum(o.slot == load.slot for o in t.nest.loads()) == 1
        far = [abs(step) * load.dtype.size_bytes >= FAR_BYTES for step in steps if step is not None]
        if alone and steps and len(far) == len(steps) and all(far):
            return load
    return None


def _cut_depth(t: Tile, tiling: Tiling, panel: ex.Load, width: int) -> list[Part]:
    """The loop over parts of a reduction that is too deep for panels of `width`; else nothing."""
    used = [v for v in t.nest.reduce if panel.index.depends_on(v)]
    size = width * math.prod(v.extent for v in used) * panel.dtype.size_bytes
    if size <= t.machine.stage_bytes:
        return []
    longest = max(used, key=lambda v: v.extent)
    rounds = min(longest.extent, -(-2 * size // t.machine.stage_bytes))
    tiling.split(longest, -(-longest.extent // rounds))
    return [tiling.take_outer(longest)]


def _block_rows(t: Tile, shared: Var, rows: int, waiting: int) -> int:
    """Rounds of the shared axis that one staged panel serves.

    Many, since the panel is copied for each block; but the other operand is read again for each
    panel, and should come from the last-level cache then, of which a core has some multiple of L2.
    `waiting`: columns whose sums wait in memory, so that those should fit too.
    """
    fitting = max(LEAST_BLOCK_ROWS, 8 * t.machine.l2_bytes // (4 * t.depth))
    if waiting:
        fitting = max(rows, min(fitting, t.machine.l2_bytes // 2 // (4 * waiting)))
    blocks = max(1, -(-shared.extent // fitting))
    block = -(-shared.extent // blocks)
    return -(-block // rows) * rows


# --- a matrix that no cache holds ----------------------------------------------------------------


def _is_streamed(t: Tile) -> bool:
    """Whether a few rows meet a matrix that no cache holds, so that it is read once."""
    nest, rows = t.nest, 1 if t.shared is None else t.shared.extent
    plain = len(nest.reductions) == 1 and len(nest.reduce) == 1 and _can_wait(nest, t.machine)
    if rows > MOST_STREAMED_ROWS or not plain or t.vector.extent < 4 * t.lanes:
        return False
    streamed = [load for load in nest.loads() if load.index.depends_on(t.vector)]
    if len(streamed) != 1 or (t.shared is not None and streamed[0].index.depends_on(t.shared)):
        return False
    (load,) = streamed
    size = t.vector.extent * t.depth * load.dtype.size_bytes
    step = load.index.coefficient(nest.reduce[0])
    if load.index.coefficient(t.vector) != 1 or size <= t.machine.l2_bytes or step is None:
        return False
    return step * load.dtype.size_bytes >= FAR_BYTES


def _streamed(t: Tile) -> tuple[Step, ...]:
    """Pieces of many rows at a time: as many streams from memory, in the order of their pages.

    The rows are long, so that their sums wait in memory from piece to piece.
    """
    rows = 1 if t.shared is None else t.shared.extent
    columns = max(1, min(4, (t.machine.registers - 8) // rows))
    tiling = Tiling(t.nest)
    (depth,) = t.nest.reduce
    block = -(-t.vector.extent // max(1, t.machine.cores))
    tiling.split(t.vector, -(-block // (columns * t.lanes)) * columns * t.lanes)
    if t.shared is not None:
        tiling.tile(t.shared, rows, Kind.UNROLL)
    tiling.tile(t.vector, columns * t.lanes, Kind.VECTOR)
    piece = max(2, STREAMED_POINTS // (rows * columns))
    tiling.split(depth, piece if piece < STREAMED_ROWS else piece // STREAMED_ROWS * STREAMED_ROWS)
    pieces = tiling.take_outer(depth)
    tiling.split(depth, STREAMED_ROWS)
    *blocks, inner = tiling.left(t.vector)
    outputs = [*tiling.left(*t.rest), *blocks, pieces, inner]
    *rounds, written = tiling.left(depth)
    reduce = [*((part, Kind.LOOP) for part in rounds), (written, Kind.CHAIN)]
    return tiling.finish(outputs, reduce, t.block_points, below_grid=pieces)
