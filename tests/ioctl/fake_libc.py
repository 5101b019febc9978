"""A libc whose calls return what a test wrote down beforehand."""

from __future__ import annotations

import errno as errnos
from collections import deque
from collections.abc import Callable
from typing import Any

from rawgpu.ioctl.host import ffi

Answer = int | Callable[[Any], int]


class FakeLibc:
    """Each call takes the next of `answers`: an errno to fail with, 0, or a function.

    The function is given what the call was about, for ioctl a buffer of the argument that it may
    write to, and returns an errno or 0.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers = deque(answers)
        self.calls: list[tuple[Any, ...]] = []
        self.errno = 0

    def _answer(self, about: Any, call: tuple[Any, ...]) -> int:
        self.calls.append(call)
        answer = self.answers.popleft() if self.answers else 0
        self.errno = answer(about) if callable(answer) else answer
        return -1 if self.errno else 0

    def open(self, path: bytes, flags: int, mode: int) -> int:
        return self._answer(path, ("open", path, flags)) or 7

    def close(self, fd: int) -> int:
        return self._answer(fd, ("close", fd))

    def ioctl(self, fd: int, number: int, argument: Any) -> int:
        data = ffi.buffer(argument, number >> 16 & 0x3FFF)
        return self._answer(data, ("ioctl", fd, number, bytes(data)))

    def mmap(self, address: Any, size: int, protection: int, flags: int, fd: int, at: int) -> Any:
        wanted = int(ffi.cast("uintptr_t", address))
        result = self._answer(wanted, ("mmap", wanted, size, protection, flags, fd, at))
        return ffi.cast("void *", -1 if result else wanted or 0x10000)

    def munmap(self, address: Any, size: int) -> int:
        at = int(ffi.cast("uintptr_t", address))
        return self._answer(at, ("munmap", at, size))

    def madvise(self, address: Any, size: int, advice: int) -> int:
        at = int(ffi.cast("uintptr_t", address))
        return self._answer(at, ("madvise", at, size, advice))


EINTR = errnos.EINTR
