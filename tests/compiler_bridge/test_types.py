from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawgpu.compiler_bridge.types import (
    Type,
    bf16,
    constant_text,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
    pointer,
    ptr,
    vector,
    void,
)


@pytest.mark.parametrize(
    ("type_", "text", "mangled"),
    [
        (f16, "half", "f16"),
        (bf16, "bfloat", "bf16"),
        (f32, "float", "f32"),
        (f64, "double", "f64"),
        (i1, "i1", "i1"),
        (ptr, "ptr", "p0"),
        (pointer(3), "ptr addrspace(3)", "p3"),
        (vector(f32, 16), "<16 x float>", "v16f32"),
        (vector(ptr, 4), "<4 x ptr>", "v4p0"),
        (vector(i8, 1), "<1 x i8>", "v1i8"),
        (void, "void", "p0"),
    ],
)
def test_types_are_spelled_as_in_ir(type_: Type, text: str, mangled: str) -> None:
    assert str(type_) == text
    if type_ is not void:
        assert type_.mangled == mangled


def test_types_know_their_shape() -> None:
    wide = vector(f32, 16)
    assert (wide.size_bytes, wide.scalar, wide.bool_type) == (64, f32, vector(i1, 16))
    assert wide.like(i32) == vector(i32, 16)
    assert wide.with_lanes(0) is f32 or wide.with_lanes(0) == f32
    assert (i1.size_bytes, ptr.size_bytes) == (1, 8)


@pytest.mark.parametrize(
    ("type_", "number", "text"),
    [
        (f32, 1.0, "0x3FF0000000000000"),
        (f32, 0.1, "0x3FB99999A0000000"),
        (f32, 1e39, "0x7FF0000000000000"),
        (f32, -1e39, "0xFFF0000000000000"),
        (f32, 1e-45, "0x36A0000000000000"),
        (f64, 0.1, "0x3FB999999999999A"),
        (f64, -0.0, "0x8000000000000000"),
        (f16, 1.0, "0xH3C00"),
        (f16, 1e9, "0xH7C00"),
        (bf16, 1.0, "0xR3F80"),
        (bf16, 1.00390625, "0xR3F80"),  # half way: to even
        (bf16, 1.01171875, "0xR3F82"),
        (i32, -1, "-1"),
        (i32, 0xFFFF_FFFF, "-1"),
        (i8, 200, "-56"),
        (i64, 1 << 63, str(-(1 << 63))),
        (i1, 1, "true"),
        (ptr, 0, "null"),
        (vector(i32, 4), 7, "splat (i32 7)"),
    ],
)
def test_constants_are_exact(type_: Type, number: float, text: str) -> None:
    assert constant_text(type_, number) == text


def test_nan_and_infinity_are_constants() -> None:
    assert constant_text(f32, math.nan) == "0x7FF8000000000000"
    assert constant_text(bf16, math.nan) == "0xR7FC0"
    assert constant_text(bf16, 3.4e38) == "0xR7F80"
    assert constant_text(f64, -math.inf) == "0xFFF0000000000000"


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_an_integer_is_taken_modulo_its_width(number: int) -> None:
    value = int(constant_text(i64, number))
    assert (value - number) % (1 << 64) == 0
    assert -(1 << 63) <= value < 1 << 63
