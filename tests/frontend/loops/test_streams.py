"""What is large goes through memory as it should, and arrives."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from frontend import Tensor, concat, engine
from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph.node import Op
from frontend.loops import expr as ex
from frontend.loops import heuristic
from frontend.loops.index import Index, Var
from frontend.loops.machine import Machine
from frontend.loops.nest import (
    Kernel,
    Kind,
    Nest,
    Prefetch,
    Reduction,
    Role,
    Slot,
    Step,
    Store,
    Stream,
    apply,
)
from frontend.schedule.plan import plan_graph
from frontend.target import Target
from rawgpu.compiler_bridge import llvm
from tests.frontend.evaluator import uses_reference

CPU = Machine(
    vector_bytes=64,
    registers=32,
    masked=True,
    l2_bytes=1 << 20,
    l3_bytes=128 << 20,
    streaming=True,
    prefetch_bytes=2048,
)
MIB = 1 << 20


def moved(count: int, *, dtype: DType = dt.float32, plus: float = 1.0) -> Kernel:
    """out[i] = in[i] + plus."""
    i = Var("i", count)
    value = ex.Alu(Op.ADD, (ex.Load(0, Index.of(i), dtype), ex.Constant(plus, dtype)), dtype)
    slots = (Slot(Role.INPUT, dtype, count), Slot(Role.OUTPUT, dtype, count))
    return Kernel("k", slots, (), (Nest((i,), stores=(Store(1, Index.of(i), value),)),))


def turned(rows: int, columns: int) -> Kernel:
    """out[i, j] = in[j, i]."""
    i, j = Var("i", rows), Var("j", columns)
    load = ex.Load(0, Index.of(j) * rows + Index.of(i), dt.float32)
    store = Store(1, Index.of(i) * columns + Index.of(j), load)
    slots = tuple(Slot(role, dt.float32, rows * columns) for role in (Role.INPUT, Role.OUTPUT))
    return Kernel("k", slots, (), (Nest((i, j), stores=(store,)),))


def memory_steps(kernel: Kernel, machine: Machine = CPU, *temporary: int) -> list[Step]:
    (nest,) = heuristic.schedule(kernel, machine, temporary).nests
    return [s for s in nest.steps if isinstance(s, Stream | Prefetch)]


def test_a_result_that_leaves_the_second_level_cache_is_stored_past_it() -> None:
    assert Stream(1) in memory_steps(moved(MIB // 2))
    assert Stream(1) not in memory_steps(moved(MIB // 2 - 1))
    assert Stream(1) in memory_steps(moved(MIB // 4, dtype=dt.float64))


def test_what_the_plan_reads_again_may_be_found_in_the_last_cache() -> None:
    assert Stream(1) not in memory_steps(moved(2 * MIB), CPU, 1)
    assert Stream(1) in memory_steps(moved(4 * MIB), CPU, 1)


def test_rows_that_lie_apart_are_stored_past_the_caches_sooner() -> None:
    assert Stream(1) in memory_steps(turned(512, 256))
    assert Stream(1) not in memory_steps(turned(512, 240))
    assert Stream(1) not in memory_steps(turned(512, 256), CPU, 1)


def test_a_result_that_the_kernel_reads_itself_stays_in_the_caches() -> None:
    kernel = moved(MIB)
    again = Nest(
        kernel.nests[0].axes,
        reduce=(Var("k", 2),),
        reductions=(Reduction(Op.SUM, ex.Load(1, Index.of(kernel.nests[0].axes[0]), dt.float32),
                              dt.float32),),
        stores=(Store(2, Index(), ex.Accumulated(0, dt.float32)),),
    )  # fmt: skip
    both = replace(
        kernel,
        slots=(*kernel.slots, Slot(Role.OUTPUT, dt.float32, 1)),
        nests=(*kernel.nests, again),
    )
    steps = [s for nest in heuristic.schedule(both, CPU).nests for s in nest.steps]
    assert Stream(1) not in steps


def test_only_what_no_cache_held_is_asked_for_ahead() -> None:
    assert Prefetch(0, 2048) in memory_steps(moved(MIB // 4))
    assert Prefetch(0, 2048) not in memory_steps(moved(MIB // 4 - 1))


@pytest.mark.parametrize("machine", [Machine(vector_bytes=16), Machine(block_lanes=32)])
def test_machines_that_gain_nothing_by_it_have_no_such_steps(machine: Machine) -> None:
    assert memory_steps(moved(16 * MIB), machine) == []
    assert memory_steps(turned(4096, 4096), machine) == []


def rows_summed(rows: int, columns: int, operands: int) -> Kernel:
    """out[i] = sum over k of the product of operands at [i, k]."""
    i, k = Var("i", rows), Var("k", columns)
    at = Index.of(i) * columns + Index.of(k)
    value: ex.Expr = ex.Load(0, at, dt.float32)
    for slot in range(1, operands):
        value = ex.Alu(Op.MUL, (value, ex.Load(slot, at, dt.float32)), dt.float32)
    sums = (Reduction(Op.SUM, value, dt.float32),)
    stores = (Store(operands, Index.of(i), ex.Accumulated(0, dt.float32)),)
    slots = tuple(Slot(Role.INPUT, dt.float32, rows * columns) for _ in range(operands))
    slots += (Slot(Role.OUTPUT, dt.float32, rows),)
    return Kernel("k", slots, (), (Nest((i,), (k,), sums, stores),))


@pytest.mark.parametrize(
    ("rows", "operands", "at_once"), [(100, 1, 8), (100, 2, 4), (5, 1, 5), (1, 1, 1)]
)
def test_several_rows_are_summed_in_turn(rows: int, operands: int, at_once: int) -> None:
    (nest,) = heuristic.schedule(rows_summed(rows, 3000, operands), CPU).nests
    loops = apply(nest.axes, nest.reduce, nest.steps).order
    unrolled = [lo.var.extent for lo in loops if lo.kind is Kind.UNROLL and lo.var.extent > 1]
    assert unrolled == ([at_once] if at_once > 1 else [])


def test_a_transpose_goes_along_the_rows_it_reads() -> None:
    (nest,) = heuristic.schedule(turned(4096, 2048), CPU).nests
    order = apply(nest.axes, nest.reduce, nest.steps).order
    assert [lo.name for lo in order] == ["j/32", "i/16", "i%16", "j%32"]
    assert [lo.kind for lo in order[2:]] == [Kind.UNROLL, Kind.VECTOR]


def test_rows_that_begin_within_a_line_are_written_in_longer_pieces() -> None:
    (nest,) = heuristic.schedule(turned(4096, 2047), CPU).nests
    assert "j%64" in [lo.name for lo in apply(nest.axes, nest.reduce, nest.steps).order]


def test_rows_are_moved_in_the_order_in_which_they_are_read() -> None:
    i, j, k = Var("i", 12), Var("j", 128), Var("k", 64)
    load = ex.Load(0, Index.of(j) * 768 + Index.of(i) * 64 + Index.of(k), dt.float32)
    store = Store(1, Index.of(i) * 8192 + Index.of(j) * 64 + Index.of(k), load)
    slots = tuple(Slot(role, dt.float32, 12 * 8192) for role in (Role.INPUT, Role.OUTPUT))
    kernel = Kernel("k", slots, (), (Nest((i, j, k), stores=(store,)),))
    (nest,) = heuristic.schedule(kernel, CPU).nests
    assert [lo.name[0] for lo in apply(nest.axes, nest.reduce, nest.steps).order[-2:]] == ["i", "k"]
    small = replace(CPU, l2_bytes=64 << 10)
    assert memory_steps(kernel, small) == [Stream(1), Prefetch(0, 2048)]
    in_order = replace(kernel, nests=(replace(kernel.nests[0], axes=(j, i, k)),))
    assert heuristic.schedule(in_order, CPU).nests[0].steps == nest.steps


# --- the code ------------------------------------------------------------------------------------


def text_of(t: Tensor, triple: str, cpu: str, machine: Machine) -> str:
    """All of the graph's kernels for another processor."""
    target = Target(machine, llvm.Target(triple, cpu, ""))
    planned = plan_graph([engine.base(t.node)], {"cpu:0": target})
    return "\n".join(code.text for code in planned.plan.codes)


