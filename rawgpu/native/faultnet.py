"""The fault net: hardware faults in kernels come back as a record, and the process lives on.

Guarded code runs through `guarded_call`, on a stack of its own with an inaccessible run below. The
handler, on an alternate stack, finds the faulting thread's context, copies what the kernel said,
and rewrites the saved instruction and stack pointer to `guarded_landing`, which restores the
registers that a called function must keep and returns 1. Faults of anyone else go to the handler
that was there before.

Where another handler (faulthandler, pytest's) is installed later, `ensure_installed` puts ours back
on top. A fault that meets the other one first still lands here: it re-raises, and a signal that
this thread sent to itself while guarded counts as the fault, without an address.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from rawgpu.native import system
from rawgpu.native.layout import expand

SIGNALS = (system.SIGSEGV, system.SIGBUS, system.SIGILL, system.SIGTRAP, system.SIGFPE)
"""LLVM's trap is an illegal instruction on x86-64 and a breakpoint on AArch64."""
SA_SIGINFO, SA_ONSTACK = 0x4, 0x08000000
SI_TKILL = -6
X86_FLAGS = 0x40000 | 0x400 | 0x100
"""AC, DF and TF, which no code of ours may meet set: accesses would fault, copies run backwards,
each instruction trap. Kernels return to `plain_flags`, and faults land with them clear.
"""
ALT_STACK_BYTES = 128 << 10
"""AVX-512 and AMX state make the frame that the kernel pushes up to 11 KiB."""


@dataclass(frozen=True)
class FaultFrame:
    """Offsets in bytes into ucontext_t, and the assembly around guarded code, for one machine."""

    pc: int
    sp: int
    error: int | None
    """Page fault error code, where the frame has one at a fixed place."""
    trap: int | None
    esr_records: int | None
    """Start of the tagged records among which the syndrome register is."""
    flags: int | None
    """Where the processor's flags are, if some of them reach beyond the guarded code."""
    assembly: str
    source: str


# fmt: off
X86_64_GUARD = """
    .text
    .globl guarded_call
    .hidden guarded_call
    .type guarded_call,@function
guarded_call:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $$8, %rsp
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movq %rsp, $CONTEXT.saved_sp(%rdi)
    movq $$1, $CONTEXT.active(%rdi)
    movq %rsp, %rbx
    movq $CONTEXT.stack_top(%rdi), %rsp
    callq *%rsi
    movq %rbx, %rsp
    jmp .Lguarded_leave
    .globl guarded_landing
    .hidden guarded_landing
guarded_landing:
    cld
    emms
    movl $$2, %eax
.Lguarded_leave:
    ldmxcsr (%rsp)
    fldcw 4(%rsp)
    addq $$8, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    retq
    .size guarded_call, .-guarded_call
    .globl plain_flags
    .hidden plain_flags
    .type plain_flags,@function
plain_flags:
    pushfq
    testl $$$FLAGS, (%rsp)
    jne .Lplain_reset
    addq $$8, %rsp
    retq
.Lplain_reset:
    andl $$~$FLAGS, (%rsp)
    popfq
    retq
    .size plain_flags, .-plain_flags
"""

AARCH64_GUARD = """
    .text
    .globl guarded_call
    .hidden guarded_call
    .type guarded_call,@function
    .p2align 2
guarded_call:
    stp x29, x30, [sp, #-176]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mrs x9, fpcr
    str x9, [sp, #160]
    mov x19, sp
    str x19, [x0, #$CONTEXT.saved_sp]
    mov x9, #1
    str x9, [x0, #$CONTEXT.active]
    ldr x9, [x0, #$CONTEXT.stack_top]
    mov sp, x9
    blr x1
    mov sp, x19
    b .Lguarded_leave
    .globl guarded_landing
    .hidden guarded_landing
guarded_landing:
    mov x0, #2
.Lguarded_leave:
    ldr x9, [sp, #160]
    msr fpcr, x9
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x29, x30, [sp], #176
    ret
    .size guarded_call, .-guarded_call
    .globl plain_flags
    .hidden plain_flags
    .type plain_flags,@function
    .p2align 2
plain_flags:
    ret
    .size plain_flags, .-plain_flags
"""
# fmt: on

