"""The words for division in steps, sines of large angles and cube maps. See `meaning.py`."""

from __future__ import annotations

import math
from functools import cache

from rawgpu.virtual.meaning import Raw, Typed
from rawgpu.virtual.meaning_float import BIAS, MANTISSA, FloatWords

NEAR_LARGEST = {32: 96, 64: 768}
"""Exponents of numerator and denominator so far apart that the quotient may overflow on the way."""
SCALE = {32: 64, 64: 128}
FAR_APART = {16: 1 << 20, 32: 150, 64: 1075}
"""Exponents so far apart that the quotient is 0."""
PI_BITS = 1201


@cache
def two_over_pi() -> int:
    """The first 1201 bits of 2/π after the point, by Machin's formula in whole numbers."""
    one = 1 << (2 * PI_BITS + 64)

    def arctangent_of_inverse(n: int) -> int:
        power = total = one // n
        for k in range(3, 2 * PI_BITS, 2):
            power //= -n * n
            total += power // k
        return total

    pi = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return (2 * one << PI_BITS) // pi


class DivisionWords(FloatWords):
    """Division, 2/π and cube maps.

    Sources: AMD's ISA documents, V_DIV_SCALE to V_DIV_FIXUP, V_TRIG_PREOP, V_CUBEID and others;
    where they err, `rawgpu/amd/spec/isa/ERRATA.md`.
    """

    def _exponent_field(self, x: Typed) -> Raw:
        """The exponent's bits, 32 bits wide."""
        bits, ops = x.bits, self.ops
        width = bits - 1 - MANTISSA[bits]
        raw = self._u("lshr", bits, ops.to_bits(x.raw, bits), MANTISSA[bits])
        return ops.resize(self._u("and", bits, raw, (1 << width) - 1), bits, 32, signed=False)

    def _is_zero_float(self, x: Typed) -> Raw:
        return self.ops.compare("oeq", x.bits, x.raw, self.fconst(x, 0.0))

    def _cases(self, denominator: Typed, numerator: Typed) -> dict[str, Raw]:
        """What of the two decides about scaling; conditions."""
        ops, bits = self.ops, denominator.bits
        n, d = self._exponent_field(numerator), self._exponent_field(denominator)
        apart = ops.binary("sub", 32, n, d)
        size = ops.unary("fabs", bits, denominator.raw)
        quotient = ops.binary("fdiv", bits, numerator.raw, denominator.raw)
        least = self.fconst(numerator, 2.0 ** (1 - BIAS[bits]))
        most = self.fconst(numerator, 2.0 ** (BIAS[bits] - 1))
        near = ops.const("u", 32, NEAR_LARGEST[bits] - 1)
        return {
            "zero": ops.either(
                self._is_zero_float(numerator), self._is_zero_float(denominator)
            ),
            "large": ops.compare("slt", 32, near, apart),
            "denormal": ops.compare("eq", 32, d, ops.const("u", 32, 0)),
            "small inverse": ops.compare("olt", bits, most, size),
            "small quotient": ops.compare(
                "olt", bits, ops.unary("fabs", bits, quotient), least
            ),
            "tiny": ops.compare("ule", 32, n, ops.const("u", 32, MANTISSA[bits] + (bits == 64))),
        }  # fmt: skip

    def word_div_scale(self, x: Typed, denominator: Typed, numerator: Typed) -> Typed:
        ops, bits, cases = self.ops, x.bits, self._cases(denominator, numerator)
        up = ops.binary("fmul", bits, x.raw, self.fconst(x, 2.0 ** SCALE[bits]))
        down = ops.binary("fmul", bits, x.raw, self.fconst(x, 2.0 ** -SCALE[bits]))
        below = ops.compare("oeq", bits, x.raw, denominator.raw)
        above = ops.compare("oeq", bits, x.raw, numerator.raw)
        raw = ops.select(cases["tiny"], up, x.raw)
        raw = ops.select(cases["small quotient"], ops.select(above, up, x.raw), raw)
        inverse = ops.select(cases["small quotient"], ops.select(below, down, x.raw), down)
        raw = ops.select(cases["small inverse"], inverse, raw)
        raw = ops.select(cases["denormal"], up, raw)
        raw = ops.select(cases["large"], ops.select(below, up, x.raw), raw)
        raw = ops.select(cases["zero"], self.fconst(x, math.nan), raw)
        return self.f(bits, raw)

    def word_div_scale_flag(self, x: Typed, denominator: Typed, numerator: Typed) -> Typed:
        ops, cases = self.ops, self._cases(denominator, numerator)
        small = ops.both(cases["small quotient"], ops.invert(cases["denormal"]))
        flag = ops.either(cases["large"], small)
        return Typed("b", 1, ops.both(flag, ops.invert(cases["zero"])))

    def word_div_fmas(self, x: Typed, y: Typed, z: Typed, flag: Typed) -> Typed:
        ops, bits, power = self.ops, x.bits, SCALE[x.bits]
        total = ops.fma(bits, x.raw, y.raw, z.raw)
        rest = ops.fma(bits, x.raw, y.raw, ops.binary("fsub", bits, z.raw, total))
        large = ops.compare("ult", 32, ops.const("u", 32, BIAS[bits]), self._exponent_field(z))
        up = ops.binary("fmul", bits, total, self.fconst(x, 2.0**power))
        scaled = ops.select(large, up, self._scaled_down(x, total, rest))
        return self.rounded(self.f(bits, ops.select(self.truth(flag), scaled, total)))

    def _scaled_down(self, x: Typed, total: Raw, rest: Raw) -> Raw:
        """`total` + `rest` times a power of two, rounded once.

        Where `total` lies half-way between two denormals, `rest` decides.
        """
        ops, bits, power = self.ops, x.bits, SCALE[x.bits]
        down = ops.binary("fmul", bits, total, self.fconst(x, 2.0**-power))
        back = ops.binary("fmul", bits, down, self.fconst(x, 2.0**power))
        over = ops.binary("fsub", bits, total, back)
        half = self.fconst(x, 2.0 ** (power - BIAS[bits] - MANTISSA[bits]))
        tie = ops.compare("oeq", bits, ops.unary("fabs", bits, over), half)
        one_sign = ops.binary("xor", bits, ops.to_bits(over, bits), ops.to_bits(rest, bits))
        alike = ops.compare("slt", bits, ops.const("u", bits, (1 << bits) - 1), one_sign)
        alike = ops.both(alike, ops.compare("une", bits, rest, self.fconst(x, 0.0)))
        beyond = ops.both(tie, alike)
        pattern = ops.to_bits(down, bits)
        sign = ops.binary("xor", bits, ops.to_bits(over, bits), ops.to_bits(total, bits))
        inward = ops.compare("slt", bits, sign, ops.const("u", bits, 0))
        one, minus = ops.const("u", bits, 1), ops.const("u", bits, (1 << bits) - 1)
        moved = ops.binary("add", bits, pattern, ops.select(inward, minus, one))
        return ops.to_float(ops.select(beyond, moved, pattern), bits)

    def word_div_fixup(self, q: Typed, denominator: Typed, numerator: Typed) -> Typed:
        ops, bits = self.ops, q.bits
        top = 1 << (bits - 1)
        n, d = (ops.to_bits(v.raw, bits) for v in (numerator, denominator))
        sign = self._u("and", bits, ops.binary("xor", bits, n, d), top)

        def signed(size: Raw) -> Raw:
            body = self._u("and", bits, ops.to_bits(size, bits), top - 1)
            return ops.to_float(ops.binary("or", bits, body, sign), bits)

        infinity, zero = self.fconst(q, math.inf), self.fconst(q, 0.0)
        apart = ops.binary(
            "sub", 32, self._exponent_field(numerator), self._exponent_field(denominator)
        )
        raw = ops.select(self._isnan(q), signed(infinity), signed(q.raw))
        far = ops.const("u", 32, -FAR_APART[bits])
        raw = ops.select(ops.compare("slt", 32, apart, far), signed(zero), raw)
        n_zero, d_zero = self._is_zero_float(numerator), self._is_zero_float(denominator)
        n_inf, d_inf = (
            ops.compare("oeq", bits, ops.unary("fabs", bits, v.raw), infinity)
            for v in (numerator, denominator)
        )
        raw = ops.select(ops.either(d_inf, n_zero), signed(zero), raw)
        raw = ops.select(ops.either(d_zero, n_inf), signed(infinity), raw)
        invalid = ops.either(ops.both(n_zero, d_zero), ops.both(n_inf, d_inf))
        ones = (1 << bits) - (1 << (MANTISSA[bits] - 1))  # sign, exponent, quiet bit
        nan = ops.to_float(ops.const("u", bits, ones), bits)
        raw = ops.select(invalid, nan, raw)
        raw = ops.select(self._isnan(denominator), self._quiet(denominator), raw)
        raw = ops.select(self._isnan(numerator), self._quiet(numerator), raw)
        return self.flushed(self.f(bits, raw))

    def word_trig_preop(self, x: Typed, segment: Typed) -> Typed:
        """53 bits of 2/π from a place that the exponent and the segment's number choose."""
        ops = self.ops
        exponent = self._exponent_field(x)
        over = ops.binary("smax", 32, self._u("sub", 32, exponent, 1077), ops.const("u", 32, 0))
        at = self._u("mul", 32, self.as_bits(segment, 32), 53)
        shift = ops.binary("add", 32, at, over)
        window = self._pi_window(shift)
        value = ops.int_to_float(window, 64, 64, signed=False)
        scale = ops.binary("sub", 32, ops.const("u", 32, -53), shift)
        large = ops.compare("ule", 32, ops.const("u", 32, 1968), exponent)
        scale = ops.select(large, self._u("add", 32, scale, 128), scale)
        return self.word_ldexp(self.f(64, value), Typed("i", 32, scale))

    def _pi_window(self, shift: Raw) -> Raw:
        """Bits `shift` to `shift` + 52 of 2/π, counted from the point; zeros past the last."""
        ops, words = self.ops, -(-PI_BITS // 64) + 1
        bits = two_over_pi() << (64 * words - PI_BITS)
        table = [bits >> (64 * (words - 1 - i)) & ((1 << 64) - 1) for i in range(words)]
        place = self._u("lshr", 32, shift, 6)
        high = low = ops.const("u", 64, 0)
        for i, word in enumerate(table):
            here = ops.compare("eq", 32, place, ops.const("u", 32, i))
            high = ops.select(here, ops.const("u", 64, word), high)
            if i + 1 < words:
                low = ops.select(here, ops.const("u", 64, table[i + 1]), low)
        count = ops.resize(self._u("and", 32, shift, 63), 32, 64, signed=False)
        rest = ops.binary("sub", 64, ops.const("u", 64, 63), count)
        upper = ops.binary("shl", 64, high, count)
        lower = ops.binary("lshr", 64, self._u("lshr", 64, low, 1), rest)
        return self._u("lshr", 64, ops.binary("or", 64, upper, lower), 11)

    # Cube maps: the axis with the largest size decides, z before y before x.

    def _cube(self, x: Typed, y: Typed, z: Typed, results: tuple[Typed, ...]) -> Typed:
        """One of: z positive, z negative, y positive, y negative, x positive, x negative."""
        ops = self.ops
        ax, ay, az = (ops.unary("fabs", 32, v.raw) for v in (x, y, z))
        by_z = ops.both(ops.compare("ole", 32, ax, az), ops.compare("ole", 32, ay, az))
        by_y = ops.compare("ole", 32, ax, ay)

        def pick(v: Typed, positive: Typed, negative: Typed) -> Raw:
            below = ops.compare("olt", 32, v.raw, self.fconst(v, 0.0))
            return ops.select(below, negative.raw, positive.raw)

        raw = ops.select(by_y, pick(y, *results[2:4]), pick(x, *results[4:6]))
        return self.f(32, ops.select(by_z, pick(z, *results[0:2]), raw))

    def _minus(self, x: Typed) -> Typed:
        return self.f(x.bits, self.ops.unary("fneg", x.bits, x.raw))

    def word_cube_id(self, x: Typed, y: Typed, z: Typed) -> Typed:
        faces = tuple(self.const("f", 32, face) for face in (4.0, 5.0, 2.0, 3.0, 0.0, 1.0))
        return self._cube(x, y, z, faces)

    def word_cube_sc(self, x: Typed, y: Typed, z: Typed) -> Typed:
        return self._cube(x, y, z, (x, self._minus(x), x, x, self._minus(z), z))

    def word_cube_tc(self, x: Typed, y: Typed, z: Typed) -> Typed:
        down = self._minus(y)
        return self._cube(x, y, z, (down, down, z, self._minus(z), down, down))

    def word_cube_ma(self, x: Typed, y: Typed, z: Typed) -> Typed:
        twice = [
            self.f(32, self.ops.binary("fmul", 32, v.raw, self.fconst(v, 2.0))) for v in (x, y, z)
        ]
        return self._cube(x, y, z, (twice[2], twice[2], twice[1], twice[1], twice[0], twice[0]))
