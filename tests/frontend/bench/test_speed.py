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
from frontend.bench.report import Measured
from frontend.bench.rivals import Refusal, Torch
from frontend.bench.row import Input, Row
from frontend.bench.timer import Timer
from rawgpu.errors import OperationError
from tests.frontend.evaluator import uses_reference

DEVICE = "cpu:0"
pytestmark = pytest.mark.skipif(uses_reference(), reason="measures the real engine")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is what is compared with")


def test_a_replay_reads_its_own_leaves_and_writes_shared_results() -> None:
    inputs = [Tensor([float(i), 2.0], device=DEVICE).realize() for i in range(3)]
    replays = prepare([[x + 1, x.sum()] for x in inputs])
    for number in (0, 2, 1, 0):
        replays[number]()
        assert replays[number].read(0).tolist() == [number + 1.0, 3.0]
        assert replays[0].read(1).tolist() == number + 2.0


def measured(row: Row, torch: Any, threads: int = 1, **rivals: Any) -> Measured:
    timer = Timer(threads, rounds=1)
    rivals = rivals or {"torch": Torch(torch.get_num_threads())}
    return speed.measure(row, speed.Session(DEVICE, timer, rivals, torch))


ADD_ONE = Row("add_one", (Input((8, 8)),), lambda a: a + 1, lambda t, a: a + 1, tolerance=1e-6)


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
    assert found.error is not None and found.torch_error is not None
    assert found.error <= found.torch_error * 2
    assert not found.less_exact
    assert found.same_bits


def test_other_bits_on_several_cores_are_wrong(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed.check, "same_bits", lambda *_: False)
    found = measured(ADD_ONE, torch, threads=2)
    assert found.same_bits is False
    assert found.right is False


class Other:
    """A rival that does what it is told to."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def calls(self, row: Row, sets: Any) -> dict[str, Any]:
        if self.result is None:
            raise Refusal("it cannot")
        return {"tinygrad": [lambda: self.result] * len(sets)}

    def value(self, result: Any) -> Any:
        return result


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "it cannot"),
        (np.zeros((8, 8), np.float32), "its result is another"),
        (np.zeros(8, np.float32), "its result is another"),
    ],
)
def test_a_rival_that_cannot_do_a_row_or_does_another_has_no_figure(
    torch: Any, result: Any, said: str
) -> None:
    found = measured(ADD_ONE, torch, tinygrad=Other(result))
    assert found.refusals == {"tinygrad": said}
    assert found.tinygrad_ms is None
    assert found.ours_ms is not None
    assert found.right


def test_a_rival_that_does_a_row_has_a_ratio(torch: Any) -> None:
    row = Row("ones", (Input((8, 8), 1, 1),), lambda a: a + 1, lambda t, a: a + 1, tolerance=1e-6)
    found = measured(row, torch, tinygrad=Other(np.full((8, 8), 2, np.float32)))
    assert found.refusals == {}
    assert found.tinygrad_ms is not None and found.ours_ms is not None
    assert found.ratio_tinygrad == pytest.approx(found.tinygrad_ms / found.ours_ms)


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
    options = parser.parse_args([*words, "--device", DEVICE])
    options.json = True
    try:
        assert speed.run(options) == 0
    finally:
        torch.set_num_threads(threads)
    result = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in result["rows"]] == ["add_1x1", "sum_256"]
    for key in ("ours_ms", "torch_ms", "ratio", "error", "least_ms", "peak_share"):
        assert all(row[key] is not None for row in result["rows"]), key
    assert result["rows"][0]["ratio_out"] > 0 and result["rows"][1]["ratio_out"] is None
    assert result["peaks"]["fma"] > 0
    assert result["wrong"] == []
    assert result["geomean"] > 0


def test_nearby_rows_are_measured_in_the_rows_place(
    torch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    speed.add_arguments(parser)
    words = ["--nearby", "2", "--seed", "4", "--rows", "^sum_256$", "--rounds", "1"]
    options = parser.parse_args([*words, "--device", DEVICE])
    options.json = True
    assert speed.run(options) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["nearby"] == {"count": 2, "seed": 4}
    assert all(re.fullmatch(r"sum_\d+x\d+", row["name"]) for row in result["rows"])


def test_the_table_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    speed.add_arguments(parser)
    words = ["--rows", "^add_1x1$", "--rounds", "1", "--device", DEVICE, "--threads", "1"]
    options = parser.parse_args(words)
    options.json = False
    assert speed.run(options) == 0
    assert re.search(r"^add_1x1 +[\d.e-]+ ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rows", "("], "is no regular expression"),
        (["--rows", "no_such_row"], "no row matches 'no_such_row'; there are: add_1x1"),
        (["--against", "torch"], "needs PyTorch (pip install torch)"),
        (["--threads", "0"], "--threads 0: at least one"),
        (["--training", "--rows", "no_such"], "no training step matches 'no_such'"),
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
