"""Convolutions and pools in one to three spatial axes.

Inputs are (N, C, *spatial), weights (O, C / groups, *kernel), or (C, O / groups, *kernel) when
transposed. A convolution is index maps, one MUL and one SUM: the padded input gets an axis for each
kernel axis (its taps) and one for the output channels, WINDOW lets position and tap choose the
element, and the sum runs over input channels and taps together. The axes are then (N, groups, O /
groups, *out, C / groups, *kernel). The transposed one is the same with SCATTER_WINDOW, WINDOW's
adjoint.

`stride`, `dilation` and `padding` are one number or one for each spatial axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from frontend import dtype as dt
from frontend.graph import node as g
from frontend.graph.node import Node, Shape
from frontend.ops import arithmetic, linalg
from frontend.ops import common as c
from frontend.ops.common import Operand
from rawgpu.errors import OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Numbers: TypeAlias = int | Sequence[int]


def conv(
    x: Tensor,
    weight: Operand,
    bias: Operand | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """The convolution (correlation, as usual) of (N, C, *spatial) with (O, C / groups, *kernel).

    padding: zeros added on both sides, or "valid" for none, or "same" for what keeps the extents at
    stride 1. Gives (N, O, *out) with out = (spatial + 2*padding - dilation*(kernel-1) - 1) //
    stride + 1. Raises ShapeError.
    """
    weight = c.as_tensor(weight, x, "conv")
    name = f"conv{weight.ndim - 2}d"
    groups = c.whole(name, "groups", groups)
    bias = None if bias is None else c.as_tensor(bias, x, name)
    spatial = _check(name, x, weight, bias, groups, weight.shape[0] if weight.ndim else 0)
    count = len(spatial)
    kernel = weight.shape[2:]
    strides, dilations = _steps(name, stride, dilation, count)
    widths = _padding(name, padding, kernel, strides, dilations)
    inner, outer = weight.shape[1], weight.shape[0] // groups
    if x.shape[1] != inner * groups:
        raise ShapeError(
            f"{name}: input {x.shape} has {x.shape[1]} channels; weight {weight.shape} in "
            f"{groups} groups takes {inner * groups}"
        )
    out = tuple(
        _extent(name, n + lo + hi, k, s, d)
        for n, (lo, hi), k, s, d in zip(spatial, widths, kernel, strides, dilations, strict=True)
    )
    a, b, dtype = _operands(name, x, weight, bias)
    a = c.pad_with(a, [(0, 0, 0), (0, 0, 0), *((lo, 0, hi) for lo, hi in widths)])
    a = _with_taps(a, groups, outer, kernel)
    for i in range(count):
        a = g.window(a, 3 + i, 4 + count + i, strides[i], dilations[i], out[i])
    b = g.reshape(b, (1, groups, outer, *(1,) * count, inner, *kernel))
    node = linalg.contract(a, b, 1 + count, dtype)
    return _finish(x, weight, bias, g.reshape(node, (x.shape[0], groups * outer, *out)))


def _with_taps(node: Node, groups: int, outer: int, kernel: Shape) -> Node:
    """(N, C, *s) as (N, G, O, *s, C/G, *kernel), where O and the kernel's axes repeat."""
    batch, channels, *spatial = node.shape
    count = len(spatial)
    inner = channels // groups
    node = g.reshape(node, (batch, groups, inner, *spatial))
    node = g.permute(node, [0, 1, *range(3, 3 + count), 2])
    node = g.reshape(node, (batch, groups, 1, *spatial, inner, *(1,) * count))
    return g.expand(node, (batch, groups, outer, *spatial, inner, *kernel))


