"""State: tensors that outlive a step, such as weights, moments, rates and running means.

Three things they share. They lie in device memory and are read from there, so that a kernel serves
every step; a number that was written into the kernel's text would ask for another one each time.
They change by taking another value (`Tensor.assign`), which is how a recorded step finds out what
its state is. And what they became may wait, uncomputed, for the next thing that is computed
anyway: `waiting` knows these, so that a step computes all in one go.

`save` and `load` keep a module's or an optimiser's state in a safetensors file.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from frontend import safetensors
from frontend.dtype import DType
from frontend.tensor import Tensor

PATIENCE = 32
"""A tensor that was changed so often without being computed is computed: graphs do not grow on."""


class HasState(Protocol):
    """A module, an optimiser: what has named tensors and takes them back."""

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> object: ...


class _Waiting:
    """Tensors that wait to be computed, with the number of changes since they last were.

    Weak, and by id: `==` of tensors compares their elements.
    """

    def __init__(self) -> None:
        self._tensors: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
        self._changes: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._changes)

    def add(self, tensor: Tensor) -> int:
        """Note one change; how many there are now."""
        key = id(tensor)
        count = self._changes.get(key, 0) + 1 if key in self._tensors else 1
        self._tensors[key] = tensor
        self._changes[key] = count
        return count

    def drop(self, tensor: Tensor) -> None:
        """Forget one."""
        self._tensors.pop(id(tensor), None)
        self._changes.pop(id(tensor), None)

    def take(self) -> list[Tensor]:
        """All that are not computed yet; forgets them."""
        found = [tensor for tensor in self._tensors.values() if not tensor.is_realized]
        self._tensors.clear()
        self._changes.clear()
        return found


_fresh = _Waiting()
"""Parameters that were initialised; the next call of a module computes them."""
_changed = _Waiting()
"""Buffers that were given a new value; the next step of an optimiser computes them."""


def initialised(tensor: Tensor) -> Tensor:
    """Note that `tensor` has its first value, and return it."""
    if not tensor.is_realized:
        _fresh.add(tensor)
    return tensor


def changed(tensor: Tensor) -> None:
    """Note that `tensor` was assigned a value which waits to be computed."""
    if _changed.add(tensor) >= PATIENCE:
        tensor.realize()
        _changed.drop(tensor)


def compute_fresh() -> None:
    """Compute, together, what was initialised since the last time."""
    if _fresh:
        realize_all(_fresh.take())


def waiting() -> list[Tensor]:
    """All state that waits to be computed; whoever asks computes it."""
    return _fresh.take() + _changed.take()


def realize_all(tensors: list[Tensor]) -> None:
    """Compute several tensors in one go."""
    if tensors:
        tensors[0].realize(*tensors[1:])


def zeros(shape: tuple[int, ...], dtype: DType, device: str) -> Tensor:
    """Zeros in device memory, where `Tensor.zeros` is a constant. `dtype` is one NumPy has."""
    return Tensor(np.zeros(shape, dtype.numpy), device=device)


def number(value: float, dtype: DType, device: str) -> Tensor:
    """A scalar in device memory, where `Tensor(value)` is a constant. `dtype` is one NumPy has."""
    return Tensor(np.array(value, dtype.numpy), device=device)


# -- files


def save(
    target: HasState, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the state of a module or an optimiser as a safetensors file."""
    safetensors.save(target.state_dict(), path, metadata)


def load(target: HasState, path: str | os.PathLike[str], *, strict: bool = True) -> None:
    """Give a module or an optimiser the state in a safetensors file.

    Raises BadSafetensors for a damaged file, OperationError and ShapeError where names or shapes
    differ; nothing has changed then.
    """
    with safetensors.File(path) as file:
        target.load_state_dict(file, strict)
