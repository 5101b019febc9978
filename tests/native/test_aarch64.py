"""AArch64 without such a machine: our native code and our loader's output, run by QEMU's user mode.

Cross compilation by LLVM's llc and GNU's gcc; skipped where one of the tools is not installed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rawgpu.native.code import native_ir
from rawgpu.native.elf import parse_object
from rawgpu.native.faultnet import AARCH64_GUARD, FRAMES, MAX_CONTEXTS
from rawgpu.native.image import plan, relocate
from rawgpu.native.layout import RECORDS, Kind, Outcome
from rawgpu.native.pool import SYS_FUTEX
from tests.native.objects import AARCH64, rich

LLC = next(filter(None, map(shutil.which, ("llc-22", "llc-21", "llc-20", "llc-19"))), None)
GCC = shutil.which("aarch64-linux-gnu-gcc")
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
BASE = 0x5000_0000

pytestmark = pytest.mark.skipif(
    not (LLC and GCC and QEMU), reason="llc, aarch64-linux-gnu-gcc or qemu-aarch64 is not installed"
)

COMMON = f"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
{"".join(record.cdef() for record in RECORDS.values())}
"""

RUN = (
    COMMON
    + f"""
extern struct context contexts[{MAX_CONTEXTS}];
extern uint64_t context_count;
extern struct libc libc;
void on_fault(int, siginfo_t *, void *);
uint64_t run_packets(struct context *, struct run *);
void *worker(void *);
void stop_workers(struct pool *);
static struct pool pool __attribute__((aligned(64)));
static struct queue queue;
static struct run run;
static struct packet packets[3];
static uint64_t words[2];

static void good(uint64_t *a, long begin, long end) {{
    for (long i = begin; i < end; i++)
        __atomic_fetch_add((long *)a[0], i, __ATOMIC_RELAXED);
}}
static void bad(uint64_t *a, long begin, long end) {{ *(volatile int *)a[1] = 1; }}
static void slow_bad(uint64_t *a, long begin, long end) {{
    for (long i = begin; i < end; i++) {{
        for (volatile int t = 0; t < 2000; t++) {{ }}
        if (i == 77) *(volatile int *)a[1] = 1;
    }}
}}
static long deeper(long n) {{
    volatile char room[4096];
    room[0] = n;
    return deeper(n + 1) + room[0];
}}
static void deep(uint64_t *a, long begin, long end) {{ *(long *)a[0] = deeper(0); }}

static char *make(struct context *c) {{
    char *low = mmap(0, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(low + (1 << 20), 3 << 20, PROT_READ | PROT_WRITE);
    c->stack_low = (uint64_t)low + (1 << 20);
    c->stack_top = (uint64_t)low + (4 << 20) - 65536;
    stack_t *s = calloc(1, sizeof *s);
    s->ss_sp = low + (4 << 20) - 65536;
    s->ss_size = 65536;
    c->alternate = (uint64_t)s;
    context_count++;
    return low;
}}

static void go(const char *name, void *code, long blocks, long work_ns) {{
    memset(packets, 0, sizeof packets);
    for (int i = 0; i < 3; i++) {{
        packets[i].kind = {int(Kind.LAUNCH)};
        packets[i].target = (uint64_t)(i == 1 ? code : good);
        packets[i].source = (uint64_t)words;
        packets[i].size = i == 1 ? blocks : 3;
        packets[i].extra = i == 1 ? work_ns : 1;
    }}
    run.position = 0;
    struct context *c = &contexts[0];
    c->signal = c->address = 0;
    uint64_t outcome = run_packets(c, &run);
    long low = c->stack_low - (1 << 20);
    int guard = (long)c->address >= low && (long)c->address < (long)c->stack_low;
    for (int i = 1; i <= 2; i++) {{
        low = contexts[i].stack_low - (1 << 20);
        guard |= (long)c->address >= low && (long)c->address < (long)contexts[i].stack_low;
    }}
    printf("%s %d %d %d %lx %d %d %ld\\n", name, (int)outcome, (int)run.position, (int)c->signal,
           guard ? 1 : (long)c->address, (int)c->active, (int)(pool.lock + queue.lock),
           c->signal ? (long)(c->error >> 26 & 63) : 0);
}}

int main(void) {{
    long sum = 0;
    libc.sigaction = (uint64_t)sigaction;
    libc.raise = (uint64_t)raise;
    libc.sigpending = (uint64_t)sigpending;
    struct sigaction action = {{.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK}};
    int signals[] = {{SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE}};
    for (int i = 0; i < 5; i++) sigaction(signals[i], &action, 0);
    pool.clock_gettime = (uint64_t)clock_gettime;
    pool.syscall = (uint64_t)syscall;
    pool.sched_yield = (uint64_t)sched_yield;
    pool.sigaltstack = (uint64_t)sigaltstack;
    pool.futex_number = {SYS_FUTEX["aarch64"]};
    pool.spin_ns = 100000;
    pool.threshold_ns = 40000;
    run.packets = (uint64_t)packets;
    run.count = 3;
    run.pool = (uint64_t)&pool;
    run.queue = (uint64_t)&queue;
    make(&contexts[0]);
    sigaltstack((stack_t *)contexts[0].alternate, 0);
    words[0] = (uint64_t)&sum;
    words[1] = 0x1230;
    go("good", good, 4, 1);
    for (int i = 0; i < 100; i++) go("bad", bad, 1, 1);
    go("deep", deep, 1, 1);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {{
        make(&contexts[1 + i]);
        contexts[1 + i].job = (uint64_t)&pool;
        pthread_create(&threads[i], 0, worker, &contexts[1 + i]);
    }}
    pool.threads = 2;
    sum = 0;
    go("shared", good, 1000, 10000000);
    printf("sum %ld\\n", sum);
    for (int i = 0; i < 5; i++) go("shared_bad", slow_bad, 1000, 10000000);
    sum = 0;
    go("shared", good, 1000, 10000000);
    printf("sum %ld\\n", sum);
    stop_workers(&pool);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    fflush(stdout);
    *(volatile int *)0 = 1;  /* not ours: the default action ends the process */
    return 0;
}}
"""
)


