"""Attention against float64, in shapes that one kernel over blocks of rows must get right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, engine
from frontend.loops import nest as ln
from frontend.nn import functional as F
from frontend.schedule.chains import block_of
from frontend.schedule.plan import Planned, plan_graph
from frontend.target import Target
from tests.frontend.evaluator import uses_reference

pytestmark = pytest.mark.skipif(uses_reference(), reason="plans real kernels")
Array = np.ndarray[Any, Any]


def draw(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[Array]:
    rng = np.random.default_rng(len(shapes) + sum(map(sum, shapes)))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def exact(q: Array, k: Array, v: Array, hidden: Array | None = None) -> Array:
    """In float64; `hidden` is added to the scores."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores if hidden is None else scores + hidden
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def after(rows: int, columns: int) -> Array:
    """-inf at the columns that come after a row."""
    return np.where(np.arange(columns) > np.arange(rows)[:, None], -np.inf, 0.0)


def planned(*tensors: Tensor) -> tuple[Planned, Target]:
    device = tensors[0].device
    assert device is not None
    target = engine.opened(device).target
    return plan_graph([engine.base(t.node) for t in tensors], {device: target}), target


def chain(plan: Planned) -> ln.Kernel | None:
    return next((k for k in plan.kernels.values() if k.name.startswith("blocks_")), None)


SHAPES = [  # batch dimensions, queries, keys, width, width of values
    ((2,), 64, 64, 16, 16),
    ((1, 3), 100, 100, 24, 24),
    ((2,), 65, 131, 8, 20),
    ((), 130, 77, 64, 64),
    ((2, 2), 17, 33, 5, 7),
    ((3,), 16, 300, 33, 1),
]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("batch", "rows", "columns", "width", "values"), SHAPES)
def test_attention_is_exact_in_every_shape(
    batch: tuple[int, ...], rows: int, columns: int, width: int, values: int, is_causal: bool
) -> None:
    q, k, v = draw((*batch, rows, width), (*batch, columns, width), (*batch, columns, values))
    out = F.scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), is_causal=is_causal)
    plan, target = planned(out)
    fits = block_of(target.machine, columns * 4, rows) is not None
    assert (chain(plan) is not None) == (fits and values > 1)  # one column is no product
    expected = exact(q, k, v, after(rows, columns) if is_causal else None)
    np.testing.assert_allclose(out.numpy(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_hide_keys(kind: str) -> None:
    q, k, v, extra = draw((2, 40, 16), (2, 70, 16), (2, 70, 16), (40, 70))
    seen = extra > -0.5
    seen[:, 0] = True
    mask = Tensor(seen) if kind == "bool" else Tensor(extra)
    hidden = np.where(seen, 0.0, -np.inf) if kind == "bool" else extra.astype(np.float64)
    out = F.scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask)
    np.testing.assert_allclose(out.numpy(), exact(q, k, v, hidden), rtol=2e-5, atol=2e-5)


def test_half_precision_is_folded_in_float32() -> None:
    q, k, v = draw((2, 50, 16), (2, 90, 16), (2, 90, 16), dtype=np.float16)
    out = F.scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), is_causal=True)
    assert out.numpy().dtype == np.float16
    np.testing.assert_allclose(out.numpy(), exact(q, k, v, after(50, 90)), rtol=2e-2, atol=2e-3)


def test_what_a_user_writes_is_the_same_chain() -> None:
    q, k, v = draw((2, 96, 16), (2, 96, 16), (2, 96, 16))
    out = (Tensor(q) @ Tensor(k).matrix_transpose() / 4.0).softmax(-1) @ Tensor(v)
    plan, target = planned(out)
    assert len(plan.plan.steps) == 1 or block_of(target.machine, 96 * 4, 96) is None
    np.testing.assert_allclose(out.numpy(), exact(q, k, v), rtol=2e-5, atol=2e-5)


def test_weights_that_are_asked_for_too_are_right() -> None:
    q, k, v = draw((2, 70, 16), (2, 45, 16), (2, 45, 8))
    weights = (Tensor(q) @ Tensor(k).matrix_transpose() / 4.0).softmax(-1)
    out = weights @ Tensor(v)
    out.realize(weights)
    np.testing.assert_allclose(weights.numpy(), exact(q, k, np.eye(45)), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(out.numpy(), exact(q, k, v), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_are_those_of_float64(is_causal: bool) -> None:
    arrays = draw((2, 40, 16), (2, 52, 16), (2, 52, 16))
    (weights,) = draw((2, 40, 16))

    def gradients(dtype: Any) -> list[Array]:
        leaves = [Tensor(x.astype(dtype), requires_grad=True) for x in arrays]
        out = F.scaled_dot_product_attention(*leaves, is_causal=is_causal)
        (out * Tensor(weights.astype(dtype))).sum().backward()
        made = [leaf.grad for leaf in leaves if leaf.grad is not None]
        assert len(made) == 3
        out.realize(*made)
        return [g.numpy() for g in made]

    def loss(q: Array, k: Array, v: Array) -> float:
        out = exact(q, k, v, after(40, 52) if is_causal else None)
        return float((out * weights).sum())

    found = gradients(np.float32)
    at = [(1, 3, 5), (0, 39, 15), (1, 20, 0)]
    for number, gradient in enumerate(found):
        for place in at:
            moved = [[x.astype(np.float64) for x in arrays] for _ in range(2)]
            moved[0][number][place] += 1e-5
            moved[1][number][place] -= 1e-5
            slope = (loss(*moved[0]) - loss(*moved[1])) / 2e-5
            assert abs(gradient[place] - slope) < 1e-4, (number, place)
