"""Graphs of the tensor library as AMD machine code on the wave engine, with no driver."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from frontend import Tensor, engine
from frontend.loops.machine import Machine
from frontend.schedule.plan import Plan, make_plan, signature
from frontend.target import Target
from rawgpu.amd.virtual.dispatch import Dispatch
from rawgpu.compiler_bridge import llvm
from tests.amd.virtual.wave_rig import Arena, Kernel


def target_for(generation: str) -> Target:
    lanes = 64 if generation.startswith("gfx9") else 32
    machine = Machine(
        registers=48, masked=True, block_lanes=lanes, row_bytes=32 << 10, stage_bytes=32 << 10
    )
    return Target(machine, llvm.Target("amdgcn-amd-amdhsa", generation, ""))


@functools.cache
def _object(text: str, target: llvm.Target) -> bytes:
    return llvm.compile_ir(text, target)


def run_on(
    tensor: Tensor, generation: str, run: Callable[[Dispatch, Arena], None], arena: Arena
) -> np.ndarray[Any, Any]:
    """The value of `tensor`, by `generation`'s machine code; its leaves must have values."""
    root = engine.base(tensor.node)
    plan: Plan = make_plan([root], {"cpu:0": target_for(generation)})
    _, leaves = signature([root])
    addresses = []
    arenas = {name: arena.space(size) for name, size in plan.arenas.items()}
    for place in plan.places:
        if place.kind == "leaf":
            storage = leaves[place.number].storage
            addresses.append(arena.put(storage.buffer.read(storage.size_bytes)))
        elif place.kind == "temporary":
            addresses.append(arenas[place.device] + place.offset)
        else:
            addresses.append(arena.space(max(place.size_bytes, 1)))
    lanes = target_for(generation).machine.block_lanes
    for step in plan.steps:
        code = plan.codes[step.code]
        kernel = Kernel(
            arena, _object(code.text, target_for(generation).llvm), code.name, generation
        )
        arguments = b"".join(struct.pack("<Q", addresses[b]) for b in step.buffers)
        run(kernel.dispatch(arguments, (code.blocks, 1, 1), (lanes, 1, 1)), arena)
    (result,) = [i for i, place in enumerate(plan.places) if place.kind == "result"]
    dtype = root.dtype.numpy
    count = plan.places[result].size_bytes // np.dtype(dtype).itemsize
    return np.array(arena.view(addresses[result], dtype, count)).reshape(tensor.shape)
