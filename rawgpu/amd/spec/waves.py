"""What a family's waves start with and how its operands are read: facts the wave engines ask for.

Sources: the LLVM AMDGPU usage guide (initial state, special registers), AMD's ISA documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rawgpu.amd.spec.generations import GENERATIONS
from rawgpu.amd.spec.isa.formats import LINEAGE
from rawgpu.amd.spec.isa.operands import SCALARS
from rawgpu.errors import UnsupportedDevice


@dataclass(frozen=True)
class WaveTraits:
    """One family's row."""

    family: str
    packed_ids: bool
    """Work-item ids come packed in v0."""
    ids_in_traps: bool
    """Work-group ids are in ttmp7 and ttmp9, not in scalar registers."""
    architected_scratch: bool
    """FLAT_SCRATCH is set up by hardware, not by the kernel's first instructions."""
    m0: int
    """The operand code of M0."""
    null: int
    """The operand code of the null register; -1 where there is none."""
    zeroes_high_half: bool
    """A 16-bit result clears the upper half of its register."""
    always_clamps: bool
    """Clamping takes NaN to zero whatever the mode says."""
    message_returns: bool
    """Message numbers from 128 on return a value."""
    swizzles_linear_buffers: bool
    """Only the add-thread-id bit, not the swizzle bits alone, marks a scratch buffer."""


@cache
def wave_traits(generation: str) -> WaveTraits:
    """The row of the family that a chip belongs to. Raises UnsupportedDevice."""
    row = GENERATIONS.get(generation)
    if row is None:
        raise UnsupportedDevice(f"the machine code of {generation} is not described")
    family = row.family
    lineage = LINEAGE[family]
    names = next(SCALARS[f] for f in lineage if f in SCALARS).single
    codes = {name: code for code, name in names.items()}
    rdna3 = "gfx11" in lineage
    return WaveTraits(
        family=family,
        packed_ids=rdna3 or "gfx90a" in lineage,
        ids_in_traps="gfx12" in lineage,
        architected_scratch=rdna3 or "gfx942" in lineage,
        m0=codes["m0"],
        null=codes.get("null", -1),
        zeroes_high_half="gfx10" not in lineage,
        always_clamps="gfx12" in lineage,
        message_returns=rdna3,
        swizzles_linear_buffers=family.startswith("gfx9"),
    )
