"""The words on integers, bits and fields. See `meaning.py`."""

from __future__ import annotations

from rawgpu.virtual.meaning import EvaluatorCore, Raw, Typed


class BitWords(EvaluatorCore):
    """Integer arithmetic beyond the operators, fields of bits, packed parts."""

    def _int(self, op: str, x: Typed, y: Typed) -> Typed:
        kind, bits, a, b = self.pair(x, y)
        return Typed(kind, bits, self.ops.binary(op, bits, a, b))

    def _u(self, op: str, bits: int, a: Raw, b: int | Raw) -> Raw:
        other = self.ops.const("u", bits, b) if isinstance(b, int) else b
        return self.ops.binary(op, bits, a, other)

    # Saturation and carries.

    def word_add(self, x: Typed, y: Typed) -> Typed:
        return self._saturating("add", x, y) if self.saturate else self._int("add", x, y)

    def word_sub(self, x: Typed, y: Typed) -> Typed:
        return self._saturating("sub", x, y) if self.saturate else self._int("sub", x, y)

    def _saturating(self, op: str, x: Typed, y: Typed) -> Typed:
        kind, bits, a, b = self.pair(x, y)
        result = self.ops.binary(op, bits, a, b)
        if kind == "u":
            out = self._leaves(op, bits, a, b)
            end = self.ops.const("u", bits, (1 << bits) - 1 if op == "add" else 0)
            return Typed(kind, bits, self.ops.select(out, end, result))
        out = self._overflows(op, bits, a, b)
        sign = self._u("ashr", bits, a, bits - 1)
        end = self._u("xor", bits, sign, (1 << (bits - 1)) - 1)
        return Typed(kind, bits, self.ops.select(out, end, result))

    def _leaves(self, op: str, bits: int, a: Raw, b: Raw) -> Raw:
        if op == "sub":
            return self.ops.compare("ult", bits, a, b)
        return self.ops.compare("ult", bits, self.ops.binary("add", bits, a, b), a)

    def _overflows(self, op: str, bits: int, a: Raw, b: Raw) -> Raw:
        ops = self.ops
        r = ops.binary(op, bits, a, b)
        p = ops.binary("xor", bits, a, b if op == "sub" else r)
        q = ops.binary("xor", bits, r, b if op == "add" else a)
        both = ops.binary("and", bits, p, q)
        return ops.compare("slt", bits, both, ops.const("u", bits, 0))

    def _carry(self, op: str, x: Typed, y: Typed, z: Typed | None) -> Typed:
        _, bits, a, b = self.pair(x, y)
        out = self._leaves(op, bits, a, b)
        if z is not None:
            part = self.ops.binary(op, bits, a, b)
            extra = self.as_bits(z, bits)
            out = self.ops.either(out, self._leaves(op, bits, part, extra))
        return Typed("b", 1, out)

    def word_carry(self, x: Typed, y: Typed, z: Typed | None = None) -> Typed:
        return self._carry("add", x, y, z)

    def word_borrow(self, x: Typed, y: Typed, z: Typed | None = None) -> Typed:
        return self._carry("sub", x, y, z)

    def word_overflow_add(self, x: Typed, y: Typed) -> Typed:
        _, bits, a, b = self.pair(x, y)
        return Typed("b", 1, self._overflows("add", bits, a, b))

    def word_overflow_sub(self, x: Typed, y: Typed) -> Typed:
        _, bits, a, b = self.pair(x, y)
        return Typed("b", 1, self._overflows("sub", bits, a, b))

    def word_mul_hi(self, x: Typed, y: Typed) -> Typed:
        kind, bits, a, b = self.pair(x, y)
        return Typed(kind, bits, self.ops.mul_high(a, b, bits, signed=kind == "i"))

    def _order(self, which: str, x: Typed, y: Typed) -> Typed:
        kind, bits, a, b = self.pair(x, y)
        sign = "s" if kind == "i" else "u"
        return Typed(kind, bits, self.ops.binary(sign + which, bits, a, b))

    def word_absolute_difference(self, x: Typed, y: Typed) -> Typed:
        kind, bits, a, b = self.pair(x, y)
        sign = "s" if kind == "i" else "u"
        high = self.ops.binary(sign + "max", bits, a, b)
        low = self.ops.binary(sign + "min", bits, a, b)
        return Typed("u", bits, self.ops.binary("sub", bits, high, low))

    def _clamped(self, x: Typed, kind: str, bits: int) -> Typed:
        """An integer at the nearest value that `kind` and `bits` have."""
        x = self.solid(x)
        low = -(1 << (bits - 1)) if kind == "i" else 0
        high = (1 << (bits - (kind == "i"))) - 1
        raw = x.raw
        if x.kind == "i":
            raw = self._u("smax", x.bits, raw, low)
            raw = self._u("smin", x.bits, raw, high)
        else:
            raw = self._u("umin", x.bits, raw, high)
        return Typed(kind, bits, self.ops.resize(raw, x.bits, bits, signed=False))

    def word_sat_i16(self, x: Typed) -> Typed:
        return self._clamped(x, "i", 16)

    def word_sat_u16(self, x: Typed) -> Typed:
        return self._clamped(x, "u", 16)

    def word_sat_i8(self, x: Typed) -> Typed:
        return self._clamped(x, "i", 8)

    def word_sat_u8(self, x: Typed) -> Typed:
        return self._clamped(x, "u", 8)

    # Fields.

    def word_select(self, condition: Typed, x: Typed, y: Typed) -> Typed:
        test = self.truth(condition)
        if x.kind == "w":
            pairs = zip(x.raw, y.raw, strict=True)
            return Typed("w", x.bits, [self.ops.select(test, a, b) for a, b in pairs])
        kind, bits, a, b = self.pair(x, y)
        return Typed(kind, bits, self.ops.select(test, a, b))

    def _field(self, x: Typed, low: Typed, count: Typed) -> tuple[Typed, Raw, Raw, Raw]:
        """The value, and as raws of its width: low, count, and whether count fills the width."""
        x = self.solid(x)
        a, n = (self.as_bits(v, x.bits) for v in (low, count))
        full = self.ops.compare("ule", x.bits, self.ops.const("u", x.bits, x.bits), n)
        return x, a, n, full

    def word_bits(self, x: Typed, low: Typed, count: Typed) -> Typed:
        x, a, n, full = self._field(x, low, count)
        moved = self.ops.binary("lshr", x.bits, x.raw, a)
        mask = self._ones(n, x.bits)
        cut = self.ops.binary("and", x.bits, moved, mask)
        return Typed("u", x.bits, self.ops.select(full, moved, cut))

    def _ones(self, count: Raw, bits: int) -> Raw:
        """`count` ones, for counts below the width."""
        safe = self._u("and", bits, count, bits - 1)
        one = self.ops.const("u", bits, 1)
        return self._u("sub", bits, self.ops.binary("shl", bits, one, safe), 1)

    def word_sext_bits(self, x: Typed, low: Typed, count: Typed) -> Typed:
        field = self.word_bits(x, low, count)
        x, _, n, full = self._field(x, low, count)
        bits = x.bits
        rest = self.ops.binary("sub", bits, self.ops.const("u", bits, bits), n)
        safe = self._u("and", bits, rest, bits - 1)
        up = self.ops.binary("shl", bits, field.raw, safe)
        down = self.ops.binary("ashr", bits, up, safe)
        empty = self.ops.compare("eq", bits, n, self.ops.const("u", bits, 0))
        signed = self.ops.select(empty, self.ops.const("u", bits, 0), down)
        whole = self.ops.binary("ashr", bits, x.raw, self.as_bits(low, bits))
        return Typed("i", bits, self.ops.select(full, whole, signed))

    def word_sext(self, x: Typed, n: Typed) -> Typed:
        count = self._number(n)
        if x.kind == "n":
            value = x.raw & ((1 << count) - 1)
            return Typed("n", 0, value - (1 << count) if value >> (count - 1) else value)
        return self.view("i", 32, self.view("i", count, x))

    def word_byte(self, x: Typed, i: Typed) -> Typed:
        return self.view("u", 8, self._shift(False, self.solid(x), Typed("n", 0, 8 * i.raw)))

    def word_half(self, x: Typed, i: Typed) -> Typed:
        return self.view("u", 16, self._shift(False, self.solid(x), Typed("n", 0, 16 * i.raw)))

    def word_pack(self, low: Typed, high: Typed) -> Typed:
        if low.kind == "f":
            low, high = self.view("u", low.bits, low), self.view("u", high.bits, high)
        low, high = self.solid(low), self.solid(high)
        bits = low.bits
        if bits == 32:
            return Typed("u", 64, self.joined(low.raw, self.as_bits(high, 32)))
        if bits == 64:
            return Typed("w", 128, self.words_of(low, 2) + self.words_of(high, 2))
        a, b = (self.ops.resize(v.raw, bits, 2 * bits, signed=False) for v in (low, high))
        shifted = self._u("shl", 2 * bits, b, bits)
        return Typed("u", 2 * bits, self.ops.binary("or", 2 * bits, shifted, a))

    def word_insert(self, old: Typed, x: Typed, low: Typed, count: Typed) -> Typed:
        old = self.solid(old)
        bits = old.bits
        ones = (1 << self._number(count)) - 1
        value = self._u("and", bits, self.as_bits(x, bits), ones)
        at = self.as_bits(low, bits)
        mask = self.ops.binary("shl", bits, self.ops.const("u", bits, ones), at)
        keep = self._u("xor", bits, mask, (1 << bits) - 1)
        kept = self.ops.binary("and", bits, old.raw, keep)
        return Typed(
            "u", bits, self.ops.binary("or", bits, kept, self.ops.binary("shl", bits, value, at))
        )

    def word_bit(self, x: Typed, i: Typed) -> Typed:
        x = self.solid(x)
        moved = self.ops.binary("lshr", x.bits, x.raw, self.as_bits(i, x.bits))
        return Typed("u", x.bits, self._u("and", x.bits, moved, 1))

    def word_bit_mask(self, count: Typed, low: Typed) -> Typed:
        ones = self._ones(self.as_bits(count, 64), 64)
        return Typed("u", 64, self.ops.binary("shl", 64, ones, self.as_bits(low, 64)))

    def word_popcount(self, x: Typed) -> Typed:
        return self._count("popcount", x, minus_one=False)

    def word_clz(self, x: Typed) -> Typed:
        return self._count("clz", x, minus_one=True)

    def word_ctz(self, x: Typed) -> Typed:
        return self._count("ctz", x, minus_one=True)

    def _count(self, op: str, x: Typed, *, minus_one: bool) -> Typed:
        x = self.solid(x)
        raw = self.ops.unary(op, x.bits, x.raw)
        if minus_one:
            zero = self.ops.compare("eq", x.bits, x.raw, self.ops.const("u", x.bits, 0))
            ones = self.ops.const("u", x.bits, (1 << x.bits) - 1)
            raw = self.ops.select(zero, ones, raw)
        return Typed("u", 32, self.ops.resize(raw, x.bits, 32, signed=True))

    def word_cls(self, x: Typed) -> Typed:
        x = self.solid(x)
        sign = self._u("ashr", x.bits, x.raw, x.bits - 1)
        return self.word_clz(Typed("u", x.bits, self.ops.binary("xor", x.bits, x.raw, sign)))

    def word_reverse_bits(self, x: Typed) -> Typed:
        x = self.solid(x)
        return Typed("u", x.bits, self.ops.unary("bitreverse", x.bits, x.raw))

    def word_align(self, high: Typed, low: Typed, shift: Typed) -> Typed:
        wide = self.joined(self.as_bits(low, 32), self.as_bits(high, 32))
        moved = self.ops.binary("lshr", 64, wide, self.as_bits(shift, 64))
        return Typed("u", 32, self.ops.resize(moved, 64, 32, signed=False))

    def word_byte_permute(self, x: Typed, y: Typed, selector: Typed) -> Typed:
        """Source: RDNA3 ISA, V_PERM_B32. Bytes 0-3 of y, 4-7 of x; signs; 0; 0xff."""
        ops = self.ops
        wide = self.joined(self.as_bits(y, 32), self.as_bits(x, 32))
        picks = self.as_bits(selector, 32)
        result = ops.const("u", 32, 0)
        for i in range(4):
            pick = self._u("and", 32, self._u("lshr", 32, picks, 8 * i), 255)
            byte = self._permuted_byte(wide, pick)
            result = ops.binary("or", 32, result, self._u("shl", 32, byte, 8 * i))
        return Typed("u", 32, result)

    def _permuted_byte(self, wide: Raw, pick: Raw) -> Raw:
        ops = self.ops
        plain = self._u("shl", 32, self._u("and", 32, pick, 7), 3)
        moved = ops.binary("lshr", 64, wide, ops.resize(plain, 32, 64, signed=False))
        byte = self._u("and", 32, ops.resize(moved, 64, 32, signed=False), 255)
        for number, sign_at in ((8, 15), (9, 31), (10, 47), (11, 63)):
            sign = ops.resize(self._u("lshr", 64, wide, sign_at), 64, 32, signed=False)
            ones = self._u("mul", 32, self._u("and", 32, sign, 1), 255)
            here = ops.compare("eq", 32, pick, ops.const("u", 32, number))
            byte = ops.select(here, ones, byte)
        is_zero = ops.compare("eq", 32, pick, ops.const("u", 32, 12))
        byte = ops.select(is_zero, ops.const("u", 32, 0), byte)
        is_ones = ops.compare("ule", 32, ops.const("u", 32, 13), pick)
        return ops.select(is_ones, ops.const("u", 32, 255), byte)

    def word_whole_quads(self, x: Typed) -> Typed:
        quads = self._any_in_quad(x)
        return Typed("u", x.bits, self._u("mul", x.bits, quads, 15))

    def _any_in_quad(self, x: Typed) -> Raw:
        """One bit, the lowest, in each group of 4 with any bit set."""
        raw, bits = x.raw, x.bits
        for shift in (1, 2):
            raw = self.ops.binary("or", bits, raw, self._u("lshr", bits, raw, shift))
        return self._u("and", bits, raw, int("1" * (bits // 4), 16))

    def word_quad_mask(self, x: Typed) -> Typed:
        raw, result = self._any_in_quad(x), self.ops.const("u", x.bits, 0)
        for i in range(x.bits // 4):
            bit = self._u("and", x.bits, self._u("lshr", x.bits, raw, 3 * i), 1 << i)
            result = self.ops.binary("or", x.bits, result, bit)
        return Typed("u", x.bits, result)

    def word_zip_bits(self, x: Typed) -> Typed:
        raw = self.as_bits(x, 64)
        steps = ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F))
        for shift, mask in (*steps, (2, 0x3333333333333333), (1, 0x5555555555555555)):
            spread = self.ops.binary("or", 64, raw, self._u("shl", 64, raw, shift))
            raw = self._u("and", 64, spread, mask)
        doubled = self.ops.binary("or", 64, raw, self._u("shl", 64, raw, 1))
        return Typed("u", 64, doubled)

    # Sums over parts.

    def _parts_of(self, x: Typed, width: int, kind: str = "u") -> list[Raw]:
        """The parts of 32 bits, each extended to 32."""
        raw, out = self.as_bits(x, 32), []
        for low in range(0, 32, width):
            up = self._u("shl", 32, raw, 32 - width - low)
            out.append(self._u("ashr" if kind == "i" else "lshr", 32, up, 32 - width))
        return out

    def _differences(self, x: Typed, y: Typed, width: int) -> list[Raw]:
        parts = zip(self._parts_of(x, width), self._parts_of(y, width), strict=True)
        return [
            self.ops.binary(
                "sub", 32, self.ops.binary("umax", 32, a, b), self.ops.binary("umin", 32, a, b)
            )
            for a, b in parts
        ]

    def _summed(self, parts: list[Raw], start: Typed) -> Typed:
        total = self.as_bits(start, 32)
        for part in parts:
            total = self.ops.binary("add", 32, total, part)
        return Typed("u", 32, total)

    def word_sad_u8(self, x: Typed, y: Typed, z: Typed) -> Typed:
        return self._summed(self._differences(x, y, 8), z)

    def word_sad_u16(self, x: Typed, y: Typed, z: Typed) -> Typed:
        return self._summed(self._differences(x, y, 16), z)

    def word_sad_hi_u8(self, x: Typed, y: Typed, z: Typed) -> Typed:
        total = self._summed(self._differences(x, y, 8), Typed("n", 0, 0))
        up = self._u("shl", 32, total.raw, 16)
        return Typed("u", 32, self.ops.binary("add", 32, up, self.as_bits(z, 32)))

    def word_masked_sad_u8(self, x: Typed, y: Typed, z: Typed) -> Typed:
        zero = self.ops.const("u", 32, 0)
        parts = [
            self.ops.select(self.ops.compare("eq", 32, b, zero), zero, difference)
            for b, difference in zip(self._parts_of(y, 8), self._differences(x, y, 8), strict=True)
        ]
        return self._summed(parts, z)

    def _quad(self, x: Typed, y: Typed, z: Typed, width: Typed, masked: bool) -> Typed:
        """Four sums, of bytes from 0, 1, 2 and 3 of x on; parts of z and of d have `width`."""
        wide, count = self.as_bits(x, 64), int(width.raw)
        added = self.words_of(z, 4 * count // 32)
        sums: list[Raw] = []
        for i in range(4):
            moved = self.ops.resize(self._u("lshr", 64, wide, 8 * i), 64, 32, signed=False)
            place, shift = divmod(i * count, 32)
            start = self._u("lshr", 32, added[place], shift)
            if count == 16:
                start = self._u("and", 32, start, 0xFFFF)
            word = self.word_masked_sad_u8 if masked else self.word_sad_u8
            total = word(Typed("u", 32, moved), y, Typed("u", 32, start))
            if self.saturate and count == 16:
                total = self.view("u", 32, self._clamped(total, "u", 16))
            sums.append(total.raw)
        if count == 32:
            return Typed("w", 128, sums)
        pairs = [
            self.ops.binary(
                "or", 32, self._u("and", 32, sums[i], 0xFFFF), self._u("shl", 32, sums[i + 1], 16)
            )
            for i in (0, 2)
        ]
        return Typed("u", 64, self.joined(pairs[0], pairs[1]))

    def word_quad_sad(self, x: Typed, y: Typed, z: Typed, width: Typed) -> Typed:
        return self._quad(x, y, z, width, False)

    def word_quad_masked_sad(self, x: Typed, y: Typed, z: Typed, width: Typed) -> Typed:
        return self._quad(x, y, z, width, True)

    def word_lerp_u8(self, x: Typed, y: Typed, z: Typed) -> Typed:
        result = self.ops.const("u", 32, 0)
        parts = zip(self._parts_of(x, 8), self._parts_of(y, 8), self._parts_of(z, 8), strict=True)
        for i, (a, b, c) in enumerate(parts):
            total = self.ops.binary("add", 32, a, b)
            total = self.ops.binary("add", 32, total, self._u("and", 32, c, 1))
            byte = self._u("shl", 32, self._u("lshr", 32, total, 1), 8 * i)
            result = self.ops.binary("or", 32, result, byte)
        return Typed("u", 32, result)

    def _integer_dot(self, x: Typed, y: Typed, z: Typed, kinds: tuple[str, str], n: int) -> Typed:
        parts = zip(self._parts_of(x, n, kinds[0]), self._parts_of(y, n, kinds[1]), strict=True)
        return self._dot_sum([self.ops.binary("mul", 32, a, b) for a, b in parts], z, kinds)

    def _dot_sum(self, products: list[Raw], z: Typed, kinds: tuple[str, str]) -> Typed:
        if not self.saturate:
            total = self._summed(products, z)
            return Typed("i" if "i" in kinds else "u", 32, total.raw)
        signed = "i" in kinds
        wide = self.ops.resize(self.as_bits(z, 32), 32, 64, signed=signed)
        for product in products:
            more = self.ops.resize(product, 32, 64, signed=signed)
            wide = self.ops.binary("add", 64, wide, more)
        return self._clamped(Typed("i", 64, wide), "i" if signed else "u", 32)
