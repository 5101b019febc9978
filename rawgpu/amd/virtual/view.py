"""What one GPU sees of memory for one process: page tables with rights, and caches before them.

Keeps the `GpuMemory` of `dispatch.py`. In strict mode each client goes through its caches
(`caches.py`); otherwise all accesses reach memory at once. Native code reaches memory through the
window, past the caches, which are written back before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawgpu.amd.virtual.caches import CODE_BYTES, LINE_BYTES, Caches
from rawgpu.amd.virtual.dispatch import Access, Addresses, Bytes, Client, GpuPageFault
from rawgpu.amd.virtual.native_caches import NativeCaches
from rawgpu.virtual.memory import Mapping, Window, ffi, peek, poke

CACHED_CLIENTS = (Client.SCALAR, Client.VECTOR)


class GpuView:
    """A process's address space on one GPU."""

    def __init__(
        self,
        *,
        strict: bool,
        limit: int = 1 << 40,
        xccs: int = 1,
        sdma_updates_l2: bool = True,
        first: GpuView | None = None,
    ) -> None:
        self.strict = strict
        self.sdma_updates_l2 = sdma_updates_l2
        self.caches = Caches()
        self.native = NativeCaches(self)
        self.family: list[GpuView] = [self] if first is None else first.family
        """The views of all XCCs: one address space, caches of their own."""
        self._last: Mapping | None = None
        self.space: Window
        self._bytes: Bytes
        if first is not None:
            self.space, self._bytes = first.space, first._bytes
            self.family.append(self)
            return
        self.space = Window(limit)
        whole = ffi.buffer(ffi.cast("char *", self.space.delta), limit)
        self._bytes = np.frombuffer(whole, np.uint8)
        for _ in range(1, xccs):
            GpuView(strict=strict, sdma_updates_l2=sdma_updates_l2, first=self)

    @property
    def delta(self) -> int:
        return self.space.delta

    @property
    def limit(self) -> int:
        return self.space.limit

    # Page tables.

    def map(self, mapping: Mapping) -> None:
        """Raises FileExistsError where something is mapped already."""
        self.space.map(mapping)
        self._forget_last()

    def unmap(self, va: int) -> None:
        """The mapping that begins at `va` vanishes, and what L2 had of it goes to memory.

        First-level caches go by address: they keep it, also when something else is mapped there.
        """
        mapping = self.space.ranges.find(va)
        if mapping is not None:
            for part in self.family:
                part.write_back()
                part.caches.forget(mapping.va, mapping.end)
        self._forget_last()
        self.space.unmap(va)

    def _forget_last(self) -> None:
        for part in self.family:
            part._last = None
            part.native.forget()

    def close(self) -> None:
        for part in self.family:
            part._last = None
            part.native.forget()
            part._bytes = np.zeros(0, np.uint8)
        self.space.close()

    def pieces(self, size_bytes: int) -> NDArray[Any]:
        """The window as one array whose items are pieces of memory; where mapped they may be read.

        Not to be kept when page tables change.
        """
        whole: NDArray[Any] = self._bytes.view(f"V{size_bytes}")
        return whole

    def find(self, va: int, access: Access, client: Client = Client.VECTOR) -> Mapping:
        """The mapping that holds `va`; GpuPageFault where there is none or it forbids this."""
        mapping = self._last
        if mapping is None or not mapping.va <= va < mapping.end:
            mapping = self.space.ranges.find(va)
            if mapping is None:
                raise GpuPageFault(va, access, client=client)
            self._last = mapping
        if access is Access.WRITE and not mapping.writable:
            raise GpuPageFault(va, access, present=True, client=client)
        if access is Access.EXECUTE and not mapping.executable:
            raise GpuPageFault(va, access, present=True, client=client)
        return mapping

    def fault_at(self, host_address: int, access: Access) -> GpuPageFault:
        va = host_address - self.delta
        return GpuPageFault(va, access, present=self.space.ranges.find(va) is not None)

    # Scalar and block accesses.

    def read(
        self,
        va: int,
        size_bytes: int,
        client: Client = Client.VECTOR,
        *,
        past_first_level: bool = False,
    ) -> bytes:
        if not self.strict or client is Client.SDMA:
            return self._read_memory(va, size_bytes, client)
        self.find(va, Access.READ, client)  # a fault names the address, not the line
        if client in CACHED_CLIENTS and not past_first_level:
            cache = self.caches.scalar if client is Client.SCALAR else self.caches.vector
            return self._read_lines(va, size_bytes, lambda line: self._first(cache, line, client))
        if client is Client.COMMAND:
            if not self.caches.held:
                return self._read_memory(va, size_bytes, client)
            return self._read_lines(
                va,
                size_bytes,
                lambda line: self.caches.overlay(line, self._read_memory(line, LINE_BYTES, client)),
            )
        return self._read_lines(va, size_bytes, lambda line: self._l2(line, client))

    def write(self, va: int, data: bytes, client: Client = Client.VECTOR) -> None:
        if not self.strict:
            self._write_memory(va, data, client)
            return
        for line, at, start, end in _split(va, len(data)):
            mapping = self.find(line + at, Access.WRITE, client)
            piece = data[start:end]
            if client in (Client.VECTOR, Client.SCALAR) and mapping.cached:
                self.caches.write_l2(line, at, piece, self._line_fetcher(client))
            else:
                poke(mapping.host(line + at), piece)
                if client is not Client.SDMA:
                    self.caches.patch(line, at, piece)
                elif self.sdma_updates_l2:
                    for part in self.family:
                        part.caches.patch(line, at, piece)
            if client is Client.VECTOR:
                self._patch_first(line, at, piece)

    def atomic(self, va: int, size_bytes: int, change: Callable[[bytes], bytes]) -> bytes:
        mapping = self.find(va, Access.WRITE)
        if not self.strict or not mapping.cached:
            before = self._read_memory(va, size_bytes, Client.VECTOR)
            self._write_memory(va, change(before), Client.VECTOR)
            return before
        if len(self.family) > 1:  # atomics of several XCCs meet in memory
            self.write_back()
            before = self._read_memory(va, size_bytes, Client.VECTOR)
            after = change(before)
            self._write_memory(va, after, Client.VECTOR)
            for line, at, start, end in _split(va, size_bytes):
                for part in self.family:
                    part.caches.patch(line, at, after[start:end])
            return before
        before = self.read(va, size_bytes, past_first_level=True)
        self.write(va, change(before))
        return before

    def code(self, va: int, size_bytes: int) -> bytes:
        parts: list[bytes] = []
        end = va + size_bytes
        while va < end:
            page = va & -CODE_BYTES
            try:
                whole = self._code_page(page)
            except GpuPageFault as fault:
                if parts:
                    break
                raise GpuPageFault(
                    va, Access.EXECUTE, present=fault.present, client=Client.CODE
                ) from None
            part = whole[va - page : min(end - page, CODE_BYTES)]
            parts.append(part)
            va += len(part)
        return b"".join(parts)

    def window(self, va: int, size_bytes: int, access: Access = Access.READ) -> int:
        at = va
        while at < va + size_bytes:
            at = self.find(at, access).end
        self.native_begins()
        return va + self.delta if va + size_bytes <= self.limit else self.find(va, access).host(va)

    # Lanes.

    def gather(
        self, addresses: Addresses, size_bytes: int, *, past_first_level: bool = False
    ) -> Bytes:
        steps = np.arange(size_bytes, dtype=np.uint64)
        if not self.strict:
            self._check_lanes(addresses, size_bytes, Access.READ)
            plain: Bytes = self._bytes[addresses[:, None] + steps]
            return plain
        lines, places = _lines_of(addresses, size_bytes)
        cache = self.caches.vector
        parts = [
            self._l2(line, Client.VECTOR)
            if past_first_level
            else self._first(cache, line, Client.VECTOR)
            for line in lines
        ]
        whole = np.frombuffer(b"".join(parts), np.uint8)
        found: Bytes = whole[places[:, None] + steps]
        return found

    def scatter(self, addresses: Addresses, data: Bytes) -> None:
        size_bytes = data.shape[1]
        steps = np.arange(size_bytes, dtype=np.uint64)
        if not self.strict:
            self._check_lanes(addresses, size_bytes, Access.WRITE)
            self._bytes[addresses[:, None] + steps] = data
            return
        lines, places = _lines_of(addresses, size_bytes)
        for line in lines:
            self.find(line, Access.WRITE)
        whole = np.zeros(len(lines) * LINE_BYTES, np.uint8)
        mask = np.zeros(len(lines) * LINE_BYTES, np.uint8)
        where = places[:, None] + steps
        whole[where] = data
        mask[where] = 1
        for number, line in enumerate(lines):
            part = slice(number * LINE_BYTES, (number + 1) * LINE_BYTES)
            edges = np.flatnonzero(np.diff(mask[part], prepend=0, append=0).astype(np.int8))
            for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                self.write(line + start, whole[part][start:end].tobytes())

    # What packets and instructions do to caches.

    def native_begins(self) -> None:
        """Native code works on memory itself: nothing may be held back or kept."""
        caches = self.caches
        if caches.l2 or caches.l2_pages or caches.vector or caches.scalar:
            self.write_back()
            caches.clear_data()

    def write_back(self) -> None:
        """Give memory all that L2 holds back."""
        if self.caches.held:
            self.caches.write_back(self._write_back_piece)

    def invalidate(
        self, *, code: bool = False, scalar: bool = False, vector: bool = False, l2: bool = False
    ) -> None:
        """Forget what the named caches have."""
        if code:
            self.caches.code.clear()
        if scalar:
            self.caches.scalar.clear()
        if vector:
            self.caches.vector.clear()
        if l2:
            self.caches.invalidate_l2()

    # Below: lines and memory.

    def _write_back_piece(self, va: int, data: bytes) -> None:
        mapping = self.space.ranges.find(va)
        if mapping is not None:  # freed in the meantime: the data is nobody's
            poke(mapping.host(va), data)

    def _code_page(self, page: int) -> bytes:
        whole = self.caches.code.get(page) if self.strict else None
        mapping = self.find(page, Access.EXECUTE, Client.CODE)
        if whole is None:
            if not self.strict:
                return peek(mapping.host(page), CODE_BYTES)
            if mapping.cached:
                whole = self.caches.code_page(
                    page,
                    self._line_fetcher(Client.CODE),
                    lambda page: self._read_memory(page, CODE_BYTES, Client.CODE),
                )
            else:
                whole = peek(mapping.host(page), CODE_BYTES)
            self.caches.code[page] = whole
        return whole

    def _first(self, cache: dict[int, bytes], line: int, client: Client) -> bytes:
        self.find(line, Access.READ, client)
        data = cache.get(line)
        if data is None:
            data = cache[line] = self._l2(line, client)
        return data

    def _l2(self, line: int, client: Client) -> bytes:
        mapping = self.find(line, Access.READ, client)
        if not mapping.cached:
            return peek(mapping.host(line), LINE_BYTES)
        return bytes(self.caches.l2_line(line, self._line_fetcher(client)))

    def _line_fetcher(self, client: Client) -> Callable[[int], bytes]:
        return lambda line: self._read_memory(line, LINE_BYTES, client)

    def _patch_first(self, line: int, at: int, data: bytes) -> None:
        have = self.caches.vector.get(line)
        if have is not None:
            self.caches.vector[line] = have[:at] + data + have[at + len(data) :]

    def _read_lines(self, va: int, size_bytes: int, line_of: Callable[[int], bytes]) -> bytes:
        first = va & -LINE_BYTES
        whole = b"".join(line_of(line) for line in range(first, va + size_bytes, LINE_BYTES))
        return whole[va - first : va - first + size_bytes]

    def _read_memory(self, va: int, size_bytes: int, client: Client) -> bytes:
        mapping = self.find(va, Access.READ, client)
        if va + size_bytes <= mapping.end:
            return peek(mapping.host(va), size_bytes)
        head = mapping.end - va
        rest = self._read_memory(va + head, size_bytes - head, client)
        return peek(mapping.host(va), head) + rest

    def _write_memory(self, va: int, data: bytes, client: Client) -> None:
        mapping = self.find(va, Access.WRITE, client)
        head = min(len(data), mapping.end - va)
        if head < len(data):
            self._write_memory(va + head, data[head:], client)
        poke(mapping.host(va), data[:head])

    def _check_lanes(self, addresses: Addresses, size_bytes: int, access: Access) -> None:
        """Raise for the first lane that may not do this; addresses above the window raise too."""
        if not len(addresses):
            return
        low, high = int(addresses.min()), int(addresses.max()) + size_bytes
        if high <= self.limit:
            mapping = self.space.ranges.find(low)
            writable = access is not Access.WRITE or (mapping is not None and mapping.writable)
            if mapping is not None and high <= mapping.end and writable:
                return
        for address in addresses.tolist():
            self.find(address, access)
            self.find(address + size_bytes - 1, access)
        if high > self.limit:
            raise NotImplementedError(f"lanes that access {high:#x}, above the window")


def _split(va: int, size_bytes: int) -> Iterator[tuple[int, int, int, int]]:
    """Lines that a range touches: the line, where in it, and which part of the data."""
    done = 0
    while done < size_bytes:
        at = (va + done) % LINE_BYTES
        size = min(LINE_BYTES - at, size_bytes - done)
        yield va + done - at, at, done, done + size
        done += size


def _lines_of(addresses: Addresses, size_bytes: int) -> tuple[list[int], Addresses]:
    """The lines that lanes touch, ascending, and where each lane begins in them put together."""
    shift = np.uint64(LINE_BYTES.bit_length() - 1)
    first = addresses >> shift
    last = (addresses + np.uint64(size_bytes - 1)) >> shift
    lines = np.unique(np.concatenate([first, last]))
    places = np.searchsorted(lines, first).astype(np.uint64) << shift
    places += addresses & np.uint64(LINE_BYTES - 1)
    return (lines << shift).tolist(), places
