"""Code objects: relocation as ld.lld does it, and refusals of what is damaged or not ours."""

from __future__ import annotations

import dataclasses
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from rawgpu.amd.objects import bundle, codeobject, elffile, msgpack
from rawgpu.compiler_bridge.llvm import Target, compile_ir
from rawgpu.errors import BadElf
from tests.amd.driver.objects import GLOBALS, SAXPY, build

LINKER = shutil.which("ld.lld-19") or shutil.which("ld.lld")
CPUS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250")
needs_linker = pytest.mark.skipif(LINKER is None, reason="ld.lld is not installed")


def link(image: bytes, folder: Path) -> Path:
    (folder / "a.o").write_bytes(image)
    assert LINKER is not None
    command = [LINKER, "-shared", "-o", str(folder / "a.so"), str(folder / "a.o")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "a.so"


@needs_linker
@pytest.mark.parametrize("cpu", CPUS)
def test_relocated_code_equals_the_linker_s(cpu: str, tmp_path: Path) -> None:
    """Our relocator, told where the linker put sections and GOT, gives the linker's bytes."""
    image = build(GLOBALS, cpu)
    with link(image, tmp_path).open("rb") as stream:
        theirs = ELFFile(stream)
        at = {s.name: s["sh_addr"] for s in theirs.iter_sections() if s["sh_flags"] & 2}
        text = theirs.get_section_by_name(".text")
        code, got = text.data(), theirs.get_section_by_name(".got")
        slots = {}
        for section in theirs.iter_sections():
            if isinstance(section, RelocationSection):
                symbols = theirs.get_section(section["sh_link"])
                for r in section.iter_relocations():
                    symbol = symbols.get_symbol(r["r_info_sym"])["st_value"]
                    if at[".got"] <= r["r_offset"] < at[".got"] + got.data_size:
                        slots[symbol + r["r_addend"]] = r["r_offset"]
    file = elffile.read(memoryview(image))
    mine, end = codeobject.lay_out(file)
    starts = {i: at[file.sections[i].name] for i in mine if file.sections[i].name in at}
    ours = codeobject.assemble(file, starts, max(at.values()) + end)
    wanted = {
        number: slots[starts[file.symbols[number].section] + file.symbols[number].value]
        for number in ours.slots
    }
    relocated = dataclasses.replace(ours, slots=wanted).image_at(0)
    assert relocated[at[".text"] : at[".text"] + len(code)] == code


@needs_linker
@pytest.mark.parametrize("cpu", ["gfx942", "gfx1100", "gfx1250"])
def test_a_linked_file_has_the_same_kernels_and_globals(cpu: str, tmp_path: Path) -> None:
    image = build(GLOBALS, cpu)
    loose = codeobject.parse(image)
    linked = codeobject.parse(link(image, tmp_path).read_bytes())
    assert {"bump.kd", "counter", "pointer", "table"} <= set(loose.globals)
    assert set(linked.globals) >= {"bump.kd", "counter", "pointer", "table"}
    base = 0x12_0000_0000
    for parsed in (loose, linked):
        whole = parsed.image_at(base)
        pointer, counter = parsed.globals["pointer"], parsed.globals["counter"]
        stored = int.from_bytes(whole[pointer.offset : pointer.offset + 8], "little")
        assert stored == base + counter.offset
        assert int.from_bytes(whole[counter.offset : counter.offset + 4], "little") == 7
        assert counter.writable and not parsed.globals["table"].writable
        descriptor = parsed.globals["bump.kd"].offset
        entry = int.from_bytes(whole[descriptor + 16 : descriptor + 24], "little", signed=True)
        assert descriptor + entry == parsed.globals["bump"].offset


@pytest.mark.parametrize("cpu", CPUS)
def test_code_begins_at_multiples_of_256(cpu: str) -> None:
    parsed = codeobject.parse(build(SAXPY, cpu))
    assert parsed.globals["saxpy"].offset % 256 == 0
    assert parsed.globals["saxpy"].is_code and not parsed.globals["saxpy.kd"].is_code


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0, b"\x7fELG", "magic"),
        (4, b"\x01", "64-bit"),
        (7, b"\x00", "OS ABI"),
        (8, b"\x00", "code object"),
        (16, b"\x02\x00", "neither relocatable"),
        (18, b"\x3e\x00", "for x86-64, and this reads code for AMD"),
        (40, b"\xff" * 8, "section headers"),
        (58, b"\x00\x00", "header sizes"),
        (60, b"\x00\x00", "section headers"),
    ],
)
def test_a_wrong_header_is_refused(offset: int, value: bytes, text: str) -> None:
    image = bytearray(build(SAXPY, "gfx1100"))
    image[offset : offset + len(value)] = value
    with pytest.raises(BadElf, match=text):
        codeobject.parse(bytes(image))


