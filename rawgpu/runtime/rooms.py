"""Virtual machine rooms: GPUs that are not there, which drivers cannot tell from real ones.

    with rawgpu.room("gfx1100*2, gfx942"):
        with rawgpu.open("amd:1") as gpu: …

`RAWGPU_VIRTUAL` names a room for a whole program. Vendors' virtual kernels are imported by name
when a room is first asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawgpu.contract import Device
    from rawgpu.virtual.room import Room

watchers: list[Callable[[], None]] = []
"""Called when the names of devices begin to mean others: a room was entered, or is left."""
ENVIRONMENT = "RAWGPU_VIRTUAL"
VENDORS = ("amd", "nv", "intel", "metal")


def load_vendors() -> None:
    """Let every vendor that has a virtual kernel register with the rooms."""
    for vendor in VENDORS:
        package = f"rawgpu.{vendor}"
        if importlib.util.find_spec(package) is None:
            continue
        if importlib.util.find_spec(f"{package}.virtual") is not None:
            importlib.import_module(f"{package}.virtual")


def wanted() -> bool:
    """Whether the environment asks for a room."""
    return bool(os.environ.get(ENVIRONMENT))


def room(spec: str, **options: Any) -> Room:
    """A room of GPUs, `gfx1100*2,gfx942`; enter it with `with`.

    Options of every room: `seed`, the number that decides all chance (RAWGPU_SEED, or 0);
    `strict=False` for caches that never go stale; `threaded=True` for GPUs that run beside the
    program, in host time. Of AMD's: `kernel`, whose requests are answered: "6.1", "6.6", "6.12"
    (if not given), "6.12.107", or "1.22", the version of KFD's interface in headers that are later
    than these; `large_bar=False` and `sdma=False` for cards without; `links=False` for GPUs that
    do not reach each other; `hidden=(1,)`, numbers of GPUs that a container hides;
    `partitioned=True` for a package whose XCCs are GPUs of their own; `runner`, a function that
    executes dispatches instead. Raises UnsupportedDevice for a name or an option that none has.
    """
    load_vendors()
    made: Room = importlib.import_module("rawgpu.virtual.room").Room(spec, **options)
    made.check()
    made.watchers = watchers
    return made


def note(device: Device) -> None:
    """Let the room that is entered, if one is, close this device when it is left."""
    module = sys.modules.get("rawgpu.virtual.room")
    found = module.current() if module is not None else None
    if found is not None:
        found.devices.add(device)
