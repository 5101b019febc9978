"""Accumulators in memory, where a reduction loop stands outside output loops.

for k/256:                     each round adds a part of every sum
  for m/8: for n/48:           so the sums of all tiles wait in the block's own memory
    acc = 0
    for k%256: acc += …
    sums[m/8, n/48] += acc
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from frontend import dtype as dt
from frontend.instructions.buffers import Buffers
from frontend.instructions.folds import Accumulators, Fold
from frontend.instructions.indices import Env
from frontend.instructions.ir import BITS, Value
from frontend.instructions.memory import compute_kind
from frontend.instructions.points import Point
from frontend.loops import nest as ln
from frontend.loops.index import Index, flatten

_KEPT = (dt.float32, dt.float64, dt.int8, dt.int16, dt.int32, dt.int64)
_HELD = {compute_kind(dtype): dtype for dtype in _KEPT}


class Carried:
    """The sums of all tiles of some output loops; those of a tile lie side by side.

    `loops`: the output loops inside the outermost carried reduction, outermost first.
    """

    def __init__(
        self,
        buffers: Buffers,
        folds: Sequence[Fold],
        loops: Sequence[ln.Loop],
        tile: Sequence[ln.Loop],
        lanes: int,
    ) -> None:
        self._buffers = buffers
        self._size = math.prod(
            -(-lo.var.extent // lanes) * lanes if lo.kind is ln.Kind.VECTOR else lo.var.extent
            for lo in tile
        )
        self._folds = folds
        shape = [lo.var.extent for lo in loops]
        self._first = flatten([Index.of(lo.var) for lo in loops], shape) * self._size
        size = self._size * math.prod(shape)
        self._slots = [buffers.add_scratch(_HELD[compute_kind(fold.dtype)], size) for fold in folds]

    def load(self, accumulators: Accumulators, env: Env) -> None:
        """Go on from what the tile at `env` had."""
        for key, old, address in self._places(accumulators, env):
            align = BITS[old.kind] // 8
            value = self._buffers.b.load(old.kind, old.lanes, address, align=align)
            accumulators.held[key] = (value,)

    def store(self, accumulators: Accumulators, env: Env) -> None:
        """Keep what the tile at `env` has now."""
        for _, value, address in self._places(accumulators, env):
            self._buffers.b.store(value, address, align=BITS[value.kind] // 8)

    def add(self, accumulators: Accumulators, env: Env) -> None:
        """Fold what a round has summed by itself into what the tile at `env` has.

        By itself: many small sums and their sum lose less to rounding than one long sum does.
        """
        for key, value, address in self._places(accumulators, env):
            align = BITS[value.kind] // 8
            old = self._buffers.b.load(value.kind, value.lanes, address, align=align)
            (total,) = self._folds[key[0]].merged((old,), (value,))
            self._buffers.b.store(total, address, align=align)

    def _places(
        self, accumulators: Accumulators, env: Env
    ) -> list[tuple[tuple[int, Point], Value, Value]]:
        """(key, value, address) of each accumulator."""
        used = [0] * len(self._slots)
        found = []
        for key, (value,) in accumulators.held.items():
            number = key[0]
            index = self._first + used[number]
            found.append((key, value, self._buffers.address(self._slots[number], index, env)))
            used[number] += value.lanes
        assert max(used) <= self._size, (used, self._size)
        return found
