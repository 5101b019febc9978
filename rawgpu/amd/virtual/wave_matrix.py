"""Matrix multiplies, computed on the registers of a whole wave with NumPy.

`spec.isa.matrix` says where elements stand and how sums are rounded. EXEC does not matter: the
instructions take part with all lanes. A NaN comes out as 0x7fc00000 (or its like), since which of
many NaN's bits survive is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from rawgpu.amd.spec.isa.matrix import Layout, Place, Sums
from rawgpu.compiler_bridge import maths_numpy
from rawgpu.describe.small_floats import SmallFloat

WIDTHS: Mapping[str, int] = {
    "f64": 64, "f32": 32, "xf32": 32, "i32": 32, "f16": 16, "bf16": 16, "i8": 8, "iu8": 8,
    "iu4": 4, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Product:
    """One matrix multiply: shape, types and modifiers.

    Attributes:
        shape: m, n, k, blocks.
        kinds: types of the elements of A and B.
        small: the formats of those that are small floats.
        added, result: types of C and D: "f32", "f64", "f16", "bf16" or "i32".
        signed: whether elements of A and of B are signed, for integers.
        negate_even, negate_odd: bit 0 for A, 1 for B: the sign of elements of even and odd k.
        negate_added, absolute_added: the same of C.
        high_half: bit 0 for C, 1 for D: which half of its register a lone half is in.
        broadcast: of A's blocks, log2 of how many take the same, and which one of them.
        lanes: from where B's lanes come: 0 as they are, else a pattern of `BLGP`.
        index_shift: the first bit of the sparse index.
    """

    shape: tuple[int, int, int, int]
    kinds: tuple[str, str]
    added: str
    result: str
    layout: Layout
    sums: Sums
    wave: int
    small: tuple[SmallFloat | None, SmallFloat | None] = (None, None)
    signed: tuple[bool, bool] = (True, True)
    negate_even: int = 0
    negate_odd: int = 0
    negate_added: bool = False
    absolute_added: bool = False
    high_half: int = 0
    broadcast: tuple[int, int] = (0, 0)
    lanes: int = 0
    saturate: bool = False
    index_shift: int | None = None
    scaled: tuple[int, int] | None = field(default=None)
    """The byte of the scale registers of A and of B, where there are scales."""


# Bits of registers as numbers.


def _elements(rows: Any, bits: int) -> Any:
    """All elements of `rows` (registers by lanes, u32) as codes: slots by lanes, u64."""
    count = len(rows) * 32 // bits
    at = np.arange(count) * bits
    wide = np.concatenate([rows, np.zeros((2, rows.shape[1]), np.uint32)]).astype(np.uint64)
    pairs = wide[at // 32] | wide[at // 32 + 1] << np.uint64(32)
    codes = pairs >> (at % 32).astype(np.uint64)[:, None]
    return codes if bits == 64 else codes & np.uint64((1 << bits) - 1)


@cache
def _values(kind: SmallFloat) -> Any:
    return np.array([kind.value(code) for code in range(1 << kind.bits)])


def _numbers(codes: Any, kind: str, small: SmallFloat | None, signed: bool) -> Any:
    """Codes as float64, or int64 for integer kinds."""
    if small is not None:
        return _values(small)[codes.astype(np.int64)]
    match kind:
        case "f64":
            return codes.view(np.float64)
        case "f32":
            return codes.astype(np.uint32).view(np.float32).astype(np.float64)
        case "xf32":
            cut = codes.astype(np.uint32) & np.uint32(0xFFFFE000)
            return cut.view(np.float32).astype(np.float64)
        case "f16":
            return codes.astype(np.uint16).view(np.float16).astype(np.float64)
        case "bf16":
            return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    width = WIDTHS[kind]
    plain = codes.astype(np.int64)
    if not signed or width == 64:
        return plain
    return (plain ^ (1 << (width - 1))) - (1 << (width - 1))


def _nearest_bf16(x: Any) -> Any:
    bits = x.astype(np.float32).view(np.uint32)
    return (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16


def _codes(numbers: Any, kind: str) -> Any:
    """Results as codes, u64."""
    if kind == "i32":
        return (numbers & 0xFFFFFFFF).astype(np.uint64)
    match kind:
        case "f64":
            bits, quiet = numbers.view(np.uint64), 0x7FF8000000000000
        case "f32":
            bits, quiet = numbers.astype(np.float32).view(np.uint32), 0x7FC00000
        case "f16":
            bits, quiet = numbers.astype(np.float16).view(np.uint16), 0x7E00
        case _:
            bits, quiet = _nearest_bf16(numbers), 0x7FC0
    return np.where(np.isnan(numbers), np.uint64(quiet), bits.astype(np.uint64))


# Places.


@cache
def _coordinates(where: Place, letters: str, sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """Lane and slot of each element, arrays of shape `sizes`. Bits that do not matter are 0."""
    axes = dict(zip(letters, np.indices(sizes), strict=True))

    def number(bits: tuple[str, ...]) -> Any:
        total = np.zeros(sizes, np.int64)
        for position, token in enumerate(bits):
            if token not in "*-":
                total += (axes[token[0]] >> int(token[1:]) & 1) << position
        return total

    return number(where.lane), number(where.slot)


def _copies(where: Place) -> list[int]:
    """What to add to a lane for each copy, in the order of the result's rows."""
    free = [1 << at for at, token in enumerate(where.lane) if token == "*"]
    return [
        sum(bit for at, bit in enumerate(free) if copy >> at & 1) for copy in range(1 << len(free))
    ]


