"""Steps of whole networks: ours and PyTorch's are compared before they are timed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from frontend.bench import training
from frontend.bench.timer import Timer
from frontend.bench.training import WORKLOADS, Step, Workload, measure_step
from frontend.bench.training_memory import peak_rss, reset_peak_rss
from tests.frontend.evaluator import uses_reference

pytestmark = pytest.mark.skipif(uses_reference(), reason="measures the real engine")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is what is compared with")


def perceptron(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def points(rng: np.random.Generator) -> Any:
    return rng.random((4, 6), dtype=np.float32), rng.integers(0, 3, 4)


SMALL = Workload("small", perceptron, points, training.cross_entropy, updates=True)


def step(work: Workload, torch: Any) -> Step:
    return measure_step(work, "cpu:0", Timer(1, 1), torch)


def test_a_step_that_agrees_has_a_ratio(torch: Any) -> None:
    found = step(SMALL, torch)
    assert found.failure is None and found.right
    assert found.loss_apart is not None and found.loss_apart < 1e-6
    assert found.gradients_apart is not None and found.gradients_apart < 1e-5
    assert found.ratio is not None and found.ratio > 0
    assert found.kernels


def test_a_forward_pass_is_compared_by_its_result(torch: Any) -> None:
    found = step(dataclasses.replace(SMALL, is_forward_only=True, updates=False), torch)
    assert found.right and found.gradients_apart is None
    assert found.loss_apart is not None and found.loss_apart < 1e-6


def test_another_loss_or_gradient_is_wrong(torch: Any) -> None:
    def loss(scores: Any, labels: Any, functional: Any) -> Any:
        value = functional.cross_entropy(scores, labels)
        ours = functional is training.nn.functional
        return value * 1.001 if ours else value

    found = step(dataclasses.replace(SMALL, loss=loss), torch)
    assert found.right is False
    assert found.loss_apart == pytest.approx(0.001, rel=0.01)

    def steeper(scores: Any, labels: Any, functional: Any) -> Any:
        value = functional.cross_entropy(scores, labels)
        if functional is training.nn.functional:  # the same loss, another gradient
            value = value + (scores - scores.detach()).sum()
        return value

    found = step(dataclasses.replace(SMALL, loss=steeper), torch)
    assert found.loss_apart is not None and found.loss_apart < 1e-6
    assert found.right is False


def test_without_a_rival_there_are_times_of_ours() -> None:
    found = step(SMALL, None)
    assert found.ours_ms is not None and found.torch_ms is None and found.right is None


@pytest.mark.skipif(reset_peak_rss() is None, reason="the system does not say")
def test_the_peak_of_a_process_is_found_after_the_memory_is_gone() -> None:
    before = reset_peak_rss()
    block = np.ones(8 << 20, np.float32)
    del block
    peak = peak_rss()
    assert before is not None and peak is not None
    assert 28 << 20 < peak - before < 64 << 20
    reset_peak_rss()
    again = peak_rss()
    assert again is not None and again < peak


@pytest.mark.full
def test_the_small_workload_matches_pytorch_and_its_memory_is_measured(torch: Any) -> None:
    (work,) = (w for w in WORKLOADS if w.measures_memory)
    found = step(work, torch)
    assert found.right
    weights = 4 * (32 * 9 + 32 + 64 * 288 + 64 + 128 * 1600 + 128 + 1280 + 10)
    for figure in (found.ours_peak_bytes, found.ours_rss_bytes, found.torch_rss_bytes):
        assert figure is not None and figure > 4 * weights, "weights, gradients and two moments"
