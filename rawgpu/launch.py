"""Launches by hand, as every driver does them: blocks counted, scalars typed, device arrays.

Neutral: no vendor's word is used here. An `ArgumentPacker` turns a call's arguments into 64-bit
words, or refuses with LaunchError before anything is submitted; devices inherit `Arrays`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Protocol, cast

import numpy as np

from rawgpu.contract import (
    Argument,
    Binding,
    Buffer,
    Device,
    Grid,
    MemoryKind,
    Parameter,
    QueueKind,
)
from rawgpu.errors import BadElf, LaunchError

POINTER = "pointer"
LONGEST_WAIT_MS = 10**12
ELF_MACHINES = {
    3: "32-bit x86", 40: "32-bit ARM", 62: "x86-64", 183: "AArch64", 190: "an NVIDIA GPU",
    205: "an Intel GPU", 224: "an AMD GPU", 243: "RISC-V",
}  # fmt: skip
"""Whose code an ELF has, by its `e_machine`."""
_INTEGERS = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}
_FLOATS = {
    name: (struct.Struct(value), struct.Struct(bits))
    for name, value, bits in (
        ("float16", "<e", "<H"),
        ("float32", "<f", "<I"),
        ("float64", "<d", "<Q"),
    )
}


def whole_number(what: str, value: object) -> int:
    """`value` as an int. Raises LaunchError for what is none."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise LaunchError(f"{what} is a whole number, not {value!r}")


def counter_value(value: object) -> int:
    """`value` of a signal: 64 bits, from 0. Raises LaunchError."""
    number = whole_number("a signal's value", value)
    if not 0 <= number < 1 << 64:
        raise LaunchError(f"a signal's value is from 0 to below 2**64, not {number}")
    return number


def queue_kind(kind: object) -> QueueKind:
    """`kind`, if it is one. Raises LaunchError."""
    if not isinstance(kind, QueueKind):
        raise LaunchError(f"a queue's kind is a QueueKind, not {kind!r}")
    return kind


def memory_kind(kind: object) -> MemoryKind:
    """`kind`, if it is one. Raises LaunchError."""
    if not isinstance(kind, MemoryKind):
        raise LaunchError(f"a buffer's kind is a MemoryKind, not {kind!r}")
    return kind


def wait_limit(timeout_ms: object) -> float:
    """A wait's bound in milliseconds. Raises LaunchError for what is no number."""
    if isinstance(timeout_ms, (int, float, np.integer, np.floating)) and timeout_ms == timeout_ms:
        return max(float(min(timeout_ms, LONGEST_WAIT_MS)), 0.0)
    raise LaunchError(f"timeout_ms is a number of milliseconds, not {timeout_ms!r}")


def grid_blocks(grid: Grid, what: str = "grid") -> tuple[int, int, int]:
    """A grid or block as three counts, each at least 1."""
    counts: tuple[Any, ...] = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    if not 1 <= len(counts) <= 3:
        raise LaunchError(f"a {what} has 1 to 3 sizes, not {len(counts)}")
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise LaunchError(f"{what} size {count!r} is not a positive integer")
    x, y, z = (*(int(count) for count in counts), 1, 1)[:3]
    return x, y, z


def scalar_bits(value: np.generic) -> int:
    """A NumPy scalar's bit pattern, zero-extended."""
    if value.dtype.itemsize > 8 or value.dtype.kind not in "biuf":
        raise LaunchError(f"a kernel argument cannot be a {value.dtype} scalar")
    return int.from_bytes(value.tobytes(), "little")


def plain_bits(value: float | bool, dtype: str) -> int:
    """A plain Python number as the signature's `dtype`."""
    if isinstance(value, bool) != (dtype == "bool"):
        raise LaunchError(f"{value!r} for a {dtype}")
    if dtype == "bool":
        return int(value)
    if dtype in _FLOATS:
        value_format, bits_format = _FLOATS[dtype]
        try:
            return int(bits_format.unpack(value_format.pack(value))[0])
        except (OverflowError, struct.error):
            raise LaunchError(f"{value!r} does not fit in {dtype}") from None
    if dtype == "bfloat16":
        return bfloat16_bits(float(value))
    if not isinstance(value, int):
        raise LaunchError(f"{value!r} for an integer, {dtype}")
    low, high = _INTEGERS[dtype]
    if not low <= value <= high:
        raise LaunchError(f"{value} does not fit in {dtype}")
    return value & (1 << np.dtype(dtype).itemsize * 8) - 1


def bfloat16_bits(value: float) -> int:
    """Nearest bfloat16, ties to even."""
    single = int(np.float32(value).view(np.uint32))
    if single & 0x7FFFFFFF > 0x7F800000:
        return single >> 16 | 0x40
    return single + 0x7FFF + (single >> 16 & 1) >> 16


def _article(word: str) -> str:
    return f"an {word}" if word[:2] in ("nd", "NP") or word[:1] in "aeioAEIO" else f"a {word}"


