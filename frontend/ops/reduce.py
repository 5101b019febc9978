"""Reductions and scans.

`axis` is an integer, a tuple of them, or None for all; `keepdims` keeps the reduced axes with
extent 1. Sums and products of integers narrower than 64 bits give int64 or uint64, as in NumPy;
float16 and bfloat16 accumulate in float32 and round once. The sum of nothing is 0 and its product
1; max, min and their places over an axis without elements raise OperationError. NaN wins every max
and min.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.ops import common as c
from frontend.ops.common import Axes
from rawgpu.errors import DTypeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def _kept(x: Tensor, node: Node, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    kept = c.flag("a reduction", "keepdims", keepdims)
    return x._derive(c.keep_axes(node, x.shape, axes) if kept else node)


def _sum_type(dtype: DType) -> DType:
    if dtype.kind in "bi":
        return dt.int64
    return dt.uint64 if dtype.kind == "u" else dtype


def _accumulated(x: Tensor, op: Op, axis: Axes, dtype: object | None, keepdims: bool) -> Tensor:
    axes = c.normal_axes(op.name.lower(), axis, x.ndim)
    node = c.widen_fp8(x.node)
    out = _sum_type(node.dtype) if dtype is None else dt.of(dtype)
    wide = g.reduce(op, g.cast(g.cast(node, out), dt.accumulator(out)), axes)
    return _kept(x, g.cast(wide, out), axes, keepdims)


def sum(
    x: Tensor, axis: Axes = None, *, dtype: object | None = None, keepdims: bool = False
) -> Tensor:
    """Sum over `axis`, computed in `dtype` if given."""
    return _accumulated(x, Op.SUM, axis, dtype, keepdims)


def prod(
    x: Tensor, axis: Axes = None, *, dtype: object | None = None, keepdims: bool = False
) -> Tensor:
    """Product over `axis`, computed in `dtype` if given. Its derivative is right at zeros too."""
    return _accumulated(x, Op.PROD, axis, dtype, keepdims)


def max(x: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The largest element over `axis`. Equal maxima share the derivative evenly."""
    return _extreme(x, Op.MAX, axis, keepdims)


