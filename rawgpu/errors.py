"""Every error that rawgpu raises on purpose, as one tree.

    RawGpuError
    ├── DeviceError                 something a device did, or could not do
    │   ├── KernelFault             a running kernel was stopped; `device_usable` says what is left
    │   │   ├── PageFault           an address that is not mapped, or not with these rights
    │   │   ├── IllegalInstruction
    │   │   ├── MisalignedAccess
    │   │   ├── ArithmeticFault     integer division by zero, or a trapped float exception
    │   │   └── StackOverflow
    │   ├── DeviceLost              the device, or a queue of it, is gone
    │   │   ├── FenceTimeout        a bounded wait ran out
    │   │   ├── Reset
    │   │   └── FellOffBus
    │   ├── ProcessMustRestart      the kernel driver will not serve this process again
    │   └── OutOfMemory
    ├── KernelCallFailed            an ioctl or mmap was refused; carries the decoded request
    ├── BadFile                     a file from outside is damaged or hostile
    │   ├── BadElf
    │   ├── BadSafetensors
    │   └── DecodeError             bits that no declaration of ours describes
    ├── EncodingError               a value does not fit its field
    ├── CompileError                text did not become machine code; carries the line
    ├── UnsupportedDevice           a device, target or feature that no row describes
    ├── DeviceNotFound
    ├── DevicePermission            the node is there and may not be opened
    ├── LaunchError                 arguments, grid or block do not fit the kernel
    ├── DeviceClosed                used after close
    └── OperationError              a tensor operation's arguments break its rule
        ├── ShapeError
        ├── DTypeError
        ├── AxisError
        └── IndexOutOfRange

A class and its attributes are for code; the text is for people, and where there is something to do
about it, a second line that begins with `try:` says what. Broken promises of our own are
`assert`s, not these.
"""

from __future__ import annotations

from typing import Any


def in_units(size_bytes: int) -> str:
    """`400 bytes`, `24 GiB`, `1.5 TiB`: a size as people read it; bytes up to 10 KiB."""
    unit, units = 1, iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    name = f"byte{'' if size_bytes == 1 else 's'}"
    while round(size_bytes / unit, 1) >= (1024 if unit > 1 else 10_240):
        following = next(units, None)
        if following is None:
            break
        unit, name = unit << 10, following
    return f"{round(size_bytes / unit, 1):g} {name}"


