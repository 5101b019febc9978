"""Runs generated functions on this processor and on the engines of waves, and compares.

`python -m tests.amd.virtual.foreign_run gfx1100 32 float 3` prints what differs in one function,
`… --text` also its text.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.virtual import wave
from rawgpu.amd.virtual.lift_library import LIBRARY
from rawgpu.amd.virtual.lift_run import NativeRunner
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.compiler_bridge.llvm import Job, Target, compile_many
from rawgpu.compiler_bridge.target import X86_64_TRIPLE, host_target
from rawgpu.native import system
from rawgpu.native.image import Image
from tests.amd.virtual import foreign_directed, foreign_memory, foreign_values
from tests.amd.virtual.emitted import row_names
from tests.amd.virtual.wave_foreign import (
    ITEMS,
    LDS_BYTES,
    OUTPUTS,
    RECORD,
    RECORD_BYTES,
    SHARED_BYTES,
    TABLE_BYTES,
    UNIFORM_BYTES,
    UNIFORMS,
    Function,
    Output,
    gpu_text,
    host_text,
)
from tests.amd.virtual.wave_rig import Arena, Kernel, attributes, finish, services

KINDS: dict[str, Callable[[int], Function]] = {
    **foreign_values.KINDS, **foreign_memory.KINDS, **foreign_directed.KINDS,
}  # fmt: skip
TOGETHER = 18
"""Functions of one module."""
DTYPES = {
    "i1": "u1", "i8": "u1", "i16": "u2", "i32": "u4", "i64": "u8", "half": "u2", "bfloat": "u2",
    "float": "u4", "double": "u8",
}  # fmt: skip
INFINITY = {"half": 0x7C00, "bfloat": 0x7F80, "float": 0x7F800000, "double": 0x7FF << 52}


def functions(count: int) -> list[Function]:
    """The first `count`, of all kinds in turn."""
    names = list(KINDS)
    return [KINDS[names[i % len(names)]](i // len(names)) for i in range(count)]


# Data.


def _integers(rng: np.random.Generator, type_: str, count: int) -> Any:
    bits = int(type_[1:])
    whole = rng.integers(0, 1 << 63, count, dtype=np.uint64) << np.uint64(1)
    whole ^= rng.integers(0, 1 << 32, count, dtype=np.uint64)
    value = whole >> rng.integers(64 - bits, 63, count, dtype=np.uint64)
    value = np.where(rng.random(count) < 0.3, ~value, value)
    edges = np.array([0, 1, (1 << 64) - 1, 1 << bits - 1, (1 << bits - 1) - 1], np.uint64)
    return np.where(rng.random(count) < 0.15, rng.choice(edges, count), value)


def _floats(rng: np.random.Generator, type_: str, count: int) -> Any:
    """Bits: ordinary numbers, small whole ones, edges, denormals, a few NaN."""
    exponents = {"half": 3, "bfloat": 12, "float": 12, "double": 40}[type_]
    value = rng.standard_normal(count) * 2.0 ** rng.integers(-exponents, exponents, count)
    value = np.where(rng.random(count) < 0.25, rng.integers(-9, 10, count), value)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -1.0]
    value = np.where(rng.random(count) < 0.15, rng.choice(edges, count), value)
    with np.errstate(all="ignore"):
        if type_ == "double":
            bits = value.view(np.uint64)
        elif type_ == "half":
            bits = value.astype(np.float16).view(np.uint16).astype(np.uint64)
        else:
            bits = value.astype(np.float32).view(np.uint32).astype(np.uint64)
            bits = bits >> np.uint64(16) if type_ == "bfloat" else bits
    small = rng.integers(1, 200, count, dtype=np.uint64)  # denormals
    return np.where(rng.random(count) < 0.06, small, bits)


def _rows(rng: np.random.Generator, rows: Any, size: int, count: int) -> Any:
    data = np.zeros((count, size), np.uint8)
    for type_, _, offset in rows:
        dtype = np.dtype(DTYPES[type_])
        own = _integers(rng, type_, count) if type_[0] == "i" else _floats(rng, type_, count)
        narrow = own.astype(dtype).view(np.uint8).reshape(count, dtype.itemsize)
        data[:, offset : offset + dtype.itemsize] = narrow
    return data


@dataclass
class Data:
    """What a function is run on."""

    records: Any
    uniforms: bytes
    shared: Any
    table: Any

    @staticmethod
    @functools.lru_cache(maxsize=128)
    def of(seed: int) -> Data:
        """Never changed by who uses it."""
        rng = np.random.default_rng(seed)
        return Data(
            _rows(rng, RECORD, RECORD_BYTES, ITEMS),
            _rows(rng, UNIFORMS, UNIFORM_BYTES, 1).tobytes(),
            rng.integers(0, 256, SHARED_BYTES, dtype=np.uint8),
            rng.integers(0, 256, TABLE_BYTES, dtype=np.uint8),
        )


@dataclass
class Result:
    """Values of each item, 8 bytes each, and the shared memory."""

    out: Any
    shared: Any


def reference_target() -> Target:
    """This processor, with scalar code in mind: no AVX-512."""
    host = host_target()
    return Target(X86_64_TRIPLE, "x86-64-v3") if host.arch == "x86_64" else host


def on_host(image: Image, number: int, data: Data) -> Result:
    result = Result(np.zeros((ITEMS, OUTPUTS), np.uint64), data.shared.copy())
    lds = np.zeros(LDS_BYTES + 16, np.uint8)
    uniforms = np.frombuffer(data.uniforms, np.uint8)
    arrays = (data.records, result.out, result.shared, data.table, lds, uniforms)
    signature = f"void (*)({', '.join(['uint64_t'] * len(arrays))})"
    call = system.ffi.cast(signature, image.address(f"k{number}"))
    call(*(array.ctypes.data for array in arrays))
    return result


class _Fetched(Code):
    """Code that tells what was fetched: the interpreter fetches only what it executes."""

    last: _Fetched | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        _Fetched.last = self

    def executed(self) -> list[MachineInstruction]:
        return list(self._known.values())


@dataclass
class OnGpu:
    """A kernel of an object, and data for it, in an arena of its own."""

    image: bytes
    name: str
    generation: str
    data: Data
    rows: set[str] = field(default_factory=set)
    """Of the instructions that the interpreter has executed."""

    def run(self, *, native: bool) -> Result:
        arena = Arena(8 << 20)
        kernel = Kernel(arena, self.image, self.name, self.generation)
        places = [
            arena.put(self.data.records.tobytes()),
            arena.space(8 * ITEMS * OUTPUTS),
            arena.put(self.data.shared.tobytes()),
            arena.put(self.data.table.tobytes()),
        ]
        arguments = struct.pack("<4Q", *places) + self.data.uniforms
        dispatch = kernel.dispatch(arguments, (1, 1, 1), (ITEMS, 1, 1))
        if native:
            lifted = LIBRARY.find(dispatch, arena, at_once=True)
            assert lifted is not None, f"{self.name} was not lifted"
            runner = NativeRunner(lifted, dispatch, arena, services())
            finish(runner.run())
            runner.close()
        else:
            with mock.patch.object(wave, "Code", _Fetched):
                _Fetched.last = None
                finish(wave.interpret_dispatch(dispatch, arena, services()))
            assert _Fetched.last is not None
            self.rows = {name for i in _Fetched.last.executed() for name in row_names(i)}
        out = np.array(arena.view(places[1], np.uint64, ITEMS * OUTPUTS))
        return Result(
            out.reshape(ITEMS, OUTPUTS), np.array(arena.view(places[2], np.uint8, SHARED_BYTES))
        )


# Comparison.

NEAR: dict[str, tuple[Callable[[Any], Any], float]] = {
    "rcp": (lambda x: 1 / x, 1.0),
    "rsq": (lambda x: 1 / np.sqrt(x), 2.0),
    "sqrt": (np.sqrt, 1.0),
    "exp2": (np.exp2, 1.0),
    "log": (np.log2, 2.0),
    "sin": (lambda x: np.sin(2 * np.pi * (x % 1)), 64.0),
    "cos": (lambda x: np.cos(2 * np.pi * (x % 1)), 64.0),
    "fract": (lambda x: np.minimum(x - np.floor(x), np.nextafter(np.float32(1), np.float32(0))), 0),
}
"""Approximate functions of hardware: what they stand for, and how far off a result may be, in units
of its last place; for sine and cosine, of 2⁻²⁴. A result that is denormal may be 0."""


def _numbers(raw: Any, type_: str) -> Any:
    if type_ == "half":
        return raw.astype(np.uint16).view(np.float16).astype(np.float64)
    if type_ == "bfloat":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if type_ == "float":
        return raw.astype(np.uint32).view(np.float32).astype(np.float64)
    return raw.view(np.float64)


def differs(output: Output, host: Any, gpu: Any) -> Any:
    """Where the values of an output are not what they must be."""
    bits = 8 * np.dtype(DTYPES[output.type]).itemsize
    mask = np.uint64((1 << bits) - 1)
    host, gpu = host & mask, gpu & mask
    if output.near:
        return _is_far(output, host, gpu)
    unequal = host != gpu
    if output.type in INFINITY:
        infinity = np.uint64(INFINITY[output.type])
        positive = np.uint64((1 << bits - 1) - 1)
        unequal &= ~(((host & positive) > infinity) & ((gpu & positive) > infinity))
    return unequal


def _is_far(output: Output, host: Any, gpu: Any) -> Any:
    function, units = NEAR[output.near]
    type_: Any = {"half": np.float16, "float": np.float32, "double": np.float64}[output.type]
    with np.errstate(all="ignore"):
        x, got = _numbers(host, output.type), _numbers(gpu, output.type)
        want = function(x)
        rounded = want.astype(type_)
        step = np.abs(np.spacing(rounded.astype(type_))).astype(np.float64)
        if output.near in ("sin", "cos"):
            step = np.full_like(want, 2.0**-24)
        if output.type == "double":  # 24 bits or so are promised
            step = np.abs(want) * 2.0**-23
        far = np.abs(got - want) > units * step
        far &= got != rounded
        tiny = np.finfo(type_).tiny
        small = (np.abs(x) < tiny) | (np.abs(want) < tiny)  # a denormal may count as 0
        far &= ~(small & ((got == 0) | np.isinf(got)))
        far &= ~(np.isnan(want) & np.isnan(got))
        if output.near in ("sin", "cos"):  # large arguments are not in range
            far &= (np.abs(x) < 256) & ~small
    return far


def difference(function: Function, want: Result, got: Result) -> str:
    """The first difference in words; empty where there is none."""
    for number, output in enumerate(function.outputs):
        wrong = np.flatnonzero(differs(output, want.out[:, number], got.out[:, number]))
        if len(wrong):
            item = int(wrong[0])
            a, b = int(want.out[item, number]), int(got.out[item, number])
            near = f" of {output.near}" if output.near else ""
            return (
                f"output {number} ({output.type}{near}), item {item}: {a:#x} here, {b:#x} there; "
                f"{len(wrong)} items"
            )
    wrong = np.flatnonzero(want.shared != got.shared)
    if len(wrong) and function.kind != "flat":
        return f"shared memory at {wrong[0]:#x}, {len(wrong)} bytes"
    return ""


@dataclass
class Report:
    """What came of some functions on one GPU."""

    ran: int = 0
    lifted: int = 0
    wrong: list[str] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)


_host_images: dict[str, Image] = {}
"""The reference is the same for all GPUs with waves of as many lanes."""


def check(
    wanted: Sequence[Function], generation: str, lanes: int, *, lift_every: int = 1
) -> Report:
    """Compare functions; every n-th is lifted as well, all are interpreted."""
    wave_feature = "+wavefrontsize64" if lanes == 64 and generation.startswith("gfx1") else ""
    gpu, host = Target("amdgcn-amd-amdhsa", generation, wave_feature), reference_target()
    groups = [wanted[i : i + TOGETHER] for i in range(0, len(wanted), TOGETHER)]
    own = attributes(generation, ITEMS)
    texts = [host_text(group, lanes) for group in groups]
    jobs = [Job(text, host, "none", 1) for text in texts if text not in _host_images]
    jobs += [Job(gpu_text(group, own, lanes), gpu, "light", 2) for group in groups]
    images = compile_many(jobs)
    for text in texts:
        if text not in _host_images:
            _host_images[text] = Image(images.pop(0))
    report = Report()
    for at, group in enumerate(groups):
        here = _host_images[texts[at]]
        for number, function in enumerate(group):
            data = Data.of(report.ran)
            want = on_host(here, number, data)
            there = OnGpu(images[at], f"k{number}", generation, data)
            engines = [False, True] if report.ran % lift_every == 0 else [False]
            for native in engines:
                found = difference(function, want, there.run(native=native))
                if found:
                    engine = "lifted" if native else "interpreted"
                    report.wrong.append(f"{function.kind} {function.seed} {engine}: {found}")
                report.lifted += native
            report.rows |= there.rows
            report.ran += 1
    return report


def main() -> int:
    generation, lanes, kind, seed = sys.argv[1:5]
    function = KINDS[kind](int(seed))
    if "--text" in sys.argv:
        print(gpu_text([function], attributes(generation, ITEMS), int(lanes)))
    report = check([function], generation, int(lanes))
    print(*report.wrong, sep="\n")
    return bool(report.wrong)


if __name__ == "__main__":
    sys.exit(main())
