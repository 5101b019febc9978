"""Elementary functions of float64: sine, cosine, tangent and their inverses. See `maths_f64.py`."""

from __future__ import annotations

import functools
import math

from rawgpu.compiler_bridge.maths_f32 import two_over_pi
from rawgpu.compiler_bridge.ops import (
    MAGIC_64,
    Ops,
    V,
    poly,
    two_product,
    two_sum,
)

HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
PI_LO = 1.2246467991473532e-16

SIN = (-0.1666666666666663, 0.008333333333321973, -0.00019841269829520692, 2.7557313607067274e-06,
       -2.505074645334962e-08, 1.589618977350331e-10)  # fmt: skip
"""(sin r / r - 1) / r**2 in powers of r**2 on |r| <= pi/4; sin to 2**-57.8."""
COS = (0.041666666666666595, -0.001388888888887346, 2.4801587289117357e-05,
       -2.755731425770238e-07, 2.0875711542211155e-09, -1.1359087310040972e-11)  # fmt: skip
"""(cos r - 1 + r**2/2) / r**4 in powers of r**2 on the same; cos to 2**-63.8."""
ASIN = (0.1666666666666676, 0.07499999999971095, 0.044642857174224136, 0.03038194272950777,
        0.022372214318213714, 0.017351624732640333, 0.013980662389091006, 0.011400238093956171,
        0.010772700784581968, 0.003735234315062127, 0.02163685698757484, -0.02089881051064946,
        0.03256583928798823)  # fmt: skip
"""(asin s / s - 1) / s**2 in powers of s**2 on |s| <= 1/2; asin to 2**-59.8."""
ATAN = (-0.33333333333333315, 0.19999999999993207, -0.1428571428485282, 0.1111111105648321,
        -0.09090907060773358, 0.0769225955972702, -0.06665902517408066, 0.05874015985616862,
        -0.0520007706475991, 0.04432911022273574, -0.03191434588212659,
        0.013690660704374835)  # fmt: skip
"""(atan t / t - 1) / t**2 in powers of t**2 on |t| <= 7/16; atan to 2**-62."""

HUGE_ANGLE = 2.0**30
WINDOW_STEP, WINDOW_BITS, WINDOWS = 16, 48, 4


@functools.cache
def _windows() -> tuple[float, ...]:
    """48-bit windows into the binary digits of 2/pi, one at every 16th digit."""
    total = 16 * 80
    digits = two_over_pi(total)
    mask = (1 << WINDOW_BITS) - 1
    count = (total - WINDOW_BITS) // WINDOW_STEP
    return tuple(
        float((digits >> (total - WINDOW_BITS - WINDOW_STEP * i)) & mask) for i in range(count)
    )


def _distill(ops: Ops[V], terms: list[V]) -> list[V]:
    """Terms of the same exact sum, the first being it rounded, give or take one place."""
    terms = list(terms)
    for i in range(len(terms) - 2, -1, -1):
        terms[i], terms[i + 1] = two_sum(ops, terms[i], terms[i + 1])
    return terms


def _modulo_four(ops: Ops[V], x: V) -> V:
    """`x` less the nearest multiple of 4; exact."""
    quarter = ops.roundeven(ops.mul(x, ops.const(x, 0.25)))
    return ops.fma(quarter, ops.const(x, -4.0), x)


def _reduce_huge(ops: Ops[V], x: V) -> tuple[V, V, V]:
    """(r, c, quadrant) for finite x >= 2**30, after Payne and Hanek.

    x = m 2**k with a whole m. Digits of 2/pi that give multiples of 4 quadrants are skipped; the
    next 192, in four windows, leave 2**-122 of a quadrant, where no float64 comes nearer to one
    than 2**-61.
    """
    bits = ops.to_bits(x)
    exponent = ops.isub(
        ops.iand(ops.lshr(bits, 52), ops.iconst(bits, 2047)), ops.iconst(bits, 1023)
    )
    highest = ops.iconst(bits, 1023)
    exponent = ops.select(ops.ilt(highest, exponent), highest, exponent)
    skipped = ops.isub(exponent, ops.iconst(bits, 54))
    skipped = ops.select(ops.ilt(skipped, ops.iconst(bits, 0)), ops.iconst(bits, 0), skipped)
    row = ops.lshr(skipped, 4)
    shift = ops.isub(ops.isub(exponent, ops.iconst(bits, 52)), ops.shl(row, 4))
    fraction = ops.iand(bits, ops.iconst(bits, (1 << 52) - 1))
    biased = ops.iadd(shift, ops.iconst(bits, 1023 + 52))  # m 2**shift, its exponent set by hand
    scaled = ops.from_bits(ops.ior(fraction, ops.shl(biased, 52)))
    terms: list[V] = []
    step = WINDOW_BITS // WINDOW_STEP
    for i in range(WINDOWS):
        index = ops.iadd(row, ops.iconst(row, i * step))
        digits = ops.gather("two_over_pi_f64", _windows(), index)
        digits = ops.mul(digits, ops.const(x, 2.0 ** (-WINDOW_BITS * (i + 1))))
        terms += two_product(ops, scaled, digits)
    p0, e0, p1, e1, p2, e2, p3, _ = terms
    reduced = [_modulo_four(ops, term) for term in (p0, e0, p1)]
    terms = _distill(ops, _distill(ops, [*reduced, e1, p2, e2, p3]))
    quadrants = ops.roundeven(terms[0])
    terms[0] = ops.sub(terms[0], quadrants)
    terms = _distill(ops, _distill(ops, terms))
    high, low = terms[0], ops.add(terms[1], terms[2])
    r, c = two_product(ops, high, ops.const(x, HALF_PI[0]))
    c = ops.fma(high, ops.const(x, HALF_PI[1]), ops.fma(low, ops.const(x, HALF_PI[0]), c))
    finite = ops.lt(x, ops.const(x, math.inf))
    r = ops.select(finite, r, ops.const(x, math.nan))
    return r, c, ops.to_bits(ops.add(quadrants, ops.const(x, MAGIC_64)))


