from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from rawgpu.compiler_bridge.llvm import (
    Job,
    Passes,
    Target,
    assembly,
    compile_each,
    compile_in_process,
    compile_ir,
    compile_many,
    host_target,
    in_process_pays,
)
from rawgpu.compiler_bridge.logs import compile_error
from rawgpu.compiler_bridge.target import AARCH64_TRIPLE, AMDGPU_TRIPLE, NVPTX_TRIPLE, SPIRV_TRIPLE
from rawgpu.compiler_bridge.workers import processors
from rawgpu.errors import CompileError

ANSWER = "define i32 @answer() {\n  ret i32 42\n}\n"
GLOBAL = """
@counter = external global i32
define i32 @next() {
  %a = load i32, ptr @counter
  %b = add i32 %a, 1
  store i32 %b, ptr @counter
  ret i32 %b
}
"""
SCALAR_LOOP = """
define void @k(ptr noalias %x, ptr noalias %y, i64 %n) {
entry:
  %i = alloca i64
  store i64 0, ptr %i
  br label %loop
loop:
  %now = load i64, ptr %i
  %from = getelementptr float, ptr %x, i64 %now
  %to = getelementptr float, ptr %y, i64 %now
  %v = load float, ptr %from
  %w = fmul float %v, %v
  store float %w, ptr %to
  %next = add i64 %now, 1
  store i64 %next, ptr %i
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def symbols(elf: bytes) -> set[str]:
    section = ELFFile(io.BytesIO(elf)).get_section_by_name(".symtab")
    assert isinstance(section, SymbolTableSection)
    return {symbol.name for symbol in section.iter_symbols() if symbol.name}


def test_text_becomes_a_relocatable_elf() -> None:
    elf = compile_in_process(ANSWER)
    header = ELFFile(io.BytesIO(elf))
    assert header["e_type"] == "ET_REL"
    assert "answer" in symbols(elf)


def test_a_worker_gives_the_same_bytes() -> None:
    assert compile_ir(ANSWER, host_target()) == compile_in_process(ANSWER)


def test_code_is_position_independent_and_small() -> None:
    text = assembly(GLOBAL, Target("x86_64-unknown-linux-gnu", "x86-64-v3"))
    assert "@GOTPCREL(%rip)" in text
    assert "movabs" not in text  # what the large model would use


def test_other_machines_have_their_own_format() -> None:
    amd = compile_ir(
        "define amdgpu_kernel void @k() {\n  ret void\n}\n", Target(AMDGPU_TRIPLE, "gfx1100")
    )
    assert ELFFile(io.BytesIO(amd))["e_machine"] == "EM_AMDGPU"
    arm = compile_ir(ANSWER, Target(AARCH64_TRIPLE, "generic"))
    assert ELFFile(io.BytesIO(arm))["e_machine"] == "EM_AARCH64"
    ptx = compile_ir(ANSWER, Target(NVPTX_TRIPLE, "sm_90"))
    assert b".target sm_90" in ptx
    spirv = compile_ir("define spir_kernel void @k() {\n  ret void\n}\n", Target(SPIRV_TRIPLE, ""))
    assert spirv[:4] == (0x07230203).to_bytes(4, "little")


def test_a_parse_error_names_its_line() -> None:
    with pytest.raises(CompileError, match="line 2: value doesn't match") as caught:
        compile_in_process("define i32 @f() {\n  ret i64 0\n}\n")
    assert (caught.value.line, caught.value.text) == (2, "ret i64 0")
    assert "error:" in caught.value.log


def test_a_triple_in_the_text_does_not_shift_lines() -> None:
    text = f'target triple = "{host_target().triple}"\ndefine i32 @f() {{\n  ret i64 0\n}}\n'
    with pytest.raises(CompileError) as caught:
        compile_in_process(text)
    assert caught.value.line == 3


def test_a_verifier_error_finds_the_instruction() -> None:
    text = (
        "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n"
        "  br label %b\nb:\n  %y =   add i32 %x, 2 ; uses x too early\n  ret i32 %y\n}\n"
    )
    with pytest.raises(CompileError, match="does not dominate") as caught:
        compile_in_process(text)
    assert caught.value.line == 7
    assert caught.value.text.startswith("%y =")


def test_a_log_that_names_nothing_still_is_an_error() -> None:
    error = compile_error(ANSWER, "LLVM ERROR: out of registers\n")
    assert error.line is None
    assert "out of registers" in str(error)
    assert compile_error(ANSWER, "").line is None


def test_a_foreign_data_layout_is_refused() -> None:
    with pytest.raises(CompileError, match="data layout"):
        compile_in_process('target datalayout = "E-p:32:32"\n' + ANSWER)


def test_text_for_another_machine_is_refused() -> None:
    with pytest.raises(CompileError, match="is for 'aarch64"):
        compile_in_process(f'target triple = "{AARCH64_TRIPLE}"\n' + ANSWER)


def test_a_nul_does_not_hide_what_follows() -> None:
    with pytest.raises(CompileError, match="line 3: a NUL"):
        compile_in_process("; one\n; two\n\0\n" + ANSWER)


@pytest.mark.parametrize("passes", ["none", "light"])
def test_both_pass_choices_compile(passes: Passes) -> None:
    assert "k" in symbols(compile_in_process(SCALAR_LOOP, passes=passes))


@pytest.mark.parametrize("compiled", [compile_ir, compile_in_process])
def test_passes_that_there_are_not_are_refused(compiled: Callable[..., bytes]) -> None:
    with pytest.raises(CompileError, match="no passes 'O9'; there are: none, light"):
        compiled(ANSWER, host_target(), passes="O9")


def test_light_passes_put_variables_into_registers_and_do_not_vectorise() -> None:
    target = Target("x86_64-unknown-linux-gnu", "x86-64-v3")
    plain, light = assembly(SCALAR_LOOP, target), assembly(SCALAR_LOOP, target, passes="light")
    assert "(%rsp)" in plain
    assert "(%rsp)" not in light
    assert "ymm" not in light


def test_many_jobs_keep_their_order() -> None:
    jobs = [Job(ANSWER.replace("42", str(i)), host_target()) for i in range(8)]
    together = compile_many(jobs)
    assert together == [compile_in_process(job.text) for job in jobs]


def test_one_bad_job_does_not_lose_the_others() -> None:
    bad = Job("define", host_target())
    good = Job(ANSWER, host_target())
    results = compile_each([good, bad, good])
    assert isinstance(results[0], bytes)
    assert isinstance(results[1], CompileError)
    assert results[2] == results[0]
    with pytest.raises(CompileError):
        compile_many([good, bad, good])
    own = compile_each([good, bad, good], own=True)
    assert [type(result) for result in own] == [bytes, CompileError, bytes]


def test_only_small_host_work_of_our_own_is_done_here() -> None:
    host, amd = Job(ANSWER, host_target()), Job(ANSWER, Target(AMDGPU_TRIPLE, "gfx1100"))
    large = Job(ANSWER + ";" * (1 << 20), host_target())
    assert in_process_pays([host, host], own=True)
    assert not in_process_pays([host], own=False)
    assert not in_process_pays([host, amd], own=True)
    assert in_process_pays([large], own=True)  # one job cannot be shared out
    assert not in_process_pays([large, large], own=True) or processors() == 1
