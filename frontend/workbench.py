"""Take the kernels of a computation, change one at any level, run again, compare.

    bench = Workbench(x.sum())
    kernel = bench["sum"]
    print(kernel.loops)                       # also .instructions, .text, .asm
    kernel.schedule(Split("k0", 128), …)      # other loops, same meaning
    kernel.replace_text(my_llvm_ir)           # or another meaning, if it is wrong
    print(bench.run().table())                # times before and after; raises if results differ

Hand-written text is compiled in a worker process, so that what kills LLVM is a CompileError here.
Kernels are `void name(ptr args, i64 begin, i64 end)`: `args` holds one address for each buffer in
`kernel.buffers`, and blocks `begin` to `end` of `kernel.blocks` are to be done.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from frontend import engine, profile
from frontend.engine import Run, Storage
from frontend.graph import node as g
from frontend.graph.node import Node
from frontend.instructions.ir import show as show_instructions
from frontend.instructions.lower import lower
from frontend.loops import nest as ln
from frontend.ops.arithmetic import where
from frontend.ops.convert import placed
from frontend.schedule.plan import Code, Place, plan_graph, signature
from frontend.target import Target
from frontend.tensor import Tensor
from rawgpu.errors import OperationError


class Kernel:
    """One kernel on the bench."""

    def __init__(
        self, code: Code, nest: ln.Kernel | None, target: Target, buffers: list[str]
    ) -> None:
        self._original, self._nest, self._target = code, nest, target
        self._code, self._kernel = code, nest
        self.buffers = buffers
        """What each argument is: `leaf 0, 64 bytes` and so on."""

    @property
    def name(self) -> str:
        return self._original.name

    @property
    def blocks(self) -> int:
        return self._code.blocks

    @property
    def changed(self) -> bool:
        return self._code is not self._original

    @property
    def loops(self) -> str:
        """The loop nest as text."""
        return "" if self._kernel is None else ln.show(self._kernel)

    def steps(self, nest: int = 0) -> tuple[ln.Step, ...]:
        """The schedule of one nest; `nest` -1 is the loops that all nests share."""
        kernel = self._nests(nest)
        return kernel.outer_steps if nest < 0 else kernel.nests[nest].steps

    @property
    def instructions(self) -> str:
        """The instructions as text."""
        if self._kernel is None:
            return ""
        body, _ = lower(self._kernel, self._target.machine)
        return show_instructions(body)

    @property
    def text(self) -> str:
        """The text that is compiled."""
        return self._code.text

    @property
    def asm(self) -> str:
        """The assembly that comes of it."""
        return self._target.assembly(self._code.text)

    def _nests(self, nest: int) -> ln.Kernel:
        kernel = self._kernel
        if kernel is None:
            raise OperationError(f"{self.name} has no loop nest to edit", hint="replace its text")
        if not -1 <= nest < len(kernel.nests):
            raise OperationError(f"{self.name} has {len(kernel.nests)} nests, and no nest {nest}")
        return kernel

    def schedule(self, *steps: ln.Step, nest: int = 0) -> None:
        """Other steps for one nest, from its plain loops; -1: for the shared loops.

        Raises OperationError that names the loop or rule a step breaks.
        """
        kernel = self._nests(nest)
        try:
            if nest < 0:
                ln.apply(kernel.outer, (), steps)
                kernel = replace(kernel, outer_steps=steps)
            else:
                old = kernel.nests[nest]
                ln.apply(old.axes, old.reduce, steps)
                nests = list(kernel.nests)
                nests[nest] = replace(old, steps=steps)
                kernel = replace(kernel, nests=tuple(nests))
            body, blocks = lower(kernel, self._target.machine)
        except ValueError as error:
            raise OperationError(f"{self.name}: {error}") from None
        self._kernel = kernel
        text = self._target.text(self.name, body, len(self.buffers))
        self._code = replace(self._original, text=text, blocks=blocks)

    def replace_text(self, text: str, *, blocks: int | None = None) -> None:
        """Hand-written LLVM IR that defines `name`; compiled when the bench runs."""
        blocks = self.blocks if blocks is None else blocks
        self._code = replace(self._original, text=text, blocks=blocks, foreign=True)

    def replace_assembly(self, assembly: str, *, blocks: int | None = None) -> None:
        """Hand-written assembly that defines the global symbol `name`."""
        lines = (_quoted(line) for line in assembly.splitlines())
        self.replace_text("\n".join(f'module asm "{line}"' for line in lines) + "\n", blocks=blocks)

    def reset(self) -> None:
        """Back to what was generated."""
        self._code, self._kernel = self._original, self._nest


def _quoted(line: str) -> str:
    return "".join(c if c.isprintable() and c not in '"\\' else f"\\{ord(c):02X}" for c in line)


@dataclass(frozen=True)
class Change:
    """A kernel's time before and after, in nanoseconds, and its rates after."""

    name: str
    before_ns: float
    after_ns: float
    gflops: float
    gbytes: float
    changed: bool


