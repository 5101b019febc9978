"""Activations as modules; the functions are in `frontend/nn/functional.py`."""

from __future__ import annotations

from frontend import dtype as dt
from frontend.nn import functional as F
from frontend.nn import init
from frontend.nn.module import Module
from frontend.tensor import Tensor


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class ReLU6(Module):
    """x limited to [0, 6]."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.silu()


class Mish(Module):
    """x * tanh(softplus(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(x)


class Hardswish(Module):
    """x * hardsigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(x)


class Hardsigmoid(Module):
    """(x + 3) / 6 limited to [0, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        return F.hardsigmoid(x)


class Softplus(Module):
    """log(1 + exp(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softplus()


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return x.logsigmoid()


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softsign(x)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.tanhshrink(x)


class SELU(Module):
    """The scaled elu that keeps mean and variance."""

    def forward(self, x: Tensor) -> Tensor:
        return F.selu(x)


class GELU(Module):
    """x * Φ(x); `approximate` is "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return x.gelu(self.approximate)


class LeakyReLU(Module):
    """x where positive, negative_slope * x elsewhere."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return x.leaky_relu(self.negative_slope)


class ELU(Module):
    """x where positive, alpha * (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return x.elu(self.alpha)


class CELU(Module):
    """x where positive, alpha * (exp(x / alpha) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return F.celu(x, self.alpha)


class Hardtanh(Module):
    """x limited to [low, high]."""

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        self.low = low
        self.high = high

    def forward(self, x: Tensor) -> Tensor:
        return x.hardtanh(self.low, self.high)


class Softshrink(Module):
    """x moved towards 0 by `width`, and 0 within it."""

    def __init__(self, width: float = 0.5) -> None:
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return F.softshrink(x, self.width)


class Hardshrink(Module):
    """x, but 0 within `width` of 0."""

    def __init__(self, width: float = 0.5) -> None:
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return F.hardshrink(x, self.width)


class Threshold(Module):
    """x where above `limit`, else `value`."""

    def __init__(self, limit: float, value: float) -> None:
        self.limit = limit
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return F.threshold(x, self.limit, self.value)


class GLU(Module):
    """The first half of `axis` times sigmoid of the second."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, self.axis)


class Softmax(Module):
    """exp(x) over its sum along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(self.axis)


class LogSoftmax(Module):
    """log(softmax(x)) along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return x.log_softmax(self.axis)


class PReLU(Module):
    """x where positive, weight * x elsewhere; weight (num_parameters,): one, or one a channel."""

    weight: Tensor

    def __init__(
        self,
        num_parameters: int = 1,
        init_value: float = 0.25,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        self.weight = init.constant((num_parameters,), init_value, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.weight)
