"""What cffi is told about libc here; writes `_libc.py`.

Parsing C costs 0.1 s at each start, so it is done beforehand. After a change:

    python -m rawgpu.ioctl.declare
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import cffi

# ioctl is variadic in C. On Linux the third argument travels as any other, and a fixed prototype
# halves the cost of the call; on other systems (Apple's AArch64) it does not, and is not used.
CDEF = """
int open(const char *, int, int);
int close(int);
int ioctl(int, unsigned long, void *);
void *mmap(void *, size_t, int, int, int, long);
int munmap(void *, size_t);
int madvise(void *, size_t, int);
"""

HEADER = """# ruff: noqa
# fmt: off
# Written by `python -m rawgpu.ioctl.declare`; a test compares.
"""


def generate() -> str:
    """The text of `_libc.py`."""
    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    ffi.set_source("rawgpu.ioctl._libc", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_libc.py"
        ffi.emit_python_code(str(path))
        text = path.read_text(encoding="utf-8")
    doc = '"""cffi\'s parsed form of the declarations in `declare.py`."""\n'
    return HEADER + doc + text.replace("# auto-generated file\n", "")


if __name__ == "__main__":
    (Path(__file__).parent / "_libc.py").write_text(generate(), encoding="utf-8")
