"""Elementary functions, written once over the operations of `ops.py`. The public face.

    from rawgpu.compiler_bridge import maths
    y = maths.exp(LlvmOps(function), x)      # code, for float32 or float64 in any number of lanes
    y = maths_numpy.apply(maths.exp, array)  # numbers, the same bits

All keep denormals, infinities, NaN and signed zeros; float32 is within 2 ulp and float64 within 4,
each function's docstring says more. On x86 they need x86-64-v3 or newer, where fma and rounding are
instructions; on AArch64 the baseline. Conversions of small floats are in `maths_convert.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rawgpu.compiler_bridge import (
    maths_f32,
    maths_f32_more,
    maths_f64,
    maths_f64_angles,
    maths_f64_special,
)
from rawgpu.compiler_bridge.ops import Ops, V, is_nan, power_of_two


def _by_width(
    name: str, single: Callable[..., Any], double: Callable[..., Any]
) -> Callable[..., Any]:
    def function(ops: Ops[V], *arguments: V) -> V:
        chosen = single if ops.bits(arguments[0]) == 32 else double
        result: V = chosen(ops, *arguments)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"float32: {single.__doc__}\n\nfloat64: {double.__doc__}"
    return function


exp = _by_width("exp", maths_f32.exp, maths_f64.exp)
exp2 = _by_width("exp2", maths_f32.exp2, maths_f64.exp2)
expm1 = _by_width("expm1", maths_f32_more.expm1, maths_f64.expm1)
log = _by_width("log", maths_f32.log, maths_f64.log)
log2 = _by_width("log2", maths_f32.log2, maths_f64.log2)
log10 = _by_width("log10", maths_f32.log10, maths_f64.log10)
log1p = _by_width("log1p", maths_f32_more.log1p, maths_f64.log1p)
sin = _by_width("sin", maths_f32.sin, maths_f64_angles.sin)
cos = _by_width("cos", maths_f32.cos, maths_f64_angles.cos)
tan = _by_width("tan", maths_f32_more.tan, maths_f64_angles.tan)
asin = _by_width("asin", maths_f32_more.asin, maths_f64_angles.asin)
acos = _by_width("acos", maths_f32_more.acos, maths_f64_angles.acos)
atan = _by_width("atan", maths_f32_more.atan, maths_f64_angles.atan)
atan2 = _by_width("atan2", maths_f32_more.atan2, maths_f64_angles.atan2)
sinh = _by_width("sinh", maths_f32_more.sinh, maths_f64.sinh)
cosh = _by_width("cosh", maths_f32_more.cosh, maths_f64.cosh)
tanh = _by_width("tanh", maths_f32.tanh, maths_f64.tanh)
asinh = _by_width("asinh", maths_f32_more.asinh, maths_f64.asinh)
acosh = _by_width("acosh", maths_f32_more.acosh, maths_f64.acosh)
atanh = _by_width("atanh", maths_f32_more.atanh, maths_f64.atanh)
erf = _by_width("erf", maths_f32.erf, maths_f64_special.erf)
erfc = _by_width("erfc", maths_f32_more.erfc, maths_f64_special.erfc)
sigmoid = _by_width("sigmoid", maths_f32.sigmoid, maths_f64.sigmoid)
cbrt = _by_width("cbrt", maths_f32_more.cbrt, maths_f64_special.cbrt)
_pow_core = _by_width("pow_core", maths_f32_more.pow_core, maths_f64.pow_core)


def pow(ops: Ops[V], x: V, y: V) -> V:
    """x**y with all of IEEE 754's special cases. float32: 0.51 ulp; float64: 1.3 ulp."""
    zero, one = ops.const(x, 0.0), ops.const(x, 1.0)
    infinity = ops.const(x, math.inf)
    magnitude, power = ops.abs(x), ops.abs(y)
    whole = ops.eq(ops.trunc(y), y)
    half = ops.mul(y, ops.const(y, 0.5))
    odd = ops.both(whole, ops.invert(ops.eq(ops.trunc(half), half)))
    odd = ops.both(odd, ops.lt(power, infinity))
    result = _pow_core(ops, magnitude, y)
    # Where the magnitude or the power has no logarithm or no product: infinity or zero.
    edge = ops.either(ops.eq(magnitude, zero), ops.eq(magnitude, infinity))
    edge = ops.either(edge, ops.eq(power, infinity))
    above, upward = ops.lt(one, magnitude), ops.lt(zero, y)
    grows = ops.either(ops.both(above, upward), ops.both(ops.invert(above), ops.invert(upward)))
    result = ops.select(edge, ops.select(grows, infinity, zero), result)
    bits = ops.to_bits(x)
    negative = ops.ilt(bits, ops.iconst(bits, 0))
    result = ops.select(ops.both(negative, odd), ops.neg(result), result)
    finite = ops.lt(magnitude, infinity)
    root = ops.both(ops.both(ops.lt(x, zero), finite), ops.invert(whole))
    result = ops.select(root, ops.const(x, math.nan), result)
    result = ops.select(ops.either(is_nan(ops, x), is_nan(ops, y)), ops.const(x, math.nan), result)
    unit = ops.both(ops.eq(magnitude, one), ops.eq(power, infinity))
    unit = ops.either(unit, ops.either(ops.eq(x, one), ops.eq(y, zero)))
    return ops.select(unit, one, result)


