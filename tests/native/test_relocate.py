"""Relocation kinds against ld.lld: one object at the same addresses must give the same bytes."""

from __future__ import annotations

import io
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from rawgpu.compiler_bridge.llvm import Target
from rawgpu.errors import BadElf
from rawgpu.native.elf import SHN_COMMON, SHT_NOBITS, Machine, ObjectFile, parse_object
from rawgpu.native.image import Layout, plan, relocate
from rawgpu.native.relocate import KINDS, OutOfRange, stub
from tests.build import elf as build
from tests.build.elf import ElfBuilder
from tests.native.objects import AARCH64, X86_64, rich

LLD = shutil.which("ld.lld") or shutil.which("ld.lld-19") or shutil.which("ld.lld-22")
needs_lld = pytest.mark.skipif(LLD is None, reason="ld.lld is not installed")
SIZE_BYTES = 1 << 20


def helpers(machine: int) -> bytes:
    """An object that defines what generated code may call."""
    elf = ElfBuilder(machine)
    text = elf.section(".text.helpers", bytes(48), flags=build.ALLOC | build.EXEC, align=16)
    for i, name in enumerate(("memcpy", "memmove", "memset")):
        elf.symbol(name, section=text, value=16 * i, size=16, kind=build.FUNC)
    return elf.build()


