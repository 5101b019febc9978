"""The speed table: its rows are there, right results count, wrong and failing ones are said."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from frontend.bench import speed
from frontend.bench.replay import prepare
from frontend.bench.rows import Input, Row, every_row
from rawgpu.errors import OperationError
from tests.frontend.evaluator import uses_reference

DEVICE = "cpu:0"
pytestmark = pytest.mark.skipif(uses_reference(), reason="measures the real engine")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is what is compared with")


def test_every_row_has_a_name_of_its_own() -> None:
    names = [row.name for row in every_row()]
    assert len(set(names)) == len(names) == 71
    for word in ("add_1x1", "gelu_tanh_4096", "layer_norm_2048x768", "conv_b1_depthwise_128_k3_56"):
        assert word in names


def test_rows_differ_only_in_what_their_inputs_hold() -> None:
    row = next(row for row in every_row() if row.name == "gather_rows")
    rng = np.random.default_rng(0)
    table, index = (part.draw(rng) for part in row.inputs)
    assert table.dtype == np.float32
    assert index.dtype == np.int64
    assert 0 <= index.min() <= index.max() < len(table)


def test_a_replay_reads_its_own_leaves_and_writes_shared_results() -> None:
    inputs = [Tensor([float(i), 2.0], device=DEVICE).realize() for i in range(3)]
    replays = prepare([[x + 1, x.sum()] for x in inputs])
    for number in (0, 2, 1, 0):
        replays[number]()
        assert replays[number].read(0).tolist() == [number + 1.0, 3.0]
        assert replays[0].read(1).tolist() == number + 2.0


def measured(row: Row, torch: Any) -> speed.Measured:
    return speed.measure(row, torch, DEVICE, speed.Timer(threads=1, rounds=1))


def test_a_right_row_has_times_and_ratios(torch: Any) -> None:
    row = Row(
        "add", (Input((8, 8)), Input((8, 8))),
        lambda a, b: a + b, lambda t, a, b: a + b, lambda t, o, a, b: t.add(a, b, out=o), 1e-6,
    )  # fmt: skip
    found = measured(row, torch)
    assert found.right
    assert found.failure is None
    assert found.ours_ms is not None
    assert found.torch_ms is not None
    assert found.ratio == pytest.approx(found.torch_ms / found.ours_ms)
    assert found.ratio_out is not None


def test_a_wrong_result_is_no_result(torch: Any) -> None:
    row = Row("wrong", (Input((8,)),), lambda a: a + 1, lambda t, a: a + 2, tolerance=1e-6)
    found = measured(row, torch)
    assert found.right is False
    assert found.error is not None
    assert found.error > 0.1


def test_a_row_that_fails_says_why_and_does_not_stop_the_others(torch: Any) -> None:
    def refuse(a: Tensor) -> Tensor:
        raise OperationError("refuse: it always does")

    found = measured(Row("failing", (Input((8,)),), refuse, lambda t, a: a), torch)
    assert found.failure == "OperationError: refuse: it always does"
    assert found.ours_ms is None
    assert found.torch_ms is not None


def test_the_command_prints_one_object(torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    parser = argparse.ArgumentParser()
    speed.add_arguments(parser)
    words = ["--against", "torch", "--rows", "^(add_1x1|sum_256)$", "--rounds", "1"]
    options = parser.parse_args(words)
    options.json = True
    try:
        assert speed.run(options) == 0
    finally:
        torch.set_num_threads(threads)
    result = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in result["rows"]] == ["add_1x1", "sum_256"]
    for key in ("ours_ms", "torch_ms", "torch_out_ms", "ratio", "ratio_out", "error"):
        assert all(key in row for row in result["rows"]), key
    assert result["wrong"] == []
    assert result["geomean"] > 0


def test_the_table_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(
        against=None, rows="^add_1x1$", rounds=1, device=DEVICE, json=False
    )
    assert speed.run(options) == 0
    assert re.search(r"^add_1x1 +[\d.e-]+ ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rows", "("], "is no regular expression"),
        (["--rows", "no_such_row"], "no row matches 'no_such_row'; there are: add_1x1"),
        (["--against", "torch"], "needs PyTorch (pip install torch)"),
    ],
)
def test_what_cannot_be_measured_is_told_in_a_line(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    speed.add_arguments(parser)
    assert speed.run(parser.parse_args(words)) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1
    assert captured.out == ""
