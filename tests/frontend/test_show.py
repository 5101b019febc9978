"""`RAWGPU_SHOW` and `RAWGPU_PROFILE`, as a person sets them: for a whole program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from frontend.show import LEVELS
from tests.frontend.evaluator import uses_reference

pytestmark = pytest.mark.skipif(uses_reference(), reason="nothing is generated")

PROGRAM = """
from frontend import Tensor
x = Tensor([[float(i + k) for i in range(24)] for k in range(20)])
print(x.sum(0).tolist()[:2])
"""

SIGNS = {
    "graph": ("--- graph\n", "SUM"),
    "schedule": ("--- schedule\n", "kernel 0"),
    "loops": ("--- loops\nkernel sum_24_20(", "sum= b0["),
    "instructions": ("--- instructions\nsum_24_20:", "load"),
    "text": ("--- text\n", "define void @sum_24_20(ptr"),
    "asm": ("--- asm\n", "sum_24_20:"),
}


def run(**settings: str) -> str:
    """What the program says on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split("\n")[0] == "[190.0, 210.0]"
    return done.stderr


@pytest.mark.host
def test_every_level_prints_what_it_is_called_after() -> None:
    assert set(SIGNS) == set(LEVELS)
    said = run(RAWGPU_SHOW="all")
    for level, signs in SIGNS.items():
        for sign in signs:
            assert sign in said, level
    at = [said.index(f"--- {level}\n") for level in LEVELS]
    assert at == sorted(at)


def test_levels_are_joined_by_commas_and_unknown_ones_named_once() -> None:
    said = run(RAWGPU_SHOW=" schedule, lops ,text,")
    assert "--- schedule\n" in said and "--- text\n" in said
    for level in ("graph", "loops", "instructions", "asm"):
        assert f"--- {level}\n" not in said
    known = ", ".join(("all", *LEVELS))
    assert said.count(f"RAWGPU_SHOW: no level lops; there are {known}\n") == 1


@pytest.mark.host  # of virtual GPUs a profile says that its times are made up
def test_a_whole_program_is_profiled_and_nothing_else_printed() -> None:
    lines = run(RAWGPU_PROFILE="1", RAWGPU_SHOW="").splitlines()
    assert lines[0].split() == ["kernel", "device", "launches", "ms", "share", "GFLOP/s", "GB/s"]
    assert any(line.startswith("sum_24_20 ") for line in lines)
    assert lines[-1].startswith("total ")
