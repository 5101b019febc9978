"""A kernel port that writes down all that passes through it, one JSON object a line.

    with open("launch.jsonl", "w") as file:
        port = Recorder(HostPort(), file)

Requests are written as bytes, before and after the call, and for readers by name and field. Memory
that a request points to is written too, and so is memory that the driver asks to have watched
(rings, fences): what the driver changed before each doorbell and ioctl, and what the device changed
after each ioctl and pause. That is enough for `replay.py` to stand in for the kernel.
"""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

from rawgpu.describe.request import Request, Struct, Union
from rawgpu.describe.value import show
from rawgpu.errors import DeviceNotFound, DevicePermission, KernelCallFailed
from rawgpu.ioctl.memory import peek
from rawgpu.ioctl.port import OPEN_FLAGS, READ_WRITE, KernelPort, Protection

R = TypeVar("R", bound=Request)

FORMAT = {"format": "rawgpu recording", "version": 1}
"""The first line."""

CHUNK = 4096
"""Watched memory is compared and written in pieces of this many bytes."""


@dataclass
class Watched:
    """A range of memory, and what it held when it was last looked at."""

    label: str
    address: int
    seen: bytes

    def changes(self) -> Iterator[tuple[int, bytes]]:
        """Address and contents of each piece that changed since; memory that is gone has none."""
        now = peek(self.address, len(self.seen))
        if now is None or now == self.seen:
            return
        for at in range(0, len(now), CHUNK):
            piece = now[at : at + CHUNK]
            if piece != self.seen[at : at + CHUNK]:
                yield self.address + at, piece
        self.seen = now


class Recorder:
    """The `KernelPort` that passes everything on to `port` and writes it to `file`."""

    def __init__(self, port: KernelPort, file: TextIO) -> None:
        self._port = port
        self._file = file
        self._lock = threading.Lock()
        self._watched: dict[int, Watched] = {}
        self._line(FORMAT)

    def watch(self, address: int, size_bytes: int, label: str) -> None:
        """From now on, write down what changes in this memory; all zero is taken for granted."""
        self._watched[address] = Watched(label, address, bytes(size_bytes))

    def unwatch(self, address: int) -> None:
        """Forget a range that `watch` was told of."""
        del self._watched[address]

    def open(self, path: str, flags: int = OPEN_FLAGS) -> int:
        line = {"call": "open", "path": path, "flags": flags}
        fd: int = self._call(line, lambda: self._port.open(path, flags), "fd")
        return fd

    def close(self, fd: int) -> None:
        self._call({"call": "close", "fd": fd}, lambda: self._port.close(fd))

    def ioctl(self, fd: int, request: R) -> R:
        self._look("driver")
        line: dict[str, Any] = {
            "call": "ioctl",
            "fd": fd,
            "request": type(request).__name__,
            "number": hex(request.number),
            "fields": readable(request),
            "sent": request.encode().hex(),
        }
        memory: list[dict[str, Any]] = []
        for member, address, size in request.pointers():
            before = peek(address, size)
            if before is not None:
                memory.append({"field": member.name, "address": address, "sent": before.hex()})
        try:
            reply = self._port.ioctl(fd, request)
        except KernelCallFailed as error:
            self._line({**line, "memory": memory, **failure(error)})
            raise
        for item in memory:
            after = peek(item["address"], len(item["sent"]) // 2)
            if after is not None and after.hex() != item["sent"]:
                item["got"] = after.hex()
        got = reply.encode().hex()
        if got != line["sent"]:
            line["got"] = got
            before_fields = line["fields"]
            line["reply"] = {
                name: text
                for name, text in readable(reply).items()
                if before_fields.get(name) != text
            }
        self._line({**line, "memory": memory} if memory else line)
        self._look("device")
        return reply

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
        line = {
            "call": "mmap",
            "size_bytes": size_bytes,
            "fd": fd,
            "offset": offset,
            "address": address,
            "protection": int(protection),
            "replace": replace,
        }
        found: int = self._call(
            line,
            lambda: self._port.mmap(
                size_bytes,
                fd=fd,
                offset=offset,
                address=address,
                protection=protection,
                replace=replace,
            ),
            "result",
        )
        return found

    def munmap(self, address: int, size_bytes: int) -> None:
        for start in [a for a in self._watched if address <= a < address + size_bytes]:
            self.unwatch(start)
        line = {"call": "munmap", "address": address, "size_bytes": size_bytes}
        self._call(line, lambda: self._port.munmap(address, size_bytes))

    def read(self, path: str) -> bytes:
        data: bytes = self._call(
            {"call": "read", "path": path}, lambda: self._port.read(path), "data"
        )
        return data

    def list(self, path: str) -> tuple[str, ...]:
        names: tuple[str, ...] = self._call(
            {"call": "list", "path": path}, lambda: self._port.list(path), "names"
        )
        return names

    def store_doorbell(self, address: int, value: int, bits: int = 64) -> None:
        self._look("driver")
        self._line({"call": "doorbell", "address": address, "value": value, "bits": bits})
        self._port.store_doorbell(address, value, bits)
        self._look("device")

    def pause(self) -> None:
        self._look("driver")
        self._port.pause()
        self._look("device")

    def now_ns(self) -> int:
        return self._port.now_ns()

    def _call(self, line: dict[str, Any], call: Any, result: str = "") -> Any:
        """Make a call that is no ioctl, and write it down with its result or its errno."""
        try:
            value = call()
        except (KernelCallFailed, DeviceNotFound, DevicePermission) as error:
            self._line({**line, **failure(error)})
            raise
        if result:
            line = {**line, result: value.hex() if isinstance(value, bytes) else value}
        self._line(line)
        return value

    def _look(self, by: str) -> None:
        """Write down what changed in watched memory; `by` is who can have changed it."""
        for watched in self._watched.values():
            for address, data in watched.changes():
                self._line(
                    {
                        "call": "memory",
                        "by": by,
                        "label": watched.label,
                        "address": address,
                        "data": data.hex(),
                    }
                )

    def _line(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":"))
        with self._lock:
            self._file.write(text + "\n")
            self._file.flush()


def failure(error: Exception) -> dict[str, Any]:
    """What a line says of a refused call."""
    if isinstance(error, KernelCallFailed):
        return {"errno": error.errno}
    kind = "missing" if isinstance(error, DeviceNotFound) else "forbidden"
    return {"refused": kind, "why": str(error)}


def readable(value: Struct) -> dict[str, Any]:
    """A struct's fields for a reader of the file: numbers, names, and structs in structs."""
    result: dict[str, Any] = {}
    for name in value.field_names():
        item = getattr(value, name)
        if isinstance(item, (enum.Enum, bytes)):
            result[name] = show(item)
        elif isinstance(item, Union):
            result[name] = item.raw.hex()
        elif isinstance(item, Struct):
            result[name] = readable(item)
        elif isinstance(item, tuple):
            result[name] = [readable(x) if isinstance(x, Struct) else x for x in item]
        elif item is not None:
            result[name] = item
    return result
