"""Matrix multiplies: layouts against AMD's calculator, results against sums in float64."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rawgpu.amd.spec.isa.formats import LINEAGE
from rawgpu.amd.spec.isa.tables import ROWS
from tests.amd.virtual.wave_one import made, run

DATA = Path(__file__).parents[2] / "data" / "isa" / "matrix_layouts.tsv"
SUMS = DATA.with_name("matrix_sums.tsv.xz")
FAMILY = {
    "cdna2": ("gfx90a", "gfx90a"), "cdna3": ("gfx942", "gfx942"),
    "rdna3": ("gfx1100", "gfx11"), "rdna4": ("gfx1201", "gfx12"),
}  # fmt: skip
WIDTHS = {
    "f64": 64, "f32": 32, "xf32": 32, "i32": 32, "f16": 16, "bf16": 16, "i8": 8, "iu8": 8,
    "iu4": 4, "fp8": 8, "bf8": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Foreign:
    """The calculator's account of one matrix of one instruction."""

    lane: tuple[str, ...]
    bits: tuple[tuple[str, int], ...]

    def at(self, **index: Any) -> tuple[Any, Any]:
        """The lane and first bit of an element."""
        lane = bit = 0
        for n, token in enumerate(self.lane):
            if token not in "*-":
                lane = lane + ((index[token[0]] >> int(token[1:]) & 1) << n)
        for token, weight in self.bits:
            bit = bit + (index[token[0]] >> int(token[1:]) & 1) * weight
        return lane, bit


@cache
def foreign() -> dict[tuple[str, int, str], dict[str, Foreign]]:
    out: dict[tuple[str, int, str], dict[str, Foreign]] = {}
    for line in DATA.read_text().splitlines():
        if line.startswith("#"):
            continue
        arch, wave, name, which, lane, bits = line.split("\t")
        pairs = tuple(
            (t.partition(":")[0], int(t.partition(":")[2])) for t in bits.split() if t != "-"
        )
        key = (arch, int(wave), name)
        out.setdefault(key, {})[which] = Foreign(tuple(lane.split()), pairs)
    return out


@dataclass(frozen=True)
class Case:
    arch: str
    wave: int
    name: str
    word: str
    kinds: tuple[str, str]
    cd: str
    m: int
    n: int
    k: int
    blocks: int

    @property
    def id(self) -> str:
        return f"{self.arch}-{self.wave}-{self.name}"


def cases() -> Iterator[Case]:
    for arch, wave, name in foreign():
        _, family = FAMILY[arch]
        for row in ROWS:
            column = next(
                (row.opcodes.columns[g] for g in LINEAGE[family] if g in row.opcodes.columns), None
            )
            found = re.match(
                r"(wmma|swmmac|mfma|smfmac)\(.*?\"(\w+)\", \"(\w+)\", (.*)\)", row.meaning
            )
            if column is None or column.opcode is None or found is None:
                continue
            if (column.name or row.name) != name:
                continue
            word, ab, cd, numbers = found.groups()
            m, n, k, *_ = map(int, numbers.split(","))
            first, _, second = ab.partition("_")
            tokens = foreign()[arch, wave, name]["d"]
            blocks = sum(t[0] == "b" for t in (*tokens.lane, *(t for t, _ in tokens.bits)))
            yield Case(arch, wave, name, word, (first, second or first), cd, m, n, k, 1 << blocks)


CASES = list(cases())


def test_every_instruction_of_the_calculator_has_a_row() -> None:
    assert {(case.arch, case.wave, case.name) for case in CASES} == set(foreign())


# Numbers and codes.


