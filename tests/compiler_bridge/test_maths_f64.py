from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawgpu.compiler_bridge import maths
from tests.compiler_bridge.native import native64
from tests.compiler_bridge.oracle import (
    REFERENCE,
    assert_within,
    every_size,
    validation_arrays,
)
from tests.compiler_bridge.test_maths_f32 import EXACT, NUMPY_NAMES

# Largest errors seen, rounded up; the promise is 4.
BOUNDS = {
    "exp": 0.9,
    "exp2": 0.95,
    "expm1": 1.7,
    "log": 0.9,
    "log2": 0.75,
    "log10": 0.75,
    "log1p": 0.9,
    "sin": 0.85,
    "cos": 0.85,
    "tan": 2.3,
    "asin": 1.2,
    "acos": 0.9,
    "atan": 0.95,
    "sinh": 2.3,
    "cosh": 1.5,
    "tanh": 2.5,
    "asinh": 2.0,
    "acosh": 2.5,
    "atanh": 2.0,
    "cbrt": 0.9,
    "erf": 1.0,
    "erfc": 3.0,
    "sigmoid": 1.5,
}
LONG = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="this machine's long double is no longer than double"
)
IN_LONG_DOUBLE = [name for name in BOUNDS if name not in ("erf", "erfc")]


@LONG
@pytest.mark.parametrize("name", IN_LONG_DOUBLE)
def test_errors_stay_within_bounds(name: str) -> None:
    x = every_size(np.float64, 16)
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x.astype(np.longdouble))
    assert_within(BOUNDS[name], native64(maths.FUNCTIONS[name][0])(x), want, x)


@LONG
@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_error_functions_stay_within_bounds(name: str) -> None:
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [
            rng.uniform(-7, 27.5, 700),
            rng.uniform(-1.2, 1.2, 300),
            np.ldexp(rng.uniform(0.5, 1, 100), rng.integers(-1070, 0, 100)),
        ]
    )

    def exact(number: float) -> Any:
        with mpmath.workdps(40):
            value = getattr(mpmath, name)(mpmath.mpf(number))
            high = float(value)
            return np.longdouble(high) + np.longdouble(float(value - mpmath.mpf(high)))

    want = np.array([exact(float(number)) for number in x], np.longdouble)
    assert_within(BOUNDS[name], native64(maths.FUNCTIONS[name][0])(x), want, x)


@pytest.mark.parametrize("name", BOUNDS)
def test_numpys_validation_set_is_met(name: str) -> None:
    x, want = validation_arrays(NUMPY_NAMES.get(name, name), np.float64)
    if not x.size:
        pytest.skip("NumPy brings no set for this function")
    got = native64(maths.FUNCTIONS[name][0])(x)
    assert_within(BOUNDS[name] + 0.51, got, want.astype(np.longdouble), x)


@LONG
def test_angles_close_to_a_quarter_turn_keep_all_their_digits() -> None:
    # The float64 nearest to a multiple of pi/2, and others known to be hard.
    # Source: J.-M. Muller, Elementary Functions, 3rd edition, §11.3.
    hard = [6381956970095103.0 * 2.0**797, 2.0**1023, 1e22, 5.319372648326541e255, 2.0**60]
    x = np.array(hard + [float(np.pi / 2 * k) for k in range(1, 200)])
    for name in ("sin", "cos", "tan"):
        want = REFERENCE[name](x.astype(np.longdouble))
        assert_within(BOUNDS[name], native64(maths.FUNCTIONS[name][0])(x), want, x)


@pytest.mark.parametrize(("name", "arguments", "results"), EXACT)
def test_special_values(name: str, arguments: list[float], results: list[float]) -> None:
    if name == "exp2":
        arguments, results = [3.0, -1074.0, -1075.5, 1024.0], [8, 2.0**-1074, 0, np.inf]
    elif name == "exp":
        arguments, results = [0.0, -np.inf, 710.0, -746.0], [1, 0, np.inf, 0]
    x = np.array([*arguments, np.nan])
    want = np.array([*results, np.nan])
    got = native64(maths.FUNCTIONS[name][0])(x)
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))
