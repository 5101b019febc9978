"""A stage may do anything to its process: the run goes on, in bounded time, and loses nothing."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rawgpu.errors import BadFile
from rawgpu.hwcheck.plan import STAGES
from rawgpu.hwcheck.results import Run, load, parse, save
from rawgpu.hwcheck.runner import Plan, child, run
from tests.hwcheck.rooms import faulty

SOME = [s for s in STAGES[:9] if s.name not in ("timestamp", "visibility")]
SAYS = """
import json, os, sys, time
words = sys.argv[1:]
stage = words[words.index("--stage") + 1]
pipe = os.fdopen(int(words[words.index("--pipe") + 1]), "w")
act = json.loads(words[0]).get(stage, "passed")
if act == "die":
    print("last words", flush=True)
    os.abort()
if act == "leave":
    sys.exit(3)
if act == "sleep":
    print("waiting", flush=True)
    time.sleep(600)
if act == "babble":
    print("{not json\\n" * 3, file=pipe)
    pipe.write("x" * 300_000 + "\\n")
kinds = ["FenceTimeout", "DeviceLost"] if act == "fail" else []
status = "failed" if act == "fail" else "passed"
row = {"event": "ended", "status": status, "kinds": kinds, "message": "m" if kinds else ""}
print(json.dumps({**row, "figures": {"n": 1}, "seconds": 0.5}), file=pipe, flush=True)
"""


def plan(tmp_path: Path, **acts: str) -> Plan:
    """The whole plan on a device of which nothing is asked."""
    command = [sys.executable, "-S", "-c", SAYS, json.dumps(acts)]
    return Plan("cpu:0", tmp_path / "out.json", command=command, limit_s=20, stages=SOME)


def rows(found: Run) -> dict[str, tuple[str, str]]:
    return {r.stage: (r.status, r.kind) for r in found.results.values()}


def test_what_needs_a_stage_that_failed_is_skipped_and_says_so(tmp_path: Path) -> None:
    found = run(plan(tmp_path, fence="fail"))
    got = rows(found)
    assert got["doorbell"] == ("passed", "")
    assert got["fence"] == ("failed", "FenceTimeout")
    assert got["copy"] == got["kernel"] == ("skipped", "needs")
    assert found.results["copy"].message == "needs fence, which did not pass"
    assert found.results["fence"].cause
    assert load(tmp_path / "out.json") == found


@pytest.mark.parametrize(
    ("act", "message", "printed"),
    [("die", r"signal 6 (SIGABRT)", "last words"), ("leave", "exit code 3", "")],
)
def test_a_process_that_dies_is_a_crash(
    tmp_path: Path, act: str, message: str, printed: str
) -> None:
    found = run(plan(tmp_path, memory=act))
    result = found.results["memory"]
    assert (result.status, result.kind) == ("failed", "crash")
    assert message in result.message
    assert printed in result.detail
    assert rows(found)["doorbell"] == ("skipped", "needs")


def test_a_process_that_hangs_is_ended_at_its_limit(tmp_path: Path) -> None:
    wanted = plan(tmp_path, abi="sleep")
    wanted.limit_s = 1
    start = time.monotonic()
    found = run(wanted)
    assert time.monotonic() - start < 60
    assert found.results["abi"].kind == "time-limit"
    assert "waiting" in found.results["abi"].detail


def test_words_that_are_no_messages_are_passed_over(tmp_path: Path) -> None:
    assert rows(run(plan(tmp_path, nodes="babble")))["nodes"] == ("passed", "")


def test_a_run_goes_on_from_a_stage(tmp_path: Path) -> None:
    run(plan(tmp_path, fence="fail"))
    again = plan(tmp_path)
    again.start = "fence"
    found = run(again)
    assert {status for status, _ in rows(found).values()} == {"passed"}
    only = plan(tmp_path, copy="fail")
    only.only = frozenset({"copy"})
    assert rows(run(only))["copy"] == ("failed", "FenceTimeout")
    assert rows(load(tmp_path / "out.json"))["kernel"] == ("passed", "")


def test_a_new_run_keeps_the_old_file(tmp_path: Path) -> None:
    run(plan(tmp_path, fence="fail"))
    run(plan(tmp_path))
    assert rows(load(tmp_path / "out.json.old"))["fence"][0] == "failed"


def test_a_crash_of_the_machine_is_found_in_the_file(tmp_path: Path) -> None:
    down = load_partly(tmp_path)
    assert down.running == "memory"
    again = plan(tmp_path)
    again.start = "doorbell"
    found = run(again)
    result = found.results["memory"]
    assert (result.status, result.kind) == ("failed", "machine-crash")
    assert "journalctl" in result.try_next
    assert rows(found)["doorbell"] == ("skipped", "needs")


def load_partly(tmp_path: Path) -> Run:
    """What the file says while a stage runs: looked at from the outside, as after a power cut."""
    wanted = plan(tmp_path, memory="sleep")
    wanted.limit_s = 1
    seen: list[Run] = []
    path = wanted.out

    def told(stage: Any, result: Any) -> None:
        if stage.name == "memory" and result is not None:
            raise KeyboardInterrupt

    real = save

    def keep(found: Run, where: Path) -> None:
        real(found, where)
        if found.running == "memory":
            seen.append(load(where))

    from rawgpu.hwcheck import runner

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "save", keep)
        wanted.told = told
        with pytest.raises(KeyboardInterrupt):
            run(wanted)
    real(seen[0], path)
    return load(path)


@pytest.mark.full
def test_a_real_child_tells_what_its_driver_met(tmp_path: Path) -> None:
    words = ["--device", "amd:0", "--record", str(tmp_path / "t")]
    planted = faulty(plant=[["fail", {"call": "CreateQueue", "errno": 22}]])
    found = child([*planted, "--stage", "doorbell", *words], 60)
    assert found["kinds"][0] == "KernelCallFailed"
    assert "CreateQueue" in (tmp_path / "t").read_text()


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"format": "x"}', b"[" * 100_000, b"\xff",
     b'{"format": "rawgpu hwcheck", "version": 2}',
     b'{"format": "rawgpu hwcheck", "version": 1, "device": 3}',
     b'{"format": "rawgpu hwcheck", "version": 1, "device": "d", "index": 0, "running": "",'
     b' "facts": {}, "results": [{"stage": "x"}]}'],
    ids=["empty", "cut", "list", "foreign", "deep", "binary", "version", "types", "row"],
)  # fmt: skip
def test_a_results_file_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BadFile):
        parse(data, "results")
