"""The same kernel for programs that speak in numbers: ioctls as request number and address.

A foreign driver's file layer is pointed here. Each call returns what libc would, and a negative
errno for a refusal. Such programs ring doorbells with plain stores: use a threaded room.
"""

from __future__ import annotations

import errno
from typing import Any

from rawgpu.amd.virtual.port import KfdFile, Port
from rawgpu.describe.request import Request, split_number
from rawgpu.errors import DeviceNotFound, DevicePermission, KernelCallFailed
from rawgpu.ioctl.memory import peek, poke
from rawgpu.ioctl.port import OPEN_FLAGS, Protection


class ForeignPort:
    """A port's calls as libc has them."""

    def __init__(self, port: Port) -> None:
        self.port = port

    def open(self, path: str) -> int:
        """A descriptor, or a negative errno."""
        try:
            return self.port.open(path, OPEN_FLAGS)
        except DeviceNotFound:
            return -errno.ENOENT
        except DevicePermission:
            return -errno.EPERM
        except KernelCallFailed as error:
            return -error.errno

    def close(self, fd: int) -> int:
        return self._try(lambda: self.port.close(fd) or 0)

    def ioctl(self, fd: int, number: int, address: int) -> int:
        """Make the request whose bytes are at `address`, and write the answer there."""
        _, _, _, size = split_number(number)
        machine = self.port.machine.kernel
        kfd = isinstance(self.port.files.get(fd), KfdFile)
        kind = (machine.abi if kfd else machine.drm).by_number(number)
        if kind is None:
            return -(errno.ENOTTY if kfd else errno.EINVAL)
        raw = peek(address, size)
        if raw is None:
            return -errno.EFAULT
        request = kind.decode(raw)
        return self._try(lambda: self._answer(fd, request, address, size))

    def _answer(self, fd: int, request: Request, address: int, size: int) -> int:
        reply = self.port.ioctl(fd, request)
        data = reply.encode()
        return 0 if poke(address, data[:size]) else -errno.EFAULT

    def mmap(self, address: int, size_bytes: int, protection: int, fd: int, offset: int) -> int:
        """Where it is mapped, or a negative errno. Replaces what is at `address`, as MAP_FIXED."""
        return self._try(
            lambda: self.port.mmap(
                size_bytes,
                fd=fd,
                offset=offset,
                address=address,
                protection=Protection(protection),
                replace=address != 0,
            )
        )

    def munmap(self, address: int, size_bytes: int) -> int:
        return self._try(lambda: self.port.munmap(address, size_bytes) or 0)

    def _try(self, call: Any) -> int:
        try:
            return int(call())
        except KernelCallFailed as error:
            return -error.errno
