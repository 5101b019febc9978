"""Stages in this process on a virtual GPU, and in child processes with faults planted."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rawgpu.amd.virtual  # noqa: F401  (lets rooms have AMD's GPUs)
from rawgpu.hwcheck.child import run_stage
from rawgpu.hwcheck.plan import BY_NAME
from rawgpu.hwcheck.probe import probe_for
from rawgpu.hwcheck.results import Result
from rawgpu.hwcheck.runner import Plan, as_result
from rawgpu.virtual.faults import Faults
from rawgpu.virtual.room import Room

Plant = Callable[[Faults], None]


def stage(
    name: str,
    arch: str = "gfx1100",
    plant: Plant = lambda faults: None,
    *,
    device: str = "amd:0",
    record: io.StringIO | None = None,
    **options: Any,
) -> Result:
    """One stage in a new room, as a report shows it."""
    with Room(arch, **options) as room:
        plant(room.faults)
        probe = probe_for(device)
        told = run_stage(BY_NAME[name], device, probe, record or io.StringIO())
        plan = Plan(device, Path("unused"), causes=probe.causes)
        return as_result(plan, name, json.loads(json.dumps(told, default=str)))


def faulty(**settings: Any) -> list[str]:
    """A command for `Plan`: a child whose room is as `faulty.main` says."""
    code = "import sys; from tests.hwcheck.faulty import main; sys.exit(main())"
    return [sys.executable, "-c", code, json.dumps(settings)]
