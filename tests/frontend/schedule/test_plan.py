"""What a plan says of its kernels."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor, engine
from frontend.graph.node import FLOAT_UNARY, Op
from frontend.schedule.partition import cost_of
from frontend.schedule.plan import plan_graph
from tests.frontend.evaluator import uses_reference

DEVICE = "cpu:0"


def test_elementary_functions_cost_what_polynomials_do() -> None:
    assert cost_of(Op.SQRT) < cost_of(Op.EXP) < cost_of(Op.POW)
    assert all(cost_of(op) == 8.0 for op in FLOAT_UNARY - {Op.SQRT})


@pytest.mark.skipif(uses_reference(), reason="plans real kernels")
def test_expected_time_counts_functions_and_stores() -> None:
    """At 512×512 a core needs some 80 µs for either, which is worth a second core."""
    x = Tensor(np.ones((512, 512), np.float32), device=DEVICE).realize()
    for made in (x.exp(), x + x):
        planned = plan_graph([engine.base(made.node)], {DEVICE: engine.opened(DEVICE).target})
        (step,) = planned.plan.steps
        assert 40_000 < step.work_ns < 160_000
        assert planned.kernels[step.code].name == planned.plan.codes[step.code].name
