"""Frozen, keyword-only values: what packets, registers and requests have in common.

Like frozen dataclasses, but their fields come from declarations that also say where the bits are,
and building one costs little: a device decodes many thousands.
"""

from __future__ import annotations

import enum
import inspect
import sys
from typing import Any, ClassVar, Self, get_origin


class DeclarationError(TypeError):
    """A declaration contradicts itself: overlapping bits, a field outside its packet, and so on.

    Raised when the declaring module is imported, so nobody can run with it.
    """


class Value:
    """A frozen, keyword-only, printable, comparable and matchable set of named fields."""

    __match_args__: ClassVar[tuple[str, ...]] = ()
    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **given: Any) -> None:
        values = {**self._defaults, **given}
        names = self._names
        if len(values) != len(names):
            raise TypeError(self._complaint(given))
        try:
            self.__dict__.update({name: values[name] for name in names})
        except KeyError:
            raise TypeError(self._complaint(given)) from None

    @classmethod
    def _complaint(cls, given: dict[str, Any]) -> str:
        unknown = [name for name in given if name not in cls._names]
        if unknown:
            fields = ", ".join(cls._names) or "none"
            return f"{cls.__name__} has no field {', '.join(unknown)}; its fields: {fields}"
        missing = [n for n in cls._names if n not in given and n not in cls._defaults]
        return f"{cls.__name__} needs {', '.join(missing)}"

    @classmethod
    def _from(cls, values: dict[str, Any]) -> Self:
        """The value with these fields, which are known to be complete."""
        new = cls.__new__(cls)
        new.__dict__.update(values)
        return new

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        parts = [f"{name}={show(value)}" for name, value in self.__dict__.items()]
        return f"{type(self).__name__}({', '.join(parts)})"

    def replace(self, **changes: Any) -> Self:
        """The same value with some fields changed."""
        if not changes.keys() <= frozenset(self._names):
            raise TypeError(self._complaint(changes))
        return self._from({**self.__dict__, **changes})

    __replace__ = replace  # what copy.replace of Python 3.13 calls

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """The fields in the order of declaration."""
        return cls._names


def show(value: Any) -> str:
    """A field's value as text: enumerations by name, larger integers in hexadecimal."""
    if isinstance(value, enum.Flag):
        return flags_text(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value) is int:
        return str(value) if -10000 < value < 10000 else hex(value)
    if isinstance(value, tuple):
        inner = ", ".join(show(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def flags_text(value: enum.Flag) -> str:
    """`MapFlags.READ|WRITE`, with what no member names as a number."""
    kind = type(value)
    names = [str(member.name) for member in kind if member.value and member in value]
    known = 0
    for member in kind:
        known |= int(member.value)
    rest = int(value.value) & ~known
    if rest or not names:
        names.append(hex(rest))
    return f"{kind.__name__}.{'|'.join(names)}"


def annotations_of(cls: type) -> dict[str, Any]:
    """The annotations that the body of `cls` itself has, evaluated, without class variables.

    Declarations inside a function are evaluated where they stand.
    """
    found = inspect.get_annotations(cls)
    space: dict[str, Any] = {}
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != cls.__module__:
        frame = frame.f_back
    if frame is not None:
        space = {**frame.f_globals, **frame.f_locals}
    space = {**vars(sys.modules.get(cls.__module__, sys)), **space}
    result = {}
    for name, note in found.items():
        hint = eval(note, space) if isinstance(note, str) else note
        if get_origin(hint) is not ClassVar and hint is not ClassVar:
            result[name] = hint
    return result
