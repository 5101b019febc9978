"""Lifted kernels: when they are made, how groups and waves run, and the shapes of accesses."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.virtual import wave
from rawgpu.amd.virtual.dispatch import Dispatch
from rawgpu.amd.virtual.wave import COUNTERS, Wave
from rawgpu.amd.virtual.wave_operands import VECTOR_FORMATS
from tests.amd.virtual.test_wave import ITEM, SUM
from tests.amd.virtual.wave_one import made
from tests.amd.virtual.wave_one import run as run_code
from tests.amd.virtual.wave_rig import (
    Arena,
    Kernel,
    attributes,
    compile_kernel,
    finish,
    services,
)

GENERATIONS = ["gfx1100", "gfx1201", "gfx942", "gfx90a"]

STORE = (
    ITEM
    + """
define amdgpu_kernel void @k(ptr addrspace(1) %out) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %g, 256
  %n = add i32 %base, %i
  %v = OP i32 %i, 7
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %n
  store i32 %v, ptr addrspace(1) %o
  ret void
}
attributes #0 = { ATTRIBUTES }
"""
)

PICK = (
    ITEM
    + """
@room = internal addrspace(3) global [1024 x i32] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %index.at = getelementptr i32, ptr addrspace(1) %in, i32 %i
  %index = load i32, ptr addrspace(1) %index.at
  %table = getelementptr i32, ptr addrspace(1) %in, i32 64
  FILL
  %g1.at = getelementptr i32, ptr addrspace(1) %table, i32 %index
  %g1 = load i32, ptr addrspace(1) %g1.at
  %g4 = load <4 x i32>, ptr addrspace(1) %g1.at, align 4
  %l1.at = getelementptr i32, ptr addrspace(3) @room, i32 %index
  %l1 = load i32, ptr addrspace(3) %l1.at
  %l4 = load <4 x i32>, ptr addrspace(3) %l1.at, align 16
  %o1 = getelementptr [10 x i32], ptr addrspace(1) %out, i32 %i
  store i32 %g1, ptr addrspace(1) %o1
  %o2 = getelementptr i32, ptr addrspace(1) %o1, i32 1
  store i32 %l1, ptr addrspace(1) %o2
  %o3 = getelementptr i32, ptr addrspace(1) %o1, i32 2
  store <4 x i32> %g4, ptr addrspace(1) %o3, align 4
  %o4 = getelementptr i32, ptr addrspace(1) %o1, i32 6
  store <4 x i32> %l4, ptr addrspace(1) %o4, align 4
  ret void
}
attributes #0 = { ATTRIBUTES }
"""
)
FILL = "  %own = and i32 %i, 31\n" + "\n".join(  # every wave fills all of it
    f"""
  %t{n}.at = getelementptr i32, ptr addrspace(1) %table, i32 {32 * n}
  %t{n}.own = getelementptr i32, ptr addrspace(1) %t{n}.at, i32 %own
  %t{n} = load i32, ptr addrspace(1) %t{n}.own
  %f{n}.at = getelementptr i32, ptr addrspace(3) @room, i32 {32 * n}
  %f{n}.own = getelementptr i32, ptr addrspace(3) %f{n}.at, i32 %own
  store i32 %t{n}, ptr addrspace(3) %f{n}.own"""
    for n in range(32)
)
LANES = np.arange(64)
SHAPES = {
    "straight": 4 * LANES,
    "one": 0 * LANES + 36,
    "levels": 4 * (LANES // 16),
    "rows": 4 * (LANES % 16),
    "steps": 4 * (LANES % 16) + 128 * (LANES // 16),
    "eights": 4 * (LANES % 8),
    "backwards": 4 * (63 - LANES),
    "any": np.random.default_rng(5).permutation(64) * 4,
}


def kernel_of(text: str, generation: str, block: int, arena: Arena) -> Kernel:
    text = text.replace("ATTRIBUTES", attributes(generation, block))
    return Kernel(arena, compile_kernel(text, generation), "k", generation)


def lifted(dispatch: Dispatch, arena: Arena, seed: int = 0) -> None:
    """Run it until it was lifted."""
    before = COUNTERS.dispatches_lifted
    for _ in range(3):
        finish(wave.run_dispatch(dispatch, arena, services(seed)))
    assert COUNTERS.dispatches_lifted > before


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_lanes_load_what_they_point_at(generation: str, shape: str) -> None:
    arena = Arena(1 << 20)
    kernel = kernel_of(PICK.replace("FILL", FILL), generation, 64, arena)
    index = SHAPES[shape].astype(np.uint32)
    table = np.random.default_rng(4).integers(0, 1 << 32, 1024, dtype=np.uint32)
    source = arena.put(np.concatenate([index, table]).tobytes())
    target = arena.space(40 * 64)
    lifted(kernel.dispatch(struct.pack("<QQ", source, target), (1, 1, 1), (64, 1, 1)), arena)
    got = arena.view(target, np.uint32, 640).reshape(64, 10)
    four = table[index[:, None] + np.arange(4)]
    want = np.concatenate([four[:, :1], four[:, :1], four, four], axis=1)
    assert np.array_equal(got, want)


@pytest.mark.parametrize(("generation", "family", "lanes"), [("gfx1100", "gfx11", 32),
                                                           ("gfx942", "gfx942", 64)])  # fmt: skip
@pytest.mark.parametrize("full", [False, True])
def test_two_words_side_by_side_have_each_its_bound(
    generation: str, family: str, lanes: int, full: bool
) -> None:
    code = [
        made(
            "ds_store_b32" if family == "gfx11" else "ds_write_b32",
            family, lanes, addr=0, data0=2,
        ),
        made(
            "ds_load_2addr_b32" if family == "gfx11" else "ds_read2_b32",
            family, lanes, vdst=4, addr=1, offset0=1, offset1=2,
        ),
    ]  # fmt: skip
    addresses = (np.arange(lanes) * 4 % 96).astype(np.uint32)
    own = 4 * np.arange(lanes, dtype=np.uint32)
    bits = (1 << lanes) - 1 if full else (1 << lanes) - 1 & ~0x24
    for v1 in (addresses, addresses // 64 * 4, np.full(lanes, 52, np.uint32)):
        states = [
            run_code(
                code,
                generation,
                lanes,
                v={0: own, 1: v1, 2: own + 1},
                exec_bits=bits,
                lds_bytes=64,
                lifted=on,
            )
            for on in (False, True)
        ]
        assert np.array_equal(states[0].v[:8], states[1].v[:8])
        assert states[0].v[4].any() and states[0].v[5].any()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_partial_groups_begin_as_in_the_interpreter(generation: str) -> None:
    arena = Arena(1 << 20)
    kernel = kernel_of(STORE.replace("OP", "mul"), generation, 256, arena)
    results = []
    for engine in (wave.interpret_dispatch, wave.run_dispatch):
        target = arena.space(4 * 1024)
        arena.view(target, np.uint32, 1024)[:] = 0
        dispatch = kernel.dispatch(
            struct.pack("<Q", target), (4, 1, 1), (256, 1, 1), partial=(77, 0, 0)
        )
        for _ in range(3):
            finish(engine(dispatch, arena, services()))
        results.append(np.array(arena.view(target, np.uint32, 1024)))
    want = np.tile(np.arange(256, dtype=np.uint32) * 7, 4)
    want[3 * 256 + 77 :] = 0
    assert np.array_equal(results[0], want)
    assert np.array_equal(results[1], want)


def test_a_small_kernel_is_lifted_from_its_third_launch_on() -> None:
    arena = Arena(1 << 20)
    kernel = kernel_of(STORE.replace("OP", "xor"), "gfx1100", 32, arena)
    dispatch = kernel.dispatch(struct.pack("<Q", arena.space(4096)), (1, 1, 1), (32, 1, 1))
    counts = []
    for _ in range(4):
        finish(wave.run_dispatch(dispatch, arena, services()))
        counts.append(COUNTERS.dispatches_lifted)
    assert [b - a for a, b in itertools.pairwise(counts)] == [0, 1, 1]


def test_code_that_was_replaced_is_not_run_again() -> None:
    arena = Arena(1 << 20)
    first = kernel_of(STORE.replace("OP", "add"), "gfx1100", 64, arena)
    other = kernel_of(STORE.replace("OP", "sub"), "gfx1100", 64, arena)
    target = arena.space(4096)
    dispatch = first.dispatch(struct.pack("<Q", target), (1, 1, 1), (64, 1, 1))
    lifted(dispatch, arena)
    assert arena.view(target, np.uint32, 64).tolist() == [i + 7 for i in range(64)]
    code = arena.view(other.entry, np.uint8, 256)
    arena.view(first.entry, np.uint8, 256)[:] = code
    finish(wave.run_dispatch(dispatch, arena, services()))
    assert arena.view(target, np.int32, 64).tolist() == [i - 7 for i in range(64)]


@pytest.mark.parametrize("seed", range(4))
def test_waves_meet_at_barriers_in_whatever_order_they_run(seed: int) -> None:
    arena = Arena(1 << 20)
    kernel = kernel_of(SUM, "gfx1100", 256, arena)
    data = np.random.default_rng(seed).integers(0, 1 << 20, 1024, dtype=np.uint32)
    source, target = arena.put(data.tobytes()), arena.space(64)
    dispatch = kernel.dispatch(struct.pack("<QQ", source, target), (4, 1, 1), (256, 1, 1))
    lifted(dispatch, arena, seed)
    got = arena.view(target, np.uint32, 4).tolist()
    assert got == data.reshape(4, 256).sum(axis=1).tolist()


def test_counts_are_those_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Arena(1 << 20)
    kernel = kernel_of(SUM, "gfx942", 256, arena)
    source, target = arena.space(4096), arena.space(64)
    dispatch = kernel.dispatch(struct.pack("<QQ", source, target), (1, 1, 1), (256, 1, 1))
    seen: list[bool] = []
    step = Wave.step

    def counting(self: Wave) -> Any:
        seen.append(self.code.at(self.pc).format in VECTOR_FORMATS)
        return step(self)

    monkeypatch.setattr(Wave, "step", counting)
    finish(wave.interpret_dispatch(dispatch, arena, services()))
    executed, vectors = len(seen), sum(seen)
    before = COUNTERS.lifted, COUNTERS.lifted_vectors
    finish(wave.run_dispatch(dispatch, arena, services()))
    assert len(seen) == executed  # nothing more was interpreted
    assert COUNTERS.lifted - before[0] == executed
    assert COUNTERS.lifted_vectors - before[1] == vectors
