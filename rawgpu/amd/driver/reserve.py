"""Addresses for GPU memory: the same for CPU and GPU, and all below 1 << 40.

A range is reserved as inaccessible pages before the kernel is asked for memory at it, so that
nothing else in the process gets it in between. Freed ranges come back late: a stale pointer then
meets a hole, not a stranger's data.
"""

from __future__ import annotations

import errno
import threading

from rawgpu.errors import KernelCallFailed, OutOfMemory, in_units
from rawgpu.ioctl.port import KernelPort, Protection

LOW, HIGH = 1 << 36, 1 << 40
PAGE_BYTES = 4096
HUGE_BYTES = 2 << 20
GAP_BYTES = 64 << 10
"""Kept free after each range: what runs past its end faults."""
SKIP_BYTES = 1 << 30
TRIES = 1024


class AddressSpace:
    """Hands out ranges in ascending order, and starts again at the bottom."""

    def __init__(self, port: KernelPort) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._next = LOW
        self._taken: dict[int, int] = {}

    def reserve(self, size_bytes: int, align_bytes: int = PAGE_BYTES) -> int:
        """An inaccessible range. OutOfMemory when there is none."""
        assert size_bytes > 0 and size_bytes % PAGE_BYTES == 0, size_bytes
        with self._lock:
            at, wrapped = self._next, False
            for _ in range(TRIES):
                at = (at + align_bytes - 1) & -align_bytes
                if at + size_bytes + GAP_BYTES > HIGH:
                    if wrapped or size_bytes > HIGH - LOW:
                        break
                    at, wrapped = LOW, True
                    continue
                try:
                    self._port.mmap(size_bytes, address=at, protection=Protection.NONE)
                except KernelCallFailed as error:
                    if error.errno == errno.ENOMEM:
                        raise self._none(size_bytes, error.message) from error
                    if error.errno != errno.EEXIST:
                        raise
                    at += min(SKIP_BYTES, max(size_bytes, HUGE_BYTES))
                    continue
                self._taken[at] = size_bytes
                self._next = at + size_bytes + GAP_BYTES
                return at
        raise self._none(size_bytes, "none is free")

    def _none(self, size_bytes: int, why: str) -> OutOfMemory:
        return OutOfMemory(
            f"no room for {in_units(size_bytes)} of addresses: GPUs share the "
            f"{in_units(HIGH - LOW)} from {LOW:#x} to {HIGH:#x} ({why})",
            requested_bytes=size_bytes,
            in_use_bytes=sum(self._taken.values()),
            limit_bytes=HIGH - LOW,
        )

    def release(self, address: int) -> None:
        """Unmap a range, whatever was mapped into it. Still taken if that is refused."""
        with self._lock:
            self._port.munmap(address, self._taken[address])
            del self._taken[address]

    @property
    def reserved(self) -> dict[int, int]:
        """Sizes by address, for leak checks."""
        return dict(self._taken)
