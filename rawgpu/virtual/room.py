"""A room of virtual machines: which GPUs there are, and who asks for them.

    with Room("gfx1100*2,gfx942", seed=7) as room:
        ...                                     # drivers find the GPUs as they find real ones

A vendor's virtual device registers a `Builder`; a vendor's `discover` asks `ports(vendor)` besides
the host's. The environment's `RAWGPU_VIRTUAL` makes a room that lasts as long as the process. Rooms
nest; the innermost counts.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from rawgpu.errors import UnsupportedDevice
from rawgpu.ioctl.port import KernelPort
from rawgpu.virtual.clock import Clock, HostClock, SteppedClock
from rawgpu.virtual.faults import Faults
from rawgpu.virtual.schedule import Chance

ENVIRONMENT, SEED_ENVIRONMENT = "RAWGPU_VIRTUAL", "RAWGPU_SEED"


class VirtualMachine(Protocol):
    """One vendor's GPUs in a room, behind one kernel."""

    @property
    def port(self) -> KernelPort: ...

    def close(self) -> None:
        """Give all memory back to the host."""
        ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a builder gets."""

    names: tuple[str, ...]
    """The vendor's GPUs, in order, with `*` expanded."""
    chance: Chance
    clock: Clock
    faults: Faults
    strict: bool
    threaded: bool = False
    """Whether GPUs run beside the program, in host time, and not in its calls."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The vendor's own: kernel versions, profiles."""


Builder = Callable[[Setting], VirtualMachine]


@dataclass(frozen=True)
class Maker:
    """A vendor that can build virtual GPUs, and the names it knows."""

    vendor: str
    knows: Callable[[str], bool]
    build: Builder


_makers: dict[str, Maker] = {}
_rooms: list[Room] = []


def register(vendor: str, knows: Callable[[str], bool], build: Builder) -> None:
    """Called by a vendor's virtual package when it is imported."""
    _makers[vendor] = Maker(vendor, knows, build)


_ITEM = re.compile(r"([A-Za-z0-9_.:-]+?)(?:\*(\d{1,2}))?")


def parse(spec: str) -> list[str]:
    """`gfx1100*2,gfx942` as names, one a GPU."""
    names: list[str] = []
    for item in filter(None, (part.strip() for part in spec.split(","))):
        match = _ITEM.fullmatch(item)
        if match is None or match[2] == "0":
            raise UnsupportedDevice(
                f"{item!r} names no virtual GPU", hint=f"{ENVIRONMENT}=gfx1100*2,gfx942"
            )
        names += [match[1]] * int(match[2] or 1)
    return names


class Closeable(Protocol):
    """A device, as far as rooms care."""

    def close(self) -> None: ...


class Room:
    """Virtual machines that drivers find while the room is entered. A context manager.

    Stepped unless `threaded`, which programs need that ring doorbells with plain stores. Other
    options go to the vendors' builders: `kernel="6.6"`, `large_bar=False`, …
    """

    def __init__(
        self,
        spec: str,
        *,
        seed: int | None = None,
        strict: bool = True,
        threaded: bool = False,
        **options: Any,
    ) -> None:
        self.spec = spec
        self.seed = int(os.environ.get(SEED_ENVIRONMENT, "0")) if seed is None else seed
        self.strict = strict
        self.faults = Faults()
        self.threaded = threaded
        self.clock: Clock = HostClock() if threaded else SteppedClock()
        self.options = options
        self.machines: dict[str, VirtualMachine] = {}
        self.devices: weakref.WeakSet[Closeable] = weakref.WeakSet()
        """What was opened here, to be closed before the machines are."""
        self.watchers: list[Callable[[], None]] = []
        """Called when the names of devices mean others: after entering, and on leaving."""
        self._names = parse(spec)

    def __enter__(self) -> Self:
        by_vendor: dict[str, list[str]] = {}
        for name in self._names:
            by_vendor.setdefault(_maker(name).vendor, []).append(name)
        for vendor, names in by_vendor.items():
            setting = Setting(
                names=tuple(names),
                chance=Chance(self.seed).fork(vendor),
                clock=self.clock,
                faults=self.faults,
                strict=self.strict,
                threaded=self.threaded,
                options=self.options,
            )
            self.machines[vendor] = _makers[vendor].build(setting)
        _rooms.append(self)
        for watcher in tuple(self.watchers):
            watcher()
        return self

    def __exit__(self, *exc: object) -> None:
        """Close what was opened here and is still open, then the machines."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.machines.clear)
            for machine in self.machines.values():
                stack.callback(machine.close)
            stack.callback(_rooms.remove, self)
            for watcher in tuple(self.watchers):
                stack.callback(watcher)
            for device in tuple(self.devices):
                stack.callback(device.close)

    def port(self, vendor: str) -> KernelPort:
        """The kernel that serves this vendor's GPUs; KeyError where the room has none."""
        return self.machines[vendor].port


def _maker(name: str) -> Maker:
    for maker in _makers.values():
        if maker.knows(name):
            return maker
    vendors = ", ".join(sorted(_makers)) or "none is loaded"
    raise UnsupportedDevice(
        f"no virtual GPU is called {name!r} (vendors: {vendors})",
        hint="names are the compiler's, such as gfx1100 or gfx942",
    )


def current() -> Room | None:
    """The innermost room that is entered, or the one that the environment asks for."""
    if _rooms:
        return _rooms[-1]
    spec = os.environ.get(ENVIRONMENT, "")
    if not spec:
        return None
    room = Room(spec, strict=os.environ.get("RAWGPU_STRICT", "1") != "0")
    room.__enter__()
    atexit.register(room.__exit__)
    return room


def ports(vendor: str) -> list[KernelPort]:
    """The virtual kernels that serve `vendor`'s GPUs now."""
    room = current()
    if room is None or vendor not in room.machines:
        return []
    return [room.port(vendor)]
