"""Compares float32 functions with float64 ones over all 2**32 arguments. Not a test itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rawgpu.compiler_bridge.ops import Ops, V
from rawgpu.compiler_bridge.types import f32
from tests.compiler_bridge.native import NativeMap

STEP = 1 << 20
WRONG = 1e9


def error_in_ulps(ops: Ops[V], got: V, want: V) -> V:
    """|got - want| in units of the last place of float32 at `want`; WRONG for a wrong kind."""
    zero, infinity = ops.const(want, 0.0), ops.const(want, float("inf"))
    magnitude = ops.abs(want)
    floor = ops.const(want, 2.0**-126)
    bits = ops.to_bits(ops.select(ops.lt(magnitude, floor), floor, magnitude))
    unit = ops.from_bits(
        ops.isub(ops.iand(bits, ops.iconst(bits, 0x7FF << 52)), ops.iconst(bits, 23 << 52))
    )
    wide = ops.widen(got)
    error = ops.div(ops.abs(ops.sub(wide, want)), unit)
    # Beyond the largest float32, infinity is right and the largest is half wrong.
    limit = ops.const(want, (2.0 - 2.0**-24) * 2.0**127)
    overflow = ops.le(limit, magnitude)
    right = ops.eq(wide, ops.copysign(infinity, want))
    error = ops.select(ops.both(overflow, right), zero, error)
    wrong = ops.const(want, WRONG)
    got_nan, want_nan = ops.invert(ops.eq(got, got)), ops.invert(ops.eq(want, want))
    error = ops.select(ops.either(got_nan, want_nan), wrong, error)
    error = ops.select(ops.both(got_nan, want_nan), zero, error)
    # A zero must have the right sign, unless the result rounds to zero from either side.
    signs = ops.ixor(ops.to_bits(wide), ops.to_bits(want))
    opposite = ops.ilt(signs, ops.iconst(signs, 0))
    zeros = ops.both(ops.eq(got, ops.const(got, 0.0)), ops.eq(want, zero))
    return ops.narrow(ops.select(ops.both(zeros, opposite), wrong, error))


def worst_over_all(
    single: Callable[..., Any], double: Callable[..., Any], *, stride: int = 1
) -> tuple[float, float]:
    """(largest error in ulps, its argument) over every `stride`-th block of 2**20 bit patterns."""

    def body(ops: Any, x: Any) -> Any:
        return error_in_ulps(ops, single(ops, x), double(ops, ops.widen(x)))

    run = NativeMap(body, (f32,), f32, lanes=16)
    worst, where = -1.0, 0.0
    for start in range(0, 1 << 32, STEP * stride):
        x = np.arange(start, start + STEP, dtype=np.uint32).view(np.float32)
        errors = run(x)
        i = int(np.argmax(errors))
        if errors[i] > worst:
            worst, where = float(errors[i]), float(x[i])
    return worst, where
