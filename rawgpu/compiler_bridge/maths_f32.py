"""Elementary functions of float32, in float32 arithmetic except where a rare path says otherwise.

Each takes an `Ops` and values; the bound in a docstring is the largest error in units of the last
place over all 2**32 arguments, measured. All keep denormals, signed zeros, infinities and NaN.

Coefficients are our own fits: minimax by iterated least squares on Chebyshev points, then rounded
to float32 from the lowest power up with the rest refitted each time. `maths.py` is the public face.
"""

from __future__ import annotations

import functools
import math

from rawgpu.compiler_bridge.ops import (
    MAGIC_32,
    Ops,
    V,
    clamp,
    fast_two_sum,
    poly,
    sigmoid_of,
    two_product,
)

LOG2_E = 1.4426950408889634
# ln 2 and pi/2 as sums of float32s, largest first; fma makes the first product exact.
LN2_HI, LN2_LO = 0.6931471824645996, -1.9046542121259336e-09
HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)

EXP = (1.0, 1.0, 0.5, 0.16666512191295624, 0.0416664257645607, 0.00836966186761856,
       0.0013938633492216468)  # fmt: skip
"""exp r on |r| <= 0.35, relative error 2**-27.7."""
EXP2 = (1.0, 0.6931471824645996, 0.24022652208805084, 0.05550356209278107, 0.00961790420114994,
        0.0013392713153734803, 0.00015502913447562605)  # fmt: skip
"""2**r on |r| <= 0.505, relative error 2**-27.7."""
EXPM1 = (0.5, 0.1666666716337204, 0.04166647046804428, 0.008333190344274044,
         0.0013934571761637926, 0.00019959901692345738)  # fmt: skip
"""(expm1 r - r) / r**2 on |r| <= 0.35; expm1 to 2**-30.8."""
LOG = (0.3333321809768677, -0.24999715387821198, 0.20010307431221008, -0.16684313118457794,
       0.14007249474525452, -0.1213054358959198, 0.13978417217731476,
       -0.13126571476459503)  # fmt: skip
"""(log(1 + f) - f + f**2/2) / f**3 on |f| <= 1/3; log to 2**-27.4."""
LOG2_E_HI, LOG2_E_LO = 1.4426950216293335, 1.925963033500011e-08
LOG2 = (-0.7213475704193115, 0.480896532535553, -0.36066576838493347, 0.2886946499347687,
        -0.24080178141593933, 0.2019856572151184, -0.17401041090488434, 0.20208311080932617,
        -0.19291380047798157)  # fmt: skip
"""(log2(1 + f) - f*log2(e)) / f**2 on |f| <= 1/3; log2 to 2**-27.5."""
LOG10_E_HI, LOG10_E_LO = 0.4342944920063019, -1.0103049952192578e-08
LOG10_2_HI, LOG10_2_LO = 0.301025390625, 4.605039066518657e-06  # the first has 15 bits
LOG10 = (-0.21714724600315094, 0.1447642743587494, -0.1085720881819725, 0.0869060605764389,
         -0.07246481627225876, 0.06079939007759094, -0.05263672396540642, 0.0608520433306694,
         -0.05713338777422905)  # fmt: skip
"""(log10(1 + f) - f*log10(e)) / f**2 on |f| <= 1/3; log10 to 2**-27.5."""
SIN = (-0.16666653752326965, 0.008332106284797192, -0.00019507772231008857)
"""(sin r / r - 1) / r**2 in powers of r**2 on |r| <= pi/4 + 0.01; sin to 2**-27.8."""
COS = (0.04166664555668831, -0.0013887298991903663, 2.4430204575764947e-05)
"""(cos r - 1 + r**2/2) / r**4 in powers of r**2 on the same; cos to 2**-32.5."""
TANH = (-0.33333316445350647, 0.13332529366016388, -0.05384490266442299,
        0.021036429330706596, -0.0062188031151890755)  # fmt: skip
"""(tanh x / x - 1) / x**2 in powers of x**2 on |x| <= 0.56; tanh to 2**-29.4."""
ERF_SMALL = (0.12837916612625122, -0.37612631916999817, 0.11283675581216812,
             -0.026858454570174217, 0.005198879167437553, -0.0008119461126625538,
             8.274980064015836e-05)  # fmt: skip
