"""Recordings for `jit`: a plan with where its inputs come from and where its results go.

`recorder.py` makes them from a run of a function; here is what they are made of, when one fits, and
what a replay does.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frontend import engine
from frontend.dtype import DType
from frontend.dtype import uint64 as _UINT64
from frontend.engine import Storage
from frontend.graph import node as g
from frontend.graph.node import Node, Shape
from frontend.nested import mapped
from frontend.ops.random import Generator, default_generator
from frontend.schedule.plan import Plan
from frontend.tensor import Tensor

if TYPE_CHECKING:
    from frontend.nn.module import Module

# --- what a recording refers to ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ref:
    """A tensor from before: argument `number`, or `tensor` from elsewhere, or either's gradient."""

    number: int = -1
    tensor: Tensor | None = None
    is_gradient: bool = False

    def find(self, arguments: Sequence[Tensor]) -> Any:
        """The tensor now; None for a gradient that is not there."""
        tensor = arguments[self.number] if self.tensor is None else self.tensor
        return tensor.grad if self.is_gradient else tensor


@dataclass(frozen=True, eq=False)
class Made:
    """A tensor that each replay makes, by number."""

    number: int


@dataclass
class Source:
    """Where a replay finds storage: what `ref` holds, a `constant`, or a generator's state."""

    device: str
    ref: Ref | None = None
    constant: Storage | None = None
    generator: Generator | None = None
    """None for the replaying thread's own."""
    replaced: bool = False
    """A result takes over its memory."""

    def storage(self, arguments: Sequence[Tensor]) -> Storage:
        if self.constant is not None:
            return self.constant
        if self.ref is None:
            state = (self.generator or default_generator()).state()
            return engine.from_host(state, (2,), _UINT64, self.device).storage  # type: ignore[no-any-return]
        tensor: Tensor = self.ref.find(arguments)
        storage: Storage = tensor._node.storage
        if self.replaced and not _is_only_holder(tensor):
            return storage.copy(self.device)
        return storage


def _is_only_holder(tensor: Tensor) -> bool:
    """Whether the value can be overwritten: no graph and no other tensor refers to it."""
    node = tensor._node
    # the tensor, this variable, and getrefcount's own argument
    if sys.getrefcount(node) > 3:
        return False
    storage = node.storage
    # the node, this variable, the caller's variable, and getrefcount's own argument
    return sys.getrefcount(storage) <= 4


@dataclass(frozen=True)
class Value:
    """A value that replays bring about: a result of the plan, or what a source has already."""

    shape: Shape
    dtype: DType
    device: str
    result: int = -1
    source: Source | None = None

    def node(self, storage: Storage) -> Node:
        return g.buffer(self.shape, self.dtype, self.device, storage)


@dataclass(frozen=True)
class Change:
    """A tensor from before that gets another value."""

    ref: Ref
    value: Value
    requires_grad: bool


@dataclass(frozen=True)
class Gradient:
    """A tensor from before whose `.grad` is set: to a tensor made, one from before, or None."""

    ref: Ref
    to: Made | Ref | None


@dataclass(frozen=True)
class Guard:
    """The form that a tensor from elsewhere had; `dtype` None for a gradient that was not there."""

    ref: Ref
    shape: Shape = ()
    dtype: DType | None = None
    device: str = ""
    requires_grad: bool = False

    def holds(self, arguments: Sequence[Tensor]) -> bool:
        tensor = self.ref.find(arguments)
        if tensor is None or self.dtype is None:
            return tensor is None and self.dtype is None
        return (
            tensor._node.shape == self.shape
            and tensor._node.dtype is self.dtype
            and tensor._device == self.device
            and tensor._requires_grad is self.requires_grad
        )


