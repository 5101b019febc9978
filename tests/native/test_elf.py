"""The parser: real objects agree with pyelftools, broken ones are refused by name."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from rawgpu.compiler_bridge.llvm import Target
from rawgpu.contract import Parameter
from rawgpu.errors import BadElf
from rawgpu.native import system
from rawgpu.native.elf import Machine, parse_object
from rawgpu.native.image import Image, plan, relocate
from rawgpu.native.note import KernelSignature, decode_note, encode_note
from tests.build import elf as build
from tests.build.elf import ElfBuilder
from tests.native.objects import AARCH64, X86_64, rich


@pytest.mark.parametrize("target", [X86_64, AARCH64])
def test_sections_symbols_and_relocations_agree_with_pyelftools(target: Target) -> None:
    image = rich(target)
    ours = parse_object(image)
    theirs = ELFFile(io.BytesIO(image))
    assert ours.machine == {"EM_X86_64": 62, "EM_AARCH64": 183}[theirs["e_machine"]]
    assert [s.name for s in ours.sections] == [s.name for s in theirs.iter_sections()]
    for section, other in zip(ours.sections, theirs.iter_sections(), strict=True):
        if other["sh_type"] != "SHT_NOBITS":
            assert bytes(section.data) == other.data()
    table = theirs.get_section_by_name(".symtab")
    assert [(s.name, s.value, s.size_bytes) for s in ours.symbols] == [
        (s.name, s["st_value"], s["st_size"]) for s in table.iter_symbols()
    ]
    for index, rows in ours.relocations.items():
        other = theirs.get_section_by_name(".rela" + ours.sections[index].name)
        assert [(r.offset, r.kind, r.symbol, r.addend) for r in rows] == [
            (r["r_offset"], r["r_info_type"], r["r_info_sym"], r["r_addend"])
            for r in other.iter_relocations()
        ]


def test_signatures_come_back_from_the_note() -> None:
    assert parse_object(rich()).signatures == (
        KernelSignature("answer", ()),
        KernelSignature("bump", (Parameter("by", "int64"),)),
    )


def good() -> ElfBuilder:
    elf = ElfBuilder()
    text = elf.section(".text", b"\xc3" * 32, flags=build.ALLOC | build.EXEC, align=16)
    data = elf.section(".data", bytes(16), flags=build.ALLOC | build.WRITE, align=8)
    f = elf.symbol("f", section=text, size=32, kind=build.FUNC)
    elf.symbol("d", section=data, size=16, kind=build.OBJECT)
    elf.relocation(data, offset=0, kind=1, symbol=f)
    return elf


def test_the_builder_makes_an_object_that_loads() -> None:
    image = Image(good().build())
    assert image.functions == {"f"}
    assert image.symbols["d"][1] == 16
    assert image.words("d", 1)[0] == image.address("f")
    image.close()


HEADERS = [
    ({"ident": b"\x7fELG\x02\x01\x01" + bytes(9)}, "magic"),
    ({"ident": b"\x7fELF\x01\x01\x01" + bytes(9)}, "64-bit"),
    ({"ident": b"\x7fELF\x02\x02\x01" + bytes(9)}, "little-endian"),
    ({"ident": b"\x7fELF\x02\x01\x07" + bytes(9)}, "version"),
    ({"type": 2}, "relocatable"),
    ({"type": 3}, "relocatable"),
    ({"machine": 40}, "machine 40"),
    ({"version": 0}, "version"),
    ({"ehsize": 52}, "header sizes"),
    ({"shentsize": 40}, "header sizes"),
    ({"shnum": 0}, "0 section headers"),
    ({"shnum": 0xFFFF}, "65535 section headers"),
    ({"shnum": 5000}, "past the end"),
    ({"shoff": 1 << 63}, "past the end"),
    ({"shstrndx": 99}, "name table"),
    ({"shstrndx": 1}, "not a string table"),
]


@pytest.mark.parametrize(("header", "says"), HEADERS)
def test_a_wrong_header_field_is_refused(header: Any, says: str) -> None:
    with pytest.raises(BadElf, match=says):
        parse_object(good().build(header=header))


SECTIONS = [
    ({"flags": build.ALLOC | build.TLS}, "thread-local"),
    ({"flags": build.ALLOC | build.WRITE | build.EXEC}, "writable and executable"),
    ({"flags": build.ALLOC | build.COMPRESSED}, "compressed"),
    ({"type": build.INIT_ARRAY}, "constructors"),
    ({"type": build.STRTAB}, "cannot be loaded"),
    ({"type": 0}, "cannot be loaded"),
    ({"align": 3}, "aligned to 3"),
    ({"align": 1 << 40}, "aligned to"),
    ({"name": 1 << 20}, "string table"),
    ({"offset": 1 << 40}, "past the end"),
    ({"size": 1 << 62}, "past the end"),
    ({"size": 1 << 62, "type": build.NOBITS}, "larger than 256 MiB"),
]


@pytest.mark.parametrize(("override", "says"), SECTIONS)
def test_a_wrong_section_is_refused(override: Any, says: str) -> None:
    elf = good()
    elf.section(".extra", bytes(8), override=override)
    with pytest.raises(BadElf, match=says):
        parse_object(elf.build())


SYMBOLS = [
    ({"section": 77}, "section 77"),
    ({"section": 0xFF20}, "reserved section"),
    ({"section": 1, "value": 33}, "past its section"),
    ({"section": 1, "value": 30, "size": 3}, "past its section"),
    ({"section": 1, "size": (1 << 64) - 1}, "past its section"),
    ({"section": build.COMMON, "value": 3, "size": 8}, "aligned to 3"),
    ({"section": build.COMMON, "value": 8, "size": 1 << 60}, "bytes"),
    ({"section": 1, "kind": 6}, "thread-local"),
    ({"section": 1, "kind": 10}, "IFUNC"),
    ({"section": 1, "binding": 9}, "binding 9"),
]


@pytest.mark.parametrize(("symbol", "says"), SYMBOLS)
def test_a_wrong_symbol_is_refused(symbol: Any, says: str) -> None:
    elf = good()
    elf.symbol("bad", **symbol)
    with pytest.raises(BadElf, match=says):
        parse_object(elf.build())


def test_a_name_defined_twice_is_refused() -> None:
    elf = good()
    elf.symbol("f", section=1)
    with pytest.raises(BadElf, match="'f' is defined twice"):
        parse_object(elf.build())


RELOCATIONS = [
    ({"offset": 16, "kind": 1, "symbol": 1}, "past '.data'"),
    ({"offset": 9, "kind": 1, "symbol": 1}, "runs past section"),
    ({"offset": 13, "kind": 2, "symbol": 1}, "runs past section"),
    ({"offset": 0, "kind": 1, "symbol": 99}, "symbol 99"),
    ({"offset": 0, "kind": 200, "symbol": 1}, "kind 200"),
    ({"offset": 0, "kind": 10, "symbol": 1}, "does not fit"),
    ({"offset": 0, "kind": 2, "symbol": 1, "addend": 1 << 40}, "does not fit"),
]


@pytest.mark.parametrize(("relocation", "says"), RELOCATIONS)
def test_a_wrong_relocation_is_refused(relocation: Any, says: str) -> None:
    elf = good()
    elf.relocation(2, **relocation)
    with pytest.raises(BadElf, match=says):
        Image(elf.build())


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"link": 200}, "symbol table"),
        ({"link": 1}, "symbol table"),
        ({"size": 23}, "no multiple"),
        ({"info": 200}, "section 200"),
        ({"type": build.REL}, "cannot relocate"),
    ],
)
def test_a_wrong_relocation_table_is_refused(field: Any, says: str) -> None:
    with pytest.raises(BadElf, match=says):
        parse_object(good().build(rela=field))


@pytest.mark.parametrize("field", [{"link": 200}, {"link": 1}, {"size": 25}])
def test_a_wrong_symbol_table_is_refused(field: Any) -> None:
    with pytest.raises(BadElf):
        parse_object(good().build(symtab=field))


def test_an_undefined_symbol_is_refused_by_name() -> None:
    elf = good()
    elf.relocation(1, offset=4, kind=4, symbol=elf.symbol("fmodf"), addend=-4)
    with pytest.raises(BadElf, match="'fmodf' is undefined"):
        Image(elf.build())


def test_many_large_common_symbols_are_refused() -> None:
    elf = good()
    for i in range(10):
        elf.symbol(f"c{i}", section=build.COMMON, value=8, size=200 << 20)
    with pytest.raises(BadElf, match="larger than"):
        plan(parse_object(elf.build()))


def test_another_machines_object_is_refused() -> None:
    with pytest.raises(BadElf, match="AARCH64"):
        Image(rich(AARCH64), Machine.X86_64)


@pytest.mark.parametrize("target", [X86_64, AARCH64])
def test_every_truncation_is_refused(target: Target) -> None:
    image = rich(target)
    for end in range(0, len(image), 7):
        with pytest.raises(BadElf):
            parse_object(image[:end])


NOTES = [
    b"\x07\0\0",
    b"\x07\0\0\0\xff\xff\0\0\x01\0\0\0rawgpu\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0\0rawgpu\0\0",
]
DESCRIPTIONS = [
    b"",
    b"{",
    b"[]",
    b"\xff",
    b'{"kernels": 3}',
    b'{"kernels": {"f": 3}}',
    b'{"kernels": {"f": [["x"]]}}',
    b'{"kernels": {"f": [["x", "float31", false]]}}',
    b'{"kernels": {"f": [["x", "float32", 0]]}}',
    b'{"kernels": ' + b"[" * 100_000,
]


def test_damaged_notes_are_refused() -> None:
    whole = encode_note([KernelSignature("f", (Parameter("x", "pointer", True),))])
    assert decode_note(whole)[0].parameters == (Parameter("x", "pointer", True),)
    for data in NOTES:
        with pytest.raises(BadElf):
            decode_note(data)
    for text in DESCRIPTIONS:
        padded = text + bytes(-len(text) % 4)
        head = len(b"rawgpu\0").to_bytes(4, "little") + len(text).to_bytes(4, "little")
        with pytest.raises(BadElf):
            decode_note(head + b"\x01\0\0\0rawgpu\0\0" + padded)


def test_notes_of_other_owners_are_passed_over() -> None:
    assert decode_note(b"\x04\0\0\0\x04\0\0\0\x01\0\0\0GNU\0abcd") == ()


def test_names_in_a_note_may_hold_any_character() -> None:
    rows = [KernelSignature('k"\\\n\0é', (Parameter('"\\', "float16"),))]
    assert decode_note(encode_note(rows)) == tuple(rows)


def mutate(image: bytes, random_source: random.Random) -> bytes:
    """One to four changes: a byte, a 32 or 64-bit word, a cut, a copied run."""
    data = bytearray(image)
    for _ in range(random_source.randint(1, 4)):
        at = random_source.randrange(len(data))
        match random_source.randrange(5):
            case 0:
                data[at] = random_source.randrange(256)
            case 1:
                word = random_source.choice(
                    [0, 1, 0xFFFFFFFF, 0x7FFFFFFF, random_source.getrandbits(32)]
                )
                data[at : at + 4] = word.to_bytes(4, "little")[: len(data) - at]
            case 2:
                long = random_source.choice(
                    [0, (1 << 64) - 1, 1 << 63, random_source.getrandbits(64)]
                )
                data[at : at + 8] = long.to_bytes(8, "little")[: len(data) - at]
            case 3:
                header = len(data) - 64 * random_source.randint(1, 12)
                at = max(header, 0) + random_source.randrange(64)
                data[at % len(data)] = random_source.randrange(256)
            case _:
                source = random_source.randrange(len(data))
                run = data[source : source + random_source.randint(1, 64)]
                data[at : at + len(run)] = run
    if random_source.random() < 0.1:
        del data[random_source.randrange(1, len(data)) :]
    return bytes(data)


def fuzz(count: int, seed: int) -> None:
    random_source = random.Random(seed)
    images = [rich(X86_64), rich(AARCH64), good().build()]
    refused = 0
    for turn in range(count):
        image = mutate(random_source.choice(images), random_source)
        try:
            obj = parse_object(image)
            layout = plan(obj)
            if layout.size_bytes < 1 << 22:
                relocate(obj, layout, 0x7F00_0000_0000, lambda name: 0x7F00_4000_0000)
                if obj.machine.name.lower() == system.MACHINE:
                    Image(obj).close()
        except BadElf:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, turn {turn}") from error
    assert refused > count // 10


def test_mutated_objects_load_or_are_refused_and_never_crash() -> None:
    fuzz(1000, seed=1)


@pytest.mark.full
def test_many_mutated_objects_load_or_are_refused() -> None:
    for seed in range(20):
        fuzz(2000, seed)
