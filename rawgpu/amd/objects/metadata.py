"""What a code object says of its kernels: the MessagePack tree in its note.

Source: LLVM 22.1 AMDGPUUsage, Code Object Metadata.
"""

from __future__ import annotations

from typing import Any

from rawgpu.amd.objects import msgpack
from rawgpu.amd.objects.elffile import NOTE_METADATA, NOTE_OWNER, ElfFile
from rawgpu.errors import BadElf

SUFFIX = ".kd"
"""A kernel's descriptor has its name with this behind it."""


def kernel_rows(file: ElfFile) -> dict[str, dict[str, Any]]:
    """Each kernel's row, by the kernel's name. BadElf where the note does not keep its form."""
    rows: dict[str, dict[str, Any]] = {}
    for owner, kind, data in file.notes():
        if owner != NOTE_OWNER or kind != NOTE_METADATA:
            continue
        tree = msgpack.decode(data)
        kernels = tree.get("amdhsa.kernels", []) if isinstance(tree, dict) else None
        if not isinstance(kernels, list):
            raise BadElf("metadata has no list of kernels")
        for row in kernels:
            symbol = row.get(".symbol") if isinstance(row, dict) else None
            if not isinstance(symbol, str) or not symbol.endswith(SUFFIX):
                raise BadElf("metadata has a kernel without symbol")
            if symbol[: -len(SUFFIX)] in rows:
                raise BadElf(f"metadata describes {symbol!r} twice")
            rows[symbol[: -len(SUFFIX)]] = row
    return rows
