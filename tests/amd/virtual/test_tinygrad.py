"""A foreign driver on the virtual machine: tinygrad's, which works on real cards, unchanged.

Skipped where tinygrad is not installed. What it does shows what real kernels take.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("foreign_tinygrad.py")
TIME_LIMIT_S = 300

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tinygrad") is None, reason="tinygrad is not installed"
)


@pytest.mark.parametrize("name", ["gfx1100", "gfx942", "gfx1201"])
def test_tinygrad_computes_on_a_virtual_gpu(name: str) -> None:
    programs = ["add", "matmul", "convolution"]
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), name, *programs],
        env={**os.environ, "DEV": "AMD", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert ran.stdout.split("\n")[:-1] == [f"right: {p}" for p in programs], ran.stderr[-3000:]
