"""Reading what a command was given: a file, or standard input for `-`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import rawgpu
from rawgpu.errors import BadFile, DeviceNotFound, RawGpuError

MAX_BYTES = 1 << 30
ELF_MAGIC = b"\x7fELF"


def read_input(path: str) -> bytes:
    """The whole of a file. BadFile for what is not to be read, or larger than 1 GiB."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise BadFile(f"{path}: {why(error)}") from None
    if len(data) > MAX_BYTES:
        raise BadFile(f"{path} is larger than {MAX_BYTES} bytes")
    return data


def why(error: BaseException) -> str:
    """What an error says, without number and name of the file, which stand before it."""
    return str(getattr(error, "strerror", None) or error).replace("No such", "no such", 1)


def add_arch(parser: argparse.ArgumentParser) -> None:
    """`--arch` and `--device`: whose bytes these are."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--arch", metavar="NAME", help="a processor, such as gfx1100")
    which.add_argument("--device", metavar="NAME", help="the processor of a device, such as amd:0")


def wanted_arch(options: argparse.Namespace) -> str | None:
    """What `--arch` or `--device` says; None where neither is given."""
    name: str | None = options.device
    if name is None:
        arch: str | None = options.arch
        return arch
    full = name if ":" in name else f"{name}:0"
    for info in rawgpu.devices():
        if info.name == full:
            return info.arch
    names = ", ".join(info.name for info in rawgpu.devices())
    raise DeviceNotFound(f"no device {name!r}; there are: {names}", hint="rawgpu devices")


def prefixed(error: RawGpuError, path: str) -> RawGpuError:
    """`error` with the file's name before its text."""
    error.message = f"{path}: {error.message}"
    error.args = (error.message if error.hint is None else f"{error.message}\n  try: {error.hint}",)
    return error
