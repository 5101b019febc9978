"""Which vendors can print what their GPUs read: found by name, as drivers are.

A vendor's module has the functions of `Decoder`. It is imported when a command asks for it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Protocol, cast

from rawgpu.crash.report import Report
from rawgpu.errors import UnsupportedDevice

DECODERS: Mapping[str, str] = {
    "amd": "rawgpu.amd.decode.entry",
    "nv": "rawgpu.nv.decode.entry",
    "intel": "rawgpu.intel.decode.entry",
    "metal": "rawgpu.metal.decode.entry",
}


LOGS: Mapping[str, str] = {"amd": "rawgpu.amd.decode.log"}
"""Modules that read kernel logs."""


class Decoder(Protocol):
    """What a vendor's decode package offers the command line."""

    KINDS: tuple[str, ...]
    """What `decode` knows, by the names of `--kind`."""
    ARCHS: tuple[str, ...]

    def is_program(self, data: bytes) -> bool:
        """Whether `data` is a compiled program of this vendor's."""

    def recognise(self, data: bytes) -> str | None:
        """The kind of `data` where it says so itself."""

    def disassemble(self, data: bytes, **options: Any) -> Printed:
        """A program or bare machine code as lines. Options: those of `rawgpu disasm`."""

    def decode(self, data: bytes, kind: str, arch: str | None) -> Printed:
        """What a GPU, or the kernel, reads of `data`."""


class Printed(Protocol):
    """A decoded thing: text for people, or plain data for programs."""

    @property
    def text(self) -> Callable[[], Iterator[str]]: ...

    @property
    def rows(self) -> Callable[[], dict[str, Any]]: ...


class LogReader(Protocol):
    """What reads a vendor's part of a kernel log."""

    SAY: Mapping[str, str]

    def explain(self, stream: BinaryIO) -> Report: ...


def log_reader(vendor: str) -> LogReader:
    """A vendor's reader of kernel logs, imported now."""
    return cast("LogReader", importlib.import_module(LOGS[vendor]))


def available() -> Iterable[str]:
    """The vendors whose decoder is installed."""
    for vendor, name in DECODERS.items():
        packages = (f"rawgpu.{vendor}", f"rawgpu.{vendor}.decode", name)
        if all(importlib.util.find_spec(package) is not None for package in packages):
            yield vendor


def decoder(vendor: str) -> Decoder:
    """A vendor's decoder, imported now."""
    if vendor not in available():
        raise UnsupportedDevice(f"nothing here decodes {vendor!r}")
    return cast("Decoder", importlib.import_module(DECODERS[vendor]))


def for_program(data: bytes) -> Decoder | None:
    """The decoder of the vendor whose compiler made `data`; None if none's did."""
    return next((d for d in map(decoder, available()) if d.is_program(data)), None)


def for_arch(arch: str) -> Decoder:
    """The decoder of the vendor that has a processor of this name. UnsupportedDevice if none."""
    known: list[str] = []
    for found in map(decoder, available()):
        known += found.ARCHS
        if arch in found.ARCHS:
            return found
    raise UnsupportedDevice(f"no row describes {arch!r}; there are: {', '.join(known)}")
