"""Any schedule that the rules allow computes what the plain loops compute.

Each graph below is one kernel. Random splits, orders, marks and stages are applied to its nest;
every version is compiled and run on the same inputs, and its result compared with NumPy's. Values
are small whole numbers, so sums are exact in any order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, engine
from frontend.engine import Storage
from frontend.instructions.lower import lower
from frontend.loops import nest as ln
from frontend.loops import stages
from frontend.loops.nest import Kind, Mark, Order, Prefetch, Split, Stage, Stream
from frontend.schedule.plan import plan_graph, signature
from rawgpu.compiler_bridge import llvm
from tests.frontend import reference
from tests.frontend.evaluator import uses_reference

DEVICE = "cpu:0"
WRITTEN_OUT = 24
"""The most points of a tile, so that kernels stay small."""
pytestmark = pytest.mark.skipif(uses_reference(), reason="runs generated kernels")


def values(*shape: int, dtype: str = "float32", low: int = -4, high: int = 5) -> Tensor:
    rng = np.random.default_rng(sum(shape))
    return Tensor(rng.integers(low, high, shape).astype(dtype), device=DEVICE).realize()


GRAPHS: dict[str, Callable[[], Tensor]] = {
    "map": lambda: values(13, 21) + values(13, 21) * 2,
    "transposed": lambda: values(13, 21) + values(21, 13).T,
    "padded": lambda: values(5, 19).pad(((1, 2), (3, 0))) * 2,
    "reversed": lambda: values(6, 35)[:, ::-1] - values(6, 35)[:, ::1],
    "bytes": lambda: values(7, 41, dtype="int8") * values(7, 41, dtype="int8"),
    "wide": lambda: values(3, 19, dtype="float64") - values(3, 19, dtype="float64"),
    "sum rows": lambda: values(9, 50).sum(1),
    "sum columns": lambda: values(23, 18).sum(0),
    "sum whole": lambda: values(6, 17).sum(),
    "max middle": lambda: values(4, 11, 19).max(1),
    "argmax": lambda: values(5, 37, high=40).argmax(1),
    "argmin columns": lambda: values(21, 18).argmin(0),
    "product": lambda: values(7, 19).matmul(values(19, 21)),
    "product turned": lambda: values(19, 7).T.matmul(values(21, 19).T),
    "convolution": lambda: values(2, 3, 9, 11).conv2d(values(5, 3, 3, 3), stride=2),
    "gathered": lambda: values(11, 20).take_along_axis(
        values(6, 20, dtype="uint8", low=0, high=13), 0
    ),
}


@dataclass
class Sample:
    """A kernel without its schedule, its inputs, and the right answer."""

    kernel: ln.Kernel
    buffers: list[Storage | None]
    """What lies behind each argument; None for the result."""
    expected: Any

    @property
    def nest(self) -> ln.Nest:
        return self.kernel.nests[0]


def sample(name: str) -> Sample:
    node = engine.base(GRAPHS[name]().node)
    planned = plan_graph([node], {DEVICE: engine.opened(DEVICE).target})
    (kernel,) = planned.kernels.values()
    assert len(kernel.nests) == 1
    assert not kernel.outer
    _, leaves = signature([node])
    places = [planned.plan.places[b] for b in planned.plan.steps[0].buffers]
    buffers = [leaves[p.number].storage if p.kind == "leaf" else None for p in places]
    plain = replace(kernel, nests=(replace(kernel.nests[0], steps=()),))
    expected = reference.storage_of(reference.evaluate(node), node.dtype)
    return Sample(plain, buffers, expected)


class Chooser:
    """Random steps for a nest that keep the rules."""

    def __init__(self, rng: random.Random, nest: ln.Nest) -> None:
        self.rng, self.nest = rng, nest
        self.reduce = {v.name: False for v in nest.axes} | {v.name: True for v in nest.reduce}
        self.extent = {v.name: v.extent for v in (*nest.axes, *nest.reduce)}
        self.outer_of: dict[str, str] = {}
        self.steps: list[ln.Step] = []

    def choose(self) -> tuple[ln.Step, ...]:
        self._split()
        tile = self._tile()
        rest = [name for name in self.reduce if name not in tile]
        outputs = [name for name in rest if not self.reduce[name]]
        folded = [name for name in rest if self.reduce[name]]
        outputs, folded, inside = map(self._shuffled, (outputs, folded, list(tile)))
        waiting = self.rng.randint(0, len(folded)) if self.rng.random() < 0.4 else 0
        outer = self._merged(folded[:waiting], outputs)
        order = [*outer, *folded[waiting:], *inside]
        self.steps.append(Order(tuple(order)))
        self.steps += [Mark(name, kind) for name, kind in tile.items()]
        self._grid(list(takewhile(outputs.__contains__, outer)))
        self._chains(folded[waiting:])
        if self.rng.random() < 0.5:
            self._stage(order, len(outer))
        self._memory()
        return tuple(self.steps)

    def _merged(self, some: list[str], others: list[str]) -> list[str]:
        """Both in their own order: reductions outside outputs, whose sums wait in memory."""
        places = set(self.rng.sample(range(len(some) + len(others)), len(some)))
        left, right = iter(some), iter(others)
        return [next(left if i in places else right) for i in range(len(some) + len(others))]

    def _memory(self) -> None:
        """Past the caches, and ahead of time."""
        if self.rng.random() < 0.5:
            self.steps += [Stream(s.slot) for s in self.nest.stores]
        for slot in sorted({load.slot for load in self.nest.loads()}):
            if self.rng.random() < 0.3:
                self.steps.append(Prefetch(slot, self.rng.choice((64, 2048, 1 << 20))))

    def _split(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            name = self.rng.choice(list(self.reduce))
            factor = self.rng.choice((1, 2, 3, 4, 7, 8, 16, 32, 64))
            if factor > 2 * self.extent[name]:
                continue
            extent, reduce = self.extent.pop(name), self.reduce.pop(name)
            outer, inner = f"{name}/{factor}", f"{name}%{factor}"
            self.reduce |= {outer: reduce, inner: reduce}
            self.extent |= {outer: -(-extent // factor), inner: min(factor, extent)}
            self.outer_of[inner] = outer
            self.steps.append(Split(name, factor))

    def _tile(self) -> dict[str, Kind]:
        """The unrolled loops and the vector loop, few enough points."""
        tile: dict[str, Kind] = {}
        names = self._shuffled(list(self.reduce))
        points = 1
        if names and self.rng.random() < 0.8:
            vector = names.pop()
            tile[vector] = Kind.VECTOR
            points = -(-self.extent[vector] // 8)
        for name in names:
            if points * self.extent[name] <= WRITTEN_OUT and self.rng.random() < 0.5:
                tile[name] = Kind.UNROLL
                points *= self.extent[name]
        # an outer loop in the tile has its inner loop there too, since it stands outside it
        for inner, outer in reversed(self.outer_of.items()):
            left = [n for n in self.reduce if n.startswith(inner) and n not in tile]
            if outer in tile and left:
                del tile[outer]
        return tile

    def _shuffled(self, names: list[str]) -> list[str]:
        """In random order, but a split's outer loop before all that became of the inner one."""
        self.rng.shuffle(names)
        while True:
            wrong = next((pair for pair in self._pairs(names)), None)
            if wrong is None:
                return names
            at, other = wrong
            names[at], names[other] = names[other], names[at]

    def _pairs(self, names: list[str]) -> list[tuple[int, int]]:
        found = []
        for inner, outer in self.outer_of.items():
            if outer in names:
                at = names.index(outer)
                found += [(i, at) for i, name in enumerate(names[:at]) if name.startswith(inner)]
        return found

    def _grid(self, outputs: list[str]) -> None:
        for name in outputs[: self.rng.randint(0, 2)]:
            self.steps.append(Mark(name, Kind.GRID))

    def _chains(self, folded: list[str]) -> None:
        for name in folded:
            if self.extent[name] <= 8 and self.rng.random() < 0.4:
                self.steps.append(Mark(name, Kind.CHAIN))
            elif self.rng.random() < 0.3:
                self.steps.append(Mark(name, Kind.PART))

    def _stage(self, order: list[str], count: int) -> None:
        """Copy one input before one of the first loops, over all loops inside that move it."""
        loads = self.nest.loads()
        slot = self.rng.choice(sorted({load.slot for load in loads}))
        at = self.rng.choice(order[: count + 1] or [""])
        try:
            loops = ln.apply(self.nest.axes, self.nest.reduce, self.steps)
        except ValueError:
            return
        index = next(load for load in loads if load.slot == slot).index.substitute(loops.values)
        where = order.index(at) if at else 0
        inside = [n for n in order[where:] if index.depends_on(loops.loop(n).var)]
        if inside:
            self.rng.shuffle(inside)
            steps: tuple[ln.Step, ...] = ()
            if self.rng.random() < 0.5:
                steps = (Mark(f"c{len(inside) - 1}", Kind.VECTOR),)
            self.steps.append(Stage(slot, at, tuple(inside), steps))


