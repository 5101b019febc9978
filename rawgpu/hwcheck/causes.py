"""From a failure to a likely cause and the next step: rows, searched from special to general.

A vendor's rows come first. Every kind of failure that can reach a person has a row for any stage at
the end, so no failure is told without a next step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rawgpu.hwcheck.probe import CauseRow

ANY = "*"
KINDS: dict[str, str] = {
    "wrong-data": "bytes are not what they must be",
    "stale-data": "bytes are what stood there before",
    "clock": "a clock stands still, goes back or runs at another speed",
    "address": "an address outside what kernels can use",
    "small-bar": "the CPU reaches a part of the device's memory",
    "no-engine": "the device has no copy engine",
    "no-interrupt": "a sleeping thread was not woken",
    "doorbell-ignored": "a queue did not read its packets",
    "hidden": "the device is there and hidden from this process",
    "no-node": "the kernel shows no such device",
    "no-row": "a device that no row describes",
    "apertures": "local or private memory is somewhere else",
    "no-fault": "a fault made on purpose did not show",
    "wrong-error": "a fault made on purpose became another error",
    "wrong-report": "the report of a fault is wrong",
    "no-recovery": "the device did not open again after a fault",
    "time-limit": "the stage's process was ended at its limit",
    "stuck": "the stage's process could not be ended",
    "crash": "the stage's process died",
    "machine-crash": "the machine went down during the stage",
    "bug": "an error that no driver should raise",
}
"""Our own kinds. Others are class names of `errors.py`."""

ROWS: tuple[CauseRow, ...] = (
    (ANY, "wrong-data", "",
     "a packet, an address or a size is not what the device understands",
     "attach the bundle to a report"),
    (ANY, "stale-data", "",
     "a cache was not flushed or not invalidated at this boundary",
     "attach the bundle to a report"),
    (ANY, "clock", "", "the clock's frequency is not what the kernel driver says",
     "run the stage again on an idle machine; attach the bundle"),
    (ANY, "address", "", "the kernel driver gave an address that packets cannot carry",
     "attach the bundle to a report"),
    (ANY, "small-bar", "", "the firmware's setup gives the card a small window",
     "turn on Resizable BAR; all works without it, slower"),
    (ANY, "no-engine", "", "the kernel driver lists none", "the kernel log"),
    (ANY, "no-interrupt", "", "interrupts are lost or go elsewhere; waits still end, by polling",
     "/proc/interrupts while the stage runs; the kernel log"),
    (ANY, "doorbell-ignored", "", "the queue is not on the hardware", "the kernel log; reboot"),
    (ANY, "hidden", "", "a container or cgroup hides the device", "pass its nodes in"),
    (ANY, "no-node", "", "the kernel driver does not drive this device",
     "lspci -k; the kernel log"),
    (ANY, "no-row", "", "a device newer than this version", "attach the bundle to a report"),
    (ANY, "apertures", "", "a kernel driver that lays memory out in another way",
     "attach the bundle to a report"),
    (ANY, "no-fault", "",
     "page faults are retried for ever or ignored, or the address was mapped after all",
     "the kernel log; attach the bundle"),
    (ANY, "wrong-error", "", "the fault was seen, and not told by the way we listen to",
     "the kernel log has the fault; attach both"),
    (ANY, "wrong-report", "", "the kernel's report is read wrongly, or is imprecise here",
     "compare with the kernel log; attach the bundle"),
    (ANY, "no-recovery", "", "the device or its driver did not come back",
     "the kernel log; reboot"),
    (ANY, "time-limit", "", "a wait without a limit, in the kernel driver or in ours",
     "--only this stage, with --limit larger; the kernel log"),
    (ANY, "stuck", "", "the kernel driver waits for hardware and cannot be interrupted",
     "the kernel log; reboot"),
    (ANY, "crash", "", "a fault of this software, or memory that vanished under it",
     "attach the bundle: the last lines of the recording say where"),
    (ANY, "machine-crash", "",
     "the stage took the machine down: the bus, the power supply or the kernel driver",
     "journalctl -k -b -1; go on with --from the next stage"),
    (ANY, "bug", "", "a mistake in this software", "attach the bundle: it has the traceback"),
    (ANY, "PageFault", "", "an address in a packet or an argument is wrong",
     "the message has the address and what is near; attach the bundle"),
    (ANY, "IllegalInstruction", "", "code for another processor, or stale instructions",
     "attach the bundle to a report"),
    (ANY, "KernelFault", "", "the kernel driver reports a fault of the hardware",
     "the kernel log; attach the bundle"),
    (ANY, "FenceTimeout", "", "work was handed over and did not end",
     "the kernel log; attach the bundle: it has the rings"),
    (ANY, "Reset", "", "the kernel driver reset the device", "the kernel log"),
    (ANY, "DeviceLost", "", "the device stopped answering", "the kernel log; reboot"),
    (ANY, "OutOfMemory", "", "other programs hold the memory", "close them, and run again"),
    (ANY, "DevicePermission", "", "this user may not open the node", "the message names the group"),
    (ANY, "DeviceNotFound", "", "no kernel driver made the node", "load it, or pass the node in"),
    (ANY, "UnsupportedDevice", "", "no row describes this device or kernel",
     "attach the bundle to a report"),
    (ANY, "ProcessMustRestart", "", "the kernel driver serves this process no more",
     "run the stage again"),
    (ANY, "KernelCallFailed", "", "the kernel refused a request, which the message shows",
     "the kernel log; attach the bundle"),
    (ANY, "CompileError", "", "LLVM did not take a kernel of ours for this processor",
     "pip install -U llvmlite; attach the bundle"),
    (ANY, "RawGpuError", "", "the driver refused to go on", "the message; attach the bundle"),
)  # fmt: skip


def lookup(
    stage: str, kinds: Sequence[str], message: str, rows: Sequence[CauseRow] = ()
) -> tuple[str, str]:
    """Cause and next step for a failure; `kinds` are its class and that one's parents."""
    table = [*rows, *ROWS]
    for kind in kinds:
        for wanted in (stage, ANY):
            for place, name, pattern, cause, try_next in table:
                if place == wanted and name == kind and re.search(pattern, message, re.DOTALL):
                    return cause, try_next
    raise AssertionError((stage, kinds))
