from __future__ import annotations

import numpy as np
import pytest

from rawgpu.compiler_bridge import maths
from rawgpu.compiler_bridge.types import f32
from tests.compiler_bridge.native import NativeMap, native32
from tests.compiler_bridge.oracle import (
    REFERENCE,
    assert_within,
    every_size,
    validation_arrays,
)
from tests.compiler_bridge.sweep import worst_over_all

# Largest errors over all arguments as measured, rounded up; the promise is 2.
BOUNDS = {
    "exp": 0.91,
    "exp2": 0.88,
    "expm1": 1.5,
    "log": 0.92,
    "log2": 1.43,
    "log10": 1.64,
    "log1p": 1.0,
    "sin": 1.56,
    "cos": 1.56,
    "tan": 0.7,
    "asin": 1.4,
    "acos": 1.4,
    "atan": 1.6,
    "sinh": 1.8,
    "cosh": 1.5,
    "tanh": 1.45,
    "asinh": 0.51,
    "acosh": 0.51,
    "atanh": 0.51,
    "cbrt": 0.51,
    "erf": 1.1,
    "erfc": 0.51,
    "sigmoid": 1.5,
}
NUMPY_NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}


def test_every_function_has_a_bound() -> None:
    one_argument = {name for name, (_, count) in maths.FUNCTIONS.items() if count == 1}
    assert one_argument == set(BOUNDS) == set(REFERENCE)


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_stay_within_bounds(name: str) -> None:
    x = every_size(np.float32, 40 if name in ("erf", "erfc") else 1000)
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x.astype(np.float64))
    assert_within(BOUNDS[name], native32(maths.FUNCTIONS[name][0])(x), want, x)


@pytest.mark.parametrize("name", BOUNDS)
def test_numpys_validation_set_is_met(name: str) -> None:
    x, want = validation_arrays(NUMPY_NAMES.get(name, name), np.float32)
    if not x.size:
        pytest.skip("NumPy brings no set for this function")
    # The set's results are rounded to float32, which may add half a unit.
    got = native32(maths.FUNCTIONS[name][0])(x)
    assert_within(BOUNDS[name] + 0.51, got, want.astype(np.float64), x)


@pytest.mark.full
@pytest.mark.parametrize("name", BOUNDS)
def test_all_arguments_stay_within_bounds(name: str) -> None:
    function = maths.FUNCTIONS[name][0]
    worst, where = worst_over_all(function, function)
    assert worst <= BOUNDS[name], f"{worst} ulp at {np.float32(where)!r}"


@pytest.mark.full
@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "sin", "tanh"])
def test_numpy_agrees_on_every_sixteenth_argument(name: str) -> None:
    run = native32(maths.FUNCTIONS[name][0])
    step = 1 << 24
    for start in range(0, 1 << 32, step):
        first = start + start // step % 16
        x = np.arange(first, start + step, 16, dtype=np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            want = REFERENCE[name](x.astype(np.float64))
        assert_within(BOUNDS[name], run(x), want, x)


EXACT = [
    ("exp", [0.0, -0.0, np.inf, -np.inf, -200.0, 89.0], [1, 1, np.inf, 0, 0, np.inf]),
    ("exp2", [3.0, -149.0, -150.0, 127.0, 128.0], [8, 2.0**-149, 0, 2.0**127, np.inf]),
    ("expm1", [0.0, -0.0, -np.inf, -100.0, 1e-30], [0.0, -0.0, -1, -1, 1e-30]),
    ("log", [1.0, 0.0, -0.0, np.inf, -1.0], [0.0, -np.inf, -np.inf, np.inf, np.nan]),
    ("log2", [8.0, 2.0**-149, 0.5, -np.inf], [3, -149, -1, np.nan]),
    ("log10", [1.0, 10.0, 1000.0, 0.0], [0, 1, 3, -np.inf]),
    ("log1p", [0.0, -0.0, -1.0, -2.0, np.inf], [0.0, -0.0, -np.inf, np.nan, np.inf]),
    ("sin", [0.0, -0.0, np.inf, -np.inf], [0.0, -0.0, np.nan, np.nan]),
    ("cos", [0.0, -0.0, np.inf], [1, 1, np.nan]),
    ("tan", [0.0, -0.0, np.inf], [0.0, -0.0, np.nan]),
    ("tanh", [0.0, -0.0, np.inf, -np.inf, 20.0], [0.0, -0.0, 1, -1, 1]),
    ("asin", [0.0, -0.0, 1.0000001], [0.0, -0.0, np.nan]),
    ("acos", [1.0, 1.0000001], [0.0, np.nan]),
    ("acosh", [1.0, 0.5, np.inf], [0.0, np.nan, np.inf]),
    ("atanh", [1.0, -1.0, 1.5, -0.0], [np.inf, -np.inf, np.nan, -0.0]),
    ("erf", [0.0, -0.0, np.inf, -np.inf], [0.0, -0.0, 1, -1]),
    ("erfc", [0.0, np.inf, -np.inf], [1, 0, 2]),
    ("sigmoid", [0.0, np.inf, -np.inf], [0.5, 1, 0]),
    ("cbrt", [27.0, -8.0, -0.0, np.inf], [3, -2, -0.0, np.inf]),
]


@pytest.mark.parametrize(("name", "arguments", "results"), EXACT)
def test_special_values(name: str, arguments: list[float], results: list[float]) -> None:
    x = np.array([*arguments, np.nan], np.float32)
    want = np.array([*results, np.nan], np.float32)
    got = native32(maths.FUNCTIONS[name][0])(x)
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


@pytest.mark.parametrize("name", ["exp2", "exp", "log2", "sin", "tan", "cbrt"])
def test_other_ways_to_compile_give_the_same_bits(name: str) -> None:
    function = maths.FUNCTIONS[name][0]
    x = every_size(np.float32, 20)[: 1 << 13]
    want = native32(function)(x).view(np.uint32)
    ways = [
        NativeMap(function, lanes=0),
        NativeMap(function, lanes=8, cpu="x86-64-v3"),
        NativeMap(function, lanes=16, branches=False),
        NativeMap(function, lanes=4),
    ]
    if "avx512f" in native32(function).host.enabled:
        ways.append(NativeMap(function, (f32,), f32, lanes=16, scalef=True))
    for way in ways:
        got = way(x)
        same = (got.view(np.uint32) == want) | (np.isnan(got) & np.isnan(want.view(np.float32)))
        assert same.all()
