"""Type names in a code object's metadata, as OpenCL compilers write them: `float*`, `uint`.

A name that is not here, a `typedef`'s or a struct's, says nothing to us and is passed over.

Source: LLVM 19 AMDGPUUsage, code object metadata, `.type_name`; OpenCL C 3.0, built-in types.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_SCALARS = {
    "char": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16", "int": "int32",
    "uint": "uint32", "long": "int64", "ulong": "uint64", "half": "float16", "float": "float32",
    "double": "float64", "size_t": "uint64", "ptrdiff_t": "int64",
}  # fmt: skip
_POINTER = re.compile(r"([a-z_]+)(?:2|3|4|8|16)?\*")


def scalar_of(name: object, size_bytes: int) -> str | None:
    """The dtype of a scalar of that type; None for no type we know, or not of this size."""
    dtype = _SCALARS.get(name) if isinstance(name, str) else None
    return dtype if dtype is not None and np.dtype(dtype).itemsize == size_bytes else None


def element_of(name: object) -> str | None:
    """The dtype of what a pointer of that type leads to; of a vector's parts, if that is one."""
    found = _POINTER.fullmatch(name) if isinstance(name, str) else None
    return None if found is None else _SCALARS.get(found[1])


def may_be(array: np.dtype[Any], element: str) -> bool:
    """Whether an array of that dtype may be what a kernel takes as a row of `element`.

    Bytes may be anything, integers signed or not, complex numbers are pairs of their parts.
    """
    wanted = np.dtype(element)
    if array.itemsize == 1 or wanted.itemsize == 1 or array.kind == "V":
        return True
    if array.kind == "c":
        return wanted.kind == "f" and array.itemsize == 2 * wanted.itemsize
    return array.itemsize == wanted.itemsize and (array.kind == "f") == (wanted.kind == "f")
