"""The operations whose speed is measured: what we call, what PyTorch calls, and on what.

Each row has its call of ours, PyTorch's default call, which makes a fresh result, and the same call
into a given result where PyTorch has one. `torch` is passed in: nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frontend.ops.movement import concat
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
    """One operation."""

    name: str
    inputs: tuple[Input, ...]
    ours: Callable[..., Tensor]
    torch: Callable[..., Any]
    """Called with the torch module and the inputs."""
    torch_out: Callable[..., Any] | None = None
    """Called with the torch module, the result to write, and the inputs."""
    tolerance: float = 0.0
    """Largest difference from float64 that is right, relative to the result's largest magnitude."""


def every_row() -> list[Row]:
    """All rows, in the order of the table."""
    return [
        *_elementwise(),
        *_reductions(),
        *_whole_rows(),
        *_moves(),
        *_products(),
        *_convolutions(),
    ]


def _square(n: int, count: int = 1, low: float = -2.0) -> tuple[Input, ...]:
    return (Input((n, n), low),) * count


def _elementwise() -> Iterator[Row]:
    def add_out(t: Any, o: Any, a: Any, b: Any) -> Any:
        return t.add(a, b, out=o)

    add = (lambda a, b: a + b, lambda t, a, b: a + b, add_out)
    yield Row("add_1x1", _square(1, 2), *add, tolerance=1e-6)
    for n in (256, 1024, 2048, 4096):
        yield Row(f"add_{n}", _square(n, 2), *add, tolerance=1e-6)
    for n in (256, 1024, 2048, 4096):
        yield Row(
            f"add_const_{n}", _square(n),
            lambda a: a + 2.5, lambda t, a: a + 2.5, lambda t, o, a: t.add(a, 2.5, out=o), 1e-6,
        )  # fmt: skip
    for n in (256, 1024, 2048, 4096):
        yield Row(
            f"exp_{n}", _square(n),
            lambda a: a.exp(), lambda t, a: a.exp(), lambda t, o, a: t.exp(a, out=o), 1e-6,
        )  # fmt: skip
    for n in (256, 1024, 2048, 4096):
        yield Row(f"relu_{n}", _square(n), lambda a: a.relu(), lambda t, a: a.relu())
    for n in (256, 1024, 2048, 4096):
        yield Row(
            f"sqrt_{n}", _square(n, low=0.0),
            lambda a: a.sqrt(), lambda t, a: a.sqrt(), lambda t, o, a: t.sqrt(a, out=o), 1e-6,
        )  # fmt: skip
    for n in (256, 1024, 2048, 4096):
        yield Row(
            f"gelu_tanh_{n}", _square(n),
            lambda a: a.gelu("tanh"),
            lambda t, a: t.nn.functional.gelu(a, approximate="tanh"),
            tolerance=2e-6,
        )  # fmt: skip
    yield Row(
        "add_mul_4096", _square(4096, 2),
        lambda a, b: (a + b) * b, lambda t, a, b: (a + b) * b, tolerance=1e-6,
    )  # fmt: skip


def _reductions() -> Iterator[Row]:
    # from 0 to 2: a sum of both signs may come out near zero, where a relative error says nothing
    for n in (256, 2048, 4096):
        yield Row(
            f"sum_{n}", _square(n, low=0.0), lambda a: a.sum(), lambda t, a: a.sum(), tolerance=2e-6
        )
    for n in (256, 2048, 4096):
        yield Row(f"max_{n}", _square(n), lambda a: a.max(), lambda t, a: a.max())
    yield Row(
        "sum_rows_2048", _square(2048, low=0.0),
        lambda a: a.sum(1), lambda t, a: a.sum(1), lambda t, o, a: t.sum(a, 1, out=o), 2e-6,
    )  # fmt: skip
    yield Row(
        "sum_columns_2048", _square(2048, low=0.0),
        lambda a: a.sum(0), lambda t, a: a.sum(0), lambda t, o, a: t.sum(a, 0, out=o), 1e-5,
    )  # fmt: skip
    yield Row(
        "argmax_rows_2048", _square(2048),
        lambda a: a.argmax(1), lambda t, a: a.argmax(1), lambda t, o, a: t.argmax(a, 1, out=o),
    )  # fmt: skip
    yield Row(
        "mul_sum_4096", _square(4096, 2, low=0.0),
        lambda a, b: (a * b).sum(), lambda t, a, b: (a * b).sum(), tolerance=2e-6,
    )  # fmt: skip


