"""Lines of drivers whose logs are not read yet, noticed so that nobody takes silence for health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

MARKS: Mapping[bytes, str] = {
    b"NVRM: ": "NVIDIA's driver",
    b"nouveau 0000:": "nouveau",
    b"i915 0000:": "i915",
    b"xe 0000:": "xe",
}
"""What a line of a driver has. Source: prefixes of nvidia.ko and of drm_printk on PCI devices."""
LONGEST = max(map(len, MARKS))


class Noticing:
    """A log that is read through this one; `drivers` are those of `MARKS` that spoke in it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._rest = b""
        self._found: set[bytes] = set()

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the log."""
        piece = self._stream.read(size)
        whole = self._rest + piece
        self._found |= {mark for mark in MARKS if mark not in self._found and mark in whole}
        self._rest = whole[-LONGEST:]
        return piece

    @property
    def drivers(self) -> list[str]:
        return [name for mark, name in MARKS.items() if mark in self._found]
