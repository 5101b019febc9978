from __future__ import annotations

import subprocess
import sys

import pytest

from rawgpu.compiler_bridge import target_names
from rawgpu.compiler_bridge.llvm import assembly, compile_ir
from rawgpu.compiler_bridge.target import (
    AARCH64_TRIPLE,
    AMDGPU_TRIPLE,
    NVPTX_TRIPLE,
    SPIRV_TRIPLE,
    X86_64_TRIPLE,
    Target,
    check_target,
    host_target,
)
from rawgpu.errors import UnsupportedDevice

FMA = """
define void @k(ptr %p) {
  %v = load <16 x float>, ptr %p, align 4
  %w = call <16 x float> @llvm.fma.v16f32(<16 x float> %v, <16 x float> %v, <16 x float> %v)
  store <16 x float> %w, ptr %p, align 4
  ret void
}
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
"""

ASK = """
import sys
from llvmlite import binding
binding.initialize_all_targets()
binding.initialize_all_asmprinters()
binding.Target.from_triple(sys.argv[1]).create_target_machine(cpu="help")
"""


@pytest.mark.parametrize("triple", [X86_64_TRIPLE, AARCH64_TRIPLE, AMDGPU_TRIPLE, NVPTX_TRIPLE])
def test_the_rows_hold_the_names_that_llvm_prints(triple: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", ASK, triple], capture_output=True, text=True, check=True
    )
    cpus, features = run.stderr.split("Available features for this target:")

    def names(part: str) -> tuple[str, ...]:
        lines = (line.split() for line in part.splitlines())
        return tuple(words[0] for words in lines if len(words) > 2 and words[1] == "-")

    row = target_names.TABLES[triple.split("-")[0]]
    assert row.cpus == names(cpus)
    assert row.features == names(features)


@pytest.mark.parametrize(
    ("triple", "cpus"),
    [
        (
            AMDGPU_TRIPLE,
            "gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1200 "
            "gfx1201 gfx1250",
        ),
        (NVPTX_TRIPLE, "sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_120"),
        (X86_64_TRIPLE, "x86-64-v3 x86-64-v4 icelake-server znver4"),
        (AARCH64_TRIPLE, "generic neoverse-n1 apple-m1"),
        (SPIRV_TRIPLE, "anything"),
    ],
)
def test_the_processors_we_name_are_known(triple: str, cpus: str) -> None:
    for cpu in cpus.split():
        check_target(Target(triple, cpu))


def test_an_unknown_processor_is_refused_with_its_neighbours() -> None:
    with pytest.raises(UnsupportedDevice, match=r"(?s)'gfx1104' for amdgcn.*try: .*gfx1103"):
        check_target(Target(AMDGPU_TRIPLE, "gfx1104"))
    with pytest.raises(UnsupportedDevice, match="no architecture 'riscv64'"):
        check_target(Target("riscv64-unknown-linux-gnu", "generic"))


def test_features_are_checked_by_name_and_sign() -> None:
    check_target(Target(X86_64_TRIPLE, "x86-64-v3", "+avx512f,-amx-tile"))
    with pytest.raises(UnsupportedDevice, match=r"(?s)feature 'avx512g'.*avx512f"):
        check_target(Target(X86_64_TRIPLE, "x86-64-v3", "+avx512g"))
    with pytest.raises(UnsupportedDevice, match=r"\+avx512f to turn it on"):
        check_target(Target(X86_64_TRIPLE, "x86-64-v3", "avx512f"))


def test_an_unknown_processor_never_reaches_llvm() -> None:
    with pytest.raises(UnsupportedDevice):
        compile_ir(FMA, Target(AMDGPU_TRIPLE, "gfx9999"))
    with pytest.raises(UnsupportedDevice):
        compile_ir(FMA, Target(AMDGPU_TRIPLE, "gfx9999"), own=True)


def test_the_host_uses_all_it_has() -> None:
    host = host_target()
    check_target(host)
    assert "call" not in assembly(FMA, host)
    if "avx512f" in host.enabled:
        assert "zmm" in assembly(FMA, host)


def test_the_least_x86_we_support_has_fma() -> None:
    text = assembly(FMA, Target(X86_64_TRIPLE, "x86-64-v3"))
    assert "vfmadd" in text
    assert "ymm" in text
    assert "fmaf" in assembly(FMA, Target(X86_64_TRIPLE, "x86-64"))  # hence the minimum
