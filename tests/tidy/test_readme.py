"""What the README tells a newcomer to paste does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import rawgpu
from tests.tidy.source import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(sys.platform != "linux", reason="the CPU device runs on Linux")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[-1][:30])
def test_an_example_runs_and_prints_what_it_says(block: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,  # one writes files
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    said = block.rstrip().rpartition("  # ")[2]
    if said.startswith("below "):
        assert float(result.stdout) < float(said.split()[-1])
    else:
        assert result.stdout.strip() == said


def test_there_are_two_commands_of_one_line_each() -> None:
    assert [block.count("\n") for block in COMMANDS] == [1, 1]
    assert all(block.startswith("python3 -m venv .venv && ") for block in COMMANDS)
    assert COMMANDS[1].rstrip().endswith("pytest")


def test_the_launch_in_the_package_s_own_text_is_the_one_here() -> None:
    launch = "with rawgpu.open" + BLOCKS[0].partition("with rawgpu.open")[2]
    assert textwrap.indent(launch, "    ") in (rawgpu.__doc__ or "")


def test_every_variable_that_is_read_is_in_the_table() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("rawgpu", "frontend")
        for path in (ROOT / folder).rglob("*.py")
    )
    read = set(re.findall(r"""(?:environ.*?|ENVIRONMENT = .*?)["'](RAWGPU_[A-Z_]+)""", code))
    listed = set(re.findall(r"^\| `(RAWGPU_[A-Z_]+)` \|", README, re.MULTILINE))
    assert len(read) > 6
    assert read - listed == set()


def test_the_ci_finds_the_test_command() -> None:
    after = README.split("<!-- test command -->")[1]
    assert after.lstrip().startswith(f"```sh\n{COMMANDS[1]}")
