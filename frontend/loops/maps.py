"""Schedules of maps: nests that fold nothing, and copies.

The lanes run along the axis that the stores are contiguous in. Where a load lies along another
axis, that axis is unrolled, so that squares of vectors can be transposed in registers:

    for i in 4096, j in 4096: out[4096*i + j] = in[4096*j + i]
        → for j/32: for i/16: 32 rows of 16 are read, turned, and written as 16 rows of 32

The loops go on along the rows that are read, which a processor's own prefetching follows, and the
rows that are written lie apart: what is written is not waited for, what is read is. So it is with
rows that only change their order.
"""

from __future__ import annotations

from frontend.loops import expr as ex
from frontend.loops.index import Var
from frontend.loops.machine import Machine
from frontend.loops.nest import Kind, Nest, Step
from frontend.loops.tiling import Tiling

LINE_BYTES = 64
BLOCK_POINTS = 16_384
"""Points of a map, or multiply-adds, that are worth a grid block: some microseconds."""


def widest_bits(nest: Nest) -> int:
    """Bits of the widest element that is computed with; narrow floats are computed in 32 bits."""
    widths = [
        e.dtype.bits if e.dtype.bits > 16 or not e.dtype.is_float else 32 for e in _vectors(nest)
    ]
    return max(widths, default=32)


def _vectors(nest: Nest) -> list[ex.Expr]:
    return [e for e in ex.walk(nest.expressions()) if e.variables and e.dtype.kind != "b"]


def map_steps(
    nest: Nest, machine: Machine, vector: Var | None = None, *, grid: bool
) -> tuple[Step, ...]:
    """The steps of a map. `grid`: whether its outer loops may be blocks."""
    if not nest.axes:
        return ()
    lanes = machine.lanes(widest_bits(nest))
    vector = vector or _map_vector(nest)
    turned = _transposed_axis(nest, vector, lanes) if machine.shuffles else None
    tiling = Tiling(nest)
    block_points = BLOCK_POINTS if grid else 0
    if turned is not None:
        tiling.tile(turned, lanes, Kind.UNROLL)
        tiling.tile(vector, lanes * _pieces(nest, vector, lanes), Kind.VECTOR)
        rest = [v for v in nest.axes if v not in (turned, vector)]
        # along the turned axis the loads go on where they were: rows of them are read in turn
        return tiling.finish(tiling.left(*rest, vector, turned), [], block_points)
    if vector.extent > 4 * BLOCK_POINTS and grid:
        tiling.split(vector, BLOCK_POINTS)
    tiling.tile(vector, lanes * 4, Kind.VECTOR)
    axes = _as_read(nest, vector) if machine.shuffles else nest.axes
    return tiling.finish(tiling.left(*axes), [], block_points)


def _as_read(nest: Nest, vector: Var) -> tuple[Var, ...]:
    """The axes, the rows in the order in which the only operand has them in memory.

    What is written may jump from row to row: it is not waited for.
    """
    whole = [load for load in nest.loads() if load.variables == frozenset(nest.axes)]
    others = [v for v in nest.axes if v != vector]
    if len(whole) != 1 or vector.extent * whole[0].dtype.size_bytes < LINE_BYTES:
        return nest.axes
    steps = {v: whole[0].index.coefficient(v) for v in nest.axes}
    if steps[vector] != 1 or any(step is None for step in steps.values()):
        return nest.axes
    return (*sorted(others, key=lambda v: -abs(steps[v] or 0)), vector)


def _pieces(nest: Nest, vector: Var, lanes: int) -> int:
    """Vectors that a transposing tile writes side by side.

    Rows that begin anywhere share their first and last line with the tiles beside them, so there
    longer pieces write fewer lines twice.
    """
    steps = [c for s in nest.stores for v in nest.axes if v != vector
             if (c := s.index.coefficient(v))]  # fmt: skip
    return 2 if all(step % lanes == 0 for step in steps) else 4


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
