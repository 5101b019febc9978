"""A kernel port that answers from a recording, and insists on the same calls.

Requests must come in the recorded order with the recorded bytes. Where a request points to memory,
the contents are compared and not the address. Mappings are given at the recorded addresses, as
ordinary memory; what the device wrote into watched memory appears at the pause, doorbell or ioctl
at which the recorder saw it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

from rawgpu.describe.request import Request
from rawgpu.errors import BadFile, DeviceNotFound, DevicePermission, RawGpuError
from rawgpu.ioctl.memory import peek, poke
from rawgpu.ioctl.port import OPEN_FLAGS, READ_WRITE, Call, KernelPort, Protection, refused
from rawgpu.trace.record import FORMAT, readable

R = TypeVar("R", bound=Request)


class ReplayMismatch(RawGpuError):
    """A driver did something else than the recording says. `line` is the recording's, 1-based."""

    def __init__(self, message: str, *, line: int) -> None:
        self.line = line
        super().__init__(f"line {line} of the recording: {message}")


def load(lines: Iterable[str]) -> list[tuple[int, dict[str, Any]]]:
    """The entries of a recording, each with its line number. BadFile if it is none.

    A last line that was cut off, as by a crash, is left out.
    """
    texts = list(lines)
    entries = []
    for number, text in enumerate(texts, 1):
        try:
            entry = json.loads(text)
        except RecursionError:
            raise BadFile(f"line {number} of the recording is nested too deeply") from None
        except ValueError:
            if number == len(texts) and not text.endswith("\n"):
                break
            raise BadFile(f"line {number} of the recording is no JSON") from None
        if number == 1:
            if entry != FORMAT:
                raise BadFile(f"the first line of a recording is {json.dumps(FORMAT)}")
            continue
        if not isinstance(entry, dict) or not isinstance(entry.get("call"), str):
            raise BadFile(f"line {number} of the recording names no call")
        entries.append((number, entry))
    if not texts:
        raise BadFile("the recording is empty")
    return entries


