"""What makes two kernels the same work: their form, compared before they are scheduled or lowered.

A network has the same few kernels over and over; each form is scheduled and lowered once.
"""

from __future__ import annotations

from collections.abc import Hashable

from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.expr import Expr


def form_of(kernel: ln.Kernel) -> Hashable:
    """All of a kernel but its name. Equal forms give equal instructions."""
    numbering = _Numbering()
    nests = tuple(_nest(nest, numbering) for nest in kernel.nests)
    return (kernel.slots, kernel.outer, kernel.short, nests, tuple(numbering.parts))


class _Numbering:
    """Expressions as a list of parts, in which shared ones stand once."""

    def __init__(self) -> None:
        self.parts: list[Hashable] = []
        self._number: dict[Expr, int] = {}

    def __call__(self, e: Expr) -> int:
        known = self._number.get(e)
        if known is None:
            inside = tuple(self(part) for part in e.parts)
            self.parts.append((type(e).__name__, e.dtype.name, _own(e), inside))
            known = self._number[e] = len(self.parts) - 1
        return known


def _own(e: Expr) -> Hashable:
    """What an expression has besides its parts."""
    if isinstance(e, ex.Load):
        return (e.slot, e.index)
    if isinstance(e, ex.Constant):
        return repr(e.value)
    if isinstance(e, ex.IndexValue):
        return e.index
    if isinstance(e, ex.Alu):
        return e.op
    if isinstance(e, ex.Masked):
        return e.conditions
    if isinstance(e, ex.Lookup):
        return e.var
    assert isinstance(e, ex.Accumulated), e
    return e.number


def _nest(nest: ln.Nest, number: _Numbering) -> Hashable:
    reductions = tuple((r.kind, number(r.value), r.dtype.name, r.axis) for r in nest.reductions)
    stores = tuple(
        tuple(
            (s.slot, s.index, number(s.value), s.add, s.var, s.position and number(s.position))
            for s in group
        )
        for group in (nest.stores, nest.inner)
    )
    return (
        nest.axes,
        nest.reduce,
        reductions,
        stores,
        nest.ordered,
        nest.steps,
        nest.limits,
        nest.whole,
    )