def _no_argument(value: Any) -> LaunchError:
    """The error for what has no address and is no number, with what to pass instead."""
    if value is None:
        return LaunchError("None cannot be a kernel argument", hint="np.uint64(0), a null pointer")
    kind = type(value).__name__
    on_host = isinstance(value, (np.ndarray, list, tuple))
    return LaunchError(
        f"{_article(kind)} cannot be a kernel argument",
        hint="device.array(x), a copy in the device's memory" if on_host else None,
    )


def _pack_untyped(value: Any, device: Reach | None) -> int | Binding:
    """An argument of a kernel without signature."""
    if isinstance(value, Binding):
        return value
    if isinstance(value, np.generic):
        return scalar_bits(value)
    if isinstance(value, (int, float)):
        raise LaunchError(
            f"plain number {value!r}, and the program has no signature that says its type",
            hint=f"np.int32({value!r}), np.float32({value!r}) or the like",
        )
    return _address(value, device)


def _address(value: Any, device: Reach | None) -> int:
    """The address of a buffer or array, which `device` must be able to reach."""
    address = getattr(value, "address", None)
    if not isinstance(address, int):
        raise _no_argument(value)
    if device is not None:
        check_reach(device, value, "the kernel is")
    return address


def check_reach(device: Reach, memory: Any, who: str) -> None:
    """LaunchError for an array, a buffer or the like in memory that `device` does not reach.

    Raw addresses, and what does not say whose it is, are taken at their word. `who` is on the
    device: "the kernel is", "the queue is".
    """
    home = getattr(getattr(memory, "buffer", memory), "device", None)
    if home is None or home is device or device.reaches(memory):
        return
    name = getattr(home, "name", home)
    place = name if name != device.name else f"another {name}"
    what = "an array" if isinstance(memory, DeviceArray) else "memory"
    raise LaunchError(
        f"{what} of {place}, and {who} on {device.name}", hint="copy it there: device.array(values)"
    )


def _pointer_packer(device: Reach | None) -> Callable[[Any], int | Binding]:
    """What packs a pointer's argument; an array or a buffer of `device` soonest."""
    own: Any = device if device is not None else object()

    def pack(value: Any) -> int | Binding:
        if type(value) is DeviceArray:
            if value.device is own:
                return value.buffer.address
        elif getattr(value, "device", None) is own:
            return _address(value, None)
        if isinstance(value, Binding):
            return value
        if isinstance(value, np.generic):
            if value.dtype != np.uint64:
                raise LaunchError(f"a {value.dtype.name} for a pointer: pass a buffer")
            return scalar_bits(value)
        if isinstance(value, (int, float)):
            raise LaunchError(
                f"plain number {value!r} for a pointer", hint="np.uint64(address) for a raw address"
            )
        return _address(value, device)

    return pack


def _pack_scalar(value: Any, dtype: str) -> int | Binding:
    if type(value) is float or type(value) is int:
        return plain_bits(value, dtype)
    if isinstance(value, Binding):
        return value
    if isinstance(value, np.generic):
        if value.dtype.name != dtype:
            raise LaunchError(f"a {value.dtype.name} for {dtype}")
        return scalar_bits(value)
    if isinstance(value, (int, float)):
        return plain_bits(value, dtype)
    if isinstance(getattr(value, "address", None), int):
        raise LaunchError(f"a buffer for {dtype}")
    kind = _article(type(value).__name__) if value is not None else "None"
    raise LaunchError(f"{kind} for {dtype}", hint=f"a number, or np.{dtype}(number)")


def _float_packer(dtype: str) -> Callable[[Any], int | Binding]:
    value_format, bits_format = _FLOATS[dtype]
    to_bytes, to_bits = value_format.pack, bits_format.unpack

    def pack(value: Any) -> int | Binding:
        if type(value) is float and -6e4 < value < 6e4:  # fits whatever the format
            bits: int = to_bits(to_bytes(value))[0]
            return bits
        return _pack_scalar(value, dtype)

    return pack


def _integer_packer(dtype: str) -> Callable[[Any], int | Binding]:
    low, high = _INTEGERS[dtype]
    mask = (1 << np.dtype(dtype).itemsize * 8) - 1

    def pack(value: Any) -> int | Binding:
        if type(value) is int and low <= value <= high:
            return value & mask
        return _pack_scalar(value, dtype)

    return pack


@functools.cache
def scalar_packer(dtype: str) -> Callable[[Any], int | Binding]:
    """What turns an argument of a parameter of type `dtype`, no pointer, into a word."""
    if dtype in _FLOATS:
        return _float_packer(dtype)
    if dtype in _INTEGERS:
        return _integer_packer(dtype)
    return functools.partial(_pack_scalar, dtype=dtype)


def _named(position: int, parameter: Parameter) -> str:
    """A parameter's name, if the file gave it one."""
    return "" if parameter.name == f"argument{position}" else parameter.name


def _in_words(position: int, parameter: Parameter) -> str:
    """`x: pointer`; `4 bytes` where the file has neither name nor type."""
    size = parameter.dtype.removeprefix("bytes")
    kind = f"{size} bytes" if size.isdigit() else parameter.dtype
    name = _named(position, parameter)
    return f"{name}: {kind}" if name else kind


