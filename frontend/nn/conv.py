"""Convolutions, and their adjoints, with one to three spatial axes.

Input (N, C, *spatial), or (C, *spatial) for one example; output (N, O, *out). Numbers that are
given once count for all spatial axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from frontend import dtype as dt
from frontend.nn import functional as F
from frontend.nn import init
from frontend.nn.module import Module
from frontend.ops import common as c
from frontend.ops import convolution
from frontend.tensor import Tensor
from rawgpu.errors import OperationError, ShapeError

Numbers: TypeAlias = int | Sequence[int]


class _Convolution(Module):
    """What convolutions and transposed ones share."""

    axes = 0
    weight: Tensor
    bias: Tensor | None

    def _prepare(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        groups: int,
        weight_channels: tuple[int, int],
        bias: bool,
        device: str | None,
        dtype: object,
    ) -> None:
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{name}: {groups} groups do not divide {in_channels} and {out_channels} channels"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.groups = groups
        self.kernel_size = c.per_axis(name, "kernel_size", kernel_size, self.axes)
        fan_in = weight_channels[1] * math.prod(self.kernel_size)
        shape = (*weight_channels, *self.kernel_size)
        self.weight = init.by_fan_in(shape, fan_in, dtype, device)
        self.register_parameter(
            "bias", init.by_fan_in((out_channels,), fan_in, dtype, device) if bias else None
        )

    def _batched(self, x: Tensor) -> tuple[Tensor, bool]:
        """x with a batch axis, and whether it had none."""
        name = type(self).__name__
        single = x.ndim == self.axes + 1
        x = x.reshape(1, *x.shape) if single else x
        if x.ndim != self.axes + 2 or x.shape[1] != self.in_channels:
            raise ShapeError(
                f"{name}: input {x.shape} should be (N, {self.in_channels}, *{self.axes} extents)"
            )
        return x, single

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"


class _ConvNd(_Convolution):
    """See `Conv2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Numbers | str = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise OperationError(f"{type(self).__name__}: no padding_mode {padding_mode!r}")
        channels = (out_channels, in_channels // max(groups, 1))
        self._prepare(in_channels, out_channels, kernel_size, groups, channels, bias, device, dtype)
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.padding_mode = padding_mode

    def _widths(self) -> list[tuple[int, int]]:
        """Elements to add before and after each spatial axis."""
        if self.padding == "valid":
            return [(0, 0)] * self.axes
        if self.padding == "same":
            dilations = c.per_axis("conv", "dilation", self.dilation, self.axes)
            spans = [d * (k - 1) for d, k in zip(dilations, self.kernel_size, strict=True)]
            return [(span // 2, span - span // 2) for span in spans]
        assert not isinstance(self.padding, str), self.padding
        return [(p, p) for p in c.per_axis("conv", "padding", self.padding, self.axes)]

    def forward(self, x: Tensor) -> Tensor:
        x, single = self._batched(x)
        padding = self.padding
        if self.padding_mode != "zeros":
            x = x.pad(self._widths(), self.padding_mode)
            padding = 0
        out = convolution.conv(
            x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )
        return out.reshape(*out.shape[1:]) if single else out


class Conv1d(_ConvNd):
    """`Conv2d` with one spatial axis: (N, C, L) gives (N, O, L')."""

    axes = 1


class Conv2d(_ConvNd):
    """The convolution of (N, C, H, W) with weight (O, C / groups, *kernel_size), plus bias (O,).

    padding: numbers, "same" or "valid"; padding_mode: "zeros", "reflect", "replicate", "circular".
    Weight and bias start uniform within 1/sqrt(C / groups * kernel elements). Out extents are
    (n + 2*padding - dilation*(kernel-1) - 1) // stride + 1. Raises ShapeError, OperationError.
    """

    axes = 2


class Conv3d(_ConvNd):
    """`Conv2d` with three spatial axes: (N, C, D, H, W)."""

    axes = 3


class _ConvTransposeNd(_Convolution):
    """See `ConvTranspose2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Numbers = 1,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        channels = (in_channels, out_channels // max(groups, 1))
        self._prepare(in_channels, out_channels, kernel_size, groups, channels, bias, device, dtype)
        self.stride = stride
        self.padding = padding
        self.output_padding = output_padding
        self.dilation = dilation

    def forward(self, x: Tensor) -> Tensor:
        x, single = self._batched(x)
        out = F.conv_transpose(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )
        return out.reshape(*out.shape[1:]) if single else out


class ConvTranspose1d(_ConvTransposeNd):
    """`ConvTranspose2d` with one spatial axis."""

    axes = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The adjoint of a convolution: (N, C, H, W) with weight (C, O / groups, *kernel_size).

    Out extents are (n - 1)*stride - 2*padding + dilation*(kernel-1) + output_padding + 1. Weight
    and bias start uniform within 1/sqrt(O / groups * kernel elements). Raises ShapeError.
    """

    axes = 2


class ConvTranspose3d(_ConvTransposeNd):
    """`ConvTranspose2d` with three spatial axes."""

    axes = 3
