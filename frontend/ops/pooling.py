"""Pools: a reduction over a window that slides along the last one to three axes.

`kernel`, `stride` (default: the kernel), `padding` and `dilation` are one number or one per spatial
axis; the number of spatial axes is the kernel's length, or the tensor's rank less two. `ceil_mode`
adds a last, partial window where one starts inside the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from frontend import dtype as dt
from frontend.graph import node as g
from frontend.graph.node import Node, Op, Shape
from frontend.ops import common as c
from rawgpu.errors import ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Numbers: TypeAlias = int | Sequence[int]


@dataclass(frozen=True)
class Geometry:
    """Of each spatial axis: extents and steps, and how many windows there are."""

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    out: Shape
    after: Shape
    """Elements to add after each axis so that every window is whole."""


def _geometry(
    name: str,
    x: Tensor,
    kernel: Numbers,
    stride: Numbers | None,
    padding: Numbers,
    dilation: Numbers,
    ceil_mode: bool,
) -> Geometry:
    count = len(kernel) if isinstance(kernel, (tuple, list)) else x.ndim - 2
    if not 1 <= count < x.ndim:
        raise ShapeError(f"{name}: {x.shape} has no {count} axes to pool behind its first")
    sizes = c.per_axis(name, "kernel", kernel, count)
    strides = sizes if stride is None else c.per_axis(name, "stride", stride, count)
    pads = c.per_axis(name, "padding", padding, count)
    dilations = c.per_axis(name, "dilation", dilation, count)
    if min(*sizes, *strides, *dilations) < 1:
        raise ShapeError(f"{name}: kernel {sizes}, stride {strides} and dilation {dilations}")
    out, after = [], []
    for n, k, s, p, d in zip(x.shape[-count:], sizes, strides, pads, dilations, strict=True):
        if not 0 <= p <= k // 2:
            raise ShapeError(f"{name}: padding {p} is more than half of the kernel {k}")
        span = d * (k - 1) + 1
        if span > n + 2 * p:
            raise ShapeError(f"{name}: a window of {span} is larger than axis {n} padded by {p}")
        windows = (n + 2 * p - span) // s + 1
        if ceil_mode and (n + 2 * p - span) % s and windows * s < n + p:
            windows += 1
        out.append(windows)
        after.append(max((windows - 1) * s + span - n - p, 0))
    return Geometry(sizes, strides, pads, dilations, tuple(out), tuple(after))


def _windows(node: Node, geometry: Geometry, fill: float) -> Node:
    """(*lead, *spatial) as (*lead, *out, *kernel)."""
    count = len(geometry.kernel)
    lead = node.ndim - count
    widths = [(0, 0, 0)] * lead
    widths += [(p, 0, hi) for p, hi in zip(geometry.padding, geometry.after, strict=True)]
    node = c.pad_with(node, widths, fill)
    spatial = node.shape[lead:]
    node = g.reshape(node, (*node.shape, *(1,) * count))
    node = g.expand(node, (*node.shape[:lead], *spatial, *geometry.kernel))
    for i in range(count):
        stride, dilation = geometry.stride[i], geometry.dilation[i]
        node = g.window(node, lead + i, lead + count + i, stride, dilation, geometry.out[i])
    return node


def max_pool(
    x: Tensor,
    kernel: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    *,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window; padding never wins.

    Equal maxima share the derivative evenly.
    """
    geometry = _geometry("max_pool", x, kernel, stride, padding, dilation, ceil_mode)
    node = c.widen_fp8(x.node)
    windows = _windows(node, geometry, dt.limits(node.dtype)[0])
    return x._derive(g.reduce(Op.MAX, windows, range(x.ndim, windows.ndim)))


