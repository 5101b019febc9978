"""Relocatable ELF64 objects, read strictly: each count, offset and index is checked before use.

`parse_object` gives sections, symbols and relocations as plain data and maps nothing; `image.py`
does. Our own reader rather than pyelftools, because every field of a hostile file must end in
BadElf and because importing it costs more than opening the device; pyelftools is the oracle in the
tests.

Source: System V ABI, gABI 4.2 draft of 2025, chapters 4 and 5; psABI x86-64 1.0; AAELF64 2024Q3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from rawgpu.errors import BadElf
from rawgpu.native.note import NOTE_SECTION, KernelSignature, decode_note, signature_note_ir

__all__ = [
    "KernelSignature",
    "Machine",
    "ObjectFile",
    "Relocation",
    "Section",
    "Symbol",
    "parse_object",
    "signature_note_ir",
]

EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
SHDR = struct.Struct("<IIQQQQIIQQ")
SYM = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")

ET_REL = 1
SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA = 0, 1, 2, 3, 4
SHT_NOTE, SHT_NOBITS, SHT_REL = 7, 8, 9
SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY, SHT_SYMTAB_SHNDX = 14, 15, 16, 18
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_COMPRESSED = 0x1, 0x2, 0x4, 0x400, 0x800
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2
STB_LOCAL, STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE = 0, 1, 2, 10
STT_FUNC, STT_SECTION, STT_FILE, STT_COMMON, STT_TLS, STT_GNU_IFUNC = 2, 3, 4, 5, 6, 10

MAX_SECTIONS = 0xFF00
MAX_ALIGN = 1 << 16
MAX_IMAGE_BYTES = 1 << 28
"""Most that an object may take in memory; a hostile `.bss` would else ask for exabytes."""


class Machine(IntEnum):
    """The machines whose relocations we apply; the value is ELF's e_machine."""

    X86_64 = 62
    AARCH64 = 183


@dataclass(frozen=True, slots=True)
class Section:
    """A section: header, name, bytes (none for NOBITS, whose `size_bytes` still counts)."""

    index: int
    name: str
    type: int
    flags: int
    size_bytes: int
    align: int
    link: int
    info: int
    data: memoryview

    @property
    def loaded(self) -> bool:
        """True for what is in memory at run time; not unwind tables: nothing of ours unwinds."""
        return bool(self.flags & SHF_ALLOC) and self.name != ".eh_frame" and self.type != SHT_NOTE


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol. For COMMON, `value` is the alignment, as ELF has it."""

    name: str
    value: int
    size_bytes: int
    binding: int
    type: int
    section: int

    @property
    def defined(self) -> bool:
        return self.section != SHN_UNDEF


@dataclass(frozen=True, slots=True)
class Relocation:
    """`kind` at `offset` of a section, towards symbol number `symbol`."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class ObjectFile:
    """A relocatable object, checked."""

    machine: Machine
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: dict[int, tuple[Relocation, ...]]
    """By number of the section they change; loaded sections only."""
    signatures: tuple[KernelSignature, ...] | None
    """From the note; None where the object has none."""

    def functions(self) -> Iterator[Symbol]:
        """Global functions that the object defines."""
        for symbol in self.symbols:
            if symbol.defined and symbol.type == STT_FUNC and symbol.binding != STB_LOCAL:
                yield symbol


def _header(image: memoryview) -> tuple[Machine, int, int, int]:
    """Machine, offset and number of section headers, number of the name table."""
    if len(image) < EHDR.size:
        raise BadElf(f"{len(image)} bytes are too few for an ELF header", offset=0)
    ident, kind, machine, version, _, _, shoff, _, ehsize, _, _, shentsize, shnum, shstrndx = (
        EHDR.unpack_from(image)
    )
    if ident[:4] != b"\x7fELF":
        raise BadElf("no ELF magic", offset=0)
    if ident[4] != 2 or ident[5] != 1:
        raise BadElf("not a 64-bit little-endian ELF", offset=4)
    if ident[6] != 1 or version != 1:
        raise BadElf(f"ELF version {version}, not 1", offset=6)
    if kind != ET_REL:
        raise BadElf(f"ELF type {kind} is not a relocatable object", offset=16)
    if machine not in tuple(Machine):
        raise BadElf(f"ELF machine {machine} is neither x86-64 nor AArch64", offset=18)
    if ehsize != EHDR.size or shentsize != SHDR.size:
        raise BadElf(f"header sizes {ehsize} and {shentsize} are not ELF64's", offset=52)
    if not 0 < shnum < MAX_SECTIONS:
        raise BadElf(f"{shnum} section headers", offset=60)
    if shoff > len(image) or len(image) - shoff < shnum * SHDR.size:
        raise BadElf(f"section headers run past the end of the file, {len(image):#x}", offset=shoff)
    if shstrndx >= shnum:
        raise BadElf(f"name table is section {shstrndx} of {shnum}", offset=62)
    return Machine(machine), shoff, shnum, shstrndx


