"""This process's memory by address, for those who stand where a kernel stands.

A virtual kernel reads the arrays that a request points to, and the recorder saves them. Addresses
come from outside, so each is tried, through /proc/self/mem: what is not mapped gives None or False
where a kernel would answer EFAULT. (A kernel also refuses to write to pages that are mapped
read-only; this way writes them.)
"""

from __future__ import annotations

import functools
import os


@functools.cache
def _memory() -> int:
    """/proc/self/mem, opened once a process: a child that was forked must open its own."""
    fd = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    os.register_at_fork(after_in_child=_memory.cache_clear)
    return fd


def peek(address: int, size_bytes: int) -> bytes | None:
    """A copy of memory; None unless all of it is mapped."""
    try:
        data = os.pread(_memory(), size_bytes, address)
    except (OSError, OverflowError):
        return None
    return data if len(data) == size_bytes else None


def poke(address: int, data: bytes | bytearray | memoryview) -> bool:
    """Write to memory; False, with a part perhaps written, unless all of it is mapped."""
    try:
        return os.pwrite(_memory(), data, address) == len(data)
    except (OSError, OverflowError):
        return False
