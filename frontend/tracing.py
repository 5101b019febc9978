"""Whether a recording is being made, and how tensors tell it what they do. See `capture.py`.

`Tensor.node`, `Tensor._rebind` and `Tensor.realize` look here; the engine does before it computes or reads
anything back. Threads record independently.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frontend.tensor import Tensor


class Trace:
    """What a recording wants to hear."""

    serial: int

    def read(self, tensor: Tensor) -> None:
        """`tensor`'s node is about to be used."""

    def rebound(self, tensor: Tensor) -> None:
        """`tensor` is about to take another value."""


class _State(threading.local):
    trace: Trace | None = None
    serial: int = 0
    """Counts recordings; a tensor made in an earlier one, or outside, bears a smaller number."""


state = _State()
