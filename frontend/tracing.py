"""Whether a recording is being made, and how the rest tells it what happens. See `recorder.py`.

Tensors, generators and modules look here when they are read or changed; the engine does before it
computes or reads anything back. Threads record independently.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frontend.graph.node import Node
    from frontend.nn.module import Module
    from frontend.ops.random import Generator
    from frontend.tensor import Tensor


class Trace:
    """What a recording wants to hear."""

    serial: int
    """A number of its own, not 0; the tensors made while it listens bear it."""

    def node_of(self, tensor: Tensor) -> Node:
        """The node that stands for `tensor` in the recording."""
        raise NotImplementedError

    def rebound(self, tensor: Tensor) -> None:
        """`tensor` is about to take another value, or to start or stop to require a gradient."""

    def reads_gradient(self, tensor: Tensor) -> None:
        """`tensor.grad` is about to be used."""

    def sets_gradient(self, tensor: Tensor) -> None:
        """`tensor.grad` is about to be set."""

    def draw(self, generator: Generator, count: int, device: str) -> tuple[Node, int] | None:
        """As `Generator.take`; None where the generator is to draw by itself."""
        return None

    def seeded(self, generator: Generator) -> None:
        """`generator` is about to start over."""

    def uses(self, module: Module) -> None:
        """`module` is being called."""


class _State(threading.local):
    trace: Trace | None = None
    serial: int = 0
    """The trace's serial; 0 without one."""


state = _State()


@contextmanager
def follow(trace: Trace | None) -> Iterator[None]:
    """Let `trace` listen to this thread, or with None nobody."""
    before = state.trace, state.serial
    state.trace, state.serial = trace, 0 if trace is None else trace.serial
    try:
        yield
    finally:
        state.trace, state.serial = before
