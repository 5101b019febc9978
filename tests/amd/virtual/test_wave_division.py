"""Divisions as LLVM writes them, in steps, against this processor's; also what each step does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.amd.virtual.wave_kernels import evaluate

GENERATIONS = [
    "gfx1100",
    "gfx942",
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in ("gfx1201", "gfx90a", "gfx1030", "gfx1250")
    ),
]


def numbers(kind: Any, seed: int) -> Any:
    """Of all exponents, and the ends."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 63, 1024, dtype=np.uint64)
    if kind is np.float32:
        values = (bits >> np.uint64(31)).astype(np.uint32).view(np.float32).copy()
    else:
        values = (bits << np.uint64(1)).view(np.float64).copy()
    tiny, top = np.finfo(kind).smallest_subnormal, np.finfo(kind).max
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, 7 * tiny, top, 1, 3, top / 3])
    values[: 12 * 12] = np.repeat(ends, 12) if seed % 2 else np.tile(ends, 12)
    values[200:500] = rng.standard_normal(300)
    values[500:700] = (
        (rng.standard_normal(200) * top).clip(-top, top)
        if seed % 2
        else (rng.integers(1, 1000, 200) * tiny)
    )
    return values.astype(kind)


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize(("type_", "kind"), [("float", np.float32), ("double", np.float64)])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_division_is_rounded_correctly(
    generation: str, type_: str, kind: Any, native: bool
) -> None:
    with np.errstate(all="ignore"):
        x, y = numbers(kind, 0), numbers(kind, 1)
        want = x / y
    body = f"  %r = fdiv {type_} %a, %b"
    have = evaluate(generation, [(type_, x), (type_, y)], (type_, kind), body, native=native)
    unsigned = np.uint32 if kind is np.float32 else np.uint64
    same = (have.view(unsigned) == want.view(unsigned)) | np.isnan(have) & np.isnan(want)
    bad = np.flatnonzero(~same)
    assert same.all(), [(x[i], y[i], have[i], want[i]) for i in bad[:8]]
