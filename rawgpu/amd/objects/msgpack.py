"""MessagePack, as far as code-object metadata uses it: maps, arrays, strings, integers, booleans.

Read strictly: BadElf for what is cut off, nested deeper than any real file, or of another type.

Source: the MessagePack specification, 2013-04 and later.
"""

from __future__ import annotations

import struct
from typing import Any

from rawgpu.errors import BadElf

MAX_DEPTH = 32
_NUMBERS = {
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
    0xCA: ">f", 0xCB: ">d",
}  # fmt: skip
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_BINARIES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_ARRAYS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise BadElf("metadata ends inside a value", offset=self.at)
        piece, self.at = self.data[self.at : end], end
        return piece

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def text(self, size: int) -> str:
        start = self.at
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise BadElf("metadata has a string that is not UTF-8", offset=start) from None

    def value(self, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise BadElf("metadata is nested too deep", offset=self.at)
        start = self.at
        tag = self.take(1)[0]
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag < 0x90 or tag in _MAPS:
            return self._map(tag & 0xF if tag < 0x90 else self.number(_MAPS[tag]), depth)
        if tag < 0xA0 or tag in _ARRAYS:
            count = tag & 0xF if tag < 0xA0 else self.number(_ARRAYS[tag])
            self._enough(count)
            return [self.value(depth + 1) for _ in range(count)]
        if tag < 0xC0 or tag in _STRINGS:
            return self.text(tag & 0x1F if tag < 0xC0 else self.number(_STRINGS[tag]))
        if tag in _NUMBERS:
            return self.number(_NUMBERS[tag])
        if tag in _BINARIES:
            return self.take(self.number(_BINARIES[tag]))
        if tag in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[tag]
        raise BadElf(f"metadata has a value of type {tag:#x}", offset=start)

    def _map(self, count: int, depth: int) -> dict[Any, Any]:
        self._enough(2 * count)
        found: dict[Any, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if not isinstance(key, (str, int)) or key in found:
                raise BadElf(f"metadata has the key {str(key)[:40]!r} twice, or as no key can be")
            found[key] = self.value(depth + 1)
        return found

    def _enough(self, count: int) -> None:
        """Each value takes a byte at least."""
        if count > len(self.data) - self.at:
            raise BadElf(f"metadata announces {count} values and ends before", offset=self.at)


def decode(data: bytes) -> Any:
    """The one value that `data` is."""
    reader = _Reader(data)
    value = reader.value()
    if any(data[reader.at :]):
        raise BadElf("metadata goes on after its value", offset=reader.at)
    return value
