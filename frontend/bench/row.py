"""What a row of the speed table is: what we call, what the rivals call, and on what.

A row has its call of ours, PyTorch's default call, which makes a fresh result, and the same call
into a given result where PyTorch has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from frontend.tensor import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Input:
    """A random input: float32 from `low` to `high`, or with `whole` int64."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    whole: bool = False

    def draw(self, rng: np.random.Generator) -> Array:
        if self.whole:
            return rng.integers(int(self.low), int(self.high), self.shape)
        spread = np.float32(self.high - self.low)
        return rng.random(self.shape, dtype=np.float32) * spread + np.float32(self.low)


@dataclass(frozen=True)
class Row:
    """One operation on inputs of some size."""

    name: str
    inputs: tuple[Input, ...]
    ours: Callable[..., Tensor]
    torch: Callable[..., Any]
    """Called with the torch module and the inputs."""
    torch_out: Callable[..., Any] | None = None
    """Called with the torch module, the result to write, and the inputs."""
    tolerance: float = 0.0
    """Largest difference from float64 that is right, relative to the result's largest magnitude."""
    tinygrad: Callable[..., Any] | None = None
    """Called with tinygrad's tensors; None where `ours` means the same for them."""
    flops: float = 0.0
    """Multiplications and additions, where there are enough of them to be the limit; else 0."""
    read_bytes: int | None = None
    """What must be read; None for all of the inputs."""


@dataclass(frozen=True)
class Operation:
    """An operation that makes a row of any size."""

    word: str
    """Rows near the table's are called by this and their dimensions."""
    make: Callable[..., Row]
    """Called with the dimensions; its row is called whatever it likes."""
    sizes: Mapping[str, tuple[int, ...]]
    """The rows of the table: their names and dimensions."""

    def row(self, name: str, dimensions: tuple[int, ...]) -> Row:
        return replace(self.make(*dimensions), name=name)
