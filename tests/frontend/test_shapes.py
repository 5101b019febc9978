"""Products, convolutions, folds and turns of sizes that tiles, vectors and blocks do not divide.

Inputs are small whole numbers in float32, so that every order of summation gives the same sum and
results are compared exactly. A failure prints its seed and sizes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, concat
from tests.frontend.evaluator import uses_reference

Array = np.ndarray[Any, Any]
SIZES = (
    1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 96, 97, 100,
    127, 128, 129, 160, 200, 255, 256, 257, 300, 384, 500, 513,
)  # fmt: skip
pytestmark = pytest.mark.skipif(uses_reference(), reason="tests generated kernels")


def whole(rng: random.Random, *shape: int, high: int = 5) -> Array:
    """Whole numbers from -high to high as float32."""
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    return numbers.integers(-high, high + 1, shape).astype(np.float32)


def size(rng: random.Random, largest: int) -> int:
    return rng.choice([n for n in SIZES if n <= largest])


def product(rng: random.Random) -> tuple[Tensor, Array, str]:
    """Matrices, vectors and batches, either side turned, with and without what follows a layer."""
    m, n, k = size(rng, 300), size(rng, 513), size(rng, 513)
    batch = rng.choice(((), (), (), (2,), (3, 2)))
    if batch:
        m, n, k = min(m, 65), min(n, 65), min(k, 65)
    a, b = whole(rng, *batch, m, k), whole(rng, *batch, k, n)
    turned = rng.choice(("", "", "a", "b", "ab"))
    x = Tensor(np.ascontiguousarray(np.swapaxes(a, -1, -2))).mT if "a" in turned else Tensor(a)
    y = Tensor(np.ascontiguousarray(np.swapaxes(b, -1, -2))).mT if "b" in turned else Tensor(b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    got = x.matmul(y)
    follows = rng.choice(("", "", "bias", "relu", "sum"))
    if follows == "bias":
        bias = whole(rng, n)
        got, expected = got + Tensor(bias), expected + bias
    elif follows == "relu":
        got, expected = (got * 0.5).relu(), np.maximum(expected * 0.5, 0)
    elif follows == "sum":
        got, expected = got.sum(-1), expected.sum(-1)
    return got, expected, f"{batch} {m}x{k} @ {k}x{n} turned {turned!r} then {follows!r}"


def vector_product(rng: random.Random) -> tuple[Tensor, Array, str]:
    n, k = size(rng, 513), rng.choice((*SIZES, 1000, 1025))
    a, b = whole(rng, k), whole(rng, k, n)
    if rng.random() < 0.5:
        return Tensor(a).matmul(Tensor(b)), a.astype(np.float64) @ b, f"{k} @ {k}x{n}"
    b = np.ascontiguousarray(b.T)
    return Tensor(b).matmul(Tensor(a)), b.astype(np.float64) @ a, f"{n}x{k} @ {k}"


def convolution(rng: random.Random) -> tuple[Tensor, Array, str]:
    batch, groups = rng.choice((1, 1, 2, 5)), rng.choice((1, 1, 1, 1, 2, 4))
    into = groups * rng.choice((1, 3, 4, 8, 17))
    out = groups * rng.choice((1, 2, 5, 8, 16, 33))
    kernel = (rng.choice((1, 2, 3, 3, 5)), rng.choice((1, 3, 3, 4, 7)))
    stride, dilation, padding = (
        rng.choice((1, 1, 2, 3)),
        rng.choice((1, 1, 2)),
        rng.choice((0, 0, 1, 2)),
    )
    image = tuple((k - 1) * dilation + 1 + rng.choice((0, 1, 5, 13, 16, 30)) for k in kernel)
    x, w = whole(rng, batch, into, *image, high=3), whole(rng, out, into // groups, *kernel, high=3)
    got = Tensor(x).conv2d(
        Tensor(w), stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    reach = tuple((k - 1) * dilation + 1 for k in kernel)
    seen = np.lib.stride_tricks.sliding_window_view(wide, reach, axis=(2, 3))
    seen = seen[:, :, ::stride, ::stride, ::dilation, ::dilation]
    seen = seen.reshape(batch, groups, into // groups, *seen.shape[2:])
    weight = w.astype(np.float64).reshape(groups, out // groups, into // groups, *kernel)
    expected = np.einsum("bgchwij,gocij->bgohw", seen, weight, optimize=True)
    expected = expected.reshape(batch, out, *expected.shape[3:])
    text = f"{x.shape} * {w.shape} {stride=} {dilation=} {padding=} {groups=}"
    return got, expected, text


def fold(rng: random.Random) -> tuple[Tensor, Array, str]:
    """Sums and extremes over some axes of one to four, of contiguous and turned tensors."""
    shape = [size(rng, 257) for _ in range(rng.choice((1, 2, 2, 3, 4)))]
    while np.prod(shape) > 300_000:
        shape[rng.randrange(len(shape))] = rng.choice((1, 2, 3, 5))
    x = whole(rng, *shape)
    order = rng.sample(range(len(shape)), len(shape))
    axes = tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
    kind = rng.choice(("sum", "sum", "max", "min"))
    turned = Tensor(x).permute(*order)
    expected = getattr(np, kind)(x.astype(np.float64).transpose(order), axis=axes)
    return getattr(turned, kind)(axes), expected, f"{kind} of {shape} turned {order} over {axes}"


def extreme_place(rng: random.Random) -> tuple[Tensor, Array, str]:
    shape = (size(rng, 257), size(rng, 257))
    x, axis = whole(rng, *shape, high=50), rng.choice((0, 1))
    kind = rng.choice(("argmax", "argmin"))
    return getattr(Tensor(x), kind)(axis), getattr(np, kind)(x, axis), f"{kind} {shape} over {axis}"


def turn(rng: random.Random) -> tuple[Tensor, Array, str]:
    shape = [size(rng, 257) for _ in range(rng.choice((2, 2, 3, 4)))]
    while np.prod(shape) > 300_000:
        shape[rng.randrange(len(shape))] = rng.choice((1, 2, 3, 5))
    order = rng.sample(range(len(shape)), len(shape))
    dtype = rng.choice(("float32", "float64", "int8", "int16", "float16", "bool"))
    x = whole(rng, *shape).astype(dtype)
    return Tensor(x).permute(*order).contiguous(), x.transpose(order), f"{dtype} {shape} {order}"


def running(rng: random.Random) -> tuple[Tensor, Array, str]:
    shape = (size(rng, 257), size(rng, 257))
    x, axis = whole(rng, *shape), rng.choice((0, 1))
    return Tensor(x).cumsum(axis), np.cumsum(x, axis), f"cumsum {shape} over {axis}"


def joined(rng: random.Random) -> tuple[Tensor, Array, str]:
    axis, rows = rng.choice((0, 1)), size(rng, 129)
    dtype = rng.choice(("float32", "float32", "int8", "float16", "float64"))
    parts = []
    for _ in range(rng.randint(2, 4)):
        other = size(rng, 129)
        parts.append(whole(rng, *((other, rows) if axis == 0 else (rows, other))).astype(dtype))
    text = f"{dtype} {[p.shape for p in parts]} along {axis}"
    return concat([Tensor(p) for p in parts], axis), np.concatenate(parts, axis), text


KINDS: dict[str, Callable[[random.Random], tuple[Tensor, Array, str]]] = {
    "product": product,
    "vector product": vector_product,
    "convolution": convolution,
    "fold": fold,
    "extreme place": extreme_place,
    "turn": turn,
    "running": running,
    "joined": joined,
}


def check(kind: str, seed: int) -> None:
    got, expected, text = KINDS[kind](random.Random(f"{kind} {seed}"))
    result = got.numpy()
    assert result.shape == expected.shape, (kind, seed, text)
    wrong = result != expected
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{kind}, seed {seed}: {text}: {int(wrong.sum())} of {wrong.size} wrong; "
            f"at {at}: got {result[at]!r}, expected {expected[at]!r}"
        )


@pytest.mark.parametrize("kind", KINDS)
def test_awkward_sizes(kind: str) -> None:
    for seed in range(12):
        check(kind, seed)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(10))
def test_many_awkward_sizes(kind: str, block: int) -> None:
    for seed in range(100 + 40 * block, 140 + 40 * block):
        check(kind, seed)
