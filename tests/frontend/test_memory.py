"""Nothing stays behind: not after thousands of tensors, not after training, not after closing."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from frontend import Tensor, engine
from frontend.bench import memory
from frontend.schedule.plan import Code, Place, Plan, Step
from tests.frontend.evaluator import uses_reference

DEVICE = "cpu:0"
KIB = 1024
pytestmark = pytest.mark.skipif(uses_reference(), reason="measures the real engine")


@pytest.fixture(scope="module")
def training() -> memory.Training:
    return memory.Training(DEVICE)


def test_dropped_tensors_give_their_memory_back() -> None:
    device = engine.opened(DEVICE).device
    keep = Tensor(np.ones(1000, np.float32), device=DEVICE).realize()
    before = device.memory().in_use_bytes
    for _ in range(20):
        x = Tensor(np.ones(100_000, np.float32), device=DEVICE)
        (x * 2 + keep.sum()).realize()
        del x
    assert device.memory().in_use_bytes == before


def test_resident_memory_does_not_grow_with_tensors() -> None:
    assert memory.create_and_drop(DEVICE, cycles=1500).bytes_a_cycle < KIB


@pytest.mark.full
def test_resident_memory_does_not_grow_with_ten_thousand_cycles() -> None:
    assert memory.create_and_drop(DEVICE).bytes_a_cycle < KIB


def test_training_holds_the_same_memory_after_every_step(training: memory.Training) -> None:
    device = engine.opened(DEVICE).device
    for number in range(4):
        training.cycle(number)
    before = device.memory().in_use_bytes
    for number in range(8):
        training.cycle(number)
        assert device.memory().in_use_bytes == before


def test_a_training_step_holds_little_more_than_it_must(training: memory.Training) -> None:
    training.cycle(0)
    peak = memory.step_peak(training)
    assert peak.bound_bytes > 1_000_000
    assert peak.peak_bytes >= peak.bound_bytes
    assert peak.ratio <= 1.3


@pytest.mark.full
def test_a_thousand_training_steps_do_not_grow() -> None:
    grown, peak = memory.train(DEVICE)
    assert grown.bytes_a_cycle < KIB
    assert peak.ratio <= 1.3


def test_the_bound_counts_what_is_alive_together() -> None:
    code = Code("k", "", 1, 0, 0)
    places = [
        Place("leaf", DEVICE, 1000, 0),
        Place("temporary", DEVICE, 300),
        Place("temporary", DEVICE, 200),
        Place("result", DEVICE, 50, 0),
    ]
    steps = [Step(DEVICE, 0, [0, 1]), Step(DEVICE, 0, [1, 2]), Step(DEVICE, 0, [2, 3])]
    plan = Plan([code], steps, places, {DEVICE: 512})
    assert memory.liveness_bound(plan) == 1000 + 300 + 200


CLOSING = """
import json, os
import numpy as np
from frontend import Tensor, engine
from rawgpu.compiler_bridge.workers import pool

def held():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

before = held()
x = Tensor(np.ones((300, 300), np.float32))
value = ((x @ x).sum() + x.exp().sum()).item()
during = held()
engine.close()
pool().close()
print(json.dumps([before, during, held(), value]))
"""


@pytest.mark.host  # a GPU's connection to its kernel driver outlives devices
@pytest.mark.skipif(sys.platform != "linux", reason="counts entries of /proc")
def test_closing_returns_every_descriptor_and_thread() -> None:
    command = [sys.executable, "-c", CLOSING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    before, during, after, value = json.loads(done.stdout)
    assert value > 2.7e7
    assert during >= before
    assert after == before
