"""`rawgpu bench frontend`: what it costs to get from Python to kernels that run.

The subject is a training step of a transformer encoder of twelve layers, loss, gradients and Adam
included. Three figures, each from a process of its own that has imported everything:

- **cold**: the disk cache is empty. From the graph to a plan with every kernel as text, and from
  there, by LLVM, to machine code that is loaded.
- **warm**: another process, the same cache. The plan and the objects are read and loaded.
- **a replay**: Python's time of one call of the recorded step, by its number of kernels. The
  kernels themselves are left out: recordings stand in that do nothing. What one launch costs the
  device is `rawgpu bench launch`.

All of it happens in the first call of the recorded step. Its other parts are told, and belong to
neither sum: the graph, which is Python of the network, its gradients and its optimiser, and the
first run of the kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from frontend import Tensor, engine, jit, nn, optim
from frontend.bench.training import along, encoder
from frontend.bench.training_memory import child_environment
from frontend.schedule.plan import Step
from rawgpu.cli.show import table

LAYERS = 12
WIDTH, HEADS = 384, 12
BATCH, LENGTH = 8, 128
REPLAYS = 30
WANTED = {"cold_s": 4.0, "warm_s": 0.15, "python_us_a_kernel": 1.0}
"""What these figures should be at most."""
_CHILD = "import sys; from frontend.bench.front_end import child; child(*sys.argv[1:])"


class Training:
    """The network, its optimiser, and a step."""

    def __init__(self, device: str, layers: int) -> None:
        self.model = encoder(nn, layers, WIDTH, HEADS).to(device)
        self.optimizer = optim.Adam(self.model.parameters(), lr=1e-3)
        shape = (BATCH, LENGTH, WIDTH)
        self.batch = [Tensor.ones(*shape, device=device).realize() for _ in range(2)]
        for state in (*self.model.parameters(), *self.batch):
            state.realize()

    def step(self, x: Tensor, target: Tensor) -> Tensor:
        self.model.zero_grad()
        loss: Tensor = along(self.model(x), target, nn.functional)
        loss.backward()
        self.optimizer.step()
        return loss


def ready(device: str, layers: int) -> dict[str, float]:
    """Seconds of each part of the first call of a recorded step; device and libraries are up."""
    training = Training(device, layers)
    step = jit(training.step)
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    with (
        timed(seconds, "plan_s", engine, "find_plan"),
        timed(seconds, "machine_code_s", engine, "load_kernels"),
        timed(seconds, "first_run_s", engine.Run, "_run"),
    ):
        step(*training.batch)
    whole = time.perf_counter() - began
    (recordings,) = step._recordings.values()
    plan = recordings[-1].plan
    return {
        "graph_s": whole - sum(seconds.values()),
        **seconds,
        "kernels": len(plan.steps),
        "different_kernels": len(plan.codes),
    }


@contextmanager
def timed(seconds: dict[str, float], key: str, owner: Any, name: str) -> Iterator[None]:
    """Add up what calls of `owner.name` take within."""
    function = getattr(owner, name)
    seconds[key] = 0.0

    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[key] += time.perf_counter() - began

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, function)


class _Nothing:
    """Stands in for a recording."""

    def replay(self, words: Any = None) -> None:
        """Do nothing."""


def replayed(device: str, layers: int) -> dict[str, float]:
    """Python's microseconds a kernel of a recorded step, and of the call as a whole."""
    training = Training(device, layers)
    step = jit(training.step)
    for _ in range(2):
        step(*training.batch)
    (recordings,) = step._recordings.values()
    run = recordings[-1].run
    run._segments = [s if isinstance(s, Step) else _Nothing() for s in run._segments]
    call_us = _median_us(lambda: step(*training.batch))
    kernels = len(run.plan.steps)
    return {"call_us": call_us, "python_us_a_kernel": call_us / kernels, "jit_kernels": kernels}


def _median_us(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPLAYS):
        began = time.process_time_ns()
        call()
        times.append(time.process_time_ns() - began)
    return statistics.median(times) / 1000


PARTS = {"ready": ready, "replayed": replayed}


def child(part: str, device: str, layers: str) -> None:
    """In a process of its own: measure a part, with the device and LLVM up, and print it."""
    Tensor([1.0], device=device).sum().item()
    print(json.dumps(PARTS[part](device, int(layers))))


def in_child(part: str, device: str, layers: int, cache: str) -> dict[str, float]:
    """The figures of a part, measured in another process with this disk cache."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, part, device, str(layers)],
        env=child_environment(RAWGPU_CACHE=cache),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(device: str, layers: int) -> dict[str, Any]:
    """All figures; `cold_s` and `warm_s` are what scheduling and code generation take."""
    with tempfile.TemporaryDirectory() as cache:
        cold = in_child("ready", device, layers, cache)
        warm = in_child("ready", device, layers, cache)
        replay = in_child("replayed", device, layers, cache)
    return {
        "device": device,
        "layers": layers,
        "cold_s": cold["plan_s"] + cold["machine_code_s"],
        "warm_s": warm["plan_s"] + warm["machine_code_s"],
        "python_us_a_kernel": replay["python_us_a_kernel"],
        "cold": cold,
        "warm": warm,
        "replay": replay,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How deep, and where."""
    parser.add_argument("--layers", type=int, default=LAYERS, help=f"of the encoder ({LAYERS})")
    parser.add_argument("--device", help="the device (RAWGPU_DEVICE, or the CPU)")


def run(options: argparse.Namespace) -> int:
    """Measure and print. Times depend on the machine, so none of them is a failure."""
    device = engine.check_device(options.device) if options.device else engine.default_device()
    found = measure(device, options.layers)
    print(json.dumps(found) if options.json else text(found))
    return 0


def text(found: dict[str, Any]) -> str:
    """As tables: the three figures beside what is wanted, then their parts."""
    head = [[key, f"{found[key]:.3f}", f"{limit:g}"] for key, limit in WANTED.items()]
    parts = {**found["cold"], **found["warm"]}
    rows = [
        [key, *(f"{found[when][key]:.3f}".removesuffix(".000") for when in ("cold", "warm"))]
        for key in parts
    ]
    replay = ", ".join(f"{key} {value:.3f}" for key, value in found["replay"].items())
    return "\n".join(
        [
            table(("MEASURED", "", "WANTED AT MOST"), head), "",
            table(("PARTS", "COLD", "WARM"), rows), "",
            f"recorded: {replay}",
        ]
    )  # fmt: skip
