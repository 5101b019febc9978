"""Integer and float arithmetic at its edges, against NumPy: every pair of 8-bit numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Op
from tests.frontend.evaluator import uses_reference

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.skipif(uses_reference(), reason="tests generated arithmetic")

INTEGERS = (
    dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.uint32, dt.int64, dt.uint64
)  # fmt: skip
OPERATIONS: dict[Op, Callable[[Array, Array], Array]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.FLOORDIV: np.floor_divide,
    Op.MOD: np.remainder,
    Op.SHL: np.left_shift,
    Op.SHR: np.right_shift,
    Op.MAXIMUM: np.maximum,
    Op.MINIMUM: np.minimum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
}
COMPARISONS: dict[Op, Callable[[Array, Array], Array]] = {
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
}


EVERY = {**OPERATIONS, **COMPARISONS}


def ours(ops: Sequence[Op], x: Array, y: Array) -> dict[Op, Array]:
    """Our results, on whole vectors and on what is left after them."""
    a, b = Tensor(x), Tensor(y)
    made = {op: Tensor._new(g.binary(op, a.node, b.node), a.device) for op in ops}
    a.realize(b, *made.values())
    return {op: tensor.numpy() for op, tensor in made.items()}


def pairs(dtype: DType) -> tuple[Array, Array]:
    """All pairs of 8-bit numbers; of wider ones, all pairs of limits, small and random numbers."""
    low, high = (int(v) for v in dt.limits(dtype))
    if dtype.bits == 8:
        values = np.arange(low, high + 1).astype(dtype.numpy)
    else:
        some = {low, low + 1, low + 2, low // 2, high // 2, high - 1, high}
        some |= {v for v in range(-9, 10) if v >= low} | {dtype.bits - 1, dtype.bits, 1 << 9}
        kind: Any = dtype.numpy.type
        rng = np.random.default_rng(3)
        wide = rng.integers(low, high, 60, dtype=kind, endpoint=True)
        values = np.concatenate([np.array(sorted(some), dtype.numpy), wide])
    x, y = np.meshgrid(values, values)
    return x.ravel(), y.ravel()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_answer_as_numpy(dtype: DType) -> None:
    x, y = pairs(dtype)
    for op, got in ours(tuple(EVERY), x, y).items():
        with np.errstate(all="ignore"):
            compare(op, got, EVERY[op](x, y), x, y)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_constant_on_the_right_changes_nothing(dtype: DType) -> None:
    x = np.unique(pairs(dtype)[0])
    a = Tensor(x)
    made = {}
    for op in (Op.FLOORDIV, Op.MOD, Op.SHL, Op.SHR):
        for divisor in (0, 1, 3, 7, 8, 100):
            node = g.binary(op, a.node, g.const(divisor, a.shape, dtype))
            made[op, divisor] = Tensor._new(node, a.device)
    a.realize(*made.values())
    for (op, divisor), got in made.items():
        y = np.full_like(x, divisor)
        with np.errstate(all="ignore"):
            compare(op, got.numpy(), EVERY[op](x, y), x, y)


FLOATS = np.array(
    [
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 0.1, -0.1, 0.3, 1e-30, 1e30, -1e30,
        7.25, 1e-45, np.inf, -np.inf, np.nan, 16777216.0, 16777217.0, 3.9999998, 1 / 3,
    ]
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_division_rounds_down_as_numpy(dtype: str) -> None:
    values = FLOATS.astype(dtype)
    rng = np.random.default_rng(5)
    values = np.concatenate([values, (rng.standard_normal(60) * 40).astype(dtype)])
    x, y = (part.ravel() for part in np.meshgrid(values, values))
    for op, got in ours((Op.FLOORDIV, Op.MOD), x, y).items():
        with np.errstate(all="ignore"):
            compare(op, got, EVERY[op](x, y), x, y, signed_zeros=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_with_nan_compare_as_numpy(dtype: str) -> None:
    with np.errstate(over="ignore"):
        values = FLOATS.astype(dtype)
    x, y = (part.ravel() for part in np.meshgrid(values, values))
    for op, got in ours((Op.MAXIMUM, Op.MINIMUM, *COMPARISONS), x, y).items():
        compare(op, got, EVERY[op](x, y), x, y)


def compare(
    op: Op, got: Array, expected: Array, x: Array, y: Array, *, signed_zeros: bool = False
) -> None:
    """The same values, NaN like NaN, and with `signed_zeros` 0.0 unlike -0.0."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    wrong = got != expected
    if got.dtype.kind == "f":
        wrong &= ~(np.isnan(got) & np.isnan(expected))
        if signed_zeros:
            both = ~np.isnan(got) & ~np.isnan(expected)
            wrong |= both & (np.signbit(got) != np.signbit(expected))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise AssertionError(
            f"{op.name}: {int(wrong.sum())} of {wrong.size} wrong; of {x[at]!r} and {y[at]!r}: "
            f"got {got[at]!r}, expected {expected[at]!r}"
        )
