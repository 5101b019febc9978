"""The real kernel: libc through cffi in ABI mode, so that installing needs no compiler.

Interrupted calls are made again, with the struct that the kernel left: KFD writes the time that is
left, and how far it came, into it. So are, for a while, calls that the kernel asks to try again.
Everything else that fails is raised, decoded.
"""

from __future__ import annotations

import errno as errnos
import grp
import os
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from rawgpu.describe.request import Request
from rawgpu.errors import UnsupportedDevice
from rawgpu.ioctl import _libc
from rawgpu.ioctl.port import OPEN_FLAGS, READ_WRITE, Call, Protection, open_refused, refused
from rawgpu.native.code import native_code

R = TypeVar("R", bound=Request)

MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS = 0x01, 0x02, 0x10, 0x20
MAP_NORESERVE, MAP_FIXED_NOREPLACE = 0x4000, 0x100000
MADV_DONTFORK = 10
"""Linux's, the same on x86-64 and AArch64. Source: uapi/asm-generic/mman-common.h."""

INTERRUPTS = 10_000
"""How often one call is made again. Signals that keep coming faster than it can finish end it."""

AGAINS, AGAIN_S = 100, 1e-3
"""How often, and after how long, a call is made again that gave EAGAIN: the kernel has to wait for
pages or another process. Source: libhsakmt's kmtIoctl, libdrm's drmIoctl, which never give up.
"""

SPINS = 64
"""Calls of `pause` before the first sleep, which costs 50 µs and more."""

ffi: Any = _libc.ffi


