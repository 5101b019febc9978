"""Elementary functions of float64: exponentials, logarithms, powers, hyperbolics.

The methods are the well-known ones (Cody and Waite reduction, log through atanh, double-double
where powers need it); coefficients are our own fits, as in `maths_f32.py`. The bounds in docstrings
are the largest errors seen over some ten million arguments of every size, in units of the last
place. Angles are in `maths_f64_angles.py`, erf and cbrt in `maths_f64_special.py`.
"""

from __future__ import annotations

import math

from rawgpu.compiler_bridge.ops import (
    MAGIC_64,
    Ops,
    V,
    clamp,
    fast_two_sum,
    poly,
    power_of_two,
    round_to_int,
    sigmoid_of,
    two_product,
    two_sum,
)

# ln 2 with 32 trailing zeros, so that a whole number times it is exact, and the rest of it.
LN2_HI, LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LN2 = 0.6931471805599453
LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
LOG10_2 = (0.3010299956639812, -2.8037281277851704e-18)
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)

EXP = (0.5, 0.16666666666666677, 0.04166666666666668, 0.008333333333321428,
       0.0013888888888877432, 0.00019841269886633755, 2.4801587340667657e-05,
       2.755724369975914e-06, 2.755725914246846e-07, 2.51092153493155e-08,
       2.0919526380134854e-09)  # fmt: skip
"""(exp r - 1 - r) / r**2 on |r| <= 0.347; expm1 to 2**-61."""
LOG = (0.6666666666666736, 0.3999999999940528, 0.2857142874413959, 0.22222198415578567,
       0.18183571721190536, 0.1531387617168434, 0.14797582483671018)  # fmt: skip
"""(2 atanh s / s - 2) / s**2 in powers of s**2 on |s| <= 0.1717, to 2**-59."""
LOG_LONG = (0.39999999999999974, 0.2857142857144668, 0.22222222217217893, 0.18181818903931982,
            0.15384554858096344, 0.13336386455858096, 0.1167355366954706,
            0.11998616369559592)  # fmt: skip
"""(2 atanh s / s - 2 - 2/3 s**2) / s**4 on the same, to 2**-73."""

MIN_NORMAL = 2.0**-1022
INFINITY = math.inf


def exp_reduce(ops: Ops[V], x: V) -> tuple[V, V, V]:
    """(n, r, c): x = n ln 2 + r + c, n whole, |r| <= 0.347, c what r lost; |x| < 2**20."""
    magic = ops.const(x, MAGIC_64)
    n = ops.sub(ops.fma(x, ops.const(x, LOG2_E[0]), magic), magic)
    high = ops.fma(n, ops.const(x, -LN2_HI), x)
    r = ops.fma(n, ops.const(x, -LN2_LO), high)
    c = ops.fma(n, ops.const(x, -LN2_LO), ops.sub(high, r))
    return n, r, c


def expm1_near_zero(ops: Ops[V], r: V, c: V) -> V:
    """exp(r + c) - 1 for |r| <= 0.347 and a tiny c."""
    return ops.add(r, ops.fma(ops.mul(r, r), poly(ops, r, EXP), c))


def exp_scaled(ops: Ops[V], x: V, extra: float, c: V | None = None) -> V:
    """exp(x + c) * 2**extra for |c| < 2**-40, without overflow on the way."""
    x = clamp(ops, x, -800.0, 800.0)
    n, r, error = exp_reduce(ops, x)
    tail = expm1_near_zero(ops, r, error)
    one = ops.const(x, 1.0)
    if c is not None:
        tail = ops.fma(c, ops.add(one, tail), tail)
    value = ops.add(one, tail)
    return ops.scale(value, ops.add(n, ops.const(n, extra)) if extra else n)


def exp(ops: Ops[V], x: V) -> V:
    """e**x. 0.83 ulp."""
    return exp_scaled(ops, x, 0.0)


