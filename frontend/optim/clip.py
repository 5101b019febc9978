"""Gradients kept within bounds, before the step that uses them. Nothing is computed here yet."""

from __future__ import annotations

import math
from collections.abc import Iterable

from frontend import dtype as dt
from frontend.ops import movement
from frontend.tensor import Tensor
from rawgpu.errors import OperationError


def _with_grads(parameters: Iterable[Tensor] | Tensor) -> list[tuple[Tensor, Tensor]]:
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [(tensor, tensor.grad) for tensor in listed if tensor.grad is not None]


def clip_grad_norm(
    parameters: Iterable[Tensor] | Tensor, max_norm: float, order: float = 2.0
) -> Tensor:
    """Scale all gradients by one factor, so that their common norm is `max_norm` at most.

    Returns the norm before, a scalar. Raises OperationError for a negative bound.
    """
    if max_norm < 0:
        raise OperationError(f"clip_grad_norm: the bound {max_norm} is negative")
    found = _with_grads(parameters)
    if not found:
        return Tensor(0.0)
    norms = [grad.astype(dt.accumulator(grad.dtype)).norm(order) for _, grad in found]
    total = movement.stack([norm.to(norms[0].device) for norm in norms]).norm(order)
    factor = (max_norm / (total + 1e-6)).minimum(1.0)
    for tensor, grad in found:
        tensor.grad = (grad * factor.to(grad.device)).astype(grad.dtype)
    return total


def clip_grad_value(parameters: Iterable[Tensor] | Tensor, limit: float) -> None:
    """Limit each element of the gradients to [-limit, limit]."""
    if not limit >= 0 or math.isnan(limit):
        raise OperationError(f"clip_grad_value: the bound {limit} is negative")
    for tensor, grad in _with_grads(parameters):
        tensor.grad = grad.clip(-limit, limit)
