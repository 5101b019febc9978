"""Caches before native code, which reaches memory past them.

While native code runs, memory shows what the caches have: lines of them that differ from memory,
stale ones, are laid over it and taken off again. Afterwards a sample of what the code read goes
into the caches, and a sample of what it wrote is held back in L2; a missing invalidation or
write-back shows in those. A cache keeps few lines then: that others were evicted is no fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rawgpu.amd.virtual.caches import CODE_BYTES, LINE_BYTES, Line
from rawgpu.virtual.memory import Mapping, peek, poke

if TYPE_CHECKING:
    from rawgpu.amd.virtual.view import GpuView

T = TypeVar("T")

MOST_LINES = 32
"""Of each cache, kept over a run of native code."""
MOST_SAMPLES = 4
"""Of the places that code read, and of those it wrote, evenly chosen from what is known."""
LEAST_SAMPLES = 2
"""As many in each of several XCCs, which share a launch."""


class NativeCaches:
    """One view's dealings with native code."""

    def __init__(self, view: GpuView) -> None:
        self.view = view
        self._shown: list[tuple[int, bytes, bytes]] = []
        """Host address, what memory has, what is laid over it."""
        self._mappings: dict[int, Mapping] = {}
        """Where lines and pages of the window lie, since page tables changed last."""
        self._pieces: dict[int, Any] = {}
        """The window as an array of lines, and as one of pages."""

    def forget(self) -> None:
        """Page tables change."""
        self._mappings.clear()
        self._pieces.clear()

    def enter(self) -> None:
        """Before native code: nothing is held back, stale lines show."""
        caches = self.view.caches
        if not (caches.l2 or caches.l2_pages or caches.vector or caches.scalar):
            return
        self.view.write_back()
        for cache in (caches.l2, caches.vector, caches.scalar):
            _trim(cache)
        pages, lines = list(caches.l2_pages.items()), self._lines()
        stale = {va for va, _ in (*self._differ(pages, CODE_BYTES), *self._differ(lines))}
        if stale:
            around = {va & -CODE_BYTES for va in stale}
            for va, data in (*pages, *lines):
                if va & -CODE_BYTES in around:
                    self._show(va, bytes(data))

    def _lines(self, *, scalar: bool = True) -> list[tuple[int, bytes | bytearray]]:
        """What the caches have by lines, in the order in which accesses would ask them, last first.

        Lines of L2 are its own and not copies.
        """
        caches = self.view.caches
        lines: list[tuple[int, bytes | bytearray]]
        lines = [(va, kept.data) for va, kept in caches.l2.items()]
        lines += caches.vector.items()
        if scalar:
            lines += caches.scalar.items()
        return lines

    def _differ(
        self, kept: Sequence[tuple[int, bytes | bytearray]], size_bytes: int = LINE_BYTES
    ) -> list[tuple[int, bytes]]:
        """Which of the kept pieces memory has otherwise, and what it has."""
        known, limit = self._mappings, self.view.limit
        if any(va not in known for va, _ in kept):
            kept = [k for k in kept if k[0] < limit and self._mapping(k[0]) is not None]
        if not kept:
            return []
        pieces = self._pieces.get(size_bytes)
        if pieces is None:
            pieces = self._pieces[size_bytes] = self.view.pieces(size_bytes)
        numbers = np.fromiter((va // size_bytes for va, _ in kept), np.int64, len(kept))
        now = pieces[numbers].tobytes()
        if now == b"".join(data for _, data in kept):
            return []
        found = []
        for at, (va, data) in enumerate(kept):
            part = now[at * size_bytes : (at + 1) * size_bytes]
            if part != data:
                found.append((va, part))
        return found

    def _mapping(self, line: int) -> Mapping | None:
        found = self._mappings.get(line)
        if found is None:
            found = self.view.space.ranges.find(line)
            if found is not None and line < self.view.limit:
                self._mappings[line] = found
        return found

    def _show(self, line: int, data: bytes) -> None:
        mapping = self._mapping(line)
        if mapping is None:
            return
        host = mapping.host(line)
        now = peek(host, len(data))
        if now != data:
            self._shown.append((host, now, data))
            poke(host, data)

    def leave(
        self, scalar: Sequence[int], loads: Sequence[int], stores: Sequence[tuple[int, int]]
    ) -> None:
        """After native code, which read at `scalar` and `loads` and wrote bytes at `stores`."""
        caches = self.view.caches
        if caches.l2 or caches.l2_pages or caches.vector:
            self._see_writes()
        for host, before, shown in reversed(self._shown):
            now = peek(host, len(shown))
            if now == shown:
                poke(host, before)
            else:
                parts = zip(now, shown, before, strict=True)
                poke(host, bytes(n if n != s else b for n, s, b in parts))
        self._shown.clear()
        most = MOST_SAMPLES if len(self.view.family) == 1 else LEAST_SAMPLES
        for va in _spread(scalar, most):
            self._sample(caches.scalar, va)
        for va in _spread(loads, most):
            self._sample(caches.vector, va)
        chosen = _spread(stores, most)
        held = [place for va, size in chosen if (place := self._written(va, size))]
        for _, va, data in held:  # all that memory has is read before the first word goes
            caches.write_l2(va & -LINE_BYTES, va % LINE_BYTES, data, self._fetch)
        for host, _, data in held:
            poke(host, bytes(byte ^ 0xFF for byte in data))

    def _see_writes(self) -> None:
        """What shaders write goes through L2, and updates the first level."""
        caches = self.view.caches
        for va, now in self._differ(list(caches.l2_pages.items()), CODE_BYTES):
            caches.l2_pages[va] = now
        for va, now in self._differ(self._lines(scalar=False)):
            if va in caches.l2:
                caches.l2[va].data[:] = now
            if va in caches.vector:
                caches.vector[va] = now

    def _sample(self, cache: dict[int, bytes], va: int) -> None:
        line = va & -LINE_BYTES
        if line in cache:
            return
        mapping = self._mapping(line)
        if mapping is None:  # the address was of a lane's that did not go there
            return
        caches = self.view.caches
        if mapping.cached and (line in caches.l2 or line & -CODE_BYTES in caches.l2_pages):
            cache[line] = bytes(caches.l2_line(line, self._fetch))
            return
        data = cache[line] = peek(mapping.host(line), LINE_BYTES)
        if mapping.cached:
            caches.l2[line] = Line(bytearray(data))

    def _fetch(self, line: int) -> bytes:
        mapping = self._mapping(line)
        assert mapping is not None, hex(line)
        return peek(mapping.host(line), LINE_BYTES)

    def _written(self, va: int, size_bytes: int) -> tuple[int, int, bytes] | None:
        """Host address, address and bytes of a word to be kept in L2 alone; None where L2 may not.

        Several stores may have written one word, so nothing is changed here yet.
        """
        mapping = self._mapping(va)
        at = va % LINE_BYTES
        if mapping is None or not mapping.cached or not mapping.writable:
            return None
        if at + size_bytes > LINE_BYTES or va + size_bytes > mapping.end:
            return None
        host = mapping.host(va)
        return host, va, peek(host, size_bytes)


def _trim(cache: dict[int, Any]) -> None:
    """Evict the lines that came first, down to `MOST_LINES`."""
    for line in list(islice(cache, max(0, len(cache) - MOST_LINES))):
        del cache[line]


def _spread(places: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` of them, evenly chosen, the first one included."""
    return places if len(places) <= most else places[:: -(-len(places) // most)]
