from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rawgpu.compiler_bridge import maths
from rawgpu.compiler_bridge.maths_numpy import NumpyOps, apply
from tests.compiler_bridge.native import native32, native64
from tests.compiler_bridge.oracle import Array, every_size


def assert_same_bits(a: Array, b: Array) -> None:
    unsigned = np.uint32 if a.dtype == np.float32 else np.uint64
    different = a.view(unsigned) != b.view(unsigned)
    different &= ~(np.isnan(a) & np.isnan(b))
    assert not different.any(), (a[different][:4], b[different][:4])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", maths.FUNCTIONS)
def test_numpy_and_native_code_give_the_same_bits(name: str, dtype: type[Any]) -> None:
    function, count = maths.FUNCTIONS[name]
    x = every_size(dtype, 12 if dtype is np.float32 else 5)[:: 1 if dtype is np.float32 else 7]
    rng = np.random.default_rng(5)
    arguments = [x, rng.permutation(x)][:count]
    native = (native32 if dtype is np.float32 else native64)(function, count)
    assert_same_bits(apply(function, *arguments), native(*arguments))


def fma_cases(dtype: type[Any], count: int, seed: int) -> list[tuple[Array, Array, Array]]:
    """Random bits; sums that cancel; ties that a speck decides; results near the denormals."""
    rng = np.random.default_rng(seed)
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    bits = np.dtype(dtype).itemsize * 8

    def any_bits() -> Array:
        return rng.integers(0, 1 << bits, count, dtype=unsigned).view(dtype)

    def near_one() -> Array:
        return rng.uniform(1, 2, count).astype(dtype)

    low = int(np.log2(np.finfo(dtype).tiny))
    a, b = any_bits(), any_bits()
    specks = (rng.choice([-1, 1], count) * 2.0 ** -rng.integers(1, 120, count)).astype(dtype)
    small = np.ldexp(near_one(), low // 2).astype(dtype)
    smaller = np.ldexp(near_one(), low - low // 2 - 4).astype(dtype)
    with np.errstate(all="ignore"):
        return [
            (a, b, any_bits()),
            (a, b, -(a * b)),
            (near_one(), near_one(), specks),
            (small, smaller, np.ldexp(near_one(), low - 3).astype(dtype)),
        ]


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, 20000), (np.float64, 4000)])
def test_fma_is_that_of_the_machine(dtype: type[Any], count: int) -> None:
    def fma(ops: Any, a: Any, b: Any, c: Any) -> Any:
        return ops.fma(a, b, c)

    native = (native32 if dtype is np.float32 else native64)(fma, 3)
    for a, b, c in fma_cases(dtype, count, seed=11):
        assert_same_bits(apply(fma, a, b, c), native(a, b, c))


def test_fma_rounds_once_as_fractions_say() -> None:
    with np.errstate(all="ignore"):
        for a, b, c in fma_cases(np.float64, 300, seed=12)[1:]:
            got = NumpyOps().fma(a, b, c)
            for x, y, z, value in zip(a, b, c, got, strict=True):
                if np.isfinite([x, y, z, value]).all():
                    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
                    assert float(exact) == value


def test_scalars_and_shapes_pass_through() -> None:
    assert apply(maths.exp, np.float32(0)).shape == ()
    assert apply(maths.exp, np.zeros((2, 3), np.float32)).shape == (2, 3)
    assert apply(maths.exp2, np.zeros((0,), np.float64)).shape == (0,)
