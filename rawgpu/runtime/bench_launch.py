"""What a launch costs, measured from Python, with its results checked.

Two numbers: replaying a recording of one launch that adds one element, and the cost per launch of a
recording of 10,000, each with its own packet and arguments, all adding to the same element. One
argument is patched between replays, so that nothing can be left out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rawgpu.compiler_bridge.llvm import Target, compile_in_process
from rawgpu.contract import Device, Kernel, Parameter
from rawgpu.native.elf import signature_note_ir
from rawgpu.runtime.device import open_device

LAUNCHES = 10_000
REPLAYS = 20_000
ROUNDS = 30

_ADD = """
define void @add(ptr %arguments, i64 %begin, i64 %end) {
  %x = load ptr, ptr %arguments
  %a.at = getelementptr i64, ptr %arguments, i64 1
  %a = load float, ptr %a.at
  %old = load float, ptr %x
  %new = fadd float %old, %a
  store float %new, ptr %x
  ret void
}
"""


def _kernel(device: Device) -> Kernel:
    note = signature_note_ir({"add": [Parameter("x", "pointer", True), Parameter("a", "float32")]})
    facts = device.target()
    target = Target(facts["triple"], facts["cpu"], facts["features"])
    return device.load(compile_in_process(_ADD + note, target))["add"]


def _median_ns(call: Callable[[], Any], count: int) -> float:
    """Median time of one call, less what the clock itself costs."""
    clock = time.perf_counter_ns
    calls, nothing = [], []
    for _ in range(count):
        start = clock()
        call()
        end = clock()
        calls.append(end - start)
        nothing.append(clock() - end)
    return max(statistics.median(calls) - statistics.median(nothing), 0.0)


def _one(device: Device, kernel: Kernel, replays: int) -> tuple[float, bool]:
    x = device.array(np.zeros(1, np.float32))
    queue = device.queue()
    recording = queue.record()
    recording.launch(kernel, [x, 1.0])
    recording.replay()
    median_ns = _median_ns(recording.replay, replays)
    queue.synchronize()
    right = x.numpy()[0] == replays + 1
    queue.close()
    return median_ns, bool(right)


def _many(device: Device, kernel: Kernel, launches: int, rounds: int) -> tuple[float, bool]:
    x = device.array(np.zeros(1, np.float32))
    queue = device.queue()
    recording = queue.record()
    for _ in range(launches):
        recording.launch(kernel, [x, 1.0])
    recording.replay()
    expected = launches
    right = x.numpy()[0] == expected
    times = []
    for turn in range(rounds):
        recording.patch(turn * 7919 % launches, 1, float(turn % 5))
        start = time.perf_counter_ns()
        recording.replay()
        queue.synchronize()
        times.append((time.perf_counter_ns() - start) / launches)
        recording.patch(turn * 7919 % launches, 1, 1.0)
        expected += launches - 1 + turn % 5
        right = right and x.numpy()[0] == expected
    queue.close()
    return statistics.median(times), bool(right)


def bench_launch(
    name: str = "cpu:0", *, launches: int = LAUNCHES, replays: int = REPLAYS, rounds: int = ROUNDS
) -> dict[str, float | bool]:
    """Measure on device `name`; `checked` says whether every result was right."""
    assert launches * (rounds + 1) < 1 << 24, "the sum must stay exact in float32"
    with open_device(name) as device:
        kernel = _kernel(device)
        one_ns, one_right = _one(device, kernel, replays)
        many_ns, many_right = _many(device, kernel, launches, rounds)
    return {
        "replay_1x1_us": one_ns / 1000,
        "recording_10000_us_per_launch": many_ns / 1000,
        "checked": one_right and many_right,
    }
