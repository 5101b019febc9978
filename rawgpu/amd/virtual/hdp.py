"""The path from the CPU to VRAM: what it writes through the BAR stays behind until a flush.

In strict mode the CPU's mapping of VRAM is private: a page that the CPU writes becomes its own copy
(the host kernel's copy on write), and the GPU goes on seeing memory. `Bars.sync_in`, before the GPU
runs, notes which bytes the CPU changed; `flush` gives those to memory; `sync_out`, after the GPU
ran, shows the GPU's own writes in the copied pages. Which pages are copies tells
/proc/self/pagemap.
"""

from __future__ import annotations

import bisect
import ctypes
import fcntl
import functools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rawgpu.virtual.memory import (
    MADV_DONTNEED,
    PAGE_BYTES,
    PROT_READ,
    PROT_WRITE,
    Extent,
    advise,
    peek,
    poke,
    view,
)

PAGEMAP = "/proc/self/pagemap"
PRESENT, SWAPPED, SHARED = 1 << 63, 1 << 62, 1 << 61
PAGEMAP_SCAN = 0xC0606610
IS_FILE, IS_PRESENT = 1 << 2, 1 << 3
"""_IOWR('f', 16, struct pm_scan_arg), PAGE_IS_*. Source: uapi/linux/fs.h of 6.7."""
SCAN_RANGES = 512
MODELLED_BYTES = 128 << 20
"""Larger mappings are shared at once: looking through their pages would take too long."""
NEAR_BYTES = 16 << 20
"""Mappings no farther apart than this are looked through in one request."""

Page = np.ndarray[Any, np.dtype[np.uint8]]


@functools.cache
def _pagemap() -> int:
    """The file, opened once a process: a child must open its own."""
    os.register_at_fork(after_in_child=_pagemap.cache_clear)
    return os.open(PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)


def available() -> bool:
    """Whether this host tells which pages are copies."""
    return os.access(PAGEMAP, os.R_OK)


class Scanner:
    """Asks which pages of some private mappings were written; its request is made once."""

    def __init__(self, address: int, end: int) -> None:
        self._address, self._end = address, end
        self._ranges = (ctypes.c_uint64 * (3 * SCAN_RANGES))()
        where = ctypes.addressof(self._ranges)
        self._request = struct.pack(
            "<12Q", 96, 0, address, end, 0, where, SCAN_RANGES, 0,
            IS_FILE, IS_FILE | IS_PRESENT, 0, IS_PRESENT,
        )  # fmt: skip

    def pages(self) -> list[int]:
        """Addresses of the pages between the mappings' begin and end that are copies."""
        try:
            found = fcntl.ioctl(_pagemap(), PAGEMAP_SCAN, bytearray(self._request), True)
        except OSError:  # before Linux 6.7
            found = SCAN_RANGES
        if found == SCAN_RANGES:
            return _read_pages(self._address, self._end - self._address)
        return [
            at
            for number in range(found)
            for at in range(self._ranges[3 * number], self._ranges[3 * number + 1], PAGE_BYTES)
        ]


