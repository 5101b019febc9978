"""The words on floats. See `meaning.py`."""

from __future__ import annotations

import math

from rawgpu.virtual.meaning import Raw, Typed
from rawgpu.virtual.meaning_bits import BitWords

MANTISSA = {16: 10, 32: 23, 64: 52}
BIAS = {16: 15, 32: 127, 64: 1023}
CLASSES = 10
"""Signalling NaN, quiet NaN, then from -infinity up to +infinity: the bits of a class mask."""


class FloatWords(BitWords):
    """Float arithmetic, conversions, kinds of floats."""

    flush: frozenset[int] = frozenset()
    """The widths at which the mode flushes denormals."""

    def f(self, bits: int, raw: Raw) -> Typed:
        return Typed("f", bits, raw)

    def flushed(self, x: Typed) -> Typed:
        if x.kind != "f" or x.bits not in self.flush:
            return x
        small = self.const("f", x.bits, 2.0 ** (1 - BIAS[x.bits]))
        size = self.ops.unary("fabs", x.bits, x.raw)
        tiny = self.ops.compare("olt", x.bits, size, small.raw)
        sign = self._u("and", x.bits, self.ops.to_bits(x.raw, x.bits), 1 << (x.bits - 1))
        return self.f(x.bits, self.ops.select(tiny, self.ops.to_float(sign, x.bits), x.raw))

    def fconst(self, x: Typed, number: float) -> Raw:
        return self.ops.const("f", x.bits, number)

    def _isnan(self, x: Typed) -> Raw:
        return self.ops.compare("uno", x.bits, x.raw, x.raw)

    # Arithmetic.

    def word_fma(self, x: Typed, y: Typed, z: Typed) -> Typed:
        return self.rounded(self.f(x.bits, self.arithmetic.fma(x.bits, x.raw, y.raw, z.raw)))

    def word_mul_add(self, x: Typed, y: Typed, z: Typed) -> Typed:
        product = self.rounded(self.f(x.bits, self.arithmetic.binary("fmul", x.bits, x.raw, y.raw)))
        return self.rounded(
            self.f(x.bits, self.arithmetic.binary("fadd", x.bits, product.raw, z.raw))
        )

    def _either_zero(self, x: Typed, y: Typed) -> Raw:
        zero = self.fconst(x, 0.0)
        return self.ops.either(
            self.ops.compare("oeq", x.bits, x.raw, zero),
            self.ops.compare("oeq", x.bits, y.raw, zero),
        )

    def word_mul_zero(self, x: Typed, y: Typed) -> Typed:
        product = self.arithmetic.binary("fmul", x.bits, x.raw, y.raw)
        zero = self.fconst(x, 0.0)
        raw = self.ops.select(self._either_zero(x, y), zero, product)
        return self.rounded(self.f(x.bits, raw))

    def word_fma_zero(self, x: Typed, y: Typed, z: Typed) -> Typed:
        plain = self.arithmetic.fma(x.bits, x.raw, y.raw, z.raw)
        raw = self.ops.select(self._either_zero(x, y), z.raw, plain)
        return self.rounded(self.f(x.bits, raw))

    def _quiet(self, x: Typed) -> Raw:
        """The same, a signalling NaN made quiet."""
        bit = 1 << (MANTISSA[x.bits] - 1)
        quiet = self._u("or", x.bits, self.ops.to_bits(x.raw, x.bits), bit)
        return self.ops.select(self._isnan(x), self.ops.to_float(quiet, x.bits), x.raw)

    def _extreme(self, which: str, x: Typed, y: Typed, *, number_wins: bool) -> Typed:
        if x.kind != "f":
            return self._order(which, x, y)
        ops, bits = self.ops, x.bits
        less = ops.compare("olt", bits, x.raw, y.raw)
        a, b = ops.to_bits(x.raw, bits), ops.to_bits(y.raw, bits)
        equal = ops.compare("oeq", bits, x.raw, y.raw)
        merged = ops.to_float(ops.binary("or" if which == "min" else "and", bits, a, b), bits)
        low = ops.select(less, x.raw, y.raw)
        high = ops.select(less, y.raw, x.raw)
        picked = ops.select(equal, merged, low if which == "min" else high)
        quiet_x, quiet_y = self._quiet(x), self._quiet(y)
        if number_wins:
            picked = ops.select(self._isnan(y), quiet_x, picked)
            picked = ops.select(ops.both(self._isnan(x), ops.invert(self._isnan(y))), y.raw, picked)
        else:
            picked = ops.select(self._isnan(y), quiet_y, picked)
            picked = ops.select(self._isnan(x), quiet_x, picked)
        return self.f(bits, picked)

    def word_minimum(self, x: Typed, y: Typed) -> Typed:
        return self._extreme("min", x, y, number_wins=False)

    def word_maximum(self, x: Typed, y: Typed) -> Typed:
        return self._extreme("max", x, y, number_wins=False)

    def word_min_num(self, x: Typed, y: Typed) -> Typed:
        return self._extreme("min", x, y, number_wins=True)

    def word_max_num(self, x: Typed, y: Typed) -> Typed:
        return self._extreme("max", x, y, number_wins=True)

    def word_med3(self, x: Typed, y: Typed, z: Typed) -> Typed:
        low, high = self.word_min_num(x, y), self.word_max_num(x, y)
        middle = self.word_max_num(low, self.word_min_num(high, z))
        if x.kind != "f":
            return middle
        least = self.word_min_num(low, z)
        nan = self.ops.either(self._isnan(x), self.ops.either(self._isnan(y), self._isnan(z)))
        return self.f(x.bits, self.ops.select(nan, least.raw, middle.raw))

    def word_absolute(self, x: Typed) -> Typed:
        if x.kind == "f":
            return self.f(x.bits, self.ops.unary("fabs", x.bits, x.raw))
        zero = self.ops.const("u", x.bits, 0)
        negative = self.ops.binary("sub", x.bits, zero, x.raw)
        return Typed("u", x.bits, self.ops.binary("smax", x.bits, x.raw, negative))

    def word_canonicalize(self, x: Typed) -> Typed:
        return self.rounded(self.f(x.bits, self._quiet(x)))

    def word_ordered(self, x: Typed, y: Typed) -> Typed:
        return Typed("b", 1, self.ops.compare("ord", x.bits, x.raw, y.raw))

    def word_unordered(self, x: Typed, y: Typed) -> Typed:
        return Typed("b", 1, self.ops.compare("uno", x.bits, x.raw, y.raw))

    def _round(self, op: str, x: Typed) -> Typed:
        return self.f(x.bits, self.ops.unary(op, x.bits, x.raw))

    def word_floor(self, x: Typed) -> Typed:
        return self._round("floor", x)

    def word_ceil(self, x: Typed) -> Typed:
        return self._round("ceil", x)

    def word_trunc(self, x: Typed) -> Typed:
        return self._round("trunc", x)

    def word_rint(self, x: Typed) -> Typed:
        return self._round("roundeven", x)

    def word_fract(self, x: Typed) -> Typed:
        low = self.ops.unary("floor", x.bits, x.raw)
        rest = self.ops.binary("fsub", x.bits, x.raw, low)
        below = 1.0 - 2.0 ** -(MANTISSA[x.bits] + 1)
        over = self.ops.compare("olt", x.bits, self.fconst(x, below), rest)
        return self.f(x.bits, self.ops.select(over, self.fconst(x, below), rest))

    # Elementary functions: our own, within the hardware's error.

    def _maths(self, name: str, x: Typed) -> Typed:
        if x.bits != 16:
            return self.rounded(self.f(x.bits, self.ops.maths(name, x.bits, x.raw)))
        wide = self.ops.float_resize(x.raw, 16, 32)
        result = self.ops.maths(name, 32, wide)
        return self.rounded(self.f(16, self.ops.float_resize(result, 32, 16)))

    def word_exp2(self, x: Typed) -> Typed:
        return self._maths("exp2", x)

    def word_log2(self, x: Typed) -> Typed:
        return self._maths("log2", x)

    def word_tanh(self, x: Typed) -> Typed:
        return self._maths("tanh", x)

    def _turns(self, name: str, x: Typed) -> Typed:
        fraction = self.word_fract(x)
        raw = self.ops.binary("fmul", x.bits, fraction.raw, self.fconst(x, 2 * math.pi))
        return self._maths(name, self.f(x.bits, raw))

    def word_sin_turns(self, x: Typed) -> Typed:
        return self._turns("sin", x)

    def word_cos_turns(self, x: Typed) -> Typed:
        return self._turns("cos", x)

    def word_sqrt(self, x: Typed) -> Typed:
        return self.rounded(self.f(x.bits, self.ops.unary("sqrt", x.bits, x.raw)))

    def word_rcp(self, x: Typed) -> Typed:
        raw = self.ops.binary("fdiv", x.bits, self.fconst(x, 1.0), x.raw)
        return self.rounded(self.f(x.bits, raw))

    def word_rsq(self, x: Typed) -> Typed:
        root = self.ops.unary("sqrt", x.bits, x.raw)
        raw = self.ops.binary("fdiv", x.bits, self.fconst(x, 1.0), root)
        return self.rounded(self.f(x.bits, raw))

    # Exponents.

    def word_ldexp(self, x: Typed, n: Typed) -> Typed:
        """In three factors, chosen so that the last alone rounds.

        Source: musl 1.2, src/math/scalbn.c.
        """
        if x.bits == 16:
            wide = self.f(32, self.ops.float_resize(x.raw, 16, 32))
            near = self._u("smin", 32, self._u("smax", 32, self.as_bits(n, 32), -60), 60)
            scaled = self.ops.binary("fmul", 32, wide.raw, self._power(near, 32))
            return self.rounded(self.f(16, self.arithmetic.float_resize(scaled, 32, 16)))
        bits, top = x.bits, BIAS[x.bits]
        raw, count = x.raw, self.as_bits(n, 32)
        for _ in range(2):
            up = self.ops.compare("slt", 32, self.ops.const("u", 32, top), count)
            down = self.ops.compare("slt", 32, count, self.ops.const("u", 32, 1 - top))
            part = self.ops.select(up, self.ops.const("u", 32, top), self.ops.const("u", 32, 0))
            far = self.ops.const("u", 32, MANTISSA[bits] + 2 - top)
            part = self.ops.select(down, far, part)
            raw = self.ops.binary("fmul", bits, raw, self._power(part, bits))
            count = self.ops.binary("sub", 32, count, part)
        last = self._u("smin", 32, self._u("smax", 32, count, 1 - top), top)
        raw = self.arithmetic.binary("fmul", bits, raw, self._power(last, bits))
        return self.rounded(self.f(bits, raw))

    def _power(self, n: Raw, bits: int) -> Raw:
        """2 to the `n`, for normal results."""
        wide = self.ops.resize(n, 32, bits, signed=True)
        biased = self._u("add", bits, wide, BIAS[bits])
        return self.ops.to_float(self._u("shl", bits, biased, MANTISSA[bits]), bits)

    def _split(self, x: Typed) -> tuple[Raw, Raw]:
        """Mantissa in ±[0.5, 1) and exponent (32 bits), for finite numbers other than 0."""
        bits, ops = x.bits, self.ops
        up = self.fconst(x, 2.0 ** (MANTISSA[bits] + 1))
        small = ops.compare(
            "olt", bits, ops.unary("fabs", bits, x.raw), self.fconst(x, 2.0 ** (1 - BIAS[bits]))
        )
        scaled = ops.select(small, ops.binary("fmul", bits, x.raw, up), x.raw)
        pattern = ops.to_bits(scaled, bits)
        width = bits - 1 - MANTISSA[bits]
        field = self._u(
            "and", bits, self._u("lshr", bits, pattern, MANTISSA[bits]), (1 << width) - 1
        )
        exponent = self._u("sub", 32, ops.resize(field, bits, 32, signed=False), BIAS[bits] - 1)
        less = self._u("sub", 32, exponent, MANTISSA[bits] + 1)
        exponent = ops.select(small, less, exponent)
        keep = ~(((1 << width) - 1) << MANTISSA[bits]) & ((1 << bits) - 1)
        mantissa = self._u(
            "or", bits, self._u("and", bits, pattern, keep), (BIAS[bits] - 1) << MANTISSA[bits]
        )
        return ops.to_float(mantissa, bits), exponent

    def _is_special(self, x: Typed) -> Raw:
        """Zero, infinite or NaN."""
        size = self.ops.unary("fabs", x.bits, x.raw)
        finite = self.ops.compare("olt", x.bits, size, self.fconst(x, math.inf))
        zero = self.ops.compare("oeq", x.bits, size, self.fconst(x, 0.0))
        return self.ops.either(self.ops.invert(finite), zero)

    def word_frexp_mant(self, x: Typed) -> Typed:
        mantissa, _ = self._split(x)
        return self.f(x.bits, self.ops.select(self._is_special(x), self._quiet(x), mantissa))

    def word_frexp_exp(self, x: Typed) -> Typed:
        _, exponent = self._split(x)
        zero = self.ops.const("u", 32, 0)
        return Typed("i", 32, self.ops.select(self._is_special(x), zero, exponent))

    # Conversions.

    def _number_to_float(self, x: Typed, bits: int) -> Typed:
        if x.kind == "bf":
            x = self.f(32, x.raw)
        ops = self.arithmetic
        if x.kind == "f":
            raw = ops.float_resize(x.raw, x.bits, bits) if x.bits != bits else x.raw
            return self.rounded(self.f(bits, raw))
        x = self.solid(x)
        signed = x.kind == "i"
        if bits == 16 or x.bits < 32:
            x = self.view(x.kind, 32, x)
        if bits == 16:  # through float64, which holds every integer
            wide = self.ops.int_to_float(x.raw, 32, 64, signed=signed)
            return self.rounded(self.f(16, ops.float_resize(wide, 64, 16)))
        return self.f(bits, ops.int_to_float(x.raw, x.bits, bits, signed=signed))

    def word_to_f16(self, x: Typed) -> Typed:
        return self._number_to_float(x, 16)

    def word_to_f32(self, x: Typed) -> Typed:
        return self._number_to_float(x, 32)

    def word_to_f64(self, x: Typed) -> Typed:
        return self._number_to_float(x, 64)

    def word_bf16(self, x: Typed) -> Typed:
        up = self._u("shl", 32, self.as_bits(x, 32), 16)
        return Typed("bf", 16, self.ops.to_float(up, 32))

    def bfloat_bits(self, x: Typed) -> Typed:
        return self.word_to_bf16(self.f(32, x.raw))

    def word_to_bf16(self, x: Typed) -> Typed:
        bits = self.ops.to_bits(x.raw, 32)
        odd = self._u("and", 32, self._u("lshr", 32, bits, 16), 1)
        near = self.ops.binary("add", 32, self._u("add", 32, bits, 0x7FFF), odd)
        quiet = self._u("or", 32, bits, 1 << 22)
        picked = self._u("lshr", 32, self.ops.select(self._isnan(x), quiet, near), 16)
        return Typed("u", 16, self.ops.resize(picked, 32, 16, signed=False))

    def word_to_f16_rtz(self, x: Typed) -> Typed:
        """Clearing what a half cannot hold; a small number's steps are fixed."""
        ops = self.ops
        size = ops.unary("fabs", 32, x.raw)
        cut = self._u("and", 32, ops.to_bits(x.raw, 32), 0xFFFFE000)
        tiny = ops.compare("olt", 32, size, ops.const("f", 32, 2.0**-14))
        steps = ops.unary("trunc", 32, ops.binary("fmul", 32, x.raw, ops.const("f", 32, 2.0**24)))
        small = ops.binary("fmul", 32, steps, ops.const("f", 32, 2.0**-24))
        top = ops.const("f", 32, 65504.0)
        huge = ops.both(
            ops.compare("olt", 32, top, size),
            ops.compare("olt", 32, size, self.fconst(x, math.inf)),
        )
        sign = self._u("and", 32, ops.to_bits(x.raw, 32), 0x80000000)
        most = ops.to_float(ops.binary("or", 32, sign, ops.to_bits(top, 32)), 32)
        picked = ops.select(tiny, small, ops.to_float(cut, 32))
        picked = ops.select(self._isnan(x), self._quiet(x), ops.select(huge, most, picked))
        return self.f(16, ops.float_resize(picked, 32, 16))

    def _to_int(self, x: Typed, kind: str, bits: int) -> Typed:
        if x.bits == 16:
            x = self.f(32, self.ops.float_resize(x.raw, 16, 32))
        low = -(2.0 ** (bits - 1)) if kind == "i" else 0.0
        past = 2.0 ** (bits - (kind == "i"))
        ops = self.ops
        under = ops.compare("olt", x.bits, x.raw, self.fconst(x, low))
        over = ops.compare("ole", x.bits, self.fconst(x, past), x.raw)
        bad = ops.either(ops.either(under, over), self._isnan(x))
        safe = ops.select(bad, self.fconst(x, 0.0), x.raw)
        raw = ops.float_to_int(safe, x.bits, bits, signed=kind == "i")
        raw = ops.select(under, ops.const("u", bits, int(low)), raw)
        return Typed(kind, bits, ops.select(over, ops.const("u", bits, int(past) - 1), raw))

    def word_to_i16(self, x: Typed) -> Typed:
        return self._to_int(x, "i", 16)

    def word_to_u16(self, x: Typed) -> Typed:
        return self._to_int(x, "u", 16)

    def word_to_i32(self, x: Typed) -> Typed:
        return self._to_int(x, "i", 32)

    def word_to_u32(self, x: Typed) -> Typed:
        return self._to_int(x, "u", 32)

    def word_to_u8(self, x: Typed) -> Typed:
        return self._to_int(self.word_rint(x), "u", 8)

    def _normalised(self, x: Typed, kind: str) -> Typed:
        if x.bits == 16:
            x = self.f(32, self.ops.float_resize(x.raw, 16, 32))
        top = 32767.0 if kind == "i" else 65535.0
        low = self.fconst(x, -1.0 if kind == "i" else 0.0)
        raw = self._extreme("max", x, self.f(32, low), number_wins=True).raw
        raw = self._extreme(
            "min", self.f(32, raw), self.f(32, self.fconst(x, 1.0)), number_wins=True
        )
        scaled = self.f(32, self.ops.binary("fmul", 32, raw.raw, self.fconst(x, top)))
        zero_nan = self.ops.select(self._isnan(x), self.fconst(x, 0.0), scaled.raw)
        return self._to_int(self.word_rint(self.f(32, zero_nan)), kind, 16)

    def word_norm_i16(self, x: Typed) -> Typed:
        return self._normalised(x, "i")

    def word_norm_u16(self, x: Typed) -> Typed:
        return self._normalised(x, "u")

    # Kinds.

    def word_is_class(self, x: Typed, mask: Typed) -> Typed:
        ops, bits = self.ops, x.bits
        pattern = ops.to_bits(x.raw, bits)
        size = ops.unary("fabs", bits, x.raw)
        negative = ops.compare("slt", bits, pattern, ops.const("u", bits, 0))
        quiet = ops.compare(
            "ne", bits, self._u("and", bits, pattern, 1 << (MANTISSA[bits] - 1)),
            ops.const("u", bits, 0),
        )  # fmt: skip
        zero = ops.compare("oeq", bits, size, self.fconst(x, 0.0))
        infinite = ops.compare("oeq", bits, size, self.fconst(x, math.inf))
        small = ops.compare("olt", bits, size, self.fconst(x, 2.0 ** (1 - BIAS[bits])))
        place: Raw = ops.select(negative, ops.const("u", 32, 3), ops.const("u", 32, 8))
        for test, low, high in ((small, 4, 7), (zero, 5, 6), (infinite, 2, 9)):
            here = ops.select(negative, ops.const("u", 32, low), ops.const("u", 32, high))
            place = ops.select(test, here, place)
        nan = ops.select(quiet, ops.const("u", 32, 1), ops.const("u", 32, 0))
        place = ops.select(self._isnan(x), nan, place)
        bit = self._u("and", 32, ops.binary("lshr", 32, self.as_bits(mask, 32), place), 1)
        return Typed("b", 1, ops.compare("ne", 32, bit, ops.const("u", 32, 0)))

    # Sums of products of parts: in the order of the parts, each product and sum rounded once.

    def word_dot(
        self, x: Typed, y: Typed, z: Typed, kind: Typed, other: Typed | None = None
    ) -> Typed:
        name = str(kind.raw)
        if name[0] in "ui" and other is None and name[1:].isdigit():
            return self._integer_dot(x, y, z, (name[0], name[0]), int(name[1:]))
        return self._float_dot(x, y, z, (name, str(other.raw) if other else name))

    def _float_parts(self, x: Typed, name: str) -> list[Raw]:
        """The parts of 32 bits as float32."""
        if name in ("fp8", "bf8"):
            view = getattr(self, f"word_{name}")
            return [view(self.word_byte(x, Typed("n", 0, i))).raw for i in range(4)]
        halves = [self.word_half(x, Typed("n", 0, i)) for i in (0, 1)]
        views = [self.word_bf16(h) if name == "bf16" else self.view("f", 16, h) for h in halves]
        return [self._number_to_float(h, 32).raw for h in views]

    def _float_dot(self, x: Typed, y: Typed, z: Typed, names: tuple[str, str]) -> Typed:
        narrow = z.kind == "u" and z.bits == 16
        if z.kind == "f":
            start = z
        elif not narrow:
            start = self.view("f", 32, z)
        else:
            start = self.word_bf16(z) if names[0] == "bf16" else self.view("f", 16, z)
        total = self._number_to_float(start, 32).raw
        pairs = (self._float_parts(v, name) for v, name in zip((x, y), names, strict=True))
        for a, b in zip(*pairs, strict=True):
            total = self.ops.fma(32, a, b, total)
        return self.rounded(self.f(32, total))

    def word_mul_lit(self, x: Typed, y: Typed, z: Typed) -> Typed:
        """Source: RDNA3 ISA, V_MULLIT_F32."""
        ops, zero = self.ops, self.fconst(x, 0.0)
        least = self.fconst(x, -3.4028234663852886e38)
        lit = ops.both(ops.compare("olt", 32, least, y.raw), ops.compare("olt", 32, zero, z.raw))
        product = self.rounded(self.f(32, ops.binary("fmul", 32, x.raw, y.raw)))
        return self.f(32, ops.select(lit, product.raw, least))
