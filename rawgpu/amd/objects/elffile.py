"""ELF64 files for AMD GPUs as plain data: every count, offset and index is checked before use.

Both kinds: relocatable objects by their sections, linked ones by segments and dynamic relocations.

Source: LLVM 22.1 AMDGPUUsage, ELF Code Object; gABI 4.2 draft of 2025.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rawgpu.errors import BadElf
from rawgpu.native.elf import (
    EHDR,
    ET_REL,
    MAX_ALIGN,
    MAX_IMAGE_BYTES,
    MAX_SECTIONS,
    RELA,
    SHDR,
    SHF_ALLOC,
    SHF_COMPRESSED,
    SHF_TLS,
    SHN_LORESERVE,
    SHN_UNDEF,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_NULL,
    SHT_REL,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
    STT_FILE,
    STT_SECTION,
    SYM,
)

ET_DYN = 3
EM_AMDGPU = 224
MACHINES = {
    3: "i386", 40: "ARM", 62: "x86-64", 183: "AArch64", 190: "NVIDIA GPUs", 243: "RISC-V",
    247: "BPF",
}  # fmt: skip
"""What people have at hand. Source: gABI, e_machine."""
OSABI_HSA = 64
ABI_VERSIONS = {2: 4, 3: 5, 4: 6}
"""Code object version by EI_ABIVERSION."""
SHT_DYNSYM = 11
PT_LOAD, PT_NOTE = 1, 4
NOTE_OWNER, NOTE_METADATA = b"AMDGPU\0", 32
PHDR = struct.Struct("<IIQQQQQQ")
NOTE = struct.Struct("<III")
MAX_SEGMENTS = 64


@dataclass(frozen=True, slots=True)
class Sec:
    """A section."""

    index: int
    name: str
    type: int
    flags: int
    address: int
    """In a linked file; 0 in a relocatable one."""
    size_bytes: int
    align: int
    link: int
    info: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Sym:
    """A symbol. `named`: it stands for code or data that a program may ask for."""

    name: str
    value: int
    size_bytes: int
    binding: int
    type: int
    section: int

    @property
    def named(self) -> bool:
        return bool(self.name) and self.type not in (STT_SECTION, STT_FILE)


NO_SYMBOL = Sym("", 0, 0, 0, 0, SHN_UNDEF)


@dataclass(frozen=True, slots=True)
class Rela:
    """A relocation."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A loaded segment of a linked file."""

    address: int
    memory_bytes: int
    data: memoryview


