"""What a vendor adds to the stages: its nodes and kernel interface, and questions only it can ask.

A vendor's module `rawgpu.<vendor>.driver.hwcheck` has `probe() -> Probe`. It stands below this
package and keeps the protocol without importing it. Hooks answer with figures; with `failed` (a
kind that a cause row knows) and `why` among them where something is wrong; with None where the
device has no such thing. A vendor without the module gets `PlainProbe`, which has no hooks at all.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from rawgpu.contract import Device
from rawgpu.errors import DeviceNotFound
from rawgpu.ioctl.port import KernelPort
from rawgpu.runtime.device import open_device
from rawgpu.runtime.discover import VENDORS, devices, driver

Answer = Mapping[str, Any] | None
CauseRow = tuple[str, str, str, str, str]
"""Stage or `*`, kind, a pattern that the message has or ``, the cause, what to try next."""


class Probe(Protocol):
    """A vendor's part."""

    causes: tuple[CauseRow, ...]
    volatile: Mapping[str, frozenset[str]]
    """Fields of requests that differ from run to run, by request."""
    private: tuple[str, ...]
    """Names of properties in sysfs that identify one card."""

    def place(self, name: str) -> tuple[KernelPort | None, int]:
        """The kernel port of a device, and its number there; the port is None without a kernel."""

    def open(self, name: str, port: KernelPort | None, index: int) -> Device: ...

    def nodes(self, port: KernelPort | None, index: int) -> Answer:
        """Whether the nodes are there and may be opened."""

    def abi(self, port: KernelPort | None, index: int) -> Answer:
        """Whether the kernel speaks what we speak."""

    def empty_packet(self, device: Device) -> Answer:
        """Whether a queue takes a packet that does nothing."""

    def copy_engine(self, device: Device) -> Answer:
        """Which copy engines there are."""

    def window(self, device: Device) -> Answer:
        """How much of the device's memory the CPU reaches."""

    def event_wake(self, device: Device) -> Answer:
        """Whether an interrupt wakes a thread that sleeps in the kernel."""

    def spoil(self, image: bytes) -> bytes | None:
        """A program with an illegal instruction where kernel `illegal` has its mark."""

    def now_ns(self, device: Device) -> int:
        """The time that waits are measured in."""

    def facts(self, port: KernelPort | None, index: int) -> Mapping[str, Any]:
        """Versions and topology for the report, without what identifies one card."""

    def memory(self, device: Device) -> Iterable[tuple[int, int, str, str]]:
        """Host memory to record: address, bytes, label, and `device` where only it writes."""


class PlainProbe:
    """No vendor's: for devices that keep the contract and have nothing below it to look at."""

    causes: tuple[CauseRow, ...] = ()
    volatile: Mapping[str, frozenset[str]] = {}
    private: tuple[str, ...] = ()

    def place(self, name: str) -> tuple[KernelPort | None, int]:
        return None, 0

    def open(self, name: str, port: KernelPort | None, index: int) -> Device:
        return open_device(name)

    def nodes(self, port: KernelPort | None, index: int) -> Answer:
        return None

    def abi(self, port: KernelPort | None, index: int) -> Answer:
        return None

    def empty_packet(self, device: Device) -> Answer:
        return None

    def copy_engine(self, device: Device) -> Answer:
        return None

    def window(self, device: Device) -> Answer:
        return None

    def event_wake(self, device: Device) -> Answer:
        return None

    def spoil(self, image: bytes) -> bytes | None:
        return None

    def now_ns(self, device: Device) -> int:
        return time.monotonic_ns()

    def facts(self, port: KernelPort | None, index: int) -> Mapping[str, Any]:
        return {}

    def memory(self, device: Device) -> Iterable[tuple[int, int, str, str]]:
        return ()


def probe_for(name: str) -> Probe:
    """The probe of the vendor that a device's name begins with."""
    vendor = name.partition(":")[0]
    if vendor not in VENDORS or driver(vendor) is None:
        names = ", ".join(info.name for info in devices())
        raise DeviceNotFound(f"no driver for {name!r}; there are: {names}", hint="rawgpu devices")
    module = f"rawgpu.{vendor}.driver.hwcheck"
    if importlib.util.find_spec(module) is None:
        return PlainProbe()
    found: Probe = importlib.import_module(module).probe()
    return found


def check_there(name: str) -> None:
    """Raise DeviceNotFound for a device that is not among its vendor's.

    Where its vendor has none at all, the first stage is to say why.
    """
    vendor, _, number = name.partition(":")
    there = [info.name for info in devices() if info.name.startswith(f"{vendor}:")]
    if name not in there and (there or not number.isdecimal()):
        names = ", ".join(there) or "none of this vendor"
        raise DeviceNotFound(f"no device {name!r}; there are: {names}", hint="rawgpu devices")


def full_name(name: str | None) -> str:
    """`amd` as `amd:0`; without a name, the first device that can be used."""
    if name is None:
        return next((info.name for info in devices() if info.usable), "cpu:0")
    vendor, colon, number = name.partition(":")
    return f"{vendor}:{number if colon else 0}"
