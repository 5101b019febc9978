"""Staging: the copy that a `Stage` asks for, as a nest of its own.

stage b1 as [k0, i1%48] at i0/8
    → for c0 in 512, c1 in 48: panel[48*c0 + c1] = b1[512*c0 + 48*i1/48 + c1]
      and inside, b1[512*k0 + 48*i1/48 + i1%48] is read as panel[48*k0 + i1%48]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from frontend.loops import expr as ex
from frontend.loops.index import Condition, Index, InRange, Var, flatten
from frontend.loops.nest import Loops, Nest, Role, Slot, Stage, Store


@dataclass(frozen=True)
class Copy:
    """A stage carried out: the nest that fills the panel, and what is read instead of what."""

    nest: Nest
    reads: dict[ex.Load, ex.Load]


def panel_size(stage: Stage, loops: Loops) -> int:
    """Elements of the panel."""
    return math.prod(v.extent for v in loops.copy_axes(stage))


def check(nest: Nest, loops: Loops, slots: Sequence[Slot], outer: Mapping[Var, Index]) -> None:
    """Raise ValueError for a stage whose copy would not hold what is read inside it.

    `outer`: the axes that all nests of the kernel share, over their loops.
    """
    for stage in loops.stages:
        load = _read(stage, nest, slots)
        known = {loop.var for loop in loops.open_at(stage)}
        known |= {v for index in outer.values() for v in index.variables()}
        known |= set(loops.copy_axes(stage))
        copied = load.index.substitute(_whole(stage, loops, outer, loops.copy_axes(stage)))
        for var in copied.variables() - known:
            raise ValueError(
                f"the stage of b{stage.slot} at {stage.at} lacks axis {var}, with which "
                f"b{stage.slot}[{load.index}] moves"
            )


def copy_of(
    stage: Stage,
    nest: Nest,
    loops: Loops,
    outer: Mapping[Var, Index],
    extents: Mapping[str, int],
    panel: int,
) -> Copy:
    """The copy into slot `panel`, where loops run as far as `extents` says, or else their length.

    `nest` and its stages have been checked.
    """
    full = loops.copy_axes(stage)
    axes = tuple(
        Var(v.name, extents.get(name, v.extent)) for v, name in zip(full, stage.axes, strict=True)
    )
    shape = [v.extent for v in full]
    mine = [load for load in nest.loads() if load.slot == stage.slot]
    index = mine[0].index.substitute(_whole(stage, loops, outer, axes))
    value: ex.Expr = ex.Load(stage.slot, index, mine[0].dtype)
    conditions = tuple(_overruns(stage, loops, extents, axes))
    if conditions:
        value = ex.Masked(conditions, value, ex.Constant(0, value.dtype))
    store = Store(panel, flatten(map(Index.of, axes), shape), value)
    local = flatten([loops.index(name, {}) for name in stage.axes], shape)
    reads = {load: ex.Load(panel, local, load.dtype) for load in mine}
    return Copy(Nest(axes, stores=(store,), steps=stage.steps), reads)


def _read(stage: Stage, nest: Nest, slots: Sequence[Slot]) -> ex.Load:
    """What the nest reads of the staged buffer. Raises ValueError unless one copy can serve it."""
    slot = stage.slot
    if not 0 <= slot < len(slots) or slots[slot].role is Role.REGISTER:
        raise ValueError(f"no buffer b{slot} to stage")
    mine = [load for load in nest.loads() if load.slot == slot]
    if not mine:
        raise ValueError(f"the nest does not read b{slot}, which is to be staged")
    if any(s.slot == slot for s in (*nest.inner, *nest.stores)):
        raise ValueError(f"the nest stores to b{slot}, so a copy made before it would be old")
    for other in mine[1:]:
        if other.index != mine[0].index:
            raise ValueError(
                f"b{slot} is read in two places, b{slot}[{mine[0].index}] and "
                f"b{slot}[{other.index}], so one copy cannot serve"
            )
    for e in ex.walk(nest.expressions()):
        if isinstance(e, ex.Masked) and not _always_inside(mine[0], slots[slot]):
            if any(part in mine for part in ex.walk((e.value,))):
                raise ValueError(f"b{slot} is read only where a condition holds: no copy without")
    return mine[0]


def _always_inside(load: ex.Load, slot: Slot) -> bool:
    return load.index.low >= 0 and load.index.high < slot.size


def _whole(
    stage: Stage, loops: Loops, outer: Mapping[Var, Index], axes: Sequence[Var]
) -> dict[Var, Index]:
    """Each axis of the nest over the loops around the stage and the copy's own axes."""
    given = dict(zip(stage.axes, map(Index.of, axes), strict=True))
    return {**outer, **{v: loops.index(v.name, given) for v in loops.values}}


def _overruns(
    stage: Stage, loops: Loops, extents: Mapping[str, int], axes: Sequence[Var]
) -> Iterator[Condition]:
    """What keeps the copy of an axis within its extent, where both its parts are copied axes.

    A factor that does not divide the axis makes the two of them run past its end.
    """
    given = dict(zip(stage.axes, map(Index.of, axes), strict=True))
    known = {loop.var for loop in loops.open_at(stage)} | set(axes)
    for name, (outer, _, _) in loops.splits.items():
        if outer in given:
            extent = extents.get(name, loops.extent(name))
            condition = InRange(loops.index(name, given), extent)
            if not condition.always and condition.index.variables() <= known:
                yield condition
