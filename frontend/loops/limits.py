"""Axes that end early: where a mask makes the rest of an axis add nothing.

    for q in blocks of 64 rows: keys from 64*q + 64 on are masked for all of its rows

The nests of a kernel that share such an axis leave out the same points, as what one nest did not
write another must not read. So bounds are rounded up to what all their outermost loops divide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from frontend.loops.nest import Kind, Loops, Nest, apply

LARGEST_GRAIN = 256
"""Points of an axis that nests may have to take together; with more, little is left out."""


def settled(nests: Sequence[Nest]) -> tuple[Nest, ...]:
    """The scheduled nests with bounds that all of them can keep, or with none."""
    if not any(nest.limits for nest in nests):
        return tuple(nests)
    grain = math.lcm(*(_grain(nest) for nest in nests if nest.limits))
    if grain > LARGEST_GRAIN:
        return tuple(replace(nest, limits=()) for nest in nests)
    return tuple(
        replace(
            nest,
            limits=tuple(
                (axis, (bound + (grain - 1)) // grain * grain) for axis, bound in nest.limits
            ),
        )
        for nest in nests
    )


def _grain(nest: Nest) -> int:
    loops = apply(nest.axes, nest.reduce, nest.steps)
    return math.lcm(*(_step(loops, axis.name, axis.extent) for axis, _ in nest.limits))


def _step(loops: Loops, name: str, extent: int) -> int:
    """Points of the axis in a round of its outermost loop; all of them if that is no loop."""
    outer, _, factor = loops.splits.get(name, (name, "", 1))
    loop = next((lo for lo in loops.order if lo.name == outer), None)
    return factor if loop is not None and loop.kind is Kind.LOOP else extent


def check(nest: Nest, loops: Loops) -> None:
    """Raise ValueError where a loop cannot end at its axis's bound."""
    for axis, bound in nest.limits:
        step = _step(loops, axis.name, axis.extent)
        rest = bound % step
        if not rest.is_constant or rest.constant or bound.low < 1:
            raise ValueError(
                f"axis {axis} ends before {bound}, at least 1, but its loop takes {step} at a time"
            )
