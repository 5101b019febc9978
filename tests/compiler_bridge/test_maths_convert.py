from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawgpu.compiler_bridge import maths_convert
from rawgpu.compiler_bridge.maths_convert import (
    BFLOAT16,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    SmallFloat,
)
from rawgpu.compiler_bridge.maths_numpy import apply
from rawgpu.compiler_bridge.types import f32, i32
from tests.compiler_bridge.native import NativeMap
from tests.compiler_bridge.oracle import Array, every_size

FORMATS = [FLOAT16, BFLOAT16, FLOAT8_E5M2, FLOAT8_E4M3FN]


def numpy_type(form: SmallFloat) -> Any:
    if form is FLOAT16:
        return np.float16
    return getattr(pytest.importorskip("ml_dtypes"), form.name)


def unsigned(form: SmallFloat) -> Any:
    return np.uint16 if form.bits == 16 else np.uint8


def decoded(form: SmallFloat, bits: Array) -> Array:
    result: Array = bits.astype(unsigned(form)).view(numpy_type(form)).astype(np.float32)
    return result


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_every_small_float_is_read(form: SmallFloat) -> None:
    def decode(ops: Any, x: Any) -> Any:
        return maths_convert.decode(ops, x, form)

    bits = np.arange(1 << form.bits, dtype=np.uint32)
    want = decoded(form, bits)
    noise = bits | np.uint32(0xABCD_0000)  # higher bits do not matter
    for got in (NativeMap(decode, (i32,), f32)(bits), apply(decode, noise)):
        np.testing.assert_array_equal(got, want)
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_rounding_is_to_nearest_even(form: SmallFloat) -> None:
    def encode(ops: Any, x: Any) -> Any:
        return maths_convert.encode(ops, x, form)

    exact = decoded(form, np.arange(1 << form.bits, dtype=np.uint32))
    exact = exact[np.isfinite(exact)]
    exact.sort()
    between = exact[:-1] / 2 + exact[1:] / 2
    near = [np.nextafter(between, np.float32(side), dtype=np.float32) for side in (-np.inf, np.inf)]
    with np.errstate(over="ignore"):
        beyond = exact[-1] * np.array([1.01, 1.03, 1.05, 1.0625, 1.07, 1.1, 2], np.float32)
    x = np.concatenate([exact, between, *near, beyond, -beyond, every_size(np.float32, 40)])
    with np.errstate(all="ignore"):
        want = x.astype(numpy_type(form)).view(unsigned(form)).astype(np.uint32)
    for got in (NativeMap(encode, (f32,), i32)(x), apply(encode, x)):
        known = ~np.isnan(x)
        np.testing.assert_array_equal(got[known], want[known])
        kept = decoded(form, got[~known])
        assert np.isnan(kept).all()
        sign = got[~known] >> (form.bits - 1)
        np.testing.assert_array_equal(sign, np.signbit(x[~known]))