FRAMES: dict[str, FaultFrame] = {
    "x86_64": FaultFrame(
        pc=40 + 8 * 16,  # gregs[REG_RIP]
        sp=40 + 8 * 15,  # gregs[REG_RSP]
        error=40 + 8 * 19,  # gregs[REG_ERR]
        trap=40 + 8 * 20,  # gregs[REG_TRAPNO]
        esr_records=None,
        flags=40 + 8 * 17,  # gregs[REG_EFL]
        assembly=X86_64_GUARD,
        source="glibc 2.36, sysdeps/unix/sysv/linux/x86/sys/ucontext.h; offsetof in the tests",
    ),
    "aarch64": FaultFrame(
        pc=176 + 264,  # uc_mcontext.pc
        sp=176 + 256,  # uc_mcontext.sp
        error=None,
        trap=None,
        esr_records=464,  # uc_mcontext.__reserved, 16-byte aligned
        flags=None,
        assembly=AARCH64_GUARD,
        source="Linux 6.9, arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h",
    ),
}

# Linux keeps si_signo, si_errno, si_code, padding, then si_addr on every 64-bit machine.
HANDLER = """
@contexts = hidden global [$MAX_CONTEXTS x [$CONTEXT x i8]] zeroinitializer, align 64
@context_count = hidden global i64 0
@previous = hidden global [65 x [$PREVIOUS x i8]] zeroinitializer, align 16
@libc = hidden global [$LIBC x i8] zeroinitializer, align 16
@guarded_landing = external hidden global i8
declare ptr @llvm.thread.pointer()
declare hidden i64 @guarded_call(ptr, ptr)
declare hidden void @plain_flags()

define hidden ptr @find_active(ptr %thread) {
entry:
  %count = load atomic i64, ptr @context_count acquire, align 8
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %more]
  %end = icmp uge i64 %i, %count
  br i1 %end, label %none, label %look
look:
  %context = getelementptr [$CONTEXT x i8], ptr @contexts, i64 %i
  %thread.at = getelementptr i8, ptr %context, i64 $CONTEXT.thread
  %owner = load atomic ptr, ptr %thread.at monotonic, align 8
  %mine = icmp eq ptr %owner, %thread
  %active.at = getelementptr i8, ptr %context, i64 $CONTEXT.active
  %active = load atomic i64, ptr %active.at monotonic, align 8
  %running = icmp eq i64 %active, 1
  %found = and i1 %mine, %running
  br i1 %found, label %yes, label %more
more:
  %next = add i64 %i, 1
  br label %head
yes:
  ret ptr %context
none:
  ret ptr null
}

define hidden void @on_fault(i32 %signal, ptr %info, ptr %frame) {
entry:
  call void @plain_flags()
  %thread = call ptr @llvm.thread.pointer()
  %context = call ptr @find_active(ptr %thread)
  %code.at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code.at
  %foreign = icmp eq ptr %context, null
  br i1 %foreign, label %chain, label %ours
ours:
  %hardware = icmp sgt i32 %code, 0
  %reraised = icmp eq i32 %code, $SI_TKILL
  %fault = or i1 %hardware, %reraised
  br i1 %fault, label %land, label %chain
chain:
  call void @pass_on(i32 %signal, i32 %code, ptr %info, ptr %frame)
  ret void
land:
  %signal.long = zext i32 %signal to i64
  %signal.at = getelementptr i8, ptr %context, i64 $CONTEXT.signal
  store i64 %signal.long, ptr %signal.at
  %code.long = sext i32 %code to i64
  %code.to = getelementptr i8, ptr %context, i64 $CONTEXT.code
  store i64 %code.long, ptr %code.to
  %address.at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address.at
  %address.to = getelementptr i8, ptr %context, i64 $CONTEXT.address
  store i64 %address, ptr %address.to
  %pc.at = getelementptr i8, ptr %frame, i64 $PC
  %pc = load i64, ptr %pc.at
  %pc.to = getelementptr i8, ptr %context, i64 $CONTEXT.pc
  store i64 %pc, ptr %pc.to
  %sp.at = getelementptr i8, ptr %frame, i64 $SP
  %sp = load i64, ptr %sp.at
  %sp.to = getelementptr i8, ptr %context, i64 $CONTEXT.sp
  store i64 %sp, ptr %sp.to
  %error = call i64 @frame_error(ptr %frame)
  %error.to = getelementptr i8, ptr %context, i64 $CONTEXT.error
  store i64 %error, ptr %error.to
  %trap = call i64 @frame_trap(ptr %frame)
  %trap.to = getelementptr i8, ptr %context, i64 $CONTEXT.trap
  store i64 %trap, ptr %trap.to
  %active.at = getelementptr i8, ptr %context, i64 $CONTEXT.active
  store i64 2, ptr %active.at
  store i64 ptrtoint (ptr @guarded_landing to i64), ptr %pc.at
  %saved.at = getelementptr i8, ptr %context, i64 $CONTEXT.saved_sp
  %saved = load i64, ptr %saved.at
  store i64 %saved, ptr %sp.at
  call void @plain_frame(ptr %frame)
  ret void
}

; Another handler may itself put its predecessor back and raise again (faulthandler does). What it
; raised is pending while we are in here; then the default action must come next, or the two would
; call each other for ever.
define hidden void @pass_on(i32 %signal, i32 %code, ptr %info, ptr %frame) {
entry:
  %pending = alloca [16 x i64], align 16
  %index = zext i32 %signal to i64
  %old = getelementptr [$PREVIOUS x i8], ptr @previous, i64 %index
  %handler = load ptr, ptr %old
  %number = ptrtoint ptr %handler to i64
  %flags.at = getelementptr i8, ptr %old, i64 $PREVIOUS.flags
  %flags = load i64, ptr %flags.at
  %plain = icmp ule i64 %number, 1
  br i1 %plain, label %default, label %custom
custom:
  %siginfo.bit = and i64 %flags, $SA_SIGINFO
  %siginfo = icmp ne i64 %siginfo.bit, 0
  br i1 %siginfo, label %three, label %one
three:
  call void %handler(i32 %signal, ptr %info, ptr %frame)
  br label %after
one:
  call void %handler(i32 %signal)
  br label %after
after:
  %sigpending.at = getelementptr i8, ptr @libc, i64 $LIBC.sigpending
  %sigpending = load ptr, ptr %sigpending.at
  %ignored = call i32 %sigpending(ptr %pending)
  %waiting = load i64, ptr %pending
  %shift = sub i64 %index, 1
  %bits = lshr i64 %waiting, %shift
  %bit = trunc i64 %bits to i1
  br i1 %bit, label %reset, label %done
default:
  %unrepeated = icmp sle i32 %code, 0
  %breakpoint = icmp eq i32 %signal, $SIGTRAP
  %sent = or i1 %unrepeated, %breakpoint
  call void @set_default(i32 %signal)
  br i1 %sent, label %again, label %done
again:
  %raise.at = getelementptr i8, ptr @libc, i64 $LIBC.raise
  %raise = load ptr, ptr %raise.at
  %ignored2 = call i32 %raise(i32 %signal)
  ret void
reset:
  call void @set_default(i32 %signal)
  ret void
done:
  ret void
}

define hidden void @set_default(i32 %signal) {
  %action = alloca [32 x i64], align 16
  call void @llvm.memset.p0.i64(ptr %action, i8 0, i64 256, i1 false)
  %sigaction.at = getelementptr i8, ptr @libc, i64 $LIBC.sigaction
  %sigaction = load ptr, ptr %sigaction.at
  %ignored = call i32 %sigaction(i32 %signal, ptr %action, ptr null)
  ret void
}
"""

