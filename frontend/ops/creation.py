"""Tensors made from nothing but numbers: constants, ranges and simple matrices.

All of them are lazy and take no memory until something needs them there. `dtype` defaults to
float32 for real values and int64 for whole ones; `device` to the default device.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.ops import common as c
from frontend.ops import indexing
from frontend.ops.common import Operand, Scalar
from rawgpu.errors import DTypeError, OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def _tensor(node: Node, device: str | None, requires_grad: bool = False) -> Tensor:
    tensor = c.new(node, c.resolved_device(device))
    tensor.requires_grad = requires_grad
    return tensor


def full(
    shape: int | tuple[int, ...],
    value: Scalar,
    dtype: object | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of `shape` filled with `value`, whose own kind gives the dtype if none is named."""
    number = c.real("full", "the value", value)
    kind = dt.of(type(number)) if dtype is None else dt.of(dtype)
    node = c.full(c.held("full", number, kind), c.checked_shape("full", (shape,)), kind)
    return _tensor(node, device, requires_grad)


def zeros(
    *shape: Any,
    dtype: object | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros of `shape`, given as numbers or one tuple."""
    kind = dt.chosen(dtype, dt.DEFAULT_FLOAT)
    return full(c.checked_shape("zeros", shape), 0, kind, device, requires_grad)


def ones(
    *shape: Any,
    dtype: object | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones of `shape`, given as numbers or one tuple."""
    kind = dt.chosen(dtype, dt.DEFAULT_FLOAT)
    return full(c.checked_shape("ones", shape), 1, kind, device, requires_grad)


def empty(*shape: Any, dtype: object | None = None, device: str | None = None) -> Tensor:
    """The same as `zeros`: a tensor is a value, and no value is unknown."""
    kind = dt.chosen(dtype, dt.DEFAULT_FLOAT)
    return full(c.checked_shape("empty", shape), 0, kind, device)


def full_like(x: Operand, value: Scalar, dtype: object | None = None) -> Tensor:
    """A tensor of x's shape and device, and dtype unless another is named, filled with `value`."""
    (x,) = c.tensors("full_like", [x])
    kind = dt.chosen(dtype, x.dtype)
    return c.new(c.full(c.held("full_like", value, kind), x.shape, kind), x.device)


def zeros_like(x: Operand, dtype: object | None = None) -> Tensor:
    """Zeros of x's shape, dtype and device."""
    return full_like(x, 0, dtype)


def ones_like(x: Operand, dtype: object | None = None) -> Tensor:
    """Ones of x's shape, dtype and device."""
    return full_like(x, 1, dtype)


def arange(
    start: int | float,
    stop: int | float | None = None,
    step: int | float = 1,
    dtype: object | None = None,
    device: str | None = None,
) -> Tensor:
    """start, start+step, … below `stop` (above, if step is negative); one number counts from 0.

    Element i is start + i*step, computed in the dtype (float16 and bfloat16 in float32).
    """
    if stop is None:
        start, stop = 0, start
    start, stop = (c.real("arange", "a bound", v) for v in (start, stop))
    step = c.real("arange", "the step", step)
    if not all(math.isfinite(v) for v in (start, stop, step)):
        raise OperationError(f"arange: {start} to {stop} by {step} has no end")
    if step == 0:
        raise OperationError("arange: a step of 0 never ends")
    whole = all(isinstance(v, int) for v in (start, stop, step))
    if dtype is None:
        kind = dt.DEFAULT_INT if whole else dt.DEFAULT_FLOAT
    else:
        kind = dt.of(dtype)
    if kind is dt.bool_:
        raise DTypeError("arange: not defined for bool")
    count = _count(start, stop, step)
    if count > c.MAX_ELEMENTS:
        raise ShapeError(f"arange: {start} to {stop} by {step} are more than 2**63 - 1 elements")
    if kind.is_integer and count:
        for value in (start, start + (count - 1) * step):
            c.held("arange", value, kind)
    return _tensor(_ramp(count, start, step, kind), device)


def _count(start: int | float, stop: int | float, step: int | float) -> int:
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        return max(-((start - stop) // step), 0)
    exact = (stop - start) / step
    if not math.isfinite(exact):
        return c.MAX_ELEMENTS + 1
    return max(int(exact) + (exact > int(exact)), 0)


def _ramp(count: int, start: int | float, step: int | float, kind: DType) -> Node:
    wide = dt.float32 if kind.is_float and kind.bits < 32 else kind
    node = g.cast(g.iota((count,), 0, dt.int64), wide)
    if step != 1:
        node = g.binary(Op.MUL, node, c.like(step, node))
    if start != 0:
        node = g.binary(Op.ADD, node, c.like(start, node))
    return g.cast(node, kind)


def linspace(
    start: float,
    stop: float,
    count: int,
    dtype: object | None = None,
    device: str | None = None,
    *,
    endpoint: bool = True,
) -> Tensor:
    """`count` numbers from `start` to `stop`, both met exactly, or without it if not `endpoint`."""
    kind = dt.chosen(dtype, dt.DEFAULT_FLOAT)
    start, stop = (c.real("linspace", "an end", v) for v in (start, stop))
    count = c.extent("linspace", "the count", count)
    c.needs_float("linspace", kind)
    gaps = count - 1 if endpoint else count
    if gaps <= 0:
        return _tensor(c.full(start, (count,), kind), device)
    step = (stop - start) / gaps
    wide = dt.float32 if kind.bits < 32 else kind
    up = _ramp(count, start, step, wide)
    # the upper half counts down from the end, so that the end is met and both halves err alike
    down = g.binary(Op.ADD, _ramp(count, -float(gaps), 1, wide), c.full(0.0, (count,), wide))
    down = g.binary(Op.ADD, g.binary(Op.MUL, down, c.like(step, down)), c.like(stop, down))
    place = g.iota((count,), 0, dt.int64)
    lower = g.binary(Op.LT, place, c.like(-(-count // 2), place))
    return _tensor(g.cast(g.where(lower, up, down), kind), device)


def eye(
    rows: int,
    columns: int | None = None,
    offset: int = 0,
    dtype: object | None = None,
    device: str | None = None,
) -> Tensor:
    """Ones where column - row is `offset`, zeros elsewhere; square unless `columns` is given."""
    shape = c.checked_shape("eye", (rows, rows if columns is None else columns))
    offset = max(min(c.whole("eye", "the offset", offset), shape[1]), -shape[0])
    row, column = g.iota(shape, 0, dt.int64), g.iota(shape, 1, dt.int64)
    here = g.binary(Op.EQ, column, g.binary(Op.ADD, row, c.like(offset, row)))
    return _tensor(g.cast(here, dt.chosen(dtype, dt.DEFAULT_FLOAT)), device)


def one_hot(x: Operand, classes: int, dtype: object | None = None) -> Tensor:
    """1 at each index of x along a new last axis of `classes`, else 0.

    An index outside gives zeros in a tensor, and IndexOutOfRange in a list or an array.
    """
    classes = c.whole("one_hot", "the number of classes", classes)
    if classes < 0:
        raise ShapeError(f"one_hot: {classes} classes")
    x = indexing.index_tensor("one_hot", x, None, classes, low=0)
    c.needs_integer("one_hot", x.dtype)
    shape = (*x.shape, classes)
    index = g.expand(g.cast(c.insert_axis(x.node, x.ndim), dt.int64), shape)
    place = g.iota(shape, x.ndim, dt.int64)
    kind = dt.chosen(dtype, dt.DEFAULT_FLOAT)
    return x._derive(g.cast(g.binary(Op.EQ, index, place), kind))
