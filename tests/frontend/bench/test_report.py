"""What was found is put into words, and into its place in a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frontend.bench import report
from frontend.bench.check import Exactness
from frontend.bench.peaks import Peaks, Traffic
from frontend.bench.report import Measured
from frontend.bench.rivals import BadRequest


def found(name: str, ours: float, torch: float, error: float = 0.0) -> Measured:
    row = Measured(name, traffic=Traffic(400, 400, 1000))
    row.judge(Exactness(error, 1e-7), tolerance=1e-3)
    row.fill({"ours": ours, "torch": torch})
    row.hold_against(Peaks(1.0, copy={1000: 800 / (ours * 1e6 / 4)}, read={1000: 1.0}))
    return row


def result(**more: Any) -> dict[str, Any]:
    rows = [found("half", 2.0, 1.0), found("twice", 1.0, 2.0, 1e-6), found("bad", 1.0, 9.0, 1.0)]
    rows[0].refusals["tinygrad"] = "TimeoutError: not ready after 60 s"
    return {**report.summary(rows, "cpu:0", 2, None), **more}


def test_a_row_has_ratios_shares_and_a_judgement() -> None:
    row = found("half", 2.0, 1.0, 3e-7)
    assert (row.ratio, row.ratio_out, row.bound) == (0.5, None, "bytes")
    assert row.peak_share == pytest.approx(0.25)
    assert row.right and row.less_exact
    assert row.error_ratio == pytest.approx(3.0)


def test_wrong_rows_do_not_count_and_inexact_ones_are_named() -> None:
    sums = result()
    assert sums["wrong"] == ["bad"]
    assert sums["less_exact"] == ["twice", "bad"]
    assert sums["geomean"] == pytest.approx(1.0)
    assert (sums["median"], sums["least"]) == (1.25, 0.5)
    assert sums["geomean_tinygrad"] is None


def test_the_text_says_what_it_comes_to() -> None:
    text = report.text(result(nearby={"count": 3, "seed": 7}))
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert lines["half"] == ["half", "2", "1", "0.5", "25%", "B", "0", "0"]
    assert "TINYGRAD" not in text.splitlines()[0], "a column without figures"
    for part in (
        "threads: 2; 3 random nearby rows, seed 7",
        "torch / ours: geometric mean 1.000, median 1.250, least 0.500",
        "1 of 3 wrong: bad",
        "2 of 3 with more than twice PyTorch's error: twice, bad",
        "half: tinygrad: TimeoutError: not ready after 60 s",
    ):
        assert part in text, part


def test_a_document_has_its_block_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    name = report.block_name(result())
    marks = f"<!-- {name} -->\nold\n<!-- end of {name} -->"
    page.write_text(f"# Before\n{marks}\n\nafter <!-- another -->\n")
    for _ in range(2):  # the marks are still there for the next time
        report.write_markdown(page, result())
        text = page.read_text()
        assert text.startswith("# Before\n<!-- bench speed: rows, threads: 2 -->\n\n```\nNAME")
        assert text.endswith("\n\nafter <!-- another -->\n")
        assert text.count("geometric mean") == 1 and "old" not in text


def test_a_document_without_a_place_for_it_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(BadRequest, match="it has no lines <!-- bench speed: nearby, threads: 2"):
        report.write_markdown(page, result(nearby={"count": 3, "seed": 7}))
    assert page.read_text() == "nothing\n"
    with pytest.raises(BadRequest, match="No such file"):
        report.write_markdown(tmp_path / "none.md", result())
