from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawgpu.compiler_bridge.frames import (
    HEADER,
    MAX_DATA_BYTES,
    Frame,
    FrameError,
    Kind,
    parse_header,
    read_frame,
    write_frame,
)


def through_a_pipe(raw: bytes) -> Frame | None:
    source, target = os.pipe()
    try:
        os.write(target, raw)
        os.close(target)
        return read_frame(source)
    finally:
        os.close(source)


@given(
    st.dictionaries(st.text(max_size=3), st.integers() | st.none(), max_size=3),
    st.binary(max_size=100),
)
def test_a_frame_comes_out_as_it_went_in(fields: dict[str, object], data: bytes) -> None:
    frame = Frame(Kind.JOB, fields, data)
    assert through_a_pipe(frame.encode()) == frame


def test_a_stream_that_ends_within_a_frame_gives_none() -> None:
    raw = Frame(Kind.DONE, {"a": 1}, b"data").encode()
    for length in range(len(raw)):
        assert through_a_pipe(raw[:length]) is None


@pytest.mark.parametrize(
    "head",
    [
        b"x" * HEADER.size,
        HEADER.pack(b"RGF1", 99, 0, 0),
        HEADER.pack(b"RGF1", Kind.DONE, 0, MAX_DATA_BYTES + 1),
        HEADER.pack(b"RGF1", Kind.DONE, 1 << 31, 0),
    ],
)
def test_damaged_headers_are_refused(head: bytes) -> None:
    with pytest.raises(FrameError):
        parse_header(head)


def test_a_short_write_is_continued() -> None:
    import threading

    source, target = os.pipe()
    frame = Frame(Kind.DONE, {}, bytes(range(256)) * 4096)
    writer = threading.Thread(target=write_frame, args=(target, frame))
    writer.start()
    assert read_frame(source) == frame
    writer.join()
    os.close(source)
    os.close(target)
