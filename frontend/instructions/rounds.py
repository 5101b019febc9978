"""Loops opened: the grid, full rounds, and the shorter last round of a split that does not divide.

The last round is written out on its own with the inner loop shortened, so no element is ever masked
out of a full tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from frontend.instructions.indices import Env
from frontend.instructions.ir import Builder, Value
from frontend.loops import nest as ln
from frontend.loops.index import Var


@dataclass(frozen=True)
class Round:
    """Where code stands among the loops; passed inwards and never changed."""

    env: Env
    """The variable of each loop around."""
    extents: Mapping[str, int]
    """How far loops run that are not open yet, or what was split into them."""
    limits: Mapping[str, Value] = field(default_factory=dict)
    """Where axes may end before their extent: the first point that is not needed."""

    def at(self, var: Var, value: int | Value) -> Round:
        """One round of a loop."""
        return replace(self, env={**self.env, var: value})

    def running(self, name: str | None, extent: int) -> Round:
        """The same place, where `name` runs to `extent`."""
        return self if name is None else replace(self, extents={**self.extents, name: extent})

    def counts(self, loops: ln.Loops, loop: ln.Loop) -> tuple[int, int, str | None, int]:
        """(full rounds, elements of a shorter last one, inner loop, its extent in a full one)."""
        name = loops.outer_of.get(loop.name)
        if name is None:
            return self.extents.get(loop.name, loop.var.extent), 0, None, 0
        _, inner, factor = loops.splits[name]
        full, rest = divmod(self.extents[name], factor)
        return full, rest, inner, factor

    def needed(self, b: Builder, loops: ln.Loops, loop: ln.Loop, full: int) -> Value | None:
        """How many rounds of `loop`, of at least one, are needed if not all; None if all are."""
        name = loops.outer_of.get(loop.name, loop.name)
        limit = self.limits.get(name)
        if limit is None:
            return None
        factor = loops.splits[name][2] if name in loops.splits else 1
        rounds = b.op("udiv", limit, b.const("i64", factor))
        return b.op("smin", rounds, b.const("i64", max(1, full)))

    def reaches(self, b: Builder, loops: ln.Loops, loop: ln.Loop, full: int) -> Value | None:
        """Whether the shorter last round of `loop`, after `full` ones, is needed; None for yes."""
        name = loops.outer_of.get(loop.name, loop.name)
        limit = self.limits.get(name)
        if limit is None or not full:
            return None
        return b.compare("icmp", "sgt", limit, b.const("i64", full * loops.splits[name][2]))


Body = Callable[[Round], None]


class Opener:
    """Opens loops over outputs; `blocks` counts the grid."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.blocks = 1

    def grid(self, loops: ln.Loops, around: Round) -> Round:
        """Give each grid loop its place in the linear block number."""
        grid = [lo for lo in loops.order if lo.kind is ln.Kind.GRID]
        if not grid:
            return around
        assert self.blocks == 1, "one group of grid loops a kernel"
        size = math.prod(loop.var.extent for loop in grid)
        position = self.b.grid_index()
        for loop in reversed(grid):
            extent = loop.var.extent
            bound = self.b.const("i64", extent)
            outermost = self.blocks * extent == size
            around = around.at(
                loop.var, position if outermost else self.b.op("urem", position, bound)
            )
            position = self.b.op("udiv", position, bound)
            self.blocks *= extent
        return around

    def round(self, loops: ln.Loops, loop: ln.Loop, around: Round, body: Body) -> None:
        """Run `body` in the full rounds of `loop`, then in the shorter last one."""
        if loop.kind is ln.Kind.GRID:
            self._grid_round(loops, loop, around, body)
            return
        full, rest, inner, factor = around.counts(loops, loop)
        if full:
            needed = around.needed(self.b, loops, loop, full)
            self._repeat(loop.var, full, needed, around.running(inner, factor), body)
        if not rest:
            return
        last = around.at(loop.var, full).running(inner, rest)
        reached = around.reaches(self.b, loops, loop, full)
        if reached is None:
            body(last)
            return
        with self.b.when(reached):
            body(last)

    def _repeat(
        self, var: Var, count: int, needed: Value | None, around: Round, body: Body
    ) -> None:
        if count == 1:
            body(around.at(var, 0))
            return
        stop = self.b.const("i64", count) if needed is None else needed
        with self.b.loop(self.b.const("i64", 0), stop, 1) as loop:
            body(around.at(var, loop.index))

    def _grid_round(self, loops: ln.Loops, loop: ln.Loop, around: Round, body: Body) -> None:
        full, rest, inner, factor = around.counts(loops, loop)
        inside = around.running(inner, factor)
        if not rest:
            body(inside)
            return
        value = around.env[loop.var]
        assert isinstance(value, Value)
        bound = self.b.const("i64", full)
        if full:
            with self.b.when(self.b.compare("icmp", "slt", value, bound)):
                body(inside)
        with self.b.when(self.b.compare("icmp", "eq", value, bound)):
            body(around.at(loop.var, full).running(inner, rest))
