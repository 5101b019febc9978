"""The words on floats of 4, 6 and 8 bits, and the evaluator with all words. See `meaning.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rawgpu.describe.small_floats import OCP, SmallFloat
from rawgpu.virtual.meaning import NotInEngine, Raw, Typed
from rawgpu.virtual.meaning_division import DivisionWords

QUIET_NAN = 0x7FC00000
SOURCES = {"f32": 32, "f16": 16, "bf16": 16}


class SmallFloatWords(DivisionWords):
    """Conversions from and to small floats; those with a scale work on all parts of a value."""

    small_formats: Mapping[str, SmallFloat] = OCP
    saturates_small = False
    """What is too large becomes the largest number, not infinity or NaN."""

    def _format(self, name: str) -> SmallFloat:
        found = self.small_formats.get(name)
        if found is None:
            raise NotInEngine(name)
        return found

    # One number.

    def _from_small(self, code: Raw, form: SmallFloat) -> Raw:
        """A code (32 bits) as a float32.

        Read as a float32 with the small exponent it is off by a power of two, denormals too.
        """
        ops = self.ops
        body = self._u("and", 32, code, (1 << (form.bits - 1)) - 1)
        near = ops.to_float(self._u("shl", 32, body, 23 - form.mantissa), 32)
        size = ops.binary("fmul", 32, near, ops.const("f", 32, 2.0 ** (127 - form.bias)))
        sign = self._u("shl", 32, self._u("lshr", 32, code, form.bits - 1), 31)
        bits = ops.binary("or", 32, ops.to_bits(size, 32), self._u("and", 32, sign, 1 << 31))
        if form.infinity is not None:
            infinite = ops.compare("eq", 32, body, ops.const("u", 32, form.infinity))
            bits = ops.select(infinite, self._u("or", 32, sign, 0x7F800000), bits)
            nan = ops.compare("ult", 32, ops.const("u", 32, form.infinity), body)
        elif form.nan is not None:
            whole = code if form.specials == "fnuz" else body
            nan = ops.compare("eq", 32, whole, ops.const("u", 32, form.nan))
        else:
            return ops.to_float(bits, 32)
        return ops.to_float(ops.select(nan, ops.const("u", 32, QUIET_NAN), bits), 32)

    def _to_small(self, x: Raw, form: SmallFloat, random: Raw | None = None) -> Raw:
        """A float32 as a code of `form` (32 bits): to nearest even, or random bits added."""
        ops, m = self.ops, form.mantissa
        bits = ops.to_bits(x, 32)
        size_bits = self._u("and", 32, bits, 0x7FFFFFFF)
        size = ops.to_float(size_bits, 32)
        if random is None:
            near, small = self._nearest(size_bits, size, form)
        else:
            near, small = self._dithered(size_bits, size, form, random)
        low = ops.compare("olt", 32, size, ops.const("f", 32, 2.0 ** (1 - form.bias)))
        code = ops.select(low, small, self._u("sub", 32, near, (127 - form.bias) << m))
        over = ops.compare("ult", 32, ops.const("u", 32, form.largest), code)
        over = ops.both(over, ops.invert(low))
        code = ops.select(over, ops.const("u", 32, self._past_largest(form)), code)
        is_nan = ops.compare("uno", 32, x, x)
        infinite = ops.compare("oeq", 32, size, ops.const("f", 32, math.inf))
        past = form.infinity if form.infinity is not None else self._past_largest(form)
        code = ops.select(infinite, ops.const("u", 32, past), code)
        if form.nan is not None:
            code = ops.select(is_nan, ops.const("u", 32, form.nan), code)
        else:
            code = ops.select(is_nan, ops.const("u", 32, form.largest), code)
        return self._with_sign(code, bits, form)

    def _with_sign(self, code: Raw, bits: Raw, form: SmallFloat) -> Raw:
        ops = self.ops
        sign = self._u("lshr", 32, self._u("and", 32, bits, 1 << 31), 32 - form.bits)
        signed = ops.binary("or", 32, code, sign)
        if form.specials != "fnuz":
            return signed
        zero = ops.compare("eq", 32, code, ops.const("u", 32, 0))
        return ops.select(zero, code, signed)

    def _past_largest(self, form: SmallFloat) -> int:
        if self.saturates_small or form.nan is None:
            return form.largest
        return form.infinity if form.infinity is not None else form.nan

    def _nearest(self, bits: Raw, size: Raw, form: SmallFloat) -> tuple[Raw, Raw]:
        """Exponent and mantissa rounded, biased as a float32's; and the code of a small number.

        For small numbers a constant is added whose last place is the step.
        """
        ops, drop = self.ops, 23 - form.mantissa
        odd = self._u("and", 32, self._u("lshr", 32, bits, drop), 1)
        up = ops.binary("add", 32, self._u("add", 32, bits, (1 << (drop - 1)) - 1), odd)
        magic = ops.const("f", 32, 2.0 ** (1 - form.bias - form.mantissa + 23))
        total = ops.to_bits(ops.binary("fadd", 32, size, magic), 32)
        small = ops.binary("sub", 32, total, ops.to_bits(magic, 32))
        return self._u("lshr", 32, up, drop), small

    def _dithered(self, bits: Raw, size: Raw, form: SmallFloat, random: Raw) -> tuple[Raw, Raw]:
        """The same with the random number's top bits below the last place, then cut."""
        ops, drop = self.ops, 23 - form.mantissa
        extra = self._u("lshr", 32, random, 32 - drop)
        up = self._u("lshr", 32, ops.binary("add", 32, bits, extra), drop)
        steps = ops.const("f", 64, 2.0 ** (form.bias + form.mantissa - 1))
        exact = ops.binary("fmul", 64, ops.float_resize(size, 32, 64), steps)
        part = ops.int_to_float(extra, 32, 64, signed=False)
        part = ops.binary("fmul", 64, part, ops.const("f", 64, 2.0**-drop))
        total = ops.binary("fadd", 64, exact, part)
        top = ops.const("f", 64, float(2 << form.mantissa))
        inside = ops.compare("olt", 64, total, top)
        total = ops.select(inside, total, top)
        return up, ops.float_to_int(total, 64, 32, signed=False)

    def word_fp8(self, x: Typed) -> Typed:
        return self.f(32, self._from_small(self.as_bits(x, 32), self._format("fp8")))

    def word_bf8(self, x: Typed) -> Typed:
        return self.f(32, self._from_small(self.as_bits(x, 32), self._format("bf8")))

    def _code(self, x: Typed, name: str, random: Raw | None = None) -> Typed:
        x = self._number_to_float(x, 32) if x.kind == "f" and x.bits == 16 else x
        code = self._to_small(x.raw, self._format(name), random)
        return Typed("u", 8, self.ops.resize(code, 32, 8, signed=False))

    def word_to_fp8(self, x: Typed) -> Typed:
        return self._code(x, "fp8")

    def word_to_bf8(self, x: Typed) -> Typed:
        return self._code(x, "bf8")

    def word_to_fp8_sr(self, x: Typed, random: Typed) -> Typed:
        return self._code(x, "fp8", self.as_bits(random, 32))

    def word_to_bf8_sr(self, x: Typed, random: Typed) -> Typed:
        return self._code(x, "bf8", self.as_bits(random, 32))

    # Random bits.

    def _next_random(self, x: Raw) -> Raw:
        """Source: CDNA4 ISA, V_PRNG_B32."""
        top = self._u("mul", 32, self._u("lshr", 32, x, 31), 197)
        return self.ops.binary("xor", 32, self._u("shl", 32, x, 1), top)

    def word_next_random(self, x: Typed) -> Typed:
        return Typed("u", 32, self._next_random(self.as_bits(x, 32)))

    def _dither(self, x: Typed, random: Typed, keep: int) -> Raw:
        """The upper bits of a float32 after random bits are added below them; NaN kept."""
        bits = self.ops.to_bits(x.raw, 32)
        extra = self._u("lshr", 32, self.as_bits(random, 32), keep)
        total = self.ops.binary("add", 32, bits, extra)
        size = self.ops.unary("fabs", 32, x.raw)
        finite = self.ops.compare("olt", 32, size, self.ops.const("f", 32, math.inf))
        return self.ops.select(finite, total, self.ops.to_bits(self._quiet(x), 32))

    def word_to_bf16_sr(self, x: Typed, random: Typed) -> Typed:
        high = self._u("lshr", 32, self._dither(x, random, 16), 16)
        return Typed("u", 16, self.ops.resize(high, 32, 16, signed=False))

    def word_to_f16_sr(self, x: Typed, random: Typed) -> Typed:
        """The random bits stand below the last place of a normal half."""
        made = self.ops.to_float(self._dither(x, random, 19), 32)
        return self.word_to_f16_rtz(self.f(32, made))

    # All parts of a value, with a scale.

    def _part(self, words: list[Raw], index: int, bits: int) -> Raw:
        at, shift = divmod(index * bits, 32)
        raw = self._u("lshr", 32, words[at], shift)
        if shift + bits > 32:
            more = self._u("shl", 32, words[at + 1], 32 - shift)
            raw = self.ops.binary("or", 32, raw, more)
        return self._u("and", 32, raw, (1 << bits) - 1) if bits < 32 else raw

    def _assembled(self, parts: list[Raw], bits: int) -> Typed:
        words: list[Raw] = [self.ops.const("u", 32, 0)] * -(-len(parts) * bits // 32)
        for index, part in enumerate(parts):
            at, shift = divmod(index * bits, 32)
            low = self._u("shl", 32, part, shift) if shift else part
            words[at] = self.ops.binary("or", 32, words[at], low)
            if shift + bits > 32:
                words[at + 1] = self._u("lshr", 32, part, 32 - shift)
        if len(words) == 1:
            return Typed("u", 32, words[0])
        if len(words) == 2:
            return Typed("u", 64, self.joined(words[0], words[1]))
        return Typed("w", 32 * len(words), words)

    def _parts_in(self, x: Typed, name: str) -> list[Raw]:
        """The parts of `x` as float32."""
        width = SOURCES.get(name) or self._format(name).bits
        words = self.words_of(x, max(1, x.bits // 32))
        out = []
        for index in range(x.bits // width):
            part = self._part(words, index, width)
            if name == "f16":
                half = self.ops.to_float(self.ops.resize(part, 32, 16, signed=False), 16)
                out.append(self.ops.float_resize(half, 16, 32))
            elif name == "bf16":
                out.append(self.ops.to_float(self._u("shl", 32, part, 16), 32))
            elif name == "f32":
                out.append(self.ops.to_float(part, 32))
            else:
                out.append(self._from_small(part, self._format(name)))
        return out

    def _part_out(self, x: Raw, name: str, random: Raw | None) -> Raw:
        if name not in SOURCES:
            return self._to_small(x, self._format(name), random)
        if name == "f32":
            return self.ops.to_bits(x, 32)
        number = self.f(32, x)
        value = self.word_to_bf16(number) if name == "bf16" else self.word_to_f16(number)
        return self.ops.resize(self.as_bits(value, 16), 16, 32, signed=False)

    def _factor(self, scale: Typed, *, inverse: bool) -> Raw:
        """2 to the exponent of `scale`, of which no more is used; NaN for the top exponent."""
        ops = self.ops
        field = self._u("and", 32, self._u("lshr", 32, self.as_bits(scale, 32), 23), 255)
        top = ops.compare("eq", 32, field, ops.const("u", 32, 255))
        if inverse:
            field = ops.binary("sub", 32, ops.const("u", 32, 254), field)
        tiny = ops.compare("slt", 32, field, ops.const("u", 32, 1))
        normal = self._u("shl", 32, field, 23)
        bits = ops.select(tiny, ops.const("u", 32, 1 << 22), normal)
        return ops.to_float(ops.select(top, ops.const("u", 32, QUIET_NAN), bits), 32)

    def _scaled(
        self, x: Typed, source: Typed, target: Typed, scale: Typed, random: Typed | None
    ) -> Typed:
        name, to = str(source.raw), str(target.raw)
        shrinks = to not in SOURCES
        factor = self._factor(scale, inverse=shrinks)
        dice = None if random is None else self.as_bits(random, 32)
        out = []
        for part in self._parts_in(x, name):
            out.append(self._part_out(self.ops.binary("fmul", 32, part, factor), to, dice))
            dice = None if dice is None else self._next_random(dice)
        return self._assembled(out, SOURCES.get(to) or self._format(to).bits)

    def word_scaled(self, x: Typed, source: Typed, target: Typed, scale: Typed) -> Typed:
        return self._scaled(x, source, target, scale, None)

    def word_scaled_sr(
        self, x: Typed, source: Typed, target: Typed, scale: Typed, random: Typed
    ) -> Typed:
        return self._scaled(x, source, target, scale, random)

    def word_interleaved(self, x: Typed, y: Typed) -> Typed:
        pairs = zip(x.raw, y.raw, strict=True)
        return Typed("w", x.bits + y.bits, [word for pair in pairs for word in pair])


class Evaluator(SmallFloatWords):
    """All words that need neither registers nor memory. A machine subclasses this."""
