"""`rawgpu launch FILE --kernel NAME …`: run a kernel of a compiled file on arrays, by hand.

What arguments may be is in `ArgumentText`. Files of arrays are read without pickles.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rawgpu
from rawgpu.cli.files import ELF_MAGIC, prefixed, read_input, why
from rawgpu.contract import Array, Device, Kernel, Parameter
from rawgpu.errors import BadFile, DeviceNotFound, LaunchError, RawGpuError
from rawgpu.launch import POINTER
from rawgpu.runtime import decoders

SHOWN = 8
"""Elements of an array that are printed."""
MAX_ARRAY_BYTES = 1 << 40
DTYPES = frozenset(
    f"{kind}{bits}"
    for kind, sizes_bits in (
        ("int", (8, 16, 32, 64)),
        ("uint", (8, 16, 32, 64)),
        ("float", (16, 32, 64)),
    )
    for bits in sizes_bits
) | {"bool"}
_TYPED = re.compile(r"([a-z]+\d*):(\S+)$")
_SHAPED = re.compile(r"([a-z]+\d*)\[([0-9, ]*)\]$")
DAMAGED = (
    OSError, ValueError, EOFError, MemoryError, OverflowError, TypeError, KeyError, SyntaxError,
    tokenize.TokenError, RecursionError,
)  # fmt: skip
"""What NumPy's reader of a damaged header lets through: it has Python's own parser read it."""
CLANG = (
    "clang-19 --target=amdgcn-amd-amdhsa -mcpu=gfx1100 -x cl -cl-std=CL2.0 -nogpulib -O2 -c {file}"
)
"""What makes a code object of OpenCL C."""
HOW = "x=file.npy, n=int32:100, a=float32:0.5, out=float32[100]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The kernel, its arguments, how many of it, and what to keep."""
    parser.add_argument("file", help="a compiled file for the device; - reads standard input")
    parser.add_argument("--kernel", metavar="NAME", help="needed where the file has several")
    parser.add_argument("--device", metavar="NAME", help="such as amd:0; else the file's vendor's")
    parser.add_argument(
        "--grid", default="1", metavar="X[,Y,Z]", help="how many blocks; one, if not given"
    )
    parser.add_argument(
        "--block", default="1", metavar="X[,Y,Z]", help="work-items of a block; one, if not given"
    )
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help=f"in order: {HOW}"
    )
    parser.add_argument(
        "--out", action="append", default=[], metavar="NAME=FILE.npy", help="keep an array"
    )
    parser.add_argument(
        "--timeout-ms", type=int, default=30_000, metavar="MS",
        help="how long to wait, in the device's time; else 30000",
    )  # fmt: skip


@dataclass(frozen=True)
class ArgumentText:
    """`NAME=VALUE`, as one argument of a kernel is given.

    A value is a file of an array, `in.npy`; a typed number, `int32:100`; an array of zeros,
    `float32[10,20]`; or a plain number, where the file says of which type the argument is.
    """

    name: str
    value: str

    @classmethod
    def of(cls, text: str) -> ArgumentText:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise LaunchError(f"--arg {text!r} is no NAME=VALUE", hint=HOW)
        return cls(name, value)

    def read(self) -> np.ndarray[Any, Any] | np.generic | int | float:
        """The array or number."""
        shaped, typed = _SHAPED.match(self.value), _TYPED.match(self.value)
        if self.value.endswith(".npy"):
            return self._file()
        if shaped is not None:
            return self._zeros(_dtype(shaped[1]), shaped[2])
        if typed is not None:
            return self._typed(_dtype(typed[1]), typed[2])
        try:
            return int(self.value, 0)
        except ValueError:
            pass
        try:
            return float(self.value)
        except ValueError:
            raise LaunchError(f"--arg {self.name}: {self._unknown()}", hint=HOW) from None

    @property
    def is_array(self) -> bool:
        return self.value.endswith(".npy") or _SHAPED.match(self.value) is not None

    def _unknown(self) -> str:
        """What a value is not, where it is none of those that there are."""
        if Path(self.value).exists():
            return f"{self.value} is no .npy file, as numpy.save writes them"
        return f"{self.value!r} is no number, no array and no .npy file"

    def _file(self) -> np.ndarray[Any, Any]:
        try:
            with Path(self.value).open("rb") as file:
                found: np.ndarray[Any, Any] = np.lib.format.read_array(file, allow_pickle=False)
        except DAMAGED as error:
            raise BadFile(f"{self.value}: {why(error)}") from None
        if found.dtype.kind not in "biuf":
            raise BadFile(f"{self.value} holds no array of numbers")
        return found

    def _zeros(self, dtype: np.dtype[Any], sizes: str) -> np.ndarray[Any, Any]:
        try:
            shape = tuple(int(size) for size in sizes.split(",") if size.strip())
        except ValueError:
            raise LaunchError(f"--arg {self.name}: {sizes!r} is no shape", hint=HOW) from None
        count = 1
        for size in shape:
            count *= size
        if count * dtype.itemsize > MAX_ARRAY_BYTES:
            raise LaunchError(f"--arg {self.name}: {count} elements are too many")
        try:
            return np.zeros(shape, dtype)
        except (ValueError, MemoryError) as error:
            raise LaunchError(f"--arg {self.name}: {error}") from None

    def _typed(self, dtype: np.dtype[Any], text: str) -> np.generic:
        try:
            number: Any
            if dtype.kind == "b":
                number = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            else:
                number = float(text) if dtype.kind == "f" else int(text, 0)
            with np.errstate(over="ignore"):  # what is too large is an infinity, as in C
                made: np.generic = np.array([number], dtype)[0]
            return made
        except (KeyError, ValueError, OverflowError):
            raise LaunchError(f"--arg {self.name}: {text!r} is no {dtype}") from None


