"""Time in a machine room: the only place that knows it.

A stepped room has a time of its own that only its machine's work moves, so that runs repeat. When
nothing can happen any more, time leaps: a bounded wait ends after few steps.
"""

from __future__ import annotations

import time
from typing import Protocol

START_NS = 1_000_000_000
"""A machine that has been on for a while: no program may count on 0."""


class Clock(Protocol):
    """Monotonic time in nanoseconds."""

    def now_ns(self) -> int: ...

    def advance(self, ns: int) -> None:
        """Let work or a wait take so long."""
        ...


class SteppedClock:
    """Time that only `advance` moves."""

    def __init__(self, start_ns: int = START_NS) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, ns: int) -> None:
        assert ns >= 0, ns
        self._now_ns += ns


class HostClock:
    """The host's time, for rooms with threads; work takes what it takes."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def advance(self, ns: int) -> None:
        del ns
