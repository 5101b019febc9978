"""A stage's driver against a recording: says where our requests differ from those of that day.

The recorded kernel answers; the driver in this process asks. Differences are collected and the
recorded answer is given all the same, until the calls themselves come in another order. The file is
from outside: it may write only to memory that it had mapped, and never maps over anything else.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rawgpu.describe.request import Request
from rawgpu.errors import (
    BadFile,
    DeviceNotFound,
    DevicePermission,
    KernelCallFailed,
    RawGpuError,
)
from rawgpu.hwcheck.check import Check, RecordingEnds
from rawgpu.hwcheck.probe import Probe
from rawgpu.ioctl.host import HostPort
from rawgpu.ioctl.memory import peek, poke
from rawgpu.ioctl.port import KernelPort, Protection
from rawgpu.trace.record import readable
from rawgpu.trace.replay import Replayer, ReplayMismatch

if TYPE_CHECKING:
    from rawgpu.hwcheck.plan import Stage

R = TypeVar("R", bound=Request)
F = TypeVar("F", bound=Callable[..., Any])
MAX_DIFFERENCES = 40
PATIENCE = 64
"""Pauses after which memory that the driver has not written was the device's doing.

On real hardware a device writes between two looks of the recorder, which then cannot tell whose
write it was. A driver that waits has written what it will.
"""
STEP_NS = 1000
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
"""What a recording with parts missing or of other types raises."""


def _sound(call: F) -> F:
    """Say BadFile where a recording lacks what every one has, or has it of another type.

    Where it ends or breaks off, it stays so: what a driver does to clean up is not compared.
    """

    @functools.wraps(call)
    def sounded(self: StageReplayer, *words: Any, **named: Any) -> Any:
        if self.over is not None:
            raise self.over
        try:
            return call(self, *words, **named)
        except (RecordingEnds, ReplayMismatch, BadFile) as error:
            self.over = error
            raise
        except (KernelCallFailed, DeviceNotFound, DevicePermission):
            raise  # as recorded
        except (RawGpuError, *DAMAGE) as error:
            what = f"{type(error).__name__}: {error}"
            self.over = BadFile(f"line {self._line} of the recording is damaged: {what}")
            raise self.over from error

    return cast(F, sounded)


class StageReplayer(Replayer):
    """The kernel of a recording, which goes on past differences."""

    def __init__(
        self, lines: Iterable[str], memory: KernelPort, volatile: dict[str, frozenset[str]]
    ) -> None:
        super().__init__(lines, memory)
        self.differences: list[str] = []
        self.over: Exception | None = None
        """Why nothing more is compared."""
        self._volatile = volatile
        self._mapped: dict[int, int] = {}
        """Sizes of the ranges that the driver has from us, by address."""
        self._moved: dict[int, tuple[int, int]] = {}
        """Ranges that had their place from the kernel: recorded address to here and size."""
        self._waited = 0
        self.calls = 0

    # --- what differs ---------------------------------------------------------------------------

    def _differs(self, message: str) -> None:
        self.differences.append(f"line {self._line}: {message}")
        if len(self.differences) >= MAX_DIFFERENCES:
            raise self._mismatch("too many differences")

    def _take(self, call: str) -> dict[str, Any]:
        entry = self._taken(call)
        self.calls += 1
        self._waited = 0
        self._now_ns = max(self._now_ns, int(entry.get("ns", 0)))
        return entry

    def _taken(self, call: str) -> dict[str, Any]:
        self._driver_writes()
        while self._entries and self._entries[0][1]["call"] == "memory":
            self._device_writes()
            self._driver_writes()
        if not self._entries or self._entries[0][1]["call"] == "end":
            raise RecordingEnds
        return super()._take(call)

    def _compare(self, request: Request, entry: dict[str, Any]) -> None:
        then = type(request).decode(bytes.fromhex(entry["sent"]))
        pointers = {member.name: (at, size) for member, at, size in request.pointers()}
        was, now = readable(then), readable(request)
        skip = pointers.keys() | self._volatile.get(type(request).__name__, frozenset())
        for name in was:
            if was[name] != now.get(name) and name not in skip:
                self._differs(
                    f"{type(request).__name__}: {name} was {was[name]!r}, is {now.get(name)!r}"
                )
        for item in entry.get("memory", ()):
            at, size = pointers[item["field"]]
            lengths = {len(bytes.fromhex(item[key])) for key in ("sent", "got") if key in item}
            if lengths != {size}:
                raise BadFile(f"line {self._line}: {item['field']} points to {size} bytes")
            data = peek(at, size)
            if data is None or data.hex() != item["sent"]:
                held = "nothing" if data is None else data.hex()
                self._differs(
                    f"{type(request).__name__}.{item['field']} pointed to {item['sent'][:64]}, "
                    f"and now to {held[:64]}"
                )

    # --- memory ---------------------------------------------------------------------------------

    open = _sound(Replayer.open)
    close = _sound(Replayer.close)
    ioctl = _sound(Replayer.ioctl)
    read = _sound(Replayer.read)
    list = _sound(Replayer.list)
    mmap = _sound(Replayer.mmap)

    def _map(
        self, then: int, size_bytes: int, address: int, protection: Protection, replace: bool
    ) -> int:
        if address and then != address:
            raise BadFile(f"line {self._line}: mapped at {then:#x}, and asked for {address:#x}")
        if replace and not self._ours(address, size_bytes):
            raise BadFile(f"line {self._line}: a mapping over memory that is not the driver's")
        here = self._memory.mmap(
            size_bytes, address=address, protection=protection, replace=replace
        )
        if not address:
            self._moved[then] = (here, size_bytes)
        if not replace:
            self._mapped[here] = size_bytes
        return here

    @_sound
    def munmap(self, address: int, size_bytes: int) -> None:
        then = next((t for t, (h, _) in self._moved.items() if h == address), address)
        self._next("munmap", address=then, size_bytes=size_bytes)
        if self._mapped.get(address) != size_bytes:
            raise BadFile(f"line {self._line}: memory is unmapped that is not the driver's")
        del self._mapped[address]
        self._moved.pop(then, None)
        self._memory.munmap(address, size_bytes)

    def give_back(self) -> None:
        """Unmap what the driver has left: KFD's event page, and all where it broke off."""
        while self._mapped:
            self._memory.munmap(*self._mapped.popitem())

    def _ours(self, address: int, size_bytes: int) -> bool:
        starts = sorted(self._mapped)
        at = bisect_right(starts, address) - 1
        return at >= 0 and address + size_bytes <= starts[at] + self._mapped[starts[at]]

    def _here(self, address: int) -> int:
        """Where the recording's address is in this process."""
        for then, (here, size) in self._moved.items():
            if then <= address < then + size:
                return here + address - then
        return address

    @_sound
    def store_doorbell(self, address: int, value: int, bits: int = 64) -> None:
        entry = self._take("doorbell")
        if self._here(int(entry["address"])) != address:
            self._differs(f"the doorbell was {entry['address']:#x}, and is {address:#x}")
        if (entry["value"], entry["bits"]) != (value, bits):
            self._differs(f"the doorbell was rung with {entry['value']}, and now with {value}")
        self._device_writes()

    @_sound
    def pause(self) -> None:
        self._waited += 1
        if self._waited > PATIENCE and self._entries:
            self._entries[0][1]["by"] = "device"
        self._driver_writes(insist=False)
        self._device_writes()
        if not self._entries:
            return
        entry = self._entries[0][1]
        if entry["call"] == "end":
            raise RecordingEnds
        if entry["call"] != "memory":  # nothing happens until the driver's next call: that is when
            self._now_ns = max(self._now_ns, int(entry.get("ns", 0)))

    def _driver_writes(self, *, insist: bool = True) -> None:
        while self._entries:
            line, entry = self._entries[0]
            if entry["call"] != "memory" or entry["by"] != "driver":
                return
            data, at = bytes.fromhex(entry["data"]), self._here(int(entry["address"]))
            now = peek(at, len(data)) if self._ours(at, len(data)) else None
            if now != data and not insist:
                return
            self._entries.popleft()
            self._line = line
            if now is None:
                self._differs(f"{entry['label']} is not mapped now")
            elif now != data:
                first = next(i for i, b in enumerate(data) if now[i] != b)
                word = slice(first & -4, (first & -4) + 4)
                self._differs(
                    f"the driver wrote {now[word].hex()} to {entry['label']}, byte {first:#x}, "
                    f"and then {data[word].hex()}"
                )
                poke(at, data)

    def _device_writes(self) -> None:
        while self._entries:
            line, entry = self._entries[0]
            if entry["call"] != "memory" or entry["by"] != "device":
                return
            self._entries.popleft()
            self._line = line
            data, at = bytes.fromhex(entry["data"]), self._here(int(entry["address"]))
            if not self._ours(at, len(data)):
                raise BadFile(f"line {line}: the device writes to memory that is not the driver's")
            if not poke(at, data):
                self._differs(f"{entry['label']} cannot be written")

    @_sound
    def now_ns(self) -> int:
        """The recorded time, and a little more at each look, up to that of the next entry."""
        ahead = int(self._entries[0][1].get("ns", 0)) if self._entries else 0
        self._now_ns += STEP_NS
        if ahead:
            self._now_ns = max(min(self._now_ns, ahead), self._now_ns - STEP_NS)
        return self._now_ns


def replay_stage(stage: Stage, name: str, probe: Probe, path: Path, index: int) -> dict[str, Any]:
    """Run a stage's driver against a recording; what differs is among the answers."""
    from rawgpu.hwcheck.child import outcome

    def end() -> None:
        raise RecordingEnds

    with path.open(encoding="utf-8", errors="strict") as file:
        try:
            lines = file.readlines()
        except UnicodeDecodeError:
            raise BadFile(f"the recording of {stage.name} is no text") from None
    try:
        port = StageReplayer(lines, HostPort(), dict(probe.volatile))
    except RecursionError:
        raise BadFile(f"the recording of {stage.name} is nested too deeply") from None
    found = outcome(stage, Check(probe, name, port, index, stop_recording=end))
    port.give_back()
    if isinstance(port.over, RawGpuError):  # and not what the driver made of it
        kinds = [type(port.over).__name__, "RawGpuError"]
        found |= {"status": "failed", "kinds": kinds, "message": str(port.over)}
    return {**found, "differences": port.differences, "calls": port.calls, "left": port.left}
