"""Code objects: ELF files for AMD GPUs, relocatable or linked, read strictly.

`parse` checks everything and maps nothing. The result is one image, whose parts keep their
distances; `CodeObject.image_at` gives its bytes for an address. A relocatable object's sections are
laid out here and get a table of addresses (GOT) where the code wants one.

Source: LLVM 22.1 AMDGPUUsage, Code Object; gABI 4.2 draft of 2025, chapters 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawgpu.amd.objects import elffile
from rawgpu.amd.objects.elffile import ElfFile, Rela, Sym
from rawgpu.amd.objects.relocate import KINDS, Kind, Places
from rawgpu.errors import BadElf
from rawgpu.native.elf import (
    MAX_IMAGE_BYTES,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHN_ABS,
    SHN_UNDEF,
    SHT_NOBITS,
    SHT_NOTE,
    STB_WEAK,
)

CODE_ALIGN = 256
CODE_PAD = 256
"""Instruction prefetch reads past the end of code."""
GOT_ENTRY = 8


@dataclass(frozen=True)
class Global:
    """A symbol in the image."""

    offset: int
    size_bytes: int
    writable: bool
    is_code: bool


@dataclass(frozen=True)
class CodeObject:
    """A parsed code object."""

    file: ElfFile
    size_bytes: int
    pieces: tuple[tuple[int, memoryview], ...]
    """Bytes by offset in the image."""
    fixes: tuple[tuple[int, Rela, int | None], ...]
    """Place in the image, relocation, and the image offset of its symbol; None: `absolute`."""
    absolute: dict[int, int]
    """Values of absolute and weak undefined symbols, by symbol number and table."""
    slots: dict[int, int]
    """GOT offset by symbol number."""
    globals: dict[str, Global]

    def image_at(self, base: int) -> bytearray:
        """The image for address `base`, relocated."""
        image = bytearray(self.size_bytes)
        for offset, data in self.pieces:
            image[offset : offset + len(data)] = data
        for place, rela, target in self.fixes:
            value = base + target if target is not None else self.absolute[rela.symbol]
            slot = self.slots.get(rela.symbol)
            if slot is not None:
                image[slot : slot + GOT_ENTRY] = value.to_bytes(GOT_ENTRY, "little")
            kind = KINDS[rela.kind]
            got = base + slot if slot is not None else 0
            kind.apply(image, place, Places(value, rela.addend, base + place, got, base))
        return image


def parse(data: bytes | memoryview) -> CodeObject:
    """Read a code object. BadElf for anything damaged, hostile or not AMD's."""
    file = elffile.read(memoryview(data).cast("B"))
    return _linked(file) if file.linked else assemble(file, *lay_out(file))


def lay_out(file: ElfFile) -> tuple[dict[int, int], int]:
    """Where each loaded section goes, and where the last ends."""
    starts: dict[int, int] = {}
    at = 0
    for section in file.sections:
        if not section.flags & SHF_ALLOC or section.type == SHT_NOTE:
            continue
        code = bool(section.flags & SHF_EXECINSTR)
        align = max(section.align, CODE_ALIGN if code else 1)
        at = (at + align - 1) & -align
        starts[section.index] = at
        at += section.size_bytes + (CODE_PAD if code else 0)
        if at > MAX_IMAGE_BYTES:
            raise BadElf(f"section {section.index} {section.name!r} makes the image too large")
    return starts, at


