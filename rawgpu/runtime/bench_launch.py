"""What a launch costs, measured from Python, with its results checked.

Two numbers: replaying a recording of one launch that adds one element, and the cost per launch of a
recording of 10,000 (500 on a virtual GPU), each with its own packet and arguments, all adding to
the same element. One argument is patched between replays, so that nothing can be left out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rawgpu.compiler_bridge.llvm import Target, compile_ir
from rawgpu.contract import Device, Kernel
from rawgpu.errors import UnsupportedDevice
from rawgpu.runtime.device import open_device
from rawgpu.runtime.discover import devices

LAUNCHES = 10_000
REPLAYS = 20_000
ROUNDS = 30
FEW = {"launches": 500, "replays": 200, "rounds": 3}
"""Where the GPU is virtual: its launches take a thousand times longer."""

ONE = np.float32(1)

_ADD_HOST = """
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
_ADD_AMDGPU = """
define amdgpu_kernel void @add(ptr addrspace(1) %x, float %a) #0 {
  %old = load float, ptr addrspace(1) %x
  %new = fadd float %old, %a
  store float %new, ptr addrspace(1) %x
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="1,1" "amdgpu-no-implicitarg-ptr"
  "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-hostcall-ptr" }
"""
ADD = {"x86_64": _ADD_HOST, "aarch64": _ADD_HOST, "amdgcn": _ADD_AMDGPU}
"""The kernel by the first word of the target's triple."""


def _kernel(device: Device) -> Kernel:
    facts = device.target()
    target = Target(facts["triple"], facts["cpu"], facts["features"])
    if target.arch not in ADD:
        raise UnsupportedDevice(
            f"the launch benchmark has no kernel for {target.arch!r}",
            hint=f"it measures devices of {', '.join(ADD)}",
        )
    return device.load(compile_ir(ADD[target.arch], target))["add"]


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
    recording.launch(kernel, [x, ONE])
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
        recording.launch(kernel, [x, ONE])
    recording.replay()
    queue.synchronize()
    expected = launches
    right = x.numpy()[0] == expected
    times = []
    for turn in range(rounds):
        recording.patch(turn * 7919 % launches, 1, np.float32(turn % 5))
        start = time.perf_counter_ns()
        recording.replay()
        queue.synchronize()
        times.append((time.perf_counter_ns() - start) / launches)
        recording.patch(turn * 7919 % launches, 1, ONE)
        expected += launches - 1 + turn % 5
        right = right and x.numpy()[0] == expected
    queue.close()
    return statistics.median(times), bool(right)


def sizes(name: str) -> dict[str, int]:
    """How many launches, replays and rounds: fewer where the GPU is virtual."""
    virtual = any(info.virtual for info in devices() if info.name == name)
    return FEW if virtual else {"launches": LAUNCHES, "replays": REPLAYS, "rounds": ROUNDS}


def bench_launch(
    name: str = "cpu:0", *, launches: int = LAUNCHES, replays: int = REPLAYS, rounds: int = ROUNDS
) -> dict[str, float | bool]:
    """Measure on device `name`; `checked` says whether every result was right.

    Raises UnsupportedDevice for a device whose target has no kernel here.
    """
    assert launches * (rounds + 1) < 1 << 24, "the sum must stay exact in float32"
    with open_device(name) as device:
        kernel = _kernel(device)
        one_ns, one_right = _one(device, kernel, replays)
        many_ns, many_right = _many(device, kernel, launches, rounds)
    return {
        "replay_1x1_us": one_ns / 1000,
        f"recording_{launches}_us_per_launch": many_ns / 1000,
        "checked": one_right and many_right,
    }
