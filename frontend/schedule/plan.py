"""From a graph to a plan: kernels as text, launches, and where every buffer lies.

A plan is plain data. It knows leaves, results and temporaries by number only, so the same plan
serves every graph of the same form, in this process or, from the disk cache, in another.
`signature` is that form.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field

from frontend.graph.node import Node, Op, topological
from frontend.instructions.ir import Region
from frontend.instructions.ir import show as show_instructions
from frontend.instructions.lower import lower
from frontend.instructions.sort import lower_sort
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.form import form_of
from frontend.loops.heuristic import schedule
from frontend.schedule import build as bd
from frontend.schedule.devices import gathered, settle
from frontend.schedule.group import Group, group
from frontend.schedule.memory import Lifetime, place
from frontend.schedule.partition import cost_of, is_leaf, partition
from frontend.show import show
from frontend.target import Target


@dataclass
class Code:
    """One kernel as text, with what it costs by our count."""

    name: str
    text: str
    blocks: int
    flops: int
    """Floating-point and integer operations of one launch."""
    bytes_moved: int
    """Bytes of its buffers, each once."""
    foreign: bool = False
    """Not our generator's text: to be compiled in another process."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass
class Step:
    """Launch `code` on `device` with these buffers.

    With code -1 it is a transfer to `device`, from buffers[1] to buffers[0].
    """

    device: str
    code: int
    buffers: list[int]
    work_ns: int = 0


@dataclass
class Place:
    """A buffer of a plan. `kind`: leaf, result or temporary; `number`: which leaf or result."""

    kind: str
    device: str
    size_bytes: int
    number: int = -1
    offset: int = 0
    inside: int = -1
    """For a result: the leaf whose memory it takes over, element by element; else -1."""


