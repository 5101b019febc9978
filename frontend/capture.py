"""`jit`: record what a function computes once, then replay it.

The first call with arguments of some form runs the function on lazy tensors and turns all it asked for, what
it returns, and every tensor it gave a new value, into one plan. Later calls replay that plan: no Python of the function
runs. Nothing can go stale: a recording belongs to the arguments' shapes, dtypes, devices and sharing and to the
values of all other arguments; tensors that the function read from elsewhere (parameters, optimiser state, running
statistics) are looked up again at each call; random draws go on in their generator's stream.

State that is replaced (`opt.step()`, `t += 1`) is updated in place when nobody else holds its old value, and in a
copy when somebody does.

    @jit
    def step(x, y):
        loss = model(x).cross_entropy(y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from frontend import engine, tracing
from frontend.dtype import uint64 as _UINT64
from frontend.engine import Storage
from frontend.graph import node as g
from frontend.graph.node import Node
from frontend.ops import random
from frontend.ops.common import grad_mode
from frontend.schedule.plan import signature
from frontend.tensor import Tensor
from rawgpu.errors import OperationError

P = ParamSpec("P")
R = TypeVar("R")


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """A function that records its computation and replays it; see the module's text."""
    return Jit(function)


class Jit(Generic[P, R]):
    """A recorded function. `recordings` counts the forms of arguments seen."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self._recordings: dict[object, list[_Recording]] = {}
        functools.update_wrapper(self, function)

    @property
    def recordings(self) -> int:
        return sum(map(len, self._recordings.values()))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if tracing.state.trace is not None:  # part of an outer recording
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        form = _form((args, kwargs), tensors)
        _make_ready(tensors)
        key = (form, tuple(_sharing(tensors)), grad_mode.enabled)
        known = self._recordings.setdefault(key, [])
        for recording in known:
            if recording.still_fits():
                return recording.replay(tensors)  # type: ignore[no-any-return]
        recording = _Recorder(tensors).record(self.function, args, kwargs)
        known[:] = [r for r in known if r.still_fits()] + [recording]
        return recording.replay(tensors)  # type: ignore[no-any-return]


def _form(value: Any, tensors: list[Tensor]) -> object:
    """What a recording depends on in an argument; collects the tensors in it."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return (value.shape, value.dtype.name, value.device, value.requires_grad)
    if isinstance(value, list | tuple):
        return (type(value).__name__, *(_form(v, tensors) for v in value))
    if isinstance(value, dict):
        return ("dict", *((k, _form(v, tensors)) for k, v in value.items()))
    if isinstance(value, bool | int | float | str | bytes | type(None)):
        return (type(value).__name__, repr(value))
    try:
        hash(value)
    except TypeError:
        raise OperationError(
            f"jit: an argument of type {type(value).__name__} has no value to recognise it by",
            hint="pass tensors, numbers, text, or lists, tuples and dictionaries of them",
        ) from None
    return value


def _make_ready(tensors: Sequence[Tensor]) -> None:
    pending = [t for t in tensors if not t.is_realized]
    if pending:
        pending[0].realize(*pending[1:])


def _sharing(tensors: Sequence[Tensor]) -> list[int]:
    """Which arguments are the same tensor."""
    first: dict[int, int] = {}
    return [first.setdefault(id(t), i) for i, t in enumerate(tensors)]


@dataclass
class _Input:
    """Where a replay finds a leaf: argument `number`, or a tensor from elsewhere, or always the same."""

    number: int = -1
    tensor: Tensor | None = None
    constant: Storage | None = None
    draws: random.Generator | None = None
    replaced: bool = False


@dataclass
class _Output:
    """What a replay does with a result: gives `tensor` a value, or a gradient, or returns it."""

    result: int
    node: Node
    """The form of the value: shape, dtype, device."""
    tensor: Tensor | None = None
    is_gradient: bool = False


