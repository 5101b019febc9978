"""The only source of chance in a machine room: everything random is drawn from one seed.

Which queue runs next, when a ring is prefetched, when an interrupt arrives, what poison is. Equal
seeds give equal runs. A failing run prints its seed; `RAWGPU_SEED` sets it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """Draws. `fork` gives a part of the machine its own stream, which others do not disturb."""

    def __init__(self, seed: int | str = 0) -> None:
        self.seed = seed
        self._random = random.Random(str(seed))

    def fork(self, name: str) -> Chance:
        """An independent stream, named so that it is the same in every run."""
        return Chance(f"{self.seed}/{name}")

    def below(self, count: int) -> int:
        """A number from 0 up to, not including, `count`."""
        return self._random.randrange(count)

    def pick(self, items: Sequence[T]) -> T:
        return items[self._random.randrange(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        copy = list(items)
        self._random.shuffle(copy)
        return copy

    def one_in(self, count: int) -> bool:
        """True once in `count` times, on average."""
        return self._random.randrange(count) == 0

    def word(self) -> int:
        """32 bits."""
        return self._random.getrandbits(32)

    def bytes(self, size_bytes: int) -> bytes:
        """Poison for registers and fresh memory."""
        return self._random.randbytes(size_bytes)
