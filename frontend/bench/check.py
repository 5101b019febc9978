"""Whether a row's results are right, how exact they are, and whether threads change them.

The judge is PyTorch in float64. PyTorch's own error in float32 is measured beside ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from frontend import engine
from frontend.bench.replay import ALONE, SHARED, Replay, prepare
from frontend.bench.row import Array, Row
from frontend.tensor import Tensor

HALF_ULP = 2.0**-24
"""What rounding to float32 alone may make of the largest value."""
WORTH_NOTHING = 1e-7
"""An error that no row need be told about."""
SAME = 1e-3
"""An error beyond which it is another computation."""
WORSE = 2.0
"""So many times PyTorch's error is too much."""


@dataclass(frozen=True)
class Exactness:
    """The largest differences from float64, relative to the result's largest magnitude.

    Of whole numbers, how many differ.
    """

    ours: float
    theirs: float

    @property
    def ratio(self) -> float | None:
        """Our error by theirs; None where neither has one."""
        if not self.theirs:
            return math.inf if self.ours else None
        return self.ours / self.theirs

    @property
    def is_worse(self) -> bool:
        """Whether ours is less exact than it may be; never where it is as exact as can be."""
        return not self.ours <= max(WORSE * self.theirs, HALF_ULP)


def exactness(
    row: Row, torch: Any, sets: Sequence[Sequence[Array]], replays: Sequence[Replay]
) -> Exactness:
    """The worst of the sets. Raises AssertionError for a result of another shape."""
    ours = theirs = 0.0
    for arrays, replay in zip(sets, replays, strict=True):
        replay()
        expected = wide(row, torch, arrays)
        ours = max(ours, apart(torch, torch.from_numpy(replay.read(0)), expected))
        got = row.torch(torch, *(torch.from_numpy(a) for a in arrays))
        theirs = max(theirs, apart(torch, got, expected))
    return Exactness(ours, theirs)


def wide(row: Row, torch: Any, arrays: Sequence[Array]) -> Any:
    """PyTorch's result in float64."""
    inputs = [torch.from_numpy(a) for a in arrays]
    return row.torch(torch, *(a.double() if a.is_floating_point() else a for a in inputs))


def apart(torch: Any, got: Any, expected: Any) -> float:
    """How far `got` is from `expected`; inf where it is no number or one that should be."""
    if got.shape != expected.shape:
        raise AssertionError(f"shape {tuple(got.shape)}, not {tuple(expected.shape)}")
    if not got.is_floating_point():
        return float((got != expected).sum())
    if not got.numel():
        return 0.0
    difference = float((got.double() - expected).abs().max())
    size = float(expected.abs().max())
    return difference / size if math.isfinite(difference) else math.inf


def same_meaning(row: Row, torch: Any, arrays: Sequence[Array], got: Array) -> bool:
    """Whether a rival has computed what the row says, however inexactly."""
    expected = wide(row, torch, arrays)
    found = torch.from_numpy(got)
    return found.shape == expected.shape and apart(torch, found, expected) <= SAME


def same_bits(row: Row, tensors: Sequence[Sequence[Tensor]], device: str, threads: int) -> bool:
    """Whether the plan for one core, on one thread, and that for `threads` give the same bytes."""
    with planned_for(device, 1):
        alone = prepare([[row.ours(*inputs)] for inputs in tensors], ALONE)
    with planned_for(device, threads):
        shared = prepare([[row.ours(*inputs)] for inputs in tensors], SHARED)
    for one, several in zip(alone, shared, strict=True):
        one()
        several()
        if one.read(0).tobytes() != several.read(0).tobytes():
            return False
    return True


@contextmanager
def planned_for(device: str, cores: int) -> Iterator[None]:
    """Plans made within are those that the device would get if it had so many cores."""
    opened = engine.opened(device)
    before = opened.target
    opened.target = replace(before, machine=replace(before.machine, cores=cores))
    try:
        yield
    finally:
        opened.target = before
