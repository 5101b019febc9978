"""What MODE changes while a wave runs: rounding, against this processor's; indexed registers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from rawgpu.amd.spec.isa.machine import MachineInstruction
from tests.amd.virtual.wave_one import can_be_lifted, made, run

LIBM = ctypes.CDLL("libm.so.6")
DIRECTIONS = {1: 0x800, 2: 0x400, 3: 0xC00}
"""MODE's directions as <fenv.h> has them on x86."""
MACHINES = [("gfx1100", "gfx11", 32), ("gfx942", "gfx942", 64)]


@contextmanager
def direction(mode: int) -> Iterator[None]:
    LIBM.fesetround(DIRECTIONS[mode])
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        LIBM.fesetround(0)


def numbers(kind: Any, count: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(count) * 2.0 ** rng.integers(-30, 30, count)).astype(kind)
    top, tiny = np.finfo(kind).max, np.finfo(kind).smallest_subnormal
    ends = [0, -0.0, np.inf, np.nan, top, -top, tiny, -tiny, 1, -1, 3]
    values[: len(ends)] = ends if seed % 2 else np.roll(ends, 4)
    return values


def rows(values: Any) -> list[Any]:
    words = values.view(np.uint32).reshape(len(values), -1)
    return [np.ascontiguousarray(words[:, i]) for i in range(words.shape[1])]


@pytest.mark.parametrize("mode", DIRECTIONS)
@pytest.mark.parametrize(("generation", "family", "wave"), MACHINES)
def test_sums_and_products_round_as_the_mode_says(
    generation: str, family: str, wave: int, mode: int
) -> None:
    for seed in range(4):
        x, y = numbers(np.float32, wave, seed), numbers(np.float32, wave, seed + 1)
        p, q = numbers(np.float64, wave, seed), numbers(np.float64, wave, seed + 1)
        add64, mul64 = (
            made(f"v_{op}_f64", family, wave, vdst=d, src0=256 + 2, src1=256 + 4)
            for op, d in (("add", 12), ("mul", 14))
        )
        code = [
            made("v_add_f32", family, wave, vdst=10, src0=256, vsrc1=1),
            made("v_mul_f32", family, wave, vdst=11, src0=256, vsrc1=1),
            add64, mul64,
            made("v_cvt_f32_f64", family, wave, vdst=16, src0=256 + 2),
            made("v_cvt_f32_i32", family, wave, vdst=17, src0=256),
        ]  # fmt: skip
        (v0,), (v1,), (v2, v3), (v4, v5) = map(rows, (x, y, p, q))
        v = {0: v0, 1: v1, 2: v2, 3: v3, 4: v4, 5: v5}
        out = run(code, generation, wave, v=v, mode=0xF0 | mode | mode << 2).v
        with direction(mode):
            want = [
                x + y,
                x * y,
                p + q,
                p * q,
                p.astype(np.float32),
                v0.view(np.int32).astype(np.float32),
            ]
        have = [
            out[10].view(np.float32), out[11].view(np.float32), _doubles(out, 12),
            _doubles(out, 14), out[16].view(np.float32), out[17].view(np.float32),
        ]  # fmt: skip
        for number, (a, b) in enumerate(zip(have, want, strict=True)):
            kind = np.uint32 if a.dtype == np.float32 else np.uint64
            same = (a.view(kind) == b.view(kind)) | np.isnan(a) & np.isnan(b)
            assert same.all(), (number, x[~same], y[~same], a[~same], b[~same])


def _doubles(out: Any, at: int) -> Any:
    return np.ascontiguousarray(np.stack([out[at], out[at + 1]], axis=1)).view(np.float64)[:, 0]


@pytest.mark.parametrize("mode", DIRECTIONS)
def test_halves_round_to_the_neighbour_that_the_mode_wants(mode: int) -> None:
    x = np.random.default_rng(2).standard_normal(32).astype(np.float32)
    code = made("v_cvt_f16_f32", "gfx11", 32, vdst=1, src0=256)
    out = run([code], "gfx1100", 32, v={0: x.view(np.uint32)}, mode=0xF0 | mode << 2)
    half = (out.v[1] & 0xFFFF).astype(np.uint16).view(np.float16)
    error = half.astype(np.float64) - x
    step = np.abs(np.spacing(half)).astype(np.float64)
    assert (np.abs(error) < step).all()
    sign = {1: 1, 2: -1}.get(mode)
    toward = error * sign >= 0 if sign else error * x <= 0
    assert toward.all()


def test_a_wave_may_change_the_rounding_on_its_way() -> None:
    """s_round_mode, a sum, back, the same sum; native code leaves all of it to the interpreter."""
    one, tiny = (np.full(32, v, np.float32).view(np.uint32) for v in (1.0, 2.0**-30))
    add = [made("v_add_f32", "gfx11", 32, vdst=d, src0=256, vsrc1=1) for d in (2, 3)]
    up, nearest = (made("s_round_mode", "gfx11", 32, simm16=m) for m in (5, 0))
    code: list[MachineInstruction] = [up, add[0], nearest, add[1]]
    out = run(code, "gfx1100", 32, v={0: one, 1: tiny})
    assert not can_be_lifted(code, "gfx1100", 32)
    assert (out.v[2].view(np.float32) == np.nextafter(np.float32(1), np.float32(2))).all()
    assert (out.v[3].view(np.float32) == 1).all()


def test_registers_are_indexed_by_m0_while_the_mode_is_on() -> None:
    """gfx9: index 3 for the source, then for the destination."""
    v = {i: np.full(64, 100 + i, np.uint32) for i in range(12)}
    code = [
        made("s_set_gpr_idx_on", "gfx942", 64, ssrc0=128 + 3, ssrc1=1),
        made("v_mov_b32", "gfx942", 64, vdst=20, src0=256 + 2),
        made("s_set_gpr_idx_mode", "gfx942", 64, simm16=8),
        made("v_mov_b32", "gfx942", 64, vdst=20, src0=256 + 2),
        made("s_set_gpr_idx_off", "gfx942", 64),
        made("v_mov_b32", "gfx942", 64, vdst=21, src0=256 + 2),
    ]
    out = run(code, "gfx942", 64, v=v)
    assert not can_be_lifted(code, "gfx942", 64)
    assert [int(out.v[i][0]) for i in (20, 23, 21)] == [105, 102, 102]


@pytest.mark.parametrize("lifted", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize(("generation", "family", "wave"), [("gfx1100", "gfx11", 32)])
def test_moves_relative_to_m0(generation: str, family: str, wave: int, lifted: bool) -> None:
    v = {i: np.full(wave, 100 + i, np.uint32) for i in range(12)}
    code = [
        made("v_movrels_b32", family, wave, vdst=20, src0=256 + 2),
        made("v_movreld_b32", family, wave, vdst=21, src0=256 + 2),
        made("v_movrelsd_b32", family, wave, vdst=30, src0=256 + 5),
        made("s_movrels_b32", family, wave, sdst=20, ssrc0=2),
    ]
    out = run(code, generation, wave, v=v, s={125: 4, 6: 77}, lifted=lifted)
    assert [int(out.v[i][0]) for i in (20, 25, 34)] == [106, 102, 109]
    assert int(out.s[20]) == 77
