"""Where the elements of a matrix multiply stand in registers, and how its sums are rounded.

A place is written bit by bit, low bit first: lane bits, a bar, slot bits. `"j0 j1 j2 j3 i0 | i1 i2
i3"` says that element (i, j) is in the lane whose low four bits are j and whose fifth is the lowest
of i; of the elements that a lane holds it is number i >> 1. `i` is the row of A and of the result,
`j` the column of B and of the result, `k` runs along the sum, `b` is the block. A star is a bit
that does not matter, since the lanes hold copies; a dash one that must be 0, since those lanes are
not read. Slots are dense: element n begins at bit n * width of the lane's registers.

Sources: AMD's matrix instruction calculator, revision 2ef91896 (layouts; each is compared with it
by `tests/amd/virtual/test_wave_matrix.py`). Sums: the MMA-Sim model, revision c785138, which its
authors compared with CDNA2 and CDNA3 cards bit by bit (arXiv 2511.10909).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Place:
    """Bits of the lane's number and of the slot's, low first: "i0", "*", "-"."""

    lane: tuple[str, ...]
    slot: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of both sources and of the result, which is also that of the added matrix."""

    a: Place
    b: Place
    d: Place
    one_half_a_register: bool = False
    """16-bit results stand alone in a register, in the half that op_sel chooses."""


@dataclass(frozen=True, slots=True)
class Sums:
    """How products are added up to float32 or float64.

    `kind`: "chain" (a fused multiply-add for each product, in order), "pairs" (groups whose
    products are added in a tree, then to the sum), "fused" (groups whose products are cut to 24
    bits below the largest exponent and added exactly, then to the sum rounding down).
    `interleaved`: even and odd products of a group are cut apart. `flush`: denormals are zero.
    """

    kind: str = "chain"
    group: int = 1
    flush: bool = False
    interleaved: bool = False


def place(text: str) -> Place:
    lane, _, slot = text.partition("|")
    return Place(tuple(lane.split()), tuple(slot.split()))


def _bits(letter: str, size: int) -> list[str]:
    return [f"{letter}{n}" for n in range(size.bit_length() - 1)]


# CDNA: one rule for all shapes.


