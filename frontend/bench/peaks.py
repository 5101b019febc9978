"""What the machine can do at most, by kernels of our own, and what share of it a row reaches.

Three figures, measured when a run begins and when it ends, on as many threads as the run has:

- multiply-adds a second: vectors that depend on nothing but themselves, enough of them to hide the
  latency, and no memory;
- bytes a second of copies, read and written together, and of reads alone. Both depend on where the
  bytes lie, so they are measured over footprints from a first-level cache to memory, going round
  between inputs as the rows do. A row is held against the best figure of its footprint or a larger
  one.

Each is the best of its rounds, since a peak that a busy neighbour has lowered is none.

A row's least time is that of its arithmetic, or that of its bytes if it is longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from frontend import engine
from frontend.bench.replay import SHARED, Replay, prepare
from frontend.bench.timer import Call, Timer
from frontend.tensor import Tensor
from rawgpu.compiler_bridge import llvm

SETS = 3
"""Inputs that calls go round between, here and in the table."""
SIZES = tuple(4096 << shift for shift in range(0, 15, 2))
"""Bytes of one buffer: the footprints are SETS + 1 times as large."""
COLUMNS = 1024
ROUNDS_A_BLOCK = 20_000
ACCUMULATORS = 12
"""Chains of multiply-adds: two ports of latency 4 need 8; 16 registers hold 12 and two operands."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that a call reads and writes, and how many lie there for all calls together."""

    read_bytes: int
    written_bytes: int
    footprint_bytes: int


@dataclass
class Peaks:
    """GFLOP/s, and GB/s by footprint in bytes."""

    fma: float
    copy: dict[int, float] = field(default_factory=dict)
    read: dict[int, float] = field(default_factory=dict)

    def least_ms(self, flops: float, traffic: Traffic) -> float:
        """The time that a call cannot undercut: what is written is copied, the rest only read."""
        copied = 2 * min(traffic.read_bytes, traffic.written_bytes)
        rest = traffic.read_bytes + traffic.written_bytes - copied
        rest_speed = self.read if traffic.read_bytes > traffic.written_bytes else self.copy
        bytes_ns = copied / _best(self.copy, traffic) + rest / _best(rest_speed, traffic)
        return max(flops / self.fma, bytes_ns) / 1e6

    def raise_to(self, other: Peaks | None) -> None:
        """Keep the better of each figure."""
        if other is not None:
            self.fma = max(self.fma, other.fma)
            self.copy = {size: max(v, other.copy[size]) for size, v in self.copy.items()}
            self.read = {size: max(v, other.read[size]) for size, v in self.read.items()}

    def bound(self, flops: float, traffic: Traffic) -> str:
        """What limits such a call: `flops` or `bytes`."""
        return "flops" if self.least_ms(flops, traffic) > self.least_ms(0.0, traffic) else "bytes"


def _best(speeds: dict[int, float], traffic: Traffic) -> float:
    """The best at this footprint or a larger one; a cache is no slower than what is behind it."""
    largest = max(speeds)
    return max(v for size, v in speeds.items() if size >= min(traffic.footprint_bytes, largest))


def measure_peaks(device: str, timer: Timer) -> Peaks | None:
    """The machine's figures; None where the device is no CPU."""
    if not device.startswith("cpu:"):
        return None
    peaks = Peaks(fma_gflops(device, timer))
    for size_bytes in SIZES:
        data = np.ones(size_bytes // 4, np.float32)
        inputs = [Tensor(data, device=device) for _ in range(SETS)]
        footprint = (SETS + 1) * size_bytes
        copies = prepare([[-x] for x in inputs])
        copy_ms = min(timer.best_ms(copies), timer.best_ms(_moves(device, copies, inputs)))
        peaks.copy[footprint] = 2 * size_bytes / copy_ms / 1e6
        peaks.read[footprint] = size_bytes / _reading_ms(device, timer, inputs) / 1e6
    return peaks


def _reading_ms(device: str, timer: Timer, inputs: Sequence[Tensor]) -> float:
    """The best of a sum, and of a product with a vector, which reads several streams at once."""
    sums = prepare([[x.sum()] for x in inputs])
    vector = Tensor(np.ones(COLUMNS, np.float32), device=device)
    products = prepare([[x.reshape(-1, COLUMNS).matmul(vector)] for x in inputs])
    return min(timer.best_ms(sums), timer.best_ms(products))


def _moves(device: str, copies: Sequence[Replay], inputs: Sequence[Tensor]) -> list[Call]:
    """The same copies by the device's own copy command."""
    target = copies[0].results[0].storage
    calls: list[Call] = []
    for x in inputs:
        recording = engine.opened(device).queue.record()
        recording.copy(target.buffer, x.node.storage.buffer, target.size_bytes)
        calls.append(recording.replay)
    return calls


def fma_gflops(device: str, timer: Timer) -> float:
    """GFLOP/s of float32 multiply-adds in registers."""
    opened = engine.opened(device)
    lanes = opened.target.machine.lanes(32)
    image = llvm.compile_ir(_fma_text(lanes), opened.target.llvm)
    kernel = opened.device.load(image)["multiply_adds"]
    out = Tensor(np.zeros(lanes * timer.threads, np.float32), device=device)
    recording = opened.queue.record()
    recording.launch(kernel, [out.node.storage.buffer], grid=timer.threads, work_ns=SHARED)
    ms = timer.best_ms([recording.replay])
    flops = 2 * lanes * ACCUMULATORS * ROUNDS_A_BLOCK * timer.threads
    return flops / ms / 1e6


def _fma_text(lanes: int) -> str:
    """A block does its rounds on accumulators that start apart and converge, and stores a sum."""
    vector = f"<{lanes} x float>"
    numbers = range(ACCUMULATORS)
    phis = [
        f"  %a{i} = phi {vector} [ splat (float {float(i)}), %block ], [ %b{i}, %round ]"
        for i in numbers
    ]
    fmas = [
        f"  %b{i} = call {vector} @fma({vector} %a{i}, {vector} splat (float 5.0e-1), "
        f"{vector} splat (float 1.0))"
        for i in numbers
    ]
    sums = [
        f"  %s{i} = fadd {vector} %b{i}, %{f's{i - 1}' if i > 1 else 'b0'}" for i in numbers[1:]
    ]
    lines = [
        "define void @multiply_adds(ptr %args, i64 %begin, i64 %end) {",
        "entry:",
        "  %out = load ptr, ptr %args",
        "  br label %block",
        "block:",
        "  %at = phi i64 [ %begin, %entry ], [ %after, %stored ]",
        "  br label %round",
        "round:",
        "  %r = phi i64 [ 0, %block ], [ %r.next, %round ]",
        *phis,
        *fmas,
        "  %r.next = add i64 %r, 1",
        f"  %more = icmp ult i64 %r.next, {ROUNDS_A_BLOCK}",
        "  br i1 %more, label %round, label %stored",
        "stored:",
        *sums,
        f"  %place = getelementptr {vector}, ptr %out, i64 %at",
        f"  store {vector} %s{ACCUMULATORS - 1}, ptr %place, align 4",
        "  %after = add i64 %at, 1",
        "  %again = icmp slt i64 %after, %end",
        "  br i1 %again, label %block, label %done",
        "done:",
        "  ret void",
        "}",
        f"declare {vector} @fma({vector}, {vector}, {vector})",
    ]
    return "\n".join(lines).replace("@fma(", f"@llvm.fma.v{lanes}f32(") + "\n"