def exp2(ops: Ops[V], x: V) -> V:
    """2**x; exact for whole x. 0.9 ulp."""
    x = clamp(ops, x, -1080.0, 1030.0)
    n, _ = round_to_int(ops, x)
    r, c = two_product(ops, ops.sub(x, n), ops.const(x, LN2))
    return ops.scale(ops.add(ops.const(x, 1.0), expm1_near_zero(ops, r, c)), n)


def expm1(ops: Ops[V], x: V) -> V:
    """e**x - 1, accurate near zero. 1.6 ulp."""
    capped = clamp(ops, x, -40.0, 800.0)
    n, r, c = exp_reduce(ops, capped)
    tail = expm1_near_zero(ops, r, c)
    # With half the power, 2**1024 is not needed; below 1024, doubling the result is exact.
    n = ops.select(ops.lt(ops.const(n, 1030.0), n), ops.const(n, 1030.0), n)
    _, number = round_to_int(ops, ops.sub(n, ops.const(n, 1.0)))
    big = ops.iconst(number, 1023)
    number = ops.select(ops.ilt(big, number), big, number)
    half = power_of_two(ops, number)
    value = ops.fma(half, tail, ops.sub(half, ops.const(x, 0.5)))
    value = ops.add(value, value)
    value = ops.select(ops.lt(ops.const(n, 1024.5), n), ops.const(x, INFINITY), value)
    small = ops.eq(n, ops.const(n, 0.0))
    value = ops.select(small, tail, value)
    return ops.select(ops.eq(x, ops.const(x, 0.0)), x, value)  # the sign of zero


def log_split(ops: Ops[V], x: V) -> tuple[V, V]:
    """(e, f): x = 2**e (1 + f), e a whole float, sqrt(1/2) <= 1 + f < sqrt 2, for finite x > 0."""
    tiny = ops.lt(x, ops.const(x, MIN_NORMAL))
    scaled = ops.select(tiny, ops.mul(x, ops.const(x, 2.0**54)), x)
    bits = ops.to_bits(scaled)
    root_half = ops.iconst(bits, 0x3FE6_A09E_667F_3BCD)
    exponent = ops.ashr(ops.isub(bits, root_half), 52)
    mantissa = ops.from_bits(ops.isub(bits, ops.shl(exponent, 52)))
    e = ops.to_float(exponent)
    e = ops.select(tiny, ops.sub(e, ops.const(e, 54.0)), e)
    return e, ops.sub(mantissa, ops.const(x, 1.0))


def log_specials(ops: Ops[V], x: V, result: V) -> V:
    """Put what a logarithm is at 0 (-inf), below (NaN), at infinity and NaN (themselves)."""
    result = ops.select(ops.lt(x, ops.const(x, INFINITY)), result, x)
    result = ops.select(ops.lt(x, ops.const(x, 0.0)), ops.const(x, math.nan), result)
    return ops.select(ops.eq(x, ops.const(x, 0.0)), ops.const(x, -INFINITY), result)


def _log_tail(ops: Ops[V], f: V) -> tuple[V, V]:
    """(h, t): log(1 + f) = f - h + t with h = f**2/2 rounded and t much smaller."""
    s = ops.div(f, ops.add(ops.const(f, 2.0), f))
    z = ops.mul(s, s)
    half = ops.mul(ops.mul(ops.const(f, 0.5), f), f)
    return half, ops.mul(s, ops.fma(z, poly(ops, z, LOG), half))


def log_of_parts(ops: Ops[V], e: V, f: V, c: V | None = None) -> V:
    """log(2**e (1 + f)) + c for the parts that `log_split` gives and a small c."""
    half, tail = _log_tail(ops, f)
    small = ops.fma(e, ops.const(e, LN2_LO), tail)
    if c is not None:
        small = ops.add(small, c)
    return ops.fma(e, ops.const(e, LN2_HI), ops.sub(f, ops.sub(half, small)))


def log(ops: Ops[V], x: V) -> V:
    """Natural logarithm. 0.82 ulp."""
    e, f = log_split(ops, x)
    return log_specials(ops, x, log_of_parts(ops, e, f))


