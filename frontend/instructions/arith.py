"""Elementwise operations of level 1 as instructions, with NumPy's answers at the edges.

Integers wrap; division by zero and remainder by zero are 0, and the lowest value divided by -1 is
itself; a shift by the width or more leaves nothing but the sign. Floats follow IEEE 754; float16,
bfloat16 and fp8 are computed in float32 and rounded where they are stored or cast.
"""

from __future__ import annotations

from collections.abc import Callable

from frontend.dtype import DType
from frontend.graph.node import Op
from frontend.instructions.ir import BITS, Builder, Value
from frontend.instructions.memory import (
    compute_kind,
    from_memory,
    memory_kind,
    round_to,
    to_memory,
)

_FLOAT = {
    Op.ADD: "fadd", Op.SUB: "fsub", Op.MUL: "fmul", Op.DIV: "fdiv", Op.FMOD: "fmod", Op.POW: "pow",
    Op.ATAN2: "atan2", Op.COPYSIGN: "copysign", Op.MAXIMUM: "fmaximum", Op.MINIMUM: "fminimum",
}  # fmt: skip
_INTEGER = {
    Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.AND: "and", Op.OR: "or", Op.XOR: "xor",
}  # fmt: skip
_BOOL = {
    Op.ADD: "or", Op.SUB: "xor", Op.MUL: "and", Op.AND: "and", Op.OR: "or", Op.XOR: "xor",
    Op.MAXIMUM: "or", Op.MINIMUM: "and",
}  # fmt: skip
_FLOAT_UNARY = {
    Op.NEG: "fneg", Op.ABS: "fabs", Op.FLOOR: "floor", Op.CEIL: "ceil", Op.TRUNC: "trunc",
    Op.ROUND: "roundeven", Op.SQRT: "sqrt", Op.EXP: "exp", Op.EXP2: "exp2", Op.EXPM1: "expm1",
    Op.LOG: "log", Op.LOG2: "log2", Op.LOG10: "log10", Op.LOG1P: "log1p", Op.SIN: "sin",
    Op.COS: "cos", Op.TAN: "tan", Op.ASIN: "asin", Op.ACOS: "acos", Op.ATAN: "atan",
    Op.SINH: "sinh", Op.COSH: "cosh", Op.TANH: "tanh", Op.ASINH: "asinh", Op.ACOSH: "acosh",
    Op.ATANH: "atanh", Op.ERF: "erf",
}  # fmt: skip


EXACT = frozenset({
    Op.CAST, Op.BITCAST, Op.WHERE, Op.NEG, Op.ABS, Op.COPYSIGN, Op.MAXIMUM, Op.MINIMUM, Op.FLOOR,
    Op.CEIL, Op.TRUNC, Op.ROUND,
})  # fmt: skip
"""Operations whose result needs no rounding: CAST has rounded, others give a number that fits."""


def emit(b: Builder, op: Op, dtype: DType, args: tuple[Value, ...], source: DType) -> Value:
    """The value of `op`. `source`: dtype of the (last) operand; `dtype`: of the result."""
    if op is Op.CAST:
        return cast(b, args[0], source, dtype)
    if op is Op.BITCAST:
        return bitcast(b, args[0], source, dtype)
    if op is Op.WHERE:
        return b.select(*args)
    if op in (Op.LT, Op.LE, Op.EQ, Op.NE):
        return compare(b, op, args[0], args[1], source)
    if len(args) == 1:
        return _unary(b, op, args[0], source)
    if op in (Op.FLOORDIV, Op.MOD):
        divide = _float_divmod if source.is_float else _integer_divmod
        return divide(b, op, args[0], args[1], source)
    if source.is_float:
        return b.op(_FLOAT[op], *args)
    if source.kind == "b":
        return b.op(_BOOL[op], *args)
    if op in (Op.SHL, Op.SHR):
        return _shift(b, op, args[0], args[1], source)
    if op in (Op.MAXIMUM, Op.MINIMUM):
        word = "max" if op is Op.MAXIMUM else "min"
        return b.op(("s" if source.is_signed else "u") + word, *args)
    return b.op(_INTEGER[op], *args)


