"""libc as this row needs it: mapping memory, starting threads, signal handlers.

cffi in ABI mode, so that installing needs no compiler; `declare.py` has the declarations. Constants
are Linux's, equal on x86-64 and AArch64 unless a dictionary says otherwise.

Source: include/uapi/asm-generic/mman-common.h, bits/sigaction.h (glibc 2.36).
"""

from __future__ import annotations

import errno
import os
import platform
import sys
from typing import Any

from rawgpu.errors import OutOfMemory, UnsupportedDevice, in_units
from rawgpu.native import _libc

PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC = 0, 1, 2, 4
MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE = 0x02, 0x20, 0x4000

SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV = 4, 5, 7, 8, 11

PAGE_BYTES: int = os.sysconf("SC_PAGESIZE")
MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}.get(
    platform.machine().lower(), platform.machine().lower()
)

ffi: Any = _libc.ffi
libc: Any = ffi.dlopen(None)


def require_linux() -> None:
    """Raise UnsupportedDevice where the CPU device was never tried.

    macOS has no futex, and its ucontext keeps registers behind a pointer: both need own code.
    """
    if sys.platform != "linux":
        raise UnsupportedDevice(f"the CPU device runs on Linux; on {sys.platform} it is untried")
    if MACHINE not in ("x86_64", "aarch64"):
        raise UnsupportedDevice(f"no fault net or loader for a {MACHINE} processor")


def address_of(function: str) -> int:
    """Where libc has `function`."""
    return int(ffi.cast("uintptr_t", getattr(libc, function)))


def page_up(size_bytes: int) -> int:
    return (size_bytes + PAGE_BYTES - 1) & -PAGE_BYTES


def map_pages(size_bytes: int, protection: int, flags: int = 0) -> int:
    """Anonymous private pages. Raises OutOfMemory, else OSError as the kernel does."""
    pointer = libc.mmap(
        ffi.NULL, size_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0
    )
    address = int(ffi.cast("intptr_t", pointer))
    if address == -1:
        raise _refused("mmap", size_bytes, ffi.errno)
    return address


def _refused(call: str, size_bytes: int, number: int) -> Exception:
    """What says that the kernel refused. ENOMEM also means: too many mappings of the process."""
    text = f"{call} of {in_units(size_bytes)}: {os.strerror(number)}"
    if number != errno.ENOMEM:
        return OSError(number, text)
    return OutOfMemory(
        text,
        requested_bytes=size_bytes,
        in_use_bytes=0,
        hint="close programs that are no longer used, or raise vm.max_map_count: each program "
        "takes three mappings",
    )


def protect_pages(address: int, size_bytes: int, protection: int) -> None:
    if libc.mprotect(ffi.cast("void *", address), size_bytes, protection):
        raise _refused("mprotect", size_bytes, ffi.errno)


def unmap_pages(address: int, size_bytes: int) -> None:
    if libc.munmap(ffi.cast("void *", address), size_bytes):
        assert ffi.errno == errno.EINVAL, (address, size_bytes, ffi.errno)
        raise OSError(ffi.errno, f"munmap of {size_bytes} bytes at {address:#x}")