def codes(rng: np.random.Generator, kind: str, family: str, shape: tuple[int, ...]) -> Any:
    """Random numbers as float64 or integers, and their codes."""
    if kind in ("i8", "iu8", "iu4", "i32"):
        width = WIDTHS[kind] if kind != "i32" else 16
        numbers = rng.integers(-(1 << width - 1), 1 << width - 1, shape)
        return numbers, numbers & (1 << WIDTHS[kind]) - 1
    numbers = rng.standard_normal(shape)
    numbers = np.copysign(np.maximum(abs(numbers), 1 / 64), numbers)  # none that is flushed
    if kind == "f64":
        return numbers, numbers.view(np.uint64)
    if kind in ("f32", "xf32"):
        single = numbers.astype(np.float32)
        if kind == "xf32":
            single = (single.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return single.astype(float), single.view(np.uint32)
    names = {
        "f16": np.float16, "bf16": ml_dtypes.bfloat16,
        "fp8": ml_dtypes.float8_e4m3fnuz if family == "gfx942" else ml_dtypes.float8_e4m3fn,
        "bf8": ml_dtypes.float8_e5m2fnuz if family == "gfx942" else ml_dtypes.float8_e5m2,
    }  # fmt: skip
    narrow = numbers.astype(names[kind])
    unsigned = np.uint16 if WIDTHS[kind] == 16 else np.uint8
    return narrow.astype(float), narrow.view(unsigned)


def put(rows: Any, lane: Any, bit: Any, code: Any, width: int) -> None:
    """Codes into registers, at a lane and a bit of the operand."""
    lane, bit, code = np.broadcast_arrays(lane, bit, np.asarray(code, np.uint64))
    for at, where, value in zip(lane.flat, bit.flat, code.ravel().tolist(), strict=True):
        for part in range(0, width, 32):
            index = int(where) + part
            mask = (1 << min(width, 32)) - 1
            rows[index // 32, at] |= np.uint32((value >> part & mask) << index % 32)


def copies(rows: Any, where: Foreign) -> None:
    """Fill the lanes that hold copies."""
    for n, token in enumerate(where.lane):
        if token == "*":
            for lane in range(1 << n, 2 << n):
                rows[:, lane] = rows[:, lane - (1 << n)]


def got(rows: Any, lane: Any, bit: Any, kind: str) -> Any:
    width = WIDTHS[kind]
    wide = rows.astype(np.uint64)
    if width == 64:
        pair = wide[bit // 32, lane] | wide[bit // 32 + 1, lane] << np.uint64(32)
        return pair.view(np.float64)
    code = wide[bit // 32, lane] >> (bit % 32).astype(np.uint64) & np.uint64((1 << width) - 1)
    if kind == "i32":
        return code.astype(np.uint32).view(np.int32)
    if kind == "f32":
        return code.astype(np.uint32).view(np.float32).astype(float)
    half = code.astype(np.uint16)
    return half.view(np.float16 if kind == "f16" else ml_dtypes.bfloat16).astype(float)


@dataclass
class Matrices:
    """Random matrices of a case, and the registers that hold them."""

    numbers: dict[str, Any]
    rows: dict[str, Any]
    index: dict[str, Any]


def matrices(case: Case, seed: int) -> Matrices:
    places, rng = foreign()[case.arch, case.wave, case.name], np.random.default_rng(seed)
    _, family = FAMILY[case.arch]
    m, n, k, blocks = case.m, case.n, case.k, case.blocks
    sparse = case.word in ("swmmac", "smfmac")
    shapes = {"a": "bik", "b": "bjk", "d": "bij"}
    sizes = {"b": blocks, "i": m, "j": n, "k": k}
    numbers, rows, index = {}, {}, {}
    for which, kind in (("a", case.kinds[0]), ("b", case.kinds[1]), ("d", case.cd)):
        shape = tuple(sizes[letter] for letter in shapes[which])
        at = dict(zip(shapes[which], np.indices(shape), strict=True))
        numbers[which], code = codes(rng, kind, family, shape)
        index[which] = at
        width = WIDTHS[kind]
        rows[which] = np.zeros((40, case.wave), np.uint32)
        if which == "a" and sparse:
            numbers["a"] = sparse_a(case, rng, numbers["a"], code, rows)
            continue
        lane, bit = places[which].at(**at)
        put(rows[which], lane, bit, code, width)
        copies(rows[which], places[which])
    return Matrices(numbers, rows, index)


def sparse_a(case: Case, rng: np.random.Generator, numbers: Any, code: Any, rows: Any) -> Any:
    """Two of each four stay; the registers of A and of the index. Gives A with its zeros."""
    places, width = foreign()[case.arch, case.wave, case.name], WIDTHS[case.kinds[0]]
    rows["k"] = np.zeros((2, case.wave), np.uint32)
    dense = np.zeros_like(numbers)
    for i in range(case.m):
        for group in range(0, case.k, 4):
            pair = sorted(rng.choice(4, 2, replace=False).tolist())
            lane, bit = places["a"].at(i=i, k=group)
            at_lane, at_bit = places["k"].at(i=i, k=group)
            for number, position in enumerate(pair):
                here = (0, i, group + position)
                dense[here] = numbers[here]
                put(rows["a"], lane, bit + number * width, int(code[here]), width)
                put(rows["k"], at_lane, at_bit + 2 * number, position, 2)
    return dense


REGISTERS = {"a": 40, "b": 80, "d": 0, "k": 120}


def executed(case: Case, data: Matrices, **fields: int) -> Any:
    """D's registers after the instruction, with C in D's registers."""
    generation, family = FAMILY[case.arch]
    sparse = case.word in ("swmmac", "smfmac")
    values = {
        "vdst": REGISTERS["d"], "src0": 256 + REGISTERS["a"], "src1": 256 + REGISTERS["b"],
        "src2": 256 + (REGISTERS["k"] if sparse else REGISTERS["d"]), **fields,
    }  # fmt: skip
    if "iu" in case.kinds[0]:
        values["neg"] = 3
    code = made(case.name, family, case.wave, **values)
    v = {
        REGISTERS[which] + number: row
        for which, rows in data.rows.items()
        for number, row in enumerate(rows)
    }
    return run([code], generation, case.wave, v=v).v[REGISTERS["d"] :][:40].copy()


SHARE = [
    pytest.param(case, id=case.id, marks=() if number % 4 == 0 else pytest.mark.full)
    for number, case in enumerate(CASES)
]
"""Every fourth in the fast set."""


@pytest.mark.parametrize("case", SHARE)
def test_a_matrix_multiply_gives_the_product(case: Case) -> None:
    data = matrices(case, 5)
    out = executed(case, data)
    want = np.einsum("bik,bjk->bij", data.numbers["a"], data.numbers["b"]) + data.numbers["d"]
    place = foreign()[case.arch, case.wave, case.name]["d"]
    lane, bit = place.at(**data.index["d"])
    have = got(out, lane, bit, case.cd)
    if case.cd == "i32":
        assert (have == want).all()
        return
    error = np.abs(have - want).max()
    size = np.einsum("bik,bjk->bij", abs(data.numbers["a"]), abs(data.numbers["b"])).max()
    step = {"f64": 2.0**-52, "f32": 2.0**-22, "f16": 2.0**-10, "bf16": 2.0**-7}[case.cd]
    assert error <= step * max(1.0, size)


# Modifiers.


def _named(name: str, arch: str, wave: int) -> Case:
    return next(c for c in CASES if (c.name, c.arch, c.wave) == (name, arch, wave))


def _result(case: Case, data: Matrices, **fields: int) -> Any:
    out = executed(case, data, **fields)
    lane, bit = foreign()[case.arch, case.wave, case.name]["d"].at(**data.index["d"])
    return got(out, lane, bit, case.cd)


@pytest.mark.parametrize(("size", "chosen"), [(1, 1), (2, 3), (4, 9)])
def test_a_block_of_a_serves_several(size: int, chosen: int) -> None:
    """CBSZ and ABID."""
    case = _named("v_mfma_f32_4x4x4_16b_f16", "cdna3", 64)
    data = matrices(case, 6)
    blocks = (np.arange(16) >> size << size) + chosen
    want = np.einsum("bik,bjk->bij", data.numbers["a"][blocks], data.numbers["b"])
    have = _result(case, data, cbsz=size, abid=chosen)
    assert np.abs(have - want - data.numbers["d"]).max() < 1e-4


@pytest.mark.parametrize(("pattern", "from_block"), [
    (1, [0, 1, 0, 1]), (2, [2, 3, 2, 3]), (3, [1, 2, 3, 0]), (4, [0] * 4), (6, [2] * 4),
])  # fmt: skip
def test_blocks_of_b_come_from_other_lanes(pattern: int, from_block: list[int]) -> None:
    """BLGP, on a shape whose blocks are the wave's quarters."""
    case = _named("v_mfma_f32_16x16x4_4b_f16", "cdna3", 64)
    data = matrices(case, 7)
    want = np.einsum("bik,bjk->bij", data.numbers["a"], data.numbers["b"][from_block])
    have = _result(case, data, blgp=pattern)
    assert np.abs(have - want - data.numbers["d"]).max() < 1e-4


@pytest.mark.parametrize(("fields", "sign_a", "sign_c"), [
    ({"neg": 1, "neg_hi": 1}, -1, 1), ({"neg": 4}, 1, -1), ({"neg": 2, "neg_hi": 2}, -1, 1),
])  # fmt: skip
def test_signs_of_a_wmma(fields: dict[str, int], sign_a: int, sign_c: int) -> None:
    case = _named("v_wmma_f32_16x16x16_f16", "rdna4", 32)
    data = matrices(case, 8)
    want = np.einsum("bik,bjk->bij", data.numbers["a"], data.numbers["b"]) * sign_a
    have = _result(case, data, **fields)
    assert np.abs(have - want - sign_c * data.numbers["d"]).max() < 1e-4


def test_an_integer_wmma_saturates_where_it_is_told_to() -> None:
    case = _named("v_wmma_i32_16x16x16_iu8", "rdna3", 32)
    data = matrices(case, 9)
    data.rows["d"][:8] = 0x7FFFFFFF
    product = np.einsum("bik,bjk->bij", data.numbers["a"], data.numbers["b"])
    want = np.minimum(product + 0x7FFFFFFF, 0x7FFFFFFF)
    np.testing.assert_array_equal(_result(case, data, clamp=1), want)


# The rounding of sums, as MMA-Sim has it for CDNA cards.


def sums() -> Iterator[tuple[str, str, list[list[int]]]]:
    for line in lzma.decompress(SUMS.read_bytes()).decode().splitlines():
        if not line.startswith("#"):
            arch, name, *columns = line.split("\t")
            yield arch, name, [[int(word, 16) for word in column.split()] for column in columns]


def test_sums_are_rounded_as_the_cards_round_them() -> None:
    """Row 0 times column 0, other elements zero; every CDNA instruction on floats."""
    by_name = {(case.arch, case.name): case for case in CASES}
    wrong, seen = [], set()
    for arch, name, (a, b, c, d) in sums():
        case = by_name[arch, name]
        places = foreign()[arch, 64, name]
        rows = {which: np.zeros((40, 64), np.uint32) for which in "abd"}
        along = np.arange(case.k)
        put(rows["a"], *places["a"].at(i=0, k=along, b=0), a, WIDTHS[case.kinds[0]])
        put(rows["b"], *places["b"].at(j=0, k=along, b=0), b, WIDTHS[case.kinds[1]])
        put(rows["d"], *places["d"].at(i=0, j=0, b=0), c, WIDTHS[case.cd])
        out = executed(case, Matrices({}, rows, {}))
        have = int(out[0, 0]) | (int(out[1, 0]) << 32 if case.cd == "f64" else 0)
        seen.add((arch, name))
        both_nan = case.cd == "f32" and min(have, d[0]) & 0x7FFFFFFF > 0x7F800000
        if have != d[0] and not both_nan:  # which NaN it is, the model leaves open
            wrong.append((arch, name, hex(have), hex(d[0])))
    assert not wrong
    assert len(seen) == 49
