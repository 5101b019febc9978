"""Objects in memory: laid out, relocated, on pages never writable and executable at once.

An image is three runs of pages in this order: code and stubs (read, execute), constants and the GOT
(read), data (read, write). All are mapped writable, filled, relocated, then each run gets its
rights.

Nothing outside the object is resolved but memcpy, memmove and memset: generated code has no other
right to leave itself, and LLVM leaves names such as `fmodf` undefined without a word.

On AArch64 the kernel cleans the instruction cache when pages first become executable
(arch/arm64/mm/flush.c, __sync_icache_dcache), so no flush is needed here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rawgpu.errors import BadElf
from rawgpu.native import system
from rawgpu.native.elf import (
    MAX_IMAGE_BYTES,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHN_ABS,
    SHN_COMMON,
    SHT_NOBITS,
    STT_FILE,
    STT_FUNC,
    Machine,
    ObjectFile,
    Relocation,
    Symbol,
    parse_object,
)
from rawgpu.native.relocate import KINDS, STUB_BYTES, OutOfRange, Places, stub

EXTERNAL_FUNCTIONS = ("memcpy", "memmove", "memset")
PAD_BYTES = 64
"""Readable bytes after the last constant and the last datum: vector code may read past an end."""


@dataclass
class Layout:
    """Offsets from the image's start. Runs are whole pages."""

    section_at: dict[int, int] = field(default_factory=dict)
    common_at: dict[int, int] = field(default_factory=dict)
    slot_at: dict[int, int] = field(default_factory=dict)
    """GOT slot by symbol number."""
    stub_at: dict[int, int] = field(default_factory=dict)
    got_at: int = 0
    code_end: int = 0
    constant_end: int = 0
    filled_bytes: int = 0
    """Up to here the object says what the bytes are; the rest is zero."""
    size_bytes: int = 0


def _up(value: int, align: int) -> int:
    return (value + align - 1) & -align


def plan(obj: ObjectFile, page_bytes: int = system.PAGE_BYTES) -> Layout:
    """Decide where each section, COMMON symbol, GOT slot and stub goes."""
    layout = Layout()
    _collect(obj, layout)
    cursor = 0
    for rights in (SHF_EXECINSTR, 0, SHF_WRITE):
        for section in sorted(obj.sections, key=lambda section: section.type == SHT_NOBITS):
            if section.loaded and section.flags & (SHF_EXECINSTR | SHF_WRITE) == rights:
                cursor = _up(cursor, section.align)
                layout.section_at[section.index] = cursor
                cursor += section.size_bytes
                if section.type != SHT_NOBITS:
                    layout.filled_bytes = cursor
        if rights == SHF_EXECINSTR:
            cursor = _up(cursor, STUB_BYTES)
            for number in layout.stub_at:
                layout.stub_at[number], cursor = cursor, cursor + STUB_BYTES
            cursor = layout.code_end = _up(cursor, page_bytes)
        elif rights == 0:
            cursor = layout.got_at = _up(cursor, 8)
            for number in layout.slot_at:
                layout.slot_at[number], cursor = cursor, cursor + 8
            layout.filled_bytes = cursor
            cursor = layout.constant_end = _up(cursor + PAD_BYTES, page_bytes)
    for number, symbol in enumerate(obj.symbols):
        if symbol.section == SHN_COMMON:
            cursor = _up(cursor, symbol.value)
            layout.common_at[number], cursor = cursor, cursor + symbol.size_bytes
    layout.size_bytes = _up(cursor + PAD_BYTES, page_bytes)
    if layout.size_bytes > MAX_IMAGE_BYTES:
        raise BadElf(f"the image would be larger than {MAX_IMAGE_BYTES >> 20} MiB")
    return layout


def _collect(obj: ObjectFile, layout: Layout) -> None:
    """Find which symbols need slots and stubs, and refuse kinds that have no row."""
    kinds = KINDS[obj.machine]
    for index, relocations in obj.relocations.items():
        for relocation in relocations:
            kind = kinds.get(relocation.kind)
            if kind is None:
                raise BadElf(
                    f"section {obj.sections[index].name!r} has relocation kind {relocation.kind}, "
                    f"which is not done on {obj.machine.name}",
                    offset=relocation.offset,
                )
            symbol = obj.symbols[relocation.symbol]
            outside = not symbol.defined and bool(symbol.name)
            if outside and symbol.name not in EXTERNAL_FUNCTIONS:
                raise BadElf(
                    f"symbol {symbol.name!r} is undefined",
                    hint="generated code may call memcpy, memmove and memset and nothing else; "
                    "write the function out or lower it before code generation",
                )
            if kind.needs_slot or (kind.needs_stub and outside):
                layout.slot_at[relocation.symbol] = 0
            if kind.needs_stub and outside:
                layout.stub_at[relocation.symbol] = 0


def symbol_address(symbol: Symbol, number: int, layout: Layout, base: int) -> int | None:
    """Run-time address; None where the symbol is of a section that is not loaded."""
    if symbol.section == SHN_ABS:
        return symbol.value
    if symbol.section == SHN_COMMON:
        return base + layout.common_at[number]
    if symbol.defined:
        at = layout.section_at.get(symbol.section)
        return None if at is None else base + at + symbol.value
    return 0 if not symbol.name else None


