"""Runs the stages, each in a process of its own with a limit, and keeps what they found.

Whatever a stage does to its process, or to the machine, the file holds the stages before it and the
name of the one that ran.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rawgpu.hwcheck import causes
from rawgpu.hwcheck.plan import STAGES, Stage
from rawgpu.hwcheck.probe import CauseRow, full_name, probe_for
from rawgpu.hwcheck.results import Result, Run, load, save

COMMAND = (sys.executable, "-m", "rawgpu.hwcheck.child")
END_S = 10
"""How long a process that was killed may take to be gone; one in the kernel may never be."""
PRINTED_LETTERS = 4000
MESSAGE_BYTES = 1 << 20
FACTS_LIMIT_S = 60
NEEDS = "needs"
"""The kind of a stage that was skipped because of another."""


@dataclass
class Plan:
    """What to run, and where things go."""

    device: str
    out: Path
    stages: Sequence[Stage] = STAGES
    faults: bool = False
    start: str = ""
    """Begin at this stage, and keep the results of those before it."""
    only: frozenset[str] = frozenset()
    limit_s: int | None = None
    """In place of the stages' own limits."""
    command: Sequence[str] = COMMAND
    told: Callable[[Stage, Result | None], None] = lambda stage, result: None
    """Called before (with None) and after each stage."""
    causes: Sequence[CauseRow] = field(default_factory=tuple)

    @property
    def traces(self) -> Path:
        """The folder of the recordings, beside the results."""
        return self.out.with_name(self.out.name + ".traces")

    def chosen(self) -> list[Stage]:
        """The stages to run."""
        names = [stage.name for stage in self.stages]
        first = names.index(self.start) if self.start else 0
        kept = [s for s in self.stages[first:] if self.faults or not s.faults]
        return [s for s in kept if s.name in self.only] if self.only else kept


def run(plan: Plan) -> Run:
    """Run the plan; the file at `plan.out` grows with it."""
    plan.device = full_name(plan.device or None)
    plan.causes = plan.causes or probe_for(plan.device).causes
    found = _begin(plan)
    plan.traces.mkdir(exist_ok=True)
    _facts(plan, found)
    for stage in plan.chosen():
        blocked = [name for name in stage.needs if _blocks(found.results.get(name))]
        plan.told(stage, None)
        if blocked and stage.name not in plan.only:
            result = Result(
                stage=stage.name, status="skipped", kind=NEEDS,
                message=f"needs {blocked[0]}, which did not pass",
            )  # fmt: skip
        else:
            found.running = stage.name
            save(found, plan.out)
            result = _stage(plan, stage)
        found.put(result)
        found.running = ""
        save(found, plan.out)
        plan.told(stage, result)
        if result.kind == "stuck":
            break  # nothing else will get through to this driver
    return found


def _blocks(result: Result | None) -> bool:
    """Whether what needs this stage cannot run: it failed, or was itself kept from running."""
    return result is not None and (result.status == "failed" or result.kind == NEEDS)


def _begin(plan: Plan) -> Run:
    """A new run, or with `start` and `only` the one in the file, and what it says of its end."""
    if not plan.out.exists():
        return Run(plan.device)
    if not (plan.start or plan.only):
        plan.out.replace(plan.out.with_name(plan.out.name + ".old"))
        return Run(plan.device)
    found = load(plan.out)
    if found.device != plan.device:
        plan.out.replace(plan.out.with_name(plan.out.name + ".old"))
        return Run(plan.device)
    if found.running:
        found.put(_failure(plan, found.running, ["machine-crash"],
                           "the machine, or hwcheck itself, ended during this stage"))  # fmt: skip
        found.running = ""
    return found


def _failure(plan: Plan, stage: str, kinds: Sequence[str], message: str, **more: Any) -> Result:
    cause, try_next = causes.lookup(stage, kinds, message, plan.causes)
    return Result(
        stage=stage, status="failed", kind=kinds[0], message=message, cause=cause,
        try_next=try_next, **more,
    )  # fmt: skip


def _stage(plan: Plan, stage: Stage) -> Result:
    words = ["--stage", stage.name, "--device", plan.device]
    words += ["--record", str(plan.traces / f"{stage.name}.jsonl")]
    limit = stage.limit_s if plan.limit_s is None else plan.limit_s
    return as_result(plan, stage.name, child([*plan.command, *words], limit))


def as_result(plan: Plan, stage: str, told: dict[str, Any]) -> Result:
    """What a child told, with cause and next step."""
    figures = told.get("figures", {})
    seconds = float(told.get("seconds", 0.0))
    detail = str(told.get("detail", ""))
    if told["status"] == "failed":
        kinds = told["kinds"]
        return _failure(
            plan, stage, kinds, told["message"], figures=figures, seconds=seconds, detail=detail
        )
    return Result(
        stage=stage, status=told["status"], message=told.get("message", ""), figures=figures,
        seconds=seconds,
    )  # fmt: skip


def _facts(plan: Plan, found: Run) -> None:
    """Versions and topology, asked for in a child too."""
    told = child([*plan.command, "--stage", "facts", "--device", plan.device], FACTS_LIMIT_S)
    if isinstance(told.get("facts"), dict):
        found.facts = told["facts"]
        found.index = int(told.get("index", 0))
    else:
        found.facts = {"failed": str(told.get("message", ""))[:400]}


def child(command: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Run a child and give back its last word, or what became of it in the same form."""
    reading, writing = os.pipe()
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        try:
            process = subprocess.Popen(
                [*command, "--pipe", str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        try:
            return _watch(process, reading, limit_s, start, printed)
        finally:
            os.close(reading)
            if process.poll() is None:
                _end(process)


def _watch(
    process: subprocess.Popen[bytes], reading: int, limit_s: float, start: float, printed: TextIO
) -> dict[str, Any]:
    with suppress(subprocess.TimeoutExpired):
        # The pipe's 64 KiB hold what a child says: more comes from the last line only.
        return _finished(process, _drain(process, reading, start + limit_s), printed, start)
    gone = _end(process)
    kind = "time-limit" if gone else "stuck"
    text = f"the stage did not end within {limit_s} s"
    text += "" if gone else f", and its process {process.pid} cannot be ended"
    return {
        "status": "failed", "kinds": [kind], "message": text, "detail": _tail(printed),
        "seconds": round(time.monotonic() - start, 3),
    }  # fmt: skip


def _drain(process: subprocess.Popen[bytes], reading: int, end: float) -> bytes:
    """All that the child writes to the pipe, until it has closed it and ended."""
    os.set_blocking(reading, False)
    said = bytearray()
    while True:
        done = process.poll() is not None
        with suppress(BlockingIOError):
            while piece := os.read(reading, 1 << 16):
                said += piece
                if len(said) > MESSAGE_BYTES:
                    return bytes(said)
        if done:
            return bytes(said)
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, 0)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)


def _finished(
    process: subprocess.Popen[bytes], said: bytes, printed: TextIO, start: float
) -> dict[str, Any]:
    for line in reversed(said.decode("utf-8", "replace").splitlines()):
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("event") == "ended":
            return message
    code = process.returncode
    how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
    return {
        "status": "failed", "kinds": ["crash"], "message": f"the stage's process died: {how}",
        "detail": _tail(printed), "seconds": round(time.monotonic() - start, 3),
    }  # fmt: skip


def _tail(printed: TextIO) -> str:
    printed.seek(0)
    return printed.read()[-PRINTED_LETTERS:]


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Kill a child and its compilers; False if it is still there, as in an endless kernel call."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        return False
    return True
