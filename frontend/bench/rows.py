"""The rows of the speed table, and random ones near them.

A row near the table's has other extents, so that no size can be a special case.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from frontend.bench.operations import OPERATIONS
from frontend.bench.row import Operation, Row

SCALES = (0.6, 1.6)
"""A dimension of a nearby row, by the dimension that it is near."""


def every_row() -> list[Row]:
    """All rows, in the order of the table."""
    return [op.row(name, size) for op in OPERATIONS for name, size in op.sizes.items()]


def nearby_rows(count: int, seed: int, names: Callable[[str], object]) -> list[Row]:
    """`count` rows near the ones of the table that `names` accepts, the same for the same seed.

    The table's rows are dealt like cards: none comes again before all have come. Each dimension is
    scaled by a factor of its own, so most are no multiple of anything.
    """
    rng = random.Random(seed)
    deck = [(op, size) for op in OPERATIONS for name, size in op.sizes.items() if names(name)]
    found: dict[str, Row] = {}
    left: list[tuple[Operation, tuple[int, ...]]] = []
    for _ in range(100 * count):  # tiny operations have few neighbours: not for ever
        if len(found) == count or not deck:
            break
        if not left:
            left = rng.sample(deck, len(deck))
        op, size = left.pop()
        near = tuple(max(1, round(extent * rng.uniform(*SCALES))) for extent in size)
        name = f"{op.word}_{'x'.join(map(str, near))}"
        found.setdefault(name, op.row(name, near))
    return list(found.values())