# --- replaying -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """When a recording fits."""

    guards: list[Guard]
    bound: dict[int, Tensor]
    """Arguments that must be these very tensors, which the function reads from elsewhere too."""
    elsewhere: frozenset[int]
    """By id, what no other argument may be."""
    modules: list[tuple[weakref.ref[Module], bool]]

    def hold(self, arguments: Sequence[Tensor]) -> bool:
        for i, t in enumerate(arguments):
            if i in self.bound:
                if t is not self.bound[i]:
                    return False
            elif id(t) in self.elsewhere:
                return False
        for reference, training in self.modules:
            module = reference()
            if module is not None and module.training != training:
                return False
        return all(guard.holds(arguments) for guard in self.guards)


@dataclass(frozen=True)
class Chance:
    """What a recording draws: how many numbers of each generator, and how seeded ones end."""

    drawn: dict[Generator | None, int]
    ended: dict[Generator | None, tuple[int, int]]

    def pass_on(self) -> None:
        """Leave the generators as the function would."""
        for generator, count in self.drawn.items():
            (generator or default_generator()).advance(count)
        for generator, (seed, drawn) in self.ended.items():
            started = generator or default_generator()
            started.seed, started.drawn = seed, drawn


@dataclass(frozen=True)
class Effects:
    """What a replay leaves: a returned `shape` of Ref and Made, tensors made, tensors changed."""

    shape: Any
    made: list[Value]
    changes: list[Change]
    gradients: list[Gradient]


class Recording:
    """A plan with where its inputs come from, where its results go, and when it fits."""

    def __init__(
        self,
        plan: Plan,
        sources: list[Source],
        effects: Effects,
        conditions: Conditions,
        chance: Chance,
    ) -> None:
        self.plan, self.run = plan, engine.Run(plan)
        self.sources, self.effects = sources, effects
        self.conditions, self.chance = conditions, chance
        self.used = 0
        """When it was replayed last; larger is later."""
        self._values = [*effects.made, *(change.value for change in effects.changes)]
        fed = [*sources, *(v.source for v in self._values if v.source is not None)]
        self._refs = [source.ref for source in fed if source.ref is not None]
        self._given: list[Ref] = []
        """What is returned or set as a gradient as it was before."""
        mapped(effects.shape, Ref, self._given.append)
        self._given += [e.to for e in effects.gradients if isinstance(e.to, Ref)]

    def fits(self, arguments: Sequence[Tensor]) -> bool:
        """Whether the function would do the same with what there is now."""
        return self.conditions.hold(arguments)

    def replay(self, arguments: Sequence[Tensor]) -> Any:
        """Compute with these arguments; the function's value.

        Raises OutOfMemory or CompileError; no tensor has changed then.
        """
        pending = [t for t in (ref.find(arguments) for ref in self._refs) if not t.is_realized]
        if pending:
            pending[0].realize(*pending[1:])
        # everything is looked up before anything changes
        effects = self.effects
        storages = [source.storage(arguments) for source in self.sources]
        old = [None if v.source is None else v.source.storage(arguments) for v in self._values]
        given = {ref: ref.find(arguments) for ref in self._given}
        targets = [change.ref.find(arguments) for change in effects.changes]
        holders = [gradient.ref.find(arguments) for gradient in effects.gradients]
        results = self.run(storages)
        del storages
        self.chance.pass_on()
        nodes = [
            value.node(results[value.result] if storage is None else storage)
            for value, storage in zip(self._values, old, strict=True)
        ]
        made = [Tensor._new(node, node.device or "") for node in nodes[: len(effects.made)]]
        for change, target, node in zip(effects.changes, targets, nodes[len(made) :], strict=True):
            target._requires_grad, target._device = change.requires_grad, node.device
            target._rebind(node)

        def filled(slot: Ref | Made) -> Any:
            return made[slot.number] if isinstance(slot, Made) else given[slot]

        for gradient, holder in zip(effects.gradients, holders, strict=True):
            holder.grad = None if gradient.to is None else filled(gradient.to)
        return mapped(effects.shape, (Ref, Made), filled)
