"""Integer expressions that are index arithmetic, and comparisons of them.

`tril` compares two `arange`s: where `j <= i`, as a condition over loop variables, `i - j >= 0`.
"""

from __future__ import annotations

from frontend import dtype as dt
from frontend.graph.node import Op
from frontend.loops import expr as ex
from frontend.loops.index import Index

_HALF = 1 << 31


def index_of(e: ex.Expr) -> Index | None:
    """The integer expression as an index; None if it is none, or might wrap round."""
    if e.dtype.kind not in "iu":
        return None
    found = _index_of(e)
    least = 0 if e.dtype.kind == "u" else -(1 << e.dtype.bits - 1)
    if found is None or found.low < least or found.high >= 1 << e.dtype.bits - 1:
        return None
    return found


def _index_of(e: ex.Expr) -> Index | None:
    if isinstance(e, ex.IndexValue):
        return e.index
    if isinstance(e, ex.Constant):
        return Index.of(int(e.value))
    if not isinstance(e, ex.Alu):
        return None
    parts = [index_of(a) for a in e.args]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if e.op is Op.CAST or e.op is Op.NEG:
        return known[0] * (1 if e.op is Op.CAST else -1)
    if e.op is Op.ADD or e.op is Op.SUB:
        return known[0] + known[1] * (1 if e.op is Op.ADD else -1)
    if e.op is Op.MUL and known[1].is_constant:
        return known[0] * known[1].constant
    return None


def not_negative(e: ex.Expr) -> Index | None:
    """The index that is not negative exactly where the comparison `e` holds; None if none is."""
    if not isinstance(e, ex.Alu) or len(e.args) < 2:
        return None
    if e.op is Op.WHERE and _is_bool(e.args[1], yes=True) and _is_bool(e.args[2], yes=False):
        return not_negative(e.args[0])
    if e.op not in (Op.LT, Op.LE):
        return None
    low, high = index_of(e.args[0]), index_of(e.args[1])
    return None if low is None or high is None else high - low - (e.op is Op.LT)


def _is_bool(e: ex.Expr, *, yes: bool) -> bool:
    return isinstance(e, ex.Constant) and e.dtype.kind == "b" and bool(e.value) is yes


def narrowed(e: ex.Expr) -> ex.Expr:
    """The comparison of 64-bit indices as one of 32 bits, where those hold them: more lanes."""
    if not isinstance(e, ex.Alu):
        return e
    if e.op is Op.WHERE and _is_bool(e.args[1], yes=True) and _is_bool(e.args[2], yes=False):
        return e.args[0]
    if e.op not in (Op.LT, Op.LE, Op.EQ, Op.NE) or e.args[0].dtype.bits != 64:
        return e
    indices = [index_of(a) for a in e.args]
    known = [i for i in indices if i is not None and i.low >= -_HALF and i.high < _HALF]
    if len(known) < 2:
        return e
    return ex.Alu(e.op, tuple(ex.IndexValue(i, dt.int32) for i in known), e.dtype)
