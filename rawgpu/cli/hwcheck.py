"""`rawgpu hwcheck`: a card tested stage by stage, with a bundle at the end that can be replayed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rawgpu.cli.show import table
from rawgpu.errors import BadFile
from rawgpu.hwcheck import bundle, runner
from rawgpu.hwcheck.plan import BY_NAME, STAGES, Stage
from rawgpu.hwcheck.probe import check_there, full_name, probe_for
from rawgpu.hwcheck.results import Result, Run
from rawgpu.runtime.discover import devices

DEFAULT_OUT, PACKED = "rawgpu-hwcheck.json", ".zip"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to test, which stages, where results go."""
    parser.add_argument("--device", help="such as amd:0; else the first that can be used")
    parser.add_argument("--out", type=_results, default=Path(DEFAULT_OUT), metavar="FILE",
                        help=f"results, saved after each stage; else {DEFAULT_OUT}")  # fmt: skip
    parser.add_argument("--from", dest="start", default="", metavar="STAGE", choices=BY_NAME,
                        help="go on with this stage; results before it are kept")  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="STAGE", choices=BY_NAME,
                        help="this stage alone; may be given again")  # fmt: skip
    parser.add_argument("--faults", action="store_true",
                        help="end with faults on purpose, which no other option runs; close other "
                        "programs first: the GPU may be reset")  # fmt: skip
    parser.add_argument("--limit", type=_seconds, metavar="SECONDS", help="for each stage")
    parser.add_argument("--replay", type=Path, metavar="BUNDLE",
                        help="run the driver against a bundle's recordings instead")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the stages")
    parser.epilog = (
        "0: every stage passed or does not apply; 1: one failed, or a replay differs; "
        "2: the options leave no stage."
    )
    parser.set_defaults(refuse=parser.error)