class _Recorder(tracing.Trace):
    """Follows one run of the function."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        self.arguments = list(arguments)
        tracing.state.serial += 1
        self.serial = tracing.state.serial
        self.seen: dict[Node, Tensor] = {}
        self.outside: dict[int, tuple[Tensor, Tensor | None]] = {}
        """Tensors from before the recording, with the gradient they came with."""
        self.changed: dict[int, tuple[Tensor, Node]] = {}
        """Tensors that were given another value, with the node they had."""

    def read(self, tensor: Tensor) -> None:
        if tensor._serial >= self.serial or id(tensor) in self.outside:
            return
        self.outside[id(tensor)] = (tensor, tensor.grad)
        if tensor._node.storage is None:
            tracing.state.trace = None
            try:
                tensor.realize()
            finally:
                tracing.state.trace = self
        self.seen[tensor._node] = tensor

    def rebound(self, tensor: Tensor) -> None:
        if tensor._serial < self.serial:
            self.read(tensor)
            self.changed.setdefault(id(tensor), (tensor, tensor._node))

    def record(self, function: Callable[..., Any], args: Any, kwargs: Any) -> _Recording:
        """Run the function without computing, and make the recording."""
        places = {a._node: i for i, a in reversed(list(enumerate(self.arguments)))}
        device = self.arguments[0].device if self.arguments else engine.default_device()
        generator = random.default_generator()
        kept = [(a, a._node, a.grad) for a in self.arguments]
        tracing.state.trace = self
        try:
            with generator.record(device) as draws:
                returned = function(*args, **kwargs)
        except BaseException:
            self._undo()
            raise
        finally:
            tracing.state.trace = None
        generator.drawn -= draws.drawn  # the replay that follows draws them
        for a, node, grad in kept:
            self.outside.setdefault(id(a), (a, grad))
            if a._node is not node:
                self.changed.setdefault(id(a), (a, node))
        return self._finish(returned, places, draws)

    def _undo(self) -> None:
        """Give tensors back what they had: a function that fails changes nothing."""
        for tensor, node in self.changed.values():
            tensor._node = node
        for tensor, grad in self.outside.values():
            tensor.grad = grad

    def _finish(
        self, returned: Any, places: dict[Node, int], draws: random.Recording
    ) -> _Recording:
        values: list[Tensor] = []
        shape = _structure(returned, values)
        outputs = [_Output(-1, t._node) for t in values]
        for tensor, _ in self.changed.values():
            outputs.append(_Output(-1, tensor._node, tensor))
        for tensor, grad in self.outside.values():
            if tensor.grad is not None and tensor.grad is not grad:
                outputs.append(_Output(-1, tensor.grad._node, tensor, is_gradient=True))
        placed = [_on_device(o, values, i) for i, o in enumerate(outputs)]
        roots = [n for n in dict.fromkeys(map(engine.base, placed)) if n.storage is None]
        form, leaves = signature(roots)
        at = {node: i for i, node in enumerate(leaves)}
        replaced = self._replaced(outputs, placed, roots, at)
        plan = engine.find_plan(form, roots, replaced)
        number = {node: i for i, node in enumerate(roots)}
        kept_values: dict[int, Storage] = {}
        for i, (output, node) in enumerate(zip(outputs, placed, strict=True)):
            root = engine.base(node)
            output.result = number.get(root, -1)
            if output.result < 0:
                kept_values[i] = root.storage
        inputs = [self._input(leaf, places, draws) for leaf in leaves]
        for p in plan.places:
            if p.kind == "result" and p.inside >= 0:
                inputs[p.inside].replaced = True
        aliases = {i: self._input(engine.base(placed[i]), places, draws) for i in kept_values}
        for output, node in zip(outputs, placed, strict=True):
            output.node = g.buffer(node.shape, node.dtype, node.device or "")
        self._undo()
        return _Recording(plan, inputs, outputs, aliases, shape, draws.drawn)

    def _replaced(
        self,
        outputs: Sequence[_Output],
        placed: Sequence[Node],
        roots: Sequence[Node],
        leaves: dict[Node, int],
    ) -> list[tuple[int, int]]:
        """(root, leaf) for state that gets a new value."""
        number = {node: i for i, node in enumerate(roots)}
        uses = [engine.base(n) for n in placed]
        pairs = []
        for output, node in zip(outputs, placed, strict=True):
            if output.tensor is None or output.is_gradient:
                continue
            root = engine.base(node)
            old = self.changed[id(output.tensor)][1]
            if root in number and old in leaves and uses.count(root) == 1:
                pairs.append((number[root], leaves[old]))
        return pairs

    def _input(self, leaf: Node, places: dict[Node, int], draws: random.Recording) -> _Input:
        if leaf is draws.base._node:
            return _Input(draws=random.default_generator())
        if leaf in places:
            return _Input(number=places[leaf])
        if leaf in self.seen:
            return _Input(tensor=self.seen[leaf])
        return _Input(constant=leaf.storage)


def _on_device(output: _Output, values: Sequence[Tensor], at: int) -> Node:
    """The output's node, on a device also when it is made of constants alone."""
    from frontend.ops.convert import placed

    device = output.tensor.device if output.tensor is not None else values[at].device
    return placed(output.node, device)


