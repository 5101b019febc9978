"""Caches before native code, which reaches memory past them.

While native code runs, memory shows what the caches have: lines of them that differ from memory,
stale ones, are laid over it and taken off again. Afterwards a sample of what the code read goes
into the caches, and a sample of what it wrote is held back in L2; a missing invalidation or
write-back shows in those. A cache keeps few lines then: that others were evicted is no fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from rawgpu.amd.virtual.caches import CODE_BYTES, LINE_BYTES, Line
from rawgpu.virtual.memory import Mapping, peek, poke

if TYPE_CHECKING:
    from rawgpu.amd.virtual.view import GpuView

MOST_LINES = 32
"""Of each cache, kept over a run of native code."""
WORD_BYTES = 4


class NativeCaches:
    """One view's dealings with native code."""

    def __init__(self, view: GpuView) -> None:
        self.view = view
        self._shown: list[tuple[int, bytes, bytes]] = []
        """Host address, what memory has, what is laid over it."""

    def enter(self) -> None:
        """Before native code: nothing is held back, stale lines show."""
        caches = self.view.caches
        if not (caches.l2 or caches.l2_pages or caches.vector or caches.scalar):
            return
        self.view.write_back()
        for page, data in caches.l2_pages.items():
            self._show(page, data)
        for line, kept in self._lines(caches.l2):
            self._show(line, bytes(kept.data))
        for cache in (caches.vector, caches.scalar):
            for line, data in self._lines(cache):
                self._show(line, data)

    def _lines(self, cache: dict[int, Any]) -> list[tuple[int, Any]]:
        for line in list(islice(cache, max(0, len(cache) - MOST_LINES))):
            del cache[line]
        return list(cache.items())

    def _mapping(self, line: int) -> Mapping | None:
        return self.view.space.ranges.find(line)

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
        self, scalar: Iterable[int], loads: Iterable[int], stores: Iterable[tuple[int, int]]
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
        for va in scalar:
            self._sample(caches.scalar, va)
        for va in loads:
            self._sample(caches.vector, va)
        held = [place for va, size in stores if (place := self._written(va, size))]
        for _, va, data in held:  # all that memory has is read before the first word goes
            caches.write_l2(va & -LINE_BYTES, va % LINE_BYTES, data, self._fetch)
        for host, _, data in held:
            poke(host, bytes(byte ^ 0xFF for byte in data))

    def _see_writes(self) -> None:
        """What shaders write goes through L2, and updates the first level."""
        caches = self.view.caches
        for line, kept in caches.l2.items():
            mapping = self._mapping(line)
            if mapping is not None:
                kept.data[:] = peek(mapping.host(line), LINE_BYTES)
        for cache in (caches.l2_pages, caches.vector):
            for va, data in cache.items():
                mapping = self._mapping(va)
                if mapping is not None:
                    now = peek(mapping.host(va), len(data))
                    if now != data:
                        cache[va] = now

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
