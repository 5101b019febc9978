"""One GPU's caches, modelled just enough that a missing flush or invalidate reads old data.

Four caches by GPU address: instructions (whole pages), scalar and vector (first level, read only),
and L2, which keeps what shaders wrote until it is written back. Fine-grained memory bypasses L2
only. There is one of each for the whole GPU: what one compute unit keeps from another is not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

LINE_BYTES = 128
CODE_BYTES = 4096

Fetch = Callable[[int], bytes]
"""A line's or page's contents by its address; raises GpuPageFault."""


@dataclass
class Line:
    """A line of L2: what it holds, and which bytes memory has not got yet."""

    data: bytearray
    dirty: bytearray | None = None


@dataclass
class Caches:
    """The contents, all empty at first."""

    code: dict[int, bytes] = field(default_factory=dict)
    scalar: dict[int, bytes] = field(default_factory=dict)
    vector: dict[int, bytes] = field(default_factory=dict)
    l2: dict[int, Line] = field(default_factory=dict)
    l2_pages: dict[int, bytes] = field(default_factory=dict)
    """Pages of which L2 has all lines and memory has the same: instructions, mostly."""
    held: set[int] = field(default_factory=set)
    """Lines of L2 that memory has not got."""

    def code_page(self, va: int, fetch: Fetch, fetch_page: Fetch) -> bytes:
        """The page at `va` as L2 has it, fetched if need be."""
        page = self.l2_pages.get(va)
        if page is None:
            lines = range(va, va + CODE_BYTES, LINE_BYTES)
            if not self.l2.keys().isdisjoint(lines):
                return b"".join(bytes(self.l2_line(line, fetch)) for line in lines)
            page = self.l2_pages[va] = fetch_page(va)
        return page

    def _unfold(self, va: int) -> None:
        """Keep the lines of a page one by one, if it is kept whole."""
        begin = va & -CODE_BYTES
        page = self.l2_pages.pop(begin, None)
        if page is not None:
            for at in range(0, CODE_BYTES, LINE_BYTES):
                self.l2[begin + at] = Line(bytearray(page[at : at + LINE_BYTES]))

    def l2_line(self, va: int, fetch: Fetch) -> bytearray:
        """The line at `va` as L2 has it, fetched if need be."""
        if self.l2_pages:
            self._unfold(va)
        line = self.l2.get(va)
        if line is None:
            line = self.l2[va] = Line(bytearray(fetch(va)))
        return line.data

    def write_l2(self, va: int, at: int, data: bytes, fetch: Fetch) -> None:
        """A shader's write into the line at `va`."""
        self.l2_line(va, fetch)
        line = self.l2[va]
        if line.dirty is None:
            line.dirty = bytearray(LINE_BYTES)
            self.held.add(va)
        line.data[at : at + len(data)] = data
        line.dirty[at : at + len(data)] = b"\1" * len(data)

    def patch(self, va: int, at: int, data: bytes) -> None:
        """Memory was written beside L2: where L2 has the line, it sees that."""
        if self.l2_pages:
            self._unfold(va)
        line = self.l2.get(va)
        if line is not None:
            line.data[at : at + len(data)] = data
            if line.dirty is not None:
                line.dirty[at : at + len(data)] = bytes(len(data))

    def overlay(self, va: int, data: bytes) -> bytes:
        """A line from memory with what L2 holds back put over it."""
        line = self.l2.get(va)
        if line is None or line.dirty is None:
            return data
        return bytes(n if d else o for n, o, d in zip(line.data, data, line.dirty, strict=True))

    def write_back(self, store: Callable[[int, bytes], None]) -> None:
        """Give memory what L2 holds back; `store` takes addresses and bytes."""
        for va in self.held:
            line = self.l2[va]
            assert line.dirty is not None, hex(va)
            for at, size in runs(line.dirty):
                store(va + at, bytes(line.data[at : at + size]))
            line.dirty = None
        self.held.clear()

    def invalidate_l2(self) -> None:
        """Forget what memory has too; what it has not stays."""
        self.l2 = {va: self.l2[va] for va in self.held}
        self.l2_pages.clear()

    def forget(self, begin: int, end: int) -> None:
        """What L2 has of these addresses is of no use any more."""
        for va in [va for va in self.l2 if begin <= va < end]:
            del self.l2[va]
            self.held.discard(va)
        for va in [va for va in self.l2_pages if begin <= va < end]:
            del self.l2_pages[va]

    def clear_data(self) -> None:
        """Lose all but instructions, dirty or not."""
        for cache in (self.scalar, self.vector, self.l2, self.l2_pages, self.held):
            cache.clear()

    def clear(self) -> None:
        """Lose everything, dirty or not: a reset."""
        self.clear_data()
        self.code.clear()


def runs(mask: bytearray) -> list[tuple[int, int]]:
    """Where ones stand in a row: start and length of each."""
    found = []
    at = mask.find(1)
    while at >= 0:
        end = mask.find(0, at)
        end = len(mask) if end < 0 else end
        found.append((at, end - at))
        at = mask.find(1, end)
    return found
