"""`rawgpu bench speed`: our operations and PyTorch's, timed turn by turn in one run.

Ours is a recorded replay: the graph is planned, compiled and recorded first, then run into the same
memory. PyTorch is timed twice, with its default call and, where it has one, with the call that
writes to a given result. Inputs go round between several sets of buffers, so nothing can be packed
beforehand. Each figure is the median of the rounds, and each round lasts long enough for the clock.
On one core, CPU time of the process is taken, which other programs on the machine disturb least; on
several, wall time.

Every result is compared with PyTorch's in float64. A ratio above 1 says that ours is faster.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

from frontend import engine
from frontend.bench.replay import Replay, prepare
from frontend.bench.rows import Array, Row, every_row
from frontend.tensor import Tensor
from rawgpu.cli.show import Progress, table
from rawgpu.errors import RawGpuError

SETS = 3
"""Sets of inputs that calls go round between."""
ROUNDS = 9
LEAST_NS = 2_500_000
"""One timing takes at least about this long."""
LEGEND = """\
OURS, TORCH  milliseconds of one call: a replay of ours, PyTorch's default call
OUT=         PyTorch's call that writes to a given result, where it has one
RATIO        PyTorch's time by ours, so above 1 ours is faster; OUT=: the same of that call
ERROR        largest difference from float64, by the largest value; of integers, how many differ
-            not measured"""
SEED = 20


@dataclass
class Measured:
    """One row of the table; None where there is no such figure."""

    name: str
    ours_ms: float | None = None
    torch_ms: float | None = None
    torch_out_ms: float | None = None
    ratio: float | None = None
    ratio_out: float | None = None
    error: float | None = None
    """Largest difference from float64, relative to the largest magnitude of the result."""
    right: bool | None = None
    failure: str | None = None
    """Why there is no figure of ours."""


class Timer:
    """Measures several calls turn by turn."""

    def __init__(self, threads: int, rounds: int) -> None:
        self.now = time.process_time_ns if threads == 1 else time.perf_counter_ns
        self.rounds = rounds

    def medians_ms(self, contestants: Sequence[Sequence[Callable[[], object]]]) -> list[float]:
        """Milliseconds a call; a contestant's calls differ in their inputs alone."""
        batches = [self._batch(calls) for calls in contestants]
        times: list[list[float]] = [[] for _ in batches]
        for number in range(self.rounds):
            order = list(range(len(batches)))
            for i in order[number % len(order) :] + order[: number % len(order)]:
                times[i].append(self._time_ns(batches[i]) / len(batches[i]))
        return [statistics.median(of_one) / 1e6 for of_one in times]

    def _batch(self, calls: Sequence[Callable[[], object]]) -> list[Callable[[], object]]:
        """The calls over and over, so many that one timing is long enough. Also warms up."""
        count = len(calls)
        while True:
            batch = list(islice(cycle(calls), count))
            took = self._time_ns(batch)
            if took >= LEAST_NS:
                return self._shortened(batch, took)
            count = max(2 * count, math.ceil(count * LEAST_NS / max(took, 1_000)))

    @staticmethod
    def _shortened(batch: list[Callable[[], object]], took: int) -> list[Callable[[], object]]:
        """Long calls need not all be in one timing."""
        return (
            batch[: max(1, math.ceil(len(batch) * LEAST_NS / took))]
            if took > 20 * LEAST_NS
            else batch
        )

    def _time_ns(self, batch: Sequence[Callable[[], object]]) -> int:
        now = self.now
        start = now()
        for call in batch:
            call()
        return now() - start


def measure(row: Row, torch: Any | None, device: str, timer: Timer) -> Measured:
    """Time and check one row."""
    rng = np.random.default_rng(SEED)
    sets = [[part.draw(rng) for part in row.inputs] for _ in range(SETS)]
    found = Measured(row.name)
    replays: list[Replay] = []
    try:
        tensors = [[Tensor(a, device=device) for a in arrays] for arrays in sets]
        replays = prepare([[row.ours(*inputs)] for inputs in tensors])
        if torch is not None:
            check(row, torch, sets, replays, found)
        else:
            replays[0]()
    except (RawGpuError, AssertionError, ArithmeticError, LookupError, TypeError, ValueError,
            AttributeError, NotImplementedError, RecursionError) as error:  # fmt: skip
        # whatever one row meets is that row's result, and the others are still measured
        found.failure = f"{type(error).__name__}: {error}".split("\n")[0][:300]
        found.right = False
        replays = []
    contestants: list[Sequence[Callable[[], object]]] = [replays] if replays else []
    if torch is not None:
        theirs = [[torch.tensor(a) for a in arrays] for arrays in sets]
        contestants.append([partial(row.torch, torch, *inputs) for inputs in theirs])
        if row.torch_out is not None:
            out = torch.empty_like(
                row.torch(torch, *theirs[0]), memory_format=torch.contiguous_format
            )
            contestants.append([partial(row.torch_out, torch, out, *inputs) for inputs in theirs])
    times = timer.medians_ms(contestants) if contestants else []
    _fill(found, times, ours=bool(replays))
    return found


