"""What LLVM makes of kernels for AMD GPUs, without one: every kernel compiles.

Whether they compute the right thing is for a device, or a virtual one, to say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, engine
from frontend import demo_training as demo
from frontend.graph.node import Node
from frontend.loops.machine import Machine
from frontend.schedule.plan import Code, make_plan
from frontend.target import Target
from rawgpu.compiler_bridge import llvm
from tests.frontend.evaluator import uses_reference
from tests.frontend.programs import DEVICE, Program

ARCHES = {"gfx1100": 32, "gfx942": 64}
"""Lanes of a wave, by architecture."""
LOCAL_BYTES = 64 << 10
pytestmark = pytest.mark.skipif(uses_reference(), reason="compiles generated kernels")


def target(arch: str) -> Target:
    machine = Machine(
        registers=48,
        masked=True,
        block_lanes=ARCHES[arch],
        row_bytes=LOCAL_BYTES // 2,
        stage_bytes=LOCAL_BYTES // 2,
    )
    return Target(machine, llvm.Target("amdgcn-amd-amdhsa", arch, ""))


def planned(arch: str, roots: Sequence[Node]) -> list[Code]:
    return make_plan(list(roots), {DEVICE: target(arch)}).codes


def compiled(arch: str, codes: Sequence[Code]) -> None:
    texts = {code.text: code.name for code in codes}
    jobs = [llvm.Job(text, target(arch).llvm, "none", 1) for text in texts]
    for name, text, image in zip(
        texts.values(), texts, llvm.compile_each(jobs, own=True), strict=True
    ):
        assert isinstance(image, bytes), f"{arch} {name}: {image}\n{text}"
        assert image[:4] == b"\x7fELF"


def wanted(roots: Sequence[Node]) -> list[Node]:
    """The nodes among them that need kernels."""
    bases = dict.fromkeys(engine.base(r) for r in roots if r.device is not None)
    return [r for r in bases if r.storage is None]


def x(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(np.ones(shape, dtype))


GRAPHS: dict[str, Callable[[], Tensor]] = {
    "map": lambda: x(64, 100) + 1,
    "functions": lambda: x(64, 100).exp().sin() ** 2.5,
    "softmax": lambda: x(64, 100).softmax(1),
    "long softmax": lambda: x(40, 5000).softmax(1),
    "layer norm": lambda: (
        (x(64, 300) - x(64, 300).mean(1, keepdims=True)) / x(64, 300).var(1, keepdims=True)
    ),
    "product": lambda: x(64, 100) @ x(100, 48),
    "staged product": lambda: x(256, 300) @ x(200, 300).T,
    "narrow product": lambda: x(256, 300, dtype="float16") @ x(300, 40, dtype="float16"),
    "scan": lambda: x(64, 100).cumsum(1),
    "scan of columns": lambda: x(64, 100).cumsum(0),
    "sort": lambda: x(8, 100).argsort(1),
    "masked pad": lambda: (x(20, 30) * 2).pad(((1, 2), (3, 4))).exp(),
    "padded softmax": lambda: x(40, 60).softmax(1).pad(((0, 0), (1, 2))) * 2,
    "shifted rows": lambda: x(40, 60).softmax(1)[:, ::-1] * x(40, 60),
    "gather": lambda: x(20, 30).take_along_axis(x(5, 30, dtype="int32"), 0),
    "gathered row": lambda: x(40, 60).softmax(1).take_along_axis(x(40, 7, dtype="int64"), 1) + 1,
    "scatter": lambda: _assigned(x(50, 30)),
    "convolution": lambda: x(2, 3, 20, 20).conv2d(x(8, 3, 3, 3), padding=1),
    "argmax": lambda: x(64, 100).argmax(1),
    "argmin of columns": lambda: x(64, 100).argmin(0),
    "transposed": lambda: x(64, 100).T.contiguous(),
    "integers": lambda: x(64, 100, dtype="int32") // 3,
    "bfloat16": lambda: x(64, 100).astype("bfloat16") * 2,
    "float64 sum": lambda: x(64, 100, dtype="float64").sum(),
}


def _assigned(t: Tensor) -> Tensor:
    t[x(5, dtype="int64")] = 2.0
    return t


@pytest.mark.parametrize("arch", ARCHES)
def test_each_kind_of_kernel_compiles(arch: str) -> None:
    codes = [c for f in GRAPHS.values() for c in planned(arch, wanted([f().node]))]
    assert len(codes) > len(GRAPHS)
    compiled(arch, codes)


@pytest.mark.parametrize("arch", ARCHES)
def test_kernels_of_random_programs_compile(arch: str) -> None:
    codes: list[Code] = []
    for seed in range(40):
        program, rng = Program(seed), random.Random(~seed)
        roots = wanted(program.roots(rng.randint(2, 25)))
        if roots:
            codes += planned(arch, roots)
    assert len(codes) > 40
    compiled(arch, codes)


@pytest.mark.parametrize("arch", ["gfx1100", pytest.param("gfx942", marks=pytest.mark.full)])
def test_the_demos_kernels_compile(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of training and the questions afterwards, planned for the architecture too."""
    codes: list[Code] = []
    find = engine.find_plan

    def find_plan(form: Any, roots: Sequence[Node], *rest: Any) -> Any:
        codes.extend(planned(arch, roots))
        return find(form, roots, *rest)

    monkeypatch.setattr(engine, "find_plan", find_plan)
    monkeypatch.setattr(engine, "_runs", {})
    data, plan = demo.load_data(), demo.Plan(epochs=1)
    images, labels = data.images[: plan.batch], data.labels[: plan.batch]
    part = demo.Data(images, labels, data.test_images, data.test_labels)
    demo.train([DEVICE], part, plan, 0, lambda line: None)
    assert sum(code.name.startswith("sum_") for code in codes) > 5
    compiled(arch, codes)


def test_what_stands_in_local_memory_is_selected_there() -> None:
    """A row is kept between nests and read where a condition holds: in space 3, either way."""
    root = GRAPHS["padded softmax"]().node
    text = "".join(code.text for code in planned("gfx1100", wanted([root])))
    local = [line for line in text.splitlines() if " select " in line and "addrspace(3)" in line]
    assert local
    assert all(line.count("addrspace(3)") == 2 for line in local)
