"""Where temporaries lie: offsets in one arena, reused as soon as nobody reads them any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGN_BYTES = 64
PAD_BYTES = 64
"""Readable bytes after each temporary, since a last vector may read past the end."""


@dataclass(frozen=True)
class Lifetime:
    """A temporary that exists from task `first` to task `last`, both included."""

    size_bytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """(offset of each, size of the arena).

    Largest first, each in the lowest gap among those that are alive with it.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].size_bytes, i)):
        want = lifetimes[i]
        need = _padded(want.size_bytes)
        busy = sorted(
            (offsets[j], offsets[j] + _padded(lifetimes[j].size_bytes))
            for j in placed
            if lifetimes[j].first <= want.last and want.first <= lifetimes[j].last
        )
        at = 0
        for start, end in busy:
            if at + need <= start:
                break
            at = max(at, end)
        offsets[i] = at
        total = max(total, at + need)
        placed.append(i)
    return offsets, total


def _padded(size_bytes: int) -> int:
    return -(-(size_bytes + PAD_BYTES) // ALIGN_BYTES) * ALIGN_BYTES
