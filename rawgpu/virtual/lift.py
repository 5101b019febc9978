"""The lifter's primitives: meanings as LLVM IR, one element a lane.

A value is a scalar of LLVM (a scalar register) or a vector with an element for each lane. Where one
meets the other the scalar is spread over the lanes. Integers are LLVM's, floats are half, float and
double, conditions are i1.
"""

from __future__ import annotations

from rawgpu.compiler_bridge import maths
from rawgpu.compiler_bridge.maths_llvm import LlvmOps
from rawgpu.compiler_bridge.text import Function, Value
from rawgpu.compiler_bridge.types import Type, f32, f64, i1, vector
from rawgpu.virtual.meaning import Raw

INTRINSIC = {
    "smin": "llvm.smin", "smax": "llvm.smax", "umin": "llvm.umin", "umax": "llvm.umax",
    "fabs": "llvm.fabs", "sqrt": "llvm.sqrt", "floor": "llvm.floor", "ceil": "llvm.ceil",
    "trunc": "llvm.trunc", "roundeven": "llvm.roundeven", "popcount": "llvm.ctpop",
    "bitreverse": "llvm.bitreverse",
}  # fmt: skip
SHIFTS = ("shl", "lshr", "ashr")


def integer(bits: int) -> Type:
    return Type("int", bits)


def floating(bits: int) -> Type:
    return Type("float", bits)


