"""The instructions of a dispatch: fetched by pages, decoded when first met."""

from __future__ import annotations

from functools import lru_cache

from rawgpu.amd.spec.isa.decoder import decoder_for
from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.virtual.dispatch import GpuMemory, GpuPageFault, HaltCause, WaveHalted
from rawgpu.errors import DecodeError

LONGEST_BYTES = 24
PAGE_BYTES = 4096


@lru_cache(maxsize=1 << 16)
def decoded(family: str, wave: int, data: bytes) -> MachineInstruction | None:
    """The instruction at the start of `data`; None for what is no instruction."""
    try:
        return decoder_for(family, wave).decode(data, 0)
    except DecodeError:
        return None


class Code:
    """Machine code at GPU addresses, as the instruction cache gave it when first asked."""

    def __init__(self, family: str, wave: int, memory: GpuMemory) -> None:
        self.family, self.wave, self.memory = family, wave, memory
        self._pages: dict[int, bytes] = {}
        self._known: dict[int, MachineInstruction] = {}

    def _page(self, va: int) -> bytes:
        page = self._pages.get(va)
        if page is None:
            page = self._pages[va] = self.memory.code(va, PAGE_BYTES)
        return page

    def fetched_pages(self) -> list[tuple[int, bytes]]:
        """Addresses and contents of the pages that were looked at."""
        return list(self._pages.items())

    def bytes_at(self, va: int, size_bytes: int) -> bytes:
        """`size_bytes` of code, or fewer where the mapping ends."""
        page = va & -PAGE_BYTES
        out = self._page(page)[va - page :]
        while len(out) < size_bytes:
            page += PAGE_BYTES
            try:
                more = self._page(page)
            except GpuPageFault:
                if out:
                    break
                raise
            if not more:
                break
            out += more
        return out[:size_bytes]

    def at(self, va: int) -> MachineInstruction:
        """The instruction at `va`. Raises GpuPageFault, WaveHalted."""
        found = self._known.get(va)
        if found is None:
            made = decoded(self.family, self.wave, self.bytes_at(va, LONGEST_BYTES))
            if made is None:
                word = self.bytes_at(va, 8).hex()
                raise WaveHalted(HaltCause.ILLEGAL_INSTRUCTION, va, word)
            found = self._known[va] = made
        return found
