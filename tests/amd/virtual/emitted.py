"""What LLVM emits for the tensor library's tests: `python -m tests.amd.virtual.emitted`.

Runs tests of the library on the CPU; every plan that they make is also made for each family, its
kernels are compiled, and the names of the instructions go into `tests/data/amd/emitted.json` with
how often each was seen. Takes about six minutes of one core.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frontend import engine
from frontend.graph.node import Node
from frontend.schedule.plan import Plan, make_plan
from rawgpu.amd.objects import codeobject
from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.virtual.dispatch import GpuMemory
from rawgpu.amd.virtual.lift_kernel import find_blocks
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.compiler_bridge import llvm
from rawgpu.errors import RawGpuError
from tests.amd.virtual.wave_graph import target_for
from tests.amd.virtual.wave_rig import Arena, Kernel

DATA = Path(__file__).parents[2] / "data" / "amd" / "emitted.json"
FAMILIES = {"gfx1100": "gfx11", "gfx1201": "gfx12", "gfx90a": "gfx90a", "gfx942": "gfx942"}
"""Family, as instruction tables call it, by the GPU that is compiled for."""
TESTS = (
    "test_elementwise.py", "test_reduce.py", "test_movement.py", "test_products.py",
    "test_random.py", "test_gradients.py", "test_optim.py", "test_small_programs.py",
    "nn/test_functional.py", "nn/test_layers.py", "test_demo.py",
)  # fmt: skip
"""Below tests/frontend."""


def row_names(instruction: MachineInstruction) -> list[str]:
    """The rows that an instruction is of: two for one of dual issue."""
    return [part.row.name for part in instruction.parts or (instruction,)]


def instructions(image: bytes, generation: str) -> list[MachineInstruction]:
    """All instructions that the kernels of an object can reach."""
    arena = Arena(8 << 20)
    names = [name[:-3] for name in codeobject.parse(image).globals if name.endswith(".kd")]
    found: list[MachineInstruction] = []
    for name in names:
        kernel = Kernel(arena, image, name, generation)
        found += reachable(kernel, arena)
    return found


def reachable(kernel: Kernel, arena: GpuMemory) -> list[MachineInstruction]:
    """The instructions of a kernel, each once."""
    lanes = kernel.dispatch(b"", (1, 1, 1), (32, 1, 1)).wave_size
    code = Code(FAMILIES[kernel.generation], lanes, arena)
    blocks = find_blocks(code, kernel.entry)
    return [i for block in blocks.values() for _, i in block.instructions]


class Listener:
    """A plugin that makes every plan for these GPUs as well and keeps the kernels' texts."""

    def __init__(self, generations: Sequence[str]) -> None:
        self.texts: dict[str, dict[str, None]] = {name: {} for name in generations}
        self.failed = 0

    def pytest_configure(self) -> None:
        vars(engine)["make_plan"] = self.make_plan

    def make_plan(
        self, roots: Sequence[Node], targets: dict[str, Any], *more: Any, **named: Any
    ) -> Plan:
        for generation, texts in self.texts.items():
            try:
                plan = make_plan(roots, dict.fromkeys(targets, target_for(generation)))
            except (RawGpuError, AssertionError):
                self.failed += 1
                continue
            texts.update(dict.fromkeys(code.text for code in plan.codes if not code.foreign))
        return make_plan(roots, targets, *more, **named)


def collect(tests: Sequence[str]) -> Listener:
    folder = Path(__file__).parents[2] / "frontend"
    listener = Listener(list(FAMILIES))
    paths = [str(folder / name) for name in tests]
    code = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *paths], plugins=[listener])
    assert code == 0, f"the tests ended with {code}"
    return listener


def count(texts: Sequence[str], generation: str) -> Counter[str]:
    """Instructions by row, in all kernels together."""
    jobs = [llvm.Job(text, target_for(generation).llvm, "none", 2) for text in texts]
    counted: Counter[str] = Counter()
    for image in llvm.compile_many(jobs):
        for instruction in instructions(image, generation):
            counted.update(row_names(instruction))
    return counted


def main() -> int:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["RAWGPU_CACHE"] = cache  # every plan is made, so that it is seen
        listener = collect(sys.argv[1:] or TESTS)
    result = {}
    for generation, texts in listener.texts.items():
        counted = count(list(texts), generation)
        result[generation] = {"kernels": len(texts), "rows": dict(sorted(counted.items()))}
        print(f"{generation}: {len(texts)} kernels, {len(counted)} rows, {listener.failed} failed")
    DATA.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
