"""Casts between number types, for every code of the narrow ones, against NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from frontend import Tensor
from frontend import dtype as dt
from frontend.dtype import DType
from tests.frontend.evaluator import uses_reference

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.skipif(uses_reference(), reason="tests generated conversions")

NARROW: dict[DType, Any] = {
    dt.float16: np.float16,
    dt.bfloat16: ml_dtypes.bfloat16,
    dt.float8_e4m3: ml_dtypes.float8_e4m3fn,
    dt.float8_e5m2: ml_dtypes.float8_e5m2,
}
NAMES = [d.name for d in NARROW]
PAIRS = [(a, b) for a in NARROW for b in NARROW if a is not b]


def every_code(dtype: DType) -> Array:
    return np.arange(2**dtype.bits, dtype=f"uint{dtype.bits}")


def widened(codes: Array, dtype: DType) -> Array:
    """Our float32 values of the codes of a narrow dtype."""
    return Tensor(codes).bitcast(dtype).astype(dt.float32).numpy()


def narrowed(values: Array, dtype: DType) -> Array:
    """Our codes of values cast to a narrow dtype."""
    return Tensor(values).astype(dtype).bitcast(dt.BY_NAME[f"uint{dtype.bits}"]).numpy()


def same_bits(got: Array, expected: Array, source: Array, kind: Any) -> None:
    """Equal codes; any NaN is as good as another."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(expected.view(kind).astype(np.float32)) & np.isnan(
            got.view(kind).astype(np.float32)
        )
    wrong = (got != expected) & ~nan
    if wrong.any():
        at = int(np.argmax(wrong))
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} wrong; {source[at]!r} became {got[at]:#x}, "
            f"not {expected[at]:#x}"
        )


def near_every_code(dtype: DType) -> Array:
    """All values of a narrow dtype, all points halfway between two, and both sides of those."""
    with np.errstate(invalid="ignore"):
        values = every_code(dtype).view(NARROW[dtype]).astype(np.float64)
    finite = np.unique(values[np.isfinite(values)])
    halfway = (finite[:-1] + finite[1:]) / 2
    step = finite[-1] - finite[-2]
    beyond = finite[-1] + step * np.array([0.25, 0.5, 0.75, 1.0, 8.0])
    points = np.concatenate([finite, halfway, beyond, -beyond])
    points = points[np.abs(points) < 3.4e38].astype(np.float32)
    around = [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, -np.inf)]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)
    return np.concatenate([*around, special]).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_every_code_widens_to_its_value(name: str) -> None:
    dtype = dt.BY_NAME[name]
    codes = every_code(dtype)
    expected = codes.view(NARROW[dtype]).astype(np.float32)
    np.testing.assert_array_equal(widened(codes, dtype), expected)


@pytest.mark.parametrize("name", NAMES)
def test_every_code_survives_the_way_through_float32(name: str) -> None:
    dtype = dt.BY_NAME[name]
    codes = every_code(dtype)
    back = narrowed(widened(codes, dtype), dtype)
    same_bits(back, codes, codes, NARROW[dtype])


