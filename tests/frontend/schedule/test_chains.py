"""Attention as one kernel over blocks of rows: no scores in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, engine
from frontend import dtype as dt
from frontend.graph.node import Op
from frontend.instructions.lower import lower
from frontend.loops import expr as ex
from frontend.loops import limits
from frontend.loops import nest as ln
from frontend.loops.index import Index, Var
from frontend.loops.machine import Machine
from frontend.nn import functional as F
from frontend.schedule.chains import block_of
from frontend.schedule.plan import Planned, plan_graph
from tests.frontend.evaluator import uses_reference

pytestmark = pytest.mark.skipif(uses_reference(), reason="plans real kernels")
Array = np.ndarray[Any, Any]


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(len(shapes) + sum(map(sum, shapes)))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def planned(*tensors: Tensor) -> Planned:
    target = engine.opened("cpu:0").target
    return plan_graph([engine.base(t.node) for t in tensors], {"cpu:0": target})


def chain(plan: Planned) -> ln.Kernel | None:
    return next((k for k in plan.kernels.values() if k.name.startswith("blocks_")), None)


@pytest.mark.parametrize("is_causal", [False, True])
def test_no_scores_lie_in_memory(is_causal: bool) -> None:
    q, k, v = (Tensor(x, device="cpu:0").realize() for x in draw(*[(4, 512, 32)] * 3))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    plan = planned(out)
    assert sum(plan.plan.arenas.values()) <= out.nbytes
    device = engine.opened("cpu:0").device
    before = device.memory().in_use_bytes
    out.realize()
    assert device.memory().in_use_bytes - before <= 2 * out.nbytes


def test_loops_end_where_a_causal_mask_hides_the_rest() -> None:
    """Each block of 64 queries needs the keys up to its own end, rounded up to whole tiles."""
    q, k, v = (Tensor(x, device="cpu:0") for x in draw(*[(1, 512, 32)] * 3))
    plan = planned(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    kernel = chain(plan)
    assert kernel is not None and kernel.outer[-1].name == "block"
    bounds = {bound for nest in kernel.nests for _, bound in nest.limits}
    assert all(nest.limits for nest in kernel.nests) and len(bounds) == 1
    (bound,) = bounds
    for block in range(kernel.outer[-1].extent):
        ends = bound.evaluate(lambda v, block=block: block)  # type: ignore[misc]
        assert 64 * (block + 1) <= ends <= 64 * (block + 1) + 64


def test_a_mask_that_hides_nothing_at_the_end_cuts_no_loop() -> None:
    q, k, v = (Tensor(x, device="cpu:0") for x in draw(*[(1, 128, 32)] * 3))
    hides_earlier = Tensor.ones(128, 128, dtype=bool, device="cpu:0").triu()
    kernel = chain(planned(F.scaled_dot_product_attention(q, k, v, hides_earlier)))
    assert kernel is not None and not any(nest.limits for nest in kernel.nests)
    assert any(r.kind is Op.MAX for nest in kernel.nests for r in nest.reductions)


def test_blocks_are_as_large_as_the_machine_has_room_for() -> None:
    core = Machine(l2_bytes=1 << 20)
    assert block_of(core, 512 * 4, 512) == 64
    assert block_of(core, 4096 * 4, 4096) == 32
    assert block_of(core, 65536 * 4, 65536) is None
    assert block_of(core, 512 * 4, 20) == 20
    wave = Machine(block_lanes=32, row_bytes=32 << 10)
    assert block_of(wave, 96 * 4, 96) == 32
    assert block_of(wave, 512 * 4, 512) is None  # local memory is small


def test_a_loop_that_steps_over_a_bound_is_refused() -> None:
    """What one nest leaves out, another must not read."""
    block, i, k = Var("block", 4), Var("i0", 16), Var("k0", 256)
    value = ex.Load(0, Index.of(i) * 256 + Index.of(k), dt.float32)
    bound = Index.of(block) * 64 + 64
    nest = ln.Nest(
        (i,),
        (k,),
        (ln.Reduction(Op.SUM, value, dt.float32),),
        (ln.Store(1, Index.of(block) * 16 + Index.of(i), ex.Accumulated(0, dt.float32)),),
        limits=((k, bound),),
    )
    slots = (ln.Slot(ln.Role.INPUT, dt.float32, 4096), ln.Slot(ln.Role.OUTPUT, dt.float32, 64))

    def lowered(nest: ln.Nest) -> None:
        lower(ln.Kernel("sums", slots, (block,), (nest,)), Machine())

    lowered(replace(nest, steps=(ln.Split("k0", 16),)))
    odd = replace(nest, steps=(ln.Split("k0", 12),))
    with pytest.raises(ValueError, match="takes 12 at a time"):
        lowered(odd)
    (settled,) = limits.settled([odd])
    lowered(settled)
    ends = settled.limits[0][1]
    assert [ends.evaluate(lambda v, at=at: at) for at in range(4)] == [72, 132, 192, 264]  # type: ignore[misc]
    whole = replace(nest, steps=(ln.Mark("k0", ln.Kind.CHAIN),))
    assert limits.settled([whole, odd])[1].limits == ()