def link(folder: Path, image: bytes, machine: int) -> tuple[ELFFile, dict[tuple[str, int], int]]:
    """ld.lld's file, and where it put each section of `image`, by name and size."""
    (folder / "a.o").write_bytes(image)
    (folder / "b.o").write_bytes(helpers(machine))
    subprocess.run(
        [
            str(LLD), "-O0", "--no-relax", "--image-base=0x10000", "-e", "0", "-z", "norelro",
            "-z", "notext", "--no-apply-dynamic-relocs", "--Map=map", "-o", "out", "a.o", "b.o",
        ],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    places = {}
    for line in (folder / "map").read_text().splitlines():
        found = re.match(r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+\s+a\.o:\((.+)\)", line)
        if found:
            places[found[3], int(found[2], 16)] = int(found[1], 16)
    return ELFFile(io.BytesIO((folder / "out").read_bytes())), places


def layout_like(obj: ObjectFile, linked: ELFFile, places: dict[tuple[str, int], int]) -> Layout:
    """Our layout, moved to where the linker put things."""
    layout = plan(obj)
    layout.filled_bytes = SIZE_BYTES
    for index in layout.section_at:
        section = obj.sections[index]
        if section.size_bytes:
            layout.section_at[index] = places[section.name, section.size_bytes]
    table = {s.name: s["st_value"] for s in linked.get_section_by_name(".symtab").iter_symbols()}
    for number, symbol in enumerate(obj.symbols):
        if symbol.section == SHN_COMMON:
            layout.common_at[number] = table[symbol.name]
    got = linked.get_section_by_name(".got")
    words = struct.unpack(f"<{got['sh_size'] // 8}Q", got.data()) if got else ()
    base = linked.get_section_by_name(".got.plt") or got  # what _GLOBAL_OFFSET_TABLE_ means to it
    layout.got_at = base["sh_addr"] if base else 0
    for number in layout.stub_at:
        del layout.slot_at[number]
    for number in layout.slot_at:
        symbol = obj.symbols[number]
        address = table.get(symbol.name)
        if address is None:
            address = layout.section_at[symbol.section] + symbol.value
        layout.slot_at[number] = got["sh_addr"] + 8 * words.index(address)
    layout.stub_at.clear()  # the linker has the functions at hand and calls them directly
    return layout


def compare(folder: Path, image: bytes, machine: Machine) -> int:
    """Number of relocations compared."""
    obj = parse_object(image)
    linked, places = link(folder, image, machine)
    layout = layout_like(obj, linked, places)
    table = {s.name: s["st_value"] for s in linked.get_section_by_name(".symtab").iter_symbols()}
    ours = relocate(obj, layout, 0, lambda name: table[name])
    compared = 0
    for index, rows in obj.relocations.items():
        section = obj.sections[index]
        if section.type == SHT_NOBITS:
            continue
        at = layout.section_at[index]
        segment = next(
            s for s in linked.iter_segments()
            if s["p_type"] == "PT_LOAD" and s["p_vaddr"] <= at < s["p_vaddr"] + s["p_memsz"]
        )  # fmt: skip
        start = at - segment["p_vaddr"]
        theirs = segment.data()[start : start + section.size_bytes]
        for row in rows:
            name = KINDS[machine][row.kind].name
            got = bytes(ours[at + row.offset : at + row.offset + 8])
            assert got == theirs[row.offset : row.offset + 8], (name, section.name, hex(row.offset))
        assert bytes(ours[at : at + section.size_bytes]) == theirs, section.name
        compared += len(rows)
    return compared


@needs_lld
@pytest.mark.parametrize("target", [X86_64, AARCH64], ids=lambda target: target.arch)
def test_what_llvm_emits_is_relocated_as_the_linker_does(tmp_path: Path, target: Target) -> None:
    assert compare(tmp_path, rich(target), Machine[target.arch.upper()]) >= 25


# Instruction words that leave the field to fill at 0; lld checks that the opcode fits the kind.
A64_CODE = {
    263: 0xD2800000, 264: 0xF2800000, 265: 0xD2A00000, 266: 0xF2A00000, 267: 0xD2C00000,
    268: 0xF2C00000, 269: 0xD2E00000, 270: 0xD2800000, 271: 0xD2A00000, 272: 0xD2C00000,
    273: 0x58000000, 274: 0x10000000, 275: 0x90000000, 276: 0x90000000, 277: 0x91000000,
    278: 0x39400000, 279: 0x36000000, 280: 0x54000000, 282: 0x14000000, 283: 0x94000000,
    284: 0x79400000, 285: 0xB9400000, 286: 0xF9400000, 299: 0x3DC00000, 311: 0x90000000,
    312: 0xF9400000, 313: 0xF9400000, 287: 0xD2800000, 288: 0xF2800000, 289: 0xD2A00000,
    290: 0xF2A00000, 291: 0xD2C00000, 292: 0xF2C00000, 293: 0xD2E00000,
}  # fmt: skip
A64_SMALL = {263, 270, 287}
"""Kinds whose value must fit in 16 bits; their symbol is absolute or near."""
A64_DATA = {257: 8, 258: 4, 260: 8, 261: 4, 314: 4, 315: 4}
X86_DATA = {1: 8, 2: 4, 4: 4, 9: 4, 10: 4, 11: 4, 24: 8, 25: 8, 26: 4, 29: 8, 41: 4}


def every_kind(machine: int) -> bytes:
    """An object with each kind twice, forwards and backwards, with addends."""
    elf = ElfBuilder(machine)
    flags = build.ALLOC | build.EXEC
    code_kinds = A64_CODE if machine == build.AARCH64 else {}
    data_kinds = A64_DATA if machine == build.AARCH64 else X86_DATA
    words = [word for word in code_kinds.values() for _ in range(2)]
    text = elf.section(
        ".text", struct.pack(f"<{len(words)}I", *words) + bytes(64), flags=flags, align=64
    )
    data = elf.section(
        ".data", bytes(32 * len(data_kinds)), flags=build.ALLOC | build.WRITE, align=64
    )
    before = elf.symbol("before", section=text, value=0, kind=build.FUNC)
    after = elf.symbol("after", section=data, value=16, kind=build.OBJECT)
    small = elf.symbol("small", section=build.ABS, value=0x1234)
    for i, kind in enumerate(code_kinds):
        near = kind in (263, 270)
        branch = kind in (279, 280, 282, 283)
        for turn, symbol in enumerate((before, before if branch else after)):
            if near or (kind in (265, 271) and turn == 9):
                symbol = small
            if kind == 287:
                symbol = before
            elf.relocation(
                text, offset=8 * i + 4 * turn, kind=kind, symbol=symbol,
                addend=0 if kind in (311, 312, 313) else 16 * turn,
            )  # fmt: skip
    for i, (kind, _) in enumerate(data_kinds.items()):
        for turn, symbol in enumerate((before, after)):
            got = kind in (9, 41, 315)
            elf.relocation(
                data, offset=32 * i + 16 * turn, kind=kind, symbol=symbol,
                addend=0 if got else 4 * turn,
            )  # fmt: skip
    return elf.build()


@needs_lld
@pytest.mark.parametrize("machine", list(Machine), ids=lambda machine: machine.name)
def test_each_kind_is_relocated_as_the_linker_does(tmp_path: Path, machine: Machine) -> None:
    assert compare(tmp_path, every_kind(machine), machine) > 20


OUT_OF_RANGE = [
    (Machine.X86_64, 2, 1 << 31),
    (Machine.X86_64, 2, -(1 << 31) - 1),
    (Machine.X86_64, 10, -1),
    (Machine.X86_64, 10, 1 << 32),
    (Machine.X86_64, 11, 1 << 31),
    (Machine.AARCH64, 283, 1 << 27),
    (Machine.AARCH64, 283, 2),
    (Machine.AARCH64, 280, 1 << 20),
    (Machine.AARCH64, 279, 1 << 15),
    (Machine.AARCH64, 275, 1 << 32),
    (Machine.AARCH64, 274, 1 << 20),
    (Machine.AARCH64, 286, 4),
    (Machine.AARCH64, 299, 8),
    (Machine.AARCH64, 263, 1 << 16),
    (Machine.AARCH64, 270, -(1 << 16) - 1),
    (Machine.AARCH64, 262, 1 << 17),
]


@pytest.mark.parametrize(("machine", "kind", "value"), OUT_OF_RANGE)
def test_a_value_that_does_not_fit_is_refused(machine: Machine, kind: Any, value: Any) -> None:
    with pytest.raises(OutOfRange):
        KINDS[machine][kind].bits.put(bytearray(8), 0, value)


def test_the_largest_values_that_fit_are_taken() -> None:
    for machine, kind, value in [
        (Machine.X86_64, 2, (1 << 31) - 1),
        (Machine.X86_64, 2, -(1 << 31)),
        (Machine.X86_64, 10, (1 << 32) - 1),
        (Machine.AARCH64, 283, (1 << 27) - 4),
        (Machine.AARCH64, 280, -(1 << 20)),
        (Machine.AARCH64, 275, (1 << 32) - 4096),
    ]:
        KINDS[machine][kind].bits.put(bytearray(8), 0, value)


def test_a_stub_on_aarch64_loads_its_slot() -> None:
    # adrp x16, +0x12345 pages; ldr x16, [x16, #0x678]; br x16. Words from the Arm ARM, C6.2.
    code = stub(Machine.AARCH64, 0x10000, 0x10000 + (0x12345 << 12) + 0x678)
    adrp, ldr, br, _ = struct.unpack("<4I", code)
    assert adrp == 0x90000010 | (0x12345 & 3) << 29 | (0x12345 >> 2) << 5
    assert ldr == 0xF9400210 | (0x678 >> 3) << 10
    assert br == 0xD61F0200


def test_an_unaligned_instruction_is_refused() -> None:
    elf = ElfBuilder(build.AARCH64)
    text = elf.section(".text", bytes(16), flags=build.ALLOC | build.EXEC, align=4)
    elf.relocation(text, offset=2, kind=283, symbol=elf.symbol("f", section=text), addend=2)
    obj = parse_object(elf.build())
    with pytest.raises(BadElf, match="aligned"):
        relocate(obj, plan(obj), 0x10000, lambda name: 0)