def avg_pool(
    x: Tensor,
    kernel: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window as a float, with padded zeros counted in unless told otherwise."""
    geometry = _geometry("avg_pool", x, kernel, stride, padding, 1, ceil_mode)
    node = c.to_float(x.node)
    wide = g.cast(node, dt.accumulator(node.dtype))
    windows = _windows(wide, geometry, 0.0)
    total = g.reduce(Op.SUM, windows, range(x.ndim, windows.ndim))
    for i in range(len(geometry.kernel)):
        axis = x.ndim - len(geometry.kernel) + i
        total = _divided(total, axis, _counts(x.shape[axis], geometry, i, count_include_pad))
    return x._derive(g.cast(total, node.dtype))


def _counts(extent: int, geometry: Geometry, i: int, with_padding: bool) -> list[int]:
    """How many elements each window holds along spatial axis `i`.

    What ceil_mode adds never counts.
    """
    padding = geometry.padding[i]
    low, high = (-padding, extent + padding) if with_padding else (0, extent)
    counts = []
    for window in range(geometry.out[i]):
        start = window * geometry.stride[i] - padding
        counts.append(min(start + geometry.kernel[i], high) - max(start, low))
    return counts


def _divided(node: Node, axis: int, counts: list[int]) -> Node:
    """`node` over counts that differ, if at all, in few stretches at the ends."""
    divisor: Node | None = None
    start = 0
    for end in range(1, len(counts) + 1):
        if end < len(counts) and counts[end] == counts[start]:
            continue
        here = c.like(float(counts[start]), node)
        if divisor is None:
            divisor = here
        else:
            place = g.iota(node.shape, axis, dt.int64)
            divisor = g.where(g.binary(Op.LE, c.like(start, place), place), here, divisor)
        start = end
    return node if divisor is None else g.binary(Op.DIV, node, divisor)


def adaptive_avg_pool(x: Tensor, size: Numbers) -> Tensor:
    """The mean of `size` windows along each axis: i*n//size to ceil((i+1)*n/size)."""
    count = len(size) if isinstance(size, (tuple, list)) else x.ndim - 2
    if not 1 <= count < x.ndim:
        raise ShapeError(f"adaptive_avg_pool: {x.shape} has no {count} axes to pool")
    sizes = c.per_axis("adaptive_avg_pool", "size", size, count)
    if min(sizes) < 1 or 0 in x.shape[-count:]:
        raise ShapeError(f"adaptive_avg_pool: {x.shape} to {sizes}")
    out = x
    for i, want in enumerate(sizes):
        axis = x.ndim - count + i
        have = x.shape[axis]
        if have % want == 0:
            parts = (*out.shape[:axis], want, have // want, *out.shape[axis + 1 :])
            out = out.reshape(parts).mean(axis + 1)
        else:
            out = _averaged(out, axis, want)
    return out


def _averaged(x: Tensor, axis: int, want: int) -> Tensor:
    """Windows that overlap: a product with the matrix of their shares."""
    have = x.shape[axis]
    shape = (want, have)
    i, j = g.iota(shape, 0, dt.int64), g.iota(shape, 1, dt.int64)
    total = c.full(want, shape, dt.int64)
    extent = c.full(have, shape, dt.int64)
    start = g.binary(Op.FLOORDIV, g.binary(Op.MUL, i, extent), total)
    next_one = g.binary(Op.ADD, i, c.full(1, shape, dt.int64))
    top = g.binary(Op.ADD, g.binary(Op.MUL, next_one, extent), c.full(want - 1, shape, dt.int64))
    end = g.binary(Op.FLOORDIV, top, total)
    inside = g.binary(Op.AND, g.binary(Op.LE, start, j), g.binary(Op.LT, j, end))
    floats = x if x.dtype.is_float else x.astype(dt.DEFAULT_FLOAT)
    width = g.cast(g.binary(Op.SUB, end, start), dt.float32)
    share = g.binary(Op.DIV, g.cast(inside, dt.float32), width)
    matrix = x._new(g.cast(share, floats.dtype), x.device)
    return (floats.moveaxis(axis, -1) @ matrix.matrix_transpose()).moveaxis(-1, axis)
