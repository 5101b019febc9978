"""How much memory a training step takes, each side in a process of its own.

What a process holds at most is Linux's `VmHWM`, which `/proc/self/clear_refs` sets back. The figure
is its growth: from a process that has imported everything and computed something small, before the
network and the batches are made, to the highest point within some steps after the first. Weights,
their moments, batches, gradients and activations count, and whatever the library keeps beside them.
Ours has a second figure, of what the device's allocator handed out.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

WARM_UP, STEPS = 4, 4
_CHILD = "import sys; from frontend.bench.training_memory import child; child(*sys.argv[1:])"


def memory_of(workload: str, side: str, device: str, threads: int) -> dict[str, Any]:
    """`rss_bytes`, and of ours `device_bytes`, None where the system does not say."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, workload, side, device, str(threads)],
        env=child_environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def child_environment(**more: str) -> dict[str, str]:
    """This process's, with this source tree to import from."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def child(workload: str, side: str, device: str, threads: str) -> None:
    """In a process of its own: run the steps and print what they took."""
    from frontend.bench import training
    from frontend.bench.rivals import pytorch

    (work,) = (w for w in training.WORKLOADS if w.name == workload)
    if side == "torch":
        torch = pytorch()
        torch.set_num_threads(int(threads))
        torch.ones(8).add(1)
        memory = None
    else:
        from frontend import Tensor, engine

        Tensor([1.0], device=device).sum().item()
        memory = engine.opened(device).device
    before = reset_peak_rss()
    model = training.Theirs(work, torch) if side == "torch" else training.Ours(work, device, None)
    for number in range(WARM_UP):
        model.calls[number % len(model.calls)]()
    gc.collect()
    reset_peak_rss()
    if memory is not None:
        memory.reset_peak()
    for number in range(STEPS):
        model.calls[number % len(model.calls)]()
    peak = peak_rss()
    print(
        json.dumps(
            {
                "rss_bytes": None if before is None or peak is None else peak - before,
                "device_bytes": None if memory is None else memory.memory().peak_bytes,
            }
        )
    )


def peak_rss() -> int | None:
    """The most memory of this process that lay in RAM since it was set back; None if not told."""
    return _status("VmHWM")


def reset_peak_rss() -> int | None:
    """Let the peak start from now; what lies in RAM now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(key: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith(f"{key}:")]
    return int(found[0][1]) * 1024 if found else None
