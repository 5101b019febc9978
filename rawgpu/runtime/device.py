"""Opens a device by name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rawgpu.errors import DeviceNotFound
from rawgpu.runtime import rooms
from rawgpu.runtime.discover import VENDORS, devices, driver

if TYPE_CHECKING:
    from rawgpu.contract import Device


def open_device(name: str | None = None) -> Device:
    """Open `amd:0`, `cpu:0` and so on; `amd` means `amd:0`.

    Without a name: RAWGPU_DEVICE, or the first usable device. DeviceNotFound says which there are.
    """
    wanted: object = name
    asked = "" if name is not None else os.environ.get("RAWGPU_DEVICE", "")
    if wanted is None:
        wanted = asked or next(info.name for info in devices() if info.usable)
    text = wanted if isinstance(wanted, str) else ""
    vendor, colon, number = text.partition(":")
    full = f"{vendor}:{number if colon else 0}"
    module = driver(vendor) if vendor in VENDORS else None
    if module is not None:
        for info in module.discover():
            if info.name == full:
                device: Device = module.open_device(full)
                if vendor != "cpu":
                    rooms.note(device)
                return device
    names = ", ".join(info.name for info in devices()) or "none"
    by = " (from RAWGPU_DEVICE)" if asked else ""
    raise DeviceNotFound(f"no device {wanted!r}{by}; there are: {names}", hint="rawgpu devices")
