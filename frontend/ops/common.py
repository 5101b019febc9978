"""What the operations share: checks in the user's language, broadcasting, small compositions.

A check that fails raises at the call and names the operation, the shapes and the rule. Broadcasting
and promotion are NumPy's and `frontend/dtype.py`'s; a Python number is weak: it takes the tensor's
dtype unless its kind cannot hold it (a float with an integer tensor gives float32).
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, Union

import numpy as np

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op, Shape
from rawgpu.errors import AxisError, DTypeError, OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Scalar: TypeAlias = bool | int | float
NumPyValue: TypeAlias = "np.ndarray[Any, Any] | np.generic"
Operand: TypeAlias = Union["Tensor", Scalar, "NumPyValue"]
Axes: TypeAlias = int | Sequence[int] | None


MAX_AXES: int = getattr(np, "MAXDIMS", 64)
"""As many as NumPy has, in whose arrays values come and leave."""
MAX_ELEMENTS = (1 << 63) - 1
"""Indices are int64."""


class _GradMode(threading.local):
    enabled = True


grad_mode = _GradMode()


@contextmanager
def no_grad() -> Iterator[None]:
    """Within it, results have `requires_grad` False, and backward stops at them."""
    before = grad_mode.enabled
    grad_mode.enabled = False
    try:
        yield
    finally:
        grad_mode.enabled = before


# -- operands


def full(value: Scalar, shape: Shape, dtype: DType) -> Node:
    return g.const(value, shape, dtype)


def like(value: Scalar, node: Node) -> Node:
    """A constant of `node`'s shape and dtype."""
    return g.const(value, node.shape, node.dtype)


def as_tensor(value: Operand, on: Tensor, name: str) -> Tensor:
    """`value` as a tensor on the device of `on`.

    A Python number becomes a weakly typed constant. Raises DTypeError for what is neither tensor
    nor array nor number.
    """
    cls = type(on)
    if isinstance(value, cls):
        return value
    if isinstance(value, (bool, int, float)):
        return cls._new(scalar(name, value, on.dtype, ()), on.device)
    return made(name, value, on.device)


def made(name: str, value: object, device: str | None) -> Tensor:
    """A new tensor of `value`, for the operation `name`. Raises DTypeError."""
    from frontend.tensor import Tensor

    try:
        return Tensor(value, device=device)
    except DTypeError as error:
        said = error.message.removeprefix("Tensor: ")
        raise DTypeError(f"{name}: {said}", hint=error.hint) from None


def tensors(name: str, values: Iterable[Operand]) -> list[Tensor]:
    """Tensors, and what becomes one on the device of the first of them.

    Raises DTypeError for what does not, OperationError if `values` is one tensor or no list.
    """
    from frontend.tensor import Tensor

    if isinstance(values, (Tensor, str, np.ndarray)) or not isinstance(values, Iterable):
        raise OperationError(f"{name}: takes a list of tensors, not a {type(values).__name__}")
    listed = list(values)
    device = next((v.device for v in listed if isinstance(v, Tensor)), None)
    return [v if isinstance(v, Tensor) else made(name, v, device) for v in listed]


def only_tensors(name: str, **values: object) -> None:
    """Raises OperationError for an argument that is no tensor."""
    from frontend.tensor import Tensor

    for what, value in values.items():
        if not isinstance(value, Tensor):
            raise OperationError(f"{name}: {what} is a tensor, not {_noun(value)}")


def tensors_or_none(name: str, **values: object) -> None:
    """As `only_tensors`, for arguments that may be left out."""
    only_tensors(name, **{what: value for what, value in values.items() if value is not None})


def same_device(name: str, *tensors: Tensor) -> None:
    """All tensors of an operation live on one device. Raises OperationError."""
    device = tensors[0].device
    for tensor in tensors[1:]:
        if tensor.device != device:
            raise OperationError(
                f"{name}: tensors on {device} and {tensor.device}",
                hint=f".to({device!r}) moves one of them",
            )


def scalar(name: str, value: Scalar, dtype: DType, shape: Shape) -> Node:
    """A Python number as a constant beside tensors of `dtype`.

    Raises OperationError if it does not fit.
    """
    own = dt.of_scalar(value, dtype)
    return g.const(held(name, value, own), shape, own)


def held(name: str, value: object, dtype: DType) -> Scalar:
    """`value`, if it is a number that `dtype` can hold, fractions aside. Raises OperationError."""
    number = real(name, "the value", value)
    if dtype.is_float:
        return number
    if isinstance(number, float):
        if not math.isfinite(number):
            raise OperationError(f"{name}: {number} is no value of {dtype}")
        if dtype.is_integer:
            number = int(number)
    if dtype.is_integer and not fits(number, dtype):
        low, high = dt.limits(dtype)
        raise OperationError(
            f"{name}: {shown(number)} is outside {dtype}, which holds {low} to {high}"
        )
    return number


