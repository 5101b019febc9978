"""What a run found, and the file it is kept in.

The file is replaced as a whole after each stage, and on the disk before the next one begins. It
names the stage that is running, so that after a crash of the machine one sees which it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rawgpu.errors import BadFile

FORMAT, VERSION = "rawgpu hwcheck", 1
MAX_BYTES = 4 << 20
STATUSES = ("passed", "failed", "skipped")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One stage's outcome."""

    stage: str
    status: str
    kind: str = ""
    """Of a failure."""
    message: str = ""
    cause: str = ""
    try_next: str = ""
    seconds: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)
    detail: str = ""
    """A traceback, or what the process printed; for who reads a report."""


@dataclass
class Run:
    """All of it."""

    device: str
    index: int = 0
    running: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)

    def put(self, result: Result) -> None:
        """Keep a result, in place of an earlier one of the same stage."""
        self.results[result.stage] = result

    def as_json(self) -> dict[str, Any]:
        """What the file holds."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "device": self.device,
            "index": self.index,
            "running": self.running,
            "facts": self.facts,
            "results": [asdict(result) for result in self.results.values()],
        }


def save(run: Run, path: Path) -> None:
    """Write the file anew; it is whole at every moment, and on the disk when this returns."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(run.as_json(), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def parse(data: bytes, where: str) -> Run:
    """A run out of a file's bytes. BadFile for anything that `save` would not write."""
    if len(data) > MAX_BYTES:
        raise BadFile(f"{where} has {len(data)} bytes, which no results have")
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{where} is no JSON: {error}") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise BadFile(f"{where} has no results of hwcheck")
    if tree.get("version") != VERSION:
        raise BadFile(f"{where} is of version {tree.get('version')!r}; this reads {VERSION}")
    match tree:
        case {
            "device": str(device),
            "index": int(index),
            "running": str(running),
            "facts": dict(facts),
            "results": list(rows),
        }:
            run = Run(device, index, running, facts)
        case _:
            raise BadFile(f"{where} lacks a part, or has one of another type")
    for row in rows:
        run.put(_result(row, where))
    return run


def _result(row: Any, where: str) -> Result:
    texts = ("stage", "status", "kind", "message", "cause", "try_next", "detail")
    names = {*texts, "seconds", "figures"}
    good = (
        isinstance(row, dict)
        and set(row) == names
        and all(isinstance(row[name], str) for name in texts)
        and isinstance(row["seconds"], (int, float))
        and isinstance(row["figures"], dict)
        and row["status"] in STATUSES
    )
    if not good:
        raise BadFile(f"{where}: {str(row)[:80]} is no result")
    return Result(**row)


def load(path: Path) -> Run:
    """The run in a file. BadFile if it is none."""
    with path.open("rb") as file:
        return parse(file.read(MAX_BYTES + 1), str(path))
