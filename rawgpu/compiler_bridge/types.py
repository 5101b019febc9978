"""The types of LLVM IR that we print: scalars, vectors, pointers; and exact constants."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """A first-class type. `lanes` is 0 for a scalar, which differs from a vector of one lane."""

    kind: str  # "float", "bfloat", "int", "ptr" or "void"
    bits: int
    lanes: int = 0
    space: int = 0  # address space of a pointer

    @functools.cached_property
    def text(self) -> str:
        """As IR spells it: `float`, `i64`, `ptr addrspace(1)`, `<16 x float>`."""
        if self.lanes:
            return f"<{self.lanes} x {self.scalar.text}>"
        if self.kind == "float":
            return {16: "half", 32: "float", 64: "double"}[self.bits]
        if self.kind == "int":
            return f"i{self.bits}"
        if self.kind == "ptr" and self.space:
            return f"ptr addrspace({self.space})"
        return self.kind

    @functools.cached_property
    def mangled(self) -> str:
        """As intrinsic names spell it: `f32`, `i64`, `p1`, `v16f32`."""
        scalar = {"float": "f", "bfloat": "bf", "int": "i"}.get(self.kind)
        name = f"{scalar}{self.bits}" if scalar else f"p{self.space}"
        return f"v{self.lanes}{name}" if self.lanes else name

    @functools.cached_property
    def scalar(self) -> Type:
        """The type of one lane; itself for a scalar."""
        return Type(self.kind, self.bits, 0, self.space) if self.lanes else self

    @functools.cached_property
    def bool_type(self) -> Type:
        """What comparing two values of this type gives: i1, in as many lanes."""
        return Type("int", 1, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.kind in ("float", "bfloat")

    @property
    def is_int(self) -> bool:
        return self.kind == "int"

    @property
    def size_bytes(self) -> int:
        """Bytes in memory of a tightly packed array of these."""
        return max(1, self.bits // 8) * max(1, self.lanes)

    def with_lanes(self, lanes: int) -> Type:
        """The same element in `lanes` lanes; 0 gives the scalar."""
        return vector(self.scalar, lanes)

    def like(self, scalar: Type) -> Type:
        """`scalar` in as many lanes as this type has."""
        return vector(scalar, self.lanes)

    def __str__(self) -> str:
        return self.text


@functools.cache
def vector(scalar: Type, lanes: int) -> Type:
    """`lanes` of `scalar`; the scalar itself for 0 lanes."""
    return Type(scalar.kind, scalar.bits, lanes, scalar.space)


def pointer(space: int = 0) -> Type:
    """An opaque pointer into address space `space`."""
    return Type("ptr", 64, 0, space)


f16, f32, f64 = Type("float", 16), Type("float", 32), Type("float", 64)
bf16 = Type("bfloat", 16)
i1, i8, i16, i32, i64 = (Type("int", bits) for bits in (1, 8, 16, 32, 64))
ptr = pointer()
void = Type("void", 0)


def _f32_bits(number: float) -> int:
    try:
        return int.from_bytes(struct.pack("<f", number), "little")
    except OverflowError:  # beyond the largest float32: IEEE rounding gives infinity
        return 0x7F80_0000 | (0x8000_0000 if number < 0 else 0)


def float_text(scalar: Type, number: float) -> str:
    """`number` rounded to `scalar`, in the hexadecimal form that loses nothing."""
    if scalar.kind == "bfloat":
        bits = _f32_bits(number)
        if number != number:
            return f"0xR{(bits >> 16) | 0x40:04X}"
        return f"0xR{((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF:04X}"
    if scalar.bits == 16:
        try:
            return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
        except OverflowError:
            return "0xHFC00" if number < 0 else "0xH7C00"
    if scalar.bits == 32:  # IR writes a float as the double of the same value
        number = struct.unpack("<f", _f32_bits(number).to_bytes(4, "little"))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def constant_text(type_: Type, number: float | int | bool) -> str:
    """A literal of `type_`, the same number in each lane."""
    if type_.is_float:
        text = float_text(type_.scalar, float(number))
    elif type_.bits == 1:
        text = "true" if number else "false"
    elif type_.kind == "ptr":
        assert not number, "the only pointer constant is null"
        text = "null"
    else:
        # Unsigned spellings of a negative number are common in bit tricks; IR wants the value to
        # fit.
        value = int(number) & ((1 << type_.bits) - 1)
        text = str(value - (1 << type_.bits) if value >> (type_.bits - 1) else value)
    return f"splat ({type_.scalar} {text})" if type_.lanes else text
