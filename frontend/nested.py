"""Tensors in nested lists, tuples, dictionaries and dataclasses, as functions take and return them.

A dataclass counts as a container if it has an `==` of its own, and else as an object.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from frontend.tensor import Tensor
from rawgpu.errors import OperationError


def mapped(value: Any, kind: type | tuple[type, ...], change: Callable[[Any], Any]) -> Any:
    """`value` with `change` applied to what is of `kind` in it; its containers are copied."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (list, tuple)):
        parts = [mapped(v, kind, change) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        made = copy.copy(value)
        made.update((k, mapped(v, kind, change)) for k, v in value.items())
        return made
    if _is_record(value):
        made = copy.copy(value)
        for name, part in _parts(value):
            object.__setattr__(made, name, mapped(part, kind, change))
        return made
    return value


def form(value: Any, tensors: list[Tensor]) -> object:
    """What tells `value` from others, its tensors' values aside; collects the tensors in it.

    Raises OperationError for what has neither `==` and a hash nor a known container's parts.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return (value.shape, value.dtype.name, value.device, value.requires_grad)
    if isinstance(value, (list, tuple)):
        return (type(value), *(form(v, tensors) for v in value))
    if isinstance(value, dict):
        return (type(value), *((k, form(v, tensors)) for k, v in value.items()))
    if _is_record(value):
        return (type(value), *(form(part, tensors) for _, part in _parts(value)))
    if isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        return (type(value), repr(value))  # -0.0 is not 0.0, and NaN is NaN
    try:
        hash(value)
    except TypeError:
        raise OperationError(
            f"jit: an argument of type {type(value).__name__} has no value to recognise it by",
            hint="pass tensors, numbers, text, or lists, tuples and dictionaries of them",
        ) from None
    return value


def _is_record(value: Any) -> bool:
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and bool(parameters.eq)


def _parts(value: Any) -> list[tuple[str, Any]]:
    return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
