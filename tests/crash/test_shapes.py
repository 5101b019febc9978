"""Shapes of lines match what they say and nothing else, and are never long at it."""

from __future__ import annotations

import io

import pytest

from rawgpu.crash.reader import LONGEST_LINE, PIECE_BYTES, Reader
from rawgpu.crash.shape import Shape

RING = Shape("ring", "ring {name} died« at {place:x}», code {code:d}", "all", "these tests")
NAMED = Shape("named", "process {process:*} pid {pid:d}", "all", "these tests")


def test_fields_are_words_numbers_and_texts() -> None:
    assert RING.match("xg 0: ring sdma0 died at 0x1f, code -5!") == {
        "name": "sdma0",
        "place": "0x1f",
        "code": -5,
    }
    assert RING.match("ring a died, code 1") == {"name": "a", "code": 1}
    assert RING.match("ring a b died, code 1") is None
    assert NAMED.match("process a pid b: c pid 7") == {"process": "a pid b: c", "pid": 7}
    assert RING.key == ", code "


def test_a_shape_with_too_little_text_is_refused() -> None:
    with pytest.raises(ValueError, match="too little text"):
        _ = Shape("x", "{a} of {b}", "all", "these tests").key


@pytest.mark.parametrize(
    "line", ["process " * 250, "process " + "a pid " * 300, "ring a died at 0x" * 120]
)
def test_hostile_lines_end_without_a_match(line: str) -> None:
    """A pattern that goes back and forth would not come to an end here."""
    assert RING.match(line[:LONGEST_LINE]) is None
    assert NAMED.match(line[:LONGEST_LINE]) is None


def found(log: bytes) -> list[dict[str, str | int]]:
    return [line.fields for line in Reader([RING, NAMED]).read(io.BytesIO(log))]


def test_lines_are_found_across_pieces_and_without_a_last_newline() -> None:
    line = b"[1.0] ring a died, code 1\n"
    for shift in range(0, len(line), 5):
        log = b"x" * (PIECE_BYTES - shift - 1) + b"\n" + line + b"[2.0] ring b died, code 2"
        assert [fields["name"] for fields in found(log)] == ["a", "b"]


def test_a_line_counts_once_and_is_known_again_whatever_its_time() -> None:
    log = b"".join(b"[%d.5] ring a died, code 1 process p pid 2\n" % i for i in range(50))
    assert found(log) == [{"name": "a", "code": 1}] * 50


def test_what_is_no_text_and_lines_without_end_are_read() -> None:
    assert found(b"\xff\xfe ring a died, code 1 \x80\n") == [{"name": "a", "code": 1}]
    assert found(b"\0" * (3 * PIECE_BYTES) + b"\nring a died, code 1\n") != []
    assert found(b"") == found(b"abc") == found(b"\n\n") == []