def _string(table: memoryview, position: int, what: str) -> str:
    if position >= len(table):
        raise BadElf(f"name of {what} lies at {position} of a {len(table)}-byte string table")
    raw = bytes(table[position : position + 4096])
    end = raw.find(0)
    if end < 0:
        raise BadElf(f"name of {what} has no end within 4096 bytes")
    return raw[:end].decode("utf-8", "backslashreplace")


def _sections(image: memoryview, shoff: int, shnum: int, shstrndx: int) -> tuple[Section, ...]:
    rows = [SHDR.unpack_from(image, shoff + i * SHDR.size) for i in range(shnum)]
    where = [shoff + i * SHDR.size for i in range(shnum)]
    bodies = []
    for i, (_, kind, _, _, offset, size, _, _, _, _) in enumerate(rows):
        if kind in (SHT_NOBITS, SHT_NULL):
            bodies.append(image[:0])
            continue
        if offset > len(image) or size > len(image) - offset:
            raise BadElf(f"section {i} ends past the end of the file", offset=where[i])
        bodies.append(image[offset : offset + size])
    if rows[shstrndx][1] != SHT_STRTAB:
        raise BadElf(
            f"section {shstrndx}, the name table, is not a string table", offset=where[shstrndx]
        )
    sections, total = [], 0
    for i, (name_at, kind, flags, _, _, size, link, info, align, _) in enumerate(rows):
        name = _string(bodies[shstrndx], name_at, f"section {i}")
        section = Section(i, name, kind, flags, size, max(align, 1), link, info, bodies[i])
        if section.align & (section.align - 1) or section.align > MAX_ALIGN:
            raise BadElf(f"section {i} {name!r} is aligned to {align}", offset=where[i])
        if flags & SHF_ALLOC:
            _check_loaded(section, where[i])
            total += size + section.align
            if total > MAX_IMAGE_BYTES:
                raise BadElf(
                    f"section {i} {name!r} makes the image larger than 256 MiB", offset=where[i]
                )
        sections.append(section)
    return tuple(sections)


def _check_loaded(section: Section, where: int) -> None:
    title = f"section {section.index} {section.name!r}"
    if section.flags & SHF_TLS:
        raise BadElf(f"{title} is thread-local storage, which kernels cannot have", offset=where)
    if section.flags & SHF_WRITE and section.flags & SHF_EXECINSTR:
        raise BadElf(f"{title} is both writable and executable", offset=where)
    if section.flags & SHF_COMPRESSED:
        raise BadElf(f"{title} is compressed", offset=where)
    if section.type in (SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY):
        raise BadElf(f"{title} holds constructors, which are not run", offset=where)
    if section.type in (SHT_NULL, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_REL, SHT_SYMTAB_SHNDX):
        raise BadElf(f"{title} is of type {section.type} and cannot be loaded", offset=where)


def _only(sections: tuple[Section, ...], kind: int, what: str) -> Section | None:
    found = [section for section in sections if section.type == kind]
    if len(found) > 1:
        raise BadElf(f"{len(found)} {what}s, sections {[section.index for section in found]}")
    return found[0] if found else None


def _strings_of(sections: tuple[Section, ...], table: Section) -> memoryview:
    if table.link >= len(sections) or sections[table.link].type != SHT_STRTAB:
        raise BadElf(
            f"section {table.index} {table.name!r} names section {table.link} as its string table"
        )
    return sections[table.link].data


