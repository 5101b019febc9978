"""Which variant of the 8-bit floats a family has.

Source: LLVM 22's AMDGPU features (FP8ConversionInsts) and the ISA documents of each family.
"""

from __future__ import annotations

from collections.abc import Mapping

from rawgpu.amd.spec.isa.formats import LINEAGE
from rawgpu.describe.small_floats import FNUZ, OCP, SmallFloat

_VARIANTS: Mapping[str, Mapping[str, SmallFloat]] = {
    "gfx942": FNUZ,
    "gfx950": OCP,
    "gfx12": OCP,
}
"""By the family that brought them."""


def small_floats(family: str) -> Mapping[str, SmallFloat]:
    """The formats of a family by the names in its instructions; empty where it has none."""
    return next((_VARIANTS[f] for f in LINEAGE[family] if f in _VARIANTS), {})
