"""The builder folds to what the machine would compute."""

from __future__ import annotations

import pytest

from frontend.instructions.ir import Builder


@pytest.mark.parametrize(
    ("op", "kind", "number", "to", "result"),
    [
        ("sext", "i1", 1, "i32", "-1"),
        ("sext", "i1", 0, "i32", "0"),
        ("zext", "i1", 1, "i32", "1"),
        ("sitofp", "i1", 1, "f32", "-1.0"),
        ("uitofp", "i1", 1, "f32", "1.0"),
        ("sext", "i8", 200, "i32", "-56"),
        ("zext", "i8", -56, "i32", "200"),
        ("sitofp", "i8", 200, "f32", "-56.0"),
        ("uitofp", "i8", -56, "f32", "200.0"),
        ("itrunc", "i32", 511, "i8", "-1"),
        ("itrunc", "i32", 3, "i1", "1"),
        ("fpext", "f32", 0.1, "f64", "0.10000000149011612"),
    ],
)
def test_casts_of_constants(op: str, kind: str, number: float, to: str, result: str) -> None:
    b = Builder()
    made = b.cast(op, b.const(kind, number), to)
    assert made.is_constant
    assert (made.kind, made.attr) == (to, result)


def test_a_bit_pattern_is_one_constant() -> None:
    b = Builder()
    assert b.const("i8", 255) is b.const("i8", -1)
    assert b.const("i64", 2**64 - 1) is b.const("i64", -1)
    assert b.const("i1", 1) is b.const("i1", -1)


@pytest.mark.parametrize(
    ("predicate", "x", "y", "holds"),
    [
        ("eq", 255, -1, "1"),
        ("slt", 200, 0, "1"),
        ("ult", -1, 1, "0"),
        ("ult", 1, 200, "1"),
        ("ule", 200, -56, "1"),
    ],
)
def test_comparisons_of_constants_see_the_bits(predicate: str, x: int, y: int, holds: str) -> None:
    b = Builder()
    assert b.compare("icmp", predicate, b.const("i8", x), b.const("i8", y)).attr == holds


def test_a_shift_by_the_width_is_not_folded() -> None:
    b = Builder()
    assert not b.op("shl", b.const("i32", 1), b.const("i32", 32)).is_constant
    assert b.op("shl", b.const("i32", 1), b.const("i32", 31)).attr == str(-(2**31))
