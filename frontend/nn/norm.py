"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from frontend import dtype as dt
from frontend import state
from frontend.nn import functional as F
from frontend.nn import init
from frontend.nn.module import Module
from frontend.ops.common import no_grad
from frontend.tensor import Tensor
from rawgpu.errors import ShapeError

Numbers: TypeAlias = int | Sequence[int]


class _Affine(Module):
    """A weight of ones and a bias of zeros, or None."""

    weight: Tensor | None
    bias: Tensor | None

    def _prepare(
        self, shape: tuple[int, ...], weight: bool, bias: bool, device: str | None, dtype: object
    ) -> None:
        self.register_parameter(
            "weight", init.constant(shape, 1.0, dtype, device) if weight else None
        )
        self.register_parameter("bias", init.constant(shape, 0.0, dtype, device) if bias else None)


class LayerNorm(_Affine):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes, of extents `shape`.

    weight and bias have `shape`. Raises ShapeError.
    """

    def __init__(
        self,
        shape: Numbers,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.eps = eps
        self._prepare(self.shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape}, eps={self.eps}"


class RMSNorm(_Affine):
    """x / sqrt(mean(x²) + eps) * weight over the last axes, of extents `shape`; or ShapeError."""

    def __init__(
        self,
        shape: Numbers,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.eps = eps
        self._prepare(self.shape, elementwise_affine, False, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape}, eps={self.eps}"


class GroupNorm(_Affine):
    """Each of `groups` groups of the channels of (N, C, *rest) normed; weight and bias (C,)."""

    def __init__(
        self,
        groups: int,
        channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        if groups < 1 or channels % groups:
            raise ShapeError(f"GroupNorm: {groups} groups do not divide {channels} channels")
        self.groups = groups
        self.channels = channels
        self.eps = eps
        self._prepare((channels,), affine, affine, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.channels:
            raise ShapeError(f"GroupNorm: input {x.shape} has not {self.channels} channels")
        return F.group_norm(x, self.groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.groups}, {self.channels}, eps={self.eps}"


class _RunningNorm(_Affine):
    """Batch norm, and instance norm that can keep running statistics as it does.

    `running_mean`, `running_var` and `num_batches_tracked` are buffers: training assigns them a new
    value, which is computed together with the optimiser's next step, or when someone asks.
    """

    ranks: tuple[int, ...] = ()
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        self.channels = channels
        self.eps = eps
        self.momentum = momentum
        self._prepare((channels,), affine, affine, device, dtype)
        for name, value, kind in (
            ("running_mean", 0, dtype),
            ("running_var", 1, dtype),
            ("num_batches_tracked", 0, dt.int64),
        ):
            buffer = None
            if track_running_stats:
                shape = () if name == "num_batches_tracked" else (channels,)
                buffer = state.initialised(Tensor.full(shape, value, kind, device))
            self.register_buffer(name, buffer)

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self.ranks or x.shape[1] != self.channels:
            wanted = " or ".join(str(rank) for rank in self.ranks)
            raise ShapeError(
                f"{type(self).__name__}: input {x.shape} should have {wanted} axes, the second of "
                f"extent {self.channels}"
            )

    def _track(self, mean: Tensor, var: Tensor, *, counts: bool = True) -> None:
        """Move the running statistics towards those of a batch, and count it."""
        running_mean, running_var, count = (
            self.running_mean,
            self.running_var,
            self.num_batches_tracked,
        )
        assert running_mean is not None and running_var is not None and count is not None
        with no_grad():
            count.assign(count + int(counts))
            share: Tensor | float
            if self.momentum is None:
                share = 1.0 / count.astype(running_mean.dtype)
            else:
                share = self.momentum
            running_mean.assign(running_mean + (mean.detach() - running_mean) * share)
            running_var.assign(running_var + (var.detach() - running_var) * share)
        for tensor in (running_mean, running_var, count):
            state.changed(tensor)

    def extra_repr(self) -> str:
        return f"{self.channels}, eps={self.eps}, momentum={self.momentum}"


class _BatchNorm(_RunningNorm):
    """See `BatchNorm2d`."""

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        tracks = self.running_mean is not None
        if tracks and not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, self.eps
            )
        count = x.size // max(self.channels, 1)
        if count < 2 and self.training:
            raise ShapeError(
                f"{type(self).__name__}: {x.shape} has one value a channel to train on"
            )
        if tracks:
            mean, var = F.batch_statistics(x.astype(dt.accumulator(x.dtype)))
            self._track(mean, var * (count / (count - 1)))
        return F.batch_norm(x, None, None, self.weight, self.bias, self.eps)


class BatchNorm1d(_BatchNorm):
    """`BatchNorm2d` of (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of (N, C, H, W).

    In training with the batch's own statistics, which the running ones follow: each batch moves
    them by the share `momentum` (None: the mean of all batches so far). In evaluation with the
    running ones. weight, bias, running_mean and running_var (C,). Raises ShapeError.
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """`BatchNorm2d` of (N, C, D, H, W)."""

    ranks = (5,)


class _InstanceNorm(_RunningNorm):
    """See `InstanceNorm2d`."""

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        super().__init__(channels, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        if self.running_mean is not None and not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, self.eps
            )
        if self.running_mean is not None:
            wide = x.astype(dt.accumulator(x.dtype))
            axes = tuple(range(2, x.ndim))
            mean, var = wide.mean(axes).mean(0), wide.var(axes, correction=1.0).mean(0)
            self._track(mean, var, counts=False)  # as in torch, whose count stays 0
        return F.instance_norm(x, self.weight, self.bias, self.eps)


class InstanceNorm1d(_InstanceNorm):
    """`InstanceNorm2d` of (N, C, L)."""

    ranks = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each example of (N, C, H, W) normed; weight and bias (C,) if `affine`."""

    ranks = (4,)


class InstanceNorm3d(_InstanceNorm):
    """`InstanceNorm2d` of (N, C, D, H, W)."""

    ranks = (5,)
