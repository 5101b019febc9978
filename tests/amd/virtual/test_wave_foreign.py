"""Meanings against another machine: the same LLVM functions on this processor and on the engine."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.virtual import wave
from rawgpu.compiler_bridge.llvm import Job, Target, compile_many, host_target
from rawgpu.native import system
from rawgpu.native.image import Image
from tests.amd.virtual.wave_foreign import gpu_text, host_text
from tests.amd.virtual.wave_rig import Arena, Kernel, attributes, finish, services

ITEMS = 64
RECORD = np.dtype([("a", "u4"), ("b", "u4"), ("c", "u8"), ("x", "f4"), ("y", "f4")])
PER_FAMILY = 12


def records(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    data = np.zeros(ITEMS, RECORD)
    for name, high in (("a", 1 << 32), ("b", 1 << 32), ("c", 1 << 63)):
        data[name] = rng.integers(0, high, ITEMS) >> rng.integers(0, 31, ITEMS)
    for name in ("x", "y"):
        scale = 10.0 ** rng.integers(-6, 7, ITEMS)
        data[name] = rng.standard_normal(ITEMS) * scale
    data["x"][:8] = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3.4e38, 0.5]
    return data


def on_host(image: bytes, data: Any) -> Any:
    loaded = Image(image)
    out = np.zeros(ITEMS, np.uint64)
    call = system.ffi.cast("void (*)(uint64_t, uint64_t, uint64_t)", loaded.address("k"))
    call(data.ctypes.data, out.ctypes.data, ITEMS)
    return out


def on_gpu(image: bytes, generation: str, data: Any, *, native: bool) -> Any:
    arena = Arena(4 << 20)
    kernel = Kernel(arena, image, "k", generation)
    source, target = arena.put(data.tobytes()), arena.space(8 * ITEMS)
    dispatch = kernel.dispatch(struct.pack("<QQ", source, target), (1, 1, 1), (ITEMS, 1, 1))
    run = wave.run_dispatch if native else wave.interpret_dispatch
    finish(run(dispatch, arena, services()))
    return np.array(arena.view(target, np.uint64, ITEMS))


@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201", "gfx942", "gfx90a"])
def test_random_functions_give_what_this_processor_gives(generation: str) -> None:
    """Both engines; half of the seeds each, since they share the meanings."""
    gpu, host = Target("amdgcn-amd-amdhsa", generation), host_target()
    jobs = [
        job
        for seed in range(PER_FAMILY)
        for job in (
            Job(host_text(seed), host, "light", 2),
            Job(gpu_text(seed, attributes(generation, ITEMS)), gpu, "light", 2),
        )
    ]
    images = compile_many(jobs)
    wrong = []
    for seed in range(PER_FAMILY):
        data = records(seed)
        want = on_host(images[2 * seed], data)
        got = on_gpu(images[2 * seed + 1], generation, data, native=seed % 2 == 1)
        if not (got == want).all():
            wrong.append((seed, np.flatnonzero(got != want).tolist()))
    assert not wrong
