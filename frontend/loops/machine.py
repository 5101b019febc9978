"""What scheduling and lowering need to know of a processor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What scheduling needs to know of a processor. Sizes in bytes."""

    vector_bytes: int = 32
    registers: int = 16
    """Vector registers that code can name."""
    masked: bool = False
    """Loads and stores can leave lanes out at no cost."""
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    block_lanes: int = 0
    """Work-items of a block, which are its lanes whatever the element.

    0 where lanes are parts of registers.
    """
    row_bytes: int = 1 << 18
    """What one block may keep of a row: in the second-level cache, or in local memory."""
    cores: int = 1
    """Blocks that may run side by side, where that decides how work is cut. Never what is computed.
    """
    stage_bytes: int = 1 << 20
    """What one block may stage: on the worker's stack and in its L2 cache, or in local memory."""
    l3_bytes: int = 0
    """The last cache, which all cores share, and perhaps other programs."""
    streaming: bool = False
    """Stores past the caches are cheaper than plain ones, for what nobody finds in a cache."""
    prefetch_bytes: int = 0
    """How far ahead of its turn what is read once should be asked for; 0 for never."""

    def lanes(self, bits: int) -> int:
        """Elements of `bits` in one vector."""
        return self.block_lanes or self.vector_bytes * 8 // max(8, bits)

    @property
    def shuffles(self) -> bool:
        """Whether lanes can be rearranged at will at the cost of an instruction."""
        return not self.block_lanes
