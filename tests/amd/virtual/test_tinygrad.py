"""A foreign driver on the virtual machine: tinygrad's, which works on real cards, unchanged.

Skipped where tinygrad is not installed. What it does shows what real kernels take. It runs on
gfx942, gfx950, gfx11 and gfx12 and refuses others.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.amd.virtual import streams

PROGRAM = Path(__file__).with_name("foreign_tinygrad.py")
RECORDER = "tests.amd.virtual.record_tinygrad"
TIME_LIMIT_S = 300
FULL = pytest.mark.full

pytestmark = [
    pytest.mark.virtual,
    pytest.mark.skipif(
        importlib.util.find_spec("tinygrad") is None, reason="tinygrad is not installed"
    ),
]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "DEV": "AMD", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "programs"),
    [
        ("gfx1100", ["add", "matmul", "convolution"]),
        ("gfx942", ["matmul", "convolution"]),
        ("gfx1201", ["matmul", "convolution"]),
        pytest.param("gfx942", ["add", "training"], marks=FULL),
        pytest.param("gfx1201", ["add", "training"], marks=FULL),
        pytest.param("gfx1100", ["training"], marks=FULL),
        pytest.param("gfx1151", ["add", "matmul", "convolution"], marks=FULL),
    ],
)
def test_tinygrad_computes_on_a_virtual_gpu(name: str, programs: list[str]) -> None:
    ran = run(str(PROGRAM), name, *programs)
    assert ran.stdout.split("\n")[:-1] == [f"right: {p}" for p in programs], ran.stderr[-3000:]


@pytest.mark.parametrize(
    "stream",
    ["gfx1100", "gfx942", *(pytest.param(n, marks=FULL) for n in ("gfx1201", "gfx942-pm4"))],
)
def test_the_recorded_streams_are_what_tinygrad_writes(stream: str, tmp_path: Path) -> None:
    """Recorded anew, its packets are those kept as data: addresses by name."""
    head, kept = streams.load(streams.FOLDER / f"{stream}.jsonl")
    here = f"tinygrad {importlib.metadata.version('tinygrad')}"
    if here != head["driver"]:
        pytest.skip(f"the streams are of {head['driver']}, and this is {here}")
    path = tmp_path / "new.jsonl"
    ran = run("-m", RECORDER, stream, str(path))
    assert ran.returncode == 0, ran.stderr[-3000:]
    _, new = streams.load(path)
    gpu, _ = streams.STREAMS[stream]
    assert [step.name for step in new] == [step.name for step in kept]
    for one, two in zip(kept, new, strict=True):
        assert streams.lines_of(gpu, one) == streams.lines_of(gpu, two), one.name
        assert streams.kernargs_of(gpu, one) == streams.kernargs_of(gpu, two), one.name
