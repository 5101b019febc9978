"""Reductions, scans and the softmax family against NumPy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from frontend import dtype as dt
from frontend.dtype import DType
from rawgpu.errors import OperationError
from tests.frontend import cells
from tests.frontend.cells import FLOATS, NUMBERS, Array, Example

EVERY = (*NUMBERS, dt.bool_)


@dataclass(frozen=True)
class Row:
    name: str
    ours: Callable[..., Tensor]
    numpy: Callable[..., Any]
    dtypes: tuple[DType, ...] = EVERY
    ulps: float = 4.0
    scaled: bool = False
    """The error is judged beside the sum of magnitudes, not the result, which may cancel."""
    special: bool = False
    spread: bool = True
    """The result has the input's shape."""


def _softmax(x: Array, axis: Any) -> Array:
    weights = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(weights / weights.sum(axis, keepdims=True))


def _logsumexp(x: Array, axis: Any) -> Array:
    top = x.max(axis, keepdims=True)
    return np.asarray(np.log(np.exp(x - top).sum(axis)) + np.squeeze(top, axis))


def _log_softmax(x: Array, axis: Any) -> Array:
    return np.asarray(x - np.expand_dims(_logsumexp(x, axis), axis))


REDUCTIONS = [
    Row("sum", Tensor.sum, np.sum, scaled=True),
    Row("prod", Tensor.prod, np.prod, ulps=20),
    Row("max", Tensor.max, np.max, special=True, ulps=0),
    Row("min", Tensor.min, np.min, special=True, ulps=0),
    Row("any", Tensor.any, np.any, special=True),
    Row("all", Tensor.all, np.all, special=True),
    Row("argmax", Tensor.argmax, np.argmax, special=True),
    Row("argmin", Tensor.argmin, np.argmin, special=True),
    Row("count_nonzero", Tensor.count_nonzero, np.count_nonzero, special=True),
    Row("mean", Tensor.mean, np.mean, scaled=True),
    Row("var", Tensor.var, np.var, FLOATS, ulps=16),
    Row("std", Tensor.std, np.std, FLOATS, ulps=16),
    Row(
        "norm", lambda x, axis: x.norm(2, axis), lambda x, axis: np.sqrt((x * x).sum(axis)), FLOATS
    ),
    Row("logsumexp", Tensor.logsumexp, _logsumexp, FLOATS, ulps=8, scaled=True),
]

ALONG = [
    Row("softmax", Tensor.softmax, _softmax, FLOATS, ulps=16),
    Row("log_softmax", Tensor.log_softmax, _log_softmax, FLOATS, ulps=8, scaled=True),
    Row("cumsum", Tensor.cumsum, np.cumsum, scaled=True),
    Row("cumprod", Tensor.cumprod, np.cumprod, ulps=20),
    Row("cummax", Tensor.cummax, np.maximum.accumulate, special=True, ulps=0),
    Row("cummin", Tensor.cummin, np.minimum.accumulate, special=True, ulps=0),
    Row("diff", Tensor.diff, lambda x, axis: np.diff(x, axis=axis), NUMBERS, scaled=True),
]

AXES: dict[str, tuple[Any, ...]] = {
    "plain": (None, 0),
    "host_strides": (0, 1),
    "permuted": ((0, 2), 1),
    "sliced": (None, -1),
}


def cases(rows: list[Row]) -> list[Any]:
    return [pytest.param(r, d, id=f"{r.name}-{d}") for r in rows for d in r.dtypes]


def check(row: Row, dtype: DType, example: Example, *, along: bool) -> None:
    low, high = (-2.0, 2.0) if row.name in ("prod", "cumprod") and dtype.is_float else (-4.0, 4.0)
    array = cells.draw(example.rng, example.shape, dtype, low, high, row.special)
    axes = (-1,) if along else AXES[example.layout]
    if row.name in ("argmax", "argmin"):
        axes = tuple(-1 if isinstance(a, tuple) else a for a in axes)
    if row.name in ("mean",) and not dtype.is_float:
        array = cells.draw(example.rng, example.shape, dtype, -100 if dtype.kind == "i" else 0, 100)
    tensor = example.tensor(array)
    for axis in axes:
        ours = row.ours(tensor, axis=axis)
        with np.errstate(all="ignore"):
            wide = cells.widened(array)
            theirs = np.asarray(row.numpy(wide, axis=axis))
            scale: Any = None
            if row.scaled and ours.dtype.is_float:
                size = np.abs(wide.astype(np.float64))
                scale = size.sum(axis) if not along else size.sum(axis, keepdims=True)
                if row.name == "mean":
                    scale = size.max()
        cells.agree(ours, theirs, ulps=row.ulps, scale=scale)


@pytest.mark.parametrize(("row", "dtype"), cases(REDUCTIONS))
def test_a_reduction_agrees_with_numpy(
    row: Row, dtype: DType, request: pytest.FixtureRequest
) -> None:
    cells.run_cell(request, row.name, dtype, lambda e: check(row, dtype, e, along=False))


