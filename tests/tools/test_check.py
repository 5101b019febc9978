"""The gate fails when one of its steps fails, and says what it skipped."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tools import check


def outcomes(monkeypatch: pytest.MonkeyPatch, *statuses: str) -> int:
    """What `main` returns where its steps come out like this."""

    def steps(*, full: bool, skip_tests: bool) -> list[check.Step]:
        return [check.Step(s, lambda s=s: check.Outcome(s, "why")) for s in statuses]  # type: ignore[misc]

    monkeypatch.setattr(check, "steps", steps)
    monkeypatch.setattr(sys, "argv", ["check.py"])
    return check.main()


def test_all_steps_run_and_one_failure_is_the_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcomes(monkeypatch, "FAILED", "ok") == 1
    assert "== ok" in capsys.readouterr().out


def test_a_skipped_step_is_no_failure_and_shows_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcomes(monkeypatch, "ok", "skipped") == 0
    assert "why" in capsys.readouterr().out


def test_a_tool_that_is_not_installed_is_skipped() -> None:
    assert check.tool("no_such_tool_of_ours").status == "skipped"


def test_types_are_not_asked_for_without_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: name == "pyright" or None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "no node" in check.node_reason()


def test_declarations_without_evidence_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rawgpu").mkdir()
    (tmp_path / "rawgpu" / "packets.py").write_text(
        'A = row(evidence="none yet")\nB = row(evidence="trace 3")\n'
    )
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert list(check.unproven()) == ["rawgpu/packets.py:1"]


@pytest.mark.parametrize(
    ("full", "skip_tests", "tests"),
    [(False, False, "tests"), (True, False, "tests, all"), (False, True, "house rules")],
)
def test_the_last_steps_are_the_ones_asked_for(full: bool, skip_tests: bool, tests: str) -> None:
    names = [step.name for step in check.steps(full=full, skip_tests=skip_tests)]
    assert names[-2:] == [tests, "virtual GPUs"]


@pytest.mark.parametrize("full", [False, True])
def test_virtual_gpus_have_fixed_parts_of_the_front_ends_tests_or_all(
    monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    asked = []

    def suite(*arguments: str) -> check.Outcome:
        asked.append(arguments)
        return check.Outcome("FAILED" if "gfx942" in arguments else "ok", "1 passed")

    monkeypatch.setattr(check, "suite", suite)
    outcome = check.on_virtual_gpus(full=full)
    assert outcome == check.Outcome("FAILED", "gfx1100: 1 passed; gfx942: 1 passed")
    parts = [() if full else ("--part", f"{number}/3") for number in (1, 2)]
    assert asked == [
        ("tests/frontend", "--on", gpu, *part)
        for gpu, part in zip(("gfx1100", "gfx942"), parts, strict=True)
    ]