class LlvmLanes:
    """`LaneOps` that writes instructions to the current block of `function`."""

    def __init__(self, function: Function, lanes: int) -> None:
        self.f = function
        self.lanes = lanes
        self._maths = LlvmOps(function)

    # Shapes.

    def spread(self, a: Value) -> Value:
        """A scalar in all lanes; a vector as it is."""
        if a.type.lanes:
            return a
        if a.text[0] not in "%@":  # a literal
            return Value(vector(a.type, self.lanes), f"splat ({a.typed})")
        return self.f.splat(a, self.lanes)

    def level(self, *values: Value) -> list[Value]:
        """All scalars, or all vectors."""
        if any(v.type.lanes for v in values):
            return [self.spread(v) for v in values]
        return list(values)

    def const(self, kind: str, bits: int, number: float) -> Value:
        if kind == "f":
            return self.f.const(floating(bits), number)
        return self.f.const(integer(bits), int(number))

    # Arithmetic.

    def binary(self, op: str, bits: int, a: Raw, b: Raw) -> Raw:
        a, b = self.level(a, b)
        if op in INTRINSIC:
            return self.f.intrinsic(INTRINSIC[op], a.type, [a, b])
        if op in SHIFTS:
            mask = self.f.const(b.type, bits - 1)
            b = self.f.and_(b, mask)
        return self.f.binary(op, a, b)

    def unary(self, op: str, bits: int, a: Raw) -> Raw:
        if op == "fneg":
            return self.f.fneg(a)
        if op in ("clz", "ctz"):
            no = self.f.const(i1, False)
            name = "llvm.ctlz" if op == "clz" else "llvm.cttz"
            return self.f.intrinsic(name, a.type, [a, no])
        if a.type.is_float and bits == 16 and op != "fabs":
            wide = self.f.cast("fpext", a, a.type.like(f32))
            return self.f.cast("fptrunc", self.unary(op, 32, wide), a.type)
        return self.f.intrinsic(INTRINSIC[op], a.type, [a])

    def compare(self, relation: str, bits: int, a: Raw, b: Raw) -> Raw:
        a, b = self.level(a, b)
        if a.type.is_float:
            return self.f.fcmp(relation, a, b)
        return self.f.icmp(relation, a, b)

    def fma(self, bits: int, a: Raw, b: Raw, c: Raw) -> Raw:
        a, b, c = self.level(a, b, c)
        if bits != 16:
            return self.f.fma(a, b, c)
        wide = [self.f.cast("fpext", x, x.type.like(f64)) for x in (a, b, c)]
        exact = self.f.fadd(self.f.fmul(wide[0], wide[1]), wide[2])
        return self.float_resize(exact, 64, 16)

    def select(self, condition: Raw, a: Raw, b: Raw) -> Raw:
        if condition.type.lanes:
            a, b = self.spread(a), self.spread(b)
        else:
            a, b = self.level(a, b)
        return self.f.select(condition, a, b)

    def both(self, a: Raw, b: Raw) -> Raw:
        a, b = self.level(a, b)
        return self.f.and_(a, b)

    def either(self, a: Raw, b: Raw) -> Raw:
        a, b = self.level(a, b)
        return self.f.or_(a, b)

    def invert(self, a: Raw) -> Raw:
        return self.f.xor(a, self.f.const(a.type, True))

    # Conversions.

    def resize(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw:
        if bits == to_bits:
            return a
        to = a.type.like(integer(to_bits))
        made = self.f.cast("trunc" if to_bits < bits else "sext" if signed else "zext", a, to)
        if (bits, to_bits) == (16, 32) and not a.type.lanes:
            return self._opaque(made)
        return made

    def _opaque(self, a: Raw) -> Raw:
        """The same 32-bit scalar, of which LLVM knows nothing.

        LLVM 22 for AVX-512 takes `half | mask & 0xFFFF0000`, where the mask was a comparison of
        lanes and the half is loaded from memory, for the joint of two lane masks, and then leaves
        the upper one out.
        """
        return self.f.emit(a.type, f'call {a.type} asm "", "=r,0"({a.typed})')

    def to_float(self, a: Raw, bits: int) -> Raw:
        return self.f.bitcast(a, a.type.like(floating(bits)))

    def to_bits(self, a: Raw, bits: int) -> Raw:
        return self.f.bitcast(a, a.type.like(integer(bits)))

    def int_to_float(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw:
        to = a.type.like(floating(to_bits))
        return self.f.cast("sitofp" if signed else "uitofp", a, to)

    def float_to_int(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw:
        to = a.type.like(integer(to_bits))
        return self.f.cast("fptosi" if signed else "fptoui", a, to)

    def float_resize(self, a: Raw, bits: int, to_bits: int) -> Raw:
        to = a.type.like(floating(to_bits))
        if to_bits > bits:
            return self.f.cast("fpext", a, to)
        if bits == 64 and to_bits == 16:
            return self.f.cast("fptrunc", self._to_odd(a), to)
        return self.f.cast("fptrunc", a, to)

    def _to_odd(self, a: Value) -> Value:
        """A double as a float whose last bit says that something was lost: halves round rightly.

        LLVM would call a library for double to half.
        """
        f = self.f
        near = f.cast("fptrunc", a, a.type.like(f32))
        back = f.cast("fpext", near, a.type)
        bits = f.bitcast(near, near.type.like(integer(32)))
        inexact = f.fcmp("one", back, a)
        even = f.icmp("eq", f.and_(bits, f.const(bits.type, 1)), f.const(bits.type, 0))
        past = f.fcmp("ogt", f.unary_intrinsic("fabs", back), f.unary_intrinsic("fabs", a))
        step = f.select(past, f.const(bits.type, -1), f.const(bits.type, 1))
        moved = f.select(f.and_(inexact, even), f.add(bits, step), bits)
        return f.bitcast(moved, near.type)

    def bool_to_int(self, a: Raw, bits: int) -> Raw:
        return self.f.cast("zext", a, a.type.like(integer(bits)))

    def mul_high(self, a: Raw, b: Raw, bits: int, *, signed: bool) -> Raw:
        a, b = self.level(a, b)
        wide = a.type.like(integer(2 * bits))
        word = "sext" if signed else "zext"
        product = self.f.mul(self.f.cast(word, a, wide), self.f.cast(word, b, wide))
        high = self.f.lshr(product, self.f.const(wide, bits))
        return self.f.cast("trunc", high, a.type)

    def maths(self, name: str, bits: int, a: Raw) -> Raw:
        return getattr(maths, name)(self._maths, a)
