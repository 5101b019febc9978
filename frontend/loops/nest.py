"""Kernels as loop nests, and the schedule steps that say how a nest runs.

A `Kernel` has buffers (`slots`) and nests that share its `outer` loops; a nest has output axes,
reduction axes, reductions over them, and stores. A nest says *what*; its `steps` say *how*:

    Split("m", 8)                 axis m becomes the loops m/8 and m%8
    Order("n/48", "m/8", "k", …)  outermost first; a reduction may stand outside outputs
    Mark("m%8", Kind.UNROLL)      grid, loop, unroll or vector
    Stage(slot, "m/8", …)         copy what the loops inside read of a buffer to local memory first
    Stream(slot)                  what is stored to a buffer goes past the caches
    Prefetch(slot, 2048)          what is read of a buffer is asked for so many bytes ahead

`show` prints a kernel; nothing here knows about instructions. Lowering to them is
`instructions/lower.py`, the steps chosen without search are `heuristic.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import TypeAlias

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph.node import Op
from frontend.loops import expr as ex
from frontend.loops.expr import Expr
from frontend.loops.index import Index, Var


class Kind(Enum):
    """How a loop runs."""

    GRID = "grid"
    """Its rounds are blocks, which may run side by side."""
    LOOP = "loop"
    UNROLL = "unroll"
    """Its rounds are written out one after another; accumulators stay in registers."""
    VECTOR = "vector"
    """Its rounds are lanes."""
    CHAIN = "chain"
    """A reduction loop written out; unlike UNROLL, every round adds to the same accumulators."""
    PART = "part"
    """A reduction loop whose rounds are summed by themselves first: a sum of short sums loses less
    to rounding than one long sum."""


class Role(Enum):
    """What a buffer is to a kernel."""

    INPUT = "in"
    OUTPUT = "out"
    SCRATCH = "scratch"
    """Memory of one block's own."""
    REGISTER = "register"
    """A single value of one round of the outer loops."""


@dataclass(frozen=True)
class Slot:
    """A buffer that a kernel uses. `size` in elements."""

    role: Role
    dtype: DType
    size: int


@dataclass(frozen=True)
class Reduction:
    """Fold `value` over the reduction axes: SUM, PROD, MAX, MIN, ARGMAX or ARGMIN.

    The two ARG kinds give the position along `axis` as int64.
    """

    kind: Op
    value: Expr
    dtype: DType
    axis: Var | None = None


def identity(kind: Op, dtype: DType) -> bool | int | float:
    """What a reduction of nothing gives."""
    if kind is Op.SUM:
        return False if dtype.kind == "b" else 0
    if kind is Op.PROD:
        return True if dtype.kind == "b" else 1
    low, high = dt.limits(dtype)
    return low if kind in (Op.MAX, Op.ARGMAX) else high


@dataclass(frozen=True)
class Store:
    """`slot[index] = value`, or `+=` with `add`.

    With `position`, the index holds `var`, which stands for what `position` computes; a position
    outside `var` stores nothing.
    """

    slot: int
    index: Index
    value: Expr
    add: bool = False
    var: Var | None = None
    position: Expr | None = None


@dataclass(frozen=True)
class Split:
    """Axis or loop `axis` becomes `axis/factor` and `axis%factor`.

    Where `factor` does not divide the extent, the last round is shorter.
    """

    axis: str
    factor: int


@dataclass(frozen=True)
class Order:
    """All loops, outermost first."""

    loops: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """Say how `loop` runs."""

    loop: str
    kind: Kind


@dataclass(frozen=True)
class Stage:
    """Before loop `at` begins, copy what is read of `slot` inside it to local memory.

    `axes` name loops inside `at`, or what was split into such loops, outermost first; the last is
    contiguous in the copy. The copy is a nest of its own (`stages.py`), over axes c0, c1, … in that
    order; `steps` say how it runs, which is as plain loops without any.
    """

    slot: int
    at: str
    axes: tuple[str, ...]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Stream:
    """What the nest stores to `slot` goes past the caches, where its vectors are aligned.

    Worth it for what is too large to be found in a cache by whoever reads it next: a plain store
    reads the line before it changes it.
    """

    slot: int


@dataclass(frozen=True)
class Prefetch:
    """With each row of lanes that is read of `slot`, the one `ahead_bytes` further is asked for."""

    slot: int
    ahead_bytes: int


Step: TypeAlias = "Split | Order | Mark | Stage | Stream | Prefetch"


