"""Which axis the lanes of a GPU's wave run along, and axes put together for them.

A wave has as many lanes as it has, whatever the work: along an axis of eight, three lanes in four
of a wave of 32 would idle. So neighbouring axes may become one,

    for y in 8, x in 8: out[8*y + x] = in[10*y + x]
        → for v in 64: out[v] = in[10*(v//8) + v%8]

which costs index arithmetic in each lane, where the loops around do not make it constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from frontend.graph.node import Op
from frontend.loops.index import Index, Var
from frontend.loops.machine import Machine
from frontend.loops.nest import Nest
from frontend.loops.simplify import substitute

LINE_BYTES = 64
SCALAR_COST = 0.5
"""A load that all lanes share, beside one of neighbours, which costs 1."""
LINE_COST = 0.2
"""Each further line of memory that a load touches."""
DIVISION_COST = 0.5
"""Index arithmetic in each lane for a load or a store."""
MEETING_COST = 5.0
"""One of the steps by which lanes add up: through local memory, and nothing hides the wait."""
WORTH = 0.85
"""Axes are put together where that makes a point cheaper than this share."""
MOST_SHARING = 8
SCALARS_AT_ONCE = 4


def lane_axis(nest: Nest, machine: Machine) -> tuple[Nest, Var]:
    """The nest, perhaps over fewer axes, and the axis for the lanes of `machine`'s waves."""
    best_cost, best = math.inf, (nest, nest.axes[-1] if nest.axes else nest.reduce[-1])
    for candidate, axis in _candidates(nest):
        cost = _point_cost(candidate, axis, machine.block_lanes)
        if cost < best_cost * (1.0 if candidate is nest else WORTH):
            best_cost, best = cost, (candidate, axis)
    return best


def _candidates(nest: Nest) -> Iterator[tuple[Nest, Var]]:
    """Each axis of the nest, then neighbours together: few before many."""
    for v in (*reversed(nest.axes), *reversed(nest.reduce)):
        yield nest, v
    if nest.ordered or any(s.position is not None for s in (*nest.stores, *nest.inner)):
        return
    fields = ["axes"]
    if not nest.inner and all(r.axis is None for r in nest.reductions):
        fields.append("reduce")
    for count in range(2, len((*nest.axes, *nest.reduce)) + 1):
        for field in fields:
            for end in range(len(getattr(nest, field)), count - 1, -1):
                if {*nest.whole} & {*getattr(nest, field)[end - count : end]}:
                    continue
                yield _together(nest, field, end - count, end)


def _together(nest: Nest, field: str, start: int, end: int) -> tuple[Nest, Var]:
    """The nest in which axes number `start` to `end` of `field` are one, and that one."""
    axes: tuple[Var, ...] = getattr(nest, field)
    parts = axes[start:end]
    whole = Var("".join(v.name for v in parts), math.prod(v.extent for v in parts))
    values, rest = {}, Index.of(whole)
    for v in reversed(parts):
        values[v], rest = rest % v.extent, rest // v.extent
    nest = substitute(nest, values)
    together = (*axes[:start], whole, *axes[end:])
    changed = replace(nest, axes=together) if field == "axes" else replace(nest, reduce=together)
    return changed, whole


def _point_cost(nest: Nest, axis: Var, lanes: int) -> float:
    """What a point costs, in loads of neighbours, with lanes along `axis`."""
    folded = math.prod(v.extent for v in nest.reduce) if nest.reduce else 1
    cost = 1.0
    for load in nest.loads():
        still = [v.extent for v in nest.axes if v != axis and not load.index.depends_on(v)]
        most = MOST_SHARING if axis in nest.axes else MOST_SHARING // 2
        sharing = max(1, min(most, max(still, default=1))) if nest.reduce else 1
        once = _access_cost(load.index, axis, load.dtype.size_bytes, lanes)
        if once == SCALAR_COST and _runs_along(load.index, nest.reduce):
            once /= SCALARS_AT_ONCE
        cost += once / sharing
    if axis in nest.reduce:  # the lanes meet at the end
        steps = math.log2(lanes) * len(nest.reductions)
        cost += 0.25 + MEETING_COST * steps / max(1, folded // lanes)
        cost += sum(r.kind in (Op.ARGMAX, Op.ARGMIN) for r in nest.reductions)
    else:
        stores = (_access_cost(s.index, axis, 4, lanes) for s in nest.stores)
        cost += sum(stores) / folded
    cost += sum(_access_cost(s.index, axis, 4, lanes) for s in nest.inner)
    return cost / (axis.extent / (-(-axis.extent // lanes) * lanes))


def _runs_along(index: Index, axes: tuple[Var, ...]) -> bool:
    """Whether neighbours follow one another along one of `axes`: one instruction loads several."""
    return any(v.extent >= SCALARS_AT_ONCE and index.coefficient(v) == 1 for v in axes)


def _access_cost(index: Index, axis: Var, size_bytes: int, lanes: int) -> float:
    """What a load or store costs: by the lines of memory that the first lanes touch."""
    if not index.depends_on(axis):
        return SCALAR_COST
    used = min(lanes, axis.extent)
    lines = len({_place(index, axis, at) * size_bytes // LINE_BYTES for at in range(used)})
    least = max(1, used * size_bytes // LINE_BYTES)
    cost = 1.0 + LINE_COST * (max(lines, least) - least)
    if index.coefficient(axis) is None and axis.extent > 8 * lanes:
        cost += DIVISION_COST * _divided(index, axis, lanes)
    return cost


def _place(index: Index, axis: Var, at: int) -> int:
    return index.evaluate(lambda v: at if v == axis else 0)


def _divided(index: Index, axis: Var, lanes: int) -> int:
    """How many divisions of `axis` have to be done in each lane, in each round."""
    atoms = [atom for atom, _ in index.terms if not isinstance(atom, Var)]
    return sum(atom.index.depends_on(axis) and lanes % atom.by != 0 for atom in atoms)
