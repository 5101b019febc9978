"""Prints any level of what is generated, to stderr, as it is made.

`RAWGPU_SHOW` names the levels, with commas: graph, schedule, loops, instructions, text, asm;
or it says all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

LEVELS = ("graph", "schedule", "loops", "instructions", "text", "asm")


def wanted() -> frozenset[str]:
    """The levels asked for; words that name none are ignored."""
    text = os.environ.get("RAWGPU_SHOW", "")
    levels = frozenset(filter(None, (word.strip() for word in text.split(","))))
    if "all" in levels:
        return frozenset(LEVELS)
    return levels & frozenset(LEVELS)


def show(level: str, text: Callable[[], str]) -> None:
    """Print one level of one kernel to stderr if it is asked for."""
    if level in wanted():
        sys.stderr.write(f"--- {level}\n{text()}\n")
