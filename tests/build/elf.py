"""Builds relocatable ELF64 objects for tests, good ones and bad ones.

    elf = ElfBuilder(machine=62)
    text = elf.section(".text", bytes(16), flags=ALLOC | EXEC, align=16)
    f = elf.symbol("f", section=text, value=0, size=16, kind=FUNC)
    g = elf.symbol("g")  # undefined
    elf.relocation(text, offset=1, kind=4, symbol=g, addend=-4)
    image = elf.build()

`build(header={...})`, `section(..., override={...})` and the like put any value into any field, so
one test can break one thing. Written apart from the loader: it shares no constant with it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

PROGBITS, SYMTAB, STRTAB, RELA, NOTE, NOBITS, REL, INIT_ARRAY = 1, 2, 3, 4, 7, 8, 9, 14
WRITE, ALLOC, EXEC, TLS, COMPRESSED = 1, 2, 4, 0x400, 0x800
LOCAL, GLOBAL, WEAK = 0, 1, 2
NOTYPE, OBJECT, FUNC, SECTION, FILE = 0, 1, 2, 3, 4
UNDEF, ABS, COMMON = 0, 0xFFF1, 0xFFF2
X86_64, AARCH64 = 62, 183

SECTION_FIELDS = (
    "name",
    "type",
    "flags",
    "addr",
    "offset",
    "size",
    "link",
    "info",
    "align",
    "entsize",
)
HEADER_FIELDS = (
    "ident", "type", "machine", "version", "entry", "phoff", "shoff", "flags",
    "ehsize", "phentsize", "phnum", "shentsize", "shnum", "shstrndx",
)  # fmt: skip


class Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, name: str) -> int:
        if not name:
            return 0
        position = len(self.data)
        self.data += name.encode() + b"\0"
        return position


@dataclass
class BuiltSection:
    name: str
    data: bytes
    type: int
    flags: int
    align: int
    size: int
    link: int = 0
    info: int = 0
    entsize: int = 0
    override: dict[str, int] = field(default_factory=dict)


class ElfBuilder:
    def __init__(self, machine: int = X86_64) -> None:
        self.machine = machine
        self.sections: list[BuiltSection] = [BuiltSection("", b"", 0, 0, 0, 0)]
        self.symbols: list[tuple[str, int, int, int, int]] = [("", 0, 0, 0, 0)]
        self.relocations: dict[int, list[tuple[int, int, int, int]]] = {}

    def section(
        self,
        name: str,
        data: bytes = b"",
        *,
        flags: int = ALLOC,
        align: int = 1,
        type: int = PROGBITS,
        size: int | None = None,
        override: dict[str, int] | None = None,
    ) -> int:
        size = len(data) if size is None else size
        self.sections.append(
            BuiltSection(name, data, type, flags, align, size, override=override or {})
        )
        return len(self.sections) - 1

    def symbol(
        self,
        name: str,
        *,
        section: int = UNDEF,
        value: int = 0,
        size: int = 0,
        kind: int = NOTYPE,
        binding: int = GLOBAL,
    ) -> int:
        self.symbols.append((name, binding << 4 | kind, section, value, size))
        return len(self.symbols) - 1

    def relocation(
        self, section: int, *, offset: int, kind: int, symbol: int, addend: int = 0
    ) -> None:
        self.relocations.setdefault(section, []).append((offset, kind, symbol, addend))

    def build(
        self,
        *,
        header: dict[str, object] | None = None,
        symtab: dict[str, int] | None = None,
        rela: dict[str, int] | None = None,
    ) -> bytes:
        """The file. The dictionaries replace fields of the header and of the tables' rows."""
        sections = list(self.sections)
        strings, names = Strings(), Strings()
        rows = [
            struct.pack("<IBBHQQ", strings.add(name), info, 0, shndx, value, size)
            for name, info, shndx, value, size in self.symbols
        ]
        symtab_at = len(sections)
        sections.append(
            BuiltSection(
                ".symtab",
                b"".join(rows),
                SYMTAB,
                0,
                8,
                24 * len(rows),
                symtab_at + 1,
                1,
                24,
                symtab or {},
            )
        )
        sections.append(BuiltSection(".strtab", strings.data, STRTAB, 0, 1, len(strings.data)))
        for target, entries in self.relocations.items():
            data = b"".join(
                struct.pack("<QQq", offset, symbol << 32 | kind, addend)
                for offset, kind, symbol, addend in entries
            )
            name = ".rela" + sections[target].name
            sections.append(
                BuiltSection(name, data, RELA, 0, 8, len(data), symtab_at, target, 24, rela or {})
            )
        sections.append(BuiltSection(".shstrtab", b"", STRTAB, 0, 1, 0))
        positions = [names.add(section.name) for section in sections]
        sections[-1].data, sections[-1].size = names.data, len(names.data)
        return self._write(sections, positions, header or {})

    def _write(
        self, sections: list[BuiltSection], names: list[int], header: dict[str, object]
    ) -> bytes:
        body, rows = bytearray(64), []
        for section, name in zip(sections, names, strict=True):
            body += bytes(-len(body) % max(section.align, 1) if section.align < 4096 else 0)
            row = {
                "name": name,
                "type": section.type,
                "flags": section.flags,
                "addr": 0,
                "offset": len(body),
                "size": section.size,
                "link": section.link,
                "info": section.info,
                "align": section.align,
                "entsize": section.entsize,
            } | section.override
            rows.append(struct.pack("<IIQQQQIIQQ", *(row[key] for key in SECTION_FIELDS)))
            if section.type != NOBITS:
                body += section.data
        body += bytes(-len(body) % 8)
        values: dict[str, object] = {
            "ident": b"\x7fELF\x02\x01\x01" + bytes(9),
            "type": 1,
            "machine": self.machine,
            "version": 1,
            "entry": 0,
            "phoff": 0,
            "shoff": len(body),
            "flags": 0,
            "ehsize": 64,
            "phentsize": 0,
            "phnum": 0,
            "shentsize": 64,
            "shnum": len(rows),
            "shstrndx": len(rows) - 1,
        } | header
        body[:64] = struct.pack("<16sHHIQQQIHHHHHH", *(values[key] for key in HEADER_FIELDS))
        return bytes(body) + b"".join(rows)
