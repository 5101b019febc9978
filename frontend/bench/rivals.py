"""Who is measured beside us, each a class that turns a row into calls.

`calls` gives contestants by name, each as a list of calls that differ in their inputs alone. A row
that a rival cannot do is a Refusal.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from frontend.bench.row import Array, Row
from frontend.bench.timer import Call

COMPILE_S = 60
"""So long a rival may take to make a row ready."""


class BadRequest(Exception):
    """What was asked for cannot be measured; the text says why."""


class Refusal(Exception):
    """Why a rival has no figure for a row."""


class Rival(Protocol):
    """Somebody else's library."""

    def calls(self, row: Row, sets: Sequence[Sequence[Array]]) -> dict[str, list[Call]]:
        """Ready to be timed: compiled, and its inputs in place. Raises Refusal."""
        ...

    def value(self, result: Any) -> Array:
        """What a call has returned, as an array."""
        ...


def pytorch() -> Any:
    """The torch module. Raises BadRequest where it is missing or broken."""
    with needed("torch", "PyTorch"):
        return importlib.import_module("torch")


@contextmanager
def needed(name: str, title: str) -> Iterator[None]:
    """Say which package it is that cannot be imported."""
    try:
        yield
    except (ImportError, OSError) as error:
        raise BadRequest(f"--against {name} needs {title} (pip install {name}): {error}") from None


class Torch:
    """PyTorch: its default call as `torch`, and as `torch_out` the one into a given result."""

    def __init__(self, threads: int) -> None:
        self.torch = pytorch()
        self.torch.set_num_threads(threads)

    def calls(self, row: Row, sets: Sequence[Sequence[Array]]) -> dict[str, list[Call]]:
        inputs = [[self.torch.tensor(a) for a in arrays] for arrays in sets]
        found: dict[str, list[Call]] = {
            "torch": [partial(row.torch, self.torch, *i) for i in inputs]
        }
        if row.torch_out is not None:
            shape = self.torch.contiguous_format
            out = self.torch.empty_like(row.torch(self.torch, *inputs[0]), memory_format=shape)
            found["torch_out"] = [partial(row.torch_out, self.torch, out, *i) for i in inputs]
        return found

    def value(self, result: Any) -> Array:
        array: Array = result.numpy()
        return array


class Tinygrad:
    """tinygrad on the CPU: a TinyJit replay, waited for.

    Its code is made by clang where there is one, else by LLVM, as its own default is.
    """

    def __init__(self, threads: int) -> None:
        compilers = ("clang", *(f"clang-{n}" for n in range(22, 13, -1)))
        found = next(filter(shutil.which, compilers), None)
        os.environ.setdefault("DEV", "CPU" if found or "CC" in os.environ else "CPU:LLVM")
        os.environ.setdefault("NUM_CPU_THREADS", str(threads))
        if found:
            os.environ.setdefault("CC", found)
        with needed("tinygrad", "tinygrad"):
            self.tinygrad = importlib.import_module("tinygrad")

    def calls(self, row: Row, sets: Sequence[Sequence[Array]]) -> dict[str, list[Call]]:
        try:
            with at_most(COMPILE_S):
                return {"tinygrad": self._compiled(row, sets)}
        except Exception as error:  # whatever ends it is this row's answer
            raise Refusal(_line(error)) from error

    def _compiled(self, row: Row, sets: Sequence[Sequence[Array]]) -> list[Call]:
        inputs = [[self.tinygrad.Tensor(a).realize() for a in arrays] for arrays in sets]
        function = row.tinygrad or row.ours
        replay = self.tinygrad.TinyJit(lambda *given: function(*given).realize())
        synchronize = self.tinygrad.Device[self.tinygrad.Device.DEFAULT].synchronize

        def call(given: Sequence[Any]) -> Any:
            result = replay(*given)
            synchronize()
            return result

        for given in (*inputs, *inputs)[:3]:  # it runs once, records once, and then replays
            call(given)
        return [partial(call, given) for given in inputs]

    def value(self, result: Any) -> Array:
        array: Array = result.numpy()
        return array


RIVALS: dict[str, Callable[[int], Rival]] = {"torch": Torch, "tinygrad": Tinygrad}
"""By name; made with the number of threads."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside when that long has passed; only in the main thread, on Unix."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"not ready after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:300]