def _unary(b: Builder, op: Op, x: Value, source: DType) -> Value:
    if source.is_float:
        return b.op(_FLOAT_UNARY[op], x)
    zero = b.const(x.kind, 0, x.lanes)
    if op is Op.NOT:
        return b.op("xor", x, b.const(x.kind, 1 if source.kind == "b" else -1, x.lanes))
    if op is Op.NEG:
        return b.op("sub", zero, x)
    if op is Op.ABS and source.kind == "i":
        return b.op("smax", x, b.op("sub", zero, x))
    return x  # unsigned abs; floor, ceil, trunc and round of integers


def compare(b: Builder, op: Op, x: Value, y: Value, source: DType) -> Value:
    """LT LE EQ NE; anything but NE is false with a NaN."""
    word = op.name.lower()
    if source.is_float:
        return b.compare("fcmp", "une" if op is Op.NE else f"o{word}", x, y)
    if op in (Op.EQ, Op.NE):
        return b.compare("icmp", word, x, y)
    return b.compare("icmp", ("s" if source.kind == "i" else "u") + word, x, y)


def _shift(b: Builder, op: Op, x: Value, count: Value, source: DType) -> Value:
    x, count = b.same_lanes(x, count)
    top = b.const(x.kind, BITS[x.kind] - 1, x.lanes)
    within = b.compare("icmp", "ule", count, top)
    if op is Op.SHR and source.is_signed:
        return b.op("ashr", x, b.select(within, count, top))
    moved = b.op("shl" if op is Op.SHL else "lshr", x, b.select(within, count, top))
    return b.select(within, moved, b.const(x.kind, 0, x.lanes))


def _integer_divmod(b: Builder, op: Op, x: Value, y: Value, source: DType) -> Value:
    """Quotient rounded down, or the remainder with the divisor's sign; by zero: 0."""
    x, y = b.same_lanes(x, y)
    zero, one = b.const(x.kind, 0, x.lanes), b.const(x.kind, 1, x.lanes)
    by_zero = b.compare("icmp", "eq", y, zero)
    if not source.is_signed:
        quotient = b.op("udiv" if op is Op.FLOORDIV else "urem", x, b.select(by_zero, one, y))
        return b.select(by_zero, zero, quotient)
    by_minus_one = b.compare("icmp", "eq", y, b.const(x.kind, -1, x.lanes))
    safe = b.select(b.op("or", by_zero, by_minus_one), one, y)
    quotient, rest = b.op("sdiv", x, safe), b.op("srem", x, safe)
    inexact = b.compare("icmp", "ne", rest, zero)
    across = b.op("and", inexact, b.compare("icmp", "slt", b.op("xor", rest, safe), zero))
    if op is Op.MOD:
        rest = b.select(across, b.op("add", rest, safe), rest)
        return b.select(b.op("or", by_zero, by_minus_one), zero, rest)
    quotient = b.select(across, b.op("sub", quotient, one), quotient)
    quotient = b.select(by_minus_one, b.op("sub", zero, x), quotient)
    return b.select(by_zero, zero, quotient)


