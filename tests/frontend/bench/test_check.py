"""Errors are measured against float64, ours beside PyTorch's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, engine
from frontend.bench import check
from frontend.bench.check import Exactness
from frontend.bench.replay import prepare
from frontend.bench.row import Input, Row
from tests.frontend.evaluator import uses_reference


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is the judge")


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio", "is_worse"),
    [
        (0.0, 0.0, None, False),
        (2e-7, 1e-7, 2.0, False),
        (3e-7, 1e-7, 3.0, True),
        (5e-8, 1e-9, 50.0, False),  # half a unit in the last place is as exact as can be
        (1e-3, 0.0, math.inf, True),
        (math.inf, 1e-7, math.inf, True),
    ],
)
def test_more_than_twice_their_error_is_worse(
    ours: float, theirs: float, ratio: float | None, is_worse: bool
) -> None:
    exact = Exactness(ours, theirs)
    assert exact.ratio == (ratio if ratio is None else pytest.approx(ratio))
    assert exact.is_worse is is_worse


def test_nan_is_worse_than_anything() -> None:
    assert Exactness(math.nan, 1.0).is_worse


def test_a_difference_is_relative_to_the_largest_value(torch: Any) -> None:
    expected = torch.tensor([8.0, -2.0], dtype=torch.float64)
    assert check.apart(torch, torch.tensor([8.0, -1.0]), expected) == 1 / 8
    assert check.apart(torch, torch.tensor([math.nan, -2.0]), expected) == math.inf
    whole = torch.tensor([1, 2, 3])
    assert check.apart(torch, torch.tensor([1, 5, 6]), whole) == 2
    with pytest.raises(AssertionError, match=r"shape \(1,\), not \(2,\)"):
        check.apart(torch, torch.tensor([1.0]), expected)


@pytest.mark.skipif(uses_reference(), reason="measures the real engine")
def test_the_errors_of_both_sides_are_found(torch: Any) -> None:
    arrays = [[np.array([1.0, 3.0], np.float32)]]
    replays = prepare([[Tensor(a) * 2 for a in inputs] for inputs in arrays])

    def rough(t: Any, a: Any) -> Any:
        return a * (2 if a.dtype == t.float64 else 2.5)

    row = Row("double", (Input((2,)),), lambda a: a * 2, rough)
    assert check.exactness(row, torch, arrays, replays) == Exactness(0.0, 0.25)


@pytest.mark.host
@pytest.mark.skipif(uses_reference(), reason="measures the real engine")
def test_bits_of_one_core_and_of_several_are_compared() -> None:
    device = "cpu:0"
    arrays = [np.arange(1 << 16, dtype=np.float32) * i for i in (1, 2)]
    inputs = [[Tensor(a, device=device).realize()] for a in arrays]
    target = engine.opened(device).target

    def by_cores(a: Tensor) -> Tensor:
        return a * engine.opened(device).target.machine.cores

    same = Row("sum", (), lambda a: (a * 0.1).sum(), lambda t, a: a)
    other = Row("other", (), by_cores, lambda t, a: a)
    assert check.same_bits(same, inputs, device, 3)
    assert not check.same_bits(other, inputs, device, 3)
    assert engine.opened(device).target is target
