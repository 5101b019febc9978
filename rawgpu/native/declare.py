"""What cffi is told about libc and our records; writes `_libc.py`.

Parsing C costs 0.1 s at each start, so the declarations are parsed beforehand. After a change here
or in `layout.py`:

    python -m rawgpu.native.declare
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import cffi

from rawgpu.native.layout import RECORDS

# `sigaction` and `sigaltstack` have the same fields in glibc and musl on both machines.
CDEF = """
struct sigaction_t { uintptr_t handler; uint64_t mask[16]; int flags; uintptr_t restorer; };
struct stack_t { uintptr_t sp; int flags; size_t size; };
void *mmap(void *, size_t, int, int, int, long);
int munmap(void *, size_t);
int mprotect(void *, size_t, int);
int madvise(void *, size_t, int);
int sigaction(int, const struct sigaction_t *, struct sigaction_t *);
int sigaltstack(const struct stack_t *, struct stack_t *);
int pthread_create(void *, const void *, void *, void *);
int pthread_join(uintptr_t, void **);
int pthread_sigmask(int, const uint64_t *, uint64_t *);
int pthread_attr_init(void *);
int pthread_attr_setstacksize(void *, size_t);
int pthread_attr_destroy(void *);
long syscall(long, ...);
int clock_gettime(int, void *);
int sched_yield(void);
unsigned long getauxval(unsigned long);
int raise(int);
int sigpending(uint64_t *);
void *memcpy(void *, const void *, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
"""

HEADER = """# ruff: noqa
# fmt: off
# Written by `python -m rawgpu.native.declare`; a test compares.
"""


def generate() -> str:
    """The text of `_libc.py`."""
    ffi = cffi.FFI()
    ffi.cdef(CDEF + "\n".join(record.cdef() for record in RECORDS.values()))
    ffi.set_source("rawgpu.native._libc", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_libc.py"
        ffi.emit_python_code(str(path))
        text = path.read_text(encoding="utf-8")
    doc = '"""cffi\'s parsed form of the declarations in `declare.py`."""\n'
    return HEADER + doc + text.replace("# auto-generated file\n", "")


if __name__ == "__main__":
    (Path(__file__).parent / "_libc.py").write_text(generate(), encoding="utf-8")