@dataclass
class Plan:
    """What one realize does."""

    codes: list[Code] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    arenas: dict[str, int] = field(default_factory=dict)
    """Bytes of temporaries on each device."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> Plan:
        raw = json.loads(data)
        return Plan(
            [Code(**c) for c in raw["codes"]],
            [Step(**s) for s in raw["steps"]],
            [Place(**p) for p in raw["places"]],
            raw["arenas"],
        )


def signature(roots: Sequence[Node]) -> tuple[tuple[object, ...], list[Node]]:
    """(the graph's form, its leaves in order). Equal forms can share a plan."""
    number: dict[Node, int] = {}
    leaves: list[Node] = []
    form: list[object] = []
    for node in topological(roots):
        number[node] = len(number)
        if node.storage is not None or node.op is Op.BUFFER:
            leaves.append(node)
            form.append((node.dtype.name, node.shape, node.device))
        else:
            argument = None if node.op is Op.DETACH else node.arg
            sources = tuple(number[s] for s in node.src) if node.size else ()
            form.append((node.op, argument, node.dtype.name, node.shape, sources))
    form.append(tuple(number[r] for r in roots))
    return tuple(form), leaves


def form_text(form: Iterable[object]) -> str:
    """The form as text that is the same in every process; the disk cache's key."""
    return repr(
        [
            tuple(p.name if isinstance(p, Op) else p for p in f) if isinstance(f, tuple) else f
            for f in form
        ]
    )


@dataclass(frozen=True)
class Planned:
    """A plan, and the scheduled kernel behind each of its codes that is a loop nest."""

    plan: Plan
    kernels: dict[int, ln.Kernel]


def make_plan(
    roots: Sequence[Node],
    targets: dict[str, Target],
    replaced: Sequence[tuple[int, int]] = (),
) -> Plan:
    """Schedule, lower and print the graph behind `roots`.

    `targets`: for each device that takes part. `replaced`: pairs of a root and a leaf, by number,
    whose memory the root may take over, if the plan reads each old element no later than it writes
    the new one.
    """
    return plan_graph(roots, targets, replaced).plan


def plan_graph(
    roots: Sequence[Node],
    targets: dict[str, Target],
    replaced: Sequence[tuple[int, int]] = (),
) -> Planned:
    """As `make_plan`, with the kernels beside the plan."""
    roots = settle(roots)
    order, kept = partition(roots)
    show("graph", lambda: "\n".join(_graph_lines(order, kept)))
    row_bytes = min((t.machine.row_bytes for t in targets.values()), default=0)
    machine = next(iter(targets.values())).machine if len(targets) == 1 else None
    groups = group(order, kept, frozenset(roots), row_bytes, machine)
    show("schedule", lambda: "\n".join(_group_line(gr) for gr in groups))
    planner = _Planner(_Places(roots, order), targets)
    users, results = _users(groups), set(roots)
    for gr in groups:
        for task in bd.build(gr, _external(gr, results, users)):
            planner.add(task)
    return planner.finished(replaced)


def _graph_lines(order: Sequence[Node], kept: set[Node]) -> list[str]:
    number = {node: i for i, node in enumerate(order)}
    return [
        f"{'*' if node in kept else ' '} %{i} = {node} "
        + " ".join(f"%{number[s]}" for s in node.src if s in number)
        for i, node in enumerate(order)
    ]


def _group_line(gr: Group) -> str:
    how = "" if gr.rows is None else f" over rows {list(gr.rows)}"
    return f"kernel {gr.number}{how}: " + ", ".join(map(str, gr.nodes))


class _Places:
    """The buffers of a plan: leaves and results first, temporaries as they are asked for."""

    def __init__(self, roots: Sequence[Node], order: Sequence[Node]) -> None:
        self.all: list[Place] = []
        self._of: dict[Node, int] = {}
        self._device = _devices(order)
        self._only = next((n.device for n in roots if n.device is not None), "")
        for i, node in enumerate(n for n in order if is_leaf(n)):
            self._of[node] = self.add(Place("leaf", node.device or "", _size(node), i))
        for i, node in enumerate(roots):
            if node not in self._of:
                assert node.device is not None, node
                self._of[node] = self.add(Place("result", node.device, _size(node), i))

    def add(self, where: Place) -> int:
        self.all.append(where)
        return len(self.all) - 1

    def device(self, node: Node) -> str:
        """Where a node is computed."""
        # what stands for a part of a node of constants is on the only device, if on any
        return self._device.get(node) or node.device or self._only

    def __getitem__(self, node: Node) -> int:
        """The number of the node's place."""
        found = self._of.get(node)
        if found is None:
            place = Place("temporary", self.device(node), _size(node))
            found = self._of[node] = self.add(place)
        return found


class _Planner:
    """Turns tasks into steps; a kernel that occurs again is scheduled, lowered and printed once."""

    def __init__(self, places: _Places, targets: dict[str, Target]) -> None:
        self._places, self._targets = places, targets
        self._codes: dict[str, int] = {}
        self._forms: dict[Hashable, tuple[int, int]] = {}
        self._made: list[Code] = []
        self._steps: list[Step] = []
        self._kernels: dict[int, ln.Kernel] = {}

    def finished(self, replaced: Sequence[tuple[int, int]]) -> Planned:
        """The plan of all tasks; `replaced` as `make_plan` takes it."""
        places, steps = self._places.all, self._steps
        if len({step.device for step in steps}) > 1:
            steps = gathered(steps, lambda number: places[number].kind == "leaf")
        plan = Plan(self._made, steps, places)
        _place_temporaries(plan)
        planned = Planned(plan, self._kernels)
        _take_over(planned, replaced)
        return planned

    def add(self, task: bd.Task) -> None:
        if isinstance(task, bd.Transfer):
            pair = [self._places[task.node], self._places[task.source]]
            self._steps.append(Step(task.node.device or "", -1, pair))
        elif isinstance(task, bd.Sort):
            self._sort(task)
        else:
            device = next(filter(None, map(self._places.device, task.buffers)))
            code, work_ns = self._launch(task, device)
            buffers = [self._places[n] for n in task.buffers]
            self._steps.append(Step(device, code, buffers, work_ns))

    def _launch(self, task: bd.Launch, device: str) -> tuple[int, int]:
        """(number of the kernel's code, expected nanoseconds); each form is made once."""
        places = [self._places.all[self._places[node]] for node in task.buffers]
        temporary = frozenset(
            slot
            for slot, where in zip(task.kernel.buffers, places, strict=True)
            if where.kind == "temporary"
        )
        key = (device, form_of(task.kernel), temporary)
        known = self._forms.get(key)
        if known is None:
            target = self._targets[device]
            kernel = schedule(task.kernel, target.machine, temporary)
            show("loops", lambda: ln.show(kernel))
            body, blocks = lower(kernel, target.machine)
            flops, work_ns = work_of(kernel)
            moved = sum(_size(n) for n in task.buffers)
            code = Code(kernel.name, "", blocks, flops, moved)
            number = self._code(code, body, target, len(task.buffers))
            self._kernels.setdefault(number, kernel)
            known = self._forms[key] = (number, work_ns)
        return known

    def _sort(self, task: bd.Sort) -> None:
        device = self._places.device(task.node)
        axis, descending = task.node.arg
        body, blocks = lower_sort(task.node.shape, axis, task.source.dtype, descending=descending)
        rounds = max(1, task.node.shape[axis] - 1).bit_length()
        moved = _size(task.source) + 2 * _size(task.node)
        flops = task.node.size * rounds
        code = self._code(Code(task.name, "", blocks, flops, moved), body, self._targets[device], 3)
        spare = self._places.add(Place("temporary", device, _size(task.node)))
        buffers = [self._places[task.source], self._places[task.node], spare]
        self._steps.append(Step(device, code, buffers, 10 * flops))

    def _code(self, code: Code, body: Region, target: Target, buffers: int) -> int:
        """Give `code` its text; the number under which the plan has it, or had it already."""
        show("instructions", lambda: f"{code.name}:\n{show_instructions(body)}")
        code.text = target.text(code.name, body, buffers)
        show("text", lambda: code.text)
        show("asm", lambda: target.assembly(code.text))
        found = self._codes.get(code.text)
        if found is None:
            found = self._codes[code.text] = len(self._made)
            self._made.append(code)
        return found


def _take_over(planned: Planned, replaced: Sequence[tuple[int, int]]) -> None:
    """Let results lie where the leaves they replace lay, where that is safe."""
    places = planned.plan.places
    at = {(p.kind, p.number): i for i, p in enumerate(places)}
    taken: set[int] = set()
    for root, leaf in replaced:
        new, old = at.get(("result", root)), at.get(("leaf", leaf))
        if new is None or old is None or old in taken:
            continue
        if _can_take_over(planned, new, old):
            taken.add(old)
            places[new].inside = leaf


def _can_take_over(planned: Planned, new: int, old: int) -> bool:
    """Whether every element of place `old` is read no later than that of `new` is written."""
    steps, places = planned.plan.steps, planned.plan.places
    if places[new].size_bytes != places[old].size_bytes:
        return False
    uses = [i for i, s in enumerate(steps) if new in s.buffers]
    reads = [i for i, s in enumerate(steps) if old in s.buffers]
    if not uses or (reads and reads[-1] > uses[0]):
        return False
    if not reads or reads[-1] < uses[0]:
        return True
    step = steps[uses[0]]
    kernel = planned.kernels.get(step.code)
    if kernel is None or len(kernel.nests) != 1 or kernel.outer:
        return False
    slot = {b: kernel.buffers[i] for i, b in enumerate(step.buffers)}
    nest = kernel.nests[0]
    where = [s.index for s in (*nest.stores, *nest.inner) if s.slot == slot[new]]
    loads = [load.index for load in nest.loads() if load.slot == slot[old]]
    return len(where) == 1 and all(index == where[0] for index in loads)


def _place_temporaries(plan: Plan) -> None:
    """Give temporaries their offsets, and each device its arena."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, step in enumerate(plan.steps):
        for b in step.buffers:
            first.setdefault(b, at)
            last[b] = at
    for device in sorted({p.device for p in plan.places}):
        mine = [
            i for i, p in enumerate(plan.places)
            if p.kind == "temporary" and p.device == device and i in first
        ]  # fmt: skip
        lives = [Lifetime(plan.places[i].size_bytes, first[i], last[i]) for i in mine]
        offsets, total = place(lives)
        for i, offset in zip(mine, offsets, strict=True):
            plan.places[i].offset = offset
        if total:
            plan.arenas[device] = total


def _devices(order: Sequence[Node]) -> dict[Node, str]:
    """Where each node is computed; one made of constants alone, where it is first needed."""
    devices: dict[Node, str] = {}
    for node in reversed(order):
        own = node.device or devices.get(node, "")
        devices[node] = own
        for source in node.src:
            devices.setdefault(source, own)
    return devices


def _size(node: Node) -> int:
    return node.size * node.dtype.size_bytes


def _users(groups: Sequence[Group]) -> dict[Node, set[int]]:
    """The groups that read each node."""
    users: dict[Node, set[int]] = {}
    for gr in groups:
        for body in gr.members:
            for ref in body.refs():
                users.setdefault(ref.node, set()).add(gr.number)
    return users


def _external(gr: Group, results: set[Node], users: dict[Node, set[int]]) -> Callable[[Node], bool]:
    """Tells whether a member's value is needed outside its group."""
    return lambda node: node in results or not users.get(node, set()) <= {gr.number}


def work_of(kernel: ln.Kernel) -> tuple[int, int]:
    """(operations, expected nanoseconds on one core) of a launch, roughly."""
    rows = math.prod(v.extent for v in kernel.outer)
    flops, ns = 0, 0.0
    for nest in kernel.nests:
        expressions = list(ex.walk(nest.expressions()))
        operations = sum(isinstance(e, ex.Alu) for e in expressions) + len(nest.reductions)
        loads = sum(isinstance(e, ex.Load) for e in expressions)
        points = rows * nest.points
        flops += points * operations
        elements = sum(kernel.slots[e.slot].size for e in expressions if isinstance(e, ex.Load))
        if points > 4 * elements:  # a contraction: what is loaded is used many times
            ns += points * 0.02
        else:
            effort = sum(cost_of(e.op) for e in expressions if isinstance(e, ex.Alu))
            moved = 0.1 * loads + 0.05 * len(nest.stores if not nest.reduce else nest.inner)
            ns += points * (0.03 * effort + 0.02 * len(nest.reductions) + moved)
    return flops, int(ns)
