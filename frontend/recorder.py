"""Records one run of a function for `jit`: it becomes a plan, with where its parts come from.

A `Recorder` listens (`tracing.Trace`) while the function runs. Each tensor from before is stood for
by a node whose storage is `Unknown`, a token of its own: whatever the function makes of it, a leaf
with that token is filled by that tensor at each replay. Leaves with other storage are constants.
Afterwards the recorder puts back what the function changed; replaying does it for good.
`capture.py` says what users see, `recording.py` what is recorded.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from frontend import engine, tracing
from frontend.dtype import uint64 as _UINT64
from frontend.graph import node as g
from frontend.graph.node import Node
from frontend.nested import mapped
from frontend.ops import autograd
from frontend.ops.convert import placed
from frontend.ops.random import Generator, default_generator
from frontend.recording import (
    Chance,
    Change,
    Conditions,
    Effects,
    Gradient,
    Guard,
    Made,
    Recording,
    Ref,
    Source,
    Value,
)
from frontend.schedule.plan import Plan, signature
from frontend.tensor import Tensor
from rawgpu.errors import OperationError

if TYPE_CHECKING:
    from frontend.nn.module import Module

_serials = itertools.count(1)


class Unknown:
    """In storage's place: memory that each replay brings. What leads to it has no value."""

    def _refuse(self) -> NoReturn:
        raise OperationError(
            "a tensor that was made inside a recorded function has no value outside of it",
            hint="return it from the function, or assign it to a tensor from outside",
        )

    @property
    def address(self) -> int:
        self._refuse()

    @property
    def buffer(self) -> object:
        self._refuse()


class _Outside:
    """What the recorder knows of a tensor from before: how it was, and what was done to it."""

    def __init__(self, tensor: Tensor, ref: Ref, node: Node) -> None:
        self.tensor, self.ref = tensor, ref
        self.node = node
        """Stands for its value."""
        self.token: Unknown = node.storage
        self.before = tensor._node, tensor._requires_grad, tensor._device, tensor._grad
        self.after = self.before
        self.rebound = self.sets_gradient = False
        self.source = Source(tensor.device, ref)

    def put_back(self) -> None:
        tensor = self.tensor
        self.after = tensor._node, tensor._requires_grad, tensor._device, tensor._grad
        if self.rebound or self.sets_gradient:
            tensor._node, tensor._requires_grad, tensor._device, tensor._grad = self.before


