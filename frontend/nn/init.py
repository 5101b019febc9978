"""First values of parameters, drawn by the counter-based generator of `frontend/ops/random.py`.

The functions that end in `_` give a tensor another value in place and return it, as torch's do. Fan
in is the number of inputs that one output sums over: extent 1 of a weight times its kernel's size;
fan out is the same with extent 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from frontend import dtype as dt
from frontend import state
from frontend.nn.module import Parameter
from frontend.ops import creation, random
from frontend.tensor import Tensor
from rawgpu.errors import OperationError, ShapeError

GAINS = {
    "linear": 1.0,
    "sigmoid": 1.0,
    "conv": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def gain(nonlinearity: str, slope: float = 0.01) -> float:
    """By how much to scale weights before an activation. Raises OperationError for unknown ones."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in GAINS:
        known = ", ".join([*GAINS, "leaky_relu"])
        raise OperationError(f"gain: no nonlinearity {nonlinearity!r}", hint=f"one of {known}")
    return GAINS[nonlinearity]


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """(fan in, fan out) of a weight's shape. Raises ShapeError below two axes."""
    if len(shape) < 2:
        raise ShapeError(f"init: {tuple(shape)} has no two axes, and so no fan")
    taps = math.prod(shape[2:])
    return shape[1] * taps, shape[0] * taps


def _fan(shape: Sequence[int], mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise OperationError(f"init: mode is fan_in or fan_out, not {mode!r}")
    return fans(shape)[mode == "fan_out"]


# -- parameters of layers


def uniform(shape: Sequence[int], bound: float, dtype: object, device: str | None) -> Tensor:
    """A parameter uniform in [-bound, bound)."""
    return Parameter(random.uniform(shape, -bound, bound, dtype, device))


def normal(shape: Sequence[int], std: float, dtype: object, device: str | None) -> Tensor:
    """A parameter of normal numbers around 0."""
    return Parameter(random.normal(shape, 0.0, std, dtype, device))


def constant(shape: Sequence[int], value: float, dtype: object, device: str | None) -> Tensor:
    """A parameter of equal numbers."""
    return Parameter(creation.full(tuple(shape), value, dt.of(dtype), device))


def by_fan_in(shape: Sequence[int], fan_in: int, dtype: object, device: str | None) -> Tensor:
    """torch's default for weights and biases alike: uniform within 1 / sqrt(fan in)."""
    return uniform(shape, 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0, dtype, device)


# -- in place


def _give(tensor: Tensor, value: Tensor) -> Tensor:
    tensor.assign(value)
    return state.initialised(tensor)


def uniform_(tensor: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Uniform in [low, high)."""
    return _give(tensor, random.uniform(tensor.shape, low, high, tensor.dtype, tensor.device))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """mean + std*z with z standard normal."""
    return _give(tensor, random.normal(tensor.shape, mean, std, tensor.dtype, tensor.device))


def constant_(tensor: Tensor, value: float) -> Tensor:
    """`value` everywhere."""
    return _give(tensor, creation.full_like(tensor, value))


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix. Raises ShapeError unless there are two axes."""
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: {tensor.shape} is no matrix")
    rows, columns = tensor.shape
    return _give(tensor, creation.eye(rows, columns, 0, tensor.dtype, tensor.device))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio (2010): uniform within gain * sqrt(6 / (fan in + fan out))."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor.shape)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio (2010): normal with std gain * sqrt(2 / (fan in + fan out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor.shape))))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """He et al. (2015): uniform within gain * sqrt(3 / fan); `a` is the leaky slope."""
    bound = gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor.shape, mode))
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """He et al. (2015): normal with std gain / sqrt(fan)."""
    return normal_(tensor, 0.0, gain(nonlinearity, a) / math.sqrt(_fan(tensor.shape, mode)))