def _cdna_source(letter: str, size: int, k: int, blocks: int) -> Place:
    """Rows, then blocks, then what is left of k over 64 lanes; each lane holds a run along k."""
    run = (size * blocks * k // 64).bit_length() - 1
    along = _bits("k", k)
    return Place((*_bits(letter, size), *_bits("b", blocks), *along[run:]), tuple(along[:run]))


def _cdna_result(m: int, n: int, blocks: int, wide: bool) -> Place:
    """Four rows a lane (one of float64), then columns, then rows over lanes; the rest in turn."""
    rows, columns, block = _bits("i", m), _bits("j", n), _bits("b", blocks)
    low = 0 if wide else 2
    across = block if (1 << len(columns) + len(block)) * (m >> low) <= 64 else []
    room = 6 - len(columns) - len(across)
    lane = (*columns, *across, *rows[low : low + room])
    return Place(lane, (*rows[:low], *rows[low + room :], *(() if across else block)))


def _cdna(m: int, n: int, k: int, blocks: int, wide: bool, sparse: bool) -> Layout:
    return Layout(
        _cdna_source("i", m, k // 2 if sparse else k, blocks),
        _cdna_source("j", n, k, blocks),
        _cdna_result(m, n, blocks, wide),
    )


# RDNA: rows. Wave size, then bits of an element and length of k (of A's stored half if sparse).

_RDNA3: Mapping[int, tuple[str, str]] = {
    32: ("* | k0 k1 k2 k3", "j0 j1 j2 j3 i0 | i1 i2 i3"),
    64: ("* * | k0 k1 k2 k3", "j0 j1 j2 j3 i0 i1 | i2 i3"),
}
_RDNA4_RESULT: Mapping[int, str] = {
    32: "j0 j1 j2 j3 i3 | i0 i1 i2",
    64: "j0 j1 j2 j3 i3 i2 | i0 i1",
}
_RDNA4_SOURCE: Mapping[tuple[int, int, int], str] = {
    (32, 16, 16): "k2 | k0 k1 k3",
    (32, 16, 32): "k3 | k0 k1 k2 k4",
    (32, 8, 16): "k3 | k0 k1 k2",
    (32, 8, 32): "k4 | k0 k1 k2 k3",
    (32, 4, 16): "k3 | k0 k1 k2",
    (32, 4, 32): "k4 | k0 k1 k2 k3",
    (32, 4, 64): "k5 | k0 k1 k2 k3 k4",
    (64, 16, 16): "k2 k3 | k0 k1",
    (64, 16, 32): "k3 k4 | k0 k1 k2",
    (64, 8, 16): "k3 k2 | k0 k1",
    (64, 8, 32): "k4 k3 | k0 k1 k2",
    (64, 4, 16): "k3 - | k0 k1 k2",
    (64, 4, 32): "k4 k3 | k0 k1 k2",
    (64, 4, 64): "k5 k4 | k0 k1 k2 k3",
}


def _rdna3(wave: int) -> Layout:
    source, result = _RDNA3[wave]
    return Layout(
        place("i0 i1 i2 i3 " + source), place("j0 j1 j2 j3 " + source), place(result), True
    )


def _rdna4(wave: int, bits: int, k: int, sparse: bool) -> Layout:
    a, b = (_RDNA4_SOURCE[wave, bits, n] for n in (k // 2 if sparse else k, k))
    return Layout(place("i0 i1 i2 i3 " + a), place("j0 j1 j2 j3 " + b), place(_RDNA4_RESULT[wave]))


def _gfx1250(k: int) -> Layout:
    """Half of k in each half of the wave. Which half is a guess, and without effect on sums."""
    along = _bits("k", k)
    source = f"{along[-1]} | {' '.join(along[:-1])}"
    return Layout(
        place("i0 i1 i2 i3 " + source), place("j0 j1 j2 j3 " + source), place(_RDNA4_RESULT[32])
    )


@cache
def layout(
    lineage: tuple[str, ...],
    wave: int,
    shape: tuple[int, int, int, int],
    bits: int,
    *,
    wide: bool,
    sparse: bool,
) -> Layout:
    """The places for a shape (m, n, k, blocks) of elements of `bits`. Raises KeyError.

    `wide`: the result is float64. `sparse`: A holds two of each four elements along k.
    """
    m, n, k, blocks = shape
    if "gfx90a" in lineage:
        return _cdna(m, n, k, blocks, wide, sparse)
    if "gfx1250" in lineage:
        if sparse:
            raise KeyError("the layout of sparse matrices on gfx1250 is not known")
        return _gfx1250(k)
    return _rdna4(wave, bits, k, sparse) if "gfx12" in lineage else _rdna3(wave)


_CDNA2 = {"f16": Sums("pairs", 4, flush=True), "bf16": Sums("pairs", 4, flush=True)}
_CDNA3 = {
    "f16": Sums("fused", 8),
    "bf16": Sums("fused", 8),
    "xf32": Sums("fused", 4),
    "fp8": Sums("fused", 16, interleaved=True),
    "bf8": Sums("fused", 16, interleaved=True),
}
SUMS: Mapping[str, Mapping[str, Sums]] = {"gfx942": _CDNA3, "gfx90a": _CDNA2}
"""By the family that first had them, and type; all others are chains. RDNA's are not known."""


def sums(lineage: tuple[str, ...], kind: str, elements_a_lane: int) -> Sums:
    """How a family adds products of `kind`. gfx90a's older bf16 instructions hold two a lane."""
    for family in lineage:
        if family in SUMS:
            found = SUMS[family].get(kind, Sums())
            if found.kind == "pairs":
                return Sums("pairs", min(found.group, elements_a_lane), found.flush)
            return found
    return Sums()


F64_SIGNS = frozenset(("gfx942",))
"""Families, with their descendants, whose float64 multiplies use `blgp` as signs of a, b and c."""
