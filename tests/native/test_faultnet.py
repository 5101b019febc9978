"""Data about the machine that the fault net relies on, checked against the C library's headers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rawgpu.compiler_bridge.llvm import Target, compile_in_process
from rawgpu.native import system
from rawgpu.native.code import BASELINE, native_code, native_ir
from rawgpu.native.elf import parse_object
from rawgpu.native.faultnet import (
    ALT_STACK_BYTES,
    FRAMES,
    SA_ONSTACK,
    SA_SIGINFO,
    SI_TKILL,
    SIGNALS,
)
from rawgpu.native.pool import CLOCK_MONOTONIC, SYS_FUTEX

ON_X86 = system.MACHINE == "x86_64"
GCC = shutil.which("gcc")

PROGRAM = """
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
int main(void) {
    printf("%zu %zu %zu %zu\\n", offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]),
           offsetof(ucontext_t, uc_mcontext.gregs[REG_RSP]),
           offsetof(ucontext_t, uc_mcontext.gregs[REG_ERR]),
           offsetof(ucontext_t, uc_mcontext.gregs[REG_TRAPNO]));
    printf("%zu %zu\\n", offsetof(siginfo_t, si_code), offsetof(siginfo_t, si_addr));
    printf("%zu %zu %zu %zu %zu\\n", sizeof(struct sigaction),
           offsetof(struct sigaction, sa_handler), offsetof(struct sigaction, sa_mask),
           offsetof(struct sigaction, sa_flags), sizeof(stack_t));
    printf("%d %d %d %ld %d\\n", SA_SIGINFO, SA_ONSTACK, SI_TKILL, (long)SYS_futex,
           CLOCK_MONOTONIC);
    printf("%d %d %d %d %d\\n", SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE);
    printf("%d %d %d %d\\n", MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE,
           PROT_READ | PROT_WRITE | PROT_EXEC);
}
"""


@pytest.mark.skipif(not (GCC and ON_X86), reason="needs gcc on x86-64")
def test_offsets_and_numbers_are_the_c_librarys(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(PROGRAM)
    subprocess.run([str(GCC), "-o", "a", "a.c"], cwd=tmp_path, check=True)
    rows = subprocess.run([tmp_path / "a"], capture_output=True, text=True, check=True).stdout
    frame = FRAMES["x86_64"]
    sizeof, offset = system.ffi.sizeof, system.ffi.offsetof
    action = "struct sigaction_t"
    assert [[int(word) for word in row.split()] for row in rows.splitlines()] == [
        [frame.pc, frame.sp, frame.error, frame.trap],
        [8, 16],
        [
            sizeof(action),
            *(offset(action, f) for f in ("handler", "mask", "flags")),
            sizeof("struct stack_t"),
        ],
        [SA_SIGINFO, SA_ONSTACK, SI_TKILL, SYS_FUTEX["x86_64"], CLOCK_MONOTONIC],
        list(SIGNALS),
        [system.MAP_PRIVATE, system.MAP_ANONYMOUS, system.MAP_NORESERVE, 7],
    ]


def test_the_alternate_stack_holds_the_kernels_frame() -> None:
    at_minsigstksz = 51
    needed = system.ffi.cast("unsigned long(*)(unsigned long)", system.address_of("getauxval"))(
        at_minsigstksz
    )
    assert needed * 4 <= ALT_STACK_BYTES


@pytest.mark.skipif(not ON_X86, reason="LLVM here assembles for its own machine only")
def test_our_native_code_asks_for_nothing_from_outside_but_moving_memory() -> None:
    image = compile_in_process(native_ir("x86_64"), Target(*BASELINE["x86_64"], ""))
    outside = {s.name for s in parse_object(image).symbols if s.name and not s.defined}
    assert outside <= {"memcpy", "memmove", "memset"}


def test_handlers_go_back_on_top_of_others() -> None:
    net = native_code().fault_net
    ours: object = native_code().image.address("on_fault")
    seen = system.ffi.new("struct sigaction_t *")
    before = system.ffi.new("struct sigaction_t *")
    system.libc.sigaction(system.SIGSEGV, system.ffi.NULL, before)
    assert before.handler == ours
    other = system.ffi.new("struct sigaction_t *", {"handler": 0})
    system.libc.sigaction(system.SIGSEGV, other, system.ffi.NULL)
    net.ensure_installed()
    system.libc.sigaction(system.SIGSEGV, system.ffi.NULL, seen)
    assert seen.handler == ours
    assert seen.flags & (SA_SIGINFO | SA_ONSTACK) == SA_SIGINFO | SA_ONSTACK