def _seconds(text: str) -> int:
    """A limit, at least a second."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} s is no time for a stage")
    return number


def _results(text: str) -> Path:
    """A file beside which the bundle can lie."""
    path = Path(text)
    if path.suffix == PACKED or not path.name:
        raise argparse.ArgumentTypeError(f"{text!r}: the bundle gets the name with {PACKED}")
    return path


def run(options: argparse.Namespace) -> int:
    """Test, replay or list."""
    if options.list:
        return _list(as_json=options.json)
    if options.replay is not None:
        return _replay(options)
    _check_stages(options)
    device = full_name(options.device)
    probe = probe_for(device)
    check_there(device)
    plan = runner.Plan(
        device=device,
        out=options.out.absolute(),
        faults=options.faults,
        start=options.start,
        only=frozenset(options.only),
        limit_s=options.limit,
        told=(lambda stage, result: None) if options.json else _told,
    )
    if not plan.chosen():
        options.refuse("no stage is both after --from and among --only")
    if not options.json:
        print(_tested(device), flush=True)
    found = runner.run(plan)
    packed = plan.out.with_suffix(PACKED)
    cleaner = bundle.Cleaner(bundle.own_names(), probe.private)
    bundle.write(found, plan.traces, packed, cleaner)
    counts = count(found)
    if options.json:
        print(json.dumps({**found.as_json(), "counts": counts, "bundle": str(packed)}))
    else:
        print("\n" + ", ".join(f"{number} {name}" for name, number in counts.items()))
        if found.facts.get("virtual"):
            print("the device is virtual: its times are made up")
        print(f"results: {options.out}\nfor a report, with no name of yours in it: {packed}")
    return 1 if counts["failed"] else 0


def _check_stages(options: argparse.Namespace) -> None:
    """Stages that break something are run by --faults and by nothing else."""
    asked = [*options.only, *filter(None, [options.start])]
    breaking = [name for name in asked if BY_NAME[name].faults]
    if breaking and not options.faults:
        options.refuse(f"stage {breaking[0]} breaks something on purpose: it needs --faults too")


def _tested(name: str) -> str:
    """Which device this is about."""
    for info in devices():
        if info.name == name:
            kind = "a virtual GPU, whose times are made up" if info.virtual else "real"
            return f"testing {name}: {info.arch}, {info.title or 'without a title'} ({kind})\n"
    return f"testing {name}: the first stage says why it is not seen\n"


def count(found: Run) -> dict[str, int]:
    """How many stages passed, failed, were skipped."""
    statuses = [result.status for result in found.results.values()]
    return {name: statuses.count(name) for name in ("passed", "failed", "skipped")}


def _list(*, as_json: bool) -> int:
    rows = [(s.name, s.title, ", ".join(s.needs), "--faults" if s.faults else "") for s in STAGES]
    if as_json:
        keys = ("name", "title", "needs", "asked for by")
        print(json.dumps({"stages": [dict(zip(keys, row, strict=True)) for row in rows]}))
    else:
        print(table(("STAGE", "WHAT", "NEEDS", ""), rows))
    return 0


def _told(stage: Stage, result: Result | None) -> None:
    """One line a stage, and more where it failed."""
    if result is None:
        print(f"{stage.name:14}{stage.title:42}", end="", flush=True)
        return
    print(f"{result.status:8}{result.seconds:8.3f} s  {_short(result.figures)}".rstrip())
    if result.status == "skipped":
        print(f"{'':14}{result.message}")
    if result.status == "failed":
        for name, text in (
            (result.kind, result.message), ("cause", result.cause), ("try", result.try_next)
        ):  # fmt: skip
            print(f"{'':4}{name}: " + text.replace("\n", "\n      "))
    sys.stdout.flush()


def _short(figures: Any) -> str:
    """The figures that fit on a line, measured ones with three digits."""
    parts: list[str] = []
    for name, value in figures.items():
        text = f"{name}={float(f'{value:.3g}'):g}" if isinstance(value, float) else ""
        text = text or f"{name}={value}"
        if len(text) < 40 and sum(map(len, parts)) + len(text) < 70:
            parts.append(text)
    return " ".join(parts)


def _replay(options: argparse.Namespace) -> int:
    """Each stage's driver against what was recorded."""
    packed = bundle.read(options.replay)
    device = packed.run.device
    wanted: Sequence[str] = options.only or list(packed.traces)
    if not wanted:
        raise BadFile(f"{options.replay} has no recordings")
    missing = [name for name in wanted if name not in packed.traces]
    if missing:
        raise BadFile(f"{options.replay} has no recording of {missing[0]}")
    rows: list[dict[str, Any]] = []
    probe_for(device)  # before anything runs: is there a driver for it?
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            trace = Path(folder) / f"{name}.jsonl"
            trace.write_text(packed.traces[name], encoding="utf-8")
            words = ["--stage", name, "--device", device, "--replay", str(trace)]
            words += ["--index", str(packed.run.index)]
            limit = options.limit or BY_NAME[name].limit_s
            told = runner.child([*runner.COMMAND, *words], limit)
            rows.append(replayed(name, packed.run, told))
            if not options.json:
                _told_replay(rows[-1])
    if options.json:
        recorded = [asdict(r) for r in packed.run.results.values()]
        print(json.dumps({"device": device, "replayed": rows, "recorded": recorded}))
    return 0 if all(row["same"] for row in rows) else 1


def replayed(name: str, run: Run, told: dict[str, Any]) -> dict[str, Any]:
    """What a replay showed.

    It is the same where no call differed, and where it did not fail in another way than that day's
    stage: one that failed then must do so again only where the recording goes on so far.
    """
    then = run.results.get(name) or Result(stage=name, status="")
    status, kinds = told.get("status", "failed"), told.get("kinds", [])
    differences = list(told.get("differences", ()))
    if status == "failed" and then.kind not in kinds:
        differences.append(f"{kinds[0]}: {told.get('message', '')}")
    return {
        "stage": name,
        "same": not differences,
        "then": then.status,
        "now": status,
        "calls": told.get("calls", 0),
        "left": told.get("left", 0),
        "differences": differences,
    }


def _told_replay(row: dict[str, Any]) -> None:
    verdict = "same" if row["same"] else "differs"
    print(
        f"{row['stage']:14}{verdict:9}{row['calls']:6} calls  then {row['then']}, now {row['now']}"
    )
    for text in row["differences"]:
        print(f"{'':4}" + text.replace("\n", "\n    "))
