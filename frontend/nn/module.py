"""`Module`: a part of a network, with the parameters, buffers and modules it is made of.

What is assigned to an attribute decides what it is: a leaf that requires a gradient is a parameter,
a module is a part, anything else is the attribute it looks like. Buffers (state that is not
trained) and parameters that are frozen from the start are registered by name. Names and layouts are
torch's, so that its state dicts can be loaded.

Parameters are drawn when a module is made and computed when they are first needed, those of a whole
network at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from frontend import dtype as dt
from frontend import state, tracing
from frontend.dtype import DType
from frontend.ops import common as c
from frontend.tensor import Tensor
from rawgpu.errors import DTypeError, OperationError, ShapeError

PARAMETER = "parameter"
BUFFER = "buffer"
TRANSIENT = "buffer that is not saved"
MODULE = "module"


def Parameter(data: object, requires_grad: bool = True) -> Tensor:
    """A leaf of the value of `data`, which becomes a parameter of the module it is assigned to.

    With `requires_grad` False it must be registered by `Module.register_parameter`.
    """
    tensor = Tensor(data)
    tensor.requires_grad = requires_grad
    return state.initialised(tensor)


class Module:
    """Base of all modules: define `forward`, call the module.

    Subclasses that override `__init__` need not call this one's: there is none.
    """

    training: bool = True
    """Set by `train` and `eval`; dropout and batch norm ask for it."""
    _kinds: dict[str, str]

    # -- what it is made of

    def __setattr__(self, name: str, value: Any) -> None:
        kinds = self.__dict__.setdefault("_kinds", {})
        if isinstance(value, Module):
            kinds[name] = MODULE
        elif isinstance(value, Tensor):
            if name not in kinds and value.requires_grad and value.is_leaf:
                kinds[name] = PARAMETER
            elif kinds.get(name) == MODULE:
                del kinds[name]
        elif value is not None:
            kinds.pop(name, None)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self.__dict__.get("_kinds", {}).pop(name, None)
        object.__delattr__(self, name)

    def register_parameter(self, name: str, value: Tensor | None) -> None:
        """Make `value` the parameter `name`; None keeps the name for later."""
        self._register(name, value, PARAMETER)

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """Make `value` state that is not trained.

        It moves with the module and, if `persistent`, is in its state dict.
        """
        self._register(name, value, BUFFER if persistent else TRANSIENT)

    def register_module(self, name: str, value: Module | None) -> None:
        """Make `value` the part `name`, which may be a number as in `Sequential`."""
        self._register(name, value, MODULE)

    add_module = register_module

    def _register(self, name: str, value: Tensor | Module | None, kind: str) -> None:
        if not name or "." in name:
            raise OperationError(f"register: a {kind} cannot be named {name!r}")
        self.__dict__.setdefault("_kinds", {})[name] = kind
        object.__setattr__(self, name, value)

    def _own(self, *kinds: str) -> Iterator[tuple[str, Any]]:
        """Names and values of these kinds that are here, in the order of their first assignment."""
        for name, kind in list(self.__dict__.get("_kinds", {}).items()):
            if kind in kinds:
                value = self.__dict__.get(name)
                if value is not None:
                    yield name, value

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules it is directly made of."""
        return self._own(MODULE)

    def children(self) -> Iterator[Module]:
        """The modules of `named_children`."""
        return (module for _, module in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Itself and all below, with dotted names, each once."""
        return self._walk(prefix, set())

    def _walk(self, prefix: str, seen: set[int] | None) -> Iterator[tuple[str, Module]]:
        """As `named_modules`; with `seen` None a module comes as often as it is named."""
        if seen is not None:
            if id(self) in seen:
                return
            seen.add(id(self))
        yield prefix, self
        for name, child in self.named_children():
            yield from child._walk(f"{prefix}.{name}" if prefix else name, seen)

    def modules(self) -> Iterator[Module]:
        """Itself and all below, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Dotted names and parameters, each parameter once under its first name."""
        return self._tensors((PARAMETER,), prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """The parameters, each once."""
        return (tensor for _, tensor in self.named_parameters("", recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Dotted names and buffers, each buffer once under its first name."""
        return self._tensors((BUFFER, TRANSIENT), prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (tensor for _, tensor in self.named_buffers("", recurse))

    def _tensors(
        self, kinds: tuple[str, ...], prefix: str, recurse: bool
    ) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix) if recurse else [(prefix, self)]:
            for name, tensor in module._own(*kinds):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor

    # -- use

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module does."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.state.trace is not None:
            tracing.state.trace.uses(self)
        state.compute_fresh()
        return self.forward(*args, **kwargs)

    def train(self, mode: bool = True) -> Self:
        """Set `training` here and below. Returns self."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """The same as train(False)."""
        return self.train(False)

    def requires_grad_(self, value: bool = True) -> Self:
        """Set `requires_grad` of every parameter. Returns self."""
        for parameter in self.parameters():
            parameter.requires_grad = value
        return self

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.grad = None

    def apply(self, function: Callable[[Module], object]) -> Self:
        """Call `function` with every module below and then this one. Returns self."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    # -- another device or dtype

    def to(self, *targets: object, device: str | None = None, dtype: object | None = None) -> Self:
        """Move to a device, cast floats to a dtype, or both; in place. Returns self.

        Gradients are dropped. Raises DeviceNotFound, DTypeError.
        """
        for target in targets:
            if isinstance(target, str) and target not in dt.BY_NAME:
                device = target
            elif target is not None:
                dtype = target
        kind = None if dtype is None else dt.of(dtype)
        if kind is not None and not kind.is_float:
            raise DTypeError(f"Module.to: a network's floats do not become {kind}")
        where = None if device is None else c.resolved_device(device)
        state.compute_fresh()
        tensors = [tensor for _, tensor in self._tensors((PARAMETER, BUFFER, TRANSIENT), "", True)]
        for tensor in tensors:
            _move(tensor, where, kind)
        state.realize_all(tensors)
        return self

    def float(self) -> Self:
        """Floats as float32."""
        return self.to(dtype=dt.float32)

    def double(self) -> Self:
        """Floats as float64."""
        return self.to(dtype=dt.float64)

    def half(self) -> Self:
        """Floats as float16."""
        return self.to(dtype=dt.float16)

    def bfloat16(self) -> Self:
        """Floats as bfloat16."""
        return self.to(dtype=dt.bfloat16)

    # -- state dicts

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        """Every name, shared tensors as often as they are named, as torch has it."""
        for path, module in self._walk("", None):
            for kind in (PARAMETER, BUFFER):
                for name, tensor in module._own(kind):
                    yield f"{path}.{name}" if path else name, tensor

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Parameters and persistent buffers by dotted names: values, which training won't change.

        The order is torch's up to the module: parameters, then buffers, then parts.
        """
        state.compute_fresh()
        return {prefix + name: tensor.detach() for name, tensor in self._state()}

    def load_state_dict(
        self, state: Mapping[str, Any], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Take a state dict's values, cast to the dtypes here; anything `Tensor` takes will do.

        Returns the names that are missing from it and those it has too many, which `strict` refuses
        with OperationError. Raises ShapeError where shapes differ. Nothing has changed then.
        """
        own = dict(self._state())
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        if strict and (missing or unexpected):
            raise OperationError(_difference(type(self).__name__, missing, unexpected))
        values = {name: state[name] for name in own if name in state}
        load_values(own, values, "load_state_dict")
        return missing, unexpected

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A module with parameters of its own, of the same values."""
        state.compute_fresh()  # or the copy would draw its numbers again at each call
        out = type(self).__new__(type(self))
        memo[id(self)] = out
        out.__dict__.update(copy.deepcopy(self.__dict__, memo))
        for _, tensor in out._own(PARAMETER, BUFFER, TRANSIENT):
            state.initialised(tensor)
        return out

    # -- text

    def extra_repr(self) -> str:
        """What a line of `repr` says in parentheses."""
        return ""

    def __repr__(self) -> str:
        name = type(self).__name__
        lines = []
        for child, module in self.named_children():
            first, *rest = repr(module).split("\n")
            lines += [f"  ({child}): {first}", *(f"  {line}" for line in rest)]
        if not lines:
            return f"{name}({self.extra_repr()})"
        return "\n".join([f"{name}({self.extra_repr()}", *lines, ")"])


def _move(tensor: Tensor, device: str | None, dtype: DType | None) -> None:
    value = tensor.detach()
    if dtype is not None and value.dtype.is_float:
        value = value.astype(dtype)
    if device is not None:
        value = value.to(device)
        tensor._device = device
    tensor._rebind(value.node)
    tensor.grad = None


def load_values(own: Mapping[str, Tensor], values: Mapping[str, Any], name: str) -> None:
    """Assign `values` to the tensors of the same names; all shapes are checked before the first."""
    found = {}
    for key, value in values.items():
        there = own[key]
        given = value if isinstance(value, Tensor) else Tensor(value, device=there.device)
        if given.shape != there.shape:
            raise ShapeError(f"{name}: {key!r} is {there.shape} here and {given.shape} there")
        found[key] = given
    for key, given in found.items():
        own[key].assign(given.detach())
    state.realize_all([own[key] for key in found])


def _difference(name: str, missing: list[str], unexpected: list[str]) -> str:
    parts = []
    if missing:
        parts.append("missing " + ", ".join(missing))
    if unexpected:
        parts.append("unexpected " + ", ".join(unexpected))
    return f"load_state_dict: {name}: " + "; ".join(parts)
