"""Where a mask ends a block's columns: what a causal mask hides from all rows of a block.

Beyond the mask scores are -inf; their exponentials are 0, so that no maximum, sum or product takes
anything from there, and no loop need go there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from frontend.graph.node import Node, Op
from frontend.loops import expr as ex
from frontend.loops.affine import not_negative
from frontend.loops.index import Index, Var
from frontend.schedule.body import Body, Ref

_LOWEST = -math.inf


def bound_of(members: Sequence[Body], depth: int, last: Index) -> Index | None:
    """The first column that no row of a block needs, over the loops around it; None if all are.

    `members`: of a chain, whose first has columns as axis number `depth`; the fold or map of each
    other runs over them. `last`: the last row of a block.
    """
    beyond = _Beyond()
    for number, body in enumerate(members):
        folded = bool(body.reduce) and number > 0
        columns = body.reduce[0] if folded else body.axes[-1]
        if not folded and len(body.axes) == depth:
            continue
        beyond.enter(body.axes[depth - 1], columns)
        value = beyond(body.value) if number else None
        beyond.known[body.node] = value
        if folded:
            nothing = {Op.MAX: _LOWEST, Op.SUM: 0.0}.get(body.node.op)
            if value is None or value != nothing:
                return None
    if len(beyond.bounds) != 1:
        return None
    (step, constant) = next(iter(beyond.bounds))
    bound = last * step + constant
    return bound if bound.low >= 1 and bound.low < members[0].axes[-1].extent else None


class _Beyond:
    """The value of expressions in columns past the mask: 0, -inf or, None, unknown."""

    def __init__(self) -> None:
        self.known: dict[Node, float | None] = {}
        self.bounds: set[tuple[int, int]] = set()
        """(step, constant): columns from step * row + constant on are hidden from a row."""

    def enter(self, row: Var, columns: Var) -> None:
        """From here on these are the axes."""
        self._row, self._columns = row, columns

    def __call__(self, e: ex.Expr) -> float | None:
        if isinstance(e, ex.Constant):
            return float(e.value) if float(e.value) in (0.0, _LOWEST) else None
        if isinstance(e, Ref):
            at = e.indices[-1] if e.indices else Index()
            return self.known.get(e.node) if at == Index.of(self._columns) else None
        if not isinstance(e, ex.Alu):
            return None
        if e.op is Op.WHERE:
            return self._where(e)
        if e.op in (Op.CAST, Op.EXP, Op.EXP2):
            return self._of_one(e)
        if e.op in (Op.ADD, Op.SUB):
            moves = self._columns in e.args[1].variables
            return _LOWEST if self(e.args[0]) == _LOWEST and not moves else None
        if e.op in (Op.MUL, Op.DIV):
            return self._scaled(e)
        return None

    def _where(self, e: ex.Alu) -> float | None:
        hidden = self(e.args[2])
        seen = not_negative(e.args[0])
        if hidden is None or seen is None or seen.coefficient(self._columns) != -1:
            return None
        step = seen.coefficient(self._row)
        if step is None or step < 0 or seen.variables() != {self._row, self._columns}:
            return None
        self.bounds.add((step, seen.constant + 1))
        return hidden

    def _of_one(self, e: ex.Alu) -> float | None:
        value = self(e.args[0])
        if e.op is Op.CAST:
            return value
        return 0.0 if value == _LOWEST else None

    def _scaled(self, e: ex.Alu) -> float | None:
        x, y = e.args
        value = self(x)
        if value == 0.0 or (e.op is Op.MUL and self(y) == 0.0):
            return 0.0
        positive = isinstance(y, ex.Constant) and 0 < y.value < math.inf
        return value if positive else None
