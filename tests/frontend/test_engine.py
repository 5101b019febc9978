"""What the engine keeps between calls stays bounded."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import rawgpu
from frontend import Tensor, engine
from rawgpu.errors import DeviceNotFound
from tests.frontend.evaluator import uses_reference

DEVICE = "cpu:0"
pytestmark = pytest.mark.skipif(uses_reference(), reason="there is no engine")


@pytest.fixture(autouse=True)
def few_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "KEPT_FORMS", 8)
    monkeypatch.setattr(engine, "_runs", {})


def result(n: int) -> list[float]:
    values: list[float] = (Tensor(np.ones(n, np.float32)) * 3 + n).tolist()
    return values


def test_forms_and_their_kernels_do_not_pile_up() -> None:
    gc.collect()
    before = len(engine.opened(DEVICE).kernels)
    for n in range(1, 40):
        assert result(n) == [3.0 + n] * n
        assert len(engine._runs) <= 8
    gc.collect()
    assert len(engine.opened(DEVICE).kernels) <= before + 8


def test_what_is_used_stays() -> None:
    result(100)
    (kept,) = engine._runs.values()
    for n in range(1, 30):
        result(n)
        result(100)
        assert kept in engine._runs.values()


def test_a_form_that_went_is_made_again() -> None:
    for _ in range(2):
        for n in range(1, 20):
            assert result(n) == [3.0 + n] * n


def test_a_device_that_works_on_keeps_what_its_replays_use(monkeypatch: pytest.MonkeyPatch) -> None:
    device = engine.opened("cpu:0")
    monkeypatch.setattr(device, "deferred", True)
    monkeypatch.setattr(engine, "IN_FLIGHT", 3)
    x = Tensor(np.arange(7, dtype=np.float32))
    for i in range(9):  # another constant, another plan, made while the device counts as deferred
        y = (x * (i + 1.5)).realize()
        assert len(device._in_use) <= 3
        np.testing.assert_array_equal(y.numpy(), np.arange(7, dtype=np.float32) * (i + 1.5))
    device._in_use.clear()


def test_a_room_that_is_left_takes_its_devices_along() -> None:
    kept = []
    for name in ("gfx1100", "gfx942"):
        with rawgpu.room(name):
            x = Tensor([1.0, 2.0], device="amd:0")
            kept.append(x)  # outlives its GPU
            assert (x + 1).tolist() == [2.0, 3.0]
            with rawgpu.room("gfx1201"):
                assert engine.opened("amd:0").target.key.count("gfx1201")
                assert (Tensor([4.0], device="amd:0") * 2).tolist() == [8.0]
            assert (x * 2).tolist() == [2.0, 4.0]
            device = engine.opened("amd:0").device
        assert device.closed
        with pytest.raises(DeviceNotFound):
            (x + 1).tolist()