def _exponent(ops: Ops[V], x: V) -> V:
    """floor(log2 x) of a float64 x > 0, as an integer."""
    tiny = ops.lt(x, ops.const(x, 2.0**-1022))
    bits = ops.to_bits(ops.select(tiny, ops.mul(x, ops.const(x, 2.0**54)), x))
    exponent = ops.isub(ops.lshr(bits, 52), ops.iconst(bits, 1023))
    return ops.select(tiny, ops.isub(exponent, ops.iconst(bits, 54)), exponent)


def _fmod_step(ops: Ops[V], r: V, y: V) -> V:
    """`r` less a multiple of `y` <= r that takes off up to 51 bits; exact."""
    down = ops.isub(ops.isub(_exponent(ops, r), _exponent(ops, y)), ops.iconst(r, 51))
    down = ops.select(ops.ilt(down, ops.iconst(r, 0)), ops.iconst(r, 0), down)
    half = ops.ashr(down, 1)
    scaled = ops.mul(y, power_of_two(ops, half))
    scaled = ops.mul(scaled, power_of_two(ops, ops.isub(down, half)))
    times = ops.trunc(ops.div(r, scaled))
    rest = ops.fma(ops.neg(times), scaled, r)  # the quotient may have been rounded up to a whole
    return ops.select(ops.lt(rest, ops.const(r, 0.0)), ops.add(rest, scaled), rest)


def fmod(ops: Ops[V], x: V, y: V) -> V:
    """x - y * trunc(x / y), exact, with the sign of x; C's fmod."""
    if ops.bits(x) == 32:  # the remainder of two float32s is one
        return ops.narrow(fmod(ops, ops.widen(x), ops.widen(y)))
    zero, one, infinity = ops.const(x, 0.0), ops.const(x, 1.0), ops.const(x, math.inf)
    top, bottom = ops.abs(x), ops.abs(y)
    usual = ops.both(ops.lt(top, infinity), ops.lt(zero, bottom))
    start = ops.select(usual, top, zero)
    divisor = ops.select(ops.both(usual, ops.lt(bottom, infinity)), bottom, infinity)

    def left(state: tuple[V, ...]) -> V:
        return ops.le(divisor, state[0])

    def step(state: tuple[V, ...]) -> tuple[V, ...]:
        rest = state[0]
        active = ops.le(divisor, rest)
        safe = ops.select(active, divisor, one)
        return (ops.select(active, _fmod_step(ops, rest, safe), rest),)

    (rest,) = ops.while_any((start,), left, step)
    return ops.select(usual, ops.copysign(rest, x), ops.const(x, math.nan))


def floor_mod(ops: Ops[V], x: V, y: V) -> V:
    """The remainder with the sign of `y`: Python's %. Rounded once where signs differ."""
    rest = fmod(ops, x, y)
    zero = ops.const(x, 0.0)
    opposite = ops.either(
        ops.both(ops.lt(rest, zero), ops.lt(zero, y)),
        ops.both(ops.lt(zero, rest), ops.lt(y, zero)),
    )
    rest = ops.select(opposite, ops.add(rest, y), rest)
    return ops.select(ops.eq(rest, zero), ops.copysign(rest, y), rest)


def floor_divide(ops: Ops[V], x: V, y: V) -> V:
    """floor(x / y), consistent with `floor_mod` as in Python and NumPy; x / y where y is zero."""
    zero, one = ops.const(x, 0.0), ops.const(x, 1.0)
    rest = fmod(ops, x, y)
    quotient = ops.div(ops.sub(x, rest), y)
    opposite = ops.either(
        ops.both(ops.lt(rest, zero), ops.lt(zero, y)),
        ops.both(ops.lt(zero, rest), ops.lt(y, zero)),
    )
    quotient = ops.select(opposite, ops.sub(quotient, one), quotient)
    whole = ops.floor(quotient)  # the quotient is whole but for rounding; bring it to the nearest
    above = ops.lt(ops.const(x, 0.5), ops.sub(quotient, whole))
    whole = ops.select(above, ops.add(whole, one), whole)
    plain = ops.div(x, y)
    whole = ops.select(ops.eq(quotient, zero), ops.copysign(zero, plain), whole)
    return ops.select(ops.eq(y, zero), plain, whole)


FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    function.__name__: (function, arguments)
    for arguments, functions in (
        (1, (exp, exp2, expm1, log, log2, log10, log1p, sin, cos, tan, asin, acos, atan)),
        (1, (sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc, sigmoid, cbrt)),
        (2, (pow, atan2, fmod, floor_mod, floor_divide)),
    )
    for function in functions
}
"""Name to (function, number of arguments)."""