def cross(folder: Path, source: str, *objects: str) -> Path:
    (folder / "main.c").write_text(source)
    subprocess.run(
        [str(GCC), "-O1", "-fno-optimize-sibling-calls", "-static", "-no-pie", "-w", "-o", "main",
         "main.c", *objects, "-lpthread"],
        cwd=folder, check=True,
    )  # fmt: skip
    return folder / "main"


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(QEMU), str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def native_object(folder: Path) -> str:
    layout = 'target triple = "aarch64-unknown-linux-gnu"\n'
    (folder / "native.ll").write_text(layout + native_ir("aarch64"))
    subprocess.run(
        [str(LLC), "-filetype=obj", "-relocation-model=pic", "-O2", "native.ll", "-o", "native.o"],
        cwd=folder, check=True,
    )  # fmt: skip
    return "native.o"


def test_packets_faults_and_helpers_work(tmp_path: Path) -> None:
    done = run(cross(tmp_path, RUN, native_object(tmp_path)))
    rows = [line.split() for line in done.stdout.splitlines()]
    faults = [row for row in rows if "bad" in row[0]]
    assert rows[0] == ["good", str(int(Outcome.DONE)), "3", "0", "0", "0", "0", "0"], done
    assert len(faults) == 105
    for row in faults:
        assert row[1:7] == [str(int(Outcome.FAULT)), "1", "11", "1230", "0", "0"]
        assert row[7] in ("36", "0")  # a data abort; older QEMU gives no syndrome
    deep = next(row for row in rows if row[0] == "deep")
    assert deep[1:7] == [str(int(Outcome.FAULT)), "1", "11", "1", "0", "0"]
    sums = [row[1] for row in rows if row[0] == "sum"]
    assert sums == [str(sum(range(1000)) + 2 * 3)] * 2
    assert done.returncode != 0
    assert "ignal 11" in done.stderr