def zeros(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(np.zeros(shape, dtype), device="cpu:0").realize()


X86 = ("x86_64-unknown-linux-gnu", "x86-64-v4")


def test_what_went_past_the_caches_is_there_before_the_kernel_ends() -> None:
    text = text_of(zeros(1 << 20) + 1, *X86, CPU)
    assert "!nontemporal" in text
    assert text.count("ret void") == 1
    assert re.search(r"call void @llvm.x86.sse.sfence\(\)\s+ret void", text)
    assert "sfence" not in text_of(zeros(1 << 10) + 1, *X86, CPU)


def test_only_whole_aligned_vectors_go_past_the_caches() -> None:
    aligned = text_of(concat([zeros(1024, 512), zeros(1024, 512)], 1), *X86, CPU)
    assert aligned.count("!nontemporal !") == aligned.count("store <16 x float>") > 0
    shifted = text_of(concat([zeros(1024, 511), zeros(1024, 513)], 1), *X86, CPU)
    for line in shifted.splitlines():
        if "!nontemporal !" in line:
            assert "align 64" in line
    assert "store <16 x float>" in shifted


def test_other_architectures_need_no_fence() -> None:
    arm = replace(CPU, vector_bytes=16)
    text = text_of(zeros(1 << 20) + 1, "aarch64-unknown-linux-gnu", "generic", arm)
    assert "!nontemporal" in text
    assert "x86" not in text


# --- the results ---------------------------------------------------------------------------------


@pytest.mark.skipif(uses_reference(), reason="runs generated kernels")
@pytest.mark.parametrize("seed", range(8))
def test_large_moves_arrive_whole(seed: int) -> None:
    """Sizes at which results are streamed, in rows that are aligned and rows that are not."""
    rng = random.Random(seed)
    dtype = rng.choice(["float32", "float32", "float64", "int16", "uint8"])
    rows = rng.choice([1024, 1000, 1023, 992])
    columns = (5 << 20) // np.dtype(dtype).itemsize // rows + rng.choice([0, 1, 16])
    data = np.random.default_rng(seed).integers(0, 100, (rows, columns)).astype(dtype)
    x = Tensor(data).realize()
    pieces = [data[: rows // 3], data]
    expected = {
        "turned": (x.permute(1, 0), data.T),
        "added": (x + x, data + data),
        "joined": (concat([x[: rows // 3], x], 0), np.concatenate(pieces, 0)),
        "joined beside": (concat([x, x[:, 5:]], 1), np.concatenate([data, data[:, 5:]], 1)),
        "padded": (x.pad(((1, 2), (3, 4))), np.pad(data, ((1, 2), (3, 4)))),
        "turned twice": (x.permute(1, 0) + x.T, data.T + data.T),
    }
    for name, (ours, theirs) in expected.items():
        assert np.array_equal(ours.contiguous().numpy(), theirs), (name, dtype, rows, columns)