def reduce_angle(ops: Ops[V], x: V) -> tuple[V, V, V]:
    """(r, c, q): x = q pi/2 + r + c modulo two pi, x >= 0, c far below r; the low two bits of q."""
    magic = ops.const(x, MAGIC_64)
    shifted = ops.fma(x, ops.const(x, 2 / math.pi), magic)
    n = ops.sub(shifted, magic)
    first = ops.fma(n, ops.const(x, -HALF_PI[0]), x)  # exact
    product, error = two_product(ops, n, ops.const(x, -HALF_PI[1]))
    r, c = two_sum(ops, first, product)
    c = ops.add(c, ops.fma(n, ops.const(x, -HALF_PI[2]), error))
    huge = ops.invert(ops.lt(x, ops.const(x, HUGE_ANGLE)))
    usual = (r, c, ops.to_bits(shifted))
    r, c, q = ops.where(huge, lambda: _reduce_huge(ops, x), usual)
    return r, c, q


def _sine_and_cosine(ops: Ops[V], r: V, c: V) -> tuple[V, V]:
    """sin(r + c) and cos(r + c) for |r| <= pi/4."""
    z = ops.mul(r, r)
    half = ops.mul(z, ops.const(z, 0.5))
    one = ops.const(z, 1.0)
    first = ops.sub(one, half)
    tail = ops.mul(ops.mul(z, r), poly(ops, z, SIN))
    sine = ops.add(r, ops.fma(c, first, tail))
    lost = ops.sub(ops.sub(one, first), half)
    rest = ops.fma(ops.mul(z, z), poly(ops, z, COS), ops.fma(ops.neg(r), c, lost))
    return sine, ops.add(first, rest)


def _quadrant(ops: Ops[V], sine: V, cosine: V, quadrant: V, sign: V | None) -> V:
    one = ops.iconst(quadrant, 1)
    even = ops.ieq(ops.iand(quadrant, one), ops.iconst(quadrant, 0))
    flip = ops.shl(quadrant, 62)
    if sign is not None:
        flip = ops.ixor(flip, sign)
    flip = ops.iand(flip, ops.iconst(flip, 1 << 63))
    return ops.from_bits(ops.ixor(ops.to_bits(ops.select(even, sine, cosine)), flip))


def sin(ops: Ops[V], x: V) -> V:
    """Sine of radians, any size. 1 ulp."""
    r, c, quadrant = reduce_angle(ops, ops.abs(x))
    sine, cosine = _sine_and_cosine(ops, r, c)
    return _quadrant(ops, sine, cosine, quadrant, ops.to_bits(x))


def cos(ops: Ops[V], x: V) -> V:
    """Cosine of radians, any size. 1 ulp."""
    r, c, quadrant = reduce_angle(ops, ops.abs(x))
    sine, cosine = _sine_and_cosine(ops, r, c)
    quadrant = ops.iadd(quadrant, ops.iconst(quadrant, 1))
    return _quadrant(ops, sine, cosine, quadrant, None)


def tan(ops: Ops[V], x: V) -> V:
    """Tangent of radians, any size. 2.5 ulp."""
    r, c, quadrant = reduce_angle(ops, ops.abs(x))
    sine, cosine = _sine_and_cosine(ops, r, c)
    odd = ops.iand(quadrant, ops.iconst(quadrant, 1))
    even = ops.ieq(odd, ops.iconst(quadrant, 0))
    top = ops.select(even, sine, ops.neg(cosine))
    quotient = ops.to_bits(ops.div(top, ops.select(even, cosine, sine)))
    sign = ops.iand(ops.to_bits(x), ops.iconst(quadrant, 1 << 63))
    return ops.from_bits(ops.ixor(quotient, sign))


def _asin_parts(ops: Ops[V], x: V) -> tuple[V, V, V, V]:
    """(near, s, w, z-part): near says |x| < 1/2; s + w = asin of x or of sqrt((1 - |x|) / 2)."""
    magnitude = ops.abs(x)
    near = ops.lt(magnitude, ops.const(x, 0.5))
    half = ops.const(x, 0.5)
    z = ops.select(near, ops.mul(x, x), ops.fma(magnitude, ops.const(x, -0.5), half))
    root = ops.sqrt(z)
    twice = ops.add(root, root)
    error = ops.div(ops.fma(ops.neg(root), root, z), twice)
    zero = ops.const(x, 0.0)
    error = ops.select(ops.eq(root, zero), zero, error)
    s = ops.select(near, magnitude, root)
    tail = ops.mul(ops.mul(z, poly(ops, z, ASIN)), s)
    return near, s, ops.select(near, tail, ops.add(tail, error)), z


