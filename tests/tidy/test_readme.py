"""What the README tells a newcomer to paste does what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import rawgpu
import rawgpu.amd.virtual
from rawgpu.amd.virtual.boards import BOARDS
from rawgpu.amd.virtual.versions import DEFAULT, KERNELS
from rawgpu.cli.main import COMMANDS as COMMAND_ROWS
from rawgpu.virtual.room import OWN_OPTIONS
from tests.tidy.source import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


AMD = (ROOT / "docs" / "vendors" / "amd.md").read_text(encoding="utf-8")
AMD_BLOCKS = re.findall(r"^```python\n(.*?)^```", AMD, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", AMD_BLOCKS, ids=["object", "text"])
def test_a_launch_by_hand_on_an_amd_gpu_is_as_the_page_says(block: str, tmp_path: Path) -> None:
    if "saxpy.o" in block:
        after = AMD.partition("<!-- compiles saxpy.cl -->")[2]
        command = after.partition("$ ")[2].partition("\n")[0].split()
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        source = AMD.partition("```c\n")[2].partition("```")[0]
        (tmp_path / "saxpy.cl").write_text(source)
        subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == block.rstrip().rpartition("  # ")[2]


def test_the_page_has_every_name_and_option_of_a_virtual_gpu() -> None:
    trying = AMD.partition("## Trying it")[2].partition("\n## ")[0]
    names = re.search(r"^Names for `RAWGPU_VIRTUAL`: (.*?);", trying, re.MULTILINE | re.DOTALL)
    assert names is not None
    assert set(re.findall(r"`(\w+)`", names[1])) == set(BOARDS)
    options = set(re.findall(r"^\| `(\w+)=", trying, re.MULTILINE))
    assert options == {*OWN_OPTIONS, *rawgpu.amd.virtual.OPTIONS}
    kernel = re.search(r"^\| `kernel=.*$", trying, re.MULTILINE)
    assert kernel is not None
    assert set(re.findall(r"`([\d.]+)`", kernel[0])) | {DEFAULT} == set(KERNELS)


def test_every_command_is_in_the_table() -> None:
    assert set(re.findall(r"^\| `rawgpu ([a-z]+(?: [a-z]+)?)", README, re.MULTILINE)) == set(
        COMMAND_ROWS
    )


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
