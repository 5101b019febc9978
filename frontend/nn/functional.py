"""Functions of networks that are no method of `Tensor`, under torch's names.

Layers without their parameters, normalisations, activations, attention and resizing; the losses are
in `frontend/nn/losses.py` and can be had from here too, as can what `dot_product.py` and
`resize.py` hold. Statistics of float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from frontend import dtype as dt
from frontend.nn.dot_product import attention_weights, scaled_dot_product_attention
from frontend.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
)
from frontend.nn.resize import interpolate, pixel_shuffle
from frontend.ops import common as c
from frontend.ops import movement
from frontend.ops.common import Axes
from frontend.ops.indexing import index_tensor
from frontend.tensor import Tensor
from rawgpu.errors import DTypeError, OperationError, ShapeError

Numbers: TypeAlias = int | Sequence[int]

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "attention_weights",
    "avg_pool",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "max_pool",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "triplet_margin_loss",
]

# -- what is a method of Tensor already

relu = Tensor.relu
sigmoid = Tensor.sigmoid
tanh = Tensor.tanh
silu = Tensor.silu
softplus = Tensor.softplus
logsigmoid = Tensor.logsigmoid
gelu = Tensor.gelu
elu = Tensor.elu
leaky_relu = Tensor.leaky_relu
hardtanh = Tensor.hardtanh
softmax = Tensor.softmax
log_softmax = Tensor.log_softmax
one_hot = Tensor.one_hot
max_pool = Tensor.max_pool
avg_pool = Tensor.avg_pool
adaptive_avg_pool = Tensor.adaptive_avg_pool
conv1d = Tensor.conv1d
conv2d = Tensor.conv2d
conv3d = Tensor.conv3d
conv_transpose = Tensor.conv_transpose


# -- activations


def relu6(x: Tensor) -> Tensor:
    """x limited to [0, 6]; its derivative at both is 0."""
    return x.hardtanh(0.0, 6.0)


def hardsigmoid(x: Tensor) -> Tensor:
    """(x + 3) / 6 limited to [0, 1]."""
    return relu6(x + 3.0) / 6.0


def hardswish(x: Tensor) -> Tensor:
    """x * hardsigmoid(x)."""
    return x * ((x + 3.0).clip(0.0, 6.0) / 6.0)  # as in torch, a slope at both kinks


def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return x * x.softplus().tanh()


def glu(x: Tensor, axis: int = -1) -> Tensor:
    """The first half of `axis` times sigmoid of the second. Raises ShapeError if it is odd."""
    extent = x.shape[c.normal_axis("glu", axis, x.ndim)]
    if extent % 2:
        raise ShapeError(f"glu: axis {axis} of {x.shape} has no two halves")
    first, second = x.split(extent // 2, axis) if extent else (x, x)
    return first * second.sigmoid()


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x where positive, weight * x elsewhere.

    `weight` (1,), or (C,) for axis 1, or the only axis, of x. Raises ShapeError.
    """
    c.only_tensors("prelu", x=x, weight=weight)
    channels = x.shape[min(1, x.ndim - 1)] if x.ndim else 1
    if weight.ndim != 1 or weight.size not in (1, channels):
        raise ShapeError(
            f"prelu: weight {weight.shape} for {x.shape}: one number, or one a channel"
        )
    if weight.size > 1 and x.ndim > 1:
        weight = weight.reshape(1, channels, *(1,) * (x.ndim - 2))
    return (x > 0).where(x, x * weight)


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where positive, alpha * (exp(x / alpha) - 1) elsewhere."""
    return (x > 0).where(x, (x.minimum(0.0) / alpha).expm1() * alpha)


SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def selu(x: Tensor) -> Tensor:
    """A scaled elu that keeps mean and variance (Klambauer et al., 2017)."""
    return x.elu(SELU_ALPHA) * SELU_SCALE


def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return x / (abs(x) + 1.0)


def softmin(x: Tensor, axis: int = -1) -> Tensor:
    """softmax(-x)."""
    return (-x).softmax(axis)


def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x)."""
    return x - x.tanh()


def softshrink(x: Tensor, width: float = 0.5) -> Tensor:
    """x moved towards 0 by `width`, and 0 within it."""
    width = c.real("softshrink", "the width", width)
    return (x > width).where(x - width, (x < -width).where(x + width, 0.0))


