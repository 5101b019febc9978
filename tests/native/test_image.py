"""Images: what is loaded runs, pages have no more rights than needed, nothing stays behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rawgpu.errors import BadElf
from rawgpu.native import system
from rawgpu.native.image import Image
from tests.build import elf as build
from tests.build.elf import ElfBuilder
from tests.native.objects import rich

pytestmark = pytest.mark.skipif(system.MACHINE != "x86_64", reason="runs x86-64 code")


@pytest.fixture
def image() -> Any:
    loaded = Image(rich())
    yield loaded
    loaded.close()


def call(image: Image, name: str, prototype: str, *arguments: Any) -> Any:
    return system.ffi.cast(prototype, image.address(name))(*arguments)


def test_code_constants_data_and_calls_work(image: Any) -> None:
    assert call(image, "answer", "long(*)(void)") == 42
    assert call(image, "bump", "long(*)(long)", 3) == 8
    assert call(image, "indirect", "long(*)(void)") == 8
    assert [call(image, "lookup", "long(*)(long)", i) for i in range(4)] == [325, 335, 345, 355]
    assert call(image, "through", "long(*)(long)", 0) == 10
    assert call(image, "through", "long(*)(long)", 1) == 8
    assert call(image, "vector", "float(*)(long)", 2) == 7.5


def test_jump_tables_work(image: Any) -> None:
    results = [call(image, "choose", "long(*)(long)", i) for i in range(7)]
    assert results == [1000, 42, 5, -3, 77, 5, -1]


def test_outside_functions_are_reached_through_stubs(image: Any) -> None:
    assert call(image, "fill", "long(*)(long)", 400) == 0x01010101
    source = system.ffi.new("char[]", b"0123456789abcdef")
    target = system.ffi.new("char[17]")
    call(image, "move", "void(*)(void*, void*, long)", target, source, 16)
    assert system.ffi.string(target) == b"0123456789abcdef"


def test_common_symbols_are_zero_and_writable(image: Any) -> None:
    assert call(image, "commons", "long(*)(long, long)", 15, 9) == 0
    assert call(image, "commons", "long(*)(long, long)", 15, 0) == 9
    assert image.address("shared") % 32 == 0


def rights(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags = line.split()[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address < high:
            return flags[:3]
    return "---"


def test_no_page_is_writable_and_executable(image: Any) -> None:
    assert rights(image.address("answer")) == "r-x"
    assert rights(image.address("counter")) == "rw-"
    assert rights(image.address("shared")) == "rw-"
    assert rights(image.base + image.layout.got_at) == "r--"
    pages = {rights(image.base + at) for at in range(0, image.size_bytes, system.PAGE_BYTES)}
    assert pages == {"r-x", "r--", "rw-"}


def test_closing_unmaps_and_may_be_done_twice() -> None:
    image = Image(rich())
    address = image.address("answer")
    image.close()
    image.close()
    assert rights(address) == "---"


def test_a_refused_object_leaves_nothing_mapped() -> None:
    elf = ElfBuilder()
    text = elf.section(".text", bytes(16), flags=build.ALLOC | build.EXEC)
    elf.relocation(text, offset=0, kind=10, symbol=elf.symbol("f", section=text))
    with pytest.raises(BadElf, match="position-independent"):
        Image(elf.build())
    before = Path("/proc/self/maps").read_text().count("\n")
    for _ in range(50):
        with pytest.raises(BadElf):
            Image(elf.build())
    assert Path("/proc/self/maps").read_text().count("\n") <= before + 2


def test_zeroed_data_costs_only_what_is_touched() -> None:
    elf = ElfBuilder()
    bss = elf.section(
        ".bss", flags=build.ALLOC | build.WRITE, align=64, type=build.NOBITS, size=200 << 20
    )
    data = elf.section(".data", b"12345678", flags=build.ALLOC | build.WRITE, align=8)
    elf.symbol("zeros", section=bss, size=200 << 20, kind=build.OBJECT)
    elf.symbol("digits", section=data, size=8, kind=build.OBJECT)
    image = Image(elf.build())
    assert image.layout.filled_bytes < 1 << 16
    assert image.words("zeros", 25 << 20)[(25 << 20) - 1] == 0
    assert image.words("digits", 1)[0] == int.from_bytes(b"12345678", "little")
    image.close()


def test_an_object_without_code_or_data_loads() -> None:
    image = Image(ElfBuilder().build())
    assert image.functions == set()
    image.close()


def test_a_function_is_found_by_an_address_inside_it(image: Any) -> None:
    start, size_bytes = image.symbols["bump"]
    assert image.nearest_function(start + 3) == ("bump", 3)
    found = image.nearest_function(start + size_bytes)
    assert found is None or found[0] != "bump"


def test_readable_bytes_follow_the_last_constant_and_datum(image: Any) -> None:
    assert image.layout.constant_end - image.layout.got_at >= 64
    assert re.match("r", rights(image.base + image.size_bytes - 1))
