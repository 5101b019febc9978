"""One stage in one process: `python -m rawgpu.hwcheck.child`.

What it finds goes to a pipe as JSON, a line each, so that a process that dies has said what it
knew. Standard output belongs to whoever prints to it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from rawgpu.contract import Device
from rawgpu.errors import RawGpuError
from rawgpu.hwcheck.check import Check, NotHere, RecordingEnds, StageFailed
from rawgpu.hwcheck.plan import BY_NAME, Stage
from rawgpu.hwcheck.probe import Probe, probe_for
from rawgpu.hwcheck.recorder import StageRecorder
from rawgpu.hwcheck.replay import replay_stage
from rawgpu.runtime.discover import devices

DETAIL_LETTERS = 6000


def outcome(stage: Stage, check: Check) -> dict[str, Any]:
    """Run a stage; what became of it. `kinds` are a failure's class and that one's parents."""
    start = time.monotonic()
    found: dict[str, Any] = {"status": "passed"}
    try:
        stage.run(check)
    except NotHere as error:
        found = {"status": "skipped", "message": str(error)}
    except RecordingEnds:
        pass
    except StageFailed as error:
        found = failed([error.kind], str(error))
    except RawGpuError as error:
        kinds = [c.__name__ for c in type(error).__mro__ if issubclass(c, RawGpuError)]
        found = failed(kinds, str(error))
    except Exception as error:
        found = failed(["bug"], f"{type(error).__name__}: {error}")
    finally:
        try:
            check.close()
        except RecordingEnds:
            pass
        except Exception as error:
            found = failed(["bug"], f"closing: {type(error).__name__}: {error}")
    return {**found, "figures": check.figures, "seconds": round(time.monotonic() - start, 3)}


def failed(kinds: list[str], message: str) -> dict[str, Any]:
    """A failure, with the traceback of what is being handled."""
    detail = traceback.format_exc(limit=-12)[-DETAIL_LETTERS:]
    for where in (str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix):
        detail = detail.replace(where + os.sep, "")  # where it is installed is nobody's business
    return {"status": "failed", "kinds": kinds, "message": message, "detail": detail}


def run_stage(stage: Stage, name: str, probe: Probe, record: TextIO | None) -> dict[str, Any]:
    """Run a stage on a device, and write its recording to `record`."""
    port, index = probe.place(name)
    if port is None or record is None:
        return outcome(stage, Check(probe, name, port, index))
    recorder = StageRecorder(port, record)

    def opened(device: Device) -> None:
        recorder.follow(lambda: probe.memory(device))

    check = Check(probe, name, recorder, index, opened=opened, stop_recording=recorder.stop)
    return outcome(stage, check)


def main(words: Sequence[str] | None = None) -> int:
    """0 whatever the stage found: it is told through the pipe."""
    parser = argparse.ArgumentParser(prog="rawgpu.hwcheck.child")
    parser.add_argument("--stage", choices=[*BY_NAME, "facts"], required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--pipe", type=int, required=True)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--index", type=int, default=0)
    options = parser.parse_args(words)
    with os.fdopen(options.pipe, "w", encoding="utf-8") as pipe:
        print(json.dumps({"event": "started"}), file=pipe, flush=True)
        found = _answer(options)
        print(json.dumps({"event": "ended", **found}, default=_plain), file=pipe, flush=True)
    return 0


def _answer(options: argparse.Namespace) -> dict[str, Any]:
    try:
        probe = probe_for(options.device)
        if options.stage == "facts":
            port, index = probe.place(options.device)
            virtual = [i.virtual for i in devices() if i.name == options.device]
            facts = {**probe.facts(port, index), "virtual": virtual == [True]}
            return {"facts": facts, "index": index}
        stage = BY_NAME[options.stage]
        if options.replay is not None:
            return replay_stage(stage, options.device, probe, options.replay, options.index)
        if options.record is None:
            return run_stage(stage, options.device, probe, None)
        with options.record.open("w", encoding="utf-8") as record:
            return run_stage(stage, options.device, probe, record)
    except RawGpuError as error:
        kinds = [c.__name__ for c in type(error).__mro__ if issubclass(c, RawGpuError)]
        return {**failed(kinds, str(error)), "figures": {}, "seconds": 0.0}


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's; anything else as text."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


if __name__ == "__main__":
    sys.exit(main())