@pytest.mark.parametrize(("row", "dtype"), cases(ALONG))
def test_an_operation_along_an_axis_agrees_with_numpy(
    row: Row, dtype: DType, request: pytest.FixtureRequest
) -> None:
    cells.run_cell(request, row.name, dtype, lambda e: check(row, dtype, e, along=True))


@pytest.mark.full
@pytest.mark.parametrize(("row", "dtype"), cases(REDUCTIONS))
def test_a_reduction_agrees_in_every_layout(
    row: Row, dtype: DType, request: pytest.FixtureRequest
) -> None:
    run = lambda e: check(row, dtype, e, along=False)  # noqa: E731 - a body for run_cell
    cells.run_cell(request, row.name, dtype, run, full=True, examples=200)


@pytest.mark.full
@pytest.mark.parametrize(("row", "dtype"), cases(ALONG))
def test_an_operation_along_an_axis_agrees_in_every_layout(
    row: Row, dtype: DType, request: pytest.FixtureRequest
) -> None:
    run = lambda e: check(row, dtype, e, along=True)  # noqa: E731 - a body for run_cell
    cells.run_cell(request, row.name, dtype, run, full=True, examples=200)


def test_long_sums_of_narrow_floats_do_not_stop_growing() -> None:
    assert Tensor.full((5000,), 1.0, "float16").sum().item() == 5000
    assert Tensor.full((5000,), 1.0, "bfloat16").sum().item() == 4992  # rounded once, at the end
    assert Tensor.full((5000,), 1.0, "float16").mean().item() == 1


def test_sums_of_narrow_integers_widen_as_in_numpy() -> None:
    x = Tensor(np.full(300, 100, np.uint8))
    assert (x.sum().dtype, x.sum().item()) == (dt.uint64, 30000)
    assert Tensor([True, True]).sum().dtype is dt.int64
    assert Tensor(np.full(3, 100, np.int8)).sum(dtype="int8").item() == 44
    assert Tensor(np.full(3, 100, np.int8)).cumsum().tolist() == [100, 200, 300]
    assert Tensor(np.arange(4, dtype=np.int8)).mean().dtype is dt.float32


def test_axes_without_elements_behave_as_in_numpy() -> None:
    empty = Tensor.zeros(0, 3)
    assert empty.sum(0).tolist() == [0, 0, 0]
    assert empty.prod(0).tolist() == [1, 1, 1]
    assert empty.sum(1).shape == (0,)
    assert empty.max(1).numpy().shape == (0,)
    assert empty.argmax(1).numpy().shape == (0,)
    assert empty.any().item() is False
    assert empty.all().item() is True
    assert math.isnan(empty.mean().item())
    assert empty.cumsum(0).numpy().shape == (0, 3)
    for refused in (Tensor.max, Tensor.min, Tensor.argmax, Tensor.argmin, Tensor.logsumexp):
        with pytest.raises(OperationError, match="hold no element"):
            refused(empty, axis=0)


def test_scalars_reduce_to_themselves() -> None:
    x = Tensor(3.0)
    assert [f().item() for f in (x.sum, x.max, x.mean, x.var, x.argmax)] == [3, 3, 3, 0, 0]
    assert x.cumsum().tolist() == [3.0]


def test_keepdims_keeps_the_reduced_axes() -> None:
    x = Tensor.ones(2, 3, 4)
    assert x.sum((0, -1), keepdims=True).shape == (1, 3, 1)
    assert x.argmax(keepdims=True).shape == (1, 1, 1)
    assert x.logsumexp(1, keepdims=True).shape == (2, 1, 4)
    assert x.std(1, correction=1).shape == (2, 4)


def test_a_nan_wins_and_the_first_of_equals_is_found() -> None:
    nan = math.nan
    x = Tensor([[1.0, nan, nan], [2.0, 2.0, 1.0]])
    assert x.argmax(1).tolist() == [1, 0]
    assert x.argmin(1).tolist() == [1, 2]
    assert math.isnan(x.max().item())
    assert math.isnan(x.min().item())


def test_softmax_survives_large_logits_and_whole_rows_of_minus_infinity() -> None:
    x = Tensor([1e30, 1e30, -1e30])
    assert x.softmax().tolist() == [0.5, 0.5, 0.0]
    inf = math.inf
    assert Tensor([-inf, 0.0]).softmax().tolist() == [0.0, 1.0]
    assert Tensor([-inf, -inf]).logsumexp().item() == -inf
    assert Tensor([inf, 0.0]).logsumexp().item() == inf


def test_norms_of_every_order_agree_with_numpy() -> None:
    x = np.array([[3.0, -4.0, 0.0], [1.0, 2.0, 2.0]])
    for order in (0, 1, 2, 3, math.inf, -math.inf):
        theirs = np.linalg.norm(x, order, axis=1)
        np.testing.assert_allclose(Tensor(x).norm(order, 1).numpy(), theirs)


def test_variance_is_computed_from_distances() -> None:
    x = np.array([1e4, 1e4 + 1, 1e4 + 2], np.float32)
    assert Tensor(x).var().item() == pytest.approx(2 / 3, rel=1e-6)
    assert Tensor(x).var(correction=1).item() == pytest.approx(1.0, rel=1e-6)