@dataclass(frozen=True)
class Nest:
    """Loops over `axes` (outputs) and `reduce`, what they fold and what they store.

    `inner` stores happen at each point of the reduction, with reductions at their running value;
    `stores` after it. `ordered`: axes whose points must run in order, as scans and scatters need.
    `limits`: for an axis, the first of its points, over the kernel's outer loops, from which on
    nothing is needed: all nests of the kernel leave out the same ones (`loops/limits.py`).
    `whole`: axes that stay axes, since the kernel or another nest means the same one by them.
    """

    axes: tuple[Var, ...]
    reduce: tuple[Var, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    stores: tuple[Store, ...] = ()
    inner: tuple[Store, ...] = ()
    ordered: tuple[Var, ...] = ()
    steps: tuple[Step, ...] = ()
    limits: tuple[tuple[Var, Index], ...] = ()
    whole: tuple[Var, ...] = ()

    def expressions(self) -> tuple[Expr, ...]:
        """Every root expression of the nest."""
        roots = [r.value for r in self.reductions]
        for store in (*self.inner, *self.stores):
            roots.append(store.value)
            if store.position is not None:
                roots.append(store.position)
        return tuple(roots)

    def loads(self) -> list[ex.Load]:
        return [e for e in ex.walk(self.expressions()) if isinstance(e, ex.Load)]

    @property
    def points(self) -> int:
        return math.prod(v.extent for v in (*self.axes, *self.reduce))


@dataclass(frozen=True)
class Short:
    """In the last round of the outer loop `loop`, the nests' axis `axis` ends at `extent`."""

    loop: Var
    axis: Var
    extent: int


@dataclass(frozen=True)
class Kernel:
    """Nests that run one after another in each round of the `outer` loops, which form the grid."""

    name: str
    slots: tuple[Slot, ...]
    outer: tuple[Var, ...]
    nests: tuple[Nest, ...]
    outer_steps: tuple[Step, ...] = ()
    short: Short | None = None

    @property
    def buffers(self) -> tuple[int, ...]:
        """The slots that are arguments, in order."""
        return tuple(i for i, s in enumerate(self.slots) if s.role in (Role.INPUT, Role.OUTPUT))


@dataclass(frozen=True)
class Loop:
    """One loop after splitting. `axis` it came from; `reduce`: a reduction axis."""

    name: str
    var: Var
    kind: Kind
    reduce: bool


@dataclass
class Loops:
    """A nest's loops after its steps, and each original axis as an index over them."""

    order: list[Loop]
    splits: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """Split name → (outer loop, inner loop, factor)."""
    outer_of: dict[str, str] = field(default_factory=dict)
    """Outer loop → the name that was split."""
    values: dict[Var, Index] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    streams: set[int] = field(default_factory=set)
    """The slots whose stores go past the caches."""
    ahead_bytes: dict[int, int] = field(default_factory=dict)
    """Slots that are prefetched, and how far ahead."""

    def loop(self, name: str) -> Loop:
        for loop in self.order:
            if loop.name == name:
                return loop
        names = ", ".join(loop.name for loop in self.order)
        raise ValueError(f"no loop {name!r} among {names}")

    def leaves(self, name: str) -> list[str]:
        """The loops that a name was split into in the end."""
        if name not in self.splits:
            return [name]
        outer, inner, _ = self.splits[name]
        return [outer, *self.leaves(inner)]

    def extent(self, name: str) -> int:
        """How far a loop runs, or what was split into loops, in a full round of those around it."""
        for loop in self.order:
            if loop.name == name:
                return loop.var.extent
        for whole, (_, inner, factor) in self.splits.items():
            if inner == name:
                return min(factor, self.extent(whole))
        return next(v.extent for v in self.values if v.name == name)

    def index(self, name: str, given: Mapping[str, Index]) -> Index:
        """A loop, or what was split into loops, as an index over loops and what is `given`."""
        if name in given:
            return given[name]
        if name not in self.splits:
            return Index.of(self.loop(name).var)
        outer, inner, factor = self.splits[name]
        return self.index(outer, given) * factor + self.index(inner, given)

    def copy_axes(self, stage: Stage) -> tuple[Var, ...]:
        """The axes of a stage's copy, at their full extents."""
        return tuple(Var(f"c{i}", self.extent(name)) for i, name in enumerate(stage.axes))

    @property
    def body_at(self) -> int:
        """Where the loops begin that a tile's sums stay in registers for."""
        at = len(self.order)
        while at and (self.order[at - 1].reduce or _rank(self.order[at - 1]) == 3):
            at -= 1
        return at

    @property
    def carried(self) -> list[Loop]:
        """Reduction loops outside output loops."""
        return [loop for loop in self.order[: self.body_at] if loop.reduce]

    def open_at(self, stage: Stage) -> list[Loop]:
        """The loops that stand outside a stage."""
        return self.order[: self.order.index(self.loop(stage.at))]


def apply(axes: Sequence[Var], reduce: Sequence[Var], steps: Sequence[Step]) -> Loops:
    """Run the steps. Raises ValueError for a step that names no loop or breaks a rule."""
    order = [Loop(v.name, v, Kind.LOOP, False) for v in axes]
    order += [Loop(v.name, v, Kind.LOOP, True) for v in reduce]
    loops = Loops(order, values={v: Index.of(v) for v in (*axes, *reduce)})
    for step in steps:
        if isinstance(step, Split):
            _split(loops, step)
        elif isinstance(step, Order):
            if sorted(step.loops) != sorted(loop.name for loop in loops.order):
                names = ", ".join(loop.name for loop in loops.order)
                raise ValueError(f"order {step.loops} does not name each of {names} once")
            loops.order = [loops.loop(name) for name in step.loops]
        elif isinstance(step, Mark):
            at = loops.order.index(loops.loop(step.loop))
            loops.order[at] = replace(loops.order[at], kind=step.kind)
        elif isinstance(step, Stage):
            loops.stages.append(step)
        elif isinstance(step, Stream):
            loops.streams.add(step.slot)
        else:
            loops.ahead_bytes[step.slot] = step.ahead_bytes
    _check(loops)
    return loops


def _split(loops: Loops, step: Split) -> None:
    loop = loops.loop(step.axis)
    if step.factor < 1:
        raise ValueError(f"cannot split {step.axis} by {step.factor}")
    if loop.name in loops.outer_of:
        whole = loops.outer_of[loop.name]
        raise ValueError(f"{loop.name} counts whole rounds; split {whole} by more, then its rest")
    outer = Var(f"{loop.name}/{step.factor}", -(-loop.var.extent // step.factor))
    inner = Var(f"{loop.name}%{step.factor}", min(step.factor, loop.var.extent))
    at = loops.order.index(loop)
    loops.order[at : at + 1] = [
        Loop(outer.name, outer, Kind.LOOP, loop.reduce),
        Loop(inner.name, inner, Kind.LOOP, loop.reduce),
    ]
    loops.splits[loop.name] = (outer.name, inner.name, step.factor)
    loops.outer_of[outer.name] = loop.name
    put = {loop.var: Index.of(outer) * step.factor + Index.of(inner)}
    loops.values = {v: index.substitute(put) for v, index in loops.values.items()}


def _check(loops: Loops) -> None:
    """Raise ValueError where an order, a mark or a split breaks a rule."""
    anywhere = [lo for lo in loops.order if lo.reduce and lo.kind is Kind.LOOP]
    rank = [_rank(lo) for lo in loops.order if lo not in anywhere]
    places = [_rank(lo) for lo in loops.order]
    if rank != sorted(rank) or any(a > b and b != 1 for a, b in pairwise(places)):
        names = ", ".join(f"{lo.name} ({lo.kind.value})" for lo in loops.order)
        raise ValueError(
            f"loops must stand as grid, outputs, reductions, unrolled and vector: {names}"
        )
    if any(lo.kind is Kind.GRID and lo.reduce for lo in loops.order):
        raise ValueError("a reduction axis cannot be a grid axis")
    if sum(lo.kind is Kind.VECTOR for lo in loops.order) > 1:
        raise ValueError("one vector loop at most")
    position = {lo.name: i for i, lo in enumerate(loops.order)}
    kinds = {lo.name: lo.kind for lo in loops.order}
    for name, (outer, inner, factor) in loops.splits.items():
        parts = loops.leaves(inner)
        if any(position[outer] > position[part] for part in parts):
            raise ValueError(f"loop {outer} must stand outside {', '.join(parts)}")
        if loops.extent(name) % factor and any(kinds[part] is Kind.GRID for part in parts):
            raise ValueError(
                f"{factor} does not divide {name}: the last round of {outer} is shorter, so "
                f"{', '.join(parts)} cannot be grid loops"
            )
    for stage in loops.stages:
        _check_stage(loops, stage)


def _check_stage(loops: Loops, stage: Stage) -> None:
    """Raise ValueError for a stage that stands nowhere, or whose axes are not loops inside it."""
    outside = [loop.name for loop in loops.open_at(stage)]
    if len(outside) > loops.body_at:
        raise ValueError(f"a stage cannot stand at {stage.at}, inside a reduction or the tile")
    parts = [part for name in stage.axes for part in loops.leaves(name)]
    for part in parts:
        loops.loop(part)
        if part in outside:
            raise ValueError(f"axis {part} of the stage at {stage.at} is not inside that loop")
        if parts.count(part) > 1:
            raise ValueError(f"the axes of the stage at {stage.at} name {part} twice")
    for step in stage.steps:
        if isinstance(step, Stage) or (isinstance(step, Mark) and step.kind is Kind.GRID):
            raise ValueError(f"the copy at {stage.at} runs inside one block: it cannot {step}")
    apply(loops.copy_axes(stage), (), stage.steps)


def check_carried(nest: Nest, loops: Loops) -> None:
    """Raise ValueError where sums are to wait, in memory or in registers, that cannot."""
    parts = [lo.name for lo in loops.order if lo.kind is Kind.PART]
    if parts and (nest.inner or nest.ordered):
        raise ValueError(f"{', '.join(parts)} summed apart: running values cannot wait")
    if not loops.carried:
        return
    names = ", ".join(lo.name for lo in loops.carried)
    if nest.inner or nest.ordered or any(lo.reduce for lo in loops.order if _rank(lo) == 3):
        raise ValueError(f"{names} outside output loops: running values and lanes cannot wait")
    for r in nest.reductions:
        if r.kind in (Op.ARGMAX, Op.ARGMIN) or r.dtype.kind == "b":
            raise ValueError(f"{names} outside output loops: no {r.kind.name} of {r.dtype} waits")


def _rank(loop: Loop) -> int:
    """Loops stand as: grid, over outputs, over reductions, then unrolled and vector.

    Reduction loops may stand among output loops; the sums then wait in memory (`carried.py`).
    """
    if loop.kind is Kind.GRID:
        return 0
    if loop.kind in (Kind.UNROLL, Kind.VECTOR):
        return 3
    return 2 if loop.reduce else 1


def show(kernel: Kernel) -> str:
    """The kernel as text: buffers, loops, statements."""
    arguments = ", ".join(
        f"b{i} {s.role.value} {s.dtype}[{s.size}]" for i, s in enumerate(kernel.slots)
    )
    lines = [f"kernel {kernel.name}({arguments})"]
    indent = "  "
    for loop in apply(kernel.outer, (), kernel.outer_steps).order:
        lines.append(f"{indent}{loop.kind.value} {loop.name} in {loop.var.extent}")
        indent += "  "
    for nest in kernel.nests:
        lines += _show_nest(nest, indent)
    return "\n".join(lines)


def _show_nest(nest: Nest, indent: str) -> list[str]:
    loops = apply(nest.axes, nest.reduce, nest.steps)
    lines = [f"{indent}{axis} ends before {bound}" for axis, bound in nest.limits]
    rename = ex.Substitution(loops.values)
    for loop in loops.order:
        for stage in loops.stages:
            if stage.at == loop.name:
                lines.append(f"{indent}stage b{stage.slot} as [{', '.join(stage.axes)}]")
                copy = apply(loops.copy_axes(stage), (), stage.steps)
                lines += _show_loops(copy.order, indent + "  ")
        lines += _show_loops([loop], indent)
        indent += "  "
    lines += [f"{indent}prefetch b{i} by {n} bytes" for i, n in loops.ahead_bytes.items()]
    for i, r in enumerate(nest.reductions):
        lines.append(f"{indent}acc{i} {r.dtype} {r.kind.name.lower()}= {ex.show(rename(r.value))}")
    for word, stores in (("", nest.inner), ("after: " if nest.reductions else "", nest.stores)):
        lines += [f"{indent}{word}{_show_store(s, rename, loops)}" for s in stores]
    return lines


def _show_loops(loops: Sequence[Loop], indent: str) -> list[str]:
    lines = []
    for number, loop in enumerate(loops):
        word = loop.kind.value + (" reduce" if loop.reduce else "")
        lines.append(f"{indent}{'  ' * number}{word} {loop.name} in {loop.var.extent}")
    return lines


def _show_store(s: Store, rename: ex.Substitution, loops: Loops) -> str:
    sign = "+=" if s.add else "="
    where = f" with {s.var} = {ex.show(rename(s.position))}" if s.position is not None else ""
    past = " past the caches" if s.slot in loops.streams else ""
    at = s.index.substitute(loops.values)
    return f"b{s.slot}[{at}] {sign} {ex.show(rename(s.value))}{where}{past}"
