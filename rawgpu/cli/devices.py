"""`rawgpu devices`: what is there, real and virtual. Opens nothing."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

import rawgpu
from rawgpu.cli.show import table
from rawgpu.contract import DeviceInfo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond --json."""
    parser.epilog = "A name in the first column is what --device and rawgpu.open() take."


def state(info: DeviceInfo) -> str:
    """One or two words on whether the device can be used."""
    if not info.usable:
        return "unusable"
    return "virtual" if info.virtual else "ready"


def run(options: argparse.Namespace) -> int:
    """List the devices; 0 even if there is none, which is an answer too."""
    found = rawgpu.devices()
    if options.json:
        print(json.dumps({"devices": [asdict(info) for info in found]}))
        return 0
    rows = [(info.name, info.arch, state(info), info.title) for info in found]
    print(table(("NAME", "ARCH", "STATE", "TITLE"), rows))
    for info in found:
        if info.note:
            print(f"{info.name}: {info.note}")
    return 0