FIXED_FIELD = """
define hidden i64 @frame_$NAME(ptr %frame) {
  %at = getelementptr i8, ptr %frame, i64 $OFFSET
  %value = load i64, ptr %at
  ret i64 %value
}
"""

# The landing must not run on with what the guarded code left in the flags.
PLAIN_FRAME = """
define hidden void @plain_frame(ptr %frame) {
  %at = getelementptr i8, ptr %frame, i64 $OFFSET
  %flags = load i64, ptr %at
  %plain = and i64 %flags, $MASK
  store i64 %plain, ptr %at
  ret void
}
"""

NO_FLAGS = """
define hidden void @plain_frame(ptr %frame) {
  ret void
}
"""

# Records of {u32 magic, u32 size}; ESR_MAGIC holds the syndrome, magic 0 ends the list.
ESR_SEARCH = """
define hidden i64 @frame_error(ptr %frame) {
entry:
  br label %head
head:
  %at = phi i64 [$OFFSET, %entry], [%next, %more]
  %record = getelementptr i8, ptr %frame, i64 %at
  %magic = load i32, ptr %record
  %size.at = getelementptr i8, ptr %record, i64 4
  %size = load i32, ptr %size.at
  %found = icmp eq i32 %magic, 1163088385
  br i1 %found, label %yes, label %check
check:
  %last = icmp eq i32 %magic, 0
  %size.long = zext i32 %size to i64
  %next = add i64 %at, %size.long
  %far = icmp ugt i64 %next, 4560
  %empty = icmp eq i32 %size, 0
  %stop1 = or i1 %last, %far
  %stop = or i1 %stop1, %empty
  br i1 %stop, label %no, label %more
more:
  br label %head
yes:
  %value.at = getelementptr i8, ptr %record, i64 8
  %value = load i64, ptr %value.at
  ret i64 %value
no:
  ret i64 0
}

define hidden i64 @frame_trap(ptr %frame) {
  ret i64 0
}
"""