def _read_pages(address: int, size_bytes: int) -> list[int]:
    """Addresses of such pages, looking at every one."""
    raw = os.pread(_pagemap(), size_bytes // PAGE_BYTES * 8, address // PAGE_BYTES * 8)
    entries = np.frombuffer(raw, np.uint64)
    there = entries & np.uint64(PRESENT | SWAPPED) != 0
    own = entries & np.uint64(SHARED) == 0
    return [address + int(i) * PAGE_BYTES for i in np.flatnonzero(there & own)]


@dataclass
class Copy:
    """One page that is the CPU's own for now."""

    seen: Page
    """The CPU's page when it was last looked at."""
    memory: Page
    """The memory's page when it was last looked at."""
    mask: Page
    """Bytes that the CPU wrote and memory has not got."""


@dataclass(eq=False)
class Bar:
    """The CPU's mapping of some VRAM."""

    address: int
    size_bytes: int
    extent: Extent
    offset: int
    copies: dict[int, Copy] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.address + self.size_bytes

    def look_at(self, at: int) -> None:
        """Note what the CPU wrote to a page, which is a copy, since the last time."""
        page = np.frombuffer(peek(self.address + at, PAGE_BYTES), np.uint8)
        copy = self.copies.get(at)
        if copy is None:
            memory = self._memory(at)
            copy = self.copies[at] = Copy(memory, memory, np.zeros(PAGE_BYTES, np.uint8))
        copy.mask |= (page != copy.seen).astype(np.uint8)
        copy.seen = page

    def sync_out(self) -> None:
        """Show what the GPU wrote since the last time."""
        for at, copy in self.copies.items():
            now = self._memory(at)
            changed = (now != copy.memory) & (copy.mask == 0)
            if changed.any():
                copy.seen = np.where(changed, now, copy.seen)
                poke(self.address + at, copy.seen.tobytes())
            copy.memory = now

    def flush(self) -> None:
        """Give memory what the CPU wrote, and see memory itself again."""
        for at in self._give():
            advise(self.address + at, PAGE_BYTES, MADV_DONTNEED)

    def share(self) -> None:
        """Give memory what the CPU wrote, and see memory itself from now on."""
        self._give()
        self.extent.map_at(
            self.address, self.size_bytes, PROT_READ | PROT_WRITE, offset=self.offset, replace=True
        )

    def _give(self) -> list[int]:
        """Give memory what the CPU wrote; the pages that were copies."""
        for at, copy in self.copies.items():
            host = self.extent.host + self.offset + at
            memory: Page = np.frombuffer(view(host, PAGE_BYTES), np.uint8)
            memory[copy.mask != 0] = copy.seen[copy.mask != 0]
        given = list(self.copies)
        self.copies.clear()
        return given

    def _memory(self, at: int) -> Page:
        return np.frombuffer(peek(self.extent.host + self.offset + at, PAGE_BYTES), np.uint8)


class Bars:
    """All such mappings of a GPU."""

    def __init__(self) -> None:
        self._bars: list[Bar] = []
        """By address."""
        self._scanners: list[Scanner] | None = None

    def __iter__(self) -> Iterator[Bar]:
        return iter(self._bars)

    def __len__(self) -> int:
        return len(self._bars)

    def __contains__(self, bar: object) -> bool:
        return bar in self._bars

    def append(self, bar: Bar) -> None:
        bisect.insort(self._bars, bar, key=lambda bar: bar.address)
        self._scanners = None

    def remove(self, bar: Bar) -> None:
        self._bars.remove(bar)
        self._scanners = None

    def sync_in(self) -> None:
        """Note what the CPU wrote since the last time."""
        if self._scanners is None:
            self._scanners = [Scanner(first.address, last.end) for first, last in self._near()]
        for scanner in self._scanners:
            for address in scanner.pages():
                # Where no mapping of ours is the page is another's: not file-backed memory.
                number = bisect.bisect(self._bars, address, key=lambda bar: bar.address)
                bar = self._bars[number - 1]
                if number and address < bar.end:
                    bar.look_at(address - bar.address)

    def sync_out(self) -> None:
        """Show what the GPU wrote since the last time."""
        for bar in self._bars:
            if bar.copies:
                bar.sync_out()

    def flush(self) -> None:
        """Give memory what the CPU wrote."""
        self.sync_in()
        for bar in self._bars:
            if bar.copies:
                bar.flush()

    def share(self) -> None:
        """Hold nothing back from now on."""
        self.sync_in()
        for bar in self._bars:
            bar.share()
        self._bars.clear()
        self._scanners = None

    def _near(self) -> Iterator[tuple[Bar, Bar]]:
        """First and last of mappings that lie near each other."""
        first = last = None
        for bar in self._bars:
            if first is None or last is None or bar.address - last.end > NEAR_BYTES:
                if first is not None and last is not None:
                    yield first, last
                first = bar
            last = bar
        if first is not None and last is not None:
            yield first, last