class Recorder(tracing.Trace):
    """Follows one run of a function with these arguments.

    Those whose id is in `met` go in themselves, for the others there are stand-ins: what the
    function reads of them it can have from its arguments alone. Afterwards `met` has the ids of all
    arguments that it read from elsewhere.
    """

    def __init__(self, arguments: Sequence[Tensor], met: frozenset[int]) -> None:
        self.serial = next(_serials)
        self.met = met
        self._arguments = list(arguments)
        self._numbers = {id(t): i for i, t in reversed(list(enumerate(arguments)))}
        self._outside: dict[int, _Outside] = {}
        self._stand_ins: dict[int, Tensor] = {}
        self._guards: list[Guard] = []
        self._ends: dict[int, Tensor] = {}
        """Where gradients arrive that would flow on into what was computed before."""
        self._sources: dict[Any, Source] = {}
        self._drawn: Counter[Generator] = Counter()
        self._bases: dict[tuple[Generator, str], Node] = {}
        self._seeded: dict[Generator, tuple[int, int]] = {}
        self._modules: dict[int, tuple[Module, bool]] = {}
        self._made: list[Tensor] = []
        for t in arguments:
            self._add_argument(t)

    def _add_argument(self, tensor: Tensor) -> None:
        if id(tensor) in self._stand_ins:
            return
        ref = Ref(self._numbers[id(tensor)])
        if id(tensor) in self.met:
            self._stand_ins[id(tensor)] = tensor
            self._outside[id(tensor)] = _Outside(tensor, ref, self._unknown(tensor, tensor))
            return
        stand_in = Tensor._new(tensor._node, tensor.device)
        stand_in._requires_grad, stand_in._grad = tensor._requires_grad, tensor._grad
        stand_in._node = self._unknown(stand_in, tensor)
        self._stand_ins[id(tensor)] = stand_in
        self._outside[id(stand_in)] = _Outside(stand_in, ref, stand_in._node)

    def _unknown(self, tensor: Tensor, original: Tensor) -> Node:
        """A node that stands for the value of `original`, which gradients reach as `tensor`."""
        node = g.buffer(tensor.shape, tensor.dtype, tensor.device, Unknown())
        if original.requires_grad:
            if original.is_leaf:
                autograd.register(node, tensor)
            else:
                end = Tensor._new(node, tensor.device)
                end._requires_grad = True
                self._ends[id(end)] = end
                autograd.register(node, end)
        return node

    def stand_in(self, argument: Tensor) -> Tensor:
        """What the function gets for an argument."""
        return self._stand_ins[id(argument)]

    def _entry(self, tensor: Tensor) -> _Outside | None:
        """What is known of a tensor from before; None for one made in the recording."""
        found = self._outside.get(id(tensor))
        if found is not None or tensor._serial == self.serial:
            return found
        if id(tensor) in self._numbers:
            self.met |= {id(tensor)}
        made = _Outside(tensor, Ref(tensor=tensor), self._unknown(tensor, tensor))
        self._outside[id(tensor)] = made
        self._guard(made.ref, tensor)
        return made

    def _guard(self, ref: Ref, tensor: Tensor | None) -> None:
        if tensor is None:
            self._guards.append(Guard(ref))
        else:
            form = tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad
            self._guards.append(Guard(ref, *form))

    # -- what the rest tells

    def node_of(self, tensor: Tensor) -> Node:
        entry = self._entry(tensor)
        return tensor._node if entry is None or entry.rebound else entry.node

    def rebound(self, tensor: Tensor) -> None:
        entry = self._entry(tensor)
        if entry is not None:
            entry.rebound = True

    def reads_gradient(self, tensor: Tensor) -> None:
        if id(tensor) in self._ends:
            raise OperationError(
                "jit: a gradient flows into a tensor computed before the recorded function",
                hint="detach() it, or compute it inside",
            )
        entry = self._entry(tensor)
        if entry is None or entry.sets_gradient or entry.ref.is_gradient:
            return
        grad = tensor._grad
        ref = Ref(entry.ref.number, entry.ref.tensor, is_gradient=True)
        if grad is None:
            self._guard(ref, None)
        elif id(grad) not in self._outside:
            node = self._unknown(grad, grad)
            self._outside[id(grad)] = _Outside(grad, ref, node)
            self._guard(ref, grad)

    def sets_gradient(self, tensor: Tensor) -> None:
        entry = self._entry(tensor)
        if entry is not None:
            entry.sets_gradient = True

    def draw(self, generator: Generator, count: int, device: str) -> tuple[Node, int] | None:
        if generator in self._seeded:
            return None
        base = self._bases.get((generator, device))
        if base is None:
            base = self._bases[generator, device] = g.buffer((2,), _UINT64, device, Unknown())
            own = None if generator is default_generator() else generator
            self._sources[base.storage] = Source(device, generator=own)
        first = self._drawn[generator]
        self._drawn[generator] += count
        return base, first

    def seeded(self, generator: Generator) -> None:
        self._seeded.setdefault(generator, (generator.seed, generator.drawn))

    def uses(self, module: Module) -> None:
        self._modules.setdefault(id(module), (module, module.training))

    # -- the run and what comes of it

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the function returns. Whatever it changed is as before afterwards."""
        try:
            with tracing.follow(self):
                return function(*args, **kwargs)
        finally:
            for entry in self._outside.values():
                entry.put_back()
            for generator, (seed, drawn) in self._seeded.items():
                ended = generator.seed, generator.drawn
                generator.seed, generator.drawn = seed, drawn
                self._seeded[generator] = ended

    def finish(self, returned: Any) -> Recording:
        """The recording of the run that returned this. Raises CompileError."""
        shape = mapped(returned, Tensor, self._slot)
        gradients = [
            Gradient(entry.ref, None if entry.after[3] is None else self._slot(entry.after[3]))
            for entry in list(self._outside.values())
            if entry.sets_gradient
        ]
        changed = [entry for entry in self._outside.values() if entry.rebound]
        nodes = [placed(t._node, t.device) for t in self._made]
        nodes += [placed(entry.after[0], entry.after[2]) for entry in changed]
        roots = [n for n in dict.fromkeys(map(engine.base, nodes)) if n.storage is None]
        form, leaves = signature(roots)
        self._sources |= {entry.token: entry.source for entry in self._outside.values()}
        sources = [self._source(leaf) for leaf in leaves]
        pairs = self._replaced(changed, nodes, roots, leaves)
        plan = engine.find_plan(form, roots, pairs) if roots else Plan()
        for p in plan.places:
            if p.kind == "result" and p.inside >= 0:
                sources[p.inside].replaced = True
        number = {node: i for i, node in enumerate(roots)}
        values = [self._value(node, number) for node in nodes]
        changes = [
            Change(entry.ref, value, _ends_as_leaf(entry))
            for entry, value in zip(changed, values[len(self._made) :], strict=True)
        ]
        return Recording(
            plan,
            sources,
            Effects(shape, values[: len(self._made)], changes, gradients),
            self._conditions(),
            self._chance(),
        )

    def _slot(self, tensor: Tensor) -> Ref | Made:
        """What stands for a tensor that is returned, or left as a gradient."""
        entry = self._outside.get(id(tensor))
        if entry is not None:
            return entry.ref
        if tensor._serial != self.serial:
            return Ref(tensor=tensor)
        for i, made in enumerate(self._made):
            if made is tensor:
                return Made(i)
        self._made.append(tensor)
        return Made(len(self._made) - 1)

    def _source(self, leaf: Node) -> Source:
        found = self._sources.get(leaf.storage)
        return found or Source(leaf.device or "", constant=leaf.storage)

    def _value(self, node: Node, number: dict[Node, int]) -> Value:
        base = engine.base(node)
        if base in number:
            return Value(node.shape, node.dtype, node.device or "", number[base])
        return Value(node.shape, node.dtype, node.device or "", source=self._source(base))

    def _replaced(
        self,
        changed: Sequence[_Outside],
        nodes: Sequence[Node],
        roots: Sequence[Node],
        leaves: Sequence[Node],
    ) -> list[tuple[int, int]]:
        """(root, leaf) for tensors whose new value may lie where the old one lay.

        Not where something else that is kept has the same memory, the old value or the new.
        """
        kept = Counter(map(engine.base, nodes))
        tokens = Counter(leaf.storage for leaf in leaves)
        tokens.update(node.storage for node in kept if node.storage is not None)
        root_number = {node: i for i, node in enumerate(roots)}
        leaf_number = {leaf.storage: i for i, leaf in enumerate(leaves)}
        pairs = []
        for entry in changed:
            new = engine.base(placed(entry.after[0], entry.after[2]))
            if kept[new] == 1 and tokens[entry.token] == 1 and new in root_number:
                if entry.token in leaf_number:
                    pairs.append((root_number[new], leaf_number[entry.token]))
        return pairs

    def _conditions(self) -> Conditions:
        refs = [entry.ref for entry in self._outside.values()]
        return Conditions(
            guards=self._guards,
            bound={self._numbers[key]: self._stand_ins[key] for key in self.met},
            elsewhere=frozenset(
                id(r.tensor) for r in refs if r.tensor is not None and not r.is_gradient
            ),
            modules=[
                (weakref.ref(module), training)
                for module, training in self._modules.values()
                if module.training == training  # else the function itself sees to it
            ],
        )

    def _chance(self) -> Chance:
        return Chance(
            {_shared(generator): count for generator, count in self._drawn.items()},
            {_shared(generator): ended for generator, ended in self._seeded.items()},
        )


def _shared(generator: Generator) -> Generator | None:
    """The generator; None for the thread's own, since another thread may replay."""
    return None if generator is default_generator() else generator


def _ends_as_leaf(entry: _Outside) -> bool:
    node, requires_grad, _, _ = entry.after
    return requires_grad and autograd.leaf_of(node) is entry.tensor
