"""A stage copies what is read, all of it and nothing else; what it cannot copy is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from frontend import Tensor
from frontend import dtype as dt
from frontend.graph.node import Op
from frontend.instructions.lower import lower
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.index import Index, InRange, Var
from frontend.loops.machine import Machine
from frontend.loops.nest import Kind, Mark, Order, Split, Stage
from frontend.workbench import Workbench
from rawgpu.errors import OperationError
from tests.frontend.evaluator import uses_reference

ROWS, K = Var("i", 12), Var("k", 8)
MACHINE = Machine(vector_bytes=64, registers=32, masked=True)


def at(*terms: tuple[Var, int], offset: int = 0) -> Index:
    return Index(terms, offset)


def load(index: Index, slot: int = 0) -> ex.Load:
    return ex.Load(slot, index, dt.float32)


def kernel(value: ex.Expr, steps: Sequence[ln.Step], *, into: int = 1) -> ln.Kernel:
    """out[i] = sum over k of `value`, which reads b0[96] and b2[1]."""
    store = ln.Store(into, at((ROWS, 1)), ex.Accumulated(0, dt.float32))
    fold = ln.Reduction(Op.SUM, value, dt.float32)
    nest = ln.Nest((ROWS,), (K,), (fold,), (store,), steps=tuple(steps))
    slots = (
        ln.Slot(ln.Role.INPUT, dt.float32, 96),
        ln.Slot(ln.Role.OUTPUT, dt.float32, 12),
        ln.Slot(ln.Role.REGISTER, dt.float32, 1),
    )
    return ln.Kernel("staged", slots, (), (nest,))


ROW = load(at((ROWS, 8), (K, 1)))


def refused(steps: Sequence[ln.Step], why: str, value: ex.Expr = ROW, *, into: int = 1) -> None:
    with pytest.raises(ValueError, match=why):
        lower(kernel(value, steps, into=into), MACHINE)


def test_a_stage_at_an_unknown_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="no loop 'x'"):
        ln.apply((ROWS,), (K,), [Stage(0, "x", ("k",))])


def test_a_stage_inside_a_reduction_or_the_tile_is_refused() -> None:
    split = [Split("k", 2), Stage(0, "k%2", ("k%2",))]
    with pytest.raises(ValueError, match="inside a reduction"):
        ln.apply((ROWS,), (K,), split)


@pytest.mark.parametrize(
    ("axes", "why"),
    [
        (("y",), "no loop 'y'"),
        (("i",), "not inside"),
        (("k", "k%2"), "twice"),
        (("k%2", "k%2"), "twice"),
    ],
)
def test_axes_that_are_no_loops_inside_the_stage_are_refused(
    axes: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        ln.apply((ROWS,), (K,), [Split("k", 2), Stage(0, "k/2", axes)])


def test_steps_of_a_copy_keep_the_rules_too() -> None:
    with pytest.raises(ValueError, match="no loop 'k'"):
        ln.apply((ROWS,), (K,), [Stage(0, "k", ("k",), (Split("k", 2),))])
    with pytest.raises(ValueError, match="inside one block"):
        ln.apply((ROWS,), (K,), [Stage(0, "k", ("k",), (Mark("c0", Kind.GRID),))])


@pytest.mark.parametrize("slot", [-1, 2, 3])
def test_what_is_no_buffer_is_not_staged(slot: int) -> None:
    refused([Stage(slot, "k", ("k",))], f"no buffer b{slot}")


def test_what_is_not_read_is_not_staged() -> None:
    refused([Stage(1, "k", ("k",))], "does not read b1")


def test_axes_with_which_the_index_moves_must_be_there() -> None:
    refused([Stage(0, "i", ("k",))], "lacks axis i")
    refused([Split("k", 2), Stage(0, "i", ("i", "k/2"))], "lacks axis k%2")


def test_two_places_of_one_buffer_are_not_one_copy() -> None:
    two = ex.Alu(Op.ADD, (ROW, load(at((K, 1)))), dt.float32)
    refused([Stage(0, "k", ("k",))], r"two places, b0\[8\*i \+ k\] and b0\[k\]", two)


def test_the_same_place_read_twice_is_one_copy() -> None:
    twice = ex.Alu(Op.ADD, (ROW, load(ROW.index)), dt.float32)
    lower(kernel(twice, [Stage(0, "k", ("k",))]), MACHINE)


def test_what_the_nest_stores_is_not_staged() -> None:
    refused([Stage(0, "k", ("k",))], "stores to b0", into=0)


def test_what_is_read_under_a_condition_is_not_staged_beyond_the_buffer() -> None:
    outside = load(at((ROWS, 8), (K, 1), offset=-1))
    inside = (InRange(at((ROWS, 8), (K, 1), offset=-1), 96),)
    masked = ex.Masked(inside, outside, ex.Constant(0.0, dt.float32))
    refused([Stage(0, "k", ("k",))], "where a condition holds", masked)


def test_shared_loops_stage_nothing() -> None:
    shared = replace(kernel(ROW, ()), outer=(Var("r", 4),), outer_steps=(Stage(0, "r", ()),))
    with pytest.raises(ValueError, match="stage nothing"):
        lower(shared, MACHINE)


@pytest.mark.skipif(uses_reference(), reason="runs generated kernels")
def test_the_bench_says_which_rule_a_stage_breaks() -> None:
    x = Tensor(np.ones((40, 40), np.float32)).realize()
    bench = Workbench(x[:, 1:] - x[:, :-1])
    vector = bench[0].loops.split("vector ")[1].split()[0]
    with pytest.raises(OperationError, match="two places"):
        bench[0].schedule(*bench[0].steps(), Stage(0, vector, (vector,)))
    with pytest.raises(OperationError, match="no loop 'nowhere'"):
        bench[0].schedule(Stage(0, "nowhere", ()))


@pytest.mark.skipif(uses_reference(), reason="runs generated kernels")
def test_a_copy_over_both_parts_of_an_uneven_axis_stays_inside_it() -> None:
    """Eleven columns in sevens: the second round of the copy has four, not seven."""
    x, y = (Tensor(np.arange(n, dtype=np.float32).reshape(-1, 9)).realize() for n in (36, 99))
    bench = Workbench(x.matmul(y.T))
    order = Order(("i0", "i1/7", "i1%7", "k0"))
    stage = Stage(1, "i1/7", ("i1/7", "k0", "i1%7"))
    bench[0].schedule(Split("i1", 7), order, stage)
    assert "masked_load" in bench[0].instructions or "icmp ult" in bench[0].instructions
    assert bench.run(repeat=1).errors == [0.0]


@pytest.mark.skipif(uses_reference(), reason="runs generated kernels")
def test_the_copies_of_a_product_are_part_of_its_schedule() -> None:
    x = Tensor(np.ones((300, 300), np.float32)).realize()
    kernel = Workbench(x.matmul(x.T.contiguous().realize()))[0]
    (stage,) = [s for s in kernel.steps() if isinstance(s, Stage)]
    assert any(isinstance(s, Mark) and s.kind is Kind.VECTOR for s in stage.steps)
    shown = kernel.loops.split("stage b")[1]
    assert "vector c1" in shown
