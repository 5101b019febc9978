"""Which devices are there, real and virtual, without opening any.

`VENDORS` names each driver's module. It is imported when its devices are first asked for, never
before, and a vendor whose driver is absent or cannot work here has no devices.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from rawgpu.contract import DeviceInfo
from rawgpu.runtime import rooms

VENDORS: dict[str, str] = {
    "cpu": "rawgpu.cpu.driver.device",
    "amd": "rawgpu.amd.driver.device",
    "nv": "rawgpu.nv.driver.device",
    "intel": "rawgpu.intel.driver.device",
    "metal": "rawgpu.metal.driver.device",
}
"""Each module has `discover() -> list[DeviceInfo]` and `open_device(name) -> Device`."""


def driver(vendor: str) -> Any | None:
    """The vendor's driver module, imported now; None where this installation has none."""
    name = VENDORS[vendor]
    package = f"rawgpu.{vendor}"
    if (
        importlib.util.find_spec(package) is None
        or importlib.util.find_spec(f"{package}.driver") is None
    ):
        return None
    if importlib.util.find_spec(name) is None:
        return None
    if rooms.wanted():
        rooms.load_vendors()
    return importlib.import_module(name)


def devices() -> list[DeviceInfo]:
    """Everything that `rawgpu.open` would take, `cpu:0` last."""
    found: list[DeviceInfo] = []
    for vendor in sorted(VENDORS, key=lambda vendor: vendor == "cpu"):
        module = driver(vendor)
        if module is not None:
            found += module.discover()
    return found
