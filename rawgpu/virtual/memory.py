"""Memory that a CPU and several GPUs see at the same time, each with its own rights.

An `Arena` is one memory: a card's VRAM, or the system's. It is a sparse memfd, so a 24 GB card
costs what is touched. An `Extent` is an allocation in it. A `Window` is what one GPU sees: host
address space in which GPU address `va` lies at `va + delta`, inaccessible until mapped. The CPU has
a mapping of its own at the address that the driver chose (`map_host`).
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rawgpu.native import system

PAGE_BYTES = 4096
PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS = 0x01, 0x02, 0x10, 0x20
MAP_NORESERVE, MAP_FIXED_NOREPLACE = 0x4000, 0x100000
MADV_REMOVE, MADV_DONTFORK, MADV_DONTNEED = 9, 10, 4

ffi: Any = system.ffi
libc: Any = system.libc


def page_up(size_bytes: int) -> int:
    return (size_bytes + PAGE_BYTES - 1) & -PAGE_BYTES


def map_host(address: int, size_bytes: int, protection: int, flags: int, fd: int, at: int) -> int:
    """The host's mmap, never inherited by children. Raises OSError as the kernel does."""
    pointer = libc.mmap(ffi.cast("void *", address), size_bytes, protection, flags, fd, at)
    found = int(ffi.cast("intptr_t", pointer))
    if found == -1:
        raise OSError(ffi.errno, f"mmap of {size_bytes} bytes: {os.strerror(ffi.errno)}")
    if address and found != address:
        libc.munmap(ffi.cast("void *", found), size_bytes)
        raise FileExistsError(17, f"something is mapped at {address:#x}")
    libc.madvise(ffi.cast("void *", found), size_bytes, MADV_DONTFORK)
    return found


def reserve(size_bytes: int, address: int = 0) -> int:
    """Addresses without memory, at `address` in place of what is there if that is given."""
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (MAP_FIXED if address else 0)
    return map_host(address, size_bytes, PROT_NONE, flags, -1, 0)


def unmap_host(address: int, size_bytes: int) -> None:
    """The host's munmap. Raises OSError."""
    if libc.munmap(ffi.cast("void *", address), size_bytes):
        raise OSError(ffi.errno, f"munmap of {size_bytes} bytes at {address:#x}")


def advise(address: int, size_bytes: int, advice: int) -> None:
    """The host's madvise. Raises OSError."""
    if libc.madvise(ffi.cast("void *", address), size_bytes, advice):
        raise OSError(ffi.errno, f"madvise {advice} of {size_bytes} bytes at {address:#x}")


def peek(address: int, size_bytes: int) -> bytes:
    """A copy of host memory that is known to be mapped."""
    return bytes(ffi.buffer(ffi.cast("char *", address), size_bytes))


def poke(address: int, data: bytes | bytearray | memoryview) -> None:
    """Write host memory that is known to be mapped."""
    ffi.memmove(ffi.cast("char *", address), data, len(data))


def view(address: int, size_bytes: int) -> memoryview:
    """Host memory, writable, not copied."""
    return memoryview(ffi.buffer(ffi.cast("char *", address), size_bytes))


class Full(MemoryError):
    """An arena has no range of the wanted size left."""


class Arena:
    """One memory: a sparse memfd with an allocator of page ranges, first fit.

    The whole of it is mapped at `base` for the machine's own use.
    """

    def __init__(self, name: str, size_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size_bytes)
        self.base = map_host(
            0, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, self.fd, 0
        )
        self._free: list[tuple[int, int]] = [(0, size_bytes)]  # offset and size, by offset

    def alloc(self, size_bytes: int) -> Extent:
        """Pages of zeros. Raises Full."""
        size = page_up(size_bytes)
        for number, (offset, free) in enumerate(self._free):
            if free >= size:
                rest = [(offset + size, free - size)] if free > size else []
                self._free[number : number + 1] = rest
                self.used_bytes += size
                return Extent(self, offset, size)
        raise Full(f"{self.name}: no {size_bytes} bytes in one piece, {self.used_bytes} are used")

    def give_back(self, extent: Extent) -> None:
        """Wipe the range and let others have it."""
        advise(self.base + extent.offset, extent.size_bytes, MADV_REMOVE)
        self.used_bytes -= extent.size_bytes
        at = bisect.bisect(self._free, (extent.offset, 0))
        offset, end = extent.offset, extent.offset + extent.size_bytes
        if at < len(self._free) and self._free[at][0] == end:
            end += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == offset:
            at -= 1
            offset = self._free.pop(at)[0]
        self._free.insert(at, (offset, end - offset))

    def close(self) -> None:
        """Give everything back to the host; nothing may be mapped from it any more."""
        if self.fd >= 0:
            unmap_host(self.base, self.size_bytes)
            os.close(self.fd)
            self.fd = -1


