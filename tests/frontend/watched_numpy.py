"""NumPy that raises when code in `frontend/` computes with it; used by the test beside this file.

Two nets. Every `np` that a module of `frontend` holds is replaced by a stand-in which hands out
types and functions that only hold or move bytes. And what those functions return is a `Watched`
array, whose operators and methods raise when the nearest frame outside NumPy is one of `frontend/`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from tests.tidy.source import ROOT

FRONTEND = str(ROOT / "frontend")
NUMPY = str(Path(np.__file__).parent)

HOLDS_OR_MOVES = frozenset(
    {"array", "asarray", "ascontiguousarray", "empty", "frombuffer", "zeros", "load", "from_dlpack"}
)
"""Functions of NumPy that compute no number from another."""

NAMES_A_SPLIT = frozenset({"random.default_rng"})
"""How the demo divides its data is NumPy's permutation of a seed: published, and no arithmetic."""


class NumPyArithmetic(AssertionError):
    """The tensor library computed a number with NumPy."""


def caller() -> FrameType | None:
    """The nearest frame that is neither NumPy's nor this file's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and not file.startswith((NUMPY, "<__array_function__")):
            return frame
        frame = frame.f_back
    return None


def refuse_from_frontend(what: str) -> None:
    """Raise where `what` was called from a file of the tensor library."""
    frame = caller()
    if frame is not None and frame.f_code.co_filename.startswith(FRONTEND):
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        raise NumPyArithmetic(f"{where} calls numpy's {what}")


def plain(value: Any) -> Any:
    """`value` with watched arrays made ordinary, in tuples, lists and dicts too."""
    if isinstance(value, Watched):
        return value.view(np.ndarray)
    if isinstance(value, (tuple, list)):
        return type(value)(plain(item) for item in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


class Watched(np.ndarray[Any, Any]):
    """An array that the tensor library may hold and move, and not compute with."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        refuse_from_frontend(ufunc.__name__)
        return getattr(ufunc, method)(*plain(inputs), **plain(kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ not in HOLDS_OR_MOVES:
            refuse_from_frontend(func.__name__)
        return watch(func(*plain(args), **plain(kwargs)))


def _refusing(name: str) -> Any:
    """A method that NumPy computes in C without asking the two hooks above."""

    def method(self: Watched, *args: Any, **kwargs: Any) -> Any:
        refuse_from_frontend(name)
        return getattr(plain(self), name)(*plain(args), **plain(kwargs))

    return method


for _name in ("dot", "argmax", "argmin", "argsort", "sort", "round", "trace", "searchsorted"):
    setattr(Watched, _name, _refusing(_name))


def watch(value: Any) -> Any:
    """`value`, watched if it is an array."""
    if isinstance(value, np.ndarray) and not isinstance(value, Watched):
        return value.view(Watched)
    return value


class StandIn(ModuleType):
    """What a module of `frontend` gets for `np`."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        if isinstance(value, (type, float, str, ModuleType)) or value is None:
            return value  # Generators of np.random name a split of the data; they do not compute.
        if name not in HOLDS_OR_MOVES:
            raise NumPyArithmetic(f"frontend uses np.{name}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return watch(value(*args, **kwargs))

        return call


@contextmanager
def forbidden_in_frontend() -> Iterator[None]:
    """Replace NumPy in every loaded module of the tensor library."""
    stand_in = StandIn("numpy")
    replaced = [
        (module, name)
        for module_name, module in sys.modules.items()
        if module_name == "frontend" or module_name.startswith("frontend.")
        for name, value in vars(module).items()
        if value is np
    ]
    for module, name in replaced:
        setattr(module, name, stand_in)
    try:
        yield
    finally:
        for module, name in replaced:
            setattr(module, name, np)
