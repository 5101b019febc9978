"""A stage's process in a room with faults: `python -c … SETTINGS --stage …`."""

from __future__ import annotations

import json
import sys

import rawgpu.amd.virtual  # noqa: F401
from rawgpu.hwcheck import child
from rawgpu.virtual.room import Room


def main() -> int:
    """Settings: `room` (GPUs), `options`, and `plant`: names and arguments of Faults calls."""
    settings = json.loads(sys.argv[1])
    words = sys.argv[2:]
    with Room(settings.get("room", "gfx1100"), **settings.get("options", {})) as room:
        for name, arguments in settings.get("plant", ()):
            getattr(room.faults, name)(**arguments)
        return child.main(words)
