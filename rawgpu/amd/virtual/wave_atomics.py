"""What atomic operations make of memory, on one value as a Python integer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rawgpu.virtual.meaning import NotInEngine

FLOATS = {32: (np.uint32, np.float32), 64: (np.uint64, np.float64)}


def _float(what: str, bits: int, old: int, value: int) -> int:
    """Add, min and max of floats; min and max as IEEE's minNum."""
    integer, kind = FLOATS[bits]
    a, b = (np.array([x], integer).view(kind) for x in (old, value))
    with np.errstate(all="ignore"):
        if what == "add":
            result = a + b
        elif what in ("min", "max"):
            result = np.fmin(a, b) if what == "min" else np.fmax(a, b)
        else:
            raise NotInEngine(f"float atomic {what}")
    return int(result.view(integer)[0])


def _packed(kind: str, old: int, value: int) -> int:
    out = 0
    for low in (0, 16):
        a, b = old >> low & 0xFFFF, value >> low & 0xFFFF
        if kind == "f16":
            pair = np.array([a, b], np.uint16).view(np.float16)
            with np.errstate(all="ignore"):
                total = int((pair[:1] + pair[1:]).view(np.uint16)[0])
        else:
            pair32 = (np.array([a, b], np.uint32) << np.uint32(16)).view(np.float32)
            with np.errstate(all="ignore"):
                wide = int((pair32[:1] + pair32[1:]).view(np.uint32)[0])
            total = (wide + 0x7FFF + (wide >> 16 & 1)) >> 16 & 0xFFFF
        out |= total << low
    return out


_PLAIN: dict[str, Callable[[int, int], int]] = {
    "swap": lambda old, v: v,
    "add": lambda old, v: old + v,
    "sub": lambda old, v: old - v,
    "rsub": lambda old, v: v - old,
    "sub_clamp": lambda old, v: max(old - v, 0),
    "cond_sub": lambda old, v: old - v if old >= v else old,
    "cond_swap": lambda old, v: v & 0x7FFFFFFF if v >> 31 & 1 else old,
    "and": lambda old, v: old & v,
    "or": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "inc": lambda old, v: 0 if old >= v else old + 1,
    "dec": lambda old, v: v if old == 0 or old > v else old - 1,
}


def changed(what: str, kind: str, bits: int, old: int, values: list[int]) -> int:
    """Memory after the operation. `kind` is that of the value; operands are unsigned."""
    mask = (1 << bits) - 1
    value = values[0]
    if what == "add_packed":
        return _packed(kind, old, value)
    if what == "cmpswap":
        return values[1] if old == value else old
    if what == "mskor":
        return old & ~value & mask | values[1]
    if what == "wrap":
        return old - values[1] & mask if old >= values[1] else old + value & mask
    if kind == "f" and what != "swap":
        return _float(what, bits, old, value)
    if what in ("min", "max"):
        sign = 1 << (bits - 1) if kind == "i" else 0
        best = (min if what == "min" else max)(old ^ sign, value ^ sign)
        return best ^ sign
    return _PLAIN[what](old, value) & mask
