"""The instruction tables as a whole: every row, every family."""

from __future__ import annotations

from collections import Counter

import pytest

from rawgpu.amd.spec.generations import GENERATIONS
from rawgpu.amd.spec.isa.decoder import decoder_for
from rawgpu.amd.spec.isa.formats import EXTENSIONS, FORMATS, LINEAGE, picture
from rawgpu.amd.spec.isa.notation import parse_operands
from rawgpu.amd.spec.isa.operands import operand_type
from rawgpu.amd.spec.isa.tables import ROWS
from rawgpu.describe.encoding import Encoding
from rawgpu.describe.semantics import unknown_names
from rawgpu.errors import DecodeError

FAMILIES = tuple(LINEAGE)
NO_MEANING_PERCENT = 22.0
"""The most rows, in percent, without a meaning: graphics, GDS, conversions of rare parts."""


def notation(format_: str) -> str:
    return "vop2" if format_.startswith("vopd") else format_


@pytest.mark.parametrize("family", FAMILIES)
def test_no_word_matches_two_rows(family: str) -> None:
    wave = 64 if family in ("gfx9", "gfx90a", "gfx942", "gfx950") else 32
    assert len(decoder_for(family, wave).rows) > 1000  # building it checks


def test_every_name_in_every_meaning_exists() -> None:
    for row in ROWS:
        if row.meaning:
            roles = {role for role, _, _ in parse_operands(row.operands, notation(row.format))}
            assert unknown_names(row.meaning, roles) == [], row


def test_operands_are_of_types_that_exist() -> None:
    words = {"vcc", "exec", "address", "k", "lds"}
    for row in ROWS:
        for role, _, token in parse_operands(row.operands, notation(row.format)):
            if role != "imm" and token not in words:
                assert operand_type(token, 64).bits > 0, row


def test_columns_and_formats_name_families_that_exist() -> None:
    for row in ROWS:
        assert set(row.opcodes.columns) <= set(FAMILIES), row
        assert row.format in FORMATS, row
    for table in (*FORMATS.values(), *EXTENSIONS.values()):
        assert set(table) <= set(FAMILIES)


def test_opcodes_fit_their_field() -> None:
    for family in FAMILIES:
        for row in ROWS:
            column = row.opcodes.at(LINEAGE[family])
            if column is None or column.opcode is None:
                continue
            encoding = picture(row.format, LINEAGE[family])
            assert encoding is not None, (row, family)
            field = "opx" if row.format.startswith("vopd") else "op"
            if field in encoding.widths:
                width = max(encoding.widths[field], encoding.widths.get("opy", 0))
                assert column.opcode < 1 << width, (row, family)


def test_no_name_of_a_format_is_two_rows_in_one_family() -> None:
    for family in FAMILIES:
        alive = [row for row in ROWS if row.opcodes.at(LINEAGE[family]) is not None]
        counts = Counter((row.format, row.name) for row in alive)
        assert [key for key, count in counts.items() if count > 1] == [], family


def test_extensions_are_whole_dwords() -> None:
    for columns in EXTENSIONS.values():
        for text in columns.values():
            assert Encoding(text).bits % 32 == 0


def test_the_share_of_rows_without_meaning_does_not_grow() -> None:
    silent = sum(not row.meaning for row in ROWS)
    print(f"{len(ROWS) - silent} of {len(ROWS)} rows have a meaning")
    assert 100.0 * silent / len(ROWS) <= NO_MEANING_PERCENT


def test_every_generation_has_an_instruction_set() -> None:
    for machine in GENERATIONS.values():
        for wave in machine.waves:
            assert decoder_for(machine.family, wave).wave == wave
        assert set(machine.vgpr_granule) == set(machine.vgpr_file) == set(machine.waves)


def test_bytes_that_are_no_instruction_are_refused() -> None:
    decoder = decoder_for("gfx11", 32)
    for data in (b"", b"\x00\x00", b"\xff\xff\xff\xff", bytes.fromhex("ff040206")):
        with pytest.raises(DecodeError):
            decoder.decode(data)


def test_an_instruction_is_what_its_words_say() -> None:
    decoder = decoder_for("gfx11", 32)
    add = decoder.decode(bytes.fromhex("03050a06"))  # v_add_f32_e32 v5, s3?, v2
    assert (add.name, add.format, add.kind, add.size) == ("v_add_f32", "vop2", "e32", 4)
    assert add.meaning == "f32(a) + f32(b)"
    assert [(r, o.text) for r, o in add.operands.items()] == [("d", "v5"), ("a", "v3"), ("b", "v2")]
    half = decoder.decode(bytes.fromhex("81050a64"))  # v_add_f16_e32 v5.l, v1.h, v2.l
    assert [o.half for o in half.operands.values()] == [0, 1, 0]
    dual = decoder.decode(bytes.fromhex("02040ac904040601ffffffff"[:16]))
    assert [part.kind for part in dual.parts] == ["vopd", "vopd"]
    load = decoder.decode(bytes.fromhex("c01f52dc01000405"))
    assert load.offset == -64 and load.operands["base"].index == 4


def test_an_atomic_has_a_result_only_where_it_gives_one_back() -> None:
    decoder = decoder_for("gfx11", 32)
    silent = decoder.decode(bytes.fromhex("0000d6dc01020600"))
    asked = decoder.decode(bytes.fromhex("0040d6dc01020600"))
    assert "d" not in silent.operands and asked.operands["d"].index == 0
