"""From a fault record to the exception that explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rawgpu.errors import (
    ArithmeticFault,
    IllegalInstruction,
    KernelFault,
    MisalignedAccess,
    PageFault,
    StackOverflow,
)
from rawgpu.native import system

if TYPE_CHECKING:
    from rawgpu.cpu.driver.device import CpuDevice
    from rawgpu.native.threads import Context

BUS_ADRALN = 1
X86_PAGE_FAULT, X86_GENERAL_PROTECTION = 14, 13
X86_ERROR_WRITE, X86_ERROR_FETCH = 1 << 1, 1 << 4
ARM_CLASS_FETCH = (0x20, 0x21)
ARM_CLASS_DATA = (0x24, 0x25)
ARM_ISS_WRITE = 1 << 6

_NOTHING = "it has no data address"


def access_kind(record: Any, machine: str = system.MACHINE) -> str:
    """What the faulting instruction did to memory, from the processor's error word.

    Source: Intel SDM 3A 4.7, figure 4-12; Arm ARM D19.2.37, ESR_ELx.
    """
    error = int(record.error)
    if machine == "x86_64":
        if record.trap != X86_PAGE_FAULT:
            return "unknown"
        if error & X86_ERROR_FETCH:
            return "execute"
        return "write" if error & X86_ERROR_WRITE else "read"
    kind = error >> 26 & 0x3F
    if kind in ARM_CLASS_FETCH:
        return "execute"
    if kind in ARM_CLASS_DATA:
        return "write" if error & ARM_ISS_WRITE else "read"
    return "unknown"


def classify(record: Any, in_guard: bool) -> tuple[type[KernelFault], str]:
    """The exception's class, and what happened in words."""
    signal, address = int(record.signal), int(record.address)
    if in_guard:
        return StackOverflow, "ran past the end of its stack"
    if signal in (system.SIGILL, system.SIGTRAP):
        return IllegalInstruction, "met a trap, or an instruction that this processor does not have"
    if signal == system.SIGFPE:
        return ArithmeticFault, "divided an integer by zero, or overflowed a division"
    if signal == system.SIGBUS and record.code == BUS_ADRALN:
        return MisalignedAccess, f"accessed {address:#x}, which is not aligned as the access needs"
    if signal == system.SIGBUS:
        return PageFault, f"accessed {address:#x}, which has no memory behind it"
    if system.MACHINE == "x86_64" and record.trap == X86_GENERAL_PROTECTION:
        return (
            MisalignedAccess,
            "used an address that is misaligned for a vector access, or not canonical; "
            "the processor does not say which address",
        )
    verb = {"read": "read", "write": "wrote", "execute": "jumped to"}.get(
        access_kind(record), "accessed"
    )
    return PageFault, f"{verb} {address:#x}, which is not mapped with that right"


def has_address(record: Any) -> bool:
    """Whether `address` in the record is a data address."""
    if record.signal not in (system.SIGSEGV, system.SIGBUS):
        return False
    sent = record.code >= 1 << 63  # negative: raised again by another handler
    protection = system.MACHINE == "x86_64" and record.trap == X86_GENERAL_PROTECTION
    return not sent and not protection


def explain(
    device: CpuDevice, context: Context, name: str, kernel: Any, packet: int
) -> KernelFault:
    """The exception for the record in `context`; `name` and `kernel` are the faulting packet's."""
    record = context.record
    pc, address = int(record.pc), int(record.address)
    in_guard = any(
        context.in_guard(place) or device.pool.context_at(place) is not None
        for place in ((address, int(record.sp)) if has_address(record) else (int(record.sp),))
    )
    cls, what = classify(record, in_guard)
    offset = None
    where = ""
    if kernel is not None:
        inside = kernel.image.nearest_function(pc)
        if inside is not None and inside[0] == kernel.name:
            offset = inside[1]
            where = f" at {name}+{offset:#x}"
        elif inside is not None:
            where = f" in {inside[0]}+{inside[1]:#x}, called by it"
        else:
            where = f" at {pc:#x}, outside its code"
    nearest = device.allocator.nearest(address) if has_address(record) and not in_guard else None
    text = f"{device.name}: {name} {what}{where}"
    if nearest is not None:
        text += f"; {nearest}"
    return cls(
        text,
        kernel=name,
        offset=offset,
        address=address if has_address(record) else None,
        access=access_kind(record) if has_address(record) else "unknown",
        nearest=nearest,
        device_usable=True,
    )
