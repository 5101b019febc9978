"""Images of another size: nearest and linear interpolation, and channels laid out as pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from frontend.ops import common as c
from frontend.tensor import Tensor
from rawgpu.errors import OperationError, ShapeError

Numbers: TypeAlias = int | Sequence[int]


def interpolate(
    x: Tensor,
    size: Numbers | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """(N, C, *spatial) to `size`, or by `scale_factor`: "nearest", or "linear" for each axis.

    "bilinear" and "trilinear" are linear for two and three axes. `align_corners`: corners map to
    corners, else edges to edges. Raises ShapeError, OperationError.
    """
    count = x.ndim - 2
    ranks = {"linear": 1, "bilinear": 2, "trilinear": 3}
    if not isinstance(mode, str) or mode not in ("nearest", *ranks):
        raise OperationError(f"interpolate: no mode {mode!r}", hint="nearest, " + ", ".join(ranks))
    if count < 1 or ranks.get(mode, count) not in (1, count):
        raise ShapeError(f"interpolate: {mode} of {x.shape}")
    sizes, steps = _target(x, size, scale_factor, count)
    for i, (want, step) in enumerate(zip(sizes, steps, strict=True)):
        if mode == "nearest":
            x = _nearest(x, 2 + i, want, step)
        else:
            x = _linear(x, 2 + i, want, step, align_corners)
    return x


def _target(
    x: Tensor, size: Numbers | None, scale: float | Sequence[float] | None, count: int
) -> tuple[tuple[int, ...], list[float]]:
    """Of each spatial axis the new extent, and how far apart its elements are in the old one."""
    if (size is None) == (scale is None):
        raise OperationError("interpolate: give either size or scale_factor")
    spatial = x.shape[2:]
    if scale is not None:
        given = scale if isinstance(scale, (tuple, list)) else [scale] * count
        scales = [float(c.real("interpolate", "scale_factor", s)) for s in given]
        if len(scales) != count or not all(0 < s < math.inf for s in scales):
            raise ShapeError(f"interpolate: scale {scale} for {x.shape}")
        sizes = tuple(math.floor(n * s) for n, s in zip(spatial, scales, strict=True))
        steps = [1.0 / s for s in scales]
    else:
        assert size is not None
        sizes = c.per_axis("interpolate", "size", size, count)
        steps = [n / max(want, 1) for n, want in zip(spatial, sizes, strict=True)]
    if min(sizes) < 1 or 0 in spatial:
        raise ShapeError(f"interpolate: {spatial} to {sizes}")
    return sizes, steps


def _nearest(x: Tensor, axis: int, want: int, step: float) -> Tensor:
    have = x.shape[axis]
    if want % have == 0 and step == have / want:
        return x.repeat(want // have, axis)
    return x.take([min(int(i * step), have - 1) for i in range(want)], axis)


def _linear(x: Tensor, axis: int, want: int, step: float, align_corners: bool) -> Tensor:
    have = x.shape[axis]
    if align_corners:
        step = (have - 1) / (want - 1) if want > 1 else 0.0
        places = [i * step for i in range(want)]
    else:
        places = [max((i + 0.5) * step - 0.5, 0.0) for i in range(want)]
    low = [min(int(p), have - 1) for p in places]
    high = [min(p + 1, have - 1) for p in low]
    shares = [p - q for p, q in zip(places, low, strict=True)]
    shape = (want, *(1,) * (x.ndim - 1 - axis))
    share = Tensor(shares, dtype=x.dtype, device=x.device).reshape(shape)
    below, above = x.take(low, axis), x.take(high, axis)
    return below + (above - below) * share


def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """(..., C*factor², H, W) to (..., C, H*factor, W*factor). Raises ShapeError."""
    factor = c.whole("pixel_shuffle", "the factor", factor)
    if x.ndim < 3 or factor < 1 or x.shape[-3] % factor**2:
        raise ShapeError(f"pixel_shuffle: {x.shape} has no channels for a factor of {factor}")
    *lead, channels, height, width = x.shape
    n = len(lead)
    out = x.reshape(*lead, channels // factor**2, factor, factor, height, width)
    out = out.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return out.reshape(*lead, channels // factor**2, height * factor, width * factor)