# -- numbers that callers give


def shown(value: object) -> str:
    """A value from a caller, fit for a message."""
    if isinstance(value, int) and abs(value) >> 128:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def real(name: str, what: str, value: object) -> Scalar:
    """`value` as a Python number that a float can hold. Raises OperationError."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        if abs(value) >> 1023:  # beyond float64
            raise OperationError(f"{name}: {what}, {shown(value)}, is too large")
        return value
    raise OperationError(f"{name}: {what} is a number, not {_noun(value)}")


def probability(name: str, what: str, value: object) -> Scalar:
    """A number from 0 to 1. Raises OperationError."""
    number = real(name, what, value)
    if not 0 <= number <= 1:
        raise OperationError(f"{name}: {what}, {number}, is not between 0 and 1")
    return number


def whole(name: str, what: str, value: object, low: int | None = None) -> int:
    """`value` as an int of 64 bits, `low` at least. Raises OperationError."""
    number = _index(value)
    if number is None:
        raise OperationError(f"{name}: {what} is a whole number, not {_noun(value)}")
    if not -(1 << 63) <= number < 1 << 63:
        raise OperationError(f"{name}: {what}, {shown(number)}, is beyond 64 bits")
    if low is not None and number < low:
        raise OperationError(f"{name}: {what}, {number}, is less than {low}")
    return number


def extent(name: str, what: str, value: object) -> int:
    """`value` as a count from 0. Raises ShapeError."""
    number = _index(value)
    if number is None or not 0 <= number <= MAX_ELEMENTS:
        raise ShapeError(f"{name}: {what} is a count from 0, not {_noun(value)}")
    return number


def flag(name: str, what: str, value: object) -> bool:
    """A switch: True or False, or 1 or 0. Raises OperationError."""
    if isinstance(value, (bool, int, np.bool_)) and value in (0, 1):
        return bool(value)
    raise OperationError(f"{name}: {what} is True or False, not {_noun(value)}")


def _index(value: Any) -> int | None:
    """`value` as an int; None if it is no whole number."""
    if not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of several
        return None


def _noun(value: object) -> str:
    if value is None or isinstance(value, (str, int, float)):
        return shown(value)
    return f"a {type(value).__name__}"


def fits(value: Scalar, dtype: DType) -> bool:
    low, high = dt.limits(dtype)
    return low <= value <= high


def widen_fp8(node: Node) -> Node:
    """fp8 is for storage; arithmetic on it is done in float32."""
    return g.cast(node, dt.float32) if node.dtype in dt.FP8 else node


def to_float(node: Node) -> Node:
    """Floats as they are, fp8, integers and bool as float32."""
    if node.dtype.is_float:
        return widen_fp8(node)
    return g.cast(node, dt.DEFAULT_FLOAT)


def needs_integer(name: str, *dtypes: DType) -> None:
    for dtype in dtypes:
        if not dtype.is_integer:
            raise DTypeError(f"{name}: takes integers, not {dtype}")


def needs_float(name: str, *dtypes: DType) -> None:
    for dtype in dtypes:
        if not dtype.is_float:
            raise DTypeError(f"{name}: takes floats, not {dtype}")


# -- shapes and axes


def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """NumPy's rule: aligned at the end, extents equal or 1. Raises ShapeError."""
    ndim = max(len(shape) for shape in shapes)
    out = [1] * ndim
    for shape in shapes:
        for i, extent in enumerate(shape, ndim - len(shape)):
            if extent == 1 or out[i] == extent:
                continue
            if out[i] != 1:
                text = " and ".join(str(s) for s in shapes)
                raise ShapeError(
                    f"{name}: shapes {text} do not broadcast: axis {i - ndim} has extents "
                    f"{out[i]} and {extent}, which differ and neither is 1"
                )
            out[i] = extent
    return tuple(out)


def broadcast_to(node: Node, shape: Shape) -> Node:
    """`node` repeated to `shape`, which callers have found by `broadcast_shapes`."""
    if node.shape == shape:
        return node
    if node.ndim < len(shape):
        node = g.reshape(node, (1,) * (len(shape) - node.ndim) + node.shape)
    return g.expand(node, shape)


