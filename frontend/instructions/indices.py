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
    found = _sum_lanes(b, index, spot, "i64")
    return found if kind == "i64" else b.cast("itrunc", found, kind)


def _sum_lanes(b: Builder, index: Index, spot: Spot, kind: str) -> Value:
    assert spot.piece is not None
    found: Value = b.const(kind, index.constant, spot.piece.lanes)
    for atom, c in index.terms:
        found = b.op("add", found, _atom_lanes(b, atom, c, spot, kind))
    return found


def _atom_lanes(
    b: Builder, atom: Var | Quotient | Remainder, c: int, spot: Spot, kind: str
) -> Value:
    piece = spot.piece
    assert piece is not None
    factor = b.const(kind, c)
    if isinstance(atom, Var):
        held = spot.env[atom]
        if isinstance(held, Value):
            return b.op("mul", held if kind == "i64" else b.cast("itrunc", held, kind), factor)
        if atom == spot.vector:
            return b.op("mul", b.iota(kind, piece.lanes, piece.start), factor)
        return b.const(kind, held * c)
    inner = lanes(b, atom.index, spot) if kind == "i64" else narrow(b, atom.index, spot)
    shift = -(atom.index.low // atom.by) if atom.index.low < 0 else 0
    by = b.const(kind, atom.by)
    inner = b.op("add", inner, b.const(kind, shift * atom.by))
    if isinstance(atom, Remainder):
        return b.op("mul", b.op("urem", inner, by), factor)
    quotient = b.op("sub", b.op("udiv", inner, by), b.const(kind, shift))
    return b.op("mul", quotient, factor)


# --- 32-bit lanes, for processors to which 64-bit arithmetic is dear -----------------------------


def is_narrow(index: Index, room: int = 1 << 31) -> bool:
    """Whether 32 bits hold the index and everything on the way to it."""
    atoms = [atom for atom, _ in index.terms if not isinstance(atom, Var)]
    reach = abs(index.constant) + sum(
        abs(c) * max(abs(atom.low), abs(atom.high)) for atom, c in index.terms
    )
    return reach < room and all(is_narrow(atom.index, room // 2) for atom in atoms)


def narrow(b: Builder, index: Index, spot: Spot) -> Value:
    """As `lanes`, of an index that `is_narrow`: computed in 32 bits, the common part apart."""
    common, own = apart(index, spot)
    if spot.piece is None or not own.terms:
        return b.cast("itrunc", scalar(b, index, spot.env), "i32")
    first = b.cast("itrunc", scalar(b, common, spot.env), "i32")
    return b.op("add", first, _sum_lanes(b, own, spot, "i32"))


def apart(index: Index, spot: Spot) -> tuple[Index, Index]:
    """(what is the same in all lanes, the rest), whose sum is the index; the rest is not negative.

    The rest holds no constant but what keeps it from being negative.
    """
    held = spot.env
    varying = {
        v
        for v in index.variables()
        if v == spot.vector or (isinstance(value := held.get(v), Value) and value.lanes > 1)
    }

    def varies(atom: Var | Quotient | Remainder) -> bool:
        return atom in varying if isinstance(atom, Var) else bool(atom.index.variables() & varying)

    own = Index((atom, c) for atom, c in index.terms if varies(atom))
    common = Index(((a, c) for a, c in index.terms if not varies(a)), index.constant)
    below = min(0, own.low)
    return common + below, own - below


def holds(b: Builder, condition: Condition, spot: Spot, *, wide: bool = True) -> Value:
    """Whether the condition holds: one bit, or one a lane."""
    index = condition.index
    kind = "i64" if wide or not is_narrow(index) else "i32"
    value = lanes(b, index, spot) if kind == "i64" else narrow(b, index, spot)
    if isinstance(condition, InRange):
        # as unsigned, a negative index is beyond every extent
        return b.compare("icmp", "ult", value, b.const(kind, condition.extent, value.lanes))
    by, low = condition.by, index.low
    shift = -(low // by) * by if low < 0 else 0
    rest = b.op("urem", b.op("add", value, b.const(kind, shift)), b.const(kind, by))
    return b.compare("icmp", "eq", rest, b.const(kind, 0))


def active(b: Builder, piece: Piece) -> Value:
    """The mask of the lanes that exist."""
    return b.compare("icmp", "slt", b.iota("i32", piece.lanes), b.const("i32", piece.active))
