"""Reductions: accumulators in registers, what one point adds to them, and how they meet at the end.

Accumulators are kept for every point of the tile. Partial sums of a reduction axis inside the tile
are combined in a fixed tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from frontend import dtype as dt
from frontend.graph.node import Op
from frontend.instructions import arith, indices
from frontend.instructions.indices import Spot
from frontend.instructions.ir import Builder, Value
from frontend.instructions.memory import compute_kind, round_to
from frontend.instructions.points import Piece, Point
from frontend.instructions.values import Values
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.index import Index

_ARG = (Op.ARGMAX, Op.ARGMIN)
Parts = tuple[Value, ...]
"""What is kept for one point: a value, and for the ARG kinds its position too."""


class Fold:
    """One reduction of a nest. `position`: of the ARG kinds, where a point is along their axis."""

    def __init__(
        self, b: Builder, reduction: ln.Reduction, value: ex.Expr, position: Index | None
    ) -> None:
        self.b, self.value = b, value
        self.kind, self.dtype = reduction.kind, reduction.dtype
        self.is_arg = self.kind in _ARG
        # positions as narrow as float32 values, unless the axis is too long for that
        self._wide = reduction.axis is not None and reduction.axis.extent > 1 << 31
        dtype = dt.int64 if self._wide else dt.int32
        self._position = None if position is None else ex.IndexValue(position, dtype)
        self._combine = "" if self.is_arg else arith.combine_name(self.kind, self.dtype)

    def start(self, lanes: int) -> Parts:
        """The accumulator before anything is folded."""
        dtype = self.value.dtype if self.is_arg else self.dtype
        first = self.b.const(compute_kind(dtype), ln.identity(self.kind, dtype), lanes)
        kind = "i64" if self._wide else "i32"
        return (first, self.b.const(kind, 0, lanes)) if self.is_arg else (first,)

    # --- one point -------------------------------------------------------------------------------

    def add(self, values: Values, tile: Sequence[ln.Loop], old: Parts, spot: Spot) -> Parts:
        """The accumulator after this spot; lanes past a reduction's end keep their old value."""
        new = self._folded(values, self.value, old, spot)
        for loop, c in zip(tile, spot.point, strict=True):
            if isinstance(c, Piece) and loop.reduce and c.active < c.lanes:
                return self._chosen(indices.active(self.b, c), new, old)
        return new

    def _folded(self, values: Values, value: ex.Expr, old: Parts, spot: Spot) -> Parts:
        if isinstance(value, ex.Masked) and self._adds_nothing(value.otherwise):
            holds = values.holds(value, spot)
            inside = values.assuming(holds, spot)
            return self._chosen(holds, self._folded(values, value.value, old, inside), old)
        if self._position is not None:
            new = values.at(value, spot), values.at(self._position, spot)
            return self._better(old, new, first_wins=True)
        product = isinstance(value, ex.Alu) and value.op is Op.MUL and self.dtype.is_float
        if product and self.kind is Op.SUM:
            x, y = (values.at(part, spot) for part in value.parts)
            return (self.b.fma(x, y, old[0]),)
        return (self.b.op(self._combine, old[0], values.at(value, spot)),)

    def _adds_nothing(self, value: ex.Expr) -> bool:
        """Whether folding `value` in leaves every result as it is."""
        if self.is_arg or not isinstance(value, ex.Constant):
            return False
        return value.value == ln.identity(self.kind, self.dtype)

    def _chosen(self, holds: Value, new: Parts, old: Parts) -> Parts:
        return tuple(self.b.select(holds, n, o) for n, o in zip(new, old, strict=True))

    def scan(self, before: Value, x: Value) -> Value:
        """Running values of the lanes of `x`, after the running value `before`.

        Each of log2(lanes) rounds adds the lane 1, 2, 4, … before, where there is one.
        """
        b, lanes = self.b, x.lanes
        nothing = b.const(x.kind, ln.identity(self.kind, self.dtype), lanes)
        distance = 1
        while distance < lanes:
            moved = b.shuffle(nothing, x, [lanes + i - distance for i in range(lanes)])
            x = b.op(self._combine, moved, x)
            distance *= 2
        return b.op(self._combine, before, x)

    # --- the end ---------------------------------------------------------------------------------

    def result(self, parts: list[Parts], *, across: bool) -> Value:
        """One value of what the tile held apart; `across`: of what its lanes held apart too."""
        widest = max(p[0].lanes for p in parts)
        narrow = [p for p in parts if p[0].lanes < widest]
        parts = [p for p in parts if p[0].lanes == widest]
        while len(parts) > 1:
            half = (len(parts) + 1) // 2
            merged = [self.merged(x, y) for x, y in zip(parts[:half], parts[half:], strict=False)]
            parts = merged + parts[len(merged) : half]
        whole = self._across(parts[0]) if across else parts[0]
        for p in narrow:
            whole = self.merged(whole, self._across(p))
        if self.is_arg:
            return whole[1] if self._wide else self.b.cast("sext", whole[1], "i64")
        return round_to(self.b, whole[0], self.dtype)

    def merged(self, x: Parts, y: Parts) -> Parts:
        """What two partial results give together."""
        if self.is_arg:
            return self._better(x, y, first_wins=False)
        return (self.b.op(self._combine, x[0], y[0]),)

    def _across(self, parts: Parts) -> Parts:
        """One result from all lanes."""
        b = self.b
        if not self.is_arg:
            return (b.combine(self._combine, parts[0]),)
        while parts[0].lanes > 1:
            half = parts[0].lanes // 2
            low = tuple(b.shuffle(p, p, range(half)) for p in parts)
            high = tuple(b.shuffle(p, p, range(half, 2 * half)) for p in parts)
            parts = self._better(low, high, first_wins=False)
        return parts

    def _better(self, old: Parts, new: Parts, *, first_wins: bool) -> Parts:
        """The better of two (value, position) pairs.

        NaN beats all. Among equal values the lower position wins; `first_wins`: `old` has it.
        """
        b = self.b
        (x, i), (y, j) = old, new
        greater = "gt" if self.kind is Op.ARGMAX else "lt"
        if self.value.dtype.is_float:
            better = b.compare("fcmp", f"u{greater}", y, x)
            better = b.op("and", better, b.compare("fcmp", "ord", x, x))
            same = b.compare("fcmp", "oeq", x, y)
            both_nan = b.op("and", b.compare("fcmp", "uno", x, x), b.compare("fcmp", "uno", y, y))
            same = b.op("or", same, both_nan)
        else:
            sign = "s" if self.value.dtype.kind == "i" else "u"
            better = b.compare("icmp", sign + greater, y, x)
            same = b.compare("icmp", "eq", x, y)
        if not first_wins:
            earlier = b.compare("icmp", "slt", j, i)
            better = b.op("or", better, b.op("and", same, earlier))
        return b.select(better, y, x), b.select(better, j, i)


class Accumulators:
    """Partial results in registers: (number of the reduction, point of the tile) → its parts."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, Point], Parts] = {}

    def flat(self) -> list[Value]:
        return [v for parts in self.held.values() for v in parts]

    def refill(self, flat: Sequence[Value]) -> None:
        """New values, in the order of `flat`."""
        at = 0
        for key, parts in self.held.items():
            self.held[key] = tuple(flat[at : at + len(parts)])
            at += len(parts)
