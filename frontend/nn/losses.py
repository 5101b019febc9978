"""Losses: how far predictions are from targets, each a function and a module.

`reduction` is "mean", "sum", or "none" for a loss of each element. Where only some of the targets
count, "mean" divides by these.
"""

from __future__ import annotations

import math
from typing import Any

from frontend import dtype as dt
from frontend.nn.module import Module
from frontend.ops import common as c
from frontend.ops.losses import label_tensor
from frontend.tensor import Tensor
from rawgpu.errors import DTypeError, OperationError, ShapeError

REDUCTIONS = ("mean", "sum", "none")


def _reduced(name: str, loss: Tensor, reduction: str) -> Tensor:
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        raise OperationError(f"{name}: reduction {reduction!r} is not mean, sum or none")
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _same_shape(name: str, x: Tensor, target: Tensor) -> None:
    c.only_tensors(name, input=x, target=target)
    c.same_device(name, x, target)
    if x.shape != target.shape:
        raise ShapeError(f"{name}: input {x.shape} and target {target.shape} differ")


# -- distances


def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(x - target)²."""
    _same_shape("mse_loss", x, target)
    apart = x - target
    return _reduced("mse_loss", apart * apart, reduction)


def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|x - target|."""
    _same_shape("l1_loss", x, target)
    return _reduced("l1_loss", abs(x - target), reduction)


def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """|x - target| less beta/2, but a parabola below `beta`."""
    beta = c.real("smooth_l1_loss", "beta", beta)
    if beta < 0:
        raise OperationError(f"smooth_l1_loss: beta {beta} is negative")
    if beta == 0:
        return l1_loss(x, target, reduction)
    _same_shape("smooth_l1_loss", x, target)
    far = abs(x - target)
    loss = (far < beta).where(far * far * (0.5 / beta), far - 0.5 * beta)
    return _reduced("smooth_l1_loss", loss, reduction)


