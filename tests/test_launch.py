"""Argument words and arrays, which every driver shares."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawgpu.contract import Binding, Parameter
from rawgpu.errors import LaunchError
from rawgpu.launch import ArgumentPacker, bfloat16_bits, grid_blocks, scalar_bits


def pack(value: Any, dtype: Any = None) -> Any:
    signature = None if dtype is None else (Parameter("p", dtype),)
    return ArgumentPacker("k", signature)([value])[0]


@pytest.mark.parametrize(
    ("value", "dtype", "bits"),
    [
        (1.5, "float32", 0x3FC00000),
        (1, "float32", 0x3F800000),
        (1.5, "float64", 0x3FF8000000000000),
        (1.5, "float16", 0x3E00),
        (1.5, "bfloat16", 0x3FC0),
        (float("inf"), "float32", 0x7F800000),
        (-1, "int8", 0xFF),
        (-1, "int32", 0xFFFFFFFF),
        (-1, "int64", (1 << 64) - 1),
        (65535, "uint16", 65535),
        (True, "bool", 1),
        (np.float32(1.5), "float32", 0x3FC00000),
        (np.int32(-2), "int32", 0xFFFFFFFE),
        (np.bool_(True), "bool", 1),
        (np.uint64(7), "pointer", 7),
        (np.int16(-1), None, 0xFFFF),
        (np.float64(0.5), None, 0x3FE0000000000000),
    ],
)
def test_scalars_become_zero_extended_bits(value: Any, dtype: Any, bits: Any) -> None:
    assert pack(value, dtype) == bits


@pytest.mark.parametrize(
    ("value", "dtype", "says"),
    [
        (1.5, "int32", "for an integer"),
        (1.0, "int64", "for an integer"),
        (128, "int8", "does not fit"),
        (-1, "uint32", "does not fit"),
        (1 << 63, "int64", "does not fit"),
        (1e39, "float32", "does not fit"),
        (70000.0, "float16", "does not fit"),
        (True, "int32", "for a int32"),
        (1, "bool", "for a bool"),
        (np.float32(1), "float64", "a float32 for float64"),
        (np.int64(1), "int32", "a int64 for int32"),
        (np.int64(1), "pointer", "pass a buffer"),
        (4096, "pointer", "for a pointer"),
        (1, None, "no signature"),
        (1.0, None, r"np.float32\(1.0\)"),
        (np.complex64(1), None, "complex64"),
        (np.datetime64(1, "s"), None, "datetime64"),
        ("x", "int32", "a str"),
        ("x", "pointer", "a str"),
        (None, None, r"None cannot be.*\n  try: np.uint64\(0\)"),
        (None, "pointer", r"None cannot be.*\n  try: np.uint64\(0\)"),
        (None, "float32", r"None for float32\n  try: a number"),
        (np.zeros(3), None, r"an ndarray cannot be.*\n  try: device.array\(x\)"),
        ([1, 2], "pointer", r"a list cannot be.*\n  try: device.array\(x\)"),
    ],
)
def test_what_has_no_certain_meaning_is_refused(value: Any, dtype: Any, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        pack(value, dtype)


def test_a_refusal_names_the_kernel_and_the_argument() -> None:
    with pytest.raises(LaunchError, match=r"saxpy, argument 1 'n': 1\.5 for an integer, int32"):
        ArgumentPacker("saxpy", (Parameter("a", "float32"), Parameter("n", "int32")))([1.0, 1.5])


def test_bindings_pass_through() -> None:
    assert pack(Binding(3, 8), "pointer") == Binding(3, 8)
    assert pack(Binding(3), "float32") == Binding(3)
    assert pack(Binding(3)) == Binding(3)


@given(st.floats(width=32, allow_nan=False))
def test_float32_words_are_the_values_own_bits(value: Any) -> None:
    assert pack(value, "float32") == struct.unpack("<I", struct.pack("<f", value))[0]
    assert scalar_bits(np.float32(value)) == pack(value, "float32")


@given(st.integers(0, (1 << 32) - 1))
def test_bfloat16_is_the_nearest_ties_to_even(bits: Any) -> None:
    value = np.uint32(bits).view(np.float32)
    if np.isnan(value):
        assert bfloat16_bits(float(value)) & 0x7FFF > 0x7F80
        return
    ours = bfloat16_bits(float(value))
    low = bits >> 16
    candidates = [(low, bits & 0xFFFF), (low + 1, 0x10000 - (bits & 0xFFFF))]
    best = min(candidates, key=lambda row: (row[1], row[0] & 1))
    assert ours == best[0]


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [(5, (5, 1, 1)), ((2, 3), (2, 3, 1)), ([2, 3, 4], (2, 3, 4)), (np.int64(7), (7, 1, 1))],
)
def test_grids_become_three_counts(grid: Any, blocks: Any) -> None:
    assert grid_blocks(grid) == blocks


@pytest.mark.parametrize("grid", [0, -1, (), (1, 2, 3, 4), (1, 0), 2.0, True, "3", None])
def test_impossible_grids_are_refused(grid: Any) -> None:
    with pytest.raises(LaunchError):
        grid_blocks(grid)


def test_arguments_without_names_are_counted_by_their_sizes() -> None:
    rows = (Parameter("argument0", "pointer"), Parameter("argument1", "bytes4"))
    with pytest.raises(LaunchError, match=r"k takes 2 arguments \(pointer, 4 bytes\), not 1"):
        ArgumentPacker("k", rows)([np.uint64(0)])
    with pytest.raises(LaunchError, match=r"k, argument 0: an ndarray cannot"):
        ArgumentPacker("k", rows).one(0, np.zeros(3))  # type: ignore[arg-type]
    named = (Parameter("x", "pointer"), Parameter("n", "int32"))
    with pytest.raises(LaunchError, match=r"2 arguments \(x: pointer, n: int32\), not 0"):
        ArgumentPacker("k", named)([])