def run_all(one: Sample, versions: list[tuple[ln.Step, ...]]) -> list[str]:
    """Compile and run each version; what is wrong with those that are wrong."""
    where = engine.opened(DEVICE)
    bodies = []
    for steps in versions:
        nest = replace(one.nest, steps=steps)
        kernel = replace(one.kernel, nests=(nest,))
        try:
            bodies.append(lower(kernel, where.target.machine))
        except Exception as error:
            raise AssertionError(f"cannot lower\n{text_of(one, steps)}") from error
    count = len(one.buffers)
    texts = [where.target.text(one.kernel.name, body, count) for body, _ in bodies]
    problems = []
    jobs = [llvm.Job(text, where.target.llvm, "none", 2) for text in texts]
    images = llvm.compile_many(jobs, own=True)
    for steps, image, (_, blocks) in zip(versions, images, bodies, strict=True):
        got = run(one, where.device.load(image)[one.kernel.name], blocks)
        if not np.array_equal(got, one.expected):
            count = int((got != one.expected).sum())
            problems.append(f"{count} of {got.size} elements wrong with\n{text_of(one, steps)}")
    return problems


def text_of(one: Sample, steps: tuple[ln.Step, ...]) -> str:
    nest = replace(one.nest, steps=steps)
    listed = "\n".join(f"    {step}" for step in steps)
    try:
        return f"{listed}\n{ln.show(replace(one.kernel, nests=(nest,)))}"
    except ValueError as error:
        return f"{listed}\n{error}"