def huber_loss(x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """(x - target)² / 2 up to `delta`, then the tangent."""
    delta = c.real("huber_loss", "delta", delta)
    if delta <= 0:
        raise OperationError(f"huber_loss: delta {delta} is not positive")
    _same_shape("huber_loss", x, target)
    far = abs(x - target)
    loss = (far <= delta).where(far * far * 0.5, (far - 0.5 * delta) * delta)
    return _reduced("huber_loss", loss, reduction)


# -- classes


def nll_loss(
    x: Tensor,
    labels: Any,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-x[label] of log-probabilities (N, C, *rest) and labels (N, *rest), or (C,) and ().

    `weight` (C,): how much a label counts. A label outside the classes counts for nothing in a
    tensor; in a list or an array it raises IndexOutOfRange.
    """
    c.only_tensors("nll_loss", input=x)
    c.tensors_or_none("nll_loss", weight=weight)
    if x.ndim == 0:
        raise ShapeError("nll_loss: a scalar has no classes")
    labels = label_tensor("nll_loss", labels, x, x.shape[min(x.ndim - 1, 1)], ignore_index)
    axis, rows = _classes("nll_loss", x, labels)
    counted = labels != ignore_index
    hit = labels.one_hot(x.shape[axis], dtype=dt.bool_).moveaxis(-1, axis)
    loss = -hit.where(x, 0.0).sum(axis)
    share = counted.astype(x.dtype)
    if weight is not None:
        if weight.shape != (x.shape[axis],):
            raise ShapeError(f"nll_loss: weight {weight.shape} should be ({x.shape[axis]},)")
        share = share * hit.where(weight.reshape(-1, *(1,) * len(rows[axis:])), 0.0).sum(axis)
        loss = loss * share
    loss = counted.where(loss, 0.0)
    if reduction == "mean":
        mean: Tensor = loss.sum() / share.sum()
        return mean
    return _reduced("nll_loss", loss, reduction)


def _classes(name: str, x: Tensor, labels: Tensor) -> tuple[int, tuple[int, ...]]:
    """The axis of the classes, and the shape that labels have."""
    if x.ndim == 0:
        raise ShapeError(f"{name}: a scalar has no classes")
    c.same_device(name, x, labels)
    axis = 0 if x.ndim == 1 else 1
    rows = tuple(n for i, n in enumerate(x.shape) if i != axis)
    if labels.shape != rows:
        raise ShapeError(f"{name}: labels {labels.shape} for {x.shape} should be {rows}")
    c.needs_integer(name, labels.dtype)
    return axis, rows


def cross_entropy(
    x: Tensor,
    labels: Any,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(x))[label]; see `Tensor.cross_entropy`. `weight` (C,): how much a label counts.

    Weights go with labels, not with probabilities or smoothing. Raises ShapeError, OperationError.
    """
    c.only_tensors("cross_entropy", input=x)
    c.tensors_or_none("cross_entropy", weight=weight)
    if weight is None:
        return x.cross_entropy(labels, reduction, label_smoothing, ignore_index)
    if x.ndim == 0:
        raise ShapeError("cross_entropy: a scalar has no classes")
    classes = x.shape[min(x.ndim - 1, 1)]
    labels = label_tensor("cross_entropy", labels, x, classes, ignore_index)
    label_smoothing = c.real("cross_entropy", "label_smoothing", label_smoothing)
    if labels.dtype.is_float or label_smoothing:
        raise OperationError("cross_entropy: weights with probabilities or label smoothing")
    logs = x.log_softmax(0 if x.ndim == 1 else 1)
    return nll_loss(logs, labels, weight, ignore_index, reduction)


LOG_FLOOR = -100.0
"""As in torch: the logarithm of 0 counts so much, that the loss of a sure mistake is finite."""


def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-(target*log(x) + (1-target)*log(1-x)) of probabilities, with logarithms of -100 at least."""
    _same_shape("binary_cross_entropy", x, target)
    target = target.astype(x.dtype)
    loss = -(target * _floored_log(x) + (1.0 - target) * _floored_log(1.0 - x))
    return _reduced("binary_cross_entropy", _weighted(loss, weight), reduction)


def _floored_log(x: Tensor) -> Tensor:
    low = x <= math.exp(LOG_FLOOR)
    return low.where(LOG_FLOOR, low.where(1.0, x).log())  # no infinite derivative at 0


def _weighted(loss: Tensor, weight: Tensor | None) -> Tensor:
    c.tensors_or_none("loss", weight=weight)
    if weight is None:
        return loss
    if c.broadcast_shapes("loss: weight", weight.shape, loss.shape) != loss.shape:
        raise ShapeError(f"loss: weight {weight.shape} does not broadcast to {loss.shape}")
    return loss * weight


def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(x), computed without overflow.

    `pos_weight`, broadcast, multiplies the part of the target that is 1.
    """
    _same_shape("binary_cross_entropy_with_logits", x, target)
    c.tensors_or_none("binary_cross_entropy_with_logits", pos_weight=pos_weight)
    target = target.astype(x.dtype)
    # log(1 + exp(-|x|)) does not overflow; softplus(-x) is that plus max(-x, 0)
    minus = (-abs(x)).exp().log1p() + (-x).relu()
    share = 1.0 if pos_weight is None else (pos_weight - 1.0) * target + 1.0
    loss = (1.0 - target) * x + minus * share
    return _reduced("binary_cross_entropy_with_logits", _weighted(loss, weight), reduction)


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - x) of log-probabilities x.

    `log_target`: the target is logarithms too. "batchmean" divides the sum by extent 0.
    """
    _same_shape("kl_div", x, target)
    if c.flag("kl_div", "log_target", log_target):
        loss = target.exp() * (target - x)
    else:
        some = target > 0
        loss = some.where(target * (some.where(target, 1.0).log() - x), 0.0)
    if reduction == "batchmean":
        if x.ndim == 0:
            raise ShapeError("kl_div: a scalar has no batch")
        return loss.sum() / x.shape[0]
    return _reduced("kl_div", loss, reduction)


# -- pairs and margins


def cosine_similarity(x: Tensor, y: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """x·y / (|x|*|y|) over `axis`; each length is `eps` at least."""
    c.only_tensors("cosine_similarity", x=x, y=y)
    return (x * y).sum(axis) / (_length(x, axis, eps) * _length(y, axis, eps))


def _length(x: Tensor, axis: int, eps: float) -> Tensor:
    # the maximum before the root: the root has no derivative at 0
    return (x * x).sum(axis).maximum(eps * eps).sqrt()


def _signs(name: str, target: Tensor, shape: tuple[int, ...]) -> None:
    c.only_tensors(name, target=target)
    if target.shape != shape:
        raise ShapeError(f"{name}: targets {target.shape} should be {shape}")


def cosine_embedding_loss(
    x: Tensor, y: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos(x, y) where target is 1, max(cos(x, y) - margin, 0) where it is -1."""
    _same_shape("cosine_embedding_loss", x, y)
    if x.ndim not in (1, 2):
        raise ShapeError(f"cosine_embedding_loss: {x.shape} is neither (N, D) nor (D,)")
    _signs("cosine_embedding_loss", target, x.shape[:-1])
    # as in torch, where both lengths are widened, not bounded
    eps = 1e-12
    square_x, square_y = (x * x).sum(-1) + eps, (y * y).sum(-1) + eps
    cosine = (x * y).sum(-1) / (square_x * square_y).sqrt()
    loss = (target == 1).where(1.0 - cosine, 0.0)
    loss = (target == -1).where((cosine - margin).relu(), loss)
    return _reduced("cosine_embedding_loss", loss, reduction)


def hinge_embedding_loss(
    x: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """x where target is 1, max(margin - x, 0) where it is -1."""
    _same_shape("hinge_embedding_loss", x, target)
    loss = (target == -1).where((margin - x).relu(), (target == 1).where(x, 0.0))
    return _reduced("hinge_embedding_loss", loss, reduction)


def margin_ranking_loss(
    x: Tensor, y: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(margin - target*(x - y), 0): target 1 wants x above y, -1 below."""
    _same_shape("margin_ranking_loss", x, y)
    loss = (margin - target * (x - y)).relu()
    return _reduced("margin_ranking_loss", loss, reduction)


def soft_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target*x)), target 1 or -1."""
    _same_shape("soft_margin_loss", x, target)
    return _reduced("soft_margin_loss", (-target * x).softplus(), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    order: float = 2.0,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """max(|anchor - positive| - |anchor - negative| + margin, 0) with norms over the last axis."""
    _same_shape("triplet_margin_loss", anchor, positive)
    _same_shape("triplet_margin_loss", anchor, negative)
    near = (anchor - positive + eps).norm(order, -1)
    far = (anchor - negative + eps).norm(order, -1)
    return _reduced("triplet_margin_loss", (near - far + margin).relu(), reduction)


# -- likelihoods


def poisson_nll_loss(
    x: Tensor,
    target: Tensor,
    log_input: bool = True,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of counts, less what does not depend on x."""
    _same_shape("poisson_nll_loss", x, target)
    logarithms = c.flag("poisson_nll_loss", "log_input", log_input)
    loss = x.exp() - target * x if logarithms else x - target * (x + eps).log()
    return _reduced("poisson_nll_loss", loss, reduction)


def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Tensor, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log(var) + (x - target)²/var) / 2 with a variance of `eps` at least; no gradient of that."""
    _same_shape("gaussian_nll_loss", x, target)
    c.only_tensors("gaussian_nll_loss", var=var)
    if not var.dtype.is_float:
        raise DTypeError(f"gaussian_nll_loss: the variance is {var.dtype}, not a float")
    spread = (var < eps).where(eps, var)
    apart = x - target
    return _reduced("gaussian_nll_loss", (spread.log() + apart * apart / spread) * 0.5, reduction)


# -- modules


class _Loss(Module):
    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in (*REDUCTIONS, "batchmean"):
            raise OperationError(f"{type(self).__name__}: no reduction {reduction!r}")
        self.reduction = reduction

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class MSELoss(_Loss):
    """See `mse_loss`."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return mse_loss(x, target, self.reduction)


class L1Loss(_Loss):
    """See `l1_loss`."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return l1_loss(x, target, self.reduction)


class SmoothL1Loss(_Loss):
    """See `smooth_l1_loss`."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return smooth_l1_loss(x, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """See `huber_loss`."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return huber_loss(x, target, self.reduction, self.delta)


class CrossEntropyLoss(_Loss):
    """See `cross_entropy`."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    weight: Tensor | None

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(
            x, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


class NLLLoss(_Loss):
    """See `nll_loss`."""

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return nll_loss(x, labels, self.weight, self.ignore_index, self.reduction)


class BCELoss(_Loss):
    """See `binary_cross_entropy`."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return binary_cross_entropy(x, target, None, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """See `binary_cross_entropy_with_logits`."""

    pos_weight: Tensor | None

    def __init__(self, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(x, target, None, self.reduction, self.pos_weight)


class KLDivLoss(_Loss):
    """See `kl_div`."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return kl_div(x, target, self.reduction, self.log_target)


class CosineEmbeddingLoss(_Loss):
    """See `cosine_embedding_loss`."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, x: Tensor, y: Tensor, target: Tensor) -> Tensor:
        return cosine_embedding_loss(x, y, target, self.margin, self.reduction)


class HingeEmbeddingLoss(_Loss):
    """See `hinge_embedding_loss`."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return hinge_embedding_loss(x, target, self.margin, self.reduction)


class TripletMarginLoss(_Loss):
    """See `triplet_margin_loss`."""

    def __init__(self, margin: float = 1.0, order: float = 2.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin
        self.order = order

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return triplet_margin_loss(
            anchor, positive, negative, self.margin, self.order, reduction=self.reduction
        )
