"""Stages that break something on purpose: run last, and only when asked.

Each proves first that the device works, so that it also judges the recovery from the one before;
then makes its fault, looks at the error, closes the device and opens it again. Where a kernel
driver serves the process no more, that is said, and the next stage's process is the proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rawgpu.errors import (
    DeviceLost,
    IllegalInstruction,
    KernelFault,
    PageFault,
    ProcessMustRestart,
    RawGpuError,
)
from rawgpu.hwcheck.check import Check, NotHere, StageFailed
from rawgpu.hwcheck.stages_kernels import number

HOLE = 0x6F_1234_5678
"""An address that no allocation of the stage has: they ascend from below it."""
PAGE = 4096
FAULT_MS, LOOP_MS = 5000, 1000


def _works(check: Check, offset: int) -> None:
    number(check, check.device.properties.lanes, 4, offset)


def _broken(
    check: Check, run: Callable[[], None], allowed: tuple[type[Exception], ...]
) -> RawGpuError:
    """Make the fault; the error it became."""
    start = time.monotonic()
    try:
        run()
        check.device.synchronize(FAULT_MS)
    except RawGpuError as error:
        if not isinstance(error, allowed):
            text = f"{type(error).__name__} instead: {error.message}"
            raise StageFailed("wrong-error", text) from error
        check.say(
            error=type(error).__name__,
            told=error.message,
            noticed_s=round(time.monotonic() - start, 3),
        )
        return error
    raise StageFailed("no-fault", "the kernel ended as if nothing were wrong")


def _again(check: Check, offset: int) -> None:
    """Close the device, open it, use it."""
    check.close()
    try:
        _works(check, offset)
    except ProcessMustRestart as error:
        check.say(reopened="in a new process only", why=error.message)
    except RawGpuError as error:
        raise StageFailed(
            "no-recovery", f"after the fault: {type(error).__name__}: {error.message}"
        ) from error
    else:
        check.say(reopened="in the same process")


def _page_fault(check: Check, name: str, access: str) -> None:
    if check.port is None:
        raise NotHere("no kernel driver is behind the device")
    _works(check, 1)
    kernel = check.kernel(name, 1)
    out, _ = check.pinned(np.zeros(1, np.uint32))
    error = _broken(check, lambda: check.launch(kernel, out, np.uint64(HOLE)), (PageFault,))
    assert isinstance(error, PageFault)
    at = -1 if error.address is None else error.address
    check.say(address=hex(at), access=error.access, kernel=error.kernel)
    check.expect(
        "wrong-report",
        at & -PAGE == HOLE & -PAGE,
        f"the fault was told at {at:#x}, and was at {HOLE:#x}",
    )
    check.expect(
        "wrong-report",
        error.access in (access, "unknown"),
        f"the fault was told as a {error.access}, and was a {access}",
    )
    check.expect("wrong-report", name in error.kernel, f"the kernel named is {error.kernel!r}")
    _again(check, 2)


def read(check: Check) -> None:
    """A load from where nothing is mapped."""
    _page_fault(check, "peek", "read")


def write(check: Check) -> None:
    """A store to where nothing is mapped."""
    _page_fault(check, "poke", "write")


def illegal(check: Check) -> None:
    """Bits that are no instruction: the wave stops, and so does its queue."""
    kernel = check.kernel("illegal", 1)
    _works(check, 3)
    out, _ = check.pinned(np.zeros(1, np.uint32))
    _broken(check, lambda: check.launch(kernel, out), (IllegalInstruction, KernelFault, DeviceLost))
    _again(check, 4)


def loop(check: Check) -> None:
    """A kernel that never ends: the wait is bounded, and the queue can be got rid of."""
    if check.port is None:
        raise NotHere("a thread of this process would never end")
    _works(check, 5)
    kernel = check.kernel("forever", 1)
    out, _ = check.pinned(np.zeros(1, np.uint32))

    def run() -> None:
        check.launch(kernel, out)
        check.device.synchronize(LOOP_MS)

    _broken(check, run, (DeviceLost,))
    _again(check, 6)


def recovery(check: Check) -> None:
    """A new process finds the device as good as new."""
    _works(check, 7)