def run(one: Sample, kernel: Any, blocks: int) -> Any:
    """The kernel's result, in memory that held something else."""
    where = engine.opened(DEVICE)
    out = where.alloc(one.expected.nbytes)
    out.write(np.full(one.expected.nbytes, 0xA5, np.uint8))
    arguments = [out if held is None else held.buffer for held in one.buffers]
    where.queue.launch(kernel, arguments, grid=blocks)
    where.queue.submit()
    where.queue.synchronize()
    data = np.frombuffer(bytearray(out.read(one.expected.nbytes)), one.expected.dtype)
    return data.reshape(one.expected.shape)


def allowed(one: Sample, steps: tuple[ln.Step, ...]) -> bool:
    """Whether the rules allow these steps; what they allow must work."""
    try:
        loops = ln.apply(one.nest.axes, one.nest.reduce, steps)
        stages.check(replace(one.nest, steps=steps), loops, one.kernel.slots, {})
        ln.check_carried(one.nest, loops)
    except ValueError:
        return False
    return True


def check(name: str, seed: int, count: int) -> None:
    one = sample(name)
    rng = random.Random(f"{name} {seed}")
    chosen = [Chooser(rng, one.nest).choose() for _ in range(count)]
    versions = [(), *(steps for steps in chosen if allowed(one, steps))]
    assert 4 * len(versions) > count, "the rules refuse most of what is tried"
    problems = run_all(one, versions)
    assert not problems, f"seed {seed}: {len(problems)} of {count} wrong\n" + problems[0]


@pytest.mark.parametrize("name", GRAPHS)
def test_random_schedules_compute_the_same(name: str) -> None:
    check(name, seed=1, count=8)


@pytest.mark.full
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_random_schedules_compute_the_same(name: str, seed: int) -> None:
    check(name, seed, count=40)


def test_a_step_against_the_rules_says_which() -> None:
    axes, reduce = sample("product").nest.axes, sample("product").nest.reduce
    with pytest.raises(ValueError, match="no loop 'x'"):
        ln.apply(axes, reduce, [Split("x", 2)])
    with pytest.raises(ValueError, match="one vector loop"):
        ln.apply(axes, (), [Mark(v.name, Kind.VECTOR) for v in axes])
    with pytest.raises(ValueError, match="reduction axis cannot be a grid"):
        ln.apply((), reduce, [Mark(reduce[0].name, Kind.GRID)])
    first = axes[0].name
    with pytest.raises(ValueError, match="outside"):
        ln.apply(axes[:1], (), [Split(first, 2), Order((f"{first}%2", f"{first}/2"))])
    with pytest.raises(ValueError, match="does not name each"):
        ln.apply(axes, (), [Order((first,))])


def test_the_samples_are_one_kernel_with_one_result() -> None:
    for name in GRAPHS:
        assert sample(name).buffers.count(None) == 1, name
