"""Bit pictures, opcode columns, and the table that finds what a word is."""

from __future__ import annotations

import pytest

from rawgpu.describe.encoding import Dispatch, Encoding, op
from rawgpu.errors import DecodeError, EncodingError

VOP3 = Encoding("110101 op:10 clamp op_sel:4 abs:3 vdst:8 | neg:3 omod:2 src2:9 src1:9 src0:9")


def test_a_picture_reads_high_bits_first_and_dwords_in_memory_order() -> None:
    word = VOP3.pack({"op": 0x203, "vdst": 5, "src0": 0x101, "neg": 4})
    assert word == 0xD6030005 | (4 << 61 | 0x101 << 32)
    assert VOP3.get(word, "op") == 0x203
    assert VOP3.unpack(word)["neg"] == 4
    assert VOP3.bits == 64


def test_a_value_too_wide_is_refused() -> None:
    with pytest.raises(EncodingError, match="does not fit 3 bits"):
        VOP3.pack({"neg": 8})


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(EncodingError, match="no field 'nag'"):
        VOP3.pack({"nag": 1})


def test_a_bit_that_no_field_names_is_refused() -> None:
    picture = Encoding("1111 -:4 value:24")
    assert picture.unpack(0xF0000007) == {"value": 7}
    with pytest.raises(DecodeError, match=r"bits \[24\]"):
        picture.unpack(0xF1000007)


def test_fixed_bits_must_be_there() -> None:
    with pytest.raises(DecodeError, match="not of the form"):
        Encoding("1111 value:28").unpack(0)


def test_a_field_may_stand_in_pieces() -> None:
    picture = Encoding("hi[1:0] -:14 low:8 hi[2] -:7")
    assert picture.get(picture.pack({"hi": 0b101}), "hi") == 0b101
    assert picture.pack({"hi": 0b101}) == 1 << 30 | 1 << 7


@pytest.mark.parametrize(
    "picture", ["value:31", "a[1] -:31", "a[2:0] a[1:0] -:27", "Bad:32", "value:32 extra"]
)
def test_a_picture_that_does_not_add_up_fails_at_import(picture: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  each says something else
        Encoding(picture)


def test_a_column_holds_for_descendants_until_the_next() -> None:
    codes = op(old=0x01, mid="0x05 other_name", new=None)
    assert codes.at(("old",)).opcode == 1  # type: ignore[union-attr]
    assert codes.at(("mid", "old")).name == "other_name"  # type: ignore[union-attr]
    assert codes.at(("late", "mid", "old")).opcode == 5  # type: ignore[union-attr]
    assert codes.at(("new", "mid", "old")) is None
    assert codes.at(("stranger",)) is None


def test_two_entries_that_one_word_could_match_are_refused() -> None:
    table: Dispatch[str] = Dispatch()
    table.add(0xFF00_0000, 0x1200_0000, "a")
    table.add(0xFF00_0000, 0x1300_0000, "b")
    assert table.find(0x1234_5678) == "a"
    assert table.find(0x1400_0000) is None
    with pytest.raises(ValueError, match="one word is both"):
        table.add(0xF000_0001, 0x1000_0001, "c")
    with pytest.raises(ValueError, match="one word is both"):
        table.add(0xFF00_0000, 0x1200_0000, "again")
