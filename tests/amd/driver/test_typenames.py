"""Names of types in metadata: plain numbers come in by them, and wrong arrays stay out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver.device import open_device
from rawgpu.amd.driver.typenames import element_of, may_be, scalar_of
from rawgpu.errors import LaunchError
from rawgpu.virtual.room import Room
from tests.amd.driver.foreign_objects import kept

pytestmark = pytest.mark.virtual
BLOCK = 64


def test_types_by_name_let_plain_numbers_in_and_keep_wrong_arrays_out() -> None:
    with Room("gfx1100"), open_device("amd:0") as gpu:
        kernel: Any = gpu.load(kept("parts-gfx1100.o"))["saxpy"]
        assert [row.dtype for row in kernel.signature or ()] == [
            "pointer", "pointer", "float32", "int32",
        ]  # fmt: skip
        x, y = gpu.array(np.ones(64, np.float32)), gpu.array(np.ones(64, np.float32))
        kernel(x, y, 2, 64, block=BLOCK)
        assert set(y.numpy()) == {3}
        kernel(x, y.buffer, np.float32(2), np.uint32(64), block=BLOCK)  # C does not mind the sign
        kernel(x, y, np.float32(2).tobytes(), np.int32(64), block=BLOCK)
        assert set(y.numpy()) == {7}
        wide = gpu.array(np.ones(64))
        for arguments, says in (
            ((wide, y, 2, 64), "argument 0: an array of float64 for a pointer to float32"),
            ((x, y, np.float64(2), 64), "argument 2: a float64 for float32"),
            ((x, y, 2, 1.5), "argument 3: 1.5 for an integer"),
            ((x, y, 2, np.int64(1)), "argument 3: 8 bytes for a value of 4"),
            ((x, y, 2), r"4 arguments \(pointer, pointer, float32, int32\), not 3"),
        ):
            with pytest.raises(LaunchError, match=says):
                kernel(*arguments, block=BLOCK)
        kernel(wide.buffer, y, 0, 64, block=BLOCK)
        gpu.synchronize()


@pytest.mark.parametrize(
    ("name", "size", "scalar", "element"),
    [
        ("float", 4, "float32", None),
        ("uint", 4, "uint32", None),
        ("float", 8, None, None),
        ("real_t", 4, None, None),
        (None, 4, None, None),
        (7, 4, None, None),
        ("float4*", 8, None, "float32"),
        ("half*", 8, None, "float16"),
        ("real_t*", 8, None, None),
        ("void*", 8, None, None),
        ("float**", 8, None, None),
    ],
)
def test_names_of_types(name: Any, size: int, scalar: str | None, element: str | None) -> None:
    assert (scalar_of(name, size), element_of(name)) == (scalar, element)


@pytest.mark.parametrize(
    ("array", "element", "fits"),
    [
        ("float32", "float32", True),
        ("float64", "float32", False),
        ("int32", "float32", False),
        ("int32", "uint32", True),
        ("int64", "int32", False),
        ("uint8", "float32", True),
        ("float64", "int8", True),
        ("complex64", "float32", True),
        ("complex128", "float32", False),
    ],
)
def test_which_arrays_a_pointer_takes(array: str, element: str, fits: bool) -> None:
    assert may_be(np.dtype(array), element) is fits