OFFSETS = (
    COMMON
    + """
int main(void) {
    printf("%zu %zu %zu\\n", offsetof(ucontext_t, uc_mcontext.pc),
           offsetof(ucontext_t, uc_mcontext.sp), offsetof(ucontext_t, uc_mcontext.__reserved));
}
"""
)


def test_the_frames_offsets_are_the_c_librarys(tmp_path: Path) -> None:
    frame = FRAMES["aarch64"]
    done = run(cross(tmp_path, OFFSETS))
    assert done.stdout.split() == [str(frame.pc), str(frame.sp), str(frame.esr_records)]


LOAD = (
    COMMON
    + """
int main(int count, char **names) {
    FILE *file = fopen(names[1], "rb");
    long base = strtol(names[2], 0, 0), size;
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    char *at = mmap((void *)base, size, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    fread(at, 1, size, file);
    __builtin___clear_cache(at, at + size);
    long f[16];
    for (int i = 3; i < count; i++) f[i - 3] = strtol(names[i], 0, 0);
#define CALL(i) ((long (*)(long, long, long))f[i])
    long i, bytes[8] = {0}, more[8] = {1, 2, 3};
    printf("%ld %ld\\n", CALL(0)(0, 0, 0), CALL(1)(3, 0, 0));
    for (i = 0; i < 4; i++) printf("%ld ", CALL(2)(i, 0, 0));
    printf("%ld %ld\\n", CALL(3)(0, 0, 0), CALL(3)(1, 0, 0));
    printf("%ld %ld\\n", CALL(4)(0, 0, 0), CALL(5)(400, 0, 0));
    CALL(6)((long)bytes, (long)more, 24);
    printf("%ld %ld %ld\\n", bytes[2], CALL(7)(15, 9, 0), CALL(7)(15, 0, 0));
    for (i = 0; i < 7; i++) printf("%ld ", CALL(8)(i, 0, 0));
    printf("%g\\n", ((float (*)(long))f[9])(2));
}
"""
)
FUNCTIONS = (
    "answer", "bump", "lookup", "through", "indirect", "fill", "move", "commons", "choose",
    "vector",
)  # fmt: skip


def test_what_our_loader_places_runs(tmp_path: Path) -> None:
    program = cross(tmp_path, LOAD)
    table = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout
    outside = {
        row.split()[2]: int(row.split()[0], 16) for row in table.splitlines() if row[0] != " "
    }
    obj = parse_object(rich(AARCH64))
    layout = plan(obj)
    assert layout.stub_at
    # An IFUNC's address is its resolver's, so calls go to the plain functions of the C library.
    plain = {name: outside[f"__{name}_generic"] for name in ("memcpy", "memmove", "memset")}
    data = relocate(obj, layout, BASE, plain.__getitem__)
    (tmp_path / "image").write_bytes(data)
    symbols = {s.name: BASE + layout.section_at.get(s.section, 0) + s.value for s in obj.symbols}
    done = run(program, str(tmp_path / "image"), hex(BASE), *(hex(symbols[f]) for f in FUNCTIONS))
    assert " ".join(done.stdout.split()) == (
        "42 8 325 335 345 355 10 8 8 16843009 3 0 9 1000 42 8 -3 77 8 -1 7.5"
    ), done


def test_the_guard_saves_every_register_that_a_called_function_must_keep() -> None:
    for first in (*range(19, 31, 2),):
        assert f"x{first}, x{first + 1}" in AARCH64_GUARD
    for first in range(8, 16, 2):
        assert AARCH64_GUARD.count(f"d{first}, d{first + 1}") == 2