def _dtype(name: str) -> np.dtype[Any]:
    if name not in DTYPES:
        raise LaunchError(
            f"{name!r} is no type of a number; there are: {', '.join(sorted(DTYPES))}"
        )
    return np.dtype(name)


def sizes(text: str, what: str) -> tuple[int, ...]:
    """`16,4` as numbers."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise LaunchError(f"--{what} {text!r} is not X, X,Y or X,Y,Z") from None
    return found


def ordered(
    arguments: Sequence[ArgumentText], signature: tuple[Parameter, ...] | None, kernel: str
) -> list[ArgumentText]:
    """The arguments in the kernel's order: by its names where it has them, else as given."""
    names = [argument.name for argument in arguments]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LaunchError(f"argument {twice!r} is given twice")
    known = [parameter.name for parameter in signature or ()]
    if signature is None or (len(known) == len(names) and not set(known) & set(names)):
        return list(arguments)
    if sorted(known) != sorted(names):
        takes = ", ".join(f"{p.name}: {p.dtype}" for p in signature)
        raise LaunchError(f"{kernel} takes {takes or 'no arguments'}; given: {', '.join(names)}")
    by_name = {argument.name: argument for argument in arguments}
    return [by_name[name] for name in known]


def check_plain(argument: ArgumentText, value: Any, parameter: Parameter | None) -> None:
    """Refuse a plain number whose type the file does not say, with what to write."""
    if not isinstance(value, (int, float)) or isinstance(value, np.generic):
        return
    dtype = parameter.dtype if parameter is not None else "bytes8"
    if not dtype.startswith("bytes") and dtype != POINTER:
        return
    size = int(dtype[5:] or 0) if dtype.startswith("bytes") else 8
    kinds = ["int", "uint"] if isinstance(value, int) else []
    if size > 1:
        kinds.append("float")
    said = f"the file says {size} bytes and no type" if parameter is not None else "and no type"
    if dtype == POINTER:
        said, kinds = "and the kernel takes an address", ["uint"]
    choices = " or ".join(f"--arg {argument.name}={k}{8 * size}:{argument.value}" for k in kinds)
    raise LaunchError(f"{argument.name}: plain number {argument.value}, {said}", hint=choices)


def default_device(data: bytes) -> str:
    """The first device of the vendor whose program it is; the CPU where that is nobody's."""
    for vendor in decoders.available():
        if decoders.decoder(vendor).is_program(data):
            return f"{vendor}:0"
    return "cpu:0"


def choose_kernel(program: Any, name: str | None) -> Kernel:
    """The kernel called `name`, or the only one."""
    names = list(program)
    if name is None and len(names) != 1:
        raise LaunchError(
            f"the file has kernels {', '.join(names) or 'none'}", hint="--kernel NAME"
        )
    kernel: Kernel = program[names[0] if name is None else name]
    return kernel


