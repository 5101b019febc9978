"""Random numbers: the published vectors, the bits they are made of, their distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from frontend import Generator, Tensor, manual_seed, rand, randn
from frontend import dtype as dt
from frontend.graph import node as g
from frontend.ops import random
from rawgpu.errors import DTypeError, OperationError, ShapeError
from tests.frontend.cells import Array

# Source: Random123 1.14, tests/kat_vectors, "threefry2x32 20": counter, key, result
VECTORS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def words(count: int, seed: int, first: int) -> list[tuple[int, int]]:
    """Threefry-2x32-20 in Python's integers."""
    mask = 0xFFFFFFFF
    out = []
    for counter in range(first, first + count):
        keys = [seed & mask, seed >> 32]
        keys.append(0x1BD11BDA ^ keys[0] ^ keys[1])
        a, b = (counter & mask) + keys[0], (counter >> 32) + keys[1]
        for step in range(20):
            a = (a + b) & mask
            b &= mask
            by = ((13, 15, 26, 6), (17, 29, 16, 24))[step // 4 % 2][step % 4]
            b = ((b << by | b >> (32 - by)) & mask) ^ a
            if step % 4 == 3:
                block = step // 4 + 1
                a, b = a + keys[block % 3] & mask, b + keys[(block + 1) % 3] + block & mask
        out.append((a, b))
    return out


def generator(seed: int, drawn: int = 0) -> Generator:
    out = Generator(seed)
    out.advance(drawn)
    return out


@pytest.mark.parametrize(("counter", "key", "result"), VECTORS)
def test_threefry_gives_the_published_words(
    counter: tuple[int, int], key: tuple[int, int], result: tuple[int, int]
) -> None:
    numbers = Tensor(np.array([*key, *counter], np.uint32))
    parts = [numbers[i : i + 1].node for i in range(4)]
    out = random.threefry((parts[0], parts[1]), (parts[2], parts[3]))
    assert tuple(numbers._derive(node).tolist()[0] for node in out) == result


@pytest.mark.parametrize("drawn", [0, 5, (1 << 32) - 3])
def test_uniform_numbers_are_the_words_scaled(drawn: int) -> None:
    seed = 0x1234_5678_9ABC_DEF0
    bits = words(9, seed, drawn)
    for dtype, digits in [(dt.float32, 24), (dt.float16, 11), (dt.bfloat16, 8)]:
        ours = rand(9, dtype=dtype, generator=generator(seed, drawn)).astype("float64")
        assert ours.tolist() == [(a >> 32 - digits) / 2**digits for a, _ in bits]
    ours = rand(3, 3, dtype="float64", generator=generator(seed, drawn))
    assert ours.flatten().tolist() == [((b << 32 | a) >> 11) / 2**53 for a, b in bits]


def test_the_stream_goes_on_and_starts_over() -> None:
    manual_seed(7)
    first, second = rand(4), rand(4)
    manual_seed(7)
    assert rand(8).tolist() == first.tolist() + second.tolist()
    assert first.tolist() != second.tolist()
    assert rand(4).tolist() != manual_seed(8) and rand(4).tolist() != first.tolist()


def test_drawing_again_builds_the_same_kernel() -> None:
    """The counter is data: two draws differ in a leaf only."""

    def shape_of(node: g.Node) -> list[Any]:
        order = g.topological([node])
        place = {n: i for i, n in enumerate(order)}
        return [(n.op, n.shape, n.arg, [place[s] for s in n.src]) for n in order]

    manual_seed(1)
    assert shape_of(randn(5).node) == shape_of(randn(5).node)


def test_normal_numbers_are_within_few_ulp_of_their_formula() -> None:
    count, seed = 4000, 11
    ours = randn(count, generator=Generator(seed)).numpy()
    u = np.array([(b >> 8) / 2**24 for _, b in words(count, seed, 0)])
    v = np.array([(a >> 8) / 2**24 for a, _ in words(count, seed, 0)])
    exact = np.sqrt(-2 * np.log(1 - u)) * np.cos(2 * np.pi * v)
    ulp = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert (np.abs(ours - exact) / ulp).max() < 4
    wide = randn(count, dtype="float64", generator=Generator(seed)).numpy()
    assert abs(wide.mean()) < 4 / math.sqrt(count)


def moments(x: Array) -> tuple[float, float]:
    return float(x.mean()), float(x.var())


def test_distributions_have_their_moments() -> None:
    manual_seed(0)
    n = 20000
    mean, var = moments(rand(n).numpy())
    assert abs(mean - 0.5) < 0.01
    assert abs(var - 1 / 12) < 0.01
    mean, var = moments(randn(n).numpy())
    assert abs(mean) < 0.03
    assert abs(var - 1) < 0.04
    mean, var = moments(Tensor.normal((n,), 3.0, 0.5).numpy())
    assert abs(mean - 3) < 0.02
    assert abs(var - 0.25) < 0.02
    uniform = Tensor.uniform((n,), -2.0, 4.0).numpy()
    assert uniform.min() >= -2
    assert uniform.max() < 4
    assert abs(Tensor.full((n,), 0.3).bernoulli().numpy().mean() - 0.3) < 0.02
    dropped = Tensor.ones(n).dropout(0.25).numpy()
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    assert abs(dropped.mean() - 1) < 0.03


def test_whole_numbers_cover_their_range() -> None:
    manual_seed(0)
    drawn = Tensor.randint(-3, 4, (5000,)).numpy()
    assert drawn.dtype == np.int64
    assert sorted(set(drawn.tolist())) == list(range(-3, 4))
    small = Tensor.randint(0, 256, (5000,), dtype="uint8").numpy()
    assert (small.min(), small.max()) == (0, 255)
    lowest, above = -(2**63), 2**63
    assert Tensor.randint(lowest, above, (100,)).numpy().std() > 2**60


def test_permutations_and_shuffles_keep_all() -> None:
    manual_seed(0)
    order = Tensor.permutation(100).tolist()
    assert sorted(order) == list(range(100))
    assert order != list(range(100))
    shuffled = Tensor(np.arange(12).reshape(4, 3)).shuffle().numpy()
    assert sorted(map(tuple, shuffled)) == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]


def test_multinomial_draws_by_weight() -> None:
    manual_seed(0)
    drawn = Tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 0.0]]).multinomial(4000).numpy()
    assert drawn.shape == (2, 4000)
    shares = np.bincount(drawn[0], minlength=3) / 4000
    np.testing.assert_allclose(shares, [0, 0.25, 0.75], atol=0.03)
    assert set(drawn[1].tolist()) == {0}


def test_refusals_name_the_rule() -> None:
    with pytest.raises(DTypeError, match="storage"):
        rand(2, dtype="float8_e4m3")
    with pytest.raises(DTypeError, match="takes floats"):
        randn(2, dtype="int32")
    with pytest.raises(OperationError, match="no uint8 from -1"):
        Tensor.randint(-1, 5, (2,), dtype="uint8")
    with pytest.raises(ShapeError, match="negative"):
        rand(-1)
    assert rand(0).numpy().shape == (0,)
