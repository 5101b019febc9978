"""Arguments, reference values and errors in units of the last place. Not a test itself."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
WRONG = 1e9

REFERENCE: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "erfc": np.vectorize(math.erfc, otypes=[np.float64]),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
"""One-argument functions in NumPy; the type of the argument decides how exact they are."""


def every_size(dtype: type[Any], per_exponent: int, seed: int = 1) -> Array:
    """Numbers of both signs and every exponent, NaN and infinities too, and common ranges."""
    rng = np.random.default_rng(seed)
    mantissa, unsigned = (23, np.uint32) if dtype is np.float32 else (52, np.uint64)
    exponents = 1 << (np.dtype(dtype).itemsize * 8 - mantissa)
    shape = (exponents, per_exponent)
    low = rng.integers(0, 1 << mantissa, shape, dtype=unsigned)
    low[:, :4] = [0, 1, (1 << mantissa) - 1, 1 << (mantissa - 1)]
    steps: Array = np.arange(exponents, dtype=unsigned)
    high = np.left_shift(steps, unsigned(mantissa))[:, None]
    count = exponents * per_exponent // 4
    common = [rng.uniform(-limit, limit, count) for limit in (1, 4, 100)]
    common.append(1 + rng.normal(0, 1e-3, count))
    return np.concatenate(
        [np.bitwise_or(high, low).ravel().view(dtype), *(c.astype(dtype) for c in common)]
    )


def ulps(got: Array, want: Array) -> Array:
    """Distance in units of the last place of `got`'s type at `want`, which has more digits."""
    wide = want.dtype.type
    info = np.finfo(got.dtype)
    digits = info.nmant + 1
    with np.errstate(all="ignore"):
        size = np.clip(np.nan_to_num(np.abs(want)), wide(info.tiny), wide(info.max))
        unit = np.ldexp(wide(1), np.frexp(size)[1] - digits)
        error = np.abs(got.astype(wide) - want) / unit
        rounded = want.astype(got.dtype)
        # Infinity is right where rounding gives it; one step away from that is one unit wrong.
        same_infinity = np.isinf(got) & np.isinf(rounded) & (np.signbit(got) == np.signbit(want))
        error = np.where(same_infinity, 0, error)
        almost = np.abs(want) > wide(info.max) * wide(1 - 1e-6)
        error = np.where(np.isinf(got) & ~np.isinf(rounded), np.where(almost, 1, WRONG), error)
        error = np.where(np.isnan(got) & np.isnan(want), 0, error)
        error = np.where(np.isnan(got) != np.isnan(want), WRONG, error)
        zeros = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
        result: Array = np.where(zeros, WRONG, error)
    return result


def assert_within(bound: float, got: Array, want: Array, *arguments: Array) -> None:
    """All of `got` within `bound` ulps of `want`; names the worst argument if not."""
    errors = ulps(got, want)
    worst = int(np.argmax(errors))
    told = [repr(argument[worst]) for argument in arguments]
    assert errors[worst] <= bound, (
        f"{float(errors[worst]):.3f} ulp at {', '.join(told)}: "
        f"got {got[worst]!r}, want {want[worst]!r}"
    )


@functools.cache
def validation_set(name: str) -> list[tuple[str, int, int]]:
    """NumPy's own (dtype, argument bits, result bits) for a name like arcsin; empty if absent."""
    path = (
        Path(np.__file__).parent / "_core" / "tests" / "data" / f"umath-validation-set-{name}.csv"
    )
    if not path.exists():
        return []
    with path.open() as file:
        lines = [line for line in file if line.strip() and line[0] not in "#d"]
    return [(row[0], int(row[1], 16), int(row[2], 16)) for row in csv.reader(lines)]


def validation_arrays(name: str, dtype: type[Any]) -> tuple[Array, Array]:
    """(arguments, results) of that set in `dtype`."""
    wanted = np.dtype(dtype).name
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    rows = [(a, b) for kind, a, b in validation_set(name) if kind == f"np.{wanted}"]
    both = np.array(rows, dtype=unsigned).reshape(-1, 2)
    return both[:, 0].copy().view(dtype), both[:, 1].copy().view(dtype)