class Extent:
    """A range of an arena, held by as many as `retain` it."""

    __slots__ = ("arena", "offset", "references", "size_bytes")

    def __init__(self, arena: Arena, offset: int, size_bytes: int) -> None:
        self.arena = arena
        self.offset = offset
        self.size_bytes = size_bytes
        self.references = 1

    @property
    def host(self) -> int:
        """Where the machine itself sees the range."""
        return self.arena.base + self.offset

    def retain(self) -> Extent:
        self.references += 1
        return self

    def release(self) -> None:
        """Let go; the last one gives the range back."""
        assert self.references > 0, (self.arena.name, self.offset)
        self.references -= 1
        if not self.references:
            self.arena.give_back(self)

    def map_at(
        self,
        address: int,
        size_bytes: int,
        protection: int,
        *,
        offset: int = 0,
        replace: bool = False,
        private: bool = False,
    ) -> int:
        """A mapping of part of it in the host's address space; where, if `address` is 0."""
        flags = MAP_PRIVATE if private else MAP_SHARED
        if address:
            flags |= MAP_FIXED if replace else MAP_FIXED_NOREPLACE
        fd, at = self.arena.fd, self.offset + offset
        return map_host(address, size_bytes, protection, flags, fd, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """A range of addresses and what lies there."""

    va: int
    size_bytes: int
    extent: Extent
    offset: int = 0
    """Of the mapping in the extent."""
    writable: bool = True
    executable: bool = False
    cached: bool = True
    """Whether a GPU keeps it in caches; False for fine-grained memory."""
    tag: Any = None
    """What the mapping is of: a vendor's buffer object."""

    @property
    def end(self) -> int:
        return self.va + self.size_bytes

    def host(self, va: int) -> int:
        """Where the machine itself sees `va`."""
        return self.extent.host + self.offset + va - self.va


class Ranges:
    """Mappings by address, none over another."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._items: list[Mapping] = []

    def add(self, mapping: Mapping) -> None:
        """Raises FileExistsError where it would lie over another."""
        at = bisect.bisect(self._starts, mapping.va)
        before = self._items[at - 1] if at else None
        after = self._items[at] if at < len(self._items) else None
        for other in (before, after):
            if other is not None and mapping.va < other.end and other.va < mapping.end:
                text = f"{mapping.va:#x}..{mapping.end:#x} overlaps {other.va:#x}..{other.end:#x}"
                raise FileExistsError(17, text)
        self._starts.insert(at, mapping.va)
        self._items.insert(at, mapping)

    def remove(self, va: int) -> Mapping:
        """Take out the mapping that begins at `va`; KeyError where none does."""
        at = bisect.bisect_left(self._starts, va)
        if at == len(self._starts) or self._starts[at] != va:
            raise KeyError(hex(va))
        del self._starts[at]
        return self._items.pop(at)

    def find(self, va: int) -> Mapping | None:
        """The mapping that holds `va`."""
        at = bisect.bisect(self._starts, va) - 1
        if at < 0 or va >= self._items[at].end:
            return None
        return self._items[at]

    def overlapping(self, va: int, size_bytes: int) -> list[Mapping]:
        """All mappings with an address in the range."""
        at = max(bisect.bisect(self._starts, va) - 1, 0)
        found = []
        while at < len(self._items) and self._items[at].va < va + size_bytes:
            if self._items[at].end > va:
                found.append(self._items[at])
            at += 1
        return found

    def __iter__(self) -> Iterator[Mapping]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)


class Window:
    """What one GPU sees: its mappings, and the same in host memory at `va + delta`.

    Above `limit` mappings exist as well, but not in the window: native code cannot reach them.
    """

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit = limit
        self.delta = reserve(limit)
        self.ranges = Ranges()

    def map(self, mapping: Mapping) -> None:
        """Raises FileExistsError where something is mapped already."""
        self.ranges.add(mapping)
        if mapping.end <= self.limit:
            protection = PROT_READ | (PROT_WRITE if mapping.writable else 0)
            where, offset = mapping.va + self.delta, mapping.offset
            mapping.extent.map_at(
                where, mapping.size_bytes, protection, offset=offset, replace=True
            )
        mapping.extent.retain()

    def unmap(self, va: int) -> Mapping:
        """Remove the mapping that begins at `va`: its addresses vanish."""
        mapping = self.ranges.remove(va)
        if mapping.end <= self.limit:
            reserve(mapping.size_bytes, mapping.va + self.delta)
        mapping.extent.release()
        return mapping

    def close(self) -> None:
        """Unmap everything and give the addresses back."""
        if self.delta:
            for mapping in self.ranges:
                self.unmap(mapping.va)
            unmap_host(self.delta, self.limit)
            self.delta = 0
