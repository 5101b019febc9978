"""Small graphs that once went wrong, each with what was special about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import dtype as dt
from frontend import engine
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op, Shape
from tests.frontend import reference
from tests.frontend.evaluator import uses_reference

DEVICE = "cpu:0"
pytestmark = pytest.mark.skipif(uses_reference(), reason="runs generated kernels")


def leaf(shape: Shape, dtype: DType, low: int = -9, high: int = 10) -> Node:
    """Small whole numbers in memory."""
    low = max(low, 0) if dtype.kind in "ub" else low
    values = np.random.default_rng(len(shape)).integers(low, high, shape)
    return stored(values, dtype)


def stored(values: Any, dtype: DType) -> Node:
    array = reference.storage_of(np.asarray(values), dtype)
    return engine.from_host(array, array.shape, dtype, DEVICE)


def check(*roots: Node) -> None:
    """The engine's values are NumPy's."""
    placed = [r if r.device is not None else g.copy_to(r, DEVICE) for r in roots]
    expected = reference.evaluate_all(placed)
    engine.realize(placed)
    for node, value in zip(placed, expected, strict=True):
        got = reference.from_storage(engine.to_host(node), node.dtype)
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize("op", [Op.ARGMAX, Op.ARGMIN], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [dt.bool_, dt.int8, dt.uint8, dt.int32, dt.uint64], ids=str)
def test_the_place_of_an_extreme_starts_from_the_values_own_limit(op: Op, dtype: DType) -> None:
    x = leaf((5, 7), dtype, high=2 if dtype is dt.bool_ else 10)
    check(g.reduce(op, x, (0,)), g.reduce(op, x, (1,)))


def test_the_place_of_the_largest_is_found_far_below_what_an_integer_holds() -> None:
    x = stored([[-np.inf, -1e30, -2e30], [1e30, 2e30, np.inf]], dt.float32)
    check(g.reduce(Op.ARGMAX, x, (1,)), g.reduce(Op.ARGMIN, x, (1,)))


@pytest.mark.parametrize("dtype", [dt.bfloat16, dt.float16, dt.int8, dt.int16, dt.bool_], ids=str)
@pytest.mark.parametrize("extent", [17, 33, 65])
def test_a_row_that_ends_in_a_single_lane_leaves_the_next_row_alone(
    dtype: DType, extent: int
) -> None:
    # LLVM turns a masked store of one constant lane into a wider store if the value was truncated
    first, last = leaf((4, 3), dtype, 0, 2), leaf((4, extent), dtype, 0, 2)
    check(g.concat([first, last], 1))


@pytest.mark.parametrize("index", [dt.uint8, dt.int32, dt.int64], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 31])
def test_looking_up_with_one_lane_left_over(index: DType, rows: int) -> None:
    data = leaf((40, 33), dt.uint32)
    where = leaf((rows, 33), index, 0, 45)
    check(g.gather(data, where, 0))
    check(g.gather(g.permute(data, (1, 0)), g.permute(where, (1, 0)), 1))


def test_a_constant_can_be_sorted() -> None:
    counted = g.iota((6, 5), 1, dt.uint16)
    order = g.argsort(g.binary(Op.XOR, counted, counted), 0, descending=True)
    check(g.gather(leaf((6, 5), dt.float32), order, 0))


def test_what_only_an_empty_result_needs_is_not_computed() -> None:
    fixed = g.const(-0.5, (3, 7, 4), dt.float32)
    largest = g.expand(g.reshape(g.reduce(Op.MAX, fixed, (2,)), (3, 7, 1)), (3, 7, 4))
    apart = g.binary(Op.SUB, leaf((3, 7, 4), dt.float32), largest)
    check(g.slice_(apart, ((0, 3, 1), (0, 0, 1), (0, 4, 1))), g.reduce(Op.SUM, apart, (0,)))


@pytest.mark.parametrize("kind", [Op.SUM, Op.PROD, Op.MAX, Op.MIN], ids=lambda op: op.name)
@pytest.mark.parametrize("shape", [(4, 2), (33, 1, 2), (16, 65)])
def test_a_scan_along_an_axis_that_its_value_ignores(kind: Op, shape: Shape) -> None:
    column = leaf((*shape[:-1], 1), dt.int32, 1, 4)
    axis = len(shape) - 1
    check(g.scan(kind, g.expand(column, shape), axis))
    check(g.scan(kind, g.const(3, shape, dt.int32), axis))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)])
def test_programs_without_elements(shape: Shape) -> None:
    x = leaf(shape, dt.float32)
    doubled = g.binary(Op.ADD, x, x)
    axes = range(len(shape))
    check(doubled, g.reduce(Op.SUM, doubled, tuple(axes)), g.scan(Op.SUM, doubled, 0))
    check(g.concat([doubled, leaf(shape, dt.float32), doubled], 0))