class Replayer:
    """The `KernelPort` that plays the kernel's part in a recording.

    `memory` gives ordinary memory for mappings: a HostPort, whose devices are not touched.
    """

    def __init__(self, lines: Iterable[str], memory: KernelPort) -> None:
        self._entries = deque(load(lines))
        self._memory = memory
        self._now_ns = 0
        self._line = 1

    @property
    def left(self) -> int:
        """How many recorded calls have not been made yet."""
        return sum(entry["call"] != "memory" for _, entry in self._entries)

    def open(self, path: str, flags: int = OPEN_FLAGS) -> int:
        entry = self._next("open", path=path, flags=flags)
        return int(entry["fd"])

    def close(self, fd: int) -> None:
        self._next("close", fd=fd)

    def ioctl(self, fd: int, request: R) -> R:
        entry = self._take("ioctl")
        if entry.get("number") != hex(request.number):
            raise self._mismatch(f"{entry.get('request')} was sent then, and now {request!r}")
        if entry.get("fd") != fd:
            raise self._mismatch(f"{entry['request']} went to fd {entry['fd']}, and now to {fd}")
        self._compare(request, entry)
        if "errno" in entry:
            raise refused(request, int(entry["errno"]), why="as recorded")
        raw = bytes.fromhex(entry.get("got", entry["sent"]))
        here = {member.name: address for member, address, _ in request.pointers()}
        for item in entry.get("memory", ()):
            if "got" in item and item["field"] in here:
                poke(here[item["field"]], bytes.fromhex(item["got"]))
        reply = request.answered(raw).replace(**here)
        self._device_writes()
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
        entry = self._next(
            "mmap",
            size_bytes=size_bytes,
            fd=fd,
            offset=offset,
            address=address,
            protection=int(protection),
            replace=replace,
        )
        return self._map(int(entry["result"]), size_bytes, address, protection, replace)

    def _map(
        self, then: int, size_bytes: int, address: int, protection: Protection, replace: bool
    ) -> int:
        """Memory for a mapping made at `then`, where `address` was asked for; its place."""
        self._memory.mmap(size_bytes, address=then, protection=protection, replace=replace)
        return then

    def munmap(self, address: int, size_bytes: int) -> None:
        self._next("munmap", address=address, size_bytes=size_bytes)
        self._memory.munmap(address, size_bytes)

    def read(self, path: str) -> bytes:
        return bytes.fromhex(self._next("read", path=path)["data"])

    def list(self, path: str) -> tuple[str, ...]:
        return tuple(self._next("list", path=path)["names"])

    def store_doorbell(self, address: int, value: int, bits: int = 64) -> None:
        self._next("doorbell", address=address, value=value, bits=bits)
        self._device_writes()

    def pause(self) -> None:
        # Pauses are not counted: what the driver has not written yet, it may write later.
        self._driver_writes(insist=False)
        self._device_writes()

    def now_ns(self) -> int:
        """A clock that goes on 1 µs at each look, so that waits with a limit end."""
        self._now_ns += 1000
        return self._now_ns

    def _take(self, call: str) -> dict[str, Any]:
        """The next entry, which must be of this kind."""
        self._driver_writes()
        while self._entries and self._entries[0][1]["call"] == "memory":
            self._device_writes()  # what a pause that this run did not need would have shown
            self._driver_writes()
        if not self._entries:
            self._line += 1
            raise self._mismatch(f"it has ended, and now comes {call}")
        self._line, entry = self._entries.popleft()
        if entry["call"] != call:
            raise self._mismatch(f"{entry['call']} came then, and now {call}")
        return entry

    def _next(self, call: str, **arguments: Any) -> dict[str, Any]:
        """The next entry, with these arguments; raises what the kernel answered then."""
        entry = self._take(call)
        for name, value in arguments.items():
            if entry.get(name) != value:
                then = entry.get(name)
                raise self._mismatch(f"{call} had {name}={then!r}, and now {value!r}")
        if "errno" in entry:
            known = {"path", "fd", "offset", "address", "size_bytes"} & arguments.keys()
            about = Call(name=call, **{name: arguments[name] for name in known})
            raise refused(about, int(entry["errno"]), why="as recorded")
        if "refused" in entry:
            kind = DeviceNotFound if entry["refused"] == "missing" else DevicePermission
            raise kind(str(entry.get("why", "")))
        return entry

    def _compare(self, request: Request, entry: dict[str, Any]) -> None:
        then = type(request).decode(bytes.fromhex(entry["sent"]))
        pointers = {member.name: (at, size) for member, at, size in request.pointers()}
        was, now = readable(then), readable(request)
        different = [n for n in was if was[n] != now.get(n) and n not in pointers]
        if different:
            parts = [f"{name} was {was[name]!r}, is {now.get(name)!r}" for name in different]
            raise self._mismatch(f"{type(request).__name__}: {'; '.join(parts)}")
        for item in entry.get("memory", ()):
            if item["field"] not in pointers:
                raise self._mismatch(f"{type(request).__name__}.{item['field']} pointed to memory")
            at, size = pointers[item["field"]]
            data = peek(at, size)
            if data is None or data.hex() != item["sent"]:
                held = "nothing" if data is None else data.hex()
                raise self._mismatch(
                    f"{type(request).__name__}.{item['field']} pointed to {item['sent']}, "
                    f"and now to {held}"
                )

    def _driver_writes(self, *, insist: bool = True) -> None:
        """Compare what the driver wrote with what it wrote then; do not `insist`, if it may yet."""
        while self._entries:
            line, entry = self._entries[0]
            if entry["call"] != "memory" or entry["by"] != "driver":
                return
            data = bytes.fromhex(entry["data"])
            now = peek(entry["address"], len(data))
            if now != data and not insist:
                return
            self._entries.popleft()
            self._line = line
            if now != data:
                at = next((i for i, b in enumerate(data) if now is None or now[i] != b), 0)
                raise self._mismatch(
                    f"the driver wrote something else to {entry['label']}, from byte {at:#x} on"
                )

    def _device_writes(self) -> None:
        """Let the device's next writes appear."""
        while self._entries:
            line, entry = self._entries[0]
            if entry["call"] != "memory" or entry["by"] != "device":
                return
            self._entries.popleft()
            self._line = line
            if not poke(entry["address"], bytes.fromhex(entry["data"])):
                raise self._mismatch(f"{entry['label']} is not mapped any more")

    def _mismatch(self, message: str) -> ReplayMismatch:
        return ReplayMismatch(message, line=self._line)
