"""Dropout: zeros at random while training, so that no unit relies on another."""

from __future__ import annotations

from frontend.nn.module import Module
from frontend.ops import random
from frontend.tensor import Tensor
from rawgpu.errors import OperationError, ShapeError


class Dropout(Module):
    """In training each element is zero with probability p, else divided by 1 - p."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise OperationError(f"{type(self).__name__}: {p} is no probability")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return x.dropout(self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _ChannelDropout(Dropout):
    """See `Dropout2d`."""

    axes = 0

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in (self.axes + 1, self.axes + 2):
            raise ShapeError(f"{type(self).__name__}: {x.shape} has not {self.axes + 2} axes")
        if not self.training or self.p == 0:
            return x
        lead = x.shape[: x.ndim - self.axes]
        kept = random.rand(*lead, *(1,) * self.axes, device=x.device) >= self.p
        return kept.where(x / (1.0 - self.p) if self.p < 1 else x, 0.0)


class Dropout1d(_ChannelDropout):
    """`Dropout2d` of (N, C, L)."""

    axes = 1


class Dropout2d(_ChannelDropout):
    """In training each channel of (N, C, H, W) is zero with probability p, else over 1 - p."""

    axes = 2


class Dropout3d(_ChannelDropout):
    """`Dropout2d` of (N, C, D, H, W)."""

    axes = 3