@dataclass(frozen=True)
class Report:
    """What a run of the bench found."""

    rows: list[Change]
    errors: list[float]
    """For each tensor, the largest difference, relative to the original's largest value."""

    def table(self) -> str:
        """As text."""
        wide = max([6, *(len(r.name) for r in self.rows)])
        lines = [f"{'kernel':{wide}}  before µs   after µs  speed-up  GFLOP/s    GB/s"]
        for r in self.rows:
            mark = " changed" if r.changed else ""
            faster = r.before_ns / max(1.0, r.after_ns)
            lines.append(
                f"{r.name:{wide}}  {r.before_ns / 1e3:9.2f}  {r.after_ns / 1e3:9.2f}"
                f"  {faster:7.2f}x  {r.gflops:7.1f}  {r.gbytes:6.1f}{mark}"
            )
        lines.append(f"largest difference from the original: {max(self.errors, default=0.0):g}")
        return "\n".join(lines)


class Workbench:
    """The kernels behind some tensors that are not computed yet."""

    def __init__(self, *tensors: Tensor) -> None:
        nodes = [engine.base(placed(t.node, t.device)) for t in tensors]
        self._roots = [n for n in dict.fromkeys(nodes) if n.storage is None]
        if not self._roots:
            raise OperationError("workbench: every tensor has its value already; nothing would run")
        _, self._leaves = signature(self._roots)
        names = {n.device for n in g.topological(self._roots) if n.device is not None}
        targets = {name: engine.opened(name).target for name in sorted(names)}
        planned = plan_graph(self._roots, targets)
        self._plan = planned.plan
        self.kernels: list[Kernel] = []
        seen: set[int] = set()
        for step in self._plan.steps:
            if step.code >= 0 and step.code not in seen:
                seen.add(step.code)
                target, nest = targets[step.device], planned.kernels.get(step.code)
                buffers = [self._describe(b) for b in step.buffers]
                self.kernels.append(Kernel(self._plan.codes[step.code], nest, target, buffers))

    def _describe(self, number: int) -> str:
        p = self._plan.places[number]
        return f"{p.kind} {max(p.number, 0)}, {p.size_bytes} bytes"

    def __getitem__(self, name: str | int) -> Kernel:
        """By position, or the first whose name contains `name`."""
        if isinstance(name, int):
            return self.kernels[name]
        for kernel in self.kernels:
            if name in kernel.name:
                return kernel
        known = ", ".join(k.name for k in self.kernels)
        raise OperationError(f"workbench: no kernel {name!r}; there are: {known}")

    def run(self, *, repeat: int = 20, tolerance: float = 1e-5) -> Report:
        """Run original and changed kernels in turn; times are medians of `repeat` rounds.

        Raises OperationError where a result differs by more than `tolerance` of the largest value,
        CompileError, KernelFault.
        """
        changed = {k._original.text: k for k in self.kernels if k.changed}
        codes = [changed[c.text]._code if c.text in changed else c for c in self._plan.codes]
        places = [self._in_given_memory(p) for p in self._plan.places]
        plan = replace(self._plan, places=places)
        runs = [Run(plan), Run(replace(plan, codes=codes))]
        leaves = [leaf.storage.copy(leaf.device) for leaf in self._leaves]
        memory = [[*leaves, *self._spoiled_results()] for _ in runs]
        results = []
        for run, storages in zip(runs, memory, strict=True):
            self._spoil_temporaries()
            results.append(run(storages))
        for i, (leaf, storage) in enumerate(zip(self._leaves, leaves, strict=True)):
            if self._error(leaf, leaf.storage, storage):
                raise OperationError(f"workbench: a kernel wrote into its input, leaf {i}")
        pairs = zip(self._roots, *results, strict=True)
        errors = [self._error(root, before, after) for root, before, after in pairs]
        for i, error in enumerate(errors):
            if not error <= tolerance:
                raise OperationError(
                    f"workbench: tensor {i} differs from the original by {error:g} "
                    "of its largest value"
                )
        times = self._times(runs, memory, repeat)
        return Report(self._rows(codes, *times), errors)

    def _in_given_memory(self, place: Place) -> Place:
        """Results lie in memory that is given after the leaves."""
        if place.kind != "result":
            return place
        return replace(place, inside=len(self._leaves) + place.number)

    def _spoiled_results(self) -> list[Storage]:
        """Memory for results with bytes that no kernel has put there."""
        return [
            _spoiled(root.device or "", root.size * root.dtype.size_bytes) for root in self._roots
        ]

    def _spoil_temporaries(self) -> None:
        """The next run is likely to get this memory for what lies between its kernels."""
        spoiled = [_spoiled(device, size) for device, size in self._plan.arenas.items()]
        for storage in spoiled:
            storage.buffer.close()

    def _error(self, node: Node, before: Storage, after: Storage) -> float:
        """The largest difference, relative to the largest value; 1 for integers that differ."""
        device = node.device or ""
        old, new = (
            Tensor._new(g.buffer(node.shape, node.dtype, device, s), device)
            for s in (before, after)
        )
        if not old.size:
            return 0.0
        if not node.dtype.is_float:
            return float((old != new).any().item())
        a, b = old.astype("float64"), new.astype("float64")
        differs = (a != b) & ~((a != a) & (b != b))
        distance = where(differs, (a - b).abs(), 0.0)
        largest = float(a.abs().max().item())
        return float(distance.max().item()) / max(largest, 1e-30)

    def _times(
        self, runs: Sequence[Run], memory: Sequence[Sequence[Storage]], repeat: int
    ) -> list[list[float]]:
        """For each run the time of each launch: the median of rounds in which runs take turns."""
        rounds: list[list[list[int]]] = [[] for _ in runs]
        for _ in range(repeat):
            for times, run, storages in zip(rounds, runs, memory, strict=True):
                with profile.profile() as p:
                    run(storages)
                times.append([row.ns for row in p.rows])
        return [[statistics.median(t) for t in zip(*times, strict=True)] for times in rounds]

    def _rows(
        self, codes: Sequence[Code], before: Sequence[float], after: Sequence[float]
    ) -> list[Change]:
        launches = [s for s in self._plan.steps if s.code >= 0]
        rows = []
        for step, old, new in zip(launches, before, after, strict=True):
            code = codes[step.code]
            changed = code is not self._plan.codes[step.code]
            ns = max(new, 1.0)
            rates = code.flops / ns, code.bytes_moved / ns
            rows.append(Change(code.name, old, new, *rates, changed))
        return rows


def _spoiled(device: str, size_bytes: int) -> Storage:
    """Memory full of ones: NaN as a float, -1 as an integer."""
    owner = engine.opened(device)
    buffer = owner.alloc(size_bytes)
    owner.queue.fill(buffer, 0xFF, size_bytes)
    owner.queue.submit()
    return Storage(buffer, size_bytes)
