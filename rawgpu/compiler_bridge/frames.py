"""Messages between this process and its compiler workers.

A frame: magic, kind, length of the fields (JSON), length of the data, then both. Lengths are
bounded and nothing in a frame is executed, so a damaged stream is an error and no more.
"""

from __future__ import annotations

import enum
import json
import os
import struct
from dataclasses import dataclass
from typing import Any

HEADER = struct.Struct("<4sIIQ")
MAGIC = b"RGF1"
MAX_FIELDS_BYTES = 1 << 20
MAX_DATA_BYTES = 1 << 30


class Kind(enum.IntEnum):
    """What a frame says."""

    STARTED = 0  # the worker has taken the job: from here on, its death is the job's fault
    JOB = 1
    DONE = 2
    COMPILE_ERROR = 3
    UNSUPPORTED = 4


@dataclass(frozen=True)
class Frame:
    """One message: small named fields and one block of bytes."""

    kind: Kind
    fields: dict[str, Any]
    data: bytes = b""

    def encode(self) -> bytes:
        """As it travels."""
        fields = json.dumps(self.fields).encode()
        assert len(fields) <= MAX_FIELDS_BYTES, len(fields)
        assert len(self.data) <= MAX_DATA_BYTES, len(self.data)
        head = HEADER.pack(MAGIC, self.kind, len(fields), len(self.data))
        return b"".join((head, fields, self.data))


class FrameError(Exception):
    """The stream does not hold a frame where one should begin."""


def parse_header(head: bytes) -> tuple[Kind, int, int]:
    """(kind, bytes of fields, bytes of data)."""
    magic, kind, fields_bytes, data_bytes = HEADER.unpack(head)
    if magic != MAGIC or kind not in Kind.__members__.values():
        raise FrameError(f"not a frame: {head!r}")
    if fields_bytes > MAX_FIELDS_BYTES or data_bytes > MAX_DATA_BYTES:
        raise FrameError(f"frame of {fields_bytes} + {data_bytes} bytes is too large")
    return Kind(kind), fields_bytes, data_bytes


def _read_exactly(source: int, size_bytes: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size_bytes:
        part = os.read(source, min(size_bytes - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def read_frame(source: int) -> Frame | None:
    """The next frame from a blocking descriptor; None when the stream ends, even within a frame."""
    head = _read_exactly(source, HEADER.size)
    if head is None:
        return None
    kind, fields_bytes, data_bytes = parse_header(head)
    body = _read_exactly(source, fields_bytes + data_bytes)
    if body is None:
        return None
    return Frame(kind, json.loads(body[:fields_bytes]), body[fields_bytes:])


def write_frame(target: int, frame: Frame) -> None:
    """Write all of `frame` to a blocking descriptor."""
    rest = memoryview(frame.encode())
    while rest:
        rest = rest[os.write(target, rest) :]