class Reach(Protocol):
    """A device, as a packer knows it."""

    @property
    def name(self) -> str: ...

    def reaches(self, memory: Any) -> bool:
        """Whether its kernels may use memory that an array or buffer of another device has."""


class ArgumentPacker:
    """Turns a call's arguments into 64-bit words. A driver keeps one for each kernel.

    With `device`, memory that this device does not reach is refused.
    """

    def __init__(
        self,
        kernel: str,
        signature: tuple[Parameter, ...] | None,
        device: Reach | None = None,
    ) -> None:
        self.kernel = kernel
        self.signature = signature
        self.device = device
        pointer = _pointer_packer(device)
        self._packers = tuple(
            pointer if row.dtype == POINTER else scalar_packer(row.dtype) for row in signature or ()
        )

    def __call__(self, arguments: Sequence[Argument]) -> list[int | Binding]:
        """Each argument as a word, or the binding that will give it."""
        if self.signature is None:
            return [self.one(position, value) for position, value in enumerate(arguments)]
        if len(self._packers) != len(arguments):
            rows = ", ".join(_in_words(i, row) for i, row in enumerate(self.signature))
            raise LaunchError(
                f"{self.kernel} takes {len(self._packers)} arguments ({rows}), not {len(arguments)}"
            )
        try:
            return [pack(value) for pack, value in zip(self._packers, arguments, strict=True)]
        except LaunchError:
            return [self.one(position, value) for position, value in enumerate(arguments)]

    def one(self, position: int, value: Argument) -> int | Binding:
        """The word of one argument."""
        try:
            if self.signature is None:
                return _pack_untyped(value, self.device)
            return self._packers[position](value)
        except LaunchError as error:
            name = "" if self.signature is None else _named(position, self.signature[position])
            where = f"argument {position}" + (f" {name!r}" if name else "")
            raise LaunchError(f"{self.kernel}, {where}: {error.message}", hint=error.hint) from None


def object_bytes(image: object, device_name: str, *machines: str) -> bytes:
    """What `load` was given, if it can be code for `machines`, which are values of `ELF_MACHINES`.

    Source of the numbers: ELF's `e_machine`, byte 18, little-endian.
    """
    if not isinstance(image, (bytes, bytearray, memoryview)):
        example = f"{str(image)!r}" if isinstance(image, (str, PathLike)) else "name"
        raise BadElf(
            f"load takes the bytes of an object file, not {_article(type(image).__name__)}",
            hint=f"pass the bytes of the file: Path({example}).read_bytes()",
        )
    data = bytes(image)
    machine = int.from_bytes(data[18:20], "little")
    if data[:4] == b"\x7fELF" and ELF_MACHINES.get(machine, machines[0]) not in machines:
        raise BadElf(
            f"this is code for {ELF_MACHINES[machine]}, and the device is {device_name}, "
            f"which runs code for {' or '.join(machines)}",
        )
    return data


class Arrays:
    """What a driver's device inherits for launches by hand. The rest of it keeps the contract."""

    def array(self, value: Any) -> DeviceArray:
        """A copy of a NumPy array, or of anything that becomes one, in device memory."""
        return DeviceArray.of(cast(Device, self), value)

    def empty(self, shape: tuple[int, ...] | int, dtype: Any) -> DeviceArray:
        """Room for an array; the contents are whatever was there."""
        return DeviceArray.empty(cast(Device, self), shape, dtype)


class DeviceArray:
    """A typed, contiguous array in device memory; passes as a launch argument."""

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.buffer = buffer
        self.device = buffer.device
        self.shape = shape
        self.dtype = dtype

    @classmethod
    def of(cls, device: Device, value: Any) -> DeviceArray:
        """A copy of `value`, anything NumPy makes an array of, on `device`."""
        source = np.ascontiguousarray(value)
        if source.dtype.hasobject:
            raise LaunchError(f"an array of {source.dtype} has no bytes to copy")
        array = cls.empty(device, np.shape(value), source.dtype)
        if source.nbytes:
            array.buffer.write(source.reshape(-1).view(np.uint8))
        return array

    @classmethod
    def empty(cls, device: Device, shape: tuple[int, ...] | int, dtype: Any) -> DeviceArray:
        """Room for an array; the contents are whatever was there."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        count = int(np.prod(sizes, dtype=np.int64))
        return cls(device.alloc(max(count * kind.itemsize, 1)), sizes, kind)

    @property
    def address(self) -> int:
        return self.buffer.address

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The contents, copied, after everything submitted that writes them."""
        if self.buffer.host_visible:
            self.buffer.device.synchronize()
            data: Any = self.buffer.view()
            return np.frombuffer(data, self.dtype, self.size).reshape(self.shape).copy()
        return np.frombuffer(bytearray(self.buffer.read(self.nbytes)), self.dtype).reshape(
            self.shape
        )

    def close(self) -> None:
        self.buffer.close()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, address={self.address:#x})"
