"""The command as a person runs it, on every virtual GPU that has machine code in full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rawgpu
from rawgpu.cli import main as cli
from rawgpu.hwcheck import bundle
from rawgpu.hwcheck.plan import STAGES

pytestmark = pytest.mark.virtual


def command(*words: str, virtual: str) -> tuple[int, Any]:
    environment = {**os.environ, "RAWGPU_VIRTUAL": virtual}
    done = subprocess.run(
        [sys.executable, "-m", "rawgpu.cli.main", "hwcheck", "--json", *words],
        env=environment, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


@pytest.mark.full
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201", "gfx942", "gfx90a"])
def test_every_stage_passes_and_its_recording_replays(arch: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code, told = command(
        "--device", "amd:0", "--faults", "--out", str(out), "--limit", "600", virtual=arch
    )
    wrong = [row for row in told["results"] if row["status"] != "passed"]
    assert (code, wrong) == (0, [])
    assert told["counts"] == {"passed": len(STAGES), "failed": 0, "skipped": 0}
    code, told = command("--replay", str(out.with_suffix(".zip")), virtual="")
    assert [row["stage"] for row in told["replayed"]] == [stage.name for stage in STAGES]
    assert [row for row in told["replayed"] if not row["same"]] == []
    assert code == 0


def test_from_the_command_line_to_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAWGPU_VIRTUAL", "gfx1100")  # for the children
    out = tmp_path / "out.json"
    words = ["hwcheck", "--json", "--device", "amd", "--only", "doorbell", "--out", str(out)]
    with rawgpu.room("gfx1100"):  # else the variable's would last as long as this process
        assert cli.main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"passed": 1, "failed": 0, "skipped": 0}
    assert told["facts"]["virtual"] is True
    assert told["facts"]["properties"]["gfx_target_version"] == 110000
    assert "unique_id" not in told["facts"]["properties"]
    with zipfile.ZipFile(told["bundle"]) as packed:
        text = b"".join(packed.read(name) for name in packed.namelist()).decode()
    cleaner = bundle.Cleaner(bundle.own_names(), ())
    assert cleaner.text(text) == text, "what names this machine or its user is gone already"
    monkeypatch.delenv("RAWGPU_VIRTUAL")
    assert cli.main(["hwcheck", "--json", "--replay", told["bundle"]]) == 0
    rows = json.loads(capsys.readouterr().out)["replayed"]
    assert [(row["stage"], row["same"], row["differences"]) for row in rows] == [
        ("doorbell", True, [])
    ]  # fmt: skip


def test_the_stages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["hwcheck", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["stages"]
    assert [row["name"] for row in rows] == [stage.name for stage in STAGES]


@pytest.mark.parametrize("words", [["--out", "x.zip"], ["--limit", "0"], ["--from", "dance"]])
def test_words_that_make_no_sense_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["hwcheck", *words])
    assert stop.value.code == 2


@pytest.mark.parametrize("words", [
    ["--from", "fault-loop"], ["--only", "fault-read"],
    ["--only", "nodes", "--only", "recovery"], ["--from", "memory", "--only", "nodes"],
])  # fmt: skip
def test_stages_that_break_things_need_their_option_and_no_stage_is_no_success(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("rawgpu.hwcheck.runner.child", lambda *_: pytest.fail("a stage ran"))
    with pytest.raises(SystemExit) as stop:
        cli.main(["hwcheck", "--device", "cpu", "--out", str(tmp_path / "o.json"), *words])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert ("needs --faults" in said) == ("memory" not in words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["amd:5", "amd:x"])
def test_a_number_that_no_gpu_has_is_refused_at_once(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o.json"
    with rawgpu.room("gfx1100*2"):
        assert cli.main(["hwcheck", "--device", name, "--out", str(out)]) == 1
    assert f"no device {name!r}; there are: amd:0, amd:1" in capsys.readouterr().err
    assert not out.exists()


def test_where_no_gpu_is_seen_the_first_stage_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if any(info.name.startswith("amd:") for info in rawgpu.devices()):
        pytest.skip("this machine has an AMD GPU")
    words = ["--device", "amd:0", "--only", "nodes", "--out", str(tmp_path / "o.json")]
    assert cli.main(["hwcheck", *words]) == 1
    said = capsys.readouterr().out
    assert said.startswith("testing amd:0: the first stage says why")
    assert "nodes         device nodes and topology" in said and "cause: " in said


def test_it_says_first_which_device_it_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rawgpu.hwcheck.runner.child", _passed)
    words = ["--only", "nodes", "--out", str(tmp_path / "o.json")]
    with rawgpu.room("gfx1100"):
        assert cli.main(["hwcheck", "--device", "amd", *words]) == 0
    first, _, stage = capsys.readouterr().out.splitlines()[:3]
    assert first.startswith("testing amd:0: gfx1100, ") and "virtual" in first
    assert stage.endswith("passed     0.012 s  ratio=0.123 large=12300 n=7")


def _passed(command: list[str], limit_s: float) -> dict[str, Any]:
    if "facts" in command:
        return {"facts": {}, "index": 0}
    figures = {"ratio": 0.12345, "large": 12345.6, "n": 7}
    return {"status": "passed", "figures": figures, "seconds": 0.0123}


def test_a_device_without_driver_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["hwcheck", "--device", "xg:0"]) == 1
    assert "no driver for 'xg:0'" in capsys.readouterr().err
