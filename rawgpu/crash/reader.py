"""Finds the lines that a vendor knows in a log of any size: a piece at a time, bounded memory.

No prefix is required and none trusted: dmesg, journal, syslog and text pasted from a web page have
the same lines behind different beginnings. A piece of log is searched for all keys of the shapes at
once (`Keys`); only lines that may have one are cut out, cleaned and matched, and those that came
lately, but for their times, are known again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from rawgpu.crash.shape import Shape, Value

PIECE_BYTES = 1 << 20
LONGEST_LINE = 2048
"""Bytes of a line that are looked at; drivers print less than half of that at once."""
NEWLINE = 0x0A
REMEMBERED = 4096
"""Lines that are known again."""
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,8}m")
_BUS = re.compile(r"\b([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b")
_JOURNAL, _TIME_END = b"kernel: ", b"] "
_PREFIX_BYTES = 160


@dataclass(frozen=True, slots=True)
class Found:
    """A line of a known shape."""

    shape: Shape
    fields: dict[str, Value]
    bdf: str | None
    """The device's place on the bus, where the line has one."""


class Keys:
    """Finds lines that may have one of many words: four letters of each are looked up in a table.

    Of each word the four letters are taken that are the least like ordinary text. A line without
    any is never left out wrongly; one that is found may turn out to have no word.
    """

    GRAM = 4
    BITS = 16
    FACTOR = np.uint32(2654435761)  # 2**32 by the golden ratio: Knuth's multiplicative hash
    BLOCK = 1 << 16

    def __init__(self, words: Iterable[bytes]) -> None:
        self._table = np.zeros(1 << self.BITS, bool)
        for word in words:
            starts = range(len(word) - self.GRAM + 1)
            at = max(starts, key=lambda i: _oddness(word[i : i + self.GRAM]))
            gram = np.frombuffer(word[at : at + self.GRAM], np.uint8)
            self._table[self._hash(gram)] = True

    def _hash(self, raw: np.ndarray[Any, np.dtype[np.uint8]]) -> Any:
        last = len(raw) - self.GRAM + 1
        wide = raw.astype(np.uint32)
        grams = wide[:last].copy()
        for i in range(1, self.GRAM):
            grams |= wide[i : last + i] << np.uint32(8 * i)
        grams *= self.FACTOR
        return grams >> np.uint32(32 - self.BITS)

    def lines(self, piece: bytes) -> Iterator[tuple[int, int]]:
        """Start and end of each line of `piece`, without its newline, that may have a word."""
        raw = np.frombuffer(piece, np.uint8)
        hits = [
            np.flatnonzero(self._table[self._hash(raw[at : at + self.BLOCK + self.GRAM - 1])]) + at
            for at in range(0, len(raw) - self.GRAM + 1, self.BLOCK)
        ]
        if not hits:
            return
        breaks = np.flatnonzero(raw == NEWLINE)
        numbers = np.unique(np.searchsorted(breaks, np.concatenate(hits)))
        starts = np.concatenate([[0], breaks + 1])[numbers]
        ends = np.concatenate([breaks, [len(raw)]])[numbers]
        yield from zip(starts.tolist(), ends.tolist(), strict=True)


def _oddness(gram: bytes) -> int:
    """How unlike ordinary text: capitals and signs count, blanks and small letters do not."""
    return sum(not (byte == 0x20 or 0x61 <= byte <= 0x7A) for byte in gram)


class Reader:
    """Looks for the lines of `shapes`."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self._by_key: dict[str, list[Shape]] = {}
        for shape in shapes:
            self._by_key.setdefault(shape.key, []).append(shape)
        self._keys = Keys(key.encode() for key in self._by_key)
        self._known: dict[bytes, Found | None] = {}

    def read(self, stream: BinaryIO) -> Iterator[Found]:
        """The known lines of a log, in order."""
        rest = b""
        while True:
            piece = stream.read(PIECE_BYTES)
            if not piece:
                yield from self._piece(rest)
                return
            whole = rest + piece
            cut = whole.rfind(b"\n") + 1
            if not cut and len(whole) > PIECE_BYTES:
                cut = len(whole)  # no line is that long; its beginning is all that is looked at
            rest = whole[cut:]
            yield from self._piece(whole[:cut])

    def _piece(self, piece: bytes) -> Iterator[Found]:
        known = self._known
        for start, end in self._keys.lines(piece):
            raw = piece[start : end if end - start < LONGEST_LINE else start + LONGEST_LINE]
            told = raw[_told_from(raw) :]
            found = known[told] if told in known else self._learn(told, raw)
            if found is not None:
                yield found

    def _learn(self, told: bytes, raw: bytes) -> Found | None:
        """What a line says that has not come lately. `told` is the line without its time."""
        line = clean(raw)
        keys = sorted((line.find(key), -len(key), key) for key in self._by_key if key in line)
        found = None
        for _, _, key in keys:
            found = match(self._by_key[key], line)
            if found is not None:
                break
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[told] = found
        return found


def _told_from(raw: bytes) -> int:
    """Where a line begins that has dmesg's time, or the journal's, before it."""
    end = raw.find(_TIME_END if raw[:1] == b"[" else _JOURNAL, 0, _PREFIX_BYTES)
    return max(end, 0)


def clean(raw: bytes) -> str:
    """A line without colours, and without newlines that the journal wrote as escapes."""
    line = raw.decode("utf-8", "replace").rstrip("\r\n ")
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    return line.replace("\\x0a", "")


def match(shapes: Iterable[Shape], line: str) -> Found | None:
    """The first of `shapes` that the line has."""
    for shape in shapes:
        fields = shape.match(line)
        if fields is not None:
            bus = _BUS.search(line)
            return Found(shape, fields, bus[1].lower() if bus else None)
    return None
