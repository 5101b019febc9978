"""Index arithmetic as instructions, at one spot of a tile.

A `Spot` is all that the value of an expression depends on: where the loops stand, which lanes run,
and what is known to hold. It is passed along and never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from frontend.instructions.ir import Builder, Value
from frontend.instructions.points import Piece, Point
from frontend.loops.index import Condition, Index, InRange, Quotient, Remainder, Var

Env: TypeAlias = Mapping[Var, "int | Value"]
"""Each variable: a number, or what is known only when the code runs."""


@dataclass(frozen=True, eq=False)
class Spot:
    """Where an expression is computed."""

    point: Point
    env: Env
    """The variables of all loops, the vector loop's at its piece's first lane."""
    vector: Var | None = None
    """The vector loop's variable."""
    piece: Piece | None = None
    """The lanes; None where there is one."""
    predicate: Value | None = None
    """Nothing is read where this is false."""
    looked_up: tuple[Value, ...] = ()
    """The positions that lookups around have bound."""
    accumulated: tuple[Value, ...] = ()
    """The reductions' values."""

    def binding(self, var: Var, value: int | Value) -> Spot:
        return replace(self, env={**self.env, var: value})


def total(b: Builder, index: Index, env: Env) -> tuple[Value | None, int]:
    """(value, constant) whose sum is the index, the vector variable at its piece's first lane."""
    found, constant = None, index.constant
    for atom, c in index.terms:
        value = env[atom] if isinstance(atom, Var) else _divided(b, atom, env)
        if isinstance(value, int):
            constant += c * value
            continue
        part = b.op("mul", value, b.const("i64", c))
        found = part if found is None else b.op("add", found, part)
    return found, constant


def _divided(b: Builder, atom: Quotient | Remainder, env: Env) -> Value | int:
    value, constant = total(b, atom.index, env)
    if value is None:
        return constant // atom.by if isinstance(atom, Quotient) else constant % atom.by
    # unsigned division of a shifted, never negative number
    shift = max(0, -(atom.index.low // atom.by)) if atom.index.low < 0 else 0
    whole = b.op("add", value, b.const("i64", constant + shift * atom.by))
    by = b.const("i64", atom.by)
    if isinstance(atom, Remainder):
        return b.op("urem", whole, by)
    return b.op("sub", b.op("udiv", whole, by), b.const("i64", shift))


def scalar(b: Builder, index: Index, env: Env) -> Value:
    """The index, at the first lane."""
    value, constant = total(b, index, env)
    if value is None:
        return b.const("i64", constant)
    return b.op("add", value, b.const("i64", constant))


def step(index: Index, spot: Spot) -> int | None:
    """How `index` moves from lane to lane; None if not evenly."""
    held = (spot.env.get(v) for v in index.variables())
    if any(isinstance(value, Value) and value.lanes > 1 for value in held):
        return None
    return 0 if spot.vector is None else index.coefficient(spot.vector)


def lanes(b: Builder, index: Index, spot: Spot, kind: str = "i64") -> Value:
    """One index for each lane, or the only one where the index is the same in all."""
    by = step(index, spot)
    if spot.piece is None or by == 0:
        first = scalar(b, index, spot.env)
        return first if kind == "i64" else b.cast("itrunc", first, kind)
    if by is not None:
        first = scalar(b, index, spot.env)
        first = first if kind == "i64" else b.cast("itrunc", first, kind)
        return b.op("add", first, b.iota(kind, spot.piece.lanes, 0, by))
    found: Value = b.const("i64", index.constant, spot.piece.lanes)
    for atom, c in index.terms:
        found = b.op("add", found, _atom_lanes(b, atom, c, spot))
    return found if kind == "i64" else b.cast("itrunc", found, kind)


def _atom_lanes(b: Builder, atom: Var | Quotient | Remainder, c: int, spot: Spot) -> Value:
    piece = spot.piece
    assert piece is not None
    factor = b.const("i64", c)
    if isinstance(atom, Var):
        held = spot.env[atom]
        if isinstance(held, Value):
            return b.op("mul", held, factor)
        if atom == spot.vector:
            return b.op("mul", b.iota("i64", piece.lanes, piece.start), factor)
        return b.const("i64", held * c)
    inner = lanes(b, atom.index, spot)
    shift = -(atom.index.low // atom.by) if atom.index.low < 0 else 0
    by = b.const("i64", atom.by)
    inner = b.op("add", inner, b.const("i64", shift * atom.by))
    if isinstance(atom, Remainder):
        return b.op("mul", b.op("urem", inner, by), factor)
    quotient = b.op("sub", b.op("udiv", inner, by), b.const("i64", shift))
    return b.op("mul", quotient, factor)


def holds(b: Builder, condition: Condition, spot: Spot) -> Value:
    """Whether the condition holds: one bit, or one a lane."""
    value = lanes(b, condition.index, spot)
    if isinstance(condition, InRange):
        # as unsigned, a negative index is beyond every extent
        return b.compare("icmp", "ult", value, b.const("i64", condition.extent, value.lanes))
    by = condition.by
    low = condition.index.low
    shift = -(low // by) * by if low < 0 else 0
    rest = b.op("urem", b.op("add", value, b.const("i64", shift)), b.const("i64", by))
    return b.compare("icmp", "eq", rest, b.const("i64", 0))


def active(b: Builder, piece: Piece) -> Value:
    """The mask of the lanes that exist."""
    return b.compare("icmp", "slt", b.iota("i32", piece.lanes), b.const("i32", piece.active))
