"""The loss and the normalisation that nearly every network needs.

The others are in `frontend/nn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from frontend import dtype as dt
from frontend.graph import node as g
from frontend.graph.node import Op
from frontend.ops import common as c
from frontend.ops import indexing, reduce
from rawgpu.errors import OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def cross_entropy(
    x: Tensor,
    labels: Any,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    """-log(softmax(x))[label] of logits (N, C, *rest) and labels (N, *rest), or (C,) and ().

    Labels may also be probabilities of x's shape. "mean" divides by the labels not equal to
    `ignore_index`, "sum" adds, "none" gives a loss for each label. A label outside the classes
    counts as an all-zero row in a tensor, whose values are not looked at; in a list or an array it
    raises IndexOutOfRange. Raises ShapeError.
    """
    ignore_index = c.whole("cross_entropy", "ignore_index", ignore_index)
    label_smoothing = c.probability("cross_entropy", "label_smoothing", label_smoothing)
    if not isinstance(reduction, str) or reduction not in ("mean", "sum", "none"):
        raise OperationError(f"cross_entropy: reduction {reduction!r} is not mean, sum or none")
    if x.ndim == 0:
        raise ShapeError("cross_entropy: a scalar has no classes")
    axis = 0 if x.ndim == 1 else 1
    classes = x.shape[axis]
    labels = label_tensor("cross_entropy", labels, x, classes, ignore_index)
    logs = reduce.log_softmax(x, axis)
    c.same_device("cross_entropy", x, labels)
    if labels.dtype.is_float:
        if labels.shape != x.shape:
            raise ShapeError(f"cross_entropy: probabilities {labels.shape} for logits {x.shape}")
        target = labels * (1.0 - label_smoothing) + label_smoothing / classes
        loss = -(target * logs).sum(axis)
        return _reduced(loss, reduction, None)
    rows = tuple(n for i, n in enumerate(x.shape) if i != axis)
    if labels.shape != rows:
        raise ShapeError(
            f"cross_entropy: labels {labels.shape} for logits {x.shape} should be {rows}"
        )
    c.needs_integer("cross_entropy", labels.dtype)
    wide = g.expand(c.insert_axis(g.cast(labels.node, dt.int64), axis), x.shape)
    hit = g.binary(Op.EQ, wide, g.iota(x.shape, axis, dt.int64))
    # a comparison, not a gather: its derivative is then elementwise, and the classes are few
    target = labels._new(hit, labels.device)
    loss = -target.where(logs, 0.0).sum(axis)
    if label_smoothing:
        loss = loss * (1.0 - label_smoothing) - logs.sum(axis) * (label_smoothing / classes)
    counted = labels != ignore_index
    return _reduced(counted.where(loss, 0.0), reduction, counted)


def label_tensor(name: str, labels: Any, x: Tensor, classes: int, ignored: int) -> Tensor:
    """Labels, or probabilities, as a tensor beside x; labels known on the host are checked."""
    if isinstance(labels, type(x)):
        return labels
    made = c.as_tensor(labels, x, name)
    if made.dtype.is_float:
        return made
    return indexing.index_tensor(name, labels, x.device, classes, low=0, spared=ignored)


def _reduced(loss: Tensor, reduction: str, counted: Tensor | None) -> Tensor:
    if reduction == "none":
        return loss
    total = loss.sum()
    if reduction == "sum":
        return total
    if counted is None:
        return total / max(loss.size, 1)
    return total / counted.sum().astype(loss.dtype)


def layer_norm(
    x: Tensor,
    shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) over the last axes, whose extents are `shape`.

    Then scaled and shifted.
    """
    extents = c.extents("layer_norm", shape)
    eps = c.real("layer_norm", "eps", eps)
    weight = None if weight is None else c.as_tensor(weight, x, "layer_norm")
    bias = None if bias is None else c.as_tensor(bias, x, "layer_norm")
    if not extents or x.shape[-len(extents) :] != extents:
        raise ShapeError(f"layer_norm: the last axes of {x.shape} are not {extents}")
    for what, part in (("weight", weight), ("bias", bias)):
        if part is not None and part.shape != extents:
            raise ShapeError(f"layer_norm: {what} {part.shape} should be {extents}")
    axes = tuple(range(x.ndim - len(extents), x.ndim))
    floats = x if x.dtype.is_float else x.astype(dt.DEFAULT_FLOAT)
    apart = floats - floats.mean(axes, keepdims=True)
    out = apart * ((apart * apart).mean(axes, keepdims=True) + eps).rsqrt()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias
