"""The path from the CPU to VRAM: what it writes through the BAR stays behind until a flush.

In strict mode the CPU's mapping of VRAM is private: a page that the CPU writes becomes its own copy
(the host kernel's copy on write), and the GPU goes on seeing memory. `sync_in`, before the GPU
runs, notes which bytes the CPU changed; `flush` gives those to memory; `sync_out`, after the GPU
ran, shows the GPU's own writes in the copied pages. Which pages are copies tells
/proc/self/pagemap.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rawgpu.virtual.memory import MADV_DONTNEED, PAGE_BYTES, Extent, advise, peek, poke, view

PAGEMAP = "/proc/self/pagemap"
PRESENT, SWAPPED, SHARED = 1 << 63, 1 << 62, 1 << 61
PAGEMAP_SCAN = 0xC0606610
IS_FILE, IS_PRESENT = 1 << 2, 1 << 3
"""_IOWR('f', 16, struct pm_scan_arg), PAGE_IS_*. Source: uapi/linux/fs.h of 6.7."""
SCAN_RANGES = 512
MODELLED_BYTES = 128 << 20
"""Larger mappings are shared at once: looking through their pages would take too long."""

Page = np.ndarray[Any, np.dtype[np.uint8]]


@functools.cache
def _pagemap() -> int:
    """The file, opened once a process: a child must open its own."""
    os.register_at_fork(after_in_child=_pagemap.cache_clear)
    return os.open(PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)


def available() -> bool:
    """Whether this host tells which pages are copies."""
    return os.access(PAGEMAP, os.R_OK)


def copied_pages(address: int, size_bytes: int) -> list[int]:
    """Offsets of the pages of a private mapping that were written."""
    ranges = (ctypes.c_uint64 * (3 * SCAN_RANGES))()
    request = struct.pack(
        "<12Q", 96, 0, address, address + size_bytes, 0, ctypes.addressof(ranges), SCAN_RANGES, 0,
        IS_FILE, IS_FILE | IS_PRESENT, 0, IS_PRESENT,
    )  # fmt: skip
    try:
        found = fcntl.ioctl(_pagemap(), PAGEMAP_SCAN, bytearray(request), True)
    except OSError:  # before Linux 6.7
        return _read_pages(address, size_bytes)
    if found == SCAN_RANGES:
        return _read_pages(address, size_bytes)
    return [
        at - address
        for number in range(found)
        for at in range(ranges[3 * number], ranges[3 * number + 1], PAGE_BYTES)
    ]


def _read_pages(address: int, size_bytes: int) -> list[int]:
    """The same, looking at every page."""
    raw = os.pread(_pagemap(), size_bytes // PAGE_BYTES * 8, address // PAGE_BYTES * 8)
    entries = np.frombuffer(raw, np.uint64)
    there = entries & np.uint64(PRESENT | SWAPPED) != 0
    own = entries & np.uint64(SHARED) == 0
    return [int(i) * PAGE_BYTES for i in np.flatnonzero(there & own)]


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

    def sync_in(self) -> None:
        """Note what the CPU wrote since the last time."""
        for at in copied_pages(self.address, self.size_bytes):
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
        self.sync_in()
        for at, copy in self.copies.items():
            host = self.extent.host + self.offset + at
            memory: Page = np.frombuffer(view(host, PAGE_BYTES), np.uint8)
            memory[copy.mask != 0] = copy.seen[copy.mask != 0]
            advise(self.address + at, PAGE_BYTES, MADV_DONTNEED)
        self.copies.clear()

    def _memory(self, at: int) -> Page:
        return np.frombuffer(peek(self.extent.host + self.offset + at, PAGE_BYTES), np.uint8)
