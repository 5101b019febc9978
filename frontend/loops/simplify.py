"""Loop axes made as few and as plain as they can be.

    for i in 4, j in 8: out[8*i + j] = f(in[8*i + j])
        → for ij in 32: out[ij] = f(in[ij])
    for i in 32: out[i] = in[4*(i % 8) + i//8]
        → for a in 4, b in 8: out[8*a + b] = in[4*b + a]

Axes of extent 1 go; an axis that is divided by n somewhere is cut at n; neighbours that every
index treats as one axis become one. All of it is substitution of loop variables: `index.py` does
the algebra.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from frontend.loops import expr as ex
from frontend.loops.index import Divides, Index, Quotient, Remainder, Var
from frontend.loops.nest import Nest, Store


def simplify(nest: Nest) -> Nest:
    """The same nest over plainer axes."""
    nest = _merge_neighbours(_cut_where_divided(nest))
    keep = {r.axis for r in nest.reductions if r.axis is not None}
    return replace(
        nest,
        axes=tuple(v for v in nest.axes if v.extent != 1),
        reduce=tuple(v for v in nest.reduce if v.extent != 1 or v in keep) or nest.reduce[:1],
    )


def indices(nest: Nest) -> Iterator[Index]:
    """Every index in the nest's expressions, conditions and stores."""
    for store in (*nest.stores, *nest.inner):
        yield store.index
    for e in ex.walk(nest.expressions()):
        if isinstance(e, ex.Load | ex.IndexValue):
            yield e.index
        elif isinstance(e, ex.Masked):
            yield from (c.index for c in e.conditions)


def substitute(nest: Nest, values: dict[Var, Index]) -> Nest:
    """The nest with variables replaced in everything but `axes` and `reduce`."""
    change = ex.Substitution(values)

    def store(s: Store) -> Store:
        position = None if s.position is None else change(s.position)
        return replace(
            s, index=s.index.substitute(values), value=change(s.value), position=position
        )

    return replace(
        nest,
        reductions=tuple(replace(r, value=change(r.value)) for r in nest.reductions),
        stores=tuple(store(s) for s in nest.stores),
        inner=tuple(store(s) for s in nest.inner),
    )


def _divisors(nest: Nest, var: Var) -> set[int]:
    """The n for which `var // n` or `var % n` stands in an index."""
    found: set[int] = set()

    def visit(index: Index) -> None:
        for atom, _ in index.terms:
            if isinstance(atom, Quotient | Remainder):
                if atom.index == Index.of(var):
                    found.add(atom.by)
                visit(atom.index)

    for index in indices(nest):
        visit(index)
    for e in ex.walk(nest.expressions()):
        if isinstance(e, ex.Masked):
            divides = [c for c in e.conditions if isinstance(c, Divides)]
            found |= {c.by for c in divides if c.index == Index.of(var)}
    return {n for n in found if var.extent % n == 0 and 1 < n < var.extent}


def _cut_where_divided(nest: Nest) -> Nest:
    """Cut axes until none is divided. Ends, since each cut leaves two shorter axes for one."""
    number = 0
    while (cut := _next_cut(nest)) is not None:
        var, by = cut
        outer = Var(f"{var.name}h{number}", var.extent // by)
        inner = Var(f"{var.name}l{number}", by)
        nest = substitute(nest, {var: Index.of(outer) * by + Index.of(inner)})
        nest = replace(
            nest,
            axes=_replaced(nest.axes, var, (outer, inner)),
            reduce=_replaced(nest.reduce, var, (outer, inner)),
        )
        number += 1
    return nest


def _next_cut(nest: Nest) -> tuple[Var, int] | None:
    """The first axis that is divided somewhere, and the least of its divisors."""
    fixed = {r.axis for r in nest.reductions} | {*nest.ordered, *nest.whole}
    for v in (*nest.axes, *nest.reduce):
        if v not in fixed and (divisors := _divisors(nest, v)):
            return v, min(divisors)
    return None


def _replaced(axes: tuple[Var, ...], var: Var, parts: tuple[Var, ...]) -> tuple[Var, ...]:
    return tuple(p for v in axes for p in (parts if v == var else (v,)))


def _merge_neighbours(nest: Nest) -> Nest:
    for field in ("axes", "reduce"):
        at = 0
        while at + 1 < len(getattr(nest, field)):
            merged = _merged(nest, field, at)
            if merged is None:
                at += 1
            else:
                nest = merged
                at = max(0, at - 1)
    return nest


def _merged(nest: Nest, field: str, at: int) -> Nest | None:
    axes: tuple[Var, ...] = getattr(nest, field)
    a, b = axes[at], axes[at + 1]
    if any(r.axis in (a, b) for r in nest.reductions) or {a, b} & {*nest.ordered, *nest.whole}:
        return None
    if a.extent != 1 and b.extent != 1 and not all(_one_axis(i, a, b) for i in indices(nest)):
        return None
    whole = Var(f"{a.name}{b.name}", a.extent * b.extent)
    index = Index.of(whole)
    nest = substitute(nest, {a: index // b.extent, b: index % b.extent})
    together = (*axes[:at], whole, *axes[at + 2 :])
    return replace(nest, axes=together) if field == "axes" else replace(nest, reduce=together)


def _one_axis(index: Index, a: Var, b: Var) -> bool:
    """True if the index depends on `a` and `b` only through a*extent(b) + b."""
    step_a, step_b = index.coefficient(a), index.coefficient(b)
    return step_a is not None and step_b is not None and step_a == step_b * b.extent
