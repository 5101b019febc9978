"""How LLVM spells what families write differently: facts for whoever prints assembly.

Source: the disassembler and encoding tests of LLVM 22 (Apache-2.0 WITH LLVM-exception).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum


class WaitLayout(Enum):
    """Where S_WAITCNT has its counters: name, shift of the low bits, width; high bits apart."""

    GFX9 = (("vmcnt", 0, 4, 14, 2), ("expcnt", 4, 3, 0, 0), ("lgkmcnt", 8, 4, 0, 0))
    GFX10 = (("vmcnt", 0, 4, 14, 2), ("expcnt", 4, 3, 0, 0), ("lgkmcnt", 8, 6, 0, 0))
    GFX11 = (("vmcnt", 10, 6, 0, 0), ("expcnt", 0, 3, 0, 0), ("lgkmcnt", 4, 6, 0, 0))

    def counters(self, value: int) -> list[tuple[str, int, int]]:
        """Each counter's name, value and greatest value; the greatest means no wait."""
        found = []
        for name, low, width, high, more in self.value:
            count = value >> low & (1 << width) - 1
            count |= (value >> high & (1 << more) - 1) << width
            found.append((name, count, (1 << width + more) - 1))
        return found


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """One family's."""

    true16: bool = False
    """16-bit registers are `v1.l` and `v1.h`."""
    waits: WaitLayout = WaitLayout.GFX9
    message_bits: int = 4
    """Bits of a message's number; with 4, operation and stream follow."""
    hold_counter: bool = False
    """S_WAITCNT_DEPCTR counts `hold_cnt`, and unused bits make it a number."""
    bare_compare_dpp: bool = False
    """Compares with DPP have no suffix."""
    bare_nop_e64: bool = False
    """V_NOP has no suffix in 64 bits either."""
    signed_sources: bool = False
    """The negation bit of an integer source reads `sext(…)`."""
    row_share: bool = False
    """DPP has row_share and row_xmask, in place of row_newbcast."""
    byte_select: bool = False
    """Conversions of 8-bit floats choose a byte by `byte_sel`."""
    double_negation: bool = False
    """MFMA on doubles has `neg` where others have `blgp`."""
    scalar_offset_always: bool = False
    """Scalar loads print the constant beside a register offset, even 0."""
    scalar_offset_null: bool = False
    """Scalar loads without any offset print `null`."""
    numbers_of_unknown_registers: bool = False
    """S_GETREG of a register without a name is one number."""


_GFX9 = Spelling()
_GFX942 = replace(_GFX9, double_negation=True)
_GFX10 = replace(_GFX9, waits=WaitLayout.GFX10, signed_sources=True, row_share=True)
_GFX11 = replace(
    _GFX10,
    true16=True,
    waits=WaitLayout.GFX11,
    message_bits=8,
    hold_counter=True,
    bare_compare_dpp=True,
    bare_nop_e64=True,
    scalar_offset_null=True,
)
_GFX12 = replace(
    _GFX11,
    byte_select=True,
    scalar_offset_always=True,
    scalar_offset_null=False,
    numbers_of_unknown_registers=True,
)

SPELLINGS: Mapping[str, Spelling] = {
    "gfx9": _GFX9,
    "gfx90a": _GFX9,
    "gfx942": _GFX942,
    "gfx950": _GFX942,
    "gfx10": _GFX10,
    "gfx11": _GFX11,
    "gfx115": _GFX11,
    "gfx12": _GFX12,
    "gfx1250": _GFX12,
}
"""By family."""
