"""The code for processors that this machine only contains: right there too.

A machine with 64-byte vectors and masks never runs what is generated for 32-byte vectors, sixteen
registers and no masks, although it could. Here it does.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Iterator

import pytest

from frontend import engine
from frontend.loops.machine import Machine
from frontend.target import Target
from rawgpu.compiler_bridge import llvm
from tests.frontend import test_shapes
from tests.frontend.evaluator import uses_reference
from tests.frontend.programs import DEVICE
from tests.frontend.test_random_programs import run_program

AVX2 = Target(
    # with so small a cache even small results go past it, and small operands are prefetched
    Machine(
        vector_bytes=32,
        registers=16,
        masked=False,
        l2_bytes=1 << 9,
        streaming=True,
        prefetch_bytes=256,
    ),
    llvm.Target("x86_64-unknown-linux-gnu", "x86-64-v3", ""),
)
NEEDED = frozenset({"avx2", "fma", "f16c", "bmi2"})
pytestmark = pytest.mark.skipif(uses_reference(), reason="runs generated kernels")


@pytest.fixture
def avx2() -> Iterator[None]:
    """The CPU device, taken for one that has AVX2 and no more."""
    if platform.machine() != "x86_64":
        pytest.skip("not this processor's family")
    if not engine.opened(DEVICE).target.llvm.enabled >= NEEDED:
        pytest.skip("this processor lacks AVX2")
    engine.close()
    engine.opened(DEVICE).target = AVX2
    yield
    engine.close()


@pytest.mark.usefixtures("avx2")
def test_programs_are_right_without_masks() -> None:
    for seed in range(500, 520):
        run_program(seed)


@pytest.mark.usefixtures("avx2")
def test_awkward_sizes_are_right_without_masks() -> None:
    for kind in test_shapes.KINDS:
        for seed in range(3):
            test_shapes.check(kind, seed)


@pytest.mark.full
@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("block", range(20))
def test_many_programs_are_right_without_masks(block: int) -> None:
    chance = random.Random(block)
    for _ in range(40):
        run_program(chance.randrange(1 << 30))


@pytest.mark.full
@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("kind", test_shapes.KINDS)
def test_many_awkward_sizes_are_right_without_masks(kind: str) -> None:
    for seed in range(50, 110):
        test_shapes.check(kind, seed)
