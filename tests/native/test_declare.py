"""The parsed declarations are those of the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from rawgpu.native import declare, layout, system
from rawgpu.native.layout import Record, expand


def test_the_parsed_declarations_are_up_to_date() -> None:
    path = Path(declare.__file__).parent / "_libc.py"
    assert path.read_text() == declare.generate(), "run: python -m rawgpu.native.declare"


@pytest.mark.parametrize("record", layout.RECORDS.values(), ids=lambda record: record.name)
def test_records_have_the_same_offsets_for_python_and_native_code(record: Record) -> None:
    kind = f"struct {record.name}"
    assert system.ffi.sizeof(kind) == record.size_bytes
    for field in record.fields:
        assert str(system.ffi.offsetof(kind, field)) == expand(f"${record.name.upper()}.{field}")


def test_unknown_names_in_a_text_are_errors() -> None:
    for text in ("$NOTHING", "$PACKET.nothing", "$Kind.NOTHING"):
        with pytest.raises(KeyError):
            expand(text)


def test_groups_that_different_threads_write_have_cache_lines_of_their_own() -> None:
    word = layout.POOL.word
    lines = [
        {word[f] // 8 for f in group}
        for group in (
            ("lock", "open", "epoch", "target", "quit"),
            ("next",),
            ("inside", "sleepers"),
            ("threads",),
        )
    ]
    assert all(not (a & b) for i, a in enumerate(lines) for b in lines[:i])