MAX_CONTEXTS = 4096


def _module_asm(text: str) -> str:
    lines = (line.replace("$$", "$").strip("\n") for line in text.splitlines() if line.strip())
    return "".join(f'module asm "{line}"\n' for line in lines)


def handler_ir(machine: str) -> str:
    """IR text of the handler and the guard for `machine`."""
    frame = FRAMES[machine]
    constants: dict[str, int | str] = {
        "PC": frame.pc, "SP": frame.sp, "SA_SIGINFO": SA_SIGINFO, "SI_TKILL": SI_TKILL,
        "SIGTRAP": system.SIGTRAP,
        "MAX_CONTEXTS": MAX_CONTEXTS, "FLAGS": X86_FLAGS,
    }  # fmt: skip
    guard = expand(frame.assembly.replace("$$", "\0"), constants).replace("\0", "$$")
    text = _module_asm(guard) + expand(HANDLER, constants)
    if frame.flags is None:
        text += NO_FLAGS
    else:
        text += expand(PLAIN_FRAME, {"OFFSET": frame.flags, "MASK": ~X86_FLAGS})
    if frame.esr_records is not None:
        return text + expand(ESR_SEARCH, {"OFFSET": frame.esr_records})
    for name, offset in (("error", frame.error), ("trap", frame.trap)):
        assert offset is not None, name
        text += expand(FIXED_FIELD, {"NAME": name, "OFFSET": offset})
    return text


class FaultNet:
    """The process's handlers. `code` is our loaded native code; it is never unloaded."""

    def __init__(self, code: Any) -> None:
        self._code = code
        self._handler = code.address("on_fault")
        libc_words = code.words("libc", 3)
        for position, name in enumerate(("sigaction", "raise", "sigpending")):
            libc_words[position] = system.address_of(name)
        self._previous = code.words("previous", 2 * 65)
        self._lock = threading.Lock()
        self._top: Any = system.ffi.new("struct sigaction_t *")
        self._action: Any = system.ffi.new("struct sigaction_t *")
        self._action.handler = self._handler
        self._action.flags = SA_SIGINFO | SA_ONSTACK
        self.ensure_installed()

    def ensure_installed(self) -> None:
        """Put our handlers back on top where someone else's are; one system call if none is."""
        top = self._top
        if system.libc.sigaction(system.SIGSEGV, system.ffi.NULL, top) == 0:
            if top.handler == self._handler:
                return
        with self._lock:
            self._install()

    def _install(self) -> None:
        seen: Any = system.ffi.new("struct sigaction_t *")
        for signal in SIGNALS:
            system.libc.sigaction(signal, system.ffi.NULL, seen)
            if seen.handler != self._handler:
                self._previous[2 * signal] = seen.handler
                self._previous[2 * signal + 1] = seen.flags & 0xFFFFFFFF
                system.libc.sigaction(signal, self._action, system.ffi.NULL)
