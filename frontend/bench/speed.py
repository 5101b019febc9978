"""`rawgpu bench speed`: our operations and others', timed turn by turn in one run.

Ours is a recorded replay: the graph is planned, compiled and recorded first, then run into the same
memory. PyTorch is timed twice, with its default call and, where it has one, with the call that
writes to a given result. Inputs go round between several sets of buffers, so nothing can be packed
beforehand. Each figure is the median of the rounds, and each round lasts long enough for the clock.
On one core, CPU time of the process is taken, which other programs on the machine disturb least; on
several, wall time.

Every result is compared with PyTorch's in float64, and, bit by bit, that of one thread with that of
several. A ratio above 1 says that ours is faster. `report.py` prints what is found.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from frontend import engine
from frontend.bench import check, report
from frontend.bench.peaks import SETS, Traffic, fma_gflops, measure_peaks
from frontend.bench.replay import Replay, prepare
from frontend.bench.report import Measured
from frontend.bench.rivals import RIVALS, BadRequest, Refusal, Rival
from frontend.bench.row import Array, Row
from frontend.bench.rows import every_row, nearby_rows
from frontend.bench.timer import Call, Timer, on_processors
from frontend.bench.training import measure_training
from frontend.tensor import Tensor
from rawgpu.cli.show import Progress
from rawgpu.errors import RawGpuError

ROUNDS = 9
SEED = 20


@dataclass
class Session:
    """What all rows of a run share."""

    device: str
    timer: Timer
    rivals: dict[str, Rival] = field(default_factory=dict)
    judge: Any = None
    """PyTorch, which says what is right; None if it is not there."""


def measure(row: Row, session: Session) -> Measured:
    """Time and check one row."""
    rng = np.random.default_rng(SEED)
    sets = [[part.draw(rng) for part in row.inputs] for _ in range(SETS)]
    found = Measured(row.name)
    contestants: dict[str, Sequence[Call]] = {}
    try:
        contestants["ours"] = _ours(row, session, sets, found)
    except (RawGpuError, AssertionError, ArithmeticError, LookupError, TypeError, ValueError,
            AttributeError, NotImplementedError, RecursionError) as error:  # fmt: skip
        # whatever one row meets is that row's result, and the others are still measured
        found.failure = f"{type(error).__name__}: {error}".split("\n")[0][:300]
        found.right = False
    for name, rival in session.rivals.items():
        try:
            calls = rival.calls(row, sets)
        except Refusal as refusal:
            found.refusals[name] = str(refusal)
            continue
        if session.judge is not None:
            value = rival.value(calls[name][0]())
            if not check.same_meaning(row, session.judge, sets[0], value):
                found.refusals[name] = "its result is another"
                continue
        contestants.update(calls)
    times = session.timer.medians_ms(list(contestants.values()))
    found.fill(dict(zip(contestants, times, strict=True)))
    return found


def _ours(
    row: Row, session: Session, sets: Sequence[Sequence[Array]], found: Measured
) -> list[Replay]:
    """Our replays; fills in all that can be said of them without a clock."""
    tensors = [[Tensor(a, device=session.device) for a in arrays] for arrays in sets]
    replays = prepare([[row.ours(*inputs)] for inputs in tensors])
    if session.judge is None:
        replays[0]()
    else:
        exact = check.exactness(row, session.judge, sets, replays)
        found.judge(exact, max(row.tolerance, check.WORTH_NOTHING))
    if session.device.startswith("cpu:"):
        several = max(2, session.timer.threads)
        found.same_bits = check.same_bits(row, tensors, session.device, several)
        found.right = found.right if found.same_bits else False
    read = sum(a.nbytes for a in sets[0]) if row.read_bytes is None else row.read_bytes
    written = replays[0].results[0].storage.size_bytes
    found.flops, found.traffic = row.flops, Traffic(read, written, SETS * read + written)
    return replays


def chosen_rows(pattern: str, nearby: int = 0, seed: int = SEED) -> list[Row]:
    """The rows whose names match, or so many near them.

    Raises BadRequest for a bad pattern, and where none matches.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise BadRequest(f"--rows {pattern!r} is no regular expression: {error}") from None
    found = [row for row in every_row() if wanted.search(row.name)]
    if not found:
        names = ", ".join(row.name for row in every_row())
        raise BadRequest(f"no row matches {pattern!r}; there are: {names}")
    return nearby_rows(nearby, seed, wanted.search) if nearby else found


def judge_of(rivals: Sequence[str]) -> Any:
    """PyTorch where it is to be had; results of ours alone need no judge."""
    if not rivals:
        return None
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError):
        return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which rows, against whom, and how often."""
    parser.add_argument(
        "--against", nargs="+", choices=tuple(RIVALS), help="also time these in the same run"
    )
    parser.add_argument("--rows", metavar="REGEX", default="", help="only rows whose name matches")
    parser.add_argument(
        "--nearby", metavar="N", type=int, default=0, help="N random rows near those instead"
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the nearby rows ({SEED})")
    parser.add_argument(
        "--threads", metavar="N", type=int, help="processors to use, by everybody (all)"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"timings of each row ({ROUNDS})"
    )
    parser.add_argument(
        "--training", action="store_true", help="steps of whole networks, instead of the rows"
    )
    parser.add_argument("--device", help="the device of ours (RAWGPU_DEVICE, or the CPU)")
    parser.add_argument(
        "--markdown", metavar="FILE", type=Path, help="also write the table into its place in FILE"
    )


def run(options: argparse.Namespace) -> int:
    """Measure and print; 1 if a row has no result or a wrong one, 2 if there is nothing to do."""
    try:
        if options.threads is not None and options.threads < 1:
            raise BadRequest(f"--threads {options.threads}: at least one")
        with on_processors(options.threads) as threads:
            return _run(options, threads)
    except BadRequest as error:
        print(f"rawgpu bench speed: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace, threads: int) -> int:
    names = options.against or []
    wanted = [] if options.training else chosen_rows(options.rows, options.nearby, options.seed)
    rivals = {name: RIVALS[name](threads) for name in names}
    device = engine.check_device(options.device) if options.device else engine.default_device()
    timer = Timer(threads, options.rounds)
    if options.training:
        result = measure_training(device, timer, "torch" in rivals, options.rows)
    else:
        session = Session(device, timer, rivals, judge_of(names))
        result = _measure_rows(wanted, session, silent=options.json)
        if options.nearby:
            result["nearby"] = {"count": len(wanted), "seed": options.seed}
    if options.json:
        print(json.dumps(result))
    else:
        print(report.text(result))
    if options.markdown:
        report.write_markdown(options.markdown, result)
    sys.stdout.flush()
    return 1 if result["wrong"] else 0


def _measure_rows(wanted: Sequence[Row], session: Session, *, silent: bool) -> dict[str, Any]:
    peaks = measure_peaks(session.device, session.timer)
    rows = []
    with Progress("speed", len(wanted), silent=silent) as progress:
        for row in wanted:
            rows.append(measure(row, session))
            gc.collect()
            if peaks is not None:
                peaks.fma = max(peaks.fma, fma_gflops(session.device, session.timer))
            progress.step(row.name)
    if peaks is not None:
        peaks.raise_to(measure_peaks(session.device, session.timer))
        for found in rows:
            found.hold_against(peaks)
    return report.summary(rows, session.device, session.timer.threads, peaks)