def normal_axis(name: str, axis: SupportsIndex, ndim: int) -> int:
    """`axis` counted from 0. Raises AxisError."""
    number = _index(axis)
    if number is None:
        raise AxisError(f"{name}: an axis is an integer, not {_noun(axis)}")
    if not -ndim <= number < ndim:
        raise AxisError(f"{name}: axis {shown(number)} is outside a tensor of {ndim} axes")
    return number % ndim


def normal_axes(name: str, axis: Axes, ndim: int) -> tuple[int, ...]:
    """`axis` as a tuple counted from 0; None means all. Raises AxisError."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, (tuple, list)):
        axes = tuple(normal_axis(name, a, ndim) for a in axis)
        if len(set(axes)) != len(axes):
            raise AxisError(f"{name}: axes {tuple(axis)} name one axis twice")
        return axes
    return (normal_axis(name, axis, ndim),)  # type: ignore[arg-type]  # a Sequence that is none


def extents(name: str, shape: int | Sequence[int]) -> Shape:
    """A shape given as a number or a sequence. Raises ShapeError."""
    return checked_shape(name, (shape,))


def as_shape(name: str, shape: tuple[Any, ...]) -> Shape:
    """What a caller gave as `f(2, 3)` or `f((2, 3))`, as a tuple of ints. Raises ShapeError."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    out: list[int] = []
    for extent in shape:
        number = _index(extent)
        if number is None:
            raise ShapeError(f"{name}: a shape is made of integers, not {shown(shape)}")
        out.append(number)
    if math.prod(out) > MAX_ELEMENTS or max(out, default=0) > MAX_ELEMENTS:
        raise ShapeError(f"{name}: shape {shown(out)} has more than 2**63 - 1 elements")
    return tuple(out)


def checked_shape(name: str, shape: tuple[Any, ...]) -> Shape:
    """As `as_shape`, and no extent is negative."""
    out = as_shape(name, shape)
    if any(n < 0 for n in out):
        raise ShapeError(f"{name}: shape {out} has a negative extent")
    return out


def per_axis(name: str, what: str, value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """A number for all spatial axes, or one for each. Raises ShapeError."""
    if isinstance(value, (tuple, list)):
        if len(value) != count:
            raise ShapeError(f"{name}: {what} {tuple(value)} should have {count} numbers")
        return tuple(whole(name, what, v) for v in value)
    return (whole(name, what, value),) * count


# -- small compositions that several files use


def insert_axis(node: Node, axis: int) -> Node:
    return g.reshape(node, (*node.shape[:axis], 1, *node.shape[axis:]))


def narrow(node: Node, axis: int, start: int, count: int, step: int = 1) -> Node:
    """Indices start, start+step, … (count of them) along `axis`."""
    ranges = [(0, n, 1) for n in node.shape]
    ranges[axis] = (start, count, step)
    return g.slice_(node, ranges)


def reverse(node: Node, axis: int) -> Node:
    n = node.shape[axis]
    return narrow(node, axis, n - 1, n, -1) if n > 1 else node


def pad_with(node: Node, widths: Sequence[tuple[int, int, int]], value: Scalar = 0) -> Node:
    return g.pad(node, widths, g.const(value, (), node.dtype))


def count_of(shape: Shape, axes: Sequence[int]) -> int:
    out = 1
    for a in axes:
        out *= shape[a]
    return out


def keep_axes(node: Node, shape: Shape, axes: Sequence[int]) -> Node:
    """A reduction's result with the reduced `axes` of `shape` back as extent 1."""
    return g.reshape(node, tuple(1 if i in axes else n for i, n in enumerate(shape)))


def sum_of(node: Node, axes: Sequence[int]) -> Node:
    """SUM with the accumulator's width: float16 and bfloat16 grow in float32, then round once."""
    wide = g.reduce(Op.SUM, g.cast(node, dt.accumulator(node.dtype)), axes)
    return g.cast(wide, node.dtype)


def identity_shape(name: str, shape: Shape, axes: Sequence[int]) -> None:
    """Max, min and their places need an element. Raises OperationError on an empty axis."""
    others = [i for i in range(len(shape)) if i not in axes]
    if count_of(shape, axes) == 0 and count_of(shape, others):
        raise OperationError(f"{name}: axes {tuple(axes)} of shape {shape} hold no element")


def new(node: Node, device: str) -> Tensor:
    """A tensor of `node` on `device`, for operations that have no operand to derive it from."""
    from frontend.tensor import Tensor

    return Tensor._new(node, device)


def resolved_device(device: str | None) -> str:
    """The canonical name of `device`, or the default one's. Raises DeviceNotFound."""
    from frontend import engine

    return engine.default_device() if device is None else engine.check_device(device)