def asin(ops: Ops[V], x: V) -> V:
    """Inverse sine; NaN outside [-1, 1]. 1 ulp."""
    near, s, w, _ = _asin_parts(ops, x)
    small = ops.add(s, w)
    two = ops.const(x, 2.0)
    lower = ops.fma(two, w, ops.const(x, -HALF_PI[1]))
    # pi/2 - 2s is exact in two parts; subtracting in that order loses nothing near 1/2.
    first, lost = two_sum(ops, ops.const(x, HALF_PI[0]), ops.mul(s, ops.const(x, -2.0)))
    large = ops.add(first, ops.sub(lost, lower))
    return ops.copysign(ops.select(near, small, large), x)


def acos(ops: Ops[V], x: V) -> V:
    """Inverse cosine; NaN outside [-1, 1]. 1 ulp."""
    near, s, w, _ = _asin_parts(ops, x)
    negative = ops.lt(x, ops.const(x, 0.0))
    signed, signed_w = ops.copysign(s, x), ops.copysign(w, x)
    first, lost = two_sum(ops, ops.const(x, HALF_PI[0]), ops.neg(signed))
    middle = ops.add(first, ops.sub(ops.add(lost, ops.const(x, HALF_PI[1])), signed_w))
    two = ops.const(x, 2.0)
    double_s, double_w = ops.mul(two, s), ops.mul(two, w)
    first, lost = two_sum(ops, ops.const(x, math.pi), ops.neg(double_s))
    left = ops.add(first, ops.sub(ops.add(lost, ops.const(x, PI_LO)), double_w))
    return ops.select(near, middle, ops.select(negative, left, ops.add(double_s, double_w)))


ATAN_STEPS = (
    # above, numerator and denominator as (x factor, constant), the arc tangent of the centre
    (7 / 16, (2.0, -1.0), (1.0, 2.0), (4.63647609000806093515e-01, 2.26987774529616870924e-17)),
    (11 / 16, (1.0, -1.0), (1.0, 1.0), (7.85398163397448278999e-01, 3.06161699786838301793e-17)),
    (19 / 16, (1.0, -1.5), (1.5, 1.0), (9.82793723247329054082e-01, 1.39033110312309984516e-17)),
    (39 / 16, (0.0, -1.0), (1.0, 0.0), (1.57079632679489655800e00, 6.12323399573676603587e-17)),
)
"""Source of the steps: FreeBSD's s_atan.c (Sun Microsystems, 1993)."""


def _atan_positive(ops: Ops[V], x: V) -> V:
    """atan x for x >= 0 or NaN: the centre's arc tangent plus that of a number within 7/16."""
    zero, one = ops.const(x, 0.0), ops.const(x, 1.0)
    top, bottom, high, low = x, one, zero, zero
    for above, (a, b), (c, d), centre in ATAN_STEPS:
        past = ops.le(ops.const(x, above), x)
        numerator = ops.fma(x, ops.const(x, a), ops.const(x, b)) if a else ops.const(x, b)
        denominator = ops.fma(x, ops.const(x, c), ops.const(x, d))
        top = ops.select(past, numerator, top)
        bottom = ops.select(past, denominator, bottom)
        high = ops.select(past, ops.const(x, centre[0]), high)
        low = ops.select(past, ops.const(x, centre[1]), low)
    t = ops.div(top, bottom)
    z = ops.mul(t, t)
    tail = ops.fma(ops.mul(t, z), poly(ops, z, ATAN), low)
    return ops.add(high, ops.add(t, tail))


def atan(ops: Ops[V], x: V) -> V:
    """Inverse tangent. 1 ulp."""
    return ops.copysign(_atan_positive(ops, ops.abs(x)), x)


def atan2(ops: Ops[V], y: V, x: V) -> V:
    """Angle of the point (x, y), with all of IEEE 754's special cases. 2 ulp."""
    top, bottom = ops.abs(y), ops.abs(x)
    infinity, one = ops.const(x, math.inf), ops.const(x, 1.0)
    zero = ops.const(x, 0.0)
    both_infinite = ops.both(ops.eq(top, infinity), ops.eq(bottom, infinity))
    both_zero = ops.both(ops.eq(top, zero), ops.eq(bottom, zero))
    ratio = ops.div(top, bottom)
    ratio = ops.select(both_infinite, one, ratio)
    ratio = ops.select(both_zero, zero, ratio)
    angle = _atan_positive(ops, ratio)
    left = ops.sub(ops.const(x, math.pi), ops.sub(angle, ops.const(x, PI_LO)))
    negative = ops.ilt(ops.to_bits(x), ops.iconst(ops.to_bits(x), 0))
    return ops.copysign(ops.select(negative, left, angle), y)
