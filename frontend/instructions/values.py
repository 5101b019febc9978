"""Expressions to instructions at the spots of one tile, each once for the spots that share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from frontend.instructions import arith, indices
from frontend.instructions.buffers import Buffers
from frontend.instructions.indices import Env, Spot
from frontend.instructions.ir import Value
from frontend.instructions.loads import Loads
from frontend.instructions.memory import compute_kind, round_to
from frontend.instructions.points import Piece, Point
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.machine import Machine


class Values:
    """Computes expressions. `env`: the loops around the tile; `extents`: how far its own run.

    `ahead_bytes`: the slots whose rows are prefetched, and how far ahead.
    """

    def __init__(
        self,
        buffers: Buffers,
        machine: Machine,
        tile: Sequence[ln.Loop],
        env: Env,
        extents: Mapping[str, int],
        ahead_bytes: Mapping[int, int],
    ) -> None:
        self.b, self.buffers = buffers.b, buffers
        self._machine, self._tile, self._env, self._extents = machine, tile, env, extents
        self._ahead_bytes = ahead_bytes
        self._loads = Loads(
            buffers, tile, extents, shuffles=machine.shuffles, ahead_bytes=ahead_bytes
        )
        self.wide_lanes = machine.shuffles
        """Whether a lane's index may have 64 bits at no cost."""
        self._place = {lo.var: i for i, lo in enumerate(tile)}
        self._vector = next((lo.var for lo in tile if lo.kind is ln.Kind.VECTOR), None)
        self._memo: dict[tuple[object, ...], Value] = {}
        self._folded: dict[ex.Expr, bool] = {}

    def fresh(self) -> Values:
        """The same tile, with nothing computed: for a branch, whose values are unknown after it."""
        known = self._machine, self._tile, self._env, self._extents, self._ahead_bytes
        return Values(self.buffers, *known)

    def spot(self, point: Point, accumulated: Sequence[Value] = ()) -> Spot:
        """The spot at a point of the tile. `accumulated`: the reductions' values there."""
        env, piece = dict(self._env), None
        for loop, c in zip(self._tile, point, strict=True):
            env[loop.var] = c.start if isinstance(c, Piece) else c
            if isinstance(c, Piece) and c.lanes > 1:
                piece = c
        return Spot(point, env, self._vector, piece, accumulated=tuple(accumulated))

    def at(self, e: ex.Expr, spot: Spot) -> Value:
        """The value of `e`: a scalar if it is the same in all lanes."""
        key = (
            e,
            spot.predicate,
            spot.looked_up,
            spot.accumulated if spot.accumulated and self._is_folded(e) else (),
            *(spot.point[i] for v, i in self._place.items() if v in e.variables),
        )
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._compute(e, spot)
        return found

    def _is_folded(self, e: ex.Expr) -> bool:
        """Whether `e` holds a reduction's value, so that points do not share it."""
        found = self._folded.get(e)
        if found is None:
            found = isinstance(e, ex.Accumulated) or any(map(self._is_folded, e.parts))
            self._folded[e] = found
        return found

    def _compute(self, e: ex.Expr, spot: Spot) -> Value:
        if isinstance(e, ex.Load):
            return self._loads(e, spot)
        if isinstance(e, ex.Constant):
            return self.b.const(compute_kind(e.dtype), e.value)
        if isinstance(e, ex.IndexValue):
            return self._index_value(e, spot)
        if isinstance(e, ex.Alu):
            args = tuple(self.at(a, spot) for a in e.args)
            made = arith.emit(self.b, e.op, e.dtype, args, e.args[-1].dtype)
            # a narrow float is rounded at each operation, whether or not it is stored in between
            return made if e.op in arith.EXACT else round_to(self.b, made, e.dtype)
        if isinstance(e, ex.Masked):
            return self._under(self.holds(e, spot), e.value, e.otherwise, spot)
        if isinstance(e, ex.Lookup):
            return self._lookup(e, spot)
        assert isinstance(e, ex.Accumulated), e
        return spot.accumulated[e.number]

    def _index_value(self, e: ex.IndexValue, spot: Spot) -> Value:
        kind = compute_kind(e.dtype)
        integer = kind if kind[0] == "i" and kind != "i1" else "i64"
        value = indices.lanes(self.b, e.index, spot, integer)
        return self.b.cast("sitofp", value, kind) if e.dtype.is_float else value

    # --- conditions ------------------------------------------------------------------------------

    def holds(self, e: ex.Masked, spot: Spot) -> Value:
        """Whether all conditions of `e` hold: one bit, or one a lane."""
        wide = self.wide_lanes
        holds = indices.holds(self.b, e.conditions[0], spot, wide=wide)
        for condition in e.conditions[1:]:
            holds = self.b.op("and", holds, indices.holds(self.b, condition, spot, wide=wide))
        return holds

    def assuming(self, holds: Value, spot: Spot) -> Spot:
        """The same spot, where nothing is read unless `holds`."""
        both = holds if spot.predicate is None else self.b.op("and", spot.predicate, holds)
        return replace(spot, predicate=both)

    def _under(self, holds: Value, value: ex.Expr, otherwise: ex.Expr | None, spot: Spot) -> Value:
        """`value` where `holds`, reading nothing elsewhere; then `otherwise`, or zero."""
        inside = self.at(value, self.assuming(holds, spot))
        outside = self.b.const(inside.kind, 0) if otherwise is None else self.at(otherwise, spot)
        return self.b.select(holds, inside, outside)

    def _lookup(self, e: ex.Lookup, spot: Spot) -> Value:
        b = self.b
        position = self.position(e.position, spot)
        holds = b.compare("icmp", "ult", position, b.const("i64", e.var.extent))
        inside = spot.binding(e.var, b.select(holds, position, b.const("i64", 0)))
        inside = replace(inside, looked_up=(*spot.looked_up, position))
        return self._under(holds, e.value, None, inside)

    def position(self, e: ex.Expr, spot: Spot) -> Value:
        """A computed index, as a 64-bit integer."""
        position = self.at(e, spot)
        if position.kind != "i64":
            widen = "sext" if e.dtype.is_signed else "zext"
            position = self.b.cast(widen, position, "i64")
        return position
