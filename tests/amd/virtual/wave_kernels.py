"""Kernels of one expression: LLVM IR compiled for a GPU and run from its machine code."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from rawgpu.amd.virtual import wave
from tests.amd.virtual.wave_rig import Arena, Kernel, attributes, compile_kernel, finish, services

SIZES = {"i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}


def bytes_of(type_: str) -> int:
    """The size of an LLVM type: a scalar or a vector of scalars."""
    if not type_.startswith("<"):
        return SIZES[type_]
    count, _, element = type_.strip("<>").split()
    return int(count) * SIZES[element]


def element_kernel(
    generation: str, block: int, inputs: Sequence[str], result: str, body: str, declares: str = ""
) -> str:
    """A kernel whose item i reads %a, %b, … of `inputs` from arrays and stores %r of `result`."""
    names = [chr(ord("a") + n) for n in range(len(inputs))]
    arguments = ", ".join(f"ptr addrspace(1) %p{name}" for name in (*names, "r"))
    lines = []
    for name, type_ in zip(names, inputs, strict=True):
        size = bytes_of(type_)
        lines.append(f"  %o{name} = mul i64 %i, {size}")
        lines.append(f"  %q{name} = getelementptr i8, ptr addrspace(1) %p{name}, i64 %o{name}")
        lines.append(f"  %{name} = load {type_}, ptr addrspace(1) %q{name}, align {min(size, 4)}")
    lines.append(body)
    lines.append(f"  %or = mul i64 %i, {bytes_of(result)}")
    lines.append("  %qr = getelementptr i8, ptr addrspace(1) %pr, i64 %or")
    align = min(bytes_of(result), 4)
    lines.append(f"  store {result} %r, ptr addrspace(1) %qr, align {align}")
    text = "\n".join(lines)
    return f"""
declare i32 @llvm.amdgcn.workitem.id.x()
{declares}
define amdgpu_kernel void @k({arguments}) #0 {{
  %i32 = call i32 @llvm.amdgcn.workitem.id.x()
  %i = zext i32 %i32 to i64
{text}
  ret void
}}
attributes #0 = {{ {attributes(generation, block)} }}
"""


def run_kernel(
    image: bytes,
    generation: str,
    inputs: Sequence[Any],
    result: Any,
    block: int,
    *,
    native: bool,
    groups: int = 1,
    **changes: Any,
) -> Any:
    """What the kernel stores: `result` (dtype, count)."""
    dtype, count = result
    arena = Arena(16 << 20)
    kernel = Kernel(arena, image, "k", generation)
    places = [arena.put(np.ascontiguousarray(data).tobytes()) for data in inputs]
    target = arena.space(np.dtype(dtype).itemsize * count)
    arguments = struct.pack(f"<{len(places) + 1}Q", *places, target)
    dispatch = kernel.dispatch(arguments, (groups, 1, 1), (block, 1, 1), **changes)
    engine = wave.run_dispatch if native else wave.interpret_dispatch
    finish(engine(dispatch, arena, services()))
    return np.array(arena.view(target, dtype, count))


def evaluate(
    generation: str,
    inputs: Sequence[tuple[str, Any]],
    result: tuple[str, Any],
    body: str,
    declares: str = "",
    *,
    native: bool = False,
    block: int | None = None,
) -> Any:
    """Compile and run one expression over arrays; `result` is LLVM's type and NumPy's."""
    block = block or len(inputs[0][1])
    text = element_kernel(generation, block, [t for t, _ in inputs], result[0], body, declares)
    image = compile_kernel(text, generation)
    count = block * bytes_of(result[0]) // np.dtype(result[1]).itemsize
    data = [array for _, array in inputs]
    return run_kernel(image, generation, data, (result[1], count), block, native=native)
