"""Small floats to float32 and back, by their bits: float16, bfloat16, and the two 8-bit formats.

LLVM turns these conversions into calls of a run-time library that is not there, except where the
machine has instructions (`fpext half` with F16C). Small floats are the low bits of 32-bit integers
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rawgpu.compiler_bridge.ops import Ops, V, is_nan


@dataclass(frozen=True)
class SmallFloat:
    """A binary format of at most 16 bits with a sign, IEEE 754 style but for `infinities`."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    infinities: bool = True
    """False: the highest exponent holds numbers too, and only all ones is NaN (OCP's e4m3fn)."""

    @property
    def bits(self) -> int:
        """Width."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """What is added to the exponent."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def exponent_mask(self) -> int:
        """All exponent bits, in place."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def nan(self) -> int:
        """The positive quiet NaN that conversions give."""
        if not self.infinities:
            return (1 << (self.bits - 1)) - 1
        return self.exponent_mask | 1 << (self.mantissa_bits - 1)


FLOAT16 = SmallFloat("float16", 5, 10)
BFLOAT16 = SmallFloat("bfloat16", 8, 7)
FLOAT8_E5M2 = SmallFloat("float8_e5m2", 5, 2)
FLOAT8_E4M3FN = SmallFloat("float8_e4m3fn", 4, 3, infinities=False)


def decode(ops: Ops[V], bits: V, form: SmallFloat) -> V:
    """The float32 of a small float in the low bits; higher bits are ignored. Exact."""
    sign = ops.iand(ops.shl(bits, 32 - form.bits), ops.iconst(bits, 0x8000_0000))
    magnitude = ops.iand(bits, ops.iconst(bits, (1 << (form.bits - 1)) - 1))
    shift = 23 - form.mantissa_bits
    raw = ops.shl(magnitude, shift)
    value = ops.from_bits(raw)
    if form.bias != 127:  # one multiplication moves the bias and makes denormals normal
        value = ops.mul(value, ops.const(value, 2.0 ** (127 - form.bias)))
        if form.infinities:
            special = ops.ult(ops.iconst(bits, form.exponent_mask - 1), magnitude)
            infinite = ops.from_bits(ops.ior(raw, ops.iconst(bits, 0x7F80_0000)))
            value = ops.select(special, infinite, value)
        else:
            special = ops.ieq(magnitude, ops.iconst(bits, form.nan))
            value = ops.select(special, ops.const(value, math.nan), value)
    return ops.from_bits(ops.ior(ops.to_bits(value), sign))


def encode(ops: Ops[V], x: V, form: SmallFloat) -> V:
    """A float32 as a small float, to nearest, ties to even; the bits as an integer of 32.

    Too large becomes infinity, or NaN in a format without it; NaN stays NaN.
    """
    bits = ops.to_bits(x)
    sign = ops.lshr(ops.iand(bits, ops.iconst(bits, 0x8000_0000)), 32 - form.bits)
    raw = ops.iand(bits, ops.iconst(bits, 0x7FFF_FFFF))
    magnitude = ops.from_bits(raw)
    shift = 23 - form.mantissa_bits
    even = ops.iand(ops.lshr(raw, shift), ops.iconst(bits, 1))
    rounded = ops.iadd(ops.iadd(raw, ops.iconst(bits, (1 << (shift - 1)) - 1)), even)
    rebias = (127 - form.bias) << form.mantissa_bits
    result = ops.isub(ops.lshr(rounded, shift), ops.iconst(bits, rebias))
    if form.bias != 127:
        # Below the normals: adding a power of two rounds at the right place, and the sum's low bits
        # are the answer.
        anchor = ops.const(x, 2.0 ** (1 - form.bias - form.mantissa_bits + 23))
        small = ops.isub(ops.to_bits(ops.add(magnitude, anchor)), ops.to_bits(anchor))
        least = ops.lt(magnitude, ops.const(x, 2.0 ** (1 - form.bias)))
        result = ops.select(least, small, result)
    over = form.exponent_mask if form.infinities else form.nan
    limit = ops.iconst(bits, over)
    result = ops.select(ops.ilt(limit, result), limit, result)
    result = ops.select(is_nan(ops, x), ops.iconst(bits, form.nan), result)
    return ops.ior(result, sign)
