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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from rawgpu.errors import RawGpuError, UnsupportedDevice
from rawgpu.ioctl.port import KernelPort
from rawgpu.virtual.clock import Clock, HostClock, SteppedClock
from rawgpu.virtual.faults import Faults
from rawgpu.virtual.schedule import Chance

ENVIRONMENT, SEED_ENVIRONMENT = "RAWGPU_VIRTUAL", "RAWGPU_SEED"
STRICT_ENVIRONMENT = "RAWGPU_STRICT"
OWN_OPTIONS = ("seed", "strict", "threaded")


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
    names: Callable[[], Iterable[str]]
    build: Builder
    options: tuple[str, ...]
    """Of a room, besides those that every room has."""


_makers: dict[str, Maker] = {}
_rooms: list[Room] = []


def register(
    vendor: str, names: Callable[[], Iterable[str]], build: Builder, options: tuple[str, ...] = ()
) -> None:
    """Called by a vendor's virtual package when it is imported."""
    _makers[vendor] = Maker(vendor, names, build, options)


_ITEM = re.compile(r"([A-Za-z0-9_.:-]+?)(?:\*(\d{1,2}))?")


def parse(spec: str) -> list[str]:
    """`gfx1100*2,gfx942` as names, one a GPU."""
    if not isinstance(spec, str):
        raise UnsupportedDevice(
            f"virtual GPUs are named by text, not by {spec!r}", hint='"gfx1100*2,gfx942"'
        )
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
    options go to the vendors' builders, which say what there are: `kernel="6.6"`,
    `large_bar=False`, … Raises UnsupportedDevice for what is no room's text, and when it is
    entered, or by `check`, for a name or an option that no vendor has.
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
        self.seed = seed_of_environment() if seed is None else seed
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

    def check(self) -> None:
        """Raise UnsupportedDevice for a name or an option that none of the vendors has."""
        vendors = {_maker(name).vendor for name in self._names}
        known = {option for vendor in vendors for option in _makers[vendor].options}
        for option in self.options.keys() - known:
            there = ", ".join([*OWN_OPTIONS, *sorted(known)])
            raise UnsupportedDevice(
                f"a room of {self.spec} has no option {option!r}; there are: {there}"
            )

    def __enter__(self) -> Self:
        self.check()
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
        if name in maker.names():
            return maker
    there = [known for maker in _makers.values() for known in maker.names()]
    raise UnsupportedDevice(
        f"no virtual GPU is called {name!r}; there are: {', '.join(there) or 'none'}"
    )


def seed_of_environment() -> int:
    """RAWGPU_SEED, or 0."""
    text = os.environ.get(SEED_ENVIRONMENT) or "0"
    try:
        return int(text, 0)
    except ValueError:
        raise RawGpuError(f"{SEED_ENVIRONMENT} is {text!r}, which is no whole number") from None


def strict_of_environment() -> bool:
    """RAWGPU_STRICT, or True."""
    text = os.environ.get(STRICT_ENVIRONMENT) or "1"
    if text not in ("0", "1"):
        raise RawGpuError(f"{STRICT_ENVIRONMENT} is {text!r}, which is neither 0 nor 1")
    return text == "1"


def current() -> Room | None:
    """The innermost room that is entered, or the one that the environment asks for."""
    if _rooms:
        return _rooms[-1]
    spec = os.environ.get(ENVIRONMENT, "")
    if not spec:
        return None
    try:
        room = Room(spec, strict=strict_of_environment())
        room.__enter__()
    except UnsupportedDevice as error:
        raise UnsupportedDevice(f"{ENVIRONMENT}: {error.message}", hint=error.hint) from None
    atexit.register(room.__exit__)
    return room


def ports(vendor: str) -> list[KernelPort]:
    """The virtual kernels that serve `vendor`'s GPUs now."""
    room = current()
    if room is None or vendor not in room.machines:
        return []
    return [room.port(vendor)]
