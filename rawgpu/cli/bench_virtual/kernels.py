"""The fixed kernels of `rawgpu bench virtual`: their objects, inputs, and what must come out.

`kernels.cl` was compiled once for each chip of `CHIPS` by clang 19, by `COMMAND`; the objects lie
beside it, so that no compiler is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
CHIPS = ("gfx1100", "gfx942")
COMMAND = (
    "clang-19", "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-mcpu={chip}",
    "-nogpulib", "-O2", "-mcode-object-version=5", "-c", "kernels.cl", "-o", "{object}",
)  # fmt: skip
BLOCK = 256
SIZE = 512
"""Rows and columns of the product."""


def object_path(chip: str) -> Path:
    return HERE / f"kernels_{chip}.elf"


@dataclass(frozen=True)
class Case:
    """One kernel at one size. `error`: the largest that a right result has."""

    name: str
    inputs: tuple[Any, ...]
    scalars: tuple[Any, ...]
    groups: tuple[int, int]
    want: Any
    error: float
    operations: int
    """Of float32, where that is a usual measure; else 0."""


def _matmul(random: np.random.Generator) -> Case:
    a, b = (random.standard_normal((SIZE, SIZE), np.float32) for _ in range(2))
    want = a.astype(np.float64) @ b
    groups = SIZE // 64, SIZE // 64
    return Case("matmul", (a, b), (np.uint32(SIZE),), groups, want, 1e-3, 2 * SIZE**3)


def _reduction(random: np.random.Generator) -> Case:
    x = random.standard_normal(1 << 22, np.float32)
    want = x.reshape(1024, -1).astype(np.float64).sum(axis=1)
    return Case("reduction", (x,), (), (1024, 1), want, 1e-3, 0)


def _softmax(random: np.random.Generator) -> Case:
    x = random.standard_normal((2048, 1024), np.float32)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return Case("softmax", (x,), (), (2048, 1), e / e.sum(axis=1, keepdims=True), 1e-6, 0)


MAKERS: tuple[Callable[[np.random.Generator], Case], ...] = (_matmul, _reduction, _softmax)


def cases() -> list[Case]:
    """All of them, with the same numbers in every run."""
    return [make(np.random.default_rng(number)) for number, make in enumerate(MAKERS)]