def _structure(value: Any, tensors: list[Tensor]) -> Any:
    """The returned value with tensors replaced by their numbers."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return _Slot(len(tensors) - 1)
    if isinstance(value, list | tuple):
        parts = [_structure(v, tensors) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return type(value)(parts)
    if isinstance(value, dict):
        return {k: _structure(v, tensors) for k, v in value.items()}
    return value


@dataclass(frozen=True)
class _Slot:
    number: int


def _filled(shape: Any, tensors: Sequence[Tensor]) -> Any:
    if isinstance(shape, _Slot):
        return tensors[shape.number]
    if isinstance(shape, list | tuple):
        parts = [_filled(v, tensors) for v in shape]
        return type(shape)(*parts) if hasattr(shape, "_fields") else type(shape)(parts)
    if isinstance(shape, dict):
        return {k: _filled(v, tensors) for k, v in shape.items()}
    return shape


class _Recording:
    """A plan with where its inputs come from and where its results go."""

    def __init__(
        self,
        plan: engine.Plan,
        inputs: list[_Input],
        outputs: list[_Output],
        aliases: dict[int, _Input],
        shape: Any,
        draws: int,
    ) -> None:
        self.plan = plan
        self.run = engine.run_of(plan)
        self.inputs, self.outputs, self.aliases = inputs, outputs, aliases
        self.shape, self.draws = shape, draws
        self.state = [
            (i.tensor, i.tensor.shape, i.tensor.dtype, i.tensor.device)
            for i in (*inputs, *aliases.values())
            if i.tensor is not None
        ]

    def still_fits(self) -> bool:
        """Whether the tensors read from elsewhere have kept their form."""
        return all(
            t.shape == shape and t.dtype is dtype and t.device == device
            for t, shape, dtype, device in self.state
        )

    def replay(self, arguments: Sequence[Tensor]) -> Any:
        """Compute again with these arguments; the function's value."""
        _make_ready([t for t, *_ in self.state if t._node.storage is None])
        leaves = [self._leaf(i, arguments) for i in self.inputs]
        fixed = {i: self._leaf(source, arguments) for i, source in self.aliases.items()}
        results = self.run(leaves)
        del leaves
        if self.draws:
            random.default_generator().advance(self.draws)
        values: list[Tensor] = []
        for i, output in enumerate(self.outputs):
            storage = results[output.result] if output.result >= 0 else fixed[i]
            form = output.node
            node = g.buffer(form.shape, form.dtype, form.device or "", storage)
            if output.tensor is None:
                values.append(Tensor._new(node, form.device or ""))
            elif output.is_gradient:
                output.tensor.grad = Tensor._new(node, form.device or "")
            else:
                output.tensor._rebind(node)
        return _filled(self.shape, values)

    def _leaf(self, source: _Input, arguments: Sequence[Tensor]) -> Storage:
        if source.constant is not None:
            return source.constant
        if source.draws is not None:
            state = source.draws.state()
            return engine.from_host(state, (2,), _UINT64, self._device()).storage  # type: ignore[no-any-return]
        tensor = arguments[source.number] if source.tensor is None else source.tensor
        storage: Storage = tensor._node.storage
        if source.replaced and not _is_only_holder(tensor):
            return storage.copy(tensor.device)
        return storage

    def _device(self) -> str:
        return next(iter(p.device for p in self.plan.places if p.device), "") or ""


def _is_only_holder(tensor: Tensor) -> bool:
    """Whether the old value can be overwritten: no graph, no other tensor refers to it."""
    node = tensor._node
    # the tensor, this variable, and getrefcount's own argument
    if sys.getrefcount(node) > 3:
        return False
    storage = node.storage
    # the node, this variable, the caller's variable, and getrefcount's own argument
    return sys.getrefcount(storage) <= 4