"""erf x / x - 1 in powers of x**2 on |x| <= 0.9375, to 2**-30."""
ERF_LARGE = (-0.12864109873771667, -0.6351808905601501, -0.10618872195482254,
             0.02372124046087265, -0.0036234662402421236, 0.0003182073123753071,
             -1.077933848137036e-05)  # fmt: skip
"""(log erfc t + t) / t on 0.9 <= t <= 3.95; erf to 2**-29.9."""

MIN_NORMAL = 2.0**-126
INFINITY = math.inf
HUGE_ANGLE = 65536.0


def exp_reduce(ops: Ops[V], x: V) -> tuple[V, V]:
    """(n, r): x = n ln 2 + r with n whole and |r| <= 0.347; |x| < 2**21."""
    magic = ops.const(x, MAGIC_32)
    n = ops.sub(ops.fma(x, ops.const(x, LOG2_E), magic), magic)
    r = ops.fma(n, ops.const(x, -LN2_HI), x)
    return n, ops.fma(n, ops.const(x, -LN2_LO), r)


def exp_scaled(ops: Ops[V], x: V, extra: float) -> V:
    """exp(x) * 2**extra, without overflow on the way."""
    x = clamp(ops, x, -105.0, 90.0)  # beyond: 0 and infinity, and the power stays in range
    n, r = exp_reduce(ops, x)
    return ops.scale(poly(ops, r, EXP), ops.add(n, ops.const(n, extra)) if extra else n)


def exp(ops: Ops[V], x: V) -> V:
    """e**x. 0.91 ulp.

    What is 0 is not computed: x86 takes hundreds of cycles for a result too small for any float,
    and masked scores of attention are nothing else.
    """
    nothing, top = ops.lt(x, ops.const(x, -104.0)), ops.const(x, 90.0)
    n, r = exp_reduce(ops, ops.select(ops.lt(top, x), top, x))
    return ops.scale_or_zero(poly(ops, r, EXP), n, nothing)


def exp2(ops: Ops[V], x: V) -> V:
    """2**x; exact for whole x. 0.88 ulp."""
    x = clamp(ops, x, -151.0, 129.0)
    magic = ops.const(x, MAGIC_32)
    n = ops.sub(ops.add(x, magic), magic)
    return ops.scale(poly(ops, ops.sub(x, n), EXP2), n)


def expm1_reduced(ops: Ops[V], x: V, extra: int) -> tuple[V, V, V]:
    """(n, 2**(n + extra), expm1 r) of `exp_reduce`, where -127 < n + extra < 128."""
    n, r = exp_reduce(ops, x)
    magic = ops.const(x, MAGIC_32 + 127 + extra)  # whose low bits become the biased exponent
    power = ops.from_bits(ops.shl(ops.to_bits(ops.add(n, magic)), 23))
    return n, power, ops.fma(ops.mul(r, r), poly(ops, r, EXPM1), r)


def log_split(ops: Ops[V], x: V) -> tuple[V, V]:
    """(e, f): x = 2**e (1 + f) with e a whole float and -1/3 <= f < 1/3, for positive finite x."""
    tiny = ops.lt(x, ops.const(x, MIN_NORMAL))
    scaled = ops.select(tiny, ops.mul(x, ops.const(x, 2.0**23)), x)
    bits = ops.to_bits(scaled)
    two_thirds = ops.iconst(bits, 0x3F2A_AAAB)
    exponent = ops.ashr(ops.isub(bits, two_thirds), 23)
    mantissa = ops.from_bits(ops.isub(bits, ops.shl(exponent, 23)))
    e = ops.to_float(exponent)
    e = ops.select(tiny, ops.sub(e, ops.const(e, 23.0)), e)
    return e, ops.sub(mantissa, ops.const(x, 1.0))


def log_specials(ops: Ops[V], x: V, result: V) -> V:
    """Put what a logarithm is at 0 (-inf), below (NaN), at infinity and NaN (themselves)."""
    result = ops.select(ops.lt(x, ops.const(x, INFINITY)), result, x)
    result = ops.select(ops.lt(x, ops.const(x, 0.0)), ops.const(x, math.nan), result)
    return ops.select(ops.eq(x, ops.const(x, 0.0)), ops.const(x, -INFINITY), result)


def log(ops: Ops[V], x: V) -> V:
    """Natural logarithm. 0.92 ulp."""
    e, f = log_split(ops, x)
    square = ops.mul(f, f)
    curve = ops.fma(poly(ops, f, LOG), f, ops.const(f, -0.5))
    small = ops.fma(e, ops.const(e, LN2_LO), ops.mul(square, curve))
    result = ops.fma(e, ops.const(e, LN2_HI), ops.add(f, small))
    return log_specials(ops, x, result)