def _source(product: Product, which: int, rows: Any) -> Any:
    """A as [block, i, k, 1] or B as [block, i or 1, k, j], copies chosen by the result's row."""
    m, n, k, blocks = product.shape
    kind, small = product.kinds[which], product.small[which]
    where = (product.layout.a, product.layout.b)[which]
    sparse = product.index_shift is not None and which == 0
    length = k // 2 if sparse else k
    bits = small.bits if small is not None else WIDTHS[kind]
    numbers = _numbers(_elements(rows, bits), kind, small, product.signed[which])
    letter, size = ("i", m) if which == 0 else ("j", n)
    lane, slot = _coordinates(where, f"b{letter}k", (blocks, size, length))
    copies = _copies(where)
    if which == 0:
        own = np.array(copies)[np.arange(m) % len(copies)][None, :, None]
        found = numbers[slot, lane + own]
        found = found[np.array([_broadcast(b, product.broadcast) for b in range(blocks)])]
        return _signs(found, product, which)
    lane = _moved_lanes(lane, product.lanes)
    found = np.stack([numbers[slot, lane + copy] for copy in copies], axis=1)
    found = _signs(found, product, which)  # [block, copy, j, k]
    return found[:, np.arange(m) % len(copies)] if len(copies) > 1 else found


def _broadcast(block: int, modifier: tuple[int, int]) -> int:
    size, chosen = modifier
    return (block >> size << size) + chosen if size else block


def _moved_lanes(lane: Any, pattern: int) -> Any:
    """Source: the calculator's account of BLGP."""
    if pattern in (1, 2):
        return lane % 32 + 32 * (pattern - 1)
    if pattern == 3:
        return (lane + 16) % 64
    return lane % 16 + 16 * (pattern - 4) if pattern else lane


def _signs(values: Any, product: Product, which: int) -> Any:
    even, odd = product.negate_even >> which & 1, product.negate_odd >> which & 1
    if not (even or odd) or values.dtype.kind != "f":
        return values
    along = np.arange(values.shape[-1]) % 2
    return np.where(np.where(along, odd, even), -values, values)


# Sums. All work on [block, i, j] with products along a last axis.


def _exponents(values: Any, least: int) -> tuple[Any, Any]:
    """Significand in ±[1, 2) and exponent; denormals of the type at `least`, 0 at -126."""
    significand, exponent = np.frexp(values)
    significand, exponent = significand * 2, exponent - 1
    small = exponent < least
    significand = np.where(small, np.ldexp(significand, exponent - least), significand)
    exponent = np.where(small, least, exponent)
    return significand, np.where(significand == 0, -126, exponent)


