"""Random graphs, realised by the engine and evaluated by NumPy, give the same values."""

from __future__ import annotations

import random

import pytest

from frontend import engine
from frontend.graph import node as g
from frontend.graph.node import Node
from tests.frontend import reference
from tests.frontend.evaluator import uses_reference
from tests.frontend.programs import DEVICE, Program, describe, wrong

PER_TEST = 15
pytestmark = pytest.mark.skipif(uses_reference(), reason="compares the real engine with NumPy")


def run_program(seed: int) -> None:
    """Grow a program, sometimes realise a part of it on the way, and compare every result."""
    program = Program(seed)
    rng = random.Random(~seed)
    roots = program.roots(rng.randint(2, 25))
    if rng.random() < 0.2:
        compare(seed, program, [rng.choice(program.pool)])
        roots = program.roots(rng.randint(1, 8))
    compare(seed, program, roots)


def placed(program: Program, root: Node) -> Node:
    """A node that will lie on the device, as `Tensor.realize` makes of one that needs none."""
    if root.device is not None:
        return root
    copy = g.copy_to(root, DEVICE)
    program.facts[copy] = program.facts[root]
    return copy


def compare(seed: int, program: Program, roots: list[Node]) -> None:
    roots = [placed(program, root) for root in roots]
    expected = reference.evaluate_all(roots)
    text = describe(roots)
    try:
        engine.realize(roots)
    except Exception as error:
        raise AssertionError(f"program {seed} fails: {error!r}\n{text}") from error
    for number, (root, value) in enumerate(zip(roots, expected, strict=True)):
        problem = wrong(root, value, program.facts[root])
        if problem is not None:
            raise AssertionError(f"program {seed}, result {number}: {problem}\n{text}")


@pytest.mark.parametrize("block", range(10))
def test_programs_agree_with_numpy(block: int) -> None:
    for seed in range(block * PER_TEST, (block + 1) * PER_TEST):
        run_program(seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(100))
def test_many_programs_agree_with_numpy(block: int) -> None:
    for seed in range(10_000 + block * 40, 10_000 + (block + 1) * 40):
        run_program(seed)