def conv_transpose(
    x: Tensor,
    weight: Operand,
    bias: Operand | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """The adjoint of `conv`: (N, C, *spatial) with (C, O / groups, *kernel) gives (N, O, *out).

    out = (spatial - 1)*stride - 2*padding + dilation*(kernel-1) + output_padding + 1. Raises
    ShapeError.
    """
    weight = c.as_tensor(weight, x, "conv_transpose")
    name = f"conv_transpose{weight.ndim - 2}d"
    groups = c.whole(name, "groups", groups)
    bias = None if bias is None else c.as_tensor(bias, x, name)
    outer = weight.shape[1] if weight.ndim > 1 else 0
    spatial = _check(name, x, weight, bias, groups, outer * groups)
    count = len(spatial)
    kernel = weight.shape[2:]
    strides, dilations = _steps(name, stride, dilation, count)
    crop = c.per_axis(name, "padding", padding, count)
    extra = c.per_axis(name, "output_padding", output_padding, count)
    if x.shape[1] != weight.shape[0] or any(
        e < 0 or p < 0 for e, p in zip(extra, crop, strict=True)
    ):
        raise ShapeError(f"{name}: input {x.shape} and weight {weight.shape}, padding {crop}")
    a, b, dtype = _operands(name, x, weight, bias)
    a = _with_taps(a, groups, outer, kernel)
    full = [
        max(n - 1, 0) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(spatial, strides, kernel, dilations, extra, strict=True)
    ]
    for i in range(count):
        a = g.scatter_window(a, 3 + i, 4 + count + i, strides[i], dilations[i], full[i])
    inner = weight.shape[0] // groups
    b = g.reshape(b, (1, groups, inner, outer, *kernel))
    b = g.permute(b, [0, 1, 3, 2, *range(4, 4 + count)])
    b = g.reshape(b, (1, groups, outer, *(1,) * count, inner, *kernel))
    for i, (n, p) in enumerate(zip(full, crop, strict=True)):
        if n - 2 * p < 1:
            raise ShapeError(f"{name}: padding {crop} leaves nothing of the extents {tuple(full)}")
        a = c.narrow(a, 3 + i, p, n - 2 * p)
    node = linalg.contract(a, b, 1 + count, dtype)
    out = [n - 2 * p for n, p in zip(full, crop, strict=True)]
    return _finish(x, weight, bias, g.reshape(node, (x.shape[0], groups * outer, *out)))


# -- what both share


def _check(
    name: str, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, channels: int
) -> Shape:
    if not 3 <= weight.ndim <= 5:
        raise ShapeError(f"{name}: weight {weight.shape} has not one to three kernel axes")
    if x.ndim != weight.ndim:
        raise ShapeError(f"{name}: input {x.shape} and weight {weight.shape} differ in rank")
    if 0 in weight.shape[2:]:
        raise ShapeError(f"{name}: weight {weight.shape} has an empty kernel axis")
    if groups < 1 or weight.shape[0] % groups or x.shape[1] % groups:
        raise ShapeError(
            f"{name}: {groups} groups do not divide input {x.shape} and weight {weight.shape}"
        )
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(f"{name}: bias {bias.shape} should be ({channels},)")
    c.same_device(name, x, weight, *([] if bias is None else [bias]))
    return x.shape[2:]


def _steps(name: str, stride: Numbers, dilation: Numbers, count: int) -> tuple[Shape, Shape]:
    strides = c.per_axis(name, "stride", stride, count)
    dilations = c.per_axis(name, "dilation", dilation, count)
    if min(*strides, *dilations) < 1:
        raise ShapeError(f"{name}: stride {strides} and dilation {dilations} are at least 1")
    return strides, dilations


def _padding(
    name: str, padding: Numbers | str, kernel: Shape, strides: Shape, dilations: Shape
) -> list[tuple[int, int]]:
    if isinstance(padding, str) and padding == "valid":
        return [(0, 0) for _ in kernel]
    if isinstance(padding, str) and padding == "same":
        if any(s != 1 for s in strides):
            raise ShapeError(f"{name}: padding 'same' needs stride 1, not {strides}")
        spans = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        return [(span // 2, span - span // 2) for span in spans]
    if isinstance(padding, str):
        raise OperationError(f"{name}: padding is numbers, 'same' or 'valid', not {padding!r}")
    widths = c.per_axis(name, "padding", padding, len(kernel))
    if min(widths) < 0:
        raise ShapeError(f"{name}: padding {widths} is negative")
    return [(p, p) for p in widths]


def _extent(name: str, padded: int, kernel: int, stride: int, dilation: int) -> int:
    span = dilation * (kernel - 1) + 1
    if span > padded:
        raise ShapeError(
            f"{name}: a kernel that spans {span} is larger than the padded extent {padded}"
        )
    return (padded - span) // stride + 1


def _operands(
    name: str, x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Node, Node, dt.DType]:
    a, b = c.widen_fp8(x.node), c.widen_fp8(weight.node)
    dtype = arithmetic.common_dtype(name, a.dtype, b.dtype)
    return g.cast(a, dtype), g.cast(b, dtype), dtype


def _finish(x: Tensor, weight: Tensor, bias: Tensor | None, node: Node) -> Tensor:
    out = x._derive(node, weight)
    if bias is None:
        return out
    return out + bias.reshape(1, bias.size, *(1,) * (node.ndim - 2))


def _conv_of(count: int, x: Tensor, weight: Operand) -> None:
    weight = c.as_tensor(weight, x, f"conv{count}d")
    if weight.ndim != count + 2:
        raise ShapeError(f"conv{count}d: weight {weight.shape} has not {count + 2} axes")
    if x.ndim != count + 2:
        raise ShapeError(f"conv{count}d: input {x.shape} has not {count + 2} axes")


def conv1d(
    x: Tensor,
    weight: Operand,
    bias: Operand | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """`conv` with one spatial axis."""
    _conv_of(1, x, weight)
    return conv(x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Tensor,
    weight: Operand,
    bias: Operand | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """`conv` with two spatial axes."""
    _conv_of(2, x, weight)
    return conv(x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: Tensor,
    weight: Operand,
    bias: Operand | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """`conv` with three spatial axes."""
    _conv_of(3, x, weight)
    return conv(x, weight, bias, stride, padding, dilation, groups)
