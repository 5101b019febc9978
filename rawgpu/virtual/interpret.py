"""The interpreter's primitives: meanings over NumPy lanes, computed at once.

A value is an array of one element (a scalar register) or of one a lane. NumPy has no fused
multiply-add; `maths_numpy` computes it by rounding to odd. Errors of floats are not reported: run
inside `quiet()`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from rawgpu.compiler_bridge import maths, maths_numpy
from rawgpu.virtual.meaning import Raw

UNSIGNED = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOAT = {16: np.float16, 32: np.float32, 64: np.float64}
ROUNDING = {
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "roundeven": np.rint,
    "fneg": np.negative, "fabs": np.abs,
}  # fmt: skip
ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "umin": np.minimum, "umax": np.maximum,
    "fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide,
}  # fmt: skip
RELATIONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip


def quiet() -> AbstractContextManager[None]:
    """Silence about overflow and NaN: registers may hold anything."""
    return np.errstate(all="ignore")


def _signed(a: Raw, bits: int) -> Raw:
    return a.view(SIGNED[bits])


class NumpyLanes:
    """`LaneOps` over arrays: unsigned integers, floats and booleans."""

    def __init__(self) -> None:
        self._constants: dict[tuple[str, int, Any], Raw] = {}

    def const(self, kind: str, bits: int, number: float) -> Raw:
        key = (kind, bits, repr(number))
        found = self._constants.get(key)
        if found is None:
            if kind == "f":
                found = np.array([number], FLOAT[bits])
            else:
                found = np.array([int(number) & ((1 << bits) - 1)], UNSIGNED[bits])
            self._constants[key] = found
        return found

    def binary(self, op: str, bits: int, a: Raw, b: Raw) -> Raw:
        plain = ARITHMETIC.get(op)
        if plain is not None:
            return plain(a, b)
        if op in ("smin", "smax"):
            which = np.minimum if op == "smin" else np.maximum
            return which(_signed(a, bits), _signed(b, bits)).view(UNSIGNED[bits])
        # As LLVM has it, a count that is too large is nobody's promise: mask it.
        count = b & UNSIGNED[bits](bits - 1)
        if op == "shl":
            return a << count
        if op == "lshr":
            return a >> count
        assert op == "ashr", op
        return (_signed(a, bits) >> _signed(count, bits)).view(UNSIGNED[bits])

    def unary(self, op: str, bits: int, a: Raw) -> Raw:
        plain = ROUNDING.get(op)
        if plain is not None:
            return plain(a)
        if op == "popcount":
            return self._popcount(a, bits)
        if op == "bitreverse":
            return self._reverse(a, bits)
        if op == "ctz":
            lowest = a & (~a + UNSIGNED[bits](1))
            return self._popcount(lowest - UNSIGNED[bits](1), bits)
        assert op == "clz", op
        for shift in (1, 2, 4, 8, 16, 32):
            if shift < bits:
                a = a | (a >> UNSIGNED[bits](shift))
        return UNSIGNED[bits](bits) - self._popcount(a, bits)

    def _popcount(self, a: Raw, bits: int) -> Raw:
        parts = np.ascontiguousarray(a).view(np.uint8).reshape(len(a), bits // 8)
        return np.unpackbits(parts, axis=1).sum(axis=1).astype(UNSIGNED[bits])

    def _reverse(self, a: Raw, bits: int) -> Raw:
        parts = np.ascontiguousarray(a).view(np.uint8).reshape(len(a), bits // 8)
        order = np.unpackbits(parts[:, ::-1], axis=1)[:, ::-1]
        flipped = np.packbits(order, axis=1)[:, ::-1]
        return np.ascontiguousarray(flipped).view(UNSIGNED[bits]).reshape(len(a))

    def compare(self, relation: str, bits: int, a: Raw, b: Raw) -> Raw:
        if relation in ("eq", "ne"):
            return RELATIONS[relation](a, b)
        if relation == "uno":
            return (a != a) | (b != b)
        if relation == "ord":
            return (a == a) & (b == b)
        if relation == "une":
            return a != b
        if relation[0] == "s":
            a, b = _signed(a, bits), _signed(b, bits)
        return RELATIONS[relation[1:]](a, b)

    def fma(self, bits: int, a: Raw, b: Raw, c: Raw) -> Raw:
        if bits == 16:  # exact in float64
            exact = np.multiply(a, b, dtype=np.float64) + c.astype(np.float64)
            return exact.astype(np.float16)
        if bits == 32:
            return maths_numpy._fma32(a, b, c)
        return maths_numpy._fma64(a, b, c)

    def select(self, condition: Raw, a: Raw, b: Raw) -> Raw:
        return np.where(condition, a, b)

    def both(self, a: Raw, b: Raw) -> Raw:
        return a & b

    def either(self, a: Raw, b: Raw) -> Raw:
        return a | b

    def invert(self, a: Raw) -> Raw:
        return ~a

    def resize(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw:
        if bits == to_bits:
            return a
        if signed and to_bits > bits:
            return _signed(a, bits).astype(SIGNED[to_bits]).view(UNSIGNED[to_bits])
        return a.astype(UNSIGNED[to_bits])

    def to_float(self, a: Raw, bits: int) -> Raw:
        return a.view(FLOAT[bits])

    def to_bits(self, a: Raw, bits: int) -> Raw:
        return a.view(UNSIGNED[bits])

    def int_to_float(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw:
        return (_signed(a, bits) if signed else a).astype(FLOAT[to_bits])

    def float_to_int(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw:
        wide = np.trunc(a).astype(np.int64)
        return wide.astype(UNSIGNED[to_bits])

    def float_resize(self, a: Raw, bits: int, to_bits: int) -> Raw:
        wider = a.astype(FLOAT[to_bits])
        if bits == to_bits or 16 not in (bits, to_bits):
            return wider
        # Processors make a signalling NaN quiet; NumPy does not, from or to a half.
        pattern = wider.view(UNSIGNED[to_bits])
        quiet = UNSIGNED[to_bits](1 << {16: 9, 32: 22, 64: 51}[to_bits])
        return np.where(wider != wider, pattern | quiet, pattern).view(FLOAT[to_bits])

    def bool_to_int(self, a: Raw, bits: int) -> Raw:
        return a.astype(UNSIGNED[bits])

    def mul_high(self, a: Raw, b: Raw, bits: int, *, signed: bool) -> Raw:
        if bits < 64:
            wide_a = self.resize(a, bits, 64, signed=signed)
            wide_b = self.resize(b, bits, 64, signed=signed)
            return (wide_a * wide_b >> np.uint64(bits)).astype(UNSIGNED[bits])
        sign = 1 << 63
        pairs = zip(*(x.tolist() for x in np.broadcast_arrays(a, b)), strict=True)
        exact = [
            (((x ^ sign) - sign) * ((y ^ sign) - sign) if signed else x * y) >> 64 for x, y in pairs
        ]
        return np.array([x & ((1 << 64) - 1) for x in exact], np.uint64)

    def maths(self, name: str, bits: int, a: Raw) -> Raw:
        return maths_numpy.apply(getattr(maths, name), a)
