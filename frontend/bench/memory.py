"""`rawgpu bench memory`: what stays behind after many cycles, and how much a training step holds.

Three figures. Growth of resident memory over the last half of many create, realize and drop cycles,
and of many recorded training steps. The peak of device memory in one training step, beside the
lower bound that its tensors set: at every kernel of the step, all values that are still to be read,
or are results, must lie somewhere. And what is left open once the devices are closed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from frontend import Tensor, engine, jit, nn, optim
from frontend.capture import Jit
from frontend.schedule.plan import Plan
from rawgpu.cli.show import table

CYCLES = 10_000
STEPS = 1_000
BATCH = 64
IMAGE = 16


@dataclass(frozen=True)
class Growth:
    """Resident memory over a series of cycles."""

    cycles: int
    bytes_a_cycle: float
    """Over the last half; what is set up once has long been there."""


@dataclass(frozen=True)
class Peak:
    """Device memory in one training step."""

    peak_bytes: int
    bound_bytes: int

    @property
    def ratio(self) -> float:
        return self.peak_bytes / self.bound_bytes


def resident_bytes() -> int:
    """Memory of this process that lies in RAM; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(cycle: Callable[[int], object], cycles: int) -> Growth:
    """Run `cycle(number)` that often."""
    half = cycles // 2
    for number in range(half):
        cycle(number)
    gc.collect()
    before = resident_bytes()
    for number in range(half, cycles):
        cycle(number)
    gc.collect()
    return Growth(cycles, max(0, resident_bytes() - before) / (cycles - half))


def create_and_drop(device: str, cycles: int = CYCLES) -> Growth:
    """New tensors of a few forms, computed, read and dropped."""
    sizes = (1, 100, 5_000, 300_000)
    hosts = [np.ones(n, np.float32) for n in sizes]

    def cycle(number: int) -> None:
        x = Tensor(hosts[number % len(hosts)], device=device)
        y = (x * 2 + 1).realize()
        assert y.sum().item() == 3 * x.size, number

    return growth(cycle, cycles)


class Network(nn.Module):
    """Two convolutions, a pool and two linear layers."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = nn.Linear(32 * (IMAGE // 2) ** 2, 64)
        self.scores = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Scores (n, 10) of images (n, 1, 16, 16)."""
        seen = self.second(self.first(images).relu()).relu()
        hidden: Tensor = self.hidden(seen.max_pool2d(2).flatten(1)).relu()
        scores: Tensor = self.scores(hidden)
        return scores


class Training:
    """A network, its optimiser, and a recorded training step on random images."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.model = Network().to(device)
        self.optimizer = optim.Adam(self.model.parameters(), lr=1e-3)
        self.step: Jit[[Tensor, Tensor], Tensor] = jit(self._step)
        rng = np.random.default_rng(7)
        images = rng.random((4, BATCH, 1, IMAGE, IMAGE), dtype=np.float32)
        labels = rng.integers(0, 10, (4, BATCH))
        self.images = [Tensor(x, device=device).realize() for x in images]
        self.labels = [Tensor(y, device=device).realize() for y in labels]

    def _step(self, images: Tensor, labels: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss: Tensor = self.model(images).cross_entropy(labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def cycle(self, number: int) -> None:
        """One step; reads the loss now and then, as training loops do."""
        at = number % len(self.images)
        loss = self.step(self.images[at], self.labels[at])
        if number % 50 == 0:
            assert np.isfinite(loss.item()), number

    def plan(self) -> Plan:
        """The plan of the recorded step."""
        (recordings,) = self.step._recordings.values()
        return recordings[0].plan


def train(device: str, steps: int = STEPS) -> tuple[Growth, Peak]:
    """Many training steps, and the memory of one."""
    training = Training(device)
    grown = growth(training.cycle, steps)
    return grown, step_peak(training)


def step_peak(training: Training) -> Peak:
    """Peak of one step beyond what lies on the device and is none of the step's."""
    training.cycle(1)
    training.cycle(2)
    gc.collect()
    memory = engine.opened(training.device).device
    plan = training.plan()
    leaves = sum(p.size_bytes for p in plan.places if p.kind == "leaf")
    strangers = memory.memory().in_use_bytes - leaves
    memory.reset_peak()
    training.cycle(3)
    return Peak(memory.memory().peak_bytes - strangers, liveness_bound(plan))


def liveness_bound(plan: Plan) -> int:
    """Bytes that must lie somewhere at the plan's fullest kernel, whatever the placement.

    Leaves belong to the caller and stay, unless a result takes their place; a result stays from the
    kernel that first writes it, a temporary from its first kernel to its last.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, step in enumerate(plan.steps):
        for place in step.buffers:
            first.setdefault(place, number)
            last[place] = number
    taken = {p.inside for p in plan.places if p.kind == "result" and p.inside >= 0}
    end = len(plan.steps)
    alive = [0] * (end + 1)
    for i, p in enumerate(plan.places):
        if p.kind == "leaf":
            begin, stop = 0, last.get(i, 0) if p.number in taken else end
        elif p.kind == "result":
            begin, stop = first.get(i, 0) + (p.inside >= 0), end
        elif i in first:
            begin, stop = first[i], last[i]
        else:
            continue
        for number in range(begin, stop + 1):
            alive[number] += p.size_bytes
    return max(alive)


def left_open() -> dict[str, int]:
    """Descriptors and threads that this process has beyond the first thread."""
    descriptors = Path("/proc/self/fd")
    count = len(list(descriptors.iterdir())) - 1 if descriptors.exists() else 0
    return {"descriptors": count, "threads": threading.active_count() - 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many cycles, and where."""
    parser.add_argument("--cycles", type=int, default=CYCLES, help=f"cycles ({CYCLES})")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"training steps ({STEPS})")
    parser.add_argument("--device", help="the device (RAWGPU_DEVICE, or the CPU)")


def run(options: argparse.Namespace) -> int:
    """Measure and print; 1 if memory grows, or a step holds more than 1.3 times what it must."""
    device = engine.check_device(options.device) if options.device else engine.default_device()
    dropped = create_and_drop(device, options.cycles)
    trained, peak = train(device, options.steps)
    result = {
        "device": device,
        "cycles": dropped.cycles,
        "growth_bytes_a_cycle": dropped.bytes_a_cycle,
        "steps": trained.cycles,
        "growth_bytes_a_step": trained.bytes_a_cycle,
        "step_peak_bytes": peak.peak_bytes,
        "step_bound_bytes": peak.bound_bytes,
        "step_peak_ratio": peak.ratio,
    }
    if options.json:
        print(json.dumps(result))
    else:
        cells = {k: f"{v:.3f}" if isinstance(v, float) else str(v) for k, v in result.items()}
        print(table(("MEASURED", ""), list(cells.items())))
    grows = max(dropped.bytes_a_cycle, trained.bytes_a_cycle)
    return 0 if grows < 1024 and peak.ratio <= 1.3 else 1