def _fill(found: Measured, times: list[float], *, ours: bool) -> None:
    if ours:
        found.ours_ms = times.pop(0)
    if times:
        found.torch_ms = times.pop(0)
    if times:
        found.torch_out_ms = times.pop(0)
    if found.ours_ms:
        found.ratio = None if found.torch_ms is None else found.torch_ms / found.ours_ms
        found.ratio_out = None if found.torch_out_ms is None else found.torch_out_ms / found.ours_ms


def check(
    row: Row,
    torch: Any,
    sets: Sequence[Sequence[Array]],
    replays: Sequence[Replay],
    found: Measured,
) -> None:
    """Compare each set's result with float64; fills `error` and `right`."""
    worst = 0.0
    for arrays, replay in zip(sets, replays, strict=True):
        replay()
        got = torch.from_numpy(replay.read(0))
        wide = [torch.from_numpy(a) for a in arrays]
        wide = [a.double() if a.is_floating_point() else a for a in wide]
        expected = row.torch(torch, *wide)
        if got.shape != expected.shape:
            raise AssertionError(f"shape {tuple(got.shape)}, not {tuple(expected.shape)}")
        if not got.is_floating_point():
            worst = max(worst, float((got != expected).sum()))
            continue
        size = float(expected.abs().max())
        apart = float((got.double() - expected).abs().max())
        worst = max(worst, apart / size) if math.isfinite(apart) else math.inf
    found.error = worst
    found.right = worst <= max(row.tolerance, 1e-7)


def geomean(ratios: Sequence[float]) -> float | None:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


class BadRequest(Exception):
    """What was asked for cannot be measured; the text says why."""


def chosen_rows(pattern: str) -> list[Row]:
    """The rows whose names match. Raises BadRequest for a bad pattern, and where none matches."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise BadRequest(f"--rows {pattern!r} is no regular expression: {error}") from None
    found = [row for row in every_row() if wanted.search(row.name)]
    if not found:
        names = ", ".join(row.name for row in every_row())
        raise BadRequest(f"no row matches {pattern!r}; there are: {names}")
    return found


def pytorch() -> Any:
    """PyTorch. Raises BadRequest where it is missing or broken."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError) as error:
        raise BadRequest(f"--against torch needs PyTorch (pip install torch): {error}") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which rows, against whom, and how often."""
    parser.add_argument(
        "--against", choices=("torch",), help="also time this rival in the same run"
    )
    parser.add_argument("--rows", metavar="REGEX", default="", help="only rows whose name matches")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"timings of each row ({ROUNDS})"
    )
    parser.add_argument("--device", help="the device of ours (RAWGPU_DEVICE, or the CPU)")


def run(options: argparse.Namespace) -> int:
    """Measure and print; 1 if a row has no result or a wrong one, 2 if there is nothing to do."""
    try:
        wanted = chosen_rows(options.rows)
        torch = pytorch() if options.against == "torch" else None
    except BadRequest as error:
        print(f"rawgpu bench speed: {error}", file=sys.stderr)
        return 2
    threads = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if torch is not None:
        torch.set_num_threads(threads)
    device = engine.check_device(options.device) if options.device else engine.default_device()
    timer = Timer(threads, options.rounds)
    rows = []
    with Progress("speed", len(wanted), silent=options.json) as progress:
        for row in wanted:
            rows.append(measure(row, torch, device, timer))
            gc.collect()
            progress.step(row.name)
    right = [r for r in rows if r.right is not False]
    result = {
        "device": device,
        "threads": threads,
        "geomean": geomean([r.ratio for r in right if r.ratio]),
        "geomean_out": geomean([r.ratio_out for r in right if r.ratio_out]),
        "wrong": [r.name for r in rows if r.right is False],
    }
    if options.json:
        print(json.dumps({"rows": [asdict(r) for r in rows], **result}))
    else:
        print(_text(rows, result))
    sys.stdout.flush()
    return 1 if result["wrong"] else 0


def _text(rows: Sequence[Measured], result: dict[str, Any]) -> str:
    head = ("NAME", "OURS ms", "TORCH ms", "OUT= ms", "RATIO", "RATIO OUT=", "ERROR", "")
    lines = [table(head, [_cells(r) for r in rows]), "", LEGEND, ""]
    for word, mean in (("torch", result["geomean"]), ("torch with out=", result["geomean_out"])):
        if mean is not None:
            lines.append(f"geometric mean of {word} / ours: {mean:.3f}")
    if result["wrong"]:
        lines.append(f"{len(result['wrong'])} of {len(rows)} wrong: {', '.join(result['wrong'])}")
    return "\n".join(lines)


def _cells(r: Measured) -> list[str]:
    def number(x: float | None, digits: int = 4) -> str:
        return "-" if x is None else f"{x:.{digits}g}"

    times = [number(x) for x in (r.ours_ms, r.torch_ms, r.torch_out_ms)]
    ratios = [number(x, 3) for x in (r.ratio, r.ratio_out, r.error)]
    return [r.name, *times, *ratios, r.failure or ("WRONG" if r.right is False else "")]