def _float_divmod(b: Builder, op: Op, x: Value, y: Value, source: DType) -> Value:
    """As NumPy: from the exact remainder, so that quotient and remainder belong together."""
    x, y = b.same_lanes(x, y)
    zero, one = b.const(x.kind, 0.0, x.lanes), b.const(x.kind, 1.0, x.lanes)
    plain = b.op("fdiv", x, y)
    rest = b.op("fmod", x, y)
    quotient = b.op("fdiv", b.op("fsub", x, rest), y)
    has_rest = b.compare("fcmp", "une", rest, zero)
    across = b.op("xor", b.compare("fcmp", "olt", y, zero), b.compare("fcmp", "olt", rest, zero))
    across = b.op("and", has_rest, across)
    if op is Op.MOD:
        moved = b.select(across, b.op("fadd", rest, y), rest)
        return b.select(has_rest, moved, b.op("copysign", zero, y))
    quotient = b.select(across, b.op("fsub", quotient, one), quotient)
    whole = b.op("floor", quotient)
    half = b.const(x.kind, 0.5, x.lanes)
    up = b.compare("fcmp", "ogt", b.op("fsub", quotient, whole), half)
    whole = b.select(up, b.op("fadd", whole, one), whole)
    nonzero = b.compare("fcmp", "une", quotient, zero)
    whole = b.select(nonzero, whole, b.op("copysign", zero, plain))
    return b.select(b.compare("fcmp", "oeq", y, zero), plain, whole)


def cast(b: Builder, x: Value, source: DType, target: DType) -> Value:
    """Convert a value. Float to integer truncates, saturates, and takes NaN to 0."""
    if target.kind == "b":
        if source.kind == "b":
            return x
        zero = b.const(x.kind, 0, x.lanes)
        if source.is_float:
            return b.compare("fcmp", "une", x, zero)
        return b.compare("icmp", "ne", x, zero)
    kind = compute_kind(target)
    if target.is_float:
        if source.is_float:
            if x.kind != kind:
                narrow = _to_odd if target.bits < 32 else _to_nearest
                x = b.cast("fpext", x, kind) if kind == "f64" else narrow(b, x)
        else:
            x = b.cast("sitofp" if source.kind == "i" else "uitofp", x, kind)
        return round_to(b, x, target)
    if source.is_float:
        return b.cast("fptosi" if target.is_signed else "fptoui", x, kind)
    if BITS[x.kind] == BITS[kind]:
        return x
    if BITS[x.kind] > BITS[kind]:
        return b.cast("itrunc", x, kind)
    return b.cast("sext" if source.kind == "i" else "zext", x, kind)


def _to_nearest(b: Builder, x: Value) -> Value:
    return b.cast("fptrunc", x, "f32")


def _to_odd(b: Builder, x: Value) -> Value:
    """A float64 as a float32 whose last bit is 1 if anything was lost.

    Rounding that to a narrower float then gives what rounding once would have given.
    """
    near = b.cast("fptrunc", x, "f32")
    back = b.cast("fpext", near, "f64")
    bits = b.cast("bitcast", near, "i32")
    one, zero = b.const("i32", 1, x.lanes), b.const("i32", 0, x.lanes)
    even = b.compare("icmp", "eq", b.op("and", bits, one), zero)
    lost = b.op("and", b.compare("fcmp", "one", back, x), even)
    too_small = b.compare("fcmp", "olt", b.op("fabs", back), b.op("fabs", x))
    odd = b.op("add", bits, b.select(too_small, one, b.const("i32", -1, x.lanes)))
    return b.cast("bitcast", b.select(lost, odd, bits), "f32")


def bitcast(b: Builder, x: Value, source: DType, target: DType) -> Value:
    """The same bits as another type of the same size."""
    raw = to_memory(b, x, source)
    if raw.kind != memory_kind(target):
        raw = b.cast("bitcast", raw, memory_kind(target))
    return from_memory(b, raw, target)


Combine = Callable[[Builder, Value, Value], Value]


def combine_name(kind: Op, dtype: DType) -> str:
    """The instruction that folds two partial results of a reduction."""
    if dtype.is_float:
        return {Op.SUM: "fadd", Op.PROD: "fmul", Op.MAX: "fmaximum", Op.MIN: "fminimum"}[kind]
    if dtype.kind == "b":
        return {Op.SUM: "or", Op.PROD: "and", Op.MAX: "or", Op.MIN: "and"}[kind]
    sign = "s" if dtype.is_signed else "u"
    return {Op.SUM: "add", Op.PROD: "mul", Op.MAX: f"{sign}max", Op.MIN: f"{sign}min"}[kind]