def _log_base(ops: Ops[V], x: V, factor: tuple[float, float], unit: tuple[float, float]) -> V:
    """log x * factor, where unit = factor * ln 2, both as two float64s."""
    e, f = log_split(ops, x)
    half, tail = _log_tail(ops, f)
    # Half the square is subtracted exactly, so that the product with `factor` sees all bits.
    square, square_error = two_product(ops, f, ops.mul(f, ops.const(f, 0.5)))
    high, low = fast_two_sum(ops, f, ops.neg(square))
    low = ops.add(low, ops.sub(ops.add(tail, ops.sub(square, half)), square_error))
    high, low = fast_two_sum(ops, high, low)
    product, error = two_product(ops, high, ops.const(f, factor[0]))
    error = ops.fma(low, ops.const(f, factor[0]), error)
    error = ops.fma(high, ops.const(f, factor[1]), error)
    whole, whole_error = two_product(ops, e, ops.const(f, unit[0]))
    whole_error = ops.fma(e, ops.const(f, unit[1]), whole_error)
    total, rest = two_sum(ops, whole, product)
    return log_specials(ops, x, ops.add(total, ops.add(rest, ops.add(error, whole_error))))


def log2(ops: Ops[V], x: V) -> V:
    """Base-2 logarithm; exact for powers of two. 0.7 ulp."""
    return _log_base(ops, x, LOG2_E, (1.0, 0.0))


def log10(ops: Ops[V], x: V) -> V:
    """Base-10 logarithm. 0.65 ulp."""
    return _log_base(ops, x, LOG10_E, LOG10_2)


def log1p(ops: Ops[V], x: V) -> V:
    """log(1 + x), accurate near zero. 0.85 ulp."""
    one = ops.const(x, 1.0)
    u, lost = two_sum(ops, one, x)
    e, f = log_split(ops, u)
    near = ops.eq(e, ops.const(e, 0.0))
    f = ops.select(near, x, f)
    lost = ops.select(near, ops.const(x, 0.0), ops.div(lost, u))
    lost = ops.select(ops.lt(x, ops.const(x, 2.0**60)), lost, ops.const(x, 0.0))
    result = log_specials(ops, u, log_of_parts(ops, e, f, lost))
    # Near zero the sum above would lose a denormal's bits, and the sign of zero.
    return ops.select(ops.lt(ops.abs(x), ops.const(x, 2.0**-54)), x, result)


def _log_long(ops: Ops[V], x: V) -> tuple[V, V]:
    """log x as two float64s, to 2**-66 of itself, for finite x > 0."""
    e, f = log_split(ops, x)
    d, d_error = fast_two_sum(ops, ops.const(f, 2.0), f)
    s = ops.div(f, d)
    rest = ops.fma(ops.neg(s), d, f)
    s_low = ops.div(ops.fma(ops.neg(s), d_error, rest), d)
    z, z_low = two_product(ops, s, s)
    cube, cube_low = two_product(ops, z, s)
    cube_low = ops.fma(z_low, s, cube_low)
    cube_low = ops.fma(ops.mul(z, ops.const(z, 3.0)), s_low, cube_low)
    third, third_low = two_product(ops, cube, ops.const(z, TWO_THIRDS[0]))
    third_low = ops.fma(cube, ops.const(z, TWO_THIRDS[1]), third_low)
    third_low = ops.fma(cube_low, ops.const(z, TWO_THIRDS[0]), third_low)
    tail = ops.mul(ops.mul(cube, z), poly(ops, z, LOG_LONG))
    two = ops.add(s, s)
    high, low = two_sum(ops, ops.mul(e, ops.const(e, LN2_HI)), two)
    high, more = two_sum(ops, high, third)
    small = ops.fma(ops.const(e, 2.0), s_low, ops.add(third_low, tail))
    low = ops.add(ops.add(low, more), ops.fma(e, ops.const(e, LN2_LO), small))
    return fast_two_sum(ops, high, low)


