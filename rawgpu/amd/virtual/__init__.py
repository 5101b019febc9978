"""A virtual AMD machine: the kernel driver's side of every request, and GPUs that run packets.

Read `kernel.py` for the requests, `machine.py` for how queues are stepped, `view.py` for what a GPU
sees of memory, `queues.py` and `cp.py` for the engines, `dispatch.py` for what runs machine code.
Importing this package lets rooms have AMD's GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from rawgpu.virtual.room import Setting, VirtualMachine, register

VENDOR = "amd"
OPTIONS = ("kernel", "large_bar", "sdma", "links", "hidden", "partitioned", "runner")
"""Of a room; `machine.Machine` says what each does."""


def _names() -> Iterable[str]:
    from rawgpu.amd.virtual.boards import BOARDS

    return BOARDS


def _build(setting: Setting) -> VirtualMachine:
    from rawgpu.amd.virtual.machine import Machine

    return Machine(setting)


register(VENDOR, _names, _build, OPTIONS)