def relocate(
    obj: ObjectFile, layout: Layout, base: int, external: Callable[[str], int]
) -> bytearray:
    """The image's first bytes as they must stand at `base`; what follows them is zero.

    `external` gives the addresses of outside functions.
    """
    data = bytearray(layout.filled_bytes)
    for index, at in layout.section_at.items():
        section = obj.sections[index]
        if section.type != SHT_NOBITS:
            data[at : at + section.size_bytes] = section.data
    addresses: dict[int, int] = {}

    def address(number: int) -> int:
        if number not in addresses:
            symbol = obj.symbols[number]
            found = symbol_address(symbol, number, layout, base)
            if found is None and not symbol.defined:
                found = external(symbol.name)
            if found is None:
                raise BadElf(f"symbol {symbol.name!r} lies in a section that is not loaded")
            addresses[number] = found
        return addresses[number]

    for number, at in layout.slot_at.items():
        data[at : at + 8] = address(number).to_bytes(8, "little")
    for number, at in layout.stub_at.items():
        data[at : at + STUB_BYTES] = stub(obj.machine, base + at, base + layout.slot_at[number])
    for index, relocations in obj.relocations.items():
        for relocation in relocations:
            _apply(obj, layout, base, data, index, relocation, address(relocation.symbol))
    return data


def _apply(
    obj: ObjectFile,
    layout: Layout,
    base: int,
    data: bytearray,
    index: int,
    relocation: Relocation,
    symbol_at: int,
) -> None:
    kind = KINDS[obj.machine][relocation.kind]
    start = layout.section_at[index]
    slot = layout.slot_at.get(relocation.symbol, 0)
    stub_at = layout.stub_at.get(relocation.symbol)
    places = Places(
        symbol_at,
        relocation.addend,
        base + start + relocation.offset,
        base + slot,
        symbol_at if stub_at is None else base + stub_at,
        base + layout.got_at,
    )
    section = obj.sections[index]
    if relocation.offset + kind.bits.size_bytes > section.size_bytes:
        raise BadElf(f"{kind.name} runs past section {section.name!r}", offset=relocation.offset)
    try:
        kind.bits.put(data, start + relocation.offset, kind.value(places))
    except OutOfRange as error:
        name = obj.symbols[relocation.symbol].name
        raise BadElf(
            f"{kind.name} in {section.name!r} towards {name!r}: {error}",
            offset=relocation.offset,
            hint="compile position-independent, in the small code model",
        ) from None


class Image:
    """An object in memory. Unmapped by `close`, or with its last reference."""

    def __init__(self, image: bytes | ObjectFile, machine: Machine | None = None) -> None:
        self.base = self.size_bytes = 0
        obj = image if isinstance(image, ObjectFile) else parse_object(image)
        host = machine or Machine[system.MACHINE.upper()]
        if obj.machine is not host:
            raise BadElf(
                f"code for {obj.machine.name}, but this processor is {host.name}", offset=18
            )
        layout = plan(obj)
        base = system.map_pages(layout.size_bytes, system.PROT_READ | system.PROT_WRITE)
        self.base, self.size_bytes, self.layout = base, layout.size_bytes, layout
        try:
            data = relocate(obj, layout, base, _libc_address)
            system.ffi.memmove(system.ffi.cast("void *", base), data, len(data))
            self._protect()
        except BaseException:
            self.close()
            raise
        self.signatures = obj.signatures
        self.functions = {symbol.name for symbol in obj.functions()}
        self._code = [
            (start, start + max(symbol.size_bytes, 1), symbol.name)
            for number, symbol in enumerate(obj.symbols)
            if symbol.type == STT_FUNC and symbol.defined
            if (start := symbol_address(symbol, number, layout, base)) is not None
        ]
        self.symbols: Mapping[str, tuple[int, int]] = {
            symbol.name: (at, symbol.size_bytes)
            for number, symbol in enumerate(obj.symbols)
            if symbol.name and symbol.defined and symbol.type != STT_FILE
            if (at := symbol_address(symbol, number, layout, base)) is not None
        }

    def _protect(self) -> None:
        layout = self.layout
        if layout.code_end:
            system.protect_pages(self.base, layout.code_end, system.PROT_READ | system.PROT_EXEC)
        constants = layout.constant_end - layout.code_end
        system.protect_pages(self.base + layout.code_end, constants, system.PROT_READ)

    def address(self, name: str) -> int:
        return self.symbols[name][0]

    def words(self, name: str, count: int) -> Any:
        """The global `name` as a cffi pointer to `count` 64-bit words."""
        address, size_bytes = self.symbols[name]
        assert 8 * count <= size_bytes, (name, count, size_bytes)
        return system.ffi.cast("uint64_t *", address)

    def is_writable(self, address: int) -> bool:
        return self.layout.constant_end <= address - self.base < self.size_bytes

    def is_code(self, address: int) -> bool:
        return 0 <= address - self.base < self.layout.code_end

    def nearest_function(self, address: int) -> tuple[str, int] | None:
        """Name of the function that holds `address`, and the distance from its start."""
        for start, end, name in self._code:
            if start <= address < end:
                return name, address - start
        return None

    def close(self) -> None:
        """Unmap. Idempotent."""
        base, self.base = self.base, 0
        if base:
            system.unmap_pages(base, self.size_bytes)

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():  # else the modules may be gone, and the memory soon is
            self.close()


def _libc_address(name: str) -> int:
    assert name in EXTERNAL_FUNCTIONS, name
    return system.address_of(name)