@dataclass(frozen=True)
class ElfFile:
    """A checked file."""

    linked: bool
    flags: int
    version: int
    """Of the code object."""
    sections: tuple[Sec, ...]
    segments: tuple[Segment, ...]
    symbols: tuple[Sym, ...]
    dynamic_symbols: tuple[Sym, ...]
    relocations: dict[int, tuple[Rela, ...]]
    """By section, of a relocatable file."""
    dynamic_relocations: tuple[Rela, ...]

    def notes(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Owner, type and contents of each note."""
        for section in self.sections:
            if section.type == SHT_NOTE:
                yield from _notes(section)


def read(image: memoryview) -> ElfFile:
    """Read a file. BadElf for anything damaged, hostile or not for an AMD GPU."""
    linked, flags, version, rows = _header(image)
    phoff, phnum, shoff, shnum, names = rows
    sections = _sections(image, shoff, shnum, names)
    segments = _segments(image, phoff, phnum) if linked else ()
    symbols, tables = _symbols(sections, SHT_SYMTAB, linked)
    dynamic, dynamic_tables = _symbols(sections, SHT_DYNSYM, linked)
    relocations: dict[int, tuple[Rela, ...]] = {}
    loose: list[Rela] = []
    for section in sections:
        if section.type == SHT_REL:
            raise BadElf(f"section {section.index} {section.name!r} has no addends")
        if section.type != SHT_RELA:
            continue
        if linked:
            if section.flags & SHF_ALLOC:
                count = len(dynamic) if section.link in dynamic_tables else 1
                loose += _relas(section, count)
            continue
        if section.link not in tables or not 0 < section.info < len(sections):
            raise BadElf(f"section {section.index} {section.name!r} relocates nothing")
        if section.info in relocations:
            raise BadElf(f"section {section.info} is relocated twice")
        relocations[section.info] = tuple(_relas(section, len(symbols)))
    return ElfFile(
        linked, flags, version, sections, segments, symbols, dynamic, relocations, tuple(loose)
    )


def _header(image: memoryview) -> tuple[bool, int, int, tuple[int, int, int, int, int]]:
    if len(image) < EHDR.size:
        raise BadElf(f"{len(image)} bytes are too few for an ELF header", offset=0)
    (ident, kind, machine, version, _, phoff, shoff, flags, ehsize, phentsize, phnum, shentsize,
     shnum, names) = EHDR.unpack_from(image)  # fmt: skip
    if ident[:4] != b"\x7fELF":
        raise BadElf("no ELF magic", offset=0)
    if ident[4] != 2 or ident[5] != 1 or ident[6] != 1 or version != 1:
        raise BadElf("not a 64-bit little-endian ELF of version 1", offset=4)
    if machine != EM_AMDGPU:
        name = MACHINES.get(machine, f"machine {machine}")
        raise BadElf(f"an ELF for {name}, and this reads code for AMD GPUs", offset=18)
    if ident[7] != OSABI_HSA or ident[8] not in ABI_VERSIONS:
        raise BadElf(
            f"OS ABI {ident[7]} version {ident[8]} is no code object of version 4 to 6",
            offset=7,
            hint="compile for amdgcn-amd-amdhsa with -mcode-object-version=5",
        )
    if kind not in (ET_REL, ET_DYN):
        raise BadElf(f"ELF type {kind} is neither relocatable nor shared", offset=16)
    if ehsize != EHDR.size or shentsize != SHDR.size:
        raise BadElf(f"header sizes {ehsize} and {shentsize} are not ELF64's", offset=52)
    if not 0 < shnum < MAX_SECTIONS or names >= shnum:
        raise BadElf(f"{shnum} section headers, names in {names}", offset=60)
    if shoff > len(image) or len(image) - shoff < shnum * SHDR.size:
        raise BadElf("section headers run past the end of the file", offset=shoff)
    linked = kind == ET_DYN
    if linked:
        if phentsize != PHDR.size or not 0 < phnum <= MAX_SEGMENTS:
            raise BadElf(f"{phnum} program headers of {phentsize} bytes", offset=54)
        if phoff > len(image) or len(image) - phoff < phnum * PHDR.size:
            raise BadElf("program headers run past the end of the file", offset=phoff)
    return linked, flags, ABI_VERSIONS[ident[8]], (phoff, phnum, shoff, shnum, names)


def _string(table: memoryview, at: int, what: str) -> str:
    raw = bytes(table[at : at + 4096])
    end = raw.find(0)
    if at >= len(table) or end < 0:
        raise BadElf(f"the name of {what} lies outside its string table")
    return raw[:end].decode("utf-8", "backslashreplace")


def _sections(image: memoryview, shoff: int, shnum: int, names: int) -> tuple[Sec, ...]:
    rows = [SHDR.unpack_from(image, shoff + i * SHDR.size) for i in range(shnum)]
    bodies = []
    for i, row in enumerate(rows):
        kind, offset, size = row[1], row[4], row[5]
        if kind in (SHT_NOBITS, SHT_NULL):
            bodies.append(image[:0])
        elif offset > len(image) or size > len(image) - offset:
            raise BadElf(f"section {i} ends past the end of the file", offset=shoff + i * SHDR.size)
        else:
            bodies.append(image[offset : offset + size])
    if rows[names][1] != SHT_STRTAB:
        raise BadElf(f"section {names}, the name table, is not a string table")
    found = []
    for i, (name_at, kind, flags, address, _, size, link, info, align, _) in enumerate(rows):
        name = _string(bodies[names], name_at, f"section {i}")
        align = max(align, 1)
        if align & (align - 1) or align > MAX_ALIGN:
            raise BadElf(f"section {i} {name!r} is aligned to {align}")
        if flags & SHF_ALLOC and flags & (SHF_TLS | SHF_COMPRESSED):
            raise BadElf(f"section {i} {name!r} is thread-local or compressed")
        if flags & SHF_ALLOC and size > MAX_IMAGE_BYTES:
            raise BadElf(f"section {i} {name!r} is larger than 256 MiB")
        found.append(Sec(i, name, kind, flags, address, size, align, link, info, bodies[i]))
    return tuple(found)


def _segments(image: memoryview, phoff: int, phnum: int) -> tuple[Segment, ...]:
    found: list[Segment] = []
    end = 0
    for i in range(phnum):
        kind, _, offset, address, _, size, memory, _ = PHDR.unpack_from(
            image, phoff + i * PHDR.size
        )
        if kind != PT_LOAD:
            continue
        if offset > len(image) or size > len(image) - offset or size > memory:
            raise BadElf(f"segment {i} ends past the end of the file", offset=phoff + i * PHDR.size)
        if address < end or address + memory > MAX_IMAGE_BYTES:
            raise BadElf(f"segment {i} at {address:#x} overlaps, or is too far", offset=phoff)
        end = address + memory
        found.append(Segment(address, memory, image[offset : offset + size]))
    return tuple(found)


def _symbols(
    sections: tuple[Sec, ...], kind: int, linked: bool
) -> tuple[tuple[Sym, ...], frozenset[int]]:
    tables = [section for section in sections if section.type == kind]
    if len(tables) > 1:
        raise BadElf(f"{len(tables)} symbol tables")
    if not tables:
        return (), frozenset()
    table = tables[0]
    if table.size_bytes % SYM.size:
        raise BadElf(f"symbol table of {table.size_bytes} bytes is no multiple of {SYM.size}")
    if table.link >= len(sections) or sections[table.link].type != SHT_STRTAB:
        raise BadElf(f"section {table.index} {table.name!r} has no string table")
    strings = sections[table.link].data
    found = []
    for i, (name_at, info, _, shndx, value, size) in enumerate(SYM.iter_unpack(table.data)):
        name = _string(strings, name_at, f"symbol {i}")
        if SHN_UNDEF < shndx < SHN_LORESERVE:
            if shndx >= len(sections):
                raise BadElf(f"symbol {i} {name!r} is in section {shndx} of {len(sections)}")
            room = sections[shndx].size_bytes
            if not linked and (value > room or size > room - value):
                raise BadElf(f"symbol {i} {name!r} ends past its section's {room} bytes")
        found.append(Sym(name, value, size, info >> 4, info & 15, shndx))
    return tuple(found), frozenset({table.index})


def _relas(section: Sec, symbols: int) -> list[Rela]:
    if section.size_bytes % RELA.size:
        raise BadElf(f"section {section.index} {section.name!r} is no multiple of {RELA.size}")
    found = []
    for i, (offset, info, addend) in enumerate(RELA.iter_unpack(section.data)):
        if info >> 32 >= max(symbols, 1):
            raise BadElf(f"{section.name!r}, entry {i}: symbol {info >> 32} of {symbols}")
        found.append(Rela(offset, info & 0xFFFFFFFF, info >> 32, addend))
    return found


def _notes(section: Sec) -> Iterator[tuple[bytes, int, bytes]]:
    at, data = 0, section.data
    while at < len(data):
        if len(data) - at < NOTE.size:
            raise BadElf(f"note {section.name!r} ends inside a header")
        owner_bytes, size_bytes, kind = NOTE.unpack_from(data, at)
        owner_at = at + NOTE.size
        start = owner_at + (owner_bytes + 3 & -4)
        if start + size_bytes > len(data):
            raise BadElf(f"note {section.name!r} ends inside its description")
        yield bytes(data[owner_at : owner_at + owner_bytes]), kind, bytes(data[start:][:size_bytes])
        at = start + (size_bytes + 3 & -4)
