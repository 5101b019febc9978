"""The elementary functions' operations on NumPy arrays, with the same bits as native code.

    apply(maths.exp, np.linspace(0, 1, 100, dtype=np.float32))

NumPy has no fused multiply-add. For float32 the product is exact in float64, and a sum rounded to
odd there rounds correctly to float32; for float64 the same is done with pairs of float64. Source:
S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 57 (2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from rawgpu.compiler_bridge.ops import scale_but_where, scale_by_multiplying

Array: TypeAlias = Any  # an array or a scalar of float32, float64, uint32, uint64 or bool

_UNSIGNED = {32: np.uint32, 64: np.uint64}
_SIGNED = {32: np.int32, 64: np.int64}
_FLOAT = {32: np.float32, 64: np.float64}


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def _round_odd(total: Array, error: Array) -> Array:
    """`total` + `error` truncated, last bit set if anything was lost; `total` is rounded."""
    bits = np.asarray(total).view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    # One step away from zero if the error points there, else one towards it.
    away = (error > 0) == (total > 0)
    return np.where(inexact, bits + np.where(away, 1, -1), bits).view(np.float64)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)
    total, error = _two_sum(product, np.asarray(c, np.float64))
    return _round_odd(np.asarray(total), error).astype(np.float32)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    split = 134217729.0  # 2**27 + 1
    product = a * b
    a_high = a * split - (a * split - a)
    b_high = b * split - (b * split - b)
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def _fma64_exactly(a: Array, b: Array, c: Array) -> Array:
    """One by one, in rational arithmetic: for results so small that rounding twice would show."""
    exact = (
        float(Fraction(x) * Fraction(y) + Fraction(z))
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    )
    return np.fromiter(exact, np.float64, a.size)


def _fma64(a: Array, b: Array, c: Array) -> Array:
    a, b, c = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, c)))
    plain = a * b + c
    a_part, a_power = np.frexp(a)
    b_part, b_power = np.frexp(b)
    power = a_power + b_power
    # The product is brought near 1, where its error is exact; c follows. A c far below only decides
    # ties.
    shifted = np.ldexp(c, np.clip(-power, -2000, 2000))
    speck = (np.abs(shifted) < 2.0**-500) & (c != 0)
    shifted = np.where(speck, np.copysign(2.0**-500, c), shifted)
    high, low = _two_product(a_part, b_part)
    total, error = _two_sum(high, shifted)
    rest, rest_error = _two_sum(error, low)
    value = total + _round_odd(np.asarray(rest), rest_error)
    result = np.ldexp(value, power)
    # Here the plain formula is right: nothing to round, or a product that is a speck beside c.
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    simple = ~finite | (a == 0) | (b == 0) | (value == 0) | (np.abs(shifted) > 2.0**500)
    plain = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, plain)
    result = np.where(simple, plain, result)
    tiny = ~simple & (np.abs(result) < 2.0**-1020)
    if np.any(tiny):
        result = np.array(result)
        result[tiny] = _fma64_exactly(a[tiny], b[tiny], c[tiny])
    return result


class NumpyOps:
    """`Ops` that computes at once."""

    def bits(self, x: Array) -> int:
        return int(x.dtype.itemsize) * 8

    def const(self, like: Array, number: float) -> Array:
        return _FLOAT[self.bits(like)](number)

    def iconst(self, like: Array, number: int) -> Array:
        bits = self.bits(like)
        return _UNSIGNED[bits](number & ((1 << bits) - 1))

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def sub(self, a: Array, b: Array) -> Array:
        return a - b

    def mul(self, a: Array, b: Array) -> Array:
        return a * b

    def div(self, a: Array, b: Array) -> Array:
        return a / b

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        return _fma32(a, b, c) if self.bits(a) == 32 else _fma64(a, b, c)

    def sqrt(self, x: Array) -> Array:
        return np.sqrt(x)

    def neg(self, x: Array) -> Array:
        return -x

    def abs(self, x: Array) -> Array:
        return np.abs(x)

    def copysign(self, x: Array, sign: Array) -> Array:
        return np.copysign(x, sign)

    def floor(self, x: Array) -> Array:
        return np.floor(x)

    def trunc(self, x: Array) -> Array:
        return np.trunc(x)

    def roundeven(self, x: Array) -> Array:
        return np.rint(x)

    def lt(self, a: Array, b: Array) -> Array:
        return a < b

    def le(self, a: Array, b: Array) -> Array:
        return a <= b

    def eq(self, a: Array, b: Array) -> Array:
        return a == b

    def iadd(self, a: Array, b: Array) -> Array:
        return a + b

    def isub(self, a: Array, b: Array) -> Array:
        return a - b

    def imul(self, a: Array, b: Array) -> Array:
        return a * b

    def iand(self, a: Array, b: Array) -> Array:
        return a & b

    def ior(self, a: Array, b: Array) -> Array:
        return a | b

    def ixor(self, a: Array, b: Array) -> Array:
        return a ^ b

    def shl(self, a: Array, count: int) -> Array:
        return a << self.iconst(a, count)

    def lshr(self, a: Array, count: int) -> Array:
        return a >> self.iconst(a, count)

    def _signed(self, a: Array) -> Array:
        return np.asarray(a).view(_SIGNED[self.bits(a)])

    def ashr(self, a: Array, count: int) -> Array:
        return (self._signed(a) >> count).view(_UNSIGNED[self.bits(a)])

    def shl_by(self, a: Array, count: Array) -> Array:
        return a << count

    def lshr_by(self, a: Array, count: Array) -> Array:
        return a >> count

    def ieq(self, a: Array, b: Array) -> Array:
        return a == b

    def ilt(self, a: Array, b: Array) -> Array:
        return self._signed(a) < self._signed(b)

    def ult(self, a: Array, b: Array) -> Array:
        return a < b

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return np.where(condition, a, b)

    def both(self, a: Array, b: Array) -> Array:
        return a & b

    def either(self, a: Array, b: Array) -> Array:
        return a | b

    def invert(self, a: Array) -> Array:
        return ~np.asarray(a)

    def to_bits(self, x: Array) -> Array:
        return np.asarray(x).view(_UNSIGNED[self.bits(x)])

    def from_bits(self, x: Array) -> Array:
        return np.asarray(x).view(_FLOAT[self.bits(x)])

    def to_int(self, x: Array) -> Array:
        bits = self.bits(x)
        return np.asarray(x).astype(_SIGNED[bits]).view(_UNSIGNED[bits])

    def to_float(self, x: Array) -> Array:
        return self._signed(x).astype(_FLOAT[self.bits(x)])

    def widen(self, x: Array) -> Array:
        return np.asarray(x).astype(np.float64)

    def narrow(self, x: Array) -> Array:
        return np.asarray(x).astype(np.float32)

    def iwiden(self, x: Array) -> Array:
        return np.asarray(x).astype(np.uint64)

    def inarrow(self, x: Array) -> Array:
        return np.asarray(x).astype(np.uint32)

    def gather(self, name: str, numbers: Sequence[float], index: Array) -> Array:
        return np.asarray(numbers, np.float64)[np.asarray(index).astype(np.int64)]

    def scale(self, x: Array, power: Array) -> Array:
        return scale_by_multiplying(self, x, power)

    def scale_or_zero(self, x: Array, power: Array, nothing: Array) -> Array:
        return scale_but_where(self, x, power, nothing)

    def where(
        self, condition: Array, rare: Callable[[], tuple[Array, ...]], usual: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        if not np.any(condition):
            return usual
        return tuple(np.where(condition, a, b) for a, b in zip(rare(), usual, strict=True))

    def while_any(
        self,
        state: tuple[Array, ...],
        condition: Callable[[tuple[Array, ...]], Array],
        body: Callable[[tuple[Array, ...]], tuple[Array, ...]],
    ) -> tuple[Array, ...]:
        while np.any(condition(state)):
            state = body(state)
        return state


def apply(function: Callable[..., Any], *arrays: Array) -> Array:
    """`function` of `maths.py` on float32 or float64 arrays of one shape and type."""
    ready = [np.atleast_1d(np.asarray(array)) for array in arrays]
    with np.errstate(all="ignore"):
        result = function(NumpyOps(), *ready)
    return np.asarray(result).reshape(np.shape(arrays[0]))
