"""The command line understands its words, and says what went wrong."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rawgpu.cli import main as cli
from rawgpu.errors import DeviceNotFound


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that raises one of our errors."""

    def run(options: argparse.Namespace) -> int:
        raise DeviceNotFound("no device xg:7", hint="rawgpu devices lists them")

    module = SimpleNamespace(add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(cli, "load", lambda name: module)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in cli.COMMANDS)


def test_no_words_at_all_is_a_mistake_that_shows_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([]) == 2
    assert "devices" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["dance"], ["bench", "dance"], ["--json"]])
def test_an_unknown_command_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert "no command" in capsys.readouterr().err


def test_two_words_are_found_before_one() -> None:
    assert cli.find(["bench", "launch", "--json"]) == ("bench launch", ["--json"])
    assert cli.find(["devices", "--json"]) == ("devices", ["--json"])


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_there_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*name.split(), "--help"])
    assert stop.value.code == 0
    assert f"rawgpu {name}" in capsys.readouterr().out


@pytest.mark.usefixtures("failing")
def test_an_error_of_ours_is_told_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices"]) == 1
    assert capsys.readouterr().err == ("rawgpu: no device xg:7\n  try: rawgpu devices lists them\n")


@pytest.mark.usefixtures("failing")
def test_an_error_of_ours_is_told_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "error": {
            "kind": "DeviceNotFound",
            "message": "no device xg:7",
            "hint": "rawgpu devices lists them",
        }
    }


def test_python_m_rawgpu_is_the_command() -> None:
    words = [sys.executable, "-m", "rawgpu", "--version"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == cli.version() + "\n"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rawgpu")


@pytest.mark.parametrize("words", [["--help"], ["bench", "--help"]])
def test_descriptions_stand_below_one_another(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(words)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    names = sorted(cli.COMMANDS, key=len, reverse=True)
    starts = {line.index(cli.COMMANDS[name].help)
              for line in lines for name in names if line.startswith(f"  {name}  ")}  # fmt: skip
    assert len(lines) > 3 and len(starts) == 1


@pytest.mark.parametrize(("words", "code"), [(["bench", "--help"], 0), (["bench"], 2)])
def test_a_groups_help_names_its_commands_and_no_others(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == code
    text = capsys.readouterr().out
    assert "bench speed" in text
    assert "doctor" not in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", [["devices", "--json"], ["doctor"], ["--help"]])
def test_an_output_that_is_full_is_told_in_a_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rawgpu.cli.main", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("rawgpu: ")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_reader_that_goes_is_no_error() -> None:
    words = [sys.executable, "-m", "rawgpu.cli.main", "doctor"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0
