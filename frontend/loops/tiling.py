"""A schedule in the making: which loops each axis has become so far, and where they go.

Splits are noted as they are made; `steps` writes everything down once the loops have their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontend.loops.index import Var
from frontend.loops.nest import Kind, Mark, Nest, Order, Split, Step


@dataclass(frozen=True)
class Part:
    """A loop to be: a whole axis, or what splits made of one."""

    name: str
    extent: int
    whole: bool = True
    """Not split."""


class Tiling:
    """The loops of one nest. What is not in the tile stays with its axis."""

    def __init__(self, nest: Nest) -> None:
        self._parts = {v: [Part(v.name, v.extent)] for v in (*nest.axes, *nest.reduce)}
        self._splits: list[Step] = []
        self._tile: list[tuple[Part, Kind]] = []

    def split(self, axis: Var, factor: int) -> None:
        """Split the innermost loop of `axis`, unless it is no longer than `factor`."""
        inner = self._parts[axis][-1]
        if factor < inner.extent:
            self._parts[axis][-1:] = self._cut(inner, factor)

    def tile(self, axis: Var, factor: int, kind: Kind) -> Part:
        """`factor` rounds of the innermost loop of `axis` go to the tile."""
        self.split(axis, factor)
        part = self._parts[axis].pop()
        self._tile.append((part, kind))
        return part

    def inner(self, axis: Var) -> Part:
        """The innermost loop of `axis` so far, by the name it also has once it is split."""
        return self._parts[axis][-1]

    def take_outer(self, axis: Var) -> Part:
        """The outermost loop of `axis`, which no longer counts as left."""
        return self._parts[axis].pop(0)

    def left(self, *axes: Var) -> list[Part]:
        """The loops of `axes` that are not in the tile, outermost first."""
        return [part for v in axes for part in self._parts[v]]

    def _cut(self, part: Part, factor: int) -> list[Part]:
        self._splits.append(Split(part.name, factor))
        rounds = -(-part.extent // factor)
        return [
            Part(f"{part.name}/{factor}", rounds, whole=False),
            Part(f"{part.name}%{factor}", factor, whole=False),
        ]

    def finish(
        self,
        outputs: Sequence[Part],
        reduce: Sequence[tuple[Part, Kind]],
        block_points: int,
        below_grid: Part | None = None,
    ) -> tuple[Step, ...]:
        """The steps, with the outer loops as the grid, which ends before the loop `below_grid`.

        `block_points`: work that is worth a grid block; 0 for no grid.
        """
        if not block_points:
            return self.steps(outputs, reduce)
        outputs, blocks = self.grid(outputs, reduce, block_points, below_grid)
        return self.steps(outputs, reduce, blocks)

    def grid(
        self,
        outputs: Sequence[Part],
        reduce: Sequence[tuple[Part, Kind]],
        block_points: int,
        before: Part | None = None,
    ) -> tuple[list[Part], list[Part]]:
        """(output loops, those of them that form the grid): blocks get about `block_points`.

        The loop that would make blocks too small is cut. The grid ends before loop `before`.
        """
        inside = [part for part, _ in (*reduce, *self._tile)]
        below = math.prod(part.extent for part in (*outputs, *inside))
        made: list[Part] = []
        for at, part in enumerate(outputs):
            if below <= block_points or part == before:
                break
            below //= part.extent
            if below < block_points // 8 and part.whole:
                chunk = -(-block_points // max(1, below))
                if chunk < part.extent:
                    outer, inner = self._cut(part, chunk)
                    return [*outputs[:at], outer, inner, *outputs[at + 1 :]], [*made, outer]
                break
            made.append(part)
        return list(outputs), made

    def steps(
        self,
        outputs: Sequence[Part],
        reduce: Sequence[tuple[Part, Kind]],
        grid: Sequence[Part] = (),
    ) -> tuple[Step, ...]:
        """Splits, the order of all loops, and how they run."""
        inside = [*reduce, *self._tile]
        order = Order(tuple(part.name for part in (*outputs, *(part for part, _ in inside))))
        marks = [Mark(part.name, kind) for part, kind in inside if kind is not Kind.LOOP]
        return (*self._splits, order, *marks, *(Mark(part.name, Kind.GRID) for part in grid))
