"""Pools and resizing as modules. Inputs are (N, C, *spatial), or (C, *spatial) for one example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from frontend.nn import functional as F
from frontend.nn.module import Module
from frontend.ops import common as c
from frontend.tensor import Tensor
from rawgpu.errors import ShapeError

Numbers: TypeAlias = int | Sequence[int]


class _Pool(Module):
    """`axes` spatial axes; a number counts for all of them."""

    axes = 0

    def _check(self, x: Tensor) -> None:
        if x.ndim not in (self.axes + 1, self.axes + 2):
            raise ShapeError(
                f"{type(self).__name__}: input {x.shape} should have {self.axes + 2} axes, or one "
                "less for a single example"
            )

    def _each(self, what: str, value: Numbers) -> tuple[int, ...]:
        return c.per_axis(type(self).__name__, what, value, self.axes)


class _MaxPool(_Pool):
    """See `MaxPool2d`."""

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size = self._each("kernel_size", kernel_size)
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        return x.max_pool(
            self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}"


class MaxPool1d(_MaxPool):
    """`MaxPool2d` with one spatial axis."""

    axes = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window of the last two axes; `stride` defaults to the kernel.

    Equal maxima share the derivative evenly. Raises ShapeError.
    """

    axes = 2


class MaxPool3d(_MaxPool):
    """`MaxPool2d` with three spatial axes."""

    axes = 3


class _AvgPool(_Pool):
    """See `AvgPool2d`."""

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size = self._each("kernel_size", kernel_size)
        self.stride = stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        return x.avg_pool(
            self.kernel_size,
            self.stride,
            self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}"


class AvgPool1d(_AvgPool):
    """`AvgPool2d` with one spatial axis."""

    axes = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of the last two axes; padded zeros count unless told otherwise."""

    axes = 2


class AvgPool3d(_AvgPool):
    """`AvgPool2d` with three spatial axes."""

    axes = 3


class _AdaptivePool(_Pool):
    """`output_size` windows along each axis, whatever its extent."""

    def __init__(self, output_size: Numbers) -> None:
        self.output_size = self._each("output_size", output_size)

    def extra_repr(self) -> str:
        return f"{self.output_size}"


class _AdaptiveAvgPool(_AdaptivePool):
    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        return x.adaptive_avg_pool(self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of `output_size` windows of (N, C, L)."""

    axes = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of `output_size` windows of (N, C, H, W)."""

    axes = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of `output_size` windows of (N, C, D, H, W)."""

    axes = 3


class _AdaptiveMaxPool(_AdaptivePool):
    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        return F.adaptive_max_pool(x, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of `output_size` windows of (N, C, L)."""

    axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of `output_size` windows of (N, C, H, W)."""

    axes = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of `output_size` windows of (N, C, D, H, W)."""

    axes = 3


class Upsample(Module):
    """See `functional.interpolate`."""

    def __init__(
        self,
        size: Numbers | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)


class PixelShuffle(Module):
    """(..., C*factor², H, W) to (..., C, H*factor, W*factor)."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(x, self.factor)