def _least_exponent(kind: str, small: SmallFloat | None) -> int:
    if small is not None:
        return 1 - small.bias
    return -14 if kind == "f16" else -126


def _cut(significands: Any, exponents: Any) -> tuple[Any, Any]:
    """Sum along the last axis of what is left above 2**-24 of the largest exponent."""
    top = exponents.max(axis=-1)
    scaled = np.ldexp(significands, 24 + exponents - top[..., None])
    return np.trunc(scaled).sum(axis=-1) * 2.0**-24, top


def _fused(a: Any, b: Any, total: Any, least: tuple[int, int], interleaved: bool) -> Any:
    """One group of products, added to `total` (float32). Source: MMA-Sim, amd_fused_dot_rd_add."""
    plain = (a * b).sum(axis=-1) + total.astype(np.float64)
    huge = np.abs(a * b) >= 2.0**128
    up, down = (huge & (a * b > 0)).any(axis=-1), (huge & (a * b < 0)).any(axis=-1)
    (sa, ea), (sb, eb) = _exponents(a, least[0]), _exponents(b, least[1])
    ones, powers = sa * sb, ea + eb
    added, power = _exponents(total.astype(np.float64), -126)
    if interleaved:
        (s0, e0), (s1, e1) = (_cut(ones[..., i::2], powers[..., i::2]) for i in (0, 1))
        top = np.maximum(e0, e1)
        parts = [np.floor(np.ldexp(s, 24 + e - top)) * 2.0**-24 for s, e in ((s0, e0), (s1, e1))]
        part, top_part = parts[0] + parts[1], top
    else:
        part, top_part = _cut(ones, powers)
    top = np.maximum(top_part, power)
    part = np.floor(np.ldexp(part, 31 + top_part - top)) * 2.0**-31
    cut = np.floor(np.ldexp(added, 24 + power - top)) * 2.0**-24
    if interleaved:
        cut = np.where(power >= top - 25, cut, 0.0)
    result = np.ldexp(part + cut, top)
    result = np.where(up & down, np.nan, np.where(up, np.inf, np.where(down, -np.inf, result)))
    return np.where(np.isfinite(plain), result, plain).astype(np.float32)


def _flushed(x: Any, least: float) -> Any:
    return np.where(np.abs(x) < least, x * np.float32(0), x)


def _tree(products: list[Any], flush: bool) -> Any:
    """Float32 sums of halves."""
    if len(products) == 1:
        return products[0]
    middle = len(products) // 2
    total = _tree(products[:middle], flush) + _tree(products[middle:], flush)
    return _flushed(total, 2.0**-126) if flush else total


def _added(product: Product, a: Any, b: Any, total: Any) -> Any:
    """`total` plus the products along the last axis; a [block, i, k], b [block, i or 1, j, k]."""
    sums, k = product.sums, product.shape[2]
    if total.dtype.kind == "i":
        return total + (a[:, :, None, :] * b).sum(axis=-1)
    if sums.kind == "chain":
        kind = np.float64 if product.result == "f64" else np.float32
        fma = maths_numpy._fma64 if kind is np.float64 else maths_numpy._fma32
        for at in range(k):
            x, y = (v.astype(kind) for v in (a[:, :, None, at], b[..., at]))
            total = fma(*np.broadcast_arrays(x, y, total))
        return total
    least = tuple(map(_least_exponent, product.kinds, product.small))
    group = min(sums.group, k)
    if sums.flush:
        a, b = (_flushed(v, 2.0**e) for v, e in zip((a, b), least, strict=True))
        total = np.where(np.abs(total) < np.float32(2.0**-126), np.float32(0), total)
    for at in range(0, k, group):
        x, y = a[:, :, None, at : at + group], b[..., at : at + group]
        if sums.kind == "fused":
            x, y = np.broadcast_arrays(x, y)
            total = _fused(x, y, total, (least[0], least[1]), sums.interleaved)
            continue
        parts = [(x[..., i] * y[..., i]).astype(np.float32) for i in range(group)]
        parts = [_flushed(part, 2.0**-126) for part in parts] if sums.flush else parts
        total = total + _tree(parts, sums.flush)
        total = _flushed(total, 2.0**-126) if sums.flush else total
    return total


