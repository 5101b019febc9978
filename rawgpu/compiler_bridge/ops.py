"""What a code generator offers so that the elementary functions can be written once.

`maths.py` and its parts are functions over an `Ops`: run over LLVM values they print code
(`maths_llvm.py`), over NumPy arrays they compute (`maths_numpy.py`), and both give the same bits. A
value has a float or an integer type of 32 or 64 bits, in any number of lanes; `like` arguments pass
the type on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

V = TypeVar("V")


class Ops(Protocol[V]):
    """Operations on values of type V. Float operations round to nearest even and keep denormals."""

    def bits(self, x: V) -> int:
        """Width of one lane: 32 or 64."""
        ...

    def const(self, like: V, number: float) -> V:
        """A float constant with the width and lanes of `like`, which may be float or integer."""
        ...

    def iconst(self, like: V, number: int) -> V:
        """An integer constant with the width and lanes of `like`."""
        ...

    # Float arithmetic

    def add(self, a: V, b: V) -> V: ...
    def sub(self, a: V, b: V) -> V: ...
    def mul(self, a: V, b: V) -> V: ...
    def div(self, a: V, b: V) -> V: ...

    def fma(self, a: V, b: V, c: V) -> V:
        """a * b + c, rounded once."""
        ...

    def sqrt(self, x: V) -> V: ...
    def neg(self, x: V) -> V: ...
    def abs(self, x: V) -> V: ...

    def copysign(self, x: V, sign: V) -> V:
        """`x` with the sign bit of `sign`."""
        ...

    def floor(self, x: V) -> V: ...
    def trunc(self, x: V) -> V: ...

    def roundeven(self, x: V) -> V:
        """Nearest whole number, ties to even."""
        ...

    def lt(self, a: V, b: V) -> V:
        """a < b; false when either is NaN."""
        ...

    def le(self, a: V, b: V) -> V:
        """a <= b; false when either is NaN."""
        ...

    def eq(self, a: V, b: V) -> V:
        """a == b; false when either is NaN."""
        ...

    # Integers: two's complement, wrapping; shift counts are below the width

    def iadd(self, a: V, b: V) -> V: ...
    def isub(self, a: V, b: V) -> V: ...
    def imul(self, a: V, b: V) -> V: ...
    def iand(self, a: V, b: V) -> V: ...
    def ior(self, a: V, b: V) -> V: ...
    def ixor(self, a: V, b: V) -> V: ...
    def shl(self, a: V, count: int) -> V: ...
    def lshr(self, a: V, count: int) -> V: ...
    def ashr(self, a: V, count: int) -> V: ...
    def shl_by(self, a: V, count: V) -> V: ...
    def lshr_by(self, a: V, count: V) -> V: ...

    def ieq(self, a: V, b: V) -> V: ...
    def ilt(self, a: V, b: V) -> V:
        """a < b, signed."""
        ...

    def ult(self, a: V, b: V) -> V:
        """a < b, unsigned."""
        ...

    # Conditions

    def select(self, condition: V, a: V, b: V) -> V:
        """`a` where `condition`, else `b`; floats or integers."""
        ...

    def both(self, a: V, b: V) -> V:
        """Logical and of conditions."""
        ...

    def either(self, a: V, b: V) -> V:
        """Logical or of conditions."""
        ...

    def invert(self, a: V) -> V:
        """Logical not of a condition."""
        ...

    # Conversions

    def to_bits(self, x: V) -> V:
        """The bits of a float as an integer of its width."""
        ...

    def from_bits(self, x: V) -> V:
        """The float of an integer's bits."""
        ...

    def to_int(self, x: V) -> V:
        """A float's whole part as a signed integer of its width; undefined if it does not fit."""
        ...

    def to_float(self, x: V) -> V:
        """A signed integer as a float of its width."""
        ...

    def widen(self, x: V) -> V:
        """float32 to float64."""
        ...

    def narrow(self, x: V) -> V:
        """float64 to float32, rounded to nearest even."""
        ...

    def iwiden(self, x: V) -> V:
        """32-bit integer to 64 bits, with zeros."""
        ...

    def inarrow(self, x: V) -> V:
        """Low 32 bits of a 64-bit integer."""
        ...

    # Tables and rare paths

    def gather(self, name: str, numbers: Sequence[float], index: V) -> V:
        """Float64 entries of the constant table `name` at a 64-bit `index` within its bounds."""
        ...

    def scale(self, x: V, power: V) -> V:
        """x * 2**power, rounded once; `power` is a whole float of at most twice the exponent range.

        `x` is in [0.5, 4) or so, NaN or infinite. A NaN `power` gives NaN if `x` is NaN too.
        """
        ...

    def scale_or_zero(self, x: V, power: V, nothing: V) -> V:
        """`scale`, but +0 where `nothing`, whatever `x` and `power` are there."""
        ...

    def where(
        self, condition: V, rare: Callable[[], tuple[V, ...]], usual: tuple[V, ...]
    ) -> tuple[V, ...]:
        """`rare()` where `condition`, else `usual`. May skip `rare` if no lane needs it."""
        ...

    def while_any(
        self,
        state: tuple[V, ...],
        condition: Callable[[tuple[V, ...]], V],
        body: Callable[[tuple[V, ...]], tuple[V, ...]],
    ) -> tuple[V, ...]:
        """Repeat `body` while `condition` holds in some lane; it must leave the others alone."""
        ...