def min(x: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element over `axis`. Equal minima share the derivative evenly."""
    return _extreme(x, Op.MIN, axis, keepdims)


def _extreme(x: Tensor, op: Op, axis: Axes, keepdims: bool) -> Tensor:
    name = op.name.lower()
    axes = c.normal_axes(name, axis, x.ndim)
    c.identity_shape(name, x.shape, axes)
    return _kept(x, g.reduce(op, c.widen_fp8(x.node), axes), axes, keepdims)


def any(x: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """True where an element over `axis` differs from zero; False over nothing."""
    axes = c.normal_axes("any", axis, x.ndim)
    return _kept(x, g.reduce(Op.MAX, g.cast(x.node, dt.bool_), axes), axes, keepdims)


def all(x: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """True where every element over `axis` differs from zero; True over nothing."""
    axes = c.normal_axes("all", axis, x.ndim)
    return _kept(x, g.reduce(Op.MIN, g.cast(x.node, dt.bool_), axes), axes, keepdims)


def count_nonzero(x: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """How many elements over `axis` differ from zero, as int64."""
    return sum(x.astype(dt.bool_), axis, keepdims=keepdims)


def argmax(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Index of the first maximum along `axis`, or in the flattened tensor, as int64.

    A NaN is largest.
    """
    return _place(x, Op.ARGMAX, axis, keepdims)


def argmin(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Index of the first minimum along `axis`, or in the flattened tensor, as int64.

    A NaN is smallest.
    """
    return _place(x, Op.ARGMIN, axis, keepdims)


def _place(x: Tensor, op: Op, axis: int | None, keepdims: bool) -> Tensor:
    name = op.name.lower()
    node = c.widen_fp8(x.node)
    axes = tuple(range(x.ndim)) if axis is None else (c.normal_axis(name, axis, x.ndim),)
    c.identity_shape(name, x.shape, axes)
    if axis is None:
        found = g.reduce(op, g.reshape(node, (node.size,)), (0,))
    elif x.size == 0:
        kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        found = c.full(0, kept, dt.int64)
    else:
        found = g.reduce(op, node, axes)
    return _kept(x, found, axes, keepdims)


# -- moments


def mean(x: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Mean over `axis`; integers and bool give float32, and the mean of nothing is NaN."""
    axes = c.normal_axes("mean", axis, x.ndim)
    node = c.to_float(x.node)
    return _kept(x, _mean(node, axes), axes, keepdims)


def _mean(node: Node, axes: tuple[int, ...]) -> Node:
    wide = g.cast(node, dt.accumulator(node.dtype))
    total = g.reduce(Op.SUM, wide, axes)
    count = c.count_of(node.shape, axes)
    return g.cast(g.binary(Op.DIV, total, c.like(float(count), total)), node.dtype)


def var(x: Tensor, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance: squared distances from the mean, over the count less `correction`."""
    correction = c.real("var", "the correction", correction)
    axes = c.normal_axes("var", axis, x.ndim)
    node = c.to_float(x.node)
    return _kept(x, _var(node, axes, correction), axes, keepdims)


def _var(node: Node, axes: tuple[int, ...], correction: float) -> Node:
    wide = g.cast(node, dt.accumulator(node.dtype))
    centre = c.keep_axes(_mean(wide, axes), node.shape, axes)
    apart = g.binary(Op.SUB, wide, g.expand(centre, node.shape))
    total = g.reduce(Op.SUM, g.binary(Op.MUL, apart, apart), axes)
    count = float(c.count_of(node.shape, axes)) - correction
    return g.cast(g.binary(Op.DIV, total, c.like(0.0 if count < 0 else count, total)), node.dtype)


def std(x: Tensor, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`; its derivative where that is 0 is 0."""
    return _root(var(x, axis, correction=correction, keepdims=keepdims), 2.0)


def _root(x: Tensor, degree: float) -> Tensor:
    """x ** (1 / degree), with the derivative 0 at 0, where the root has none."""
    nothing = x == 0
    some = nothing.where(1.0, x)
    return nothing.where(0.0, some.sqrt() if degree == 2 else some ** (1.0 / degree))


def norm(
    x: Tensor,
    ord: float = 2.0,
    axis: Axes = None,
    *,
    keepdims: bool = False,
) -> Tensor:
    """The vector norm over `axis`: (sum |x|**ord) ** (1/ord).

    Inf and -inf are max and min of |x|. The derivative of a norm that is 0 is 0.
    """
    ord = c.real("norm", "ord", ord)
    size = abs(x if x.dtype.is_float else x.astype(dt.DEFAULT_FLOAT))
    if ord == math.inf:
        return max(size, axis, keepdims=keepdims)
    if ord == -math.inf:
        return min(size, axis, keepdims=keepdims)
    if ord == 0:
        return sum((size != 0).astype(size.dtype), axis, keepdims=keepdims)
    if ord == 1:
        return sum(size, axis, keepdims=keepdims)
    if ord == 2:
        return _root(sum(size * size, axis, keepdims=keepdims), 2.0)
    if ord < 0:
        return sum(size**ord, axis, keepdims=keepdims) ** (1.0 / ord)
    return _root(sum(size**ord, axis, keepdims=keepdims), ord)


# -- the softmax family


def _shifted(x: Tensor, axis: Axes, name: str) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """x less its maximum over `axis`, and that maximum, which needs no derivative: it cancels."""
    axes = c.normal_axes(name, axis, x.ndim)
    c.identity_shape(name, x.shape, axes)
    x = x if x.dtype.is_float else x.astype(dt.DEFAULT_FLOAT)
    top = max(x, axes, keepdims=True).detach()
    return x - top, top, axes


def softmax(x: Tensor, axis: Axes = -1) -> Tensor:
    """exp(x) divided by its sum over `axis`, after the maximum is subtracted."""
    apart, _, axes = _shifted(x, axis, "softmax")
    weights = apart.exp()
    return weights / weights.sum(axes, keepdims=True)


def log_softmax(x: Tensor, axis: Axes = -1) -> Tensor:
    """log(softmax(x)), computed without the division."""
    apart, _, axes = _shifted(x, axis, "log_softmax")
    return apart - apart.exp().sum(axes, keepdims=True).log()


def logsumexp(x: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis`. Infinite maxima give that infinity."""
    axes = c.normal_axes("logsumexp", axis, x.ndim)
    c.identity_shape("logsumexp", x.shape, axes)
    x = x if x.dtype.is_float else x.astype(dt.DEFAULT_FLOAT)
    top = max(x, axes, keepdims=True).detach()
    top = top.isfinite().where(top, 0.0)  # inf - inf would be NaN
    out = (x - top).exp().sum(axes, keepdims=True).log() + top
    kept = c.flag("logsumexp", "keepdims", keepdims)
    return out if kept else out.reshape(*[n for i, n in enumerate(x.shape) if i not in axes])


# -- scans


def _scan(x: Tensor, op: Op, name: str, axis: int | None, dtype: object | None) -> Tensor:
    node = c.widen_fp8(x.node)
    if axis is None:
        node, axis = g.reshape(node, (node.size,)), 0
    axis = c.normal_axis(name, axis, node.ndim)
    if op in (Op.MAX, Op.MIN):
        return x._derive(g.scan(op, node, axis))
    out = _sum_type(node.dtype) if dtype is None else dt.of(dtype)
    wide = g.cast(g.cast(node, out), dt.accumulator(out))
    return x._derive(g.cast(g.scan(op, wide, axis), out))


def cumsum(x: Tensor, axis: int | None = None, *, dtype: object | None = None) -> Tensor:
    """Running sum along `axis`, or of the flattened tensor, own element included."""
    return _scan(x, Op.SUM, "cumsum", axis, dtype)


def cumprod(x: Tensor, axis: int | None = None, *, dtype: object | None = None) -> Tensor:
    """Running product along `axis`. Its derivative takes memory quadratic in the axis."""
    return _scan(x, Op.PROD, "cumprod", axis, dtype)


def cummax(x: Tensor, axis: int = -1) -> Tensor:
    """Running maximum along `axis`."""
    return _scan(x, Op.MAX, "cummax", axis, None)


def cummin(x: Tensor, axis: int = -1) -> Tensor:
    """Running minimum along `axis`."""
    return _scan(x, Op.MIN, "cummin", axis, None)


def diff(x: Tensor, axis: int = -1) -> Tensor:
    """x[i+1] - x[i] along `axis`, one shorter. Raises DTypeError for bool."""
    if x.dtype is dt.bool_:
        raise DTypeError("diff: not defined for bool")
    axis = c.normal_axis("diff", axis, x.ndim)
    node = c.widen_fp8(x.node)
    extent = node.shape[axis]
    if extent < 2:
        return x._derive(c.narrow(node, axis, 0, 0))
    upper, lower = c.narrow(node, axis, 1, extent - 1), c.narrow(node, axis, 0, extent - 1)
    return x._derive(g.binary(Op.SUB, upper, lower))
