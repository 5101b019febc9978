"""Axes become few and plain, however many of them are divided."""

from __future__ import annotations

from frontend import dtype as dt
from frontend.loops import expr as ex
from frontend.loops.index import Index, Quotient, Remainder, Var
from frontend.loops.nest import Nest, Store
from frontend.loops.simplify import indices, simplify


def test_every_divided_axis_is_cut() -> None:
    axes = tuple(Var(f"i{n}", 6) for n in range(20))
    plain, turned = Index(), Index()
    for v in axes:
        plain = plain * 6 + Index.of(v)
        turned = turned * 6 + (Index.of(v) % 2) * 3 + Index.of(v) // 2
    store = Store(1, plain, ex.Load(0, turned, dt.float32))
    simple = simplify(Nest(axes, stores=(store,)))
    atoms = [atom for index in indices(simple) for atom, _ in index.terms]
    assert atoms
    assert not [atom for atom in atoms if isinstance(atom, Quotient | Remainder)]
    assert simple.points == 6**20


def test_axes_that_are_one_in_every_index_are_merged() -> None:
    a, b = Var("a", 4), Var("b", 8)
    index = Index.of(a) * 8 + Index.of(b)
    nest = simplify(Nest((a, b), stores=(Store(1, index, ex.Load(0, index, dt.float32)),)))
    assert [v.extent for v in nest.axes] == [32]
