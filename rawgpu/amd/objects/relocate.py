"""Relocation kinds of AMD GPUs as rows.

S symbol, A addend, P place, G the symbol's slot in the table of addresses, B the image.

Source: LLVM 22.1 AMDGPUUsage, Relocation Records; lld/ELF/Arch/AMDGPU.cpp. Compared with ld.lld in
the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rawgpu.errors import BadElf

U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses a relocation may ask for."""

    symbol: int
    addend: int
    place: int
    slot: int
    base: int


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its value, the shift and the bits of it that are stored, and how it is checked."""

    name: str
    value: Callable[[Places], int]
    size_bytes: int
    shift: int = 0
    low: int | None = None
    high: int | None = None
    """The range of the value, where one that does not fit is an error."""
    needs_slot: bool = False

    def apply(self, image: bytearray, at: int, places: Places) -> None:
        """Store the value at offset `at` of the image."""
        value = self.value(places)
        if self.low is not None and self.high is not None and not self.low <= value < self.high:
            raise BadElf(f"relocation {self.name} at {at:#x}: {value:#x} does not fit")
        stored = (value & U64) >> self.shift & (1 << 8 * self.size_bytes) - 1
        image[at : at + self.size_bytes] = stored.to_bytes(self.size_bytes, "little")


def _absolute(p: Places) -> int:
    return p.symbol + p.addend


def _relative(p: Places) -> int:
    return p.symbol + p.addend - p.place


def _slot(p: Places) -> int:
    return p.slot + p.addend - p.place


def _branch(p: Places) -> int:
    """In instructions of 4 bytes, from the one after."""
    distance = p.symbol + p.addend - p.place - 4
    if distance % 4:
        raise BadElf(f"a branch by {distance} bytes")
    return distance // 4


KINDS: dict[int, Kind] = {
    1: Kind("R_AMDGPU_ABS32_LO", _absolute, 4),
    2: Kind("R_AMDGPU_ABS32_HI", _absolute, 4, shift=32),
    3: Kind("R_AMDGPU_ABS64", _absolute, 8),
    4: Kind("R_AMDGPU_REL32", _relative, 4, low=-(1 << 31), high=1 << 31),
    5: Kind("R_AMDGPU_REL64", _relative, 8),
    6: Kind("R_AMDGPU_ABS32", _absolute, 4, low=-(1 << 31), high=1 << 32),
    7: Kind("R_AMDGPU_GOTPCREL", _slot, 4, low=-(1 << 31), high=1 << 31, needs_slot=True),
    8: Kind("R_AMDGPU_GOTPCREL32_LO", _slot, 4, needs_slot=True),
    9: Kind("R_AMDGPU_GOTPCREL32_HI", _slot, 4, shift=32, needs_slot=True),
    10: Kind("R_AMDGPU_REL32_LO", _relative, 4),
    11: Kind("R_AMDGPU_REL32_HI", _relative, 4, shift=32),
    13: Kind("R_AMDGPU_RELATIVE64", lambda p: p.base + p.addend, 8),
    14: Kind("R_AMDGPU_REL16", _branch, 2, low=-(1 << 15), high=1 << 15),
}