def hardshrink(x: Tensor, width: float = 0.5) -> Tensor:
    """x, but 0 within `width` of 0."""
    return (abs(x) > width).where(x, 0.0)


def threshold(x: Tensor, limit: float, value: float) -> Tensor:
    """x where above `limit`, else `value`."""
    return (x > limit).where(x, value)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """In training a share `p` of x zeroed and the rest divided by 1 - p; else x."""
    p = c.probability("dropout", "p", p)
    return x.dropout(p) if c.flag("dropout", "training", training) else x


# -- layers


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias: (..., in) with (out, in) and (out,) gives (..., out).

    Raises ShapeError.
    """
    c.only_tensors("linear", x=x, weight=weight)
    c.tensors_or_none("linear", bias=bias)
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: input {x.shape} and weight {weight.shape}: the last extents should be equal"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"linear: bias {bias.shape} should be {weight.shape[:1]}")
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # one matrix product, whatever the rank
    out = rows @ weight.swapaxes(0, 1)
    if bias is not None:
        out = out + bias
    return out.reshape(*x.shape[:-1], weight.shape[0])


def embedding(indices: Any, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` (rows, width): (...) of integers gives (..., width).

    The row `padding_idx` gets no gradient. Indices outside the table give zeros in a tensor, whose
    values are not known when this is called; in a list or an array they raise IndexOutOfRange.
    Raises DTypeError, ShapeError.
    """
    c.only_tensors("embedding", weight=weight)
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight {weight.shape} is no table of rows")
    indices = index_tensor("embedding", indices, weight.device, weight.shape[0])
    c.needs_integer("embedding", indices.dtype)
    out: Tensor = weight.take(indices, 0)
    if padding_idx is None:
        return out
    padding: Tensor = (indices == padding_idx).reshape(*indices.shape, 1)
    return padding.where(out.detach(), out)