class Libc:
    """The functions of libc, and the errno that the last of them left. Tests put another here."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise UnsupportedDevice(f"GPU drivers by ioctl are Linux's; this is {sys.platform}")
        library: Any = ffi.dlopen(None)
        self.open: Callable[..., int] = library.open
        self.close: Callable[..., int] = library.close
        self.ioctl: Callable[..., int] = library.ioctl
        self.mmap: Callable[..., Any] = library.mmap
        self.munmap: Callable[..., int] = library.munmap
        self.madvise: Callable[..., int] = library.madvise

    @property
    def errno(self) -> int:
        return int(ffi.errno)


class HostPort:
    """The `KernelPort` of this machine."""

    def __init__(self, libc: Any = None) -> None:
        self._libc = Libc() if libc is None else libc
        self._pauses = 0

    def open(self, path: str, flags: int = OPEN_FLAGS) -> int:
        fd = self._restarted(lambda: self._libc.open(os.fsencode(path), flags, 0))
        if fd < 0:
            errno = self._libc.errno
            raise open_refused(path, errno, hint=advice(path, errno))
        return fd

    def close(self, fd: int) -> None:
        # Not made again after EINTR: Linux has closed the descriptor by then.
        if self._libc.close(fd) < 0 and self._libc.errno != errnos.EINTR:
            raise refused(Call(name="close", fd=fd), self._libc.errno)

    def ioctl(self, fd: int, request: R) -> R:
        sent = request.encode()
        argument = ffi.new("char[]", max(len(sent), 1))
        ffi.memmove(argument, sent, len(sent))
        number = request.number
        ioctl = self._libc.ioctl
        result = ioctl(fd, number, argument)
        if result < 0 and self._libc.errno in (errnos.EINTR, errnos.EAGAIN):
            result = self._restarted(lambda: ioctl(fd, number, argument))
        if result < 0:
            errno = self._libc.errno
            left = request.answered(ffi.buffer(argument, len(sent))[:])
            raise refused(request, errno, why=_progress(request, left))
        return request.answered(ffi.buffer(argument, len(sent))[:])

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
        flags = MAP_SHARED if fd >= 0 else MAP_PRIVATE | MAP_ANONYMOUS
        if not protection:
            flags |= MAP_NORESERVE
        if address:
            flags |= MAP_FIXED if replace else MAP_FIXED_NOREPLACE
        call = Call(name="mmap", fd=fd, offset=offset, address=address, size_bytes=size_bytes)
        # The kernel takes the offset as a bit pattern; off_t is signed, and KFD's have bit 63 set.
        signed = offset - (1 << 64) if offset >> 63 else offset
        pointer = self._libc.mmap(
            ffi.cast("void *", address), size_bytes, int(protection), flags, fd, signed
        )
        found = int(ffi.cast("intptr_t", pointer))
        if found == -1:
            why = "something is mapped there" if self._libc.errno == errnos.EEXIST else ""
            raise refused(call, self._libc.errno, why=why)
        if address and found != address:
            # Kernels before 4.17 take the address of MAP_FIXED_NOREPLACE as a wish.
            self._libc.munmap(ffi.cast("void *", found), size_bytes)
            raise refused(call, errnos.EEXIST, why="something is mapped there")
        if self._libc.madvise(ffi.cast("void *", found), size_bytes, MADV_DONTFORK) < 0:
            errno = self._libc.errno
            if not replace:
                self._libc.munmap(ffi.cast("void *", found), size_bytes)
            raise refused(call, errno, why="MADV_DONTFORK was refused")
        return found

    def munmap(self, address: int, size_bytes: int) -> None:
        if self._libc.munmap(ffi.cast("void *", address), size_bytes) < 0:
            call = Call(name="munmap", address=address, size_bytes=size_bytes)
            raise refused(call, self._libc.errno)

    def read(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise refused(Call(name="read", path=path), error.errno or errnos.EIO) from None

    def list(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(path)))
        except OSError as error:
            raise refused(Call(name="list", path=path), error.errno or errnos.EIO) from None

    def store_doorbell(self, address: int, value: int, bits: int = 64) -> None:
        code = native_code()
        code.fence_device()
        if bits == 64:
            code.store64(address, value)
        else:
            assert bits == 32, bits
            code.store32(address, value)

    def pause(self) -> None:
        """Give the processor away for a moment; every so often for longer."""
        self._pauses += 1
        time.sleep(0 if self._pauses % SPINS else 20e-6)

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def _restarted(self, call: Callable[[], int]) -> int:
        """The first result that is neither an interrupt nor "try again", within limits."""
        again = 0
        for _ in range(INTERRUPTS):
            result = call()
            if result >= 0:
                break
            if self._libc.errno == errnos.EAGAIN and again < AGAINS:
                again += 1
                time.sleep(AGAIN_S)
            elif self._libc.errno != errnos.EINTR:
                break
        return result


def _progress(sent: Request, left: Request) -> str:
    """What the kernel wrote before it refused: how many of several were done."""
    for name in ("n_success",):
        before, after = getattr(sent, name, None), getattr(left, name, None)
        if after is not None and after != before:
            return f"{name} is {after} by now"
    return ""


def advice(path: str, errno: int) -> str | None:
    """What to do about a device node that cannot be opened; None where nothing is known."""
    if errno in (errnos.EACCES, errnos.EPERM):
        try:
            node = os.stat(path)
        except OSError:
            return f"the folder of {path} may not be entered; is this a container?"
        if errno == errnos.EPERM:
            return f"pass {path} into the container; its device rules refuse the node"
        try:
            group = grp.getgrgid(node.st_gid).gr_name
        except KeyError:
            return f"{path} belongs to group {node.st_gid}, which has no name here: pass it in"
        if node.st_mode & stat.S_IRGRP and node.st_gid not in {os.getegid(), *os.getgroups()}:
            return f"sudo usermod -aG {group} $USER, then log in again"
        return f"ls -l {path}: neither you nor group {group} may read and write it"
    if errno == errnos.ENOENT:
        return f"load the kernel driver, or pass {path} into the container"
    if errno == errnos.ENOMEM:
        return "the driver has no room for another process, or did not start up: read dmesg"
    if errno == errnos.EINVAL:
        return "the driver refused this process: a container without the GPU's other nodes?"
    return None
