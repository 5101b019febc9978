"""Modules made of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from frontend.nn import module as m
from frontend.nn.module import Module
from frontend.tensor import Tensor
from rawgpu.errors import IndexOutOfRange, OperationError


class ModuleList(Module):
    """A list of modules, named by their numbers."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._count = 0
        self.extend(modules)

    def append(self, module: Module) -> Self:
        """Add a module at the end. Returns self."""
        if not isinstance(module, Module):
            raise OperationError(f"{type(self).__name__}: {module!r} is no module")
        self.register_module(str(self._count), module)
        self._count += 1
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end. Returns self."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    @overload
    def __getitem__(self, index: int) -> Module: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Module | Self:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        if not -self._count <= index < self._count:
            raise IndexOutOfRange(f"{type(self).__name__}: {index} of {self._count} modules")
        found: Module = getattr(self, str(index % self._count))
        return found

    def __setitem__(self, index: int, module: Module) -> None:
        self[index]  # raises where there is none
        self.register_module(str(index % self._count), module)


class Sequential(ModuleList):
    """Modules one after another: each gets what the one before it gave.

    Takes modules, or one dict of named ones.
    """

    def __init__(self, *modules: Module | Mapping[str, Module] | Iterable[Module]) -> None:
        self._count = 0
        self._names: list[str] = []
        for item in modules:
            if isinstance(item, Module):
                self.append(item)
            elif isinstance(item, Mapping):
                for name, module in item.items():
                    self._add(name, module)
            elif isinstance(item, Iterable) and not isinstance(item, type):
                self.extend(item)
            else:
                self._add(str(self._count), item)  # which refuses it

    def _add(self, name: str, module: object) -> None:
        if not isinstance(module, Module):
            raise OperationError(
                f"Sequential: {module!r} is no module", hint="nn.ReLU() rather than a function"
            )
        self.register_module(name, module)
        self._names.append(name)
        self._count += 1

    def append(self, module: Module) -> Self:
        """Add a module at the end. Returns self."""
        self._add(str(self._count), module)
        return self

    @overload
    def __getitem__(self, index: int) -> Module: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Module | Self:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        if not -self._count <= index < self._count:
            raise IndexOutOfRange(f"Sequential: {index} of {self._count} modules")
        found: Module = getattr(self, self._names[index])
        return found

    def __setitem__(self, index: int, module: Module) -> None:
        self[index]  # raises where there is none
        self.register_module(self._names[index], module)

    def forward(self, x: Any) -> Any:
        """The last module's result."""
        for module in self:
            x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        for name, module in (modules or {}).items():
            self[name] = module

    def __getitem__(self, name: str) -> Module:
        found = dict(self.named_children()).get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, module: Module) -> None:
        if hasattr(type(self), name):
            raise OperationError(f"ModuleDict: {name!r} is a method's name")
        self.register_module(name, module)

    def __contains__(self, name: object) -> bool:
        return any(name == own for own, _ in self.named_children())

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.named_children())

    def __len__(self) -> int:
        return sum(1 for _ in self.named_children())

    def keys(self) -> list[str]:
        return list(self)

    def values(self) -> list[Module]:
        return list(self.children())

    def items(self) -> list[tuple[str, Module]]:
        return list(self.named_children())


class ParameterList(Module):
    """A list of parameters, named by their numbers."""

    def __init__(self, parameters: Iterable[Tensor] = ()) -> None:
        self._count = 0
        for parameter in parameters:
            self.append(parameter)

    def append(self, parameter: Tensor) -> Self:
        """Add a parameter at the end. Returns self."""
        self.register_parameter(str(self._count), parameter)
        self._count += 1
        return self

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Tensor]:
        return (tensor for _, tensor in self._own(m.PARAMETER))

    def __getitem__(self, index: int) -> Tensor:
        if not -self._count <= index < self._count:
            raise IndexOutOfRange(f"ParameterList: {index} of {self._count} parameters")
        found: Tensor = getattr(self, str(index % self._count))
        return found


class Identity(Module):
    """Gives what it gets."""

    def forward(self, x: Any) -> Any:
        return x


class Flatten(Module):
    """Axes `start` to `end`, both included, merged into one: (N, C, H, W) to (N, C*H*W)."""

    def __init__(self, start: int = 1, end: int = -1) -> None:
        self.start = start
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start, self.end)


class Unflatten(Module):
    """`axis` split into `shape`."""

    def __init__(self, axis: int, shape: tuple[int, ...]) -> None:
        self.axis = axis
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(self.axis, self.shape)
