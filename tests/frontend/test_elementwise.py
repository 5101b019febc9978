"""Operations on each element, and on two, against NumPy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, where
from frontend import dtype as dt
from frontend.dtype import DType
from tests.frontend import cells
from tests.frontend.cells import FLOATS, INTEGERS, NUMBERS, SIGNED, Array, Example

# what functions of real numbers are tried on: floats, and integers that become float32
REAL = (*FLOATS, dt.int8, dt.int64, dt.uint16, dt.bool_)


@dataclass(frozen=True)
class Row:
    name: str
    ours: Callable[..., Tensor]
    numpy: Callable[..., Any]
    dtypes: tuple[DType, ...] = REAL
    low: float = -4.0
    high: float = 4.0
    ulps: float = 2.0
    special: bool = True
    second: tuple[float, float] | None = None
    """Range of the second operand, where it differs."""
    scale: float | None = None
    """Results below this may be wrong by as much as this one may."""


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[float])(x)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + _erf(x * math.sqrt(0.5))))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


UNARY = [
    Row("sqrt", Tensor.sqrt, np.sqrt),
    Row("exp", Tensor.exp, np.exp, low=-90, high=90),
    Row("exp2", Tensor.exp2, np.exp2, low=-120, high=120),
    Row("expm1", Tensor.expm1, np.expm1),
    Row("log", Tensor.log, np.log, low=0, high=9),
    Row("log2", Tensor.log2, np.log2, low=0, high=9),
    Row("log10", Tensor.log10, np.log10, low=0, high=9),
    Row("log1p", Tensor.log1p, np.log1p, low=-1, high=9),
    Row("sin", Tensor.sin, np.sin, low=-1000, high=1000),
    Row("cos", Tensor.cos, np.cos, low=-1000, high=1000),
    Row("tan", Tensor.tan, np.tan, ulps=4),
    Row("asin", Tensor.asin, np.arcsin, low=-1, high=1, ulps=4),
    Row("acos", Tensor.acos, np.arccos, low=-1, high=1, ulps=4),
    Row("atan", Tensor.atan, np.arctan, ulps=4),
    Row("sinh", Tensor.sinh, np.sinh, ulps=4),
    Row("cosh", Tensor.cosh, np.cosh, ulps=4),
    Row("tanh", Tensor.tanh, np.tanh),
    Row("asinh", Tensor.asinh, np.arcsinh, ulps=4),
    Row("acosh", Tensor.acosh, np.arccosh, low=1, high=9, ulps=4),
    Row("atanh", Tensor.atanh, np.arctanh, low=-1, high=1, ulps=4),
    Row("erf", Tensor.erf, _erf, ulps=4),
    Row("reciprocal", Tensor.reciprocal, lambda x: 1 / x),
    Row("rsqrt", Tensor.rsqrt, lambda x: 1 / np.sqrt(x)),
    Row("sigmoid", Tensor.sigmoid, _sigmoid, ulps=6, scale=1e-30),
    Row("silu", Tensor.silu, lambda x: x * _sigmoid(x), FLOATS, ulps=8, special=False),
    Row("softplus", Tensor.softplus, lambda x: np.logaddexp(x, 0.0), FLOATS, ulps=8),
    Row("floor", Tensor.floor, np.floor, NUMBERS),
    Row("ceil", Tensor.ceil, np.ceil, NUMBERS),
    Row("trunc", Tensor.trunc, np.trunc, NUMBERS),
    Row("round", Tensor.round, np.rint, FLOATS),
    Row("negative", Tensor.negative, np.negative, NUMBERS),
    Row("abs", Tensor.abs, np.abs, NUMBERS),
    Row("sign", Tensor.sign, np.sign, NUMBERS),
    Row("square", Tensor.square, np.square, NUMBERS),
    Row("positive", Tensor.positive, np.positive, NUMBERS),
    Row("bitwise_invert", Tensor.bitwise_invert, np.invert, (*INTEGERS, dt.bool_)),
    Row("logical_not", Tensor.logical_not, np.logical_not, (*NUMBERS, dt.bool_)),
    Row("signbit", Tensor.signbit, np.signbit, (*FLOATS, *SIGNED)),
    Row("isnan", Tensor.isnan, np.isnan, (*NUMBERS, dt.bool_)),
    Row("isinf", Tensor.isinf, np.isinf, FLOATS),
    Row("isfinite", Tensor.isfinite, np.isfinite, FLOATS),
    Row("relu", Tensor.relu, lambda x: np.maximum(x, 0), NUMBERS),
]

BINARY = [
    Row("add", Tensor.add, np.add, (*NUMBERS, dt.bool_)),
    Row("subtract", Tensor.subtract, np.subtract, NUMBERS),
    Row("multiply", Tensor.multiply, np.multiply, (*NUMBERS, dt.bool_)),
    Row("divide", Tensor.divide, lambda x, y: np.true_divide(x, y), (*NUMBERS, dt.bool_)),
    Row("floor_divide", Tensor.floor_divide, np.floor_divide, NUMBERS),
    Row("remainder", Tensor.remainder, np.remainder, NUMBERS),
    Row("fmod", Tensor.fmod, np.fmod, FLOATS),
    Row("pow", Tensor.pow, np.power, FLOATS, low=0, ulps=8),
    Row("pow", Tensor.pow, np.power, INTEGERS, second=(0, 9)),
    Row("atan2", Tensor.atan2, np.arctan2, FLOATS, ulps=4),
    Row("copysign", Tensor.copysign, np.copysign, FLOATS, special=False),
    Row("hypot", Tensor.hypot, np.hypot, FLOATS, ulps=4),
    Row("logaddexp", Tensor.logaddexp, np.logaddexp, FLOATS, ulps=4, scale=4.0, special=False),
    Row("maximum", Tensor.maximum, np.maximum, (*NUMBERS, dt.bool_)),
    Row("minimum", Tensor.minimum, np.minimum, (*NUMBERS, dt.bool_)),
    Row("equal", Tensor.equal, np.equal, (*NUMBERS, dt.bool_)),
    Row("not_equal", Tensor.not_equal, np.not_equal, (*NUMBERS, dt.bool_)),
    Row("less", Tensor.less, np.less, (*NUMBERS, dt.bool_)),
    Row("less_equal", Tensor.less_equal, np.less_equal, (*NUMBERS, dt.bool_)),
    Row("greater", Tensor.greater, np.greater, (*NUMBERS, dt.bool_)),
    Row("greater_equal", Tensor.greater_equal, np.greater_equal, (*NUMBERS, dt.bool_)),
    Row("bitwise_and", Tensor.bitwise_and, np.bitwise_and, (*INTEGERS, dt.bool_)),
    Row("bitwise_or", Tensor.bitwise_or, np.bitwise_or, (*INTEGERS, dt.bool_)),
    Row("bitwise_xor", Tensor.bitwise_xor, np.bitwise_xor, (*INTEGERS, dt.bool_)),
    Row("left_shift", Tensor.bitwise_left_shift, np.left_shift, INTEGERS, second=(0, 70)),
    Row("right_shift", Tensor.bitwise_right_shift, np.right_shift, INTEGERS, second=(0, 70)),
    Row("logical_and", Tensor.logical_and, np.logical_and, (*NUMBERS, dt.bool_)),
    Row("logical_or", Tensor.logical_or, np.logical_or, (*NUMBERS, dt.bool_)),
    Row("logical_xor", Tensor.logical_xor, np.logical_xor, (*NUMBERS, dt.bool_)),
    Row("lerp", lambda x, y: x.lerp(y, 0.25), lambda x, y: x + (y - x) * 0.25, FLOATS, ulps=8),
]


def cases(rows: list[Row]) -> list[Any]:
    return [pytest.param(r, d, id=f"{r.name}-{d}") for r in rows for d in r.dtypes]


def expected(row: Row, *arrays: Array) -> Array:
    """NumPy in float64.

    Integers where the operation keeps them, else their float32 value as our rule has it.
    """
    with np.errstate(all="ignore"):
        return np.asarray(row.numpy(*(cells.widened(a) for a in arrays)))


def check_unary(row: Row, dtype: DType, example: Example) -> None:
    array = cells.draw(example.rng, example.shape, dtype, row.low, row.high, row.special)
    ours = row.ours(example.tensor(array))
    if ours.dtype.is_float and not dtype.is_float:
        array = array.astype(np.float32)
    cells.agree(ours, expected(row, array), ulps=row.ulps, scale=row.scale)


def check_binary(row: Row, dtype: DType, example: Example) -> None:
    shape = example.shape
    low, high = row.second or (row.low, row.high)
    a = cells.draw(example.rng, shape, dtype, row.low, row.high, row.special)
    other = shape[1:] if example.layout != "plain" else shape  # a missing axis is broadcast
    b = cells.draw(example.rng, other, dtype, low, high, row.special)
    ours = row.ours(example.tensor(a), example.tensor(b))
    if ours.dtype.is_float and not dtype.is_float:
        a, b = a.astype(np.float32), b.astype(np.float32)
    scale: Array | float | None = row.scale
    if row.name in ("add", "subtract", "lerp", "remainder", "fmod"):
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(cells.widened(a)), np.abs(cells.widened(b)))
        scale = np.where(np.isfinite(size), size, 0)
    cells.agree(ours, expected(row, a, b), ulps=row.ulps, scale=scale)


@pytest.mark.parametrize(("row", "dtype"), cases(UNARY))
def test_a_function_of_one_tensor_agrees_with_numpy(
    row: Row, dtype: DType, request: pytest.FixtureRequest
) -> None:
    cells.run_cell(request, row.name, dtype, lambda e: check_unary(row, dtype, e))


@pytest.mark.parametrize(("row", "dtype"), cases(BINARY))
def test_a_function_of_two_tensors_agrees_with_numpy(
    row: Row, dtype: DType, request: pytest.FixtureRequest
) -> None:
    cells.run_cell(request, row.name, dtype, lambda e: check_binary(row, dtype, e))


@pytest.mark.full
@pytest.mark.parametrize(("row", "dtype"), cases(UNARY))
def test_a_function_of_one_tensor_agrees_in_every_layout(
    row: Row, dtype: DType, request: pytest.FixtureRequest
) -> None:
    run = lambda e: check_unary(row, dtype, e)  # noqa: E731 - a body for run_cell
    cells.run_cell(request, row.name, dtype, run, full=True, examples=200)


@pytest.mark.full
@pytest.mark.parametrize(("row", "dtype"), cases(BINARY))
def test_a_function_of_two_tensors_agrees_in_every_layout(
    row: Row, dtype: DType, request: pytest.FixtureRequest
) -> None:
    run = lambda e: check_binary(row, dtype, e)  # noqa: E731 - a body for run_cell
    cells.run_cell(request, row.name, dtype, run, full=True, examples=200)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_agrees_with_its_formula(approximate: str) -> None:
    x = np.linspace(-6, 6, 101)
    theirs = _gelu(x) if approximate == "none" else _gelu_tanh(x)
    np.testing.assert_allclose(Tensor(x).gelu(approximate).numpy(), theirs, atol=1e-14)


def test_activations_of_few_lines_agree_with_their_formulas() -> None:
    x = np.linspace(-6, 6, 25)
    t = Tensor(x)
    elu = np.where(x > 0, x, 0.5 * np.expm1(np.minimum(x, 0)))
    np.testing.assert_allclose(t.elu(0.5).numpy(), elu, atol=1e-15)
    np.testing.assert_array_equal(t.leaky_relu(0.1).numpy(), np.where(x > 0, x, x * 0.1))
    np.testing.assert_array_equal(t.hardtanh().numpy(), np.clip(x, -1, 1))
    np.testing.assert_allclose(t.logsigmoid().numpy(), -np.logaddexp(-x, 0), atol=1e-15)


CASTS = [(a, b) for a in cells.EVERYTHING for b in cells.EVERYTHING if a is not b]


@pytest.mark.parametrize("source", cells.EVERYTHING, ids=str)
def test_a_cast_agrees_with_numpy(source: DType, request: pytest.FixtureRequest) -> None:
    def body(example: Example) -> None:
        low, high = (-100.0, 100.0) if source.is_float else (-4.0, 4.0)
        array = cells.draw(example.rng, example.shape, source, low, high)
        tensor = example.tensor(array)
        for target in cells.EVERYTHING:
            values = array
            if source.is_float and target.kind == "u":  # negative floats have no unsigned value
                values, now = np.abs(array), tensor.abs()
            else:
                now = tensor
            with np.errstate(all="ignore"):
                if target.is_float:
                    theirs = values.astype(cells.numpy_type(target)).astype(np.float64)
                else:
                    theirs = cells.widened(values).astype(target.numpy)
            cells.agree(now.astype(target), theirs, ulps=0.5)

    cells.run_cell(request, "cast from", source, body)


FP8 = [dt.float8_e4m3, dt.float8_e5m2]


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_fp8_is_stored_rounded_and_computed_in_float32(dtype: DType) -> None:
    kind = cells.numpy_type(dtype)
    every = np.arange(256, dtype=np.uint8).view(kind)
    stored = Tensor(every)
    assert stored.dtype is dtype
    np.testing.assert_array_equal(stored.numpy(), every.astype(np.float32))
    assert (stored + stored).dtype is dt.float32
    x = np.linspace(-200, 200, 999).astype(np.float32)
    theirs = x.astype(kind).astype(np.float32)
    np.testing.assert_array_equal(Tensor(x).astype(dtype).numpy(), theirs)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_where_and_clip_agree_with_numpy(dtype: DType, request: pytest.FixtureRequest) -> None:
    def body(example: Example) -> None:
        a, b = (cells.draw(example.rng, example.shape, dtype, special=True) for _ in range(2))
        mask = cells.draw(example.rng, example.shape[-1:], dt.bool_)
        x, y, m = example.tensor(a), example.tensor(b), Tensor(mask)
        wide_a, wide_b = cells.widened(a), cells.widened(b)
        cells.agree(where(m, x, y), np.where(mask, wide_a, wide_b), ulps=0)
        cells.agree(x.masked_fill(m, 3), np.where(mask, np.array(3, wide_a.dtype), wide_a), ulps=0)
        cells.agree(x.clip(1, 3), np.clip(wide_a, 1, 3), ulps=0)

    cells.run_cell(request, "where, clip", dtype, body)


def test_integer_edges_behave_as_numpy_documents() -> None:
    lowest = np.iinfo(np.int32).min
    x = Tensor(np.array([lowest, lowest, 5, -5], np.int32))
    y = Tensor(np.array([-1, 0, 0, 3], np.int32))
    assert (x // y).tolist() == [lowest, 0, 0, -2]
    assert (x % y).tolist() == [0, 0, 0, 1]
    assert (-x)[0].item() == lowest
    assert abs(x)[0].item() == lowest
    assert (Tensor(np.array([200], np.uint8)) + 100).item() == 44
    assert (x / y).tolist() == [-float(lowest), -math.inf, math.inf, pytest.approx(-5 / 3)]


def test_powers_of_integers_wrap_and_negative_exponents_truncate() -> None:
    base = Tensor([2, 3, -1, 1, -1, 0])
    assert (base ** Tensor([-1, -2, -3, -4, -2, -1])).tolist() == [0, 0, -1, 1, 1, 0]
    assert (Tensor([3], dtype="int32") ** 40).item() == int(np.int32(3) ** np.int32(40))
    assert (2.0 ** Tensor([3.0])).item() == 8.0


def test_python_numbers_are_weak() -> None:
    assert (Tensor([1], dtype="int8") + 1).dtype is dt.int8
    assert (Tensor([1], dtype="int8") + 1.0).dtype is dt.float32
    assert (Tensor([1.0], dtype="float16") * 2.5).dtype is dt.float16
    assert (Tensor([True]) + 1).dtype is dt.int64
    assert (1 / Tensor([4])).item() == 0.25
    assert (Tensor([3], dtype="uint8") < 300).item() is True
    assert (Tensor([3], dtype="uint8") > -1).item() is True
    assert (Tensor([3], dtype="uint8") == 300).item() is False
    assert (np.array([1.0]) + Tensor([1.0])).dtype is dt.float64


def test_scalars_and_empty_tensors_work_elementwise() -> None:
    assert (Tensor(2.0) * Tensor(3.0)).item() == 6.0
    for shape in [(0,), (2, 0, 3)]:
        empty = Tensor.zeros(shape)
        assert (empty + 1).exp().numpy().shape == shape
        assert (empty + Tensor.zeros(*shape[:-1], 1)).shape == shape