# The whole instruction.


def _expanded(values: Any, rows: Any, product: Product) -> Any:
    """A sparse A, [block, i, k / 2] as stored, with its zeros: [block, i, k]."""
    m, _, k, blocks = product.shape
    lane, slot = _coordinates(product.layout.a, "bik", (blocks, m, k // 2))
    shift = (2 * slot + (product.index_shift or 0)).astype(np.uint64)
    wide = rows[0].astype(np.uint64)
    if len(rows) > 1:
        wide = wide | rows[1].astype(np.uint64) << np.uint64(32)
    place = (wide[lane] >> shift & np.uint64(3)).astype(np.int64)
    out = np.zeros((blocks, m, k), values.dtype)
    at = np.arange(k // 2) // 2 * 4 + place
    np.put_along_axis(out, at, values, axis=2)
    return out


def _added_matrix(product: Product, rows: Any) -> tuple[Any, Any, Any]:
    """C as numbers [block, i, j], and the lanes and slots of D's elements."""
    m, n, _, blocks = product.shape
    lane, slot = _coordinates(product.layout.d, "bij", (blocks, m, n))
    width = WIDTHS[product.added]
    at = slot
    if product.layout.one_half_a_register and width == 16:
        at = 2 * slot + (product.high_half & 1)
    codes = _elements(rows, width)[at, lane]
    numbers = _numbers(codes, product.added, None, True)
    if numbers.dtype.kind == "f":
        if product.absolute_added:
            numbers = np.abs(numbers)
        if product.negate_added:
            numbers = -numbers
    return numbers, lane, slot


def multiply(
    product: Product, a: Any, b: Any, c: Any, old: Any, index: Any, scales: tuple[Any, Any]
) -> Any:
    """D's registers (registers by lanes, u32) from those of the sources and its own before."""
    total, lane, slot = _added_matrix(product, c)
    x, y = _source(product, 0, a), _source(product, 1, b)
    if product.index_shift is not None:
        x = _expanded(x, index, product)
    if product.scaled is not None:
        x, y = (_scaled(product, which, v, scales[which]) for which, v in enumerate((x, y)))
    if total.dtype.kind == "f" and product.result != "f64":
        total = total.astype(np.float32)
    total = _added(product, x, y, total)
    if product.saturate and total.dtype.kind == "i":
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return _stored(product, _codes(total, product.result), lane, slot, old)


def _scaled(product: Product, which: int, values: Any, scale: Any) -> Any:
    """Each run of 32 along k times a power of two: a byte of the scale register of its lane."""
    assert product.scaled is not None
    blocks, m, n = product.shape[3], product.shape[0], product.shape[1]
    where, size = (product.layout.a, m) if which == 0 else (product.layout.b, n)
    k = product.shape[2]
    lane, _ = _coordinates(where, "bik" if which == 0 else "bjk", (blocks, size, k))
    code = (scale[0][lane] >> np.uint32(8 * product.scaled[which]) & np.uint32(255)).astype(int)
    factor = np.where(code == 255, np.nan, np.ldexp(1.0, code - 127))
    return values * (factor if which == 0 else factor[:, None])


def _stored(product: Product, codes: Any, lane: Any, slot: Any, old: Any) -> Any:
    out, width = old.copy(), WIDTHS[product.result]
    if width == 64:
        out[2 * slot, lane] = codes & np.uint64(0xFFFFFFFF)
        out[2 * slot + 1, lane] = codes >> np.uint64(32)
        return out
    if width == 32:
        out[slot, lane] = codes
        return out
    if product.layout.one_half_a_register:
        half, register = np.full(slot.shape, product.high_half >> 1 & 1), slot
    else:
        half, register = slot % 2, slot // 2
    for part in range(2):
        here = half == part
        shift = np.uint32(16 * part)
        keep = np.uint32(0xFFFF << 16 if part == 0 else 0xFFFF)
        r, at = register[here], lane[here]
        out[r, at] = out[r, at] & keep | codes[here].astype(np.uint32) << shift
    return out
