"""How an operation is compared with NumPy: a cell is an operation, a dtype and 30 examples.

An example is a layout and a seed; the seed fills the arrays with ordinary numbers and, where the
operation takes them, with zeros, infinities, NaN and the dtype's limits. What is expected is
computed by NumPy in float64 from the very values that the device gets.

Every new shape is a new kernel to compile, so a cell of the quick set keeps to one layout, which
its name chooses; the full set takes them all.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from frontend import Tensor
from frontend import dtype as dt
from frontend.dtype import DType

Array = np.ndarray[Any, Any]

FLOATS = (dt.float16, dt.bfloat16, dt.float32, dt.float64)
SIGNED = (dt.int8, dt.int16, dt.int32, dt.int64)
UNSIGNED = (dt.uint8, dt.uint16, dt.uint32, dt.uint64)
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
EVERYTHING = (*NUMBERS, dt.bool_)

EXAMPLES = 30

NUMPY_TYPES: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}

ULP = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def numpy_type(dtype: DType) -> np.dtype[Any]:
    return np.dtype(NUMPY_TYPES.get(dtype.name, dtype.name))


def draw(
    rng: np.random.Generator,
    shape: Sequence[int],
    dtype: DType,
    low: float = -4.0,
    high: float = 4.0,
    special: bool = False,
) -> Array:
    """Random values of `dtype`: floats in [low, high), integers of all sizes.

    `special` mixes in the odd ones.
    """
    kind = numpy_type(dtype)
    size = int(np.prod(shape, dtype=np.int64))
    if dtype.kind == "b":
        values = rng.integers(0, 2, size).astype(bool)
    elif dtype.is_integer:
        values = integers(rng, size, dtype, low, high)
    else:
        values = rng.uniform(low, high, size).astype(kind)
        odd = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
        if special and size:
            where = rng.random(size) < 0.3
            values[where] = np.array(odd)[rng.integers(0, len(odd), size)].astype(kind)[where]
    return values.reshape(tuple(shape))


def integers(rng: np.random.Generator, size: int, dtype: DType, low: float, high: float) -> Array:
    """Half of them small, half any of the dtype, and its limits among them.

    In [low, high) if that is narrow.
    """
    lowest, highest = (int(v) for v in dt.limits(dtype))
    if (low, high) != (-4.0, 4.0):
        return rng.integers(max(int(low), lowest), min(int(high), highest), size).astype(
            dtype.numpy
        )
    small = rng.integers(max(-5, lowest), 6, size)
    kind: Any = dtype.numpy.type
    wide = rng.integers(lowest, highest, size, dtype=kind, endpoint=True)
    edge = np.array([lowest, highest, 0, 1], dtype.numpy)[rng.integers(0, 4, size)]
    pick = rng.integers(0, 8, size)
    out = np.where(pick < 4, small.astype(dtype.numpy), wide)
    return np.where(pick == 7, edge, out).astype(dtype.numpy)


# -- layouts: the same elements, differently laid out before the operation sees them


def plain(array: Array) -> Tensor:
    return Tensor(array)


def host_strides(array: Array) -> Tensor:
    """A NumPy view that is neither contiguous nor forward."""
    wide = np.zeros([2 * n for n in array.shape], array.dtype)
    view = wide[tuple(slice(None, None, -2) for _ in array.shape)]
    view[...] = array
    return Tensor(view)


def permuted(array: Array) -> Tensor:
    return Tensor(np.ascontiguousarray(array.T)).permute()


def sliced(array: Array) -> Tensor:
    """Every second element of a larger tensor, backwards along the last axis."""
    if not array.ndim:
        return Tensor(array)
    wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
    view = wide[tuple(slice(1, None, 2) for _ in array.shape)]
    view[...] = array[..., ::-1]
    steps = [slice(1, None, 2)] * (array.ndim - 1) + [slice(-2, 0, -2)]
    return Tensor(wide)[tuple(steps)]


LAYOUTS: dict[str, Callable[[Array], Tensor]] = {
    "plain": plain,
    "host_strides": host_strides,
    "permuted": permuted,
    "sliced": sliced,
}

# one shape for each layout, so that a layout is one kernel
SHAPES = {"plain": (37,), "host_strides": (3, 5), "permuted": (4, 3, 2), "sliced": (2, 1, 7)}


@dataclass(frozen=True)
class Example:
    layout: str
    rng: np.random.Generator

    @property
    def shape(self) -> tuple[int, ...]:
        return SHAPES[self.layout]

    def tensor(self, array: Array) -> Tensor:
        return LAYOUTS[self.layout](array)


def run_cell(
    request: pytest.FixtureRequest,
    name: str,
    dtype: DType,
    body: Callable[[Example], None],
    *,
    full: bool = False,
    examples: int = EXAMPLES,
) -> None:
    """Run `body` on that many examples and count the cell."""
    layouts = sorted(LAYOUTS)
    if not full:
        layouts = [layouts[zlib.crc32(f"{name} {dtype}".encode()) % len(layouts)]]
    for number in range(examples):
        layout, seed = layouts[number % len(layouts)], [zlib.crc32(name.encode()), number]
        try:
            body(Example(layout, np.random.default_rng(seed)))
        except Exception as error:
            error.add_note(f"example {number}: layout {layout}, seed {seed}")
            raise
    request.node.user_properties.append((f"cell {name} {dtype}", examples))


def agree(
    ours: Tensor, expected: Array, *, ulps: float = 2.0, scale: Array | float | None = None
) -> None:
    """Integers and bool equal.

    Floats within `ulps` of the result's dtype, at the size of `scale` if given.

    What overflows the dtype, or falls below its normal numbers, may be rounded as the dtype does.
    """
    got = ours.numpy()
    assert got.shape == expected.shape, (got.shape, expected.shape)
    if not ours.dtype.is_float:
        assert got.dtype == ours.dtype.numpy
        np.testing.assert_array_equal(got, expected)
        return
    kind = numpy_type(ours.dtype)
    with np.errstate(all="ignore"):
        rounded = np.asarray(expected, np.float64).astype(kind).astype(np.float64)
        wide = got.astype(np.float64)
        size = np.abs(rounded) if scale is None else np.maximum(np.abs(rounded), scale)
        tiny = float(ml_dtypes.finfo(kind).tiny)
        bound = ulps * ULP[ours.dtype.name] * np.maximum(size, tiny)
        same = (wide == rounded) | (np.isnan(wide) & np.isnan(rounded))
        near = np.abs(wide - np.asarray(expected, np.float64)) <= bound
        # at the edge of overflow either side of the rounding is right
        largest = float(ml_dtypes.finfo(kind).max)
        edge = (np.abs(expected) >= largest * (1 - ulps * ULP[ours.dtype.name])) & (
            np.abs(wide) >= largest * (1 - 2 * ulps * ULP[ours.dtype.name])
        )
    wrong = ~(same | near | (edge & (np.sign(wide) == np.sign(expected))))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} wrong; at {at}: got {wide[at]!r}, "
            f"expected {np.asarray(expected)[at]!r}"
        )


def widened(array: Array) -> Array:
    """Floats as float64, so that NumPy computes the expected value with room to spare."""
    return array if array.dtype.kind in "biu" else array.astype(np.float64)