def _symbols(sections: tuple[Section, ...]) -> tuple[Symbol, ...]:
    if _only(sections, SHT_SYMTAB_SHNDX, "extended section index table"):
        raise BadElf("more than 65279 sections")
    table = _only(sections, SHT_SYMTAB, "symbol table")
    if table is None:
        return ()
    if table.size_bytes % SYM.size:
        raise BadElf(f"symbol table of {table.size_bytes} bytes is no multiple of {SYM.size}")
    strings = _strings_of(sections, table)
    symbols: list[Symbol] = []
    seen: set[str] = set()
    for i, (name_at, info, _, shndx, value, size) in enumerate(SYM.iter_unpack(table.data)):
        name = _string(strings, name_at, f"symbol {i}")
        symbol = Symbol(name, value, size, info >> 4, info & 15, shndx)
        _check_symbol(symbol, i, sections)
        if symbol.binding != STB_LOCAL and symbol.defined:
            if name in seen:
                raise BadElf(f"symbol {name!r} is defined twice")
            seen.add(name)
        symbols.append(symbol)
    return tuple(symbols)


def _check_symbol(symbol: Symbol, index: int, sections: tuple[Section, ...]) -> None:
    title = f"symbol {index} {symbol.name!r}"
    if symbol.binding not in (STB_LOCAL, STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE):
        raise BadElf(f"{title} has binding {symbol.binding}")
    if symbol.type == STT_TLS:
        raise BadElf(f"{title} is thread-local, which kernels cannot have")
    if symbol.type == STT_GNU_IFUNC:
        raise BadElf(f"{title} is chosen at run time (IFUNC), which is not done here")
    if symbol.section == SHN_COMMON:
        if symbol.value == 0 or symbol.value & (symbol.value - 1) or symbol.value > MAX_ALIGN:
            raise BadElf(f"{title}, COMMON, is aligned to {symbol.value}")
        if symbol.size_bytes > MAX_IMAGE_BYTES:
            raise BadElf(f"{title}, COMMON, has {symbol.size_bytes} bytes")
    elif symbol.section >= SHN_LORESERVE:
        if symbol.section != SHN_ABS:
            raise BadElf(f"{title} is in reserved section {symbol.section:#x}")
    elif symbol.section >= len(sections):
        raise BadElf(f"{title} is in section {symbol.section} of {len(sections)}")
    elif symbol.defined:
        room = sections[symbol.section].size_bytes
        if symbol.value > room or symbol.size_bytes > room - symbol.value:
            raise BadElf(f"{title} ends past its section's {room} bytes")


def _relocations(
    sections: tuple[Section, ...], symbol_count: int
) -> dict[int, tuple[Relocation, ...]]:
    found: dict[int, tuple[Relocation, ...]] = {}
    for table in sections:
        if table.type not in (SHT_RELA, SHT_REL):
            continue
        title = f"section {table.index} {table.name!r}"
        if not 0 < table.info < len(sections):
            raise BadElf(f"{title} relocates section {table.info} of {len(sections)}")
        target = sections[table.info]
        if not target.loaded:
            continue
        if table.type == SHT_REL or target.type == SHT_NOBITS or target.index in found:
            raise BadElf(f"{title} cannot relocate section {target.index} {target.name!r}")
        if table.link >= len(sections) or sections[table.link].type != SHT_SYMTAB:
            raise BadElf(f"{title} names section {table.link} as its symbol table")
        if table.size_bytes % RELA.size:
            raise BadElf(f"{title} has {table.size_bytes} bytes, no multiple of {RELA.size}")
        rows = []
        for i, (offset, info, addend) in enumerate(RELA.iter_unpack(table.data)):
            if info >> 32 >= symbol_count:
                raise BadElf(f"{title}, entry {i}: symbol {info >> 32} of {symbol_count}")
            if offset >= target.size_bytes:
                raise BadElf(f"{title}, entry {i}: offset {offset:#x} is past {target.name!r}")
            rows.append(Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend))
        found[target.index] = tuple(rows)
    return found


def _signatures(sections: tuple[Section, ...]) -> tuple[KernelSignature, ...] | None:
    notes = [section for section in sections if section.name == NOTE_SECTION]
    if not notes:
        return None
    signatures = [signature for note in notes for signature in decode_note(bytes(note.data))]
    names = [signature.name for signature in signatures]
    if len(set(names)) != len(names):
        raise BadElf(f"note {NOTE_SECTION} describes a kernel twice")
    return tuple(signatures)


def parse_object(image: bytes | bytearray | memoryview) -> ObjectFile:
    """Read a relocatable object. BadElf for anything damaged, hostile or not ours to load."""
    view = memoryview(image).cast("B")
    machine, shoff, shnum, shstrndx = _header(view)
    sections = _sections(view, shoff, shnum, shstrndx)
    symbols = _symbols(sections)
    relocations = _relocations(sections, len(symbols))
    return ObjectFile(machine, sections, symbols, relocations, _signatures(sections))
