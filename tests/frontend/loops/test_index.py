"""Index algebra against plain integer arithmetic at every point of small loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frontend.loops.index import Divides, Index, InRange, Var, flatten, unflatten

VARS = (Var("a", 6), Var("b", 4), Var("c", 3), Var("d", 1))
Point = dict[Var, int]


@dataclass(frozen=True)
class Both:
    """The same expression as an Index and as plain arithmetic."""

    index: Index
    value: Callable[[Point], int]

    def __repr__(self) -> str:
        return str(self.index)


def leaves() -> st.SearchStrategy[Both]:
    variables = st.sampled_from(VARS).map(lambda v: Both(Index.of(v), lambda p: p[v]))
    numbers = st.integers(-12, 12).map(lambda n: Both(Index.of(n), lambda p: n))
    return st.one_of(variables, numbers)


def grown(inner: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    def add(x: Both, y: Both) -> Both:
        return Both(x.index + y.index, lambda p: x.value(p) + y.value(p))

    def subtract(x: Both, y: Both) -> Both:
        return Both(x.index - y.index, lambda p: x.value(p) - y.value(p))

    def multiply(x: Both, n: int) -> Both:
        return Both(x.index * n, lambda p: x.value(p) * n)

    def divide(x: Both, n: int) -> Both:
        return Both(x.index // n, lambda p: x.value(p) // n)

    def remainder(x: Both, n: int) -> Both:
        return Both(x.index % n, lambda p: x.value(p) % n)

    by = st.sampled_from((1, 2, 3, 4, 6, 8, 12))
    return st.one_of(
        st.builds(add, inner, inner),
        st.builds(subtract, inner, inner),
        st.builds(multiply, inner, st.integers(-6, 12)),
        st.builds(divide, inner, by),
        st.builds(remainder, inner, by),
    )


EXPRESSIONS = st.recursive(leaves(), grown, max_leaves=8)


def points() -> Iterator[Point]:
    for values in itertools.product(*(range(v.extent) for v in VARS)):
        yield dict(zip(VARS, values, strict=True))


@given(EXPRESSIONS)
def test_normal_forms_keep_the_value_at_every_point(both: Both) -> None:
    for point in points():
        assert both.index.evaluate(point.__getitem__) == both.value(point), point


@given(EXPRESSIONS)
def test_the_range_holds_every_value(both: Both) -> None:
    values = [both.value(point) for point in points()]
    assert both.index.low <= min(values)
    assert max(values) <= both.index.high


@given(EXPRESSIONS)
def test_a_coefficient_is_the_step_at_every_point(both: Both) -> None:
    for var in VARS:
        step = both.index.coefficient(var)
        if step is None:
            continue
        for point in points():
            if point[var] + 1 < var.extent:
                following = point | {var: point[var] + 1}
                assert both.value(following) - both.value(point) == step, (var, point)


@given(EXPRESSIONS)
def test_what_an_index_does_not_depend_on_does_not_move_it(both: Both) -> None:
    for var in VARS:
        if not both.index.depends_on(var):
            assert var not in both.index.variables()
            assert both.index.coefficient(var) == 0
            for point in points():
                assert both.value(point) == both.value(point | {var: 0})


@given(EXPRESSIONS, st.dictionaries(st.sampled_from(VARS), EXPRESSIONS, max_size=2))
def test_substitution_is_evaluation_of_the_parts(both: Both, parts: dict[Var, Both]) -> None:
    # what is put in place of a variable stays in the variable's range, as loops promise
    safe = {v: Both(x.index % v.extent, _modulo(x, v.extent)) for v, x in parts.items()}
    result = both.index.substitute({v: x.index for v, x in safe.items()})
    for point in points():
        moved = point | {v: x.value(point) for v, x in safe.items()}
        assert result.evaluate(point.__getitem__) == both.value(moved), point


def _modulo(both: Both, by: int) -> Callable[[Point], int]:
    return lambda point: both.value(point) % by


@given(EXPRESSIONS, EXPRESSIONS)
def test_equal_indices_have_equal_hashes_and_values(x: Both, y: Both) -> None:
    assert (x.index + y.index) == (y.index + x.index)
    assert hash(x.index + y.index) == hash(y.index + x.index)
    if x.index == y.index:
        assert hash(x.index) == hash(y.index)
        assert all(x.value(point) == y.value(point) for point in points())


@given(EXPRESSIONS, st.integers(1, 20), st.sampled_from((2, 3, 4, 6)))
def test_conditions_that_always_hold_do(both: Both, extent: int, by: int) -> None:
    inside = all(0 <= both.value(point) < extent for point in points())
    if InRange(both.index, extent).always:
        assert inside
    if Divides(both.index, by).always:
        assert all(both.value(point) % by == 0 for point in points())


SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@given(SHAPES)
def test_unflatten_undoes_flatten_without_division(shape: tuple[int, ...]) -> None:
    axes = [Var(f"i{n}", extent) for n, extent in enumerate(shape)]
    indices = tuple(map(Index.of, axes))
    assert unflatten(flatten(indices, shape), shape) == indices


@given(SHAPES)
def test_reshaping_visits_elements_in_the_same_order(shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    flat = Var("flat", size)
    other = unflatten(Index.of(flat), shape)
    for position in range(size):
        at = [index.evaluate({flat: position}.__getitem__) for index in other]
        expected = [int(i) for i in np.unravel_index(position, shape)]
        assert at == expected


def test_a_split_axis_joins_again() -> None:
    i, j = Index.of(Var("i", 4)), Index.of(Var("j", 8))
    flat = i * 8 + j
    assert (flat // 8, flat % 8) == (i, j)
    assert (flat // 16) * 16 + flat % 16 == flat
    assert (flat // 2) // 4 == i
    assert flat % 32 == flat


def test_a_reshape_through_a_finer_shape_is_the_same_as_none() -> None:
    axes = [Index.of(Var(name, extent)) for name, extent in (("i", 6), ("j", 4))]
    through = unflatten(flatten(axes, (6, 4)), (2, 3, 2, 2))
    assert unflatten(flatten(through, (2, 3, 2, 2)), (6, 4)) == tuple(axes)


def test_what_several_divisions_took_apart_is_put_together() -> None:
    v = Index.of(Var("v", 1024))
    digits = (v // 16) * 16 + (v // 4) % 4 * 4 + (v // 2) % 2 * 2 + v % 2
    assert digits == v
    assert (v // 4) % 4 * 4 + v % 4 == v % 16
    assert (v // 4) % 4 * 5 + v % 4 != v % 16
