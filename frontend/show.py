"""Prints any level of what is generated, to stderr, as it is made.

`RAWGPU_SHOW` names the levels, with commas: graph, schedule, loops, instructions, text, asm;
or it says all. While it is set, every plan is made anew, so that there is something to show.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

LEVELS = ("graph", "schedule", "loops", "instructions", "text", "asm")


def wanted() -> frozenset[str]:
    """The levels asked for; words that name none are named on stderr."""
    return _levels(os.environ.get("RAWGPU_SHOW", ""))


@functools.cache
def _levels(text: str) -> frozenset[str]:
    words = frozenset(filter(None, (word.strip() for word in text.split(","))))
    unknown = sorted(words - {"all", *LEVELS})
    if unknown:
        known = ", ".join(("all", *LEVELS))
        sys.stderr.write(f"RAWGPU_SHOW: no level {', '.join(unknown)}; there are {known}\n")
    return frozenset(LEVELS) if "all" in words else words & frozenset(LEVELS)


def show(level: str, text: Callable[[], str]) -> None:
    """Print one level of one kernel to stderr if it is asked for."""
    if level in wanted():
        sys.stderr.write(f"--- {level}\n{text()}\n")
