from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from rawgpu.compiler_bridge import maths
from rawgpu.compiler_bridge.llvm import Job, Target, compile_many, host_target
from rawgpu.compiler_bridge.maths_llvm import LlvmOps
from rawgpu.compiler_bridge.target import (
    AARCH64_TRIPLE,
    AMDGPU_TRIPLE,
    NVPTX_TRIPLE,
    X86_64_TRIPLE,
)
from rawgpu.compiler_bridge.text import Module
from rawgpu.compiler_bridge.types import Type, f32, f64, ptr, vector
from tests.compiler_bridge.native import NativeMap

PROCESSORS = [
    Target(X86_64_TRIPLE, "x86-64-v3"),
    Target(X86_64_TRIPLE, "x86-64-v4"),
    Target(AARCH64_TRIPLE, "generic"),
]


def module_of_all(scalar: Type, lanes: int, **options: Any) -> str:
    """Every function once, each in a function of its own."""
    module = Module()
    type_ = vector(scalar, lanes)
    space = options.get("table_space", 0)
    where = Type("ptr", 64, 0, 1) if space else ptr
    for name, (function, count) in maths.FUNCTIONS.items():
        f = module.function(f"k_{name}", [(where, f"p{i}") for i in range(count + 1)])
        *sources, target = f.args
        result = function(LlvmOps(f, **options), *(f.load(type_, p) for p in sources))
        f.store(result, target)
        f.ret()
    return str(module)


def undefined(elf: bytes) -> set[str]:
    section = ELFFile(io.BytesIO(elf)).get_section_by_name(".symtab")
    assert isinstance(section, SymbolTableSection)
    return {s.name for s in section.iter_symbols() if s["st_shndx"] == "SHN_UNDEF" and s.name}


@pytest.mark.parametrize(("scalar", "lanes"), [(f32, 0), (f32, 16), (f64, 0), (f64, 4)])
def test_no_function_calls_a_library(scalar: Type, lanes: int) -> None:
    text = module_of_all(scalar, lanes)
    for target, elf in zip(
        PROCESSORS, compile_many([Job(text, target) for target in PROCESSORS]), strict=True
    ):
        assert undefined(elf) == set(), target


def test_gpus_compile_all_functions() -> None:
    text = module_of_all(f32, 0, table_space=4)
    amd, nvidia = compile_many(
        [Job(text, Target(AMDGPU_TRIPLE, "gfx1100")), Job(text, Target(NVPTX_TRIPLE, "sm_90"))]
    )
    assert undefined(amd) == set()
    assert b".const" in nvidia


def square_roots(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    run = NativeMap(lambda ops, x: ops.sqrt(x), lanes=16, scalef=True)
    assert "rsqrt14" in run.text
    found: np.ndarray[Any, Any] = run(x)
    return found


needs_avx512 = pytest.mark.skipif(
    "avx512f" not in host_target().enabled, reason="the short way to a square root needs AVX-512"
)


@needs_avx512
def test_square_roots_are_correctly_rounded_whatever_the_number() -> None:
    edges = [0, 1, 0x7FFFFF, 0x800000, 0x0D800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000]
    near = [e + d for e in edges for d in range(-3, 4)]
    random = np.random.default_rng(3).integers(0, 1 << 32, 1 << 20, np.uint64).tolist()
    bits = np.array([*near, *(n ^ 0x80000000 for n in near), *random]).astype(np.uint32)
    x = np.resize(bits, -(-bits.size // 16) * 16).view(np.float32)
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(x)
    found = square_roots(x)
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (
        np.isnan(found) & np.isnan(expected)
    )
    assert same.all(), x[~same][:5]


@needs_avx512
@pytest.mark.full
def test_every_square_root_of_two_octaves_is_correctly_rounded() -> None:
    for start in range(0x3F800000, 0x40800000, 1 << 22):
        x = np.arange(start, start + (1 << 22), dtype=np.uint32).view(np.float32)
        assert np.array_equal(square_roots(x), np.sqrt(x))
