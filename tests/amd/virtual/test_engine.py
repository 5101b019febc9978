"""The tensor library's engine on virtual GPUs: what it must not do, and two GPUs at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rawgpu
from frontend import Tensor, engine, jit, optim
from frontend.engine import Storage

pytestmark = pytest.mark.virtual


@contextlib.contextmanager
def gpus(spec: str, **options: Any) -> Iterator[None]:
    """A room, with the engine's devices closed at its end."""
    with rawgpu.room(spec, **options):
        engine._names.clear()
        try:
            yield
        finally:
            engine._runs.clear()
            engine._names.clear()
            for name in [name for name in engine._opened if name.startswith("amd:")]:
                engine._opened.pop(name).close()


def test_a_recorded_step_overwrites_what_nobody_else_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is held until the GPU is done is memory, else each step would copy its state."""
    copies: list[int] = []
    real = Storage.copy
    monkeypatch.setattr(
        Storage, "copy", lambda self, device: copies.append(self.size_bytes) or real(self, device)
    )
    with gpus("gfx1100"):
        weight = Tensor(np.ones(64, np.float32), device="amd:0", requires_grad=True)
        rule = optim.SGD([weight], lr=0.5, momentum=0.5)

        @jit
        def step(x: Tensor) -> Tensor:
            rule.zero_grad()
            loss = (weight * x).sum()
            loss.backward()
            rule.step()
            return loss

        x = Tensor(np.ones(64, np.float32), device="amd:0")
        losses = [step(x) for _ in range(4)]
        assert [loss.item() for loss in losses] == [64.0, 32.0, -16.0, -72.0]
        assert not copies


@pytest.mark.parametrize("options", [{}, {"links": False}], ids=["linked", "through the host"])
def test_two_gpus_train_together(options: dict[str, Any]) -> None:
    """Gradients are added on the first, and both take the same steps, as NumPy does."""
    random = np.random.default_rng(5)
    data = random.standard_normal((2, 16, 8)).astype(np.float32)
    wanted = np.ones(8, np.float32)
    with gpus("gfx1100*2", seed=7, **options):
        devices = ["amd:0", "amd:1"]
        weights = [Tensor(wanted, device=d, requires_grad=True) for d in devices]
        rules = [optim.Adam([weight], lr=0.1) for weight in weights]

        @jit
        def step(parts: list[Tensor]) -> Tensor:
            losses = []
            for weight, rule, part in zip(weights, rules, parts, strict=True):
                rule.zero_grad()
                losses.append((part * weight).square().sum())
                losses[-1].backward()
            total = weights[0].grad + weights[1].grad.to(devices[0])
            for weight, rule, device in zip(weights, rules, devices, strict=True):
                weight.grad = total.to(device)
                rule.step()
            return losses[1]

        first = second = np.zeros(8)
        for turn in range(1, 4):
            parts = [Tensor(x, device=d) for x, d in zip(data, devices, strict=True)]
            loss = step(parts)
            expected = float(np.square(data[1] * wanted).sum())
            gradient = 2 * (np.square(data) * wanted).sum((0, 1))
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            rate = 0.1 * np.sqrt(1 - 0.999**turn) / (1 - 0.9**turn)
            wanted = (wanted - rate * first / np.sqrt(second)).astype(np.float32)
            assert loss.item() == pytest.approx(expected, rel=1e-4)
        one, other = (weight.numpy() for weight in weights)
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, wanted, rtol=1e-4)
