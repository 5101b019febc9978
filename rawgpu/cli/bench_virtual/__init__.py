"""`rawgpu bench virtual`: how fast virtual AMD GPUs run machine code, and how fast they lift it.

Fixed kernels that clang 19 compiled are launched through the driver, in one thread, with caches not
modelled (`strict` off); results are compared with NumPy's. Times are CPU time of the thread, the
median of some launches. Wave instructions per second count vector arithmetic and memory accesses of
vectors alone: no scalar instruction, branch or wait. Lift times are of straight code made on the
spot, first unknown to every cache, then found on disk.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time
from typing import Any

import numpy as np

import rawgpu
from rawgpu.cli.bench_virtual.kernels import BLOCK, CHIPS, Case, cases, object_path
from rawgpu.cli.bench_virtual.straight import ITEMS, LIVE, straight_code
from rawgpu.cli.show import table
from rawgpu.contract import Device

ROUNDS = 7
LENGTHS = 500, 1000, 2000, 4000
STEP_SHARE = 1.28
"""Instructions that a step of straight code comes to, about."""
COLUMNS = {
    "MS": "median CPU time of a launch and its wait, after the first",
    "M WAVE INSTR/S": "millions of vector-ALU and vector memory instructions of waves per second",
    "GFLOP/S": "operations of the kernel's formula, where it has one, by that time",
    "LIFT S": "time to make native code of the machine code, once",
    "STATIC": "vector instructions, of all in the kernel",
    "RESULT": "compared with NumPy's",
}
COUNTED = "vector-ALU and vector memory wave instructions"


def _counters() -> Any:
    return importlib.import_module("rawgpu.amd.virtual.wave").COUNTERS


def _library() -> Any:
    return importlib.import_module("rawgpu.amd.virtual.lift_library").LIBRARY


def run_case(gpu: Device, kernel: Any, case: Case, rounds: int) -> dict[str, object]:
    """Launch one kernel some times; what was measured."""
    inputs = [gpu.array(data) for data in case.inputs]
    out = gpu.array(np.zeros(case.want.shape, np.float32))
    counters, times = _counters(), []
    grid = (*case.groups, 1)
    executed = interpreted = 0
    for _ in range(1 + rounds):
        before, slow = counters.lifted_vectors, counters.interpreted
        began = time.thread_time()
        kernel(*inputs, out, *case.scalars, grid=grid, block=BLOCK)
        gpu.synchronize()
        times.append(time.thread_time() - began)
        executed = counters.lifted_vectors - before
        interpreted = counters.interpreted - slow
    seconds = statistics.median(times[1:])
    error = float(np.abs(out.numpy() - case.want).max())
    lifted = _library().made()[-1]
    return {
        "seconds": seconds,
        "wave_instructions": executed,
        "wave_instructions_per_s": executed / seconds,
        "gflop_per_s": case.operations / seconds / 1e9 if case.operations else None,
        "interpreted": interpreted,
        "static_instructions": lifted.count,
        "static_vector_instructions": lifted.vectors,
        "lift_s": lifted.seconds,
        "largest_error": error,
        "right": error <= case.error,
    }


def bench_kernels(chip: str, rounds: int = ROUNDS) -> dict[str, object]:
    """All fixed kernels on one chip."""
    _library().forget()
    with rawgpu.room(chip, strict=False), rawgpu.open("amd:0") as gpu:
        program = gpu.load(object_path(chip).read_bytes())
        return {case.name: run_case(gpu, program[case.name], case, rounds) for case in cases()}


def lift_time(chip: str, length: int) -> dict[str, object]:
    """Lift straight code of about so many instructions, then find it on disk."""
    salt = int.from_bytes(os.urandom(4), "little") >> 1
    image = straight_code(round((length - 3 * LIVE) / STEP_SHARE), chip, salt)
    found = []
    for _ in range(2):
        _library().forget()
        with rawgpu.room(chip, strict=False), rawgpu.open("amd:0") as gpu:
            x, y = (gpu.array(np.zeros(64 * (LIVE + 1), np.uint32)) for _ in range(2))
            gpu.load(image)["straight"](x, y, grid=512, block=ITEMS)
            gpu.synchronize()
        found.append(_library().made()[-1])
    return {
        "static_instructions": found[0].count,
        "not_lifted": sum(found[0].not_lifted.values()),
        "lift_s": found[0].seconds,
        "from_disk_s": found[1].seconds,
    }


def bench(chip: str, lengths: tuple[int, ...] = LENGTHS) -> dict[str, object]:
    """Everything on one chip."""
    return {"kernels": bench_kernels(chip), "lift": [lift_time(chip, n) for n in lengths]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which processors."""
    parser.add_argument(
        "--arch", "--chip", dest="chip", action="append", choices=CHIPS,
        help="such as gfx1100; may be given again; all, if not given",
    )  # fmt: skip
    parser.epilog = "\n".join(f"{name:16}{text}" for name, text in COLUMNS.items())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(options: argparse.Namespace) -> int:
    """Measure and print; 1 if a result was wrong."""
    results: dict[str, Any] = {chip: bench(chip) for chip in options.chip or CHIPS}
    right = all(k["right"] for found in results.values() for k in found["kernels"].values())
    if options.json:
        print(json.dumps({"counted": COUNTED, "chips": results, "checked": right}))
    else:
        for chip, found in results.items():
            _show(chip, found)
    return 0 if right else 1


def _show(chip: str, found: dict[str, Any]) -> None:
    print(f"{chip}: fixed kernels ({COUNTED}; --help explains the columns)")
    rows = [
        (
            name, f"{1e3 * k['seconds']:.2f}", f"{k['wave_instructions_per_s'] / 1e6:.1f}",
            f"{k['gflop_per_s']:.2f}" if k["gflop_per_s"] else "", f"{k['lift_s']:.3f}",
            f"{k['static_vector_instructions']} of {k['static_instructions']}",
            "right" if k["right"] else f"wrong by {k['largest_error']:.3g}",
        )
        for name, k in found["kernels"].items()
    ]  # fmt: skip
    head = ("KERNEL", "MS", "M WAVE INSTR/S", "GFLOP/S", "LIFT S", "STATIC", "RESULT")
    print(table(head, rows))
    lifts = [
        (str(n["static_instructions"]), f"{n['lift_s']:.3f}", f"{1e3 * n['from_disk_s']:.1f}")
        for n in found["lift"]
    ]
    print(f"\n{chip}: straight code of some lengths, lifted and then found on disk")
    print(table(("INSTRUCTIONS", "LIFT S", "FROM DISK MS"), lifts) + "\n")