def poly(ops: Ops[V], x: V, coefficients: Sequence[float]) -> V:
    """c[0] + c[1]*x + c[2]*x**2 + ..., by Horner with fma; at least two coefficients."""
    result = ops.const(x, coefficients[-1])
    for number in reversed(coefficients[:-1]):
        result = ops.fma(result, x, ops.const(x, number))
    return result


def poly_estrin(ops: Ops[V], x: V, coefficients: Sequence[float]) -> V:
    """The same polynomial in a tree of depth log2(n): shorter waits, a few more multiplies."""
    terms = [ops.const(x, number) for number in coefficients]
    power = x
    while len(terms) > 1:
        pairs = [ops.fma(b, power, a) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + ([terms[-1]] if len(terms) % 2 else [])
        if len(terms) > 1:
            power = ops.mul(power, power)
    return terms[0]


def clamp(ops: Ops[V], x: V, low: float, high: float) -> V:
    """`x` kept within [low, high]; NaN stays NaN. Two instructions (vmaxps, vminps) on x86."""
    bottom, top = ops.const(x, low), ops.const(x, high)
    x = ops.select(ops.lt(x, bottom), bottom, x)
    return ops.select(ops.lt(top, x), top, x)


def is_nan(ops: Ops[V], x: V) -> V:
    """Whether `x` is NaN."""
    return ops.invert(ops.eq(x, x))


MAGIC_32 = 1.5 * 2.0**23
MAGIC_64 = 1.5 * 2.0**52


def round_to_int(ops: Ops[V], x: V) -> tuple[V, V]:
    """(nearest whole number as float, as integer) for |x| < 2**22 (2**51 in float64).

    Adding 1.5 * 2**23 rounds to even and leaves the number in the low bits; unlike a conversion
    this is defined for NaN, whose integer is then any.
    """
    magic = ops.const(x, MAGIC_32 if ops.bits(x) == 32 else MAGIC_64)
    shifted = ops.add(x, magic)
    whole = ops.sub(shifted, magic)
    return whole, ops.isub(ops.to_bits(shifted), ops.to_bits(magic))


def scale_by_multiplying(ops: Ops[V], x: V, power: V) -> V:
    """`Ops.scale` for a machine without such an instruction: two exact powers of two.

    Halving the power keeps both factors normal; the first product is exact for x near 1, so the
    second rounds once, also into the denormals.
    """
    _, number = round_to_int(ops, power)
    half = ops.ashr(number, 1)
    first, second = power_of_two(ops, half), power_of_two(ops, ops.isub(number, half))
    return ops.mul(ops.mul(x, first), second)


def scale_but_where(ops: Ops[V], x: V, power: V, nothing: V) -> V:
    """`Ops.scale_or_zero` for a machine that cannot leave lanes out."""
    zero = ops.const(x, 0.0)
    return ops.select(nothing, zero, ops.scale(x, ops.select(nothing, zero, power)))


def power_of_two(ops: Ops[V], power: V) -> V:
    """2.0**power for an integer `power` whose result is a normal float."""
    mantissa, bias = (23, 127) if ops.bits(power) == 32 else (52, 1023)
    return ops.from_bits(ops.shl(ops.iadd(power, ops.iconst(power, bias)), mantissa))


def two_sum(ops: Ops[V], a: V, b: V) -> tuple[V, V]:
    """a + b as a rounded sum and its error, exactly (Knuth)."""
    total = ops.add(a, b)
    shadow = ops.sub(total, a)
    return total, ops.add(ops.sub(a, ops.sub(total, shadow)), ops.sub(b, shadow))


def fast_two_sum(ops: Ops[V], a: V, b: V) -> tuple[V, V]:
    """The same for |a| >= |b| or a == 0 (Dekker)."""
    total = ops.add(a, b)
    return total, ops.sub(b, ops.sub(total, a))


def two_product(ops: Ops[V], a: V, b: V) -> tuple[V, V]:
    """a * b as a rounded product and its error, exactly."""
    product = ops.mul(a, b)
    return product, ops.fma(a, b, ops.neg(product))


def sigmoid_of(ops: Ops[V], x: V, e: V) -> V:
    """1 / (1 + exp(-x)), given e = exp(-|x|): the quotient loses nothing of its own.

    One division gives the reciprocal; the errors of 1 + e and of the quotient are put right after.
    """
    one = ops.const(x, 1.0)
    top = ops.select(ops.lt(x, ops.const(x, 0.0)), e, one)
    bottom, lost = fast_two_sum(ops, one, e)
    inverse = ops.div(one, bottom)
    quotient = ops.mul(top, inverse)
    rest = ops.fma(ops.neg(quotient), bottom, top)
    rest = ops.fma(ops.neg(quotient), lost, rest)
    return ops.fma(rest, inverse, quotient)
