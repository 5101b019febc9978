from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rawgpu.compiler_bridge import maths
from tests.compiler_bridge.native import native32, native64
from tests.compiler_bridge.oracle import Array, assert_within, every_size

SPECIAL = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -2, 0.5, -0.5, 3, -3, 5, 1e30, -1e30]


def pairs(dtype: type[Any]) -> tuple[Array, Array]:
    """Special values against one another, numbers of every size, and common ones."""
    info = np.finfo(dtype)
    edge = [*SPECIAL, info.smallest_subnormal, info.tiny, info.max, -info.max, 2 / info.eps - 1]
    a, b = (grid.ravel() for grid in np.meshgrid(np.array(edge, dtype), np.array(edge, dtype)))
    rng = np.random.default_rng(7)
    sizes = every_size(dtype, 60 if dtype is np.float32 else 8)
    x = np.concatenate([a, rng.permutation(sizes), rng.uniform(0, 4, 20000).astype(dtype)])
    y = np.concatenate([b, rng.permutation(sizes), rng.uniform(-60, 60, 20000).astype(dtype)])
    return x, y


def run(name: str, x: Array, y: Array) -> Array:
    native = native32 if x.dtype == np.float32 else native64
    return native(maths.FUNCTIONS[name][0], 2)(x, y)


def wider(x: Array) -> Array:
    if x.dtype == np.float64 and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("this machine's long double is no longer than double")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        wide: Array = x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)
    return wide


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 0.51), (np.float64, 1.5)])
def test_pow_is_within_bounds(dtype: type[Any], bound: float) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        want = np.power(wider(x), wider(y))
    assert_within(bound, run("pow", x, y), want, x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_near_one_with_large_powers(dtype: type[Any]) -> None:
    rng = np.random.default_rng(2)
    x = (1 + rng.normal(0, 1e-4, 50000)).astype(dtype)
    limit = 80 if dtype is np.float32 else 700
    with np.errstate(all="ignore"):
        y = (rng.uniform(-1, 1, x.size) * limit / np.log(x.astype(np.float64))).astype(dtype)
        want = np.power(wider(x), wider(y))
    assert_within(1.5, run("pow", x, y), want, x, y)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1.6), (np.float64, 1.6)])
def test_atan2_is_within_bounds(dtype: type[Any], bound: float) -> None:
    y, x = pairs(dtype)
    with np.errstate(all="ignore"):
        want = np.arctan2(wider(y), wider(x))
    assert_within(bound, run("atan2", y, x), want, y, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "reference"),
    [("fmod", np.fmod), ("floor_mod", np.remainder), ("floor_divide", np.floor_divide)],
)
def test_remainders_are_those_of_numpy(name: str, reference: Any, dtype: type[Any]) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        want = reference(x, y)
    got = run(name, x, y)
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


def test_the_largest_remainder_is_exact() -> None:
    x, y = np.array([1.7976931348623157e308, 1e300, 2.0**1023]), np.array([5e-324, 3e-310, 3.0])
    want = np.array([math.fmod(a, b) for a, b in zip(x, y, strict=True)])
    np.testing.assert_array_equal(run("fmod", x, y), want)