def test_an_undefined_symbol_is_named() -> None:
    text = SAXPY.replace("ret void", "call void @elsewhere()\n  ret void")
    image = build("declare void @elsewhere()\n" + text, "gfx1100")
    with pytest.raises(BadElf, match="elsewhere"):
        codeobject.parse(image)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_end_in_bad_elf_or_in_an_image(seed: int) -> None:
    """No damage gets past the reader as another exception."""
    chance = random.Random(seed)
    image = build(GLOBALS, "gfx1100")
    for _ in range(250):
        damaged = bytearray(image)
        for _ in range(chance.choice((1, 1, 2, 8))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if chance.random() < 0.1:
            del damaged[chance.randrange(len(damaged)) :]
        try:
            parsed = codeobject.parse(bytes(damaged))
            parsed.image_at(0x12_0000_0000)
            for owner, kind, data in parsed.file.notes():
                if owner == elffile.NOTE_OWNER and kind == elffile.NOTE_METADATA:
                    msgpack.decode(data)
        except BadElf:
            pass


def test_msgpack_reads_what_it_should_and_refuses_the_rest() -> None:
    data = b"\x82\xa1a\x93\x01\xff\xcd\x01\x00\xa1b\x82\x01\xc3\x02\xd9\x02hi"
    assert msgpack.decode(data) == {"a": [1, -1, 256], "b": {1: True, 2: "hi"}}
    for bad in (b"", b"\x93\x01", b"\xdf\xff\xff\xff\xff", b"\x91" * 100 + b"\x01", b"\xc1",
                b"\x82\xa1a\x01\xa1a\x02", b"\x01\x02", b"\xa1\xff"):  # fmt: skip
        with pytest.raises(BadElf):
            msgpack.decode(bad)


def bundled(entries: dict[str, bytes]) -> bytes:
    """As clang-offload-bundler writes it."""
    head = bundle.MAGIC + len(entries).to_bytes(8, "little")
    size = len(head) + sum(24 + len(name) for name in entries)
    at, table, body = size, b"", b""
    for name, data in entries.items():
        row = (at, len(data), len(name))
        table += b"".join(value.to_bytes(8, "little") for value in row) + name.encode()
        at += len(data)
        body += data
    return head + table + body


def test_a_bundle_gives_the_object_for_this_gpu() -> None:
    import zlib

    whole = bundled(
        {
            "host-x86_64-unknown-linux-gnu-": b"",
            "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-": b"nine",
            "hipv4-amdgcn-amd-amdhsa--gfx1100": b"eleven",
        }
    )
    assert bundle.is_bundle(whole)
    assert bundle.choose(whole, "gfx1100") == b"eleven"
    assert bundle.choose(whole, "gfx942") == b"nine"
    with pytest.raises(BadElf, match="gfx1201"):
        bundle.choose(whole, "gfx1201")
    packed = zlib.compress(whole)
    head = b"CCOB" + bytes([2, 0, 0, 0])
    head += (24 + len(packed)).to_bytes(4, "little") + len(whole).to_bytes(4, "little") + bytes(8)
    assert bundle.choose(head + packed, "gfx1100") == b"eleven"
    with pytest.raises(BadElf):
        bundle.choose(head + packed[:-9], "gfx1100")
    with pytest.raises(BadElf):
        bundle.choose(whole[:40], "gfx1100")


@pytest.mark.parametrize(("name", "builtin"), [("_Z13get_global_idj", True), ("_Z3sinf", False)])
def test_a_missing_function_of_opencl_comes_with_what_needs_no_library(
    name: str, builtin: bool
) -> None:
    text = f"""declare i64 @{name}(i32)
define amdgpu_kernel void @k(ptr addrspace(1) %x) {{
  %i = call i64 @{name}(i32 0)
  store i64 %i, ptr addrspace(1) %x
  ret void
}}
"""
    image = compile_ir(text, Target("amdgcn-amd-amdhsa", "gfx1100"))
    with pytest.raises(BadElf, match="is not defined in this file") as refusal:
        codeobject.parse(image)
    assert refusal.value.hint is not None and "-nogpulib left out" in refusal.value.hint
    assert ("__builtin_amdgcn_workitem_id_x()" in refusal.value.hint) == builtin
