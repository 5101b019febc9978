"""Sorting, searching, and what sorting makes easy: unique values, medians, counts.

Sorting is stable and puts NaN last, in either direction. Values follow their places, so the
derivative is that of a gather.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from frontend import dtype as dt
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.ops import arithmetic, indexing, movement, reduce
from frontend.ops import common as c
from frontend.ops.common import Operand
from rawgpu.errors import OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


class ValuesIndices(NamedTuple):
    """Elements, and where along the axis they were."""

    values: Tensor
    indices: Tensor


def argsort(x: Tensor, axis: int = -1, *, descending: bool = False) -> Tensor:
    """The indices (int64) that sort x along `axis`; equal elements keep their order."""
    return x._derive(_order(x, axis, descending, "argsort"))


def sort(x: Tensor, axis: int = -1, *, descending: bool = False) -> Tensor:
    """X sorted along `axis`, NaN last."""
    order = _order(x, axis, descending, "sort")
    return x._derive(g.gather(c.widen_fp8(x.node), order, c.normal_axis("sort", axis, x.ndim)))


def _order(x: Tensor, axis: int, descending: bool, name: str) -> Node:
    axis = c.normal_axis(name, axis, x.ndim)
    falling = c.flag(name, "the order", descending)
    return g.argsort(c.widen_fp8(x.node), axis, descending=falling)


def topk(x: Tensor, count: int, axis: int = -1, *, largest: bool = True) -> ValuesIndices:
    """The `count` largest (or smallest) elements along `axis`, in the order that `sort` gives.

    So NaN comes last either way, and is taken only where there are too few others; `max` and `min`
    of the same elements are NaN. Raises ShapeError if `count` is too many.
    """
    count = c.whole("topk", "the count", count)
    axis = c.normal_axis("topk", axis, x.ndim)
    if not 0 <= count <= x.shape[axis]:
        raise ShapeError(
            f"topk: {count} of the {x.shape[axis]} elements of axis {axis} of {x.shape}"
        )
    order = c.narrow(_order(x, axis, largest, "topk"), axis, 0, count)
    values = x._derive(g.gather(c.widen_fp8(x.node), order, axis))
    return ValuesIndices(values, x._derive(order))


class Unique(NamedTuple):
    """Sorted distinct values, where among them each element's is, and how often each occurs."""

    values: Tensor
    inverse: Tensor
    counts: Tensor


def unique(x: Tensor) -> Unique:
    """The distinct elements, sorted. Their number is computed at once; NaNs are all distinct."""
    flat = movement.flatten(x)
    order = argsort(flat, 0)
    ordered = indexing.take_along_axis(flat, order, 0)
    if x.size == 0:
        none = x._new(c.full(0, (0,), dt.int64), x.device)
        return Unique(ordered, none.reshape(x.shape), none)
    first = movement.concat(
        [x._new(c.full(True, (1,), dt.bool_), x.device), ordered[1:] != ordered[:-1]]
    )
    (starts,) = indexing.nonzero(first)
    rank = reduce.cumsum(first.astype(dt.int64)) - 1
    nowhere = x._new(c.full(0, (x.size,), dt.int64), x.device)
    inverse = indexing.scatter(nowhere, 0, order, rank)
    ends = movement.concat([starts[1:], x._new(c.full(x.size, (1,), dt.int64), x.device)])
    return Unique(ordered[starts], movement.reshape(inverse, x.shape), ends - starts)


def searchsorted(x: Tensor, values: Operand, *, side: str = "left") -> Tensor:
    """Where to insert each of `values` into the sorted vector x so that it stays sorted, as int64.

    "left" gives the first such place, "right" the last.
    """
    if x.ndim != 1:
        raise ShapeError(f"searchsorted: the sorted tensor is a vector, not {x.shape}")
    if not isinstance(side, str) or side not in ("left", "right"):
        raise OperationError(f"searchsorted: side is 'left' or 'right', not {side!r}")
    values = c.as_tensor(values, x, "searchsorted")
    c.same_device("searchsorted", x, values)
    dtype = arithmetic.common_dtype("searchsorted", x.dtype, values.dtype)
    wanted = g.reshape(g.cast(values.node, dtype), (values.size,))
    data = g.cast(x.node, dtype)
    low = c.full(0, (values.size,), dt.int64)
    high = c.full(x.size, (values.size,), dt.int64)
    for _ in range(x.size.bit_length()):  # halve [low, high) until it is empty
        middle = g.binary(Op.SHR, g.binary(Op.ADD, low, high), c.like(1, low))
        there = g.gather(data, middle, 0)
        after = g.binary(Op.LT, there, wanted) if side == "left" else g.binary(Op.LE, there, wanted)
        after = g.binary(Op.AND, after, g.binary(Op.LT, low, high))
        low = g.where(after, g.binary(Op.ADD, middle, c.like(1, middle)), low)
        high = g.where(after, high, g.binary(Op.MINIMUM, middle, high))
    return values._derive(g.reshape(low, values.shape))


def quantile(x: Tensor, q: float, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The value that a share `q` of `axis` lies below, interpolated; NaN if an element is NaN."""
    q = c.probability("quantile", "q", q)
    flat = movement.flatten(x) if axis is None else x
    along = c.normal_axis("quantile", 0 if axis is None else axis, flat.ndim)
    n = flat.shape[along]
    if n == 0:
        raise OperationError(f"quantile: axis {along} of {x.shape} holds no element")
    floats = flat if flat.dtype.is_float else flat.astype(dt.DEFAULT_FLOAT)
    ordered = sort(floats, along)
    exact = q * (n - 1)
    lower = int(exact)
    low, high = (
        ordered._derive(c.narrow(ordered.node, along, i, 1)) for i in (lower, min(lower + 1, n - 1))
    )
    last = ordered._derive(c.narrow(ordered.node, along, n - 1, 1))
    out = low if lower == exact else low + (high - low) * (exact - lower)
    out = last.isnan().where(last, out)
    keepdims = c.flag("quantile", "keepdims", keepdims)
    if axis is None:
        return out.reshape((1,) * x.ndim if keepdims else ())
    return out if keepdims else movement.squeeze(out, along)


def median(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The middle element along `axis`, or the mean of the middle two; NaN if one is NaN."""
    return quantile(x, 0.5, axis, keepdims=keepdims)


def bincount(x: Tensor, weights: Tensor | None = None, length: int | None = None) -> Tensor:
    """How often (or with what sum of `weights`) each number from 0 occurs in the vector x.

    `length` fixes the result's length and leaves larger numbers out; without it the largest is
    realised.
    """
    c.needs_integer("bincount", x.dtype)
    weights = None if weights is None else c.as_tensor(weights, x, "bincount")
    if x.ndim != 1 or (weights is not None and weights.shape != x.shape):
        raise ShapeError(f"bincount: takes vectors of one length, not {x.shape}")
    if length is not None:
        length = c.whole("bincount", "the length", length, 0)
    else:
        length = int(x.max().item()) + 1 if x.size else 0
    if weights is None:
        weights = x._new(c.full(1, x.shape, dt.int64), x.device)
    counts = x._new(c.full(0, (length,), weights.dtype), x.device)
    index = g.cast(x.node, dt.int64)
    return counts._derive(g.scatter(counts.node, index, weights.node, 0, add=True), weights)