def pow_core(ops: Ops[V], x: V, y: V) -> V:
    """x**y for finite x > 0 and finite y. 1.4 ulp."""
    high, low = _log_long(ops, x)
    y = clamp(ops, y, -(2.0**65), 2.0**65)  # enough to overflow any x but 1
    product, error = two_product(ops, high, y)
    error = ops.fma(low, y, error)
    within = ops.lt(ops.abs(product), ops.const(x, 790.0))
    error = ops.select(within, error, ops.const(x, 0.0))
    return exp_scaled(ops, product, 0.0, error)


def sinh(ops: Ops[V], x: V) -> V:
    """Hyperbolic sine. 2.1 ulp."""
    magnitude = ops.abs(x)
    t = expm1(ops, ops.select(ops.lt(magnitude, ops.const(x, 40.0)), magnitude, ops.const(x, 40.0)))
    quotient = ops.div(t, ops.add(t, ops.const(x, 1.0)))
    small = ops.mul(ops.const(x, 0.5), ops.add(t, quotient))
    large = exp_scaled(ops, magnitude, -1.0)
    near = ops.lt(magnitude, ops.const(x, 22.0))
    return ops.copysign(ops.select(near, small, large), x)


def cosh(ops: Ops[V], x: V) -> V:
    """Hyperbolic cosine. 1.4 ulp."""
    half = exp_scaled(ops, ops.abs(x), -1.0)
    return ops.add(half, ops.div(ops.const(x, 0.25), half))


def tanh(ops: Ops[V], x: V) -> V:
    """Hyperbolic tangent. 2.4 ulp."""
    magnitude = ops.abs(x)
    top = ops.const(x, 20.0)
    t = expm1(ops, ops.mul(ops.const(x, 2.0), ops.select(ops.lt(top, magnitude), top, magnitude)))
    two = ops.const(x, 2.0)
    below = ops.div(ops.select(ops.lt(t, ops.const(x, 1.0)), t, two), ops.add(t, two))
    value = ops.select(ops.lt(t, ops.const(x, 1.0)), below, ops.sub(ops.const(x, 1.0), below))
    return ops.copysign(value, x)


def asinh(ops: Ops[V], x: V) -> V:
    """Inverse hyperbolic sine. 1.8 ulp."""
    magnitude = ops.abs(x)
    one = ops.const(x, 1.0)
    square = ops.mul(magnitude, magnitude)
    root = ops.sqrt(ops.add(square, one))
    middle = ops.add(magnitude, ops.div(square, ops.add(root, one)))
    return ops.copysign(_log1p_or_large(ops, magnitude, middle), x)


def acosh(ops: Ops[V], x: V) -> V:
    """Inverse hyperbolic cosine; NaN below 1. 2.2 ulp."""
    t = ops.sub(x, ops.const(x, 1.0))
    middle = ops.add(t, ops.sqrt(ops.fma(t, t, ops.add(t, t))))
    result = _log1p_or_large(ops, x, middle)
    return ops.select(ops.lt(x, ops.const(x, 1.0)), ops.const(x, math.nan), result)


def _log1p_or_large(ops: Ops[V], x: V, middle: V) -> V:
    """log1p(middle), or log(2x) for an x whose square would overflow."""
    large = ops.lt(ops.const(x, 2.0**500), x)
    result = log1p(ops, ops.select(large, x, middle))
    return ops.select(large, ops.add(result, ops.const(x, LN2)), result)


def atanh(ops: Ops[V], x: V) -> V:
    """Inverse hyperbolic tangent; infinite at 1, NaN beyond. 1.8 ulp."""
    magnitude = ops.abs(x)
    twice = ops.add(magnitude, magnitude)
    argument = ops.div(twice, ops.sub(ops.const(x, 1.0), magnitude))
    beyond = ops.lt(ops.const(x, 1.0), magnitude)
    result = ops.mul(ops.const(x, 0.5), log1p(ops, argument))
    result = ops.select(beyond, ops.const(x, math.nan), result)
    return ops.copysign(result, x)


def sigmoid(ops: Ops[V], x: V) -> V:
    """1 / (1 + exp(-x)), accurate into the denormals on the negative side. 1.4 ulp."""
    return sigmoid_of(ops, x, exp(ops, ops.neg(ops.abs(x))))
