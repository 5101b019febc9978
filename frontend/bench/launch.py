"""`rawgpu bench launch`: what a launch costs, by hand and through a tensor.

The first two figures are `rawgpu/runtime/bench_launch.py`'s, with no tensor in sight: the replay of
one recorded launch, and the share of each launch in a recording of 10,000. The third is the whole
way of a tensor that is computed at once: `(a + a).realize()` for a graph whose plan is known.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from frontend import engine
from frontend.tensor import Tensor
from rawgpu.cli.show import table
from rawgpu.runtime.bench_launch import FEW, bench_launch, sizes

WARM_UP = 200
ROUNDS = 5000


def eager_add_us(device: str, rounds: int = ROUNDS) -> tuple[float, bool]:
    """Median time of `(a + a).realize()` on one element, and whether the last result was right."""
    a = Tensor([[1.5]], device=device).realize()
    times = []
    for _ in range(WARM_UP + rounds):
        began = time.perf_counter_ns()
        result = (a + a).realize()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times[WARM_UP:]) / 1000, result.item() == 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which device."""
    parser.add_argument("--device", help="the device to launch on (RAWGPU_DEVICE, or the CPU)")


def run(options: argparse.Namespace) -> int:
    """Measure and print; 1 if a result was wrong."""
    device = engine.check_device(options.device) if options.device else engine.default_device()
    counts = sizes(device)
    result: dict[str, object] = {"device": device, **bench_launch(device, **counts)}
    virtual = counts is FEW
    eager_us, right = eager_add_us(device, counts["replays"] if virtual else ROUNDS)
    result["eager_add_us"] = eager_us
    result["checked"] = bool(result["checked"]) and right
    if options.json:
        print(json.dumps(result))
    else:
        cells = {name: f"{v:.3f}" if isinstance(v, float) else str(v) for name, v in result.items()}
        print(table(("MEASURED", ""), list(cells.items())))
        if virtual:
            print("the GPU is virtual: these are times of its simulation")
    return 0 if result["checked"] else 1
