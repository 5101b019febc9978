"""The stages, in order, and what each needs. Functions stand in the `stages_*.py` files.

A stage that needs one that failed is skipped. Limits are generous: a stage that reaches its limit
hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rawgpu.hwcheck import stages_faults, stages_kernels, stages_memory, stages_queues, stages_speed
from rawgpu.hwcheck.check import Check


@dataclass(frozen=True)
class Stage:
    """One step of the self-test."""

    name: str
    title: str
    run: Callable[[Check], None]
    needs: tuple[str, ...] = ()
    limit_s: int = 60
    faults: bool = False
    """Whether it breaks something on purpose, and runs only when asked."""


STAGES: tuple[Stage, ...] = (
    Stage("nodes", "device nodes and topology", stages_memory.nodes),
    Stage("abi", "the kernel's interface", stages_memory.abi, ("nodes",)),
    Stage("memory", "memory, allocated and mapped", stages_memory.memory, ("abi",)),
    Stage("doorbell", "an empty packet", stages_queues.doorbell, ("memory",)),
    Stage("fence", "fences, written and waited for", stages_queues.fence, ("doorbell",)),
    Stage("timestamp", "the device's clock", stages_queues.timestamp, ("fence",)),
    Stage("copy", "the copy engine", stages_memory.copy_engine, ("fence",)),
    Stage("visibility", "who sees whose writes; the BAR", stages_memory.visibility, ("fence",)),
    Stage("kernel", "kernels, empty and not", stages_kernels.kernel,
          ("fence",)),
    Stage("arguments", "arguments of every size", stages_kernels.arguments, ("kernel",)),
    Stage("local", "all local memory", stages_kernels.local_memory, ("kernel",)),
    Stage("scratch", "private memory", stages_kernels.scratch, ("kernel",)),
    Stage("barriers", "barriers in a block", stages_kernels.barriers, ("kernel",)),
    Stage("events", "sleep until an interrupt", stages_queues.events, ("fence",)),
    Stage("queues", "two queues that meet", stages_queues.two_queues, ("kernel",)),
    Stage("recording", "a recording, patched and replayed", stages_queues.recording, ("kernel",)),
    Stage("bandwidth", "copies and a copying kernel, timed", stages_speed.bandwidth,
          ("timestamp", "kernel"), 120),
    Stage("matmul", "a matrix product, checked and timed", stages_speed.matmul,
          ("timestamp", "kernel"), 120),
    Stage("fault-read", "a read where nothing is", stages_faults.read, ("kernel",), 90, True),
    Stage("fault-write", "a write where nothing is", stages_faults.write, ("kernel",), 90, True),
    Stage("fault-illegal", "an instruction that is none", stages_faults.illegal, ("kernel",), 90,
          True),
    Stage("fault-loop", "a kernel that never ends", stages_faults.loop, ("kernel",), 90, True),
    Stage("recovery", "the device works after all that", stages_faults.recovery, ("kernel",), 90,
          True),
)  # fmt: skip

BY_NAME = {stage.name: stage for stage in STAGES}