def pad(x: Tensor, widths: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """torch's order: (before, after) of the last axis, then of the one before it, and so on."""
    if not isinstance(widths, (tuple, list)):
        raise ShapeError(f"pad: widths are a list of pairs, not {c.shown(widths)}")
    if len(widths) % 2:
        raise ShapeError(f"pad: {tuple(widths)} is no list of pairs")
    pairs = [(widths[i], widths[i + 1]) for i in range(len(widths) - 2, -1, -2)]
    return x.pad(pairs, mode, value)


def adaptive_max_pool(x: Tensor, size: Numbers) -> Tensor:
    """The largest of `size` windows along each last axis: i*n//size to ceil((i+1)*n/size)."""
    count = len(size) if isinstance(size, (tuple, list)) else x.ndim - 2
    if not 1 <= count < x.ndim:
        raise ShapeError(f"adaptive_max_pool: {x.shape} has no {count} axes to pool")
    sizes = c.per_axis("adaptive_max_pool", "size", size, count)
    for i, want in enumerate(sizes):
        axis = x.ndim - count + i
        have = x.shape[axis]
        if want < 1 or have == 0:
            raise ShapeError(f"adaptive_max_pool: axis {axis} of {x.shape} to {want} windows")
        if have % want == 0:
            x = x.unflatten(axis, (want, have // want)).max(axis + 1)
            continue
        starts = [j * have // want for j in range(want)]
        ends = [-(-(j + 1) * have // want) for j in range(want)]
        before = (slice(None),) * axis
        parts = [
            x[(*before, slice(start, end))].max(axis, keepdims=True)
            for start, end in zip(starts, ends, strict=True)
        ]
        x = movement.concat(parts, axis)
    return x


# -- normalisations


def in_float32(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` of x, whose statistics float16 and bfloat16 are too narrow for."""
    if not x.dtype.is_float:
        raise DTypeError(f"normalisation: takes floats, not {x.dtype}")
    wide = dt.accumulator(x.dtype)
    return function(x) if wide is x.dtype else function(x.astype(wide)).astype(x.dtype)


def layer_norm(
    x: Tensor,
    shape: Numbers,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) over the last axes, of extents `shape`; scaled and shifted."""
    return in_float32(lambda wide: wide.layer_norm(shape, weight, bias, eps), x)


def rms_norm(
    x: Tensor, shape: Numbers, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x²) + eps) over the last axes, of extents `shape`; scaled.

    eps defaults to the dtype's distance from 1 to the next number, as in torch.
    """
    c.only_tensors("rms_norm", x=x)
    c.tensors_or_none("rms_norm", weight=weight)
    extents = c.extents("rms_norm", shape)
    if not extents or x.shape[-len(extents) :] != extents:
        raise ShapeError(f"rms_norm: the last axes of {x.shape} are not {extents}")
    if weight is not None and weight.shape != extents:
        raise ShapeError(f"rms_norm: weight {weight.shape} should be {extents}")
    axes = tuple(range(x.ndim - len(extents), x.ndim))
    wide_eps = 2.0**-52 if x.dtype is dt.float64 else 2.0**-23
    margin = wide_eps if eps is None else eps

    def normed(wide: Tensor) -> Tensor:
        out = wide * ((wide * wide).mean(axes, keepdims=True) + margin).rsqrt()
        return out if weight is None else out * weight

    return in_float32(normed, x)


def _per_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None, name: str) -> Tensor:
    """x * weight + bias with one number for each index of axis 1."""
    c.tensors_or_none(name, weight=weight, bias=bias)
    shape = (1, x.shape[1], *(1,) * (x.ndim - 2))
    for what, part in (("weight", weight), ("bias", bias)):
        if part is not None and part.shape != (x.shape[1],):
            raise ShapeError(f"{name}: {what} {part.shape} should be ({x.shape[1]},)")
    out = x if weight is None else x * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def batch_norm(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) for each index of axis 1; scaled and shifted.

    `mean` and `var` (C,); those of the batch itself if they are None. Raises ShapeError.
    """
    c.only_tensors("batch_norm", x=x)
    c.tensors_or_none("batch_norm", mean=mean, var=var)
    if x.ndim < 2:
        raise ShapeError(f"batch_norm: {x.shape} has no batch and channel axes")
    if (mean is None) != (var is None):
        raise OperationError("batch_norm: mean and var are given together or not at all")
    shape = (1, x.shape[1], *(1,) * (x.ndim - 2))

    def normed(wide: Tensor) -> Tensor:
        centre, spread = batch_statistics(wide) if mean is None or var is None else (mean, var)
        if centre.shape != (x.shape[1],) or spread.shape != (x.shape[1],):
            raise ShapeError(f"batch_norm: statistics {centre.shape} for {x.shape}")
        out = (wide - centre.reshape(shape)) * (spread + eps).rsqrt().reshape(shape)
        return _per_channel(out, weight, bias, "batch_norm")

    return in_float32(normed, x)


def batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each index of axis 1."""
    axes = (0, *range(2, x.ndim))
    return x.mean(axes), x.var(axes)


def _standardised(x: Tensor, axes: Axes, eps: float) -> Tensor:
    apart = x - x.mean(axes, keepdims=True)
    return apart * ((apart * apart).mean(axes, keepdims=True) + eps).rsqrt()


def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each of `groups` groups of channels of (N, C, *rest) normed by itself. Raises ShapeError."""
    groups = c.whole("group_norm", "the number of groups", groups)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"group_norm: {groups} groups do not divide axis 1 of {x.shape}")

    def normed(wide: Tensor) -> Tensor:
        parts = wide.reshape(x.shape[0], groups, x.size // max(x.shape[0] * groups, 1))
        out = _standardised(parts, -1, eps).reshape(x.shape)
        return _per_channel(out, weight, bias, "group_norm")

    return in_float32(normed, x)


def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Each channel of each example of (N, C, *spatial) normed by itself. Raises ShapeError."""
    if x.ndim < 3:
        raise ShapeError(f"instance_norm: {x.shape} has no axes behind its channels")

    def normed(wide: Tensor) -> Tensor:
        out = _standardised(wide, tuple(range(2, x.ndim)), eps)
        return _per_channel(out, weight, bias, "instance_norm")

    return in_float32(normed, x)


def normalize(x: Tensor, order: float = 2.0, axis: Axes = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its norm over `axis`, or by `eps` where that is larger."""
    return x / x.norm(order, axis, keepdims=True).maximum(eps)