@pytest.mark.parametrize("name", NAMES)
def test_floats_round_to_the_nearest_code_ties_to_even(name: str) -> None:
    dtype = dt.BY_NAME[name]
    values = near_every_code(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(NARROW[dtype]).view(f"uint{dtype.bits}")
    same_bits(narrowed(values, dtype), expected, values, NARROW[dtype])


@pytest.mark.parametrize("name", NAMES)
def test_random_floats_of_every_size_round_alike(name: str) -> None:
    dtype = dt.BY_NAME[name]
    bits = np.random.default_rng(1).integers(0, 2**32, 1 << 18, dtype=np.uint32)
    values = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(NARROW[dtype]).view(f"uint{dtype.bits}")
    same_bits(narrowed(values, dtype), expected, values, NARROW[dtype])


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_float64_is_rounded_once(name: str) -> None:
    dtype = dt.BY_NAME[name]
    # just off a tie by less than float32 can see: rounding in two steps goes wrong here
    ties = near_every_code(dtype)[: 1 << 16].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.concatenate([ties * (1 + 2.0**-40), ties * (1 - 2.0**-40), ties])
        if dtype is dt.float16:
            expected = values.astype(np.float16).view(np.uint16)
        else:
            expected = nearest_bfloat16(values)
    same_bits(narrowed(values, dtype), expected, values, NARROW[dtype])


def nearest_bfloat16(values: Array) -> Array:
    """Codes of the nearest bfloat16, from exact distances in float64."""
    single = values.astype(np.float32)
    down = (single.view(np.uint32) >> 16).astype(np.uint16)
    best = down.copy()
    for offset in (-1, 1):
        other = (down.astype(np.int64) + offset).clip(0, 0xFFFF).astype(np.uint16)
        with np.errstate(invalid="ignore"):
            here = np.abs(_bfloat16(best) - values)
            there = np.abs(_bfloat16(other) - values)
        closer = (there < here) | ((there == here) & (other % 2 == 0))
        best = np.where(closer & np.isfinite(_bfloat16(other)), other, best)
    edge = np.abs(values) >= float(2.0**127 * (2 - 2.0**-8))
    infinite = np.where(values > 0, 0x7F80, 0xFF80).astype(np.uint16)
    out = np.where(edge, infinite, best)
    return np.where(np.isnan(values), np.uint16(0x7FC0), out).astype(np.uint16)


def _bfloat16(codes: Array) -> Array:
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_narrow_types_convert_to_one_another(source: DType, target: DType) -> None:
    codes = every_code(source)
    got = narrowed_from(codes, source, target)
    with np.errstate(over="ignore", invalid="ignore"):
        values = codes.view(NARROW[source]).astype(np.float32)
        expected = values.astype(NARROW[target]).view(f"uint{target.bits}")
    same_bits(got, expected, values, NARROW[target])


def narrowed_from(codes: Array, source: DType, target: DType) -> Array:
    unsigned = dt.BY_NAME[f"uint{target.bits}"]
    return Tensor(codes).bitcast(source).astype(target).bitcast(unsigned).numpy()


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def edges(dtype: DType) -> Array:
    low, high = (int(v) for v in dt.limits(dtype))
    around = {low, low + 1, high, high - 1, 0, 1, 2, 3, high // 2, high // 3}
    around |= {v for v in (-1, -2, -3, low // 3) if low <= v <= high}
    around |= {v + d for v in (1 << 24, 1 << 53) for d in (-1, 0, 1, 3) if v + 3 <= high}
    return np.array(sorted(around), dtype.numpy)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", [*INTEGERS, "bool"])
def test_integers_wrap_into_one_another(source: str, target: str) -> None:
    values = edges(dt.BY_NAME[source])
    got = Tensor(values).astype(target).numpy()
    np.testing.assert_array_equal(got, values.astype(target))


@pytest.mark.parametrize("source", [*INTEGERS, "bool"])
@pytest.mark.parametrize("target", ["float32", "float64"])
def test_integers_become_the_nearest_float(source: str, target: str) -> None:
    values = np.array([True, False]) if source == "bool" else edges(dt.BY_NAME[source])
    got = Tensor(values).astype(target).numpy()
    np.testing.assert_array_equal(got, values.astype(target))


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_truncate_into_integers(source: str, target: str) -> None:
    low, high = (int(v) for v in dt.limits(dt.BY_NAME[target]))
    values = np.array([0.0, -0.0, 0.5, 0.99, 1.0, 1.5, 2.5, 3.999, 100.7, 126.5], source)
    values = np.concatenate([values, -values] if low else [values])
    with np.errstate(over="ignore"):
        top = np.nextafter(np.array(float(high) + 1, source), np.array(0, source))
    if np.isfinite(top) and int(top) <= high:
        values = np.append(values, top)
    got = Tensor(values).astype(target).numpy()
    np.testing.assert_array_equal(got, np.trunc(values).astype(target))


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_everything_but_zero_is_true(source: str) -> None:
    values = np.array([0.0, -0.0, 1e-45, -1e-45, 1.0, np.inf, -np.inf, np.nan], np.float32)
    if source == "bfloat16":
        values = np.array([0.0, -0.0, 1e-30, 1.0, np.inf, np.nan], np.float32)
    x = Tensor(values).astype(source)
    expected = x.astype("float32").numpy() != 0
    np.testing.assert_array_equal(x.astype("bool").numpy(), expected)


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_out_of_range_become_the_nearest_integer_and_nan_zero(
    source: str, target: str
) -> None:
    low, high = dt.limits(dt.BY_NAME[target])
    values = np.array([1e30, -1e30, np.inf, -np.inf, np.nan], source)
    got = Tensor(values).astype(target).numpy()
    assert got.tolist() == [high, low, high, low, 0]
