"""How each dtype lies in memory and in which type it is computed.

bool is a byte in memory and a bit in computation; float16, bfloat16 and fp8 are computed in
float32. Conversions are written out: LLVM would call a library for bfloat16 and fp8, and for
float64 to float16.
"""

from __future__ import annotations

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.instructions.ir import Builder, Value


def compute_kind(dtype: DType) -> str:
    """The instruction type that holds a value while it is computed with."""
    if dtype.kind == "b":
        return "i1"
    if dtype.is_float:
        return "f64" if dtype.bits == 64 else "f32"
    return f"i{dtype.bits}"


def memory_kind(dtype: DType) -> str:
    """The instruction type of the bytes in memory."""
    if dtype in (dt.float16, dt.float32, dt.float64):
        return f"f{dtype.bits}"
    return f"i{dtype.bits}"


def from_memory(b: Builder, raw: Value, dtype: DType) -> Value:
    """The value of what was loaded."""
    if dtype.kind == "b":
        return b.compare("icmp", "ne", raw, b.const("i8", 0, raw.lanes))
    if dtype is dt.float16:
        return b.cast("fpext", raw, "f32")
    if dtype is dt.bfloat16:
        wide = b.op("shl", b.cast("zext", raw, "i32"), b.const("i32", 16, raw.lanes))
        return b.cast("bitcast", wide, "f32")
    if dtype is dt.float8_e5m2:  # the upper byte of a float16
        wide = b.op("shl", b.cast("zext", raw, "i16"), b.const("i16", 8, raw.lanes))
        return b.cast("fpext", b.cast("bitcast", wide, "f16"), "f32")
    if dtype is dt.float8_e4m3:
        return _from_e4m3(b, raw)
    return raw


def _from_e4m3(b: Builder, raw: Value) -> Value:
    """Exponent bias 7; no infinities; 0x7f and 0xff are NaN."""
    lanes = raw.lanes
    wide = b.cast("zext", raw, "i32")
    magnitude = b.op("and", wide, b.const("i32", 0x7F, lanes))
    sign = b.op("shl", b.op("and", wide, b.const("i32", 0x80, lanes)), b.const("i32", 24, lanes))
    # three mantissa bits land at the top of float32's; the product mends the bias, and denormals
    # with it
    scaled = b.cast("bitcast", b.op("shl", magnitude, b.const("i32", 20, lanes)), "f32")
    value = b.op("fmul", scaled, b.const("f32", 2.0**120, lanes))
    signed = b.op("or", b.cast("bitcast", value, "i32"), sign)
    is_nan = b.compare("icmp", "eq", magnitude, b.const("i32", 0x7F, lanes))
    return b.cast("bitcast", b.select(is_nan, b.const("i32", 0x7FC00000, lanes), signed), "f32")


def to_memory(b: Builder, value: Value, dtype: DType) -> Value:
    """The bytes to store for a value; floats round to nearest, ties to even."""
    if dtype.kind == "b":
        return b.cast("zext", value, "i8")
    if dtype is dt.float16:
        return b.cast("fptrunc", value, "f16")
    if dtype is dt.bfloat16:
        return _to_bfloat16(b, value)
    if dtype is dt.float8_e5m2:
        return _to_fp8(b, value, mantissa=2, bias=15, largest=57344.0, overflow=0x7C, nan=0x7E)
    if dtype is dt.float8_e4m3:
        return _to_fp8(b, value, mantissa=3, bias=7, largest=448.0, overflow=0x7F, nan=0x7F)
    return value


def round_to(b: Builder, value: Value, dtype: DType) -> Value:
    """A float32 value rounded to what `dtype` can hold."""
    if not dtype.is_float or dtype.bits >= 32:
        return value
    return from_memory(b, to_memory(b, value, dtype), dtype)


def _to_bfloat16(b: Builder, value: Value) -> Value:
    lanes = value.lanes
    bits = b.cast("bitcast", value, "i32")
    half = b.const("i32", 16, lanes)
    odd = b.op("and", b.op("lshr", bits, half), b.const("i32", 1, lanes))
    rounded = b.op("add", b.op("add", bits, b.const("i32", 0x7FFF, lanes)), odd)
    is_nan = b.compare("fcmp", "uno", value, value)
    quiet = b.op("or", bits, b.const("i32", 0x0040_0000, lanes))
    return b.cast("itrunc", b.op("lshr", b.select(is_nan, quiet, rounded), half), "i16")


def _to_fp8(
    b: Builder, value: Value, *, mantissa: int, bias: int, largest: float, overflow: int, nan: int
) -> Value:
    """Round a float32 to an 8-bit float by adding a power of two that pushes the surplus bits out.

    The addend is 2**(exponent of the value + 23 - mantissa), at least as large as the type's
    smallest step asks, so one rule rounds normal and denormal numbers.
    """
    lanes = value.lanes

    def number(x: int) -> Value:
        return b.const("i32", x, lanes)

    bits = b.cast("bitcast", value, "i32")
    magnitude = b.op("and", bits, number(0x7FFFFFFF))
    sign = b.op("and", b.op("lshr", bits, number(24)), number(0x80))
    exponent = b.op("lshr", magnitude, number(23))
    exponent = b.op("smax", exponent, number(127 + 1 - bias))
    exponent = b.op("smin", exponent, number(200))
    shift = b.cast(
        "bitcast", b.op("shl", b.op("add", exponent, number(23 - mantissa)), number(23)), "f32"
    )
    absolute = b.cast("bitcast", magnitude, "f32")
    rounded = b.op("fsub", b.op("fadd", absolute, shift), shift)
    scaled = b.op("fmul", rounded, b.const("f32", 2.0 ** (bias - 127), lanes))
    code = b.op("lshr", b.cast("bitcast", scaled, "i32"), number(23 - mantissa))
    too_large = b.compare("fcmp", "ogt", rounded, b.const("f32", largest, lanes))
    code = b.select(too_large, number(overflow), code)
    code = b.select(b.compare("fcmp", "uno", value, value), number(nan), code)
    return b.cast("itrunc", b.op("or", code, sign), "i8")