def _whole_rows() -> Iterator[Row]:
    shapes = ((512, 128), (2048, 2048), (2048, 768))
    for shape in shapes:
        yield Row(
            f"softmax_{shape[0]}x{shape[1]}", (Input(shape),),
            lambda a: a.softmax(-1),
            lambda t, a: t.softmax(a, -1),
            lambda t, o, a: t.softmax(a, -1, out=o),
            2e-6,
        )  # fmt: skip
    for shape in shapes:
        yield Row(
            f"layer_norm_{shape[0]}x{shape[1]}", (Input(shape),),
            lambda a: a.layer_norm(a.shape[-1]),
            lambda t, a: t.nn.functional.layer_norm(a, a.shape[-1:]),
            tolerance=2e-6,
        )  # fmt: skip
    yield Row(
        "cumsum_rows_1024", _square(1024, low=0.0),
        lambda a: a.cumsum(1),
        lambda t, a: a.cumsum(1),
        lambda t, o, a: t.cumsum(a, 1, out=o),
        1e-5,
    )  # fmt: skip


def _moves() -> Iterator[Row]:
    for axis in (0, 1):
        yield Row(
            f"concat_{axis}_2048", _square(2048, 2),
            lambda a, b, axis=axis: concat([a, b], axis),
            lambda t, a, b, axis=axis: t.cat([a, b], axis),
            lambda t, o, a, b, axis=axis: t.cat([a, b], axis, out=o),
        )  # fmt: skip
    shapes = (("1024", (1024, 1024)), ("4096", (4096, 4096)), ("0213", (8, 128, 12, 64)))
    for word, shape in shapes:
        order = (1, 0) if len(shape) == 2 else (0, 2, 1, 3)
        yield Row(
            f"permute_{word}", (Input(shape),),
            lambda a, order=order: a.permute(*order).contiguous(),
            lambda t, a, order=order: a.permute(*order).contiguous(),
            lambda t, o, a, order=order: o.copy_(a.permute(*order)),
        )  # fmt: skip
    yield Row(
        "gather_rows", (Input((30522, 768)), Input((4096,), 0, 30522, whole=True)),
        lambda a, i: a.index_select(0, i),
        lambda t, a, i: t.index_select(a, 0, i),
        lambda t, o, a, i: t.index_select(a, 0, i, out=o),
    )  # fmt: skip


def _products() -> Iterator[Row]:
    def row(name: str, x: Sequence[int], y: Sequence[int], turned: str = "") -> Row:
        def operands(a: Any, b: Any) -> tuple[Any, Any]:
            return (a.T if "a" in turned else a), (b.T if "b" in turned else b)

        def ours(a: Tensor, b: Tensor) -> Tensor:
            a, b = operands(a, b)
            return a.matmul(b)

        def torch(t: Any, a: Any, b: Any) -> Any:
            return t.matmul(*operands(a, b))

        def torch_out(t: Any, o: Any, a: Any, b: Any) -> Any:
            if len(x) == 1:  # matmul would warn that it changes the result's shape on the way
                return t.mv(b.T, a, out=o)
            return t.matmul(*operands(a, b), out=o)

        inputs = (Input(tuple(x)), Input(tuple(y)))
        return Row(name, inputs, ours, torch, torch_out, 1e-5)

    for n in (256, 512, 1024, 2048):
        yield row(f"matmul_{n}", (n, n), (n, n))
    yield row("matmul_512_at_b", (512, 512), (512, 512), "a")
    yield row("matmul_512_a_bt", (512, 512), (512, 512), "b")
    yield row("matmul_1000", (1000, 1000), (1000, 1000))
    yield row("matmul_4x2048x2048", (4, 2048), (2048, 2048))
    yield row("matmul_128x576x576", (128, 576), (576, 576))
    for n in (1024, 4096):
        yield row(f"vector_matrix_{n}", (n,), (n, n))
    for n in (1024, 4096):
        yield row(f"matrix_vector_{n}", (n, n), (n,))


def _convolutions() -> Iterator[Row]:
    def row(
        name: str, batch: int, channels: tuple[int, int], kernel: int, image: int, **more: int
    ) -> Row:
        into, out = channels
        groups = more.get("groups", 1)
        inputs = (
            Input((batch, into, image, image)),
            Input((out, into // groups, kernel, kernel)),
        )
        return Row(
            name, inputs,
            lambda x, w: x.conv2d(w, **more),
            lambda t, x, w: t.nn.functional.conv2d(x, w, **more),
            tolerance=1e-5,
        )  # fmt: skip

    yield row("conv_b32_4-32_k3_34", 32, (4, 32), 3, 34)
    yield row("conv_b32_16-32_k3_34", 32, (16, 32), 3, 34)
    yield row("conv_b32_64-32_k3_34", 32, (64, 32), 3, 34)
    yield row("conv_b32_64-64_k3_64", 32, (64, 64), 3, 64)
    yield row("conv_b1_64-64_k3_128_padded", 1, (64, 64), 3, 128, padding=1)
    yield row("conv_b8_3-64_k3_128", 8, (3, 64), 3, 128)
    yield row("conv_b1_3-64_k7_stride2_224", 1, (3, 64), 7, 224, stride=2)
    yield row("conv_b1_256-256_k1_28", 1, (256, 256), 1, 28)
    yield row("conv_b1_depthwise_128_k3_56", 1, (128, 128), 3, 56, groups=128)
