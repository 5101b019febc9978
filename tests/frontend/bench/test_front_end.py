"""The cost of compiling is measured part by part, and of a replay without its kernels."""

from __future__ import annotations

import argparse
import json
import time
from types import SimpleNamespace

import pytest

from frontend.bench import front_end
from tests.frontend.evaluator import uses_reference

pytestmark = pytest.mark.skipif(uses_reference(), reason="measures the real engine")


def test_what_a_function_takes_is_added_up_and_it_is_put_back() -> None:
    owner = SimpleNamespace(wait=lambda seconds: time.sleep(seconds) or seconds)
    original = owner.wait
    seconds: dict[str, float] = {}
    with front_end.timed(seconds, "waiting", owner, "wait"):
        assert owner.wait(0.01) == 0.01
        assert owner.wait(0.02) == 0.02
    assert owner.wait is original
    assert seconds["waiting"] >= 0.03


@pytest.mark.full
def test_a_small_network_is_compiled_once_and_then_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert front_end.run(argparse.Namespace(device="cpu:0", layers=1, json=True)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cold"]["kernels"] == found["warm"]["kernels"] == found["replay"]["jit_kernels"]
    assert 0 < found["cold"]["different_kernels"] <= found["cold"]["kernels"]
    for when in ("cold", "warm"):
        assert min(found[when].values()) > 0, when
    assert found["cold_s"] == found["cold"]["plan_s"] + found["cold"]["machine_code_s"]
    text = front_end.text(found)
    assert "cold_s" in text and "WANTED AT MOST" in text
