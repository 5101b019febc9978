"""Graphs of several devices: each kernel touches its own device, and pieces are few."""

from __future__ import annotations

import pytest

from frontend import dtype, engine
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.schedule.devices import gathered, settle
from frontend.schedule.plan import Plan, Step, plan_graph
from tests.frontend.evaluator import uses_reference

ONE, TWO = "cpu:0", "cpu:1"
F32 = dtype.float32

pytestmark = pytest.mark.skipif(uses_reference(), reason="plans real kernels")


def plan_of(*roots: Node) -> Plan:
    target = engine.opened(ONE).target
    return plan_graph(list(roots), {ONE: target, TWO: target}).plan


def leaf(device: str, *shape: int) -> Node:
    return g.buffer(shape, F32, device)


def costly_constant(*shape: int) -> Node:
    """One number that is worth keeping, spread over a shape; on no device."""
    x = g.const(0.75, (1,), F32)
    for _ in range(4):
        x = g.unary(Op.SIN, g.binary(Op.ADD, x, g.cast(g.iota((1,), 0, dtype.int32), F32)))
    return g.expand(g.reshape(x, (1,) * len(shape)), shape)


def scaled(device: str) -> Node:
    return g.binary(Op.MUL, leaf(device, 64, 64), costly_constant(64, 64))


def foreign(plan: Plan) -> list[Step]:
    """Launches with a buffer on another device."""
    return [
        step
        for step in plan.steps
        if step.code >= 0 and {plan.places[b].device for b in step.buffers} != {step.device}
    ]


def test_a_kept_constant_is_computed_on_each_device_that_reads_it() -> None:
    plan = plan_of(scaled(ONE), scaled(TWO))
    assert not foreign(plan)
    kept = [p.device for p in plan.places if p.kind == "temporary"]
    assert sorted(kept) == [ONE, TWO], "else this is no test of kept constants"


def test_one_device_keeps_its_graph() -> None:
    roots = [scaled(ONE)]
    assert settle(roots) == roots


def test_a_copy_of_constants_is_no_transfer() -> None:
    copied = g.copy_to(costly_constant(4, 4), TWO)
    assert copied.op is Op.COPY
    a, b = settle([scaled(ONE), g.binary(Op.MUL, leaf(TWO, 4, 4), copied)])
    assert (a.device, b.device) == (ONE, TWO)
    assert not any(n.op is Op.COPY for n in g.topological([a, b]))
    assert all(n.device is not None for n in g.topological([a, b]))


def test_shared_gradients_need_few_pieces() -> None:
    """What data-parallel training does: sums from both, on both."""
    roots = []
    for rows in range(8, 14):
        here, there = (g.reduce(Op.SUM, leaf(d, rows, 32), (0,)) for d in (ONE, TWO))
        total = g.binary(Op.ADD, here, g.copy_to(there, ONE))
        back = g.copy_to(total, TWO)
        roots += [g.unary(Op.SQRT, total), g.unary(Op.SQRT, back)]
    plan = plan_of(*roots)
    assert not foreign(plan)
    pieces = [(step.device, step.code >= 0) for step in plan.steps]
    changes = [p for i, p in enumerate(pieces) if i == 0 or p != pieces[i - 1]]
    assert changes == [
        (ONE, True), (TWO, True), (ONE, False), (ONE, True), (TWO, False), (TWO, True),
    ]  # fmt: skip
    assert sum(step.code < 0 for step in plan.steps) == 12


def test_steps_that_share_a_buffer_keep_their_order() -> None:
    steps = [
        Step("a", 0, [0, 1]), Step("b", 0, [0, 2]), Step("a", -1, [3, 2]),
        Step("a", 0, [3, 4]), Step("b", 0, [2, 5]), Step("a", 0, [1, 6]),
    ]  # fmt: skip
    order = gathered(steps, lambda place: place == 0)
    assert sorted(map(id, order)) == sorted(map(id, steps))
    places = [steps.index(step) for step in order]
    assert places == [0, 5, 1, 2, 3, 4]
