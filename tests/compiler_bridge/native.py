"""Runs elementary functions as native code over NumPy arrays, for tests. Not a test itself."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import binding

from rawgpu.compiler_bridge.llvm import host_target
from rawgpu.compiler_bridge.maths_llvm import LlvmOps
from rawgpu.compiler_bridge.text import Module, Value
from rawgpu.compiler_bridge.types import Type, f32, f64, i64, ptr, vector

Body = Callable[..., Any]
NUMPY_OF = {"float": "f", "int": "u"}


def map_text(
    body: Body, inputs: Sequence[Type], output: Type, lanes: int, ops_options: dict[str, Any]
) -> str:
    """A function @run(inputs..., output, count) that applies `body` in steps of `lanes`."""
    module = Module()
    params = [(ptr, f"x{i}") for i in range(len(inputs))]
    f = module.function("run", [*params, (ptr, "y"), (i64, "n")])
    *sources, target, count = f.args
    entry, loop, done = f.current, f.block("loop"), f.block("done")
    f.condbr(f.icmp("ne", count, f.const(i64, 0)), loop, done)
    f.at(loop)
    i = f.phi(i64, (f.const(i64, 0), entry))
    values = [
        f.load(vector(t, lanes), f.gep(p, i, t)) for t, p in zip(inputs, sources, strict=True)
    ]
    result: Value = body(LlvmOps(f, **ops_options), *values)
    assert result.type == vector(output, lanes), result
    f.store(result, f.gep(target, i, output))
    following = f.add(i, f.const(i64, max(1, lanes)))
    i.add(following, f.current)
    f.condbr(f.icmp("ult", following, count), loop, done)
    f.at(done)
    f.ret()
    return str(module)


def load(text: str, name: str, cpu: str | None = None) -> tuple[Any, int]:
    """(what keeps the code alive, address of `name`) for IR text, by LLVM's own loader."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    host = host_target()
    machine = binding.Target.from_triple(host.triple).create_target_machine(
        cpu=cpu or host.cpu, features="" if cpu else host.features, opt=2
    )
    engine = binding.create_mcjit_compiler(binding.parse_assembly(text), machine)
    engine.finalize_object()
    return engine, engine.get_function_address(name)


class NativeMap:
    """`body` compiled for the host, called on arrays of any length."""

    def __init__(
        self,
        body: Body,
        inputs: Sequence[Type] = (f32,),
        output: Type = f32,
        *,
        lanes: int = 16,
        cpu: str | None = None,
        **ops_options: Any,
    ) -> None:
        self.lanes = max(1, lanes)
        self.output = np.dtype(f"{NUMPY_OF[output.kind]}{output.bits // 8}")
        self.text = map_text(body, inputs, output, lanes, ops_options)
        self.host = host_target()
        self.engine, address = load(self.text, "run", cpu)
        kinds = [ctypes.c_void_p] * (len(inputs) + 1) + [ctypes.c_int64]
        self.function = ctypes.CFUNCTYPE(None, *kinds)(address)

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        size = arrays[0].size
        padded = -(-size // self.lanes) * self.lanes
        if padded != size:
            arrays = tuple(np.resize(a, padded) for a in arrays)
        arrays = tuple(np.ascontiguousarray(a) for a in arrays)
        result = np.empty(padded, self.output)
        self.function(*(a.ctypes.data for a in arrays), result.ctypes.data, padded)
        return result[:size]


@functools.cache
def native32(body: Body, arity: int = 1) -> NativeMap:
    """A float32 function in 16 lanes."""
    return NativeMap(body, (f32,) * arity, f32, lanes=16)


@functools.cache
def native64(body: Body, arity: int = 1) -> NativeMap:
    """A float64 function in 8 lanes."""
    return NativeMap(body, (f64,) * arity, f64, lanes=8)
