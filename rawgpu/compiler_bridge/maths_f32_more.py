"""Elementary functions of float32 that are less hot than those in `maths_f32.py`.

Bounds are measured as there, but those of 0.51 ulp, which follow from the float64 functions'.
Where float32 arithmetic alone would need more care than it is worth, they compute in float64 and
round once, which makes them correct but for rare ties, at about twice the cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rawgpu.compiler_bridge import maths_f64, maths_f64_special
from rawgpu.compiler_bridge.maths_f32 import (
    COS,
    HUGE_ANGLE,
    INFINITY,
    LN2_HI,
    LN2_LO,
    LOG,
    SIN,
    exp_scaled,
    expm1_reduced,
    log_specials,
    log_split,
    reduce_huge,
)
from rawgpu.compiler_bridge.ops import (
    MAGIC_64,
    Ops,
    V,
    clamp,
    fast_two_sum,
    poly,
    two_sum,
)

SINH = (0.1666666716337204, 0.008333317004144192, 0.00019841128960251808, 2.793653493426973e-06)
"""(sinh x / x - 1) / x**2 in powers of x**2 on |x| <= 1.01; sinh to 2**-31."""
ASIN = (0.16666755080223083, 0.07495193183422089, 0.0454835519194603, 0.02411385253071785,
        0.04227912425994873)  # fmt: skip
"""(asin s / s - 1) / s**2 in powers of s**2 on |s| <= 1/2; asin to 2**-27.5."""
ATAN = (-0.33333301544189453, 0.1999862939119339, -0.1426514983177185, 0.10957084596157074,
        -0.08418039232492447, 0.05821044743061066, -0.03143184259533882, 0.01105169951915741,
        -0.0018243769882246852)  # fmt: skip
"""(atan t / t - 1) / t**2 in powers of t**2 on |t| <= 1; atan to 2**-28.3."""
HALF_PI_HI, HALF_PI_LO = 1.5707963705062866, -4.371138828673793e-08


def through_f64(function: Callable[..., V], ops: Ops[V], *arguments: V) -> V:
    """A float64 function of float32 arguments, rounded to float32."""
    return ops.narrow(function(ops, *(ops.widen(x) for x in arguments)))


def expm1(ops: Ops[V], x: V) -> V:
    """e**x - 1, accurate near zero. 1.44 ulp."""
    n, half, tail = expm1_reduced(ops, clamp(ops, x, -25.0, 88.9), -1)
    value = ops.fma(half, tail, ops.sub(half, ops.const(x, 0.5)))
    value = ops.add(value, value)
    value = ops.select(ops.eq(n, ops.const(n, 0.0)), tail, value)
    return ops.select(ops.eq(x, ops.const(x, 0.0)), x, value)  # the sign of zero


def log1p(ops: Ops[V], x: V) -> V:
    """log(1 + x), accurate near zero. 0.93 ulp."""
    u, lost = two_sum(ops, ops.const(x, 1.0), x)
    e, f = log_split(ops, u)
    zero = ops.const(x, 0.0)
    near = ops.eq(e, zero)
    f = ops.select(near, x, f)
    lost = ops.select(near, zero, ops.div(lost, u))
    lost = ops.select(ops.lt(x, ops.const(x, 2.0**30)), lost, zero)
    curve = ops.fma(poly(ops, f, LOG), f, ops.const(f, -0.5))
    small = ops.fma(e, ops.const(e, LN2_LO), ops.fma(ops.mul(f, f), curve, lost))
    result = ops.fma(e, ops.const(e, LN2_HI), ops.add(f, small))
    result = log_specials(ops, u, result)
    return ops.select(ops.lt(ops.abs(x), ops.const(x, 2.0**-25)), x, result)


def sinh(ops: Ops[V], x: V) -> V:
    """Hyperbolic sine. 1.62 ulp."""
    t = ops.abs(x)
    z = ops.mul(x, x)
    small = ops.fma(ops.mul(z, poly(ops, z, SINH)), t, t)
    half = exp_scaled(ops, t, -1.0)
    large = ops.sub(half, ops.div(ops.const(x, 0.25), half))
    return ops.copysign(ops.select(ops.lt(t, ops.const(x, 1.0)), small, large), x)


def cosh(ops: Ops[V], x: V) -> V:
    """Hyperbolic cosine. 1.36 ulp."""
    half = exp_scaled(ops, ops.abs(x), -1.0)
    return ops.add(half, ops.div(ops.const(x, 0.25), half))


def asinh(ops: Ops[V], x: V) -> V:
    """Inverse hyperbolic sine. 0.51 ulp."""
    return through_f64(maths_f64.asinh, ops, x)


def acosh(ops: Ops[V], x: V) -> V:
    """Inverse hyperbolic cosine; NaN below 1. 0.51 ulp."""
    return through_f64(maths_f64.acosh, ops, x)


def atanh(ops: Ops[V], x: V) -> V:
    """Inverse hyperbolic tangent; infinite at 1, NaN beyond. 0.51 ulp."""
    return through_f64(maths_f64.atanh, ops, x)


def erfc(ops: Ops[V], x: V) -> V:
    """1 - erf x, accurate where that is small. 0.51 ulp."""
    return through_f64(maths_f64_special.erfc, ops, x)


def cbrt(ops: Ops[V], x: V) -> V:
    """Cube root. 0.51 ulp."""
    return through_f64(maths_f64_special.cbrt, ops, x)


def pow_core(ops: Ops[V], x: V, y: V) -> V:
    """x**y for finite x > 0 and finite y: 2**(y log2 x) in float64. 0.51 ulp."""
    wide = ops.widen(x)
    e, f = maths_f64.log_split(ops, wide)
    power = ops.mul(ops.widen(y), maths_f64.log_of_parts(ops, e, f))
    return ops.narrow(maths_f64.exp_scaled(ops, power, 0.0))


def tan(ops: Ops[V], x: V) -> V:
    """Tangent of radians, any size: sine over cosine in float64. 0.57 ulp."""
    magnitude = ops.abs(x)
    wide = ops.widen(magnitude)
    magic = ops.const(wide, MAGIC_64)
    n = ops.sub(ops.fma(wide, ops.const(wide, 2 / math.pi), magic), magic)
    r = ops.fma(n, ops.const(n, -1.5707963267948966), wide)
    r = ops.fma(n, ops.const(n, -6.123233995736766e-17), r)
    huge = ops.invert(ops.lt(magnitude, ops.const(x, HUGE_ANGLE)))
    r, n = ops.where(huge, lambda: reduce_huge(ops, magnitude), (r, n))
    quadrant = ops.to_bits(ops.add(n, magic))
    z = ops.mul(r, r)
    sine = ops.fma(ops.mul(z, poly(ops, z, SIN)), r, r)
    cosine = ops.fma(ops.fma(poly(ops, z, COS), z, ops.const(z, -0.5)), z, ops.const(z, 1.0))
    odd = ops.iand(quadrant, ops.iconst(quadrant, 1))
    even = ops.ieq(odd, ops.iconst(quadrant, 0))
    top = ops.select(even, sine, ops.neg(cosine))
    quotient = ops.narrow(ops.div(top, ops.select(even, cosine, sine)))
    bits = ops.to_bits(x)
    sign = ops.iand(bits, ops.iconst(bits, 0x8000_0000))
    return ops.from_bits(ops.ixor(ops.to_bits(quotient), sign))


def _asin_parts(ops: Ops[V], x: V) -> tuple[V, V, V]:
    """(near, s, p): near says |x| < 1/2; asin of s = |x| or sqrt((1 - |x|) / 2) is s + s p."""
    magnitude = ops.abs(x)
    half = ops.const(x, 0.5)
    near = ops.lt(magnitude, half)
    z = ops.select(near, ops.mul(x, x), ops.fma(magnitude, ops.const(x, -0.5), half))
    s = ops.select(near, magnitude, ops.sqrt(z))
    return near, s, ops.mul(z, poly(ops, z, ASIN))


def asin(ops: Ops[V], x: V) -> V:
    """Inverse sine; NaN outside [-1, 1]. 1.17 ulp."""
    near, s, p = _asin_parts(ops, x)
    high, low = ops.const(x, HALF_PI_HI), ops.const(x, HALF_PI_LO)
    twice = ops.add(s, s)
    first, lost = fast_two_sum(ops, high, ops.neg(twice))
    large = ops.add(first, ops.add(lost, ops.fma(ops.neg(twice), p, low)))
    return ops.copysign(ops.select(near, ops.fma(p, s, s), large), x)


def acos(ops: Ops[V], x: V) -> V:
    """Inverse cosine; NaN outside [-1, 1]. 1.14 ulp."""
    near, s, p = _asin_parts(ops, x)
    a = ops.fma(p, s, s)
    high, low = ops.const(x, HALF_PI_HI), ops.const(x, HALF_PI_LO)
    middle = ops.add(high, ops.sub(low, ops.copysign(a, x)))
    two = ops.const(x, 2.0)
    left = ops.fma(two, high, ops.fma(two, low, ops.mul(a, ops.const(x, -2.0))))
    far = ops.select(ops.lt(x, ops.const(x, 0.0)), left, ops.add(a, a))
    return ops.select(near, middle, far)


def _atan_ratio(ops: Ops[V], top: V, bottom: V) -> V:
    """atan(top / bottom) for non-negative numbers, not both zero, nor both infinite."""
    steep = ops.lt(bottom, top)
    t = ops.div(ops.select(steep, bottom, top), ops.select(steep, top, bottom))
    z = ops.mul(t, t)
    a = ops.fma(ops.mul(z, poly(ops, z, ATAN)), t, t)
    high, low = ops.const(t, HALF_PI_HI), ops.const(t, HALF_PI_LO)
    return ops.select(steep, ops.add(high, ops.sub(low, a)), a)


def atan(ops: Ops[V], x: V) -> V:
    """Inverse tangent. 1.37 ulp."""
    return ops.copysign(_atan_ratio(ops, ops.abs(x), ops.const(x, 1.0)), x)


def atan2(ops: Ops[V], y: V, x: V) -> V:
    """Angle of the point (x, y), with all of IEEE 754's special cases. 2 ulp."""
    top, bottom = ops.abs(y), ops.abs(x)
    infinity, one = ops.const(x, INFINITY), ops.const(x, 1.0)
    zero = ops.const(x, 0.0)
    infinite = ops.both(ops.eq(top, infinity), ops.eq(bottom, infinity))
    top, bottom = ops.select(infinite, one, top), ops.select(infinite, one, bottom)
    origin = ops.both(ops.eq(top, zero), ops.eq(bottom, zero))
    angle = _atan_ratio(ops, top, ops.select(origin, one, bottom))
    pi, rest = ops.const(x, 2 * HALF_PI_HI), ops.const(x, 2 * HALF_PI_LO)
    left = ops.add(pi, ops.sub(rest, angle))
    bits = ops.to_bits(x)
    negative = ops.ilt(bits, ops.iconst(bits, 0))
    return ops.copysign(ops.select(negative, left, angle), y)
