"""The door out of the process: what a driver asks of a kernel, real, virtual or replayed.

Drivers take a `KernelPort` and never know what is behind it. Each call either does what it says or
raises: `KernelCallFailed` with the decoded request and the kernel's errno, and for `open` also
`DeviceNotFound` and `DevicePermission`. A virtual kernel raises the same through `refused`.
"""

from __future__ import annotations

import errno as errnos
import os
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Protocol, TypeVar

from rawgpu.describe.request import Request
from rawgpu.errors import DeviceNotFound, DevicePermission, KernelCallFailed, RawGpuError

R = TypeVar("R", bound=Request)

OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC


class Protection(IntFlag):
    """PROT_*; what the CPU may do with pages."""

    NONE = 0
    READ = 1
    WRITE = 2
    EXEC = 4


READ_WRITE = Protection.READ | Protection.WRITE


class KernelPort(Protocol):
    """The calls. File descriptors and addresses are the port's own and go back to it only."""

    def open(self, path: str, flags: int = OPEN_FLAGS) -> int:
        """Open a device node and return its descriptor."""
        ...

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        ...

    def ioctl(self, fd: int, request: R) -> R:
        """Make a request and return it as the kernel left it; restarted when interrupted."""
        ...

    def mmap(
        self,
        size_bytes: int,
        *,
        fd: int = -1,
        offset: int = 0,
        address: int = 0,
        protection: Protection = READ_WRITE,
        replace: bool = False,
    ) -> int:
        """Map part of a device, or with `fd` -1 anonymous memory, and return where it is.

        Shared, and not inherited by child processes. At `address` if that is given: never over
        what is mapped there, unless `replace` says that it is a reservation of one's own.
        Anonymous memory without protection reserves addresses and takes no memory.
        """
        ...

    def munmap(self, address: int, size_bytes: int) -> None:
        """Unmap what `mmap` mapped."""
        ...

    def read(self, path: str) -> bytes:
        """The contents of a file in sysfs or procfs."""
        ...

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder of sysfs, procfs or /dev, sorted."""
        ...

    def store_doorbell(self, address: int, value: int, bits: int = 64) -> None:
        """Store to a doorbell, 32 or 64 bits at once. What was stored before is seen before."""
        ...

    def pause(self) -> None:
        """Called in every turn of every wait loop: a stepped virtual GPU runs here."""
        ...

    def now_ns(self) -> int:
        """Monotonic time. A stepped virtual room has its own."""
        ...


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that is no ioctl, as `KernelCallFailed.request` shows it."""

    name: str
    path: str = ""
    fd: int = -1
    offset: int = 0
    address: int = 0
    size_bytes: int = 0

    def __repr__(self) -> str:
        parts = [repr(self.path)] if self.path else []
        parts += [f"fd={self.fd}"] if self.fd >= 0 else []
        for name in ("offset", "address", "size_bytes"):
            if value := getattr(self, name):
                parts.append(f"{name}={value:#x}")
        return f"{self.name}({', '.join(parts)})"


def errno_name(number: int) -> str:
    """`EINVAL (Invalid argument)`; numbers that only kernels use are named too."""
    name = errnos.errorcode.get(number) or {524: "ENOTSUPP", 512: "ERESTARTSYS"}.get(number)
    return f"{name or 'errno'} {number} ({os.strerror(number)})"


def refused(request: Any, errno: int, *, why: str = "", hint: str | None = None) -> RawGpuError:
    """The error for a refused call; raise what it returns. `why` is added where it is known."""
    name = type(request).__name__ if isinstance(request, Request) else request.name
    text = f"{name} failed: {errno_name(errno)}"
    if why:
        text += f", {why}"
    return KernelCallFailed(f"{text}\n  in {request!r}", errno=errno, request=request, hint=hint)


def open_refused(path: str, errno: int, *, hint: str | None = None) -> RawGpuError:
    """The error for an `open` that failed; raise what it returns."""
    if errno in (errnos.ENOENT, errnos.ENXIO, errnos.ENODEV, errnos.ENOTDIR):
        return DeviceNotFound(f"{path}: {errno_name(errno)}", hint=hint or "rawgpu doctor")
    if errno in (errnos.EACCES, errnos.EPERM):
        return DevicePermission(f"{path}: {errno_name(errno)}", hint=hint or "rawgpu doctor")
    return refused(Call(name="open", path=path), errno, hint=hint)