def log2(ops: Ops[V], x: V) -> V:
    """Base-2 logarithm; exact for powers of two. 1.43 ulp."""
    e, f = log_split(ops, x)
    small = ops.mul(ops.mul(f, f), poly(ops, f, LOG2))
    small = ops.fma(f, ops.const(f, LOG2_E_LO), small)
    result = ops.add(e, ops.fma(f, ops.const(f, LOG2_E_HI), small))
    return log_specials(ops, x, result)


def log10(ops: Ops[V], x: V) -> V:
    """Base-10 logarithm. 1.64 ulp."""
    e, f = log_split(ops, x)
    small = ops.mul(ops.mul(f, f), poly(ops, f, LOG10))
    small = ops.fma(f, ops.const(f, LOG10_E_LO), small)
    small = ops.fma(e, ops.const(f, LOG10_2_LO), small)
    main = ops.fma(f, ops.const(f, LOG10_E_HI), small)
    return log_specials(ops, x, ops.fma(e, ops.const(e, LOG10_2_HI), main))


@functools.cache
def two_over_pi(bits: int) -> int:
    """floor(2/pi * 2**bits), by Machin's formula."""
    guard = bits + 64

    def arctan_inverse(k: int) -> int:
        term = total = (1 << guard) // k
        step, square, sign = 1, k * k, -1
        while term:
            term //= square
            step += 2
            total += sign * (term // step)
            sign = -sign
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (2 << (guard + bits)) // pi


@functools.cache
def _angle_table() -> tuple[float, ...]:
    """For each exponent e from 16 to 127: 2**(e - 23) * 2/pi modulo 4, in two float64s.

    x * 2/pi modulo 4 is then x's 24-bit whole mantissa times that: what is dropped are whole turns.
    """
    rows: list[float] = []
    bits = 320
    for e in range(16, 128):
        turns = (two_over_pi(bits) << (e - 16)) >> 7
        rest = turns & ((4 << bits) - 1)
        high = math.ldexp(rest >> (bits - 60), -60)
        low = rest - int(math.ldexp(high, 60)) * (1 << (bits - 60))
        rows += [high, math.ldexp(low >> (bits - 160), -160)]
    return tuple(rows)


def reduce_huge(ops: Ops[V], x: V) -> tuple[V, V]:
    """(r, n) in float64 for x >= 2**16: x = n pi/2 + r modulo two pi, to 2**-80 of a quadrant.

    NaN for infinity and NaN; other lanes may hold anything.
    """
    bits = ops.to_bits(x)
    row = ops.isub(ops.lshr(bits, 23), ops.iconst(bits, 127 + 16))
    row = ops.select(ops.ilt(row, ops.iconst(row, 0)), ops.iconst(row, 0), row)
    row = ops.select(ops.ilt(row, ops.iconst(row, 111)), row, ops.iconst(row, 111))
    index = ops.iwiden(ops.shl(row, 1))
    high = ops.gather("two_over_pi_f32", _angle_table(), index)
    low = ops.gather("two_over_pi_f32", _angle_table(), ops.iadd(index, ops.iconst(index, 1)))
    fraction = ops.iand(bits, ops.iconst(bits, 0x007F_FFFF))
    whole = ops.widen(ops.from_bits(ops.ior(fraction, ops.iconst(bits, 0x4B00_0000))))
    turns, error = two_product(ops, whole, high)
    four = ops.roundeven(ops.mul(turns, ops.const(turns, 0.25)))
    turns = ops.fma(four, ops.const(four, -4.0), turns)
    turns, error = fast_two_sum(ops, turns, ops.fma(whole, low, error))
    n = ops.roundeven(turns)
    rest = ops.add(ops.sub(turns, n), error)
    finite = ops.lt(x, ops.const(x, INFINITY))
    rest = ops.select(finite, rest, ops.const(rest, math.nan))
    return ops.mul(rest, ops.const(rest, math.pi / 2)), n


def _reduce_huge(ops: Ops[V], x: V) -> tuple[V, V]:
    angle, n = reduce_huge(ops, x)
    return ops.narrow(angle), ops.to_bits(ops.add(ops.narrow(n), ops.const(x, MAGIC_32)))


def _reduce_angle(ops: Ops[V], x: V) -> tuple[V, V]:
    """(r, q): x = q pi/2 + r modulo two pi, for x >= 0; only the low two bits of q count."""
    magic = ops.const(x, MAGIC_32)
    shifted = ops.fma(x, ops.const(x, 2 / math.pi), magic)
    n = ops.sub(shifted, magic)
    r = x
    for part in HALF_PI:  # the first step is exact, the others round relative to r
        r = ops.fma(n, ops.const(x, -part), r)
    huge = ops.invert(ops.lt(x, ops.const(x, HUGE_ANGLE)))
    r, q = ops.where(huge, lambda: _reduce_huge(ops, x), (r, ops.to_bits(shifted)))
    return r, q


def _sin_or_cos(ops: Ops[V], r: V, quadrant: V, sign: V | None) -> V:
    """sin(r + quadrant * pi/2), its sign bit flipped by `sign`."""
    z = ops.mul(r, r)
    sine = ops.fma(ops.mul(z, poly(ops, z, SIN)), r, r)
    cosine = ops.fma(ops.fma(poly(ops, z, COS), z, ops.const(z, -0.5)), z, ops.const(z, 1.0))
    one = ops.iconst(quadrant, 1)
    even = ops.ieq(ops.iand(quadrant, one), ops.iconst(quadrant, 0))
    result = ops.to_bits(ops.select(even, sine, cosine))
    flip = ops.shl(quadrant, 30)
    if sign is not None:
        flip = ops.ixor(flip, sign)
    flip = ops.iand(flip, ops.iconst(flip, 0x8000_0000))
    return ops.from_bits(ops.ixor(result, flip))


def sin(ops: Ops[V], x: V) -> V:
    """Sine of radians, any size. 1.56 ulp."""
    r, quadrant = _reduce_angle(ops, ops.abs(x))
    return _sin_or_cos(ops, r, quadrant, ops.to_bits(x))


def cos(ops: Ops[V], x: V) -> V:
    """Cosine of radians, any size. 1.55 ulp."""
    r, quadrant = _reduce_angle(ops, ops.abs(x))
    return _sin_or_cos(ops, r, ops.iadd(quadrant, ops.iconst(quadrant, 1)), None)


def tanh(ops: Ops[V], x: V) -> V:
    """Hyperbolic tangent: x + x**3 P(x**2) near 0, else 1 - 2 / (exp(2|x|) + 1). 1.45 ulp."""
    one = ops.const(x, 1.0)
    magnitude = ops.abs(x)
    top = ops.const(x, 9.02)  # beyond, 1 is the nearest float
    capped = ops.select(ops.lt(top, magnitude), top, magnitude)
    _, power, tail = expm1_reduced(ops, ops.add(capped, capped), 0)
    below_one = ops.div(ops.const(x, 2.0), ops.add(ops.fma(power, tail, power), one))
    large = ops.sub(one, below_one)
    z = ops.mul(x, x)
    small = ops.fma(ops.mul(z, poly(ops, z, TANH)), magnitude, magnitude)
    result = ops.select(ops.lt(magnitude, ops.const(x, 0.55)), small, large)
    return ops.copysign(result, x)


def sigmoid(ops: Ops[V], x: V) -> V:
    """1 / (1 + exp(-x)), accurate into the denormals on the negative side. 1.48 ulp."""
    return sigmoid_of(ops, x, exp(ops, ops.neg(ops.abs(x))))


def erf(ops: Ops[V], x: V) -> V:
    """The error function: x + x P(x**2) for |x| < 0.9275, 1 - exp(-t + t Q(t)) above. 1.03 ulp.

    Source of the split: N. Juffa, "Calculating the error function accurately", 2013 onwards.
    """
    t = ops.abs(x)
    top = ops.const(x, 3.95)  # beyond, 1 is the nearest float
    capped = ops.select(ops.lt(top, t), top, t)
    small = ops.fma(poly(ops, ops.mul(x, x), ERF_SMALL), x, x)
    n, r = exp_reduce(ops, ops.fma(poly(ops, capped, ERF_LARGE), capped, ops.neg(capped)))
    decay = ops.scale(poly(ops, r, EXP), n)
    large = ops.copysign(ops.sub(ops.const(x, 1.0), decay), x)
    return ops.select(ops.lt(t, ops.const(x, 0.9275)), small, large)