def run(options: argparse.Namespace) -> int:
    """Launch, wait, and show or keep what the arrays hold."""
    data = read_input(options.file)
    check_compiled(data, options.file)
    texts = [ArgumentText.of(text) for text in options.arg]
    keep = dict(_kept(text, texts) for text in options.out)
    name = options.device or default_device(data)
    with _opened(name, options.file) as device:
        try:
            kernel = choose_kernel(device.load(data), options.kernel)
        except RawGpuError as error:
            raise prefixed(error, options.file) from None
        seconds, arrays = _launch(device, kernel, texts, options)
        held = {key: array.numpy() for key, array in arrays.items()}
        for key, path in keep.items():
            np.save(path, held[key], allow_pickle=False)
        _show(device, kernel, seconds, held, options)
    return 0


def _kept(text: str, arguments: Sequence[ArgumentText]) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or not path.endswith(".npy"):
        raise LaunchError(f"--out {text!r} is no NAME=FILE.npy")
    known = {argument.name: argument for argument in arguments}
    if name not in known:
        raise LaunchError(f"--out {name}: there is no --arg {name}=…")
    if not known[name].is_array:
        raise LaunchError(f"--out {name}: this argument is no array")
    folder = Path(path).parent
    if not folder.is_dir():
        raise LaunchError(f"--out {text}: there is no folder {folder}", hint=f"mkdir -p {folder}")
    if Path(path).is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise LaunchError(f"--out {text}: {path} cannot be written")
    return name, path


def check_compiled(data: bytes, path: str) -> None:
    """Raise BadFile for what is nothing that a compiler made, with what makes it so."""
    if data.startswith(ELF_MAGIC) or default_device(data) != "cpu:0":
        return
    if path.endswith(".npy"):
        raise BadFile(f"{path} is an array and no compiled file", hint="--arg NAME=" + path)
    hints = dict.fromkeys((".cl", ".c"), "compile it first: " + CLANG.format(file=path))
    hints[".ll"] = "rawgpu.compiler_bridge.llvm.compile_ir, as docs/vendors/amd.md shows"
    raise BadFile(
        f"{path} is no compiled file: neither an ELF nor an offload bundle",
        hint=hints.get(Path(path).suffix),
    )


def _opened(name: str, path: str) -> Device:
    try:
        return rawgpu.open(name)
    except DeviceNotFound as error:
        if error.hint is None:
            raise
        raise DeviceNotFound(
            f"{path} wants {name}: {error.message}", hint="--device, or RAWGPU_VIRTUAL=gfx1100"
        ) from None


def _launch(
    device: Device, kernel: Kernel, texts: Sequence[ArgumentText], options: argparse.Namespace
) -> tuple[float, dict[str, Array]]:
    arrays: dict[str, Array] = {}
    values: list[Any] = []
    signature = kernel.signature
    for position, text in enumerate(ordered(texts, signature, kernel.name)):
        value: Any = text.read()
        check_plain(text, value, signature[position] if signature is not None else None)
        if isinstance(value, np.ndarray):
            value = arrays[text.name] = device.array(value)
        values.append(value)
    grid, block = sizes(options.grid, "grid"), sizes(options.block, "block")
    began = time.perf_counter()
    kernel(*values, grid=grid, block=block)
    device.synchronize(options.timeout_ms)
    return time.perf_counter() - began, arrays


def _show(
    device: Device,
    kernel: Kernel,
    seconds: float,
    held: dict[str, np.ndarray[Any, Any]],
    options: argparse.Namespace,
) -> None:
    properties = device.properties
    shape = {"grid": sizes(options.grid, "grid"), "block": sizes(options.block, "block")}
    if options.json:
        rows = {
            key: {"dtype": str(array.dtype), "shape": list(array.shape), "first": _first(array)}
            for key, array in held.items()
        }
        line = {"device": properties.name, "arch": properties.arch, "kernel": kernel.name, **shape}
        print(json.dumps({**line, "seconds": seconds, "arrays": rows, "kept": options.out}))
        return
    where = f"{properties.name} ({properties.arch})"
    how = ", ".join(f"{name} {','.join(map(str, size))}" for name, size in shape.items())
    print(f"{kernel.name} on {where}, {how}: {seconds * 1e3:.3f} ms")
    for key, array in held.items():
        more = ", …" if array.size > SHOWN else ""
        shown = ", ".join(str(item) for item in array.reshape(-1)[:SHOWN].tolist())
        print(f"  {key}: {array.dtype}{list(array.shape)} = [{shown}{more}]")
    for text in options.out:
        print(f"  kept {text}")


def _first(array: np.ndarray[Any, Any]) -> list[Any]:
    """JSON knows no infinities and no NaN: those become text."""
    found = array.reshape(-1)[:SHOWN].tolist()
    return [v if not isinstance(v, float) or np.isfinite(v) else str(v) for v in found]