def assemble(file: ElfFile, starts: dict[int, int], end: int) -> CodeObject:
    """A relocatable object with its sections at `starts`, and the GOT after `end`."""
    pieces = tuple(
        (start, file.sections[i].data)
        for i, start in starts.items()
        if file.sections[i].type != SHT_NOBITS
    )
    fixes: list[tuple[int, Rela, int | None]] = []
    absolute: dict[int, int] = {}
    slots: dict[int, int] = {}
    at = (end + GOT_ENTRY - 1) & -GOT_ENTRY
    for section_index, relas in file.relocations.items():
        if section_index not in starts:
            continue
        room = file.sections[section_index].size_bytes
        for rela in relas:
            kind = _kind(rela, room)
            symbol = file.symbols[rela.symbol]
            target = _target(symbol, starts, absolute, rela.symbol)
            if kind.needs_slot and rela.symbol not in slots:
                slots[rela.symbol] = at
                at += GOT_ENTRY
            fixes.append((starts[section_index] + rela.offset, rela, target))
    found = {
        symbol.name: Global(
            starts[symbol.section] + symbol.value,
            symbol.size_bytes,
            bool(file.sections[symbol.section].flags & SHF_WRITE),
            bool(file.sections[symbol.section].flags & SHF_EXECINSTR),
        )
        for symbol in file.symbols
        if symbol.named and symbol.section in starts
    }
    return CodeObject(file, at, pieces, tuple(fixes), absolute, slots, found)


def _kind(rela: Rela, room: int) -> Kind:
    kind = KINDS.get(rela.kind)
    if kind is None:
        raise BadElf(f"relocation {rela.kind} at {rela.offset:#x} is of no known kind")
    if rela.offset + kind.size_bytes > room:
        raise BadElf(f"relocation {kind.name} at {rela.offset:#x} runs past its section")
    return kind


BUILTINS = ("get_global_id", "get_local_id", "get_group_id")
"""OpenCL's functions that need no library if they are written as the compiler's own."""


def _builtin_hint(name: str) -> str:
    if not any(builtin in name for builtin in BUILTINS):
        return ""
    return ", or use __builtin_amdgcn_workgroup_id_x() and __builtin_amdgcn_workitem_id_x()"


def _target(
    symbol: Sym, starts: dict[int, int], absolute: dict[int, int], number: int
) -> int | None:
    """The image offset of a symbol; None for one whose value does not move, kept in `absolute`."""
    if symbol.section in starts:
        return starts[symbol.section] + symbol.value
    if symbol.section == SHN_ABS:
        absolute[number] = symbol.value
        return None
    if symbol.section == SHN_UNDEF and (symbol.binding == STB_WEAK or not number):
        absolute[number] = 0
        return None
    if symbol.section == SHN_UNDEF:
        raise BadElf(
            f"symbol {symbol.name!r} is not defined in this file",
            hint="link device libraries in, with -nogpulib left out or by ld.lld"
            + _builtin_hint(symbol.name),
        )
    raise BadElf(f"a relocation needs symbol {symbol.name!r}, which is not in memory")


def _linked(file: ElfFile) -> CodeObject:
    """Take the segments where the linker put them."""
    size = 0
    pieces = []
    for segment in file.segments:
        size = max(size, segment.address + segment.memory_bytes)
        pieces.append((segment.address, segment.data))
    if not size:
        raise BadElf("nothing in this file is loaded")
    fixes: list[tuple[int, Rela, int | None]] = []
    absolute: dict[int, int] = {}
    for rela in file.dynamic_relocations:
        kind = _kind(rela, size)
        if kind.needs_slot:
            raise BadElf(f"relocation {kind.name} in a linked file")
        symbol = file.dynamic_symbols[rela.symbol] if rela.symbol else elffile.NO_SYMBOL
        if symbol.section == SHN_UNDEF and rela.symbol and symbol.binding != STB_WEAK:
            raise BadElf(f"symbol {symbol.name!r} is not defined in this file")
        moves = symbol.section not in (SHN_UNDEF, SHN_ABS)
        if not moves:
            absolute[rela.symbol] = symbol.value if rela.symbol else 0
        fixes.append((rela.offset, rela, symbol.value if moves else None))
    found = {}
    for symbol in (*file.symbols, *file.dynamic_symbols):
        if not symbol.named or symbol.section >= len(file.sections) or not symbol.section:
            continue
        section = file.sections[symbol.section]
        if section.flags & SHF_ALLOC and symbol.value + symbol.size_bytes <= size:
            found[symbol.name] = Global(
                symbol.value,
                symbol.size_bytes,
                bool(section.flags & SHF_WRITE),
                bool(section.flags & SHF_EXECINSTR),
            )
    return CodeObject(file, size + CODE_PAD, tuple(pieces), tuple(fixes), absolute, {}, found)
