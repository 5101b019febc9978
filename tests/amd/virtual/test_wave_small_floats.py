"""Conversions of 4, 6 and 8 bit floats, in both engines, against ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.amd.virtual.wave_one import made, run

MACHINES = {"gfx942": ("gfx942", 64), "gfx1201": ("gfx12", 32), "gfx950": ("gfx950", 64)}
TYPES = {
    ("gfx942", "fp8"): ml_dtypes.float8_e4m3fnuz, ("gfx942", "bf8"): ml_dtypes.float8_e5m2fnuz,
    ("gfx1201", "fp8"): ml_dtypes.float8_e4m3fn, ("gfx1201", "bf8"): ml_dtypes.float8_e5m2,
    ("gfx950", "fp8"): ml_dtypes.float8_e4m3fn, ("gfx950", "bf8"): ml_dtypes.float8_e5m2,
    ("gfx950", "fp6"): ml_dtypes.float6_e2m3fn, ("gfx950", "bf6"): ml_dtypes.float6_e3m2fn,
    ("gfx950", "fp4"): ml_dtypes.float4_e2m1fn,
}  # fmt: skip
EIGHT = [(g, k) for g, k in TYPES if k in ("fp8", "bf8")]


def chunks(values: Any, wave: int) -> Any:
    """Rows of a wave's lanes, padded with zeros."""
    rows = -(-len(values) // wave)
    return np.concatenate([values, np.zeros(rows * wave - len(values), values.dtype)]).reshape(
        rows, wave
    )


def many_floats() -> Any:
    """Float32 around every code, every tie, the ends, infinities and NaN."""
    rng = np.random.default_rng(3)
    halves = np.arange(1 << 16, dtype=np.uint16)[::37].view(np.float16).astype(np.float32)
    near = (rng.standard_normal(700) * 2.0 ** rng.integers(-20, 18, 700)).astype(np.float32)
    ties = np.array(
        [m * 2.0**e for e in range(-20, 18) for m in (1, 1.0625, 1.125, 1.25, 1.375, 1.75, 1.9375)]
    )
    ends = [
        0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        240,
        248,
        256,
        448,
        464,
        480,
        57344,
        61440,
        1e38,
        1e-40,
    ]
    with np.errstate(all="ignore"):
        return np.concatenate([halves, near, ties, -ties, ends]).astype(np.float32)


def same(have: Any, want: Any, type_: Any) -> Any:
    """Where codes are equal or both NaN."""
    nan = [np.isnan(x.astype(np.uint8).view(type_).astype(float)) for x in (have, want)]
    return (have == want) | nan[0] & nan[1]


@pytest.mark.parametrize("lifted", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize(("generation", "kind"), EIGHT)
def test_float32_rounds_to_the_nearest_code(generation: str, kind: str, lifted: bool) -> None:
    family, wave = MACHINES[generation]
    rows = chunks(many_floats(), wave)
    rows = rows[-8:] if lifted else rows  # the ends and ties; a sweep takes long to compile
    code = [
        made(
            f"v_cvt_pk_{kind}_f32", family, wave, vdst=100 + i, src0=256 + i, src1=256 + i, op_sel=8
        )
        for i in range(len(rows))
    ]
    v = {i: row.view(np.uint32) for i, row in enumerate(rows)}
    v |= {100 + i: np.full(wave, 0xABCD) for i in range(len(rows))}
    state = run(code, generation, wave, v=v, lifted=lifted)
    out = state.v[100 : 100 + len(rows)]
    with np.errstate(all="ignore"):
        want = rows.astype(TYPES[generation, kind]).view(np.uint8)
    assert (out & 0xFFFF == 0xABCD).all()
    for have in (out >> 16 & 255, out >> 24):
        good = same(have, want, TYPES[generation, kind])
        assert good.all(), (rows[~good][0], hex(have[~good][0]), hex(want[~good][0]))


@pytest.mark.parametrize("lifted", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize(("generation", "kind"), EIGHT)
def test_codes_become_the_numbers_they_are(generation: str, kind: str, lifted: bool) -> None:
    family, wave = MACHINES[generation]
    rows = chunks(np.arange(256, dtype=np.uint32) * 0x01000100 >> 8 & 0xFFFFFFFF, wave)
    pairs = [
        made(f"v_cvt_pk_f32_{kind}", family, wave, vdst=50 + 2 * i, src0=256 + i)
        for i in range(len(rows))
    ]
    singles = [
        made(f"v_cvt_f32_{kind}", family, wave, vdst=90 + i, src0=256 + i) for i in range(len(rows))
    ]
    v = {i: (row & 255) | (255 - (row & 255)) << 8 for i, row in enumerate(rows)}
    state = run(pairs + singles, generation, wave, v=v, lifted=lifted)
    want = np.arange(256, dtype=np.uint8).view(TYPES[generation, kind]).astype(np.float32)
    low = state.v[50 : 50 + 2 * len(rows) : 2].view(np.float32).ravel()
    high = state.v[51 : 51 + 2 * len(rows) : 2].view(np.float32).ravel()
    one = state.v[90 : 90 + len(rows)].view(np.float32).ravel()
    for have, expected in ((low, want), (high, want[::-1]), (one, want)):
        np.testing.assert_array_equal(have, expected)
        assert (np.signbit(have) == np.signbit(expected))[~np.isnan(expected)].all()


@pytest.mark.parametrize(("generation", "byte", "op_sel"), [("gfx1201", 1, 2), ("gfx1201", 2, 1)])
def test_op_sel_chooses_the_byte_with_its_bits_reversed(
    generation: str, byte: int, op_sel: int
) -> None:
    family, wave = MACHINES[generation]
    code = made("v_cvt_f32_fp8", family, wave, format_="vop3", vdst=1, src0=256, op_sel=op_sel,
                op=0x1EC)  # fmt: skip
    state = run([code], generation, wave, v={0: np.full(wave, 0x38 << 8 * byte)})
    assert (state.v[1].view(np.float32) == 1.0).all()


@pytest.mark.parametrize("lifted", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize(("generation", "kind"), EIGHT)
def test_random_bits_round_up_in_proportion(generation: str, kind: str, lifted: bool) -> None:
    """Only the two neighbours come out, the upper one as often as the number is near it."""
    family, wave = MACHINES[generation]
    type_ = TYPES[generation, kind]
    rng = np.random.default_rng(9)
    number = np.float32(1.3)
    low, high = (np.float32(x) for x in ((1.25, 1.375) if kind == "fp8" else (1.25, 1.5)))
    rows = rng.integers(0, 1 << 32, (30, wave), dtype=np.uint32)
    code = [
        made(f"v_cvt_sr_{kind}_f32", family, wave, vdst=100 + i, src0=256 + 99, src1=256 + i)
        for i in range(len(rows))
    ]
    v = dict(enumerate(rows)) | {99: np.full(wave, number.view(np.uint32))}
    state = run(code, generation, wave, v=v, lifted=lifted)
    values = (state.v[100:130] & 255).astype(np.uint8).view(type_).astype(np.float32)
    assert set(np.unique(values).tolist()) == {float(low), float(high)}
    share = (values == high).mean()
    assert abs(share - (number - low) / (high - low)) < 0.06


@pytest.mark.parametrize("kind", ["fp6", "bf6", "fp4", "fp8", "bf8"])
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
def test_scaled_conversions_there_and_back(kind: str, source: str) -> None:
    """gfx950: down by a power of two, to the nearest code, saturated; and up again, exactly."""
    family, wave = MACHINES["gfx950"]
    type_ = TYPES["gfx950", kind]
    rng = np.random.default_rng(4)
    count = 32 if kind in ("fp6", "bf6") else 2
    numbers = (rng.standard_normal((count, wave)) * 4).astype(np.float32)
    narrow = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[source]
    numbers = numbers.astype(narrow).astype(np.float32)
    words = _packed(numbers, source)
    scale = np.full(wave, np.float32(4.0).view(np.uint32))
    v = {10 + i: word for i, word in enumerate(words)} | {90: scale}
    if count == 32 and source == "f32":
        down = made(f"v_cvt_scalef32_2xpk16_{kind}_f32", family, wave, vdst=60, src0=266,
                    src1=256 + 26, src2=256 + 90)  # fmt: skip
        order = np.ravel(np.stack([np.arange(16), np.arange(16, 32)]), order="F")
        numbers = numbers[order]
    elif source == "f32":
        down = made(f"v_cvt_scalef32_pk_{kind}_f32", family, wave, vdst=60, src0=266, src1=267,
                    src2=256 + 90)  # fmt: skip
    else:
        pk = "pk32" if count == 32 else "pk"
        down = made(f"v_cvt_scalef32_{pk}_{kind}_{source}", family, wave, vdst=60, src0=266,
                    src1=256 + 90)  # fmt: skip
    pk = "pk32" if count == 32 else "pk"
    up = made(f"v_cvt_scalef32_{pk}_{source}_{kind}", family, wave, vdst=120, src0=256 + 60,
              src1=256 + 90)  # fmt: skip
    state = run([down, up], "gfx950", wave, v=v)
    expected = (numbers / 4).astype(type_).astype(np.float32) * 4
    count_words = count if source == "f32" else count // 2
    have = _unpacked(state.v[120 : 120 + count_words], source)
    np.testing.assert_array_equal(have, expected)


def _packed(numbers: Any, kind: str) -> Any:
    if kind == "f32":
        return numbers.view(np.uint32)
    codes = numbers.astype(np.float16 if kind == "f16" else ml_dtypes.bfloat16).view(np.uint16)
    return codes[0::2].astype(np.uint32) | codes[1::2].astype(np.uint32) << 16


def _unpacked(words: Any, kind: str) -> Any:
    if kind == "f32":
        return words.view(np.float32)
    codes = np.stack([words & 0xFFFF, words >> 16], axis=1).reshape(-1, words.shape[1])
    narrow = np.float16 if kind == "f16" else ml_dtypes.bfloat16
    return codes.astype(np.uint16).view(narrow).astype(np.float32)