class RawGpuError(Exception):
    """The root. `hint`, when given, becomes the `try:` line."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message if hint is None else f"{message}\n  try: {hint}")


class DeviceError(RawGpuError):
    """Something a device did, or could not do."""


class KernelFault(DeviceError):
    """A running kernel was stopped by the hardware.

    Attributes:
        kernel: symbol of the kernel.
        offset: program counter, in bytes from the kernel's first instruction; None if unknown.
        address: the data address that was accessed; None where the fault has none.
        access: "read", "write", "execute" or "unknown".
        nearest: the allocation closest to `address`, in words; None if none is near.
        device_usable: True when the device goes on and may be used at once.
    """

    def __init__(
        self,
        message: str,
        *,
        kernel: str,
        offset: int | None = None,
        address: int | None = None,
        access: str = "unknown",
        nearest: str | None = None,
        device_usable: bool = True,
        hint: str | None = None,
    ) -> None:
        self.kernel = kernel
        self.offset = offset
        self.address = address
        self.access = access
        self.nearest = nearest
        self.device_usable = device_usable
        super().__init__(message, hint=hint)


class PageFault(KernelFault):
    """An address that is not mapped, or not with the rights the access needs."""


class IllegalInstruction(KernelFault):
    """The program counter met bytes that are no instruction of this machine."""


class MisalignedAccess(KernelFault):
    """An address that is not a multiple of what the access needs."""


class ArithmeticFault(KernelFault):
    """Integer division by zero, or a floating-point exception the kernel had enabled."""


class StackOverflow(KernelFault):
    """The kernel ran past the end of its stack."""


class DeviceLost(DeviceError):
    """The device, or a queue of it, is gone. `running` says what was in flight, newest last."""

    def __init__(
        self, message: str, *, running: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        self.running = running
        super().__init__(message, hint=hint)


class FenceTimeout(DeviceLost):
    """A bounded wait ran out before its signal came. `waves` says where those are that run."""

    def __init__(
        self,
        message: str,
        *,
        running: tuple[str, ...] = (),
        waves: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        self.waves = waves
        super().__init__(message, running=running, hint=hint)


class Reset(DeviceLost):
    """The kernel driver reset the device."""


class FellOffBus(DeviceLost):
    """The device stopped answering on the bus."""


class ProcessMustRestart(DeviceError):
    """The kernel driver will not serve this process again; a new process can work."""


class OutOfMemory(DeviceError):
    """No room for `requested_bytes`; `in_use_bytes` and `limit_bytes` as the device counts them."""

    def __init__(
        self,
        message: str,
        *,
        requested_bytes: int,
        in_use_bytes: int,
        limit_bytes: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.requested_bytes = requested_bytes
        self.in_use_bytes = in_use_bytes
        self.limit_bytes = limit_bytes
        super().__init__(message, hint=hint)


class KernelCallFailed(RawGpuError):
    """An ioctl, open or mmap was refused.

    `request` is the decoded request, `errno` the kernel's number.
    """

    def __init__(self, message: str, *, errno: int, request: Any, hint: str | None = None) -> None:
        self.errno = errno
        self.request = request
        super().__init__(message, hint=hint)


class BadFile(RawGpuError):
    """A file from outside is damaged or hostile.

    `offset` is where, in bytes; None if no one place is to blame.
    """

    def __init__(self, message: str, *, offset: int | None = None, hint: str | None = None) -> None:
        self.offset = offset
        super().__init__(
            message if offset is None else f"{message} (at byte {offset:#x})", hint=hint
        )


class BadElf(BadFile):
    """An ELF image that is damaged, hostile, or not for us.

    Not for us are other machines, and features that our loader does not have.
    """


class BadSafetensors(BadFile):
    """A safetensors file whose header or data do not keep the format's rules."""


class DecodeError(BadFile, ValueError):
    """Bits that are no packet, register or instruction we describe, or set what no field names."""


class EncodingError(RawGpuError, ValueError):
    """A value does not fit its field, or a field is unknown. Nothing is masked silently."""


class CompileError(RawGpuError):
    """Text did not become machine code.

    Attributes:
        line: 1-based line of the text at fault; None if the compiler named none.
        text: the line itself.
        log: all that the compiler printed.
    """

    def __init__(
        self,
        message: str,
        *,
        line: int | None = None,
        text: str = "",
        log: str = "",
        hint: str | None = None,
    ) -> None:
        self.line = line
        self.text = text
        self.log = log
        super().__init__(message, hint=hint)


class UnsupportedDevice(RawGpuError):
    """A device, target or feature that no row of ours describes; never guessed."""


class DeviceNotFound(RawGpuError):
    """No device has this name."""


class DevicePermission(RawGpuError):
    """The device node is there and this user may not open it; the hint names the group."""


class LaunchError(RawGpuError):
    """Arguments, grid or block do not fit the kernel; nothing was submitted."""


class DeviceClosed(RawGpuError):
    """A device, buffer, queue or program was used after it was closed or freed."""


class OperationError(RawGpuError):
    """A tensor operation's shapes, dtypes, axes or values break its rule; raised at the call."""


class ShapeError(OperationError, ValueError):
    """Shapes do not fit together, or a shape is impossible."""


class DTypeError(OperationError, TypeError):
    """A dtype the operation does not take, or a pair that has no common dtype."""


class AxisError(OperationError, ValueError, IndexError):
    """An axis outside the tensor's, or named twice."""


class IndexOutOfRange(OperationError, IndexError):
    """An index outside its axis."""
