"""Instructions that LLVM emits for its AMDGPU intrinsics, compiled and run, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.amd.virtual.wave_kernels import evaluate

RNG = np.random.default_rng(1)
WAVE = {"gfx1100": 32, "gfx1201": 32, "gfx942": 64, "gfx90a": 64, "gfx950": 64, "gfx1030": 32}


def words(count: int) -> Any:
    return RNG.integers(0, 1 << 32, count, dtype=np.uint32)


def halves(count: int, lanes: int) -> Any:
    return RNG.standard_normal((lanes, count)).astype(np.float16)


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
def test_wmma_as_llvm_emits_it(native: bool) -> None:
    """gfx11: lanes 0 to 15 hold rows of A and columns of B, and again 16 to 31."""
    a, b = halves(16, 16), halves(16, 16)  # a[i, k], b[j, k]
    c = RNG.standard_normal((16, 16)).astype(np.float32)
    lane = np.arange(32)
    rows = 2 * np.arange(8)[None, :] + (lane >> 4)[:, None]
    packed = c[rows, (lane & 15)[:, None]]
    body = """  %r = call <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(
    <16 x half> %a, <16 x half> %b, <8 x float> %c)"""
    declare = """declare <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(
    <16 x half>, <16 x half>, <8 x float>)"""
    inputs = [
        ("<16 x half>", a[lane & 15]), ("<16 x half>", b[lane & 15]), ("<8 x float>", packed),
    ]  # fmt: skip
    out = evaluate("gfx1100", inputs, ("<8 x float>", np.float32), body, declare, native=native)
    want = a.astype(float) @ b.astype(float).T + c
    np.testing.assert_allclose(out.reshape(32, 8), want[rows, (lane & 15)[:, None]], atol=1e-4)


@pytest.mark.parametrize("generation", ["gfx942", "gfx90a", "gfx950"])
def test_mfma_as_llvm_emits_it(generation: str) -> None:
    a, b = halves(16, 16), halves(16, 16)
    c = RNG.standard_normal((16, 16)).astype(np.float32)
    lane = np.arange(64)
    parts = (lane >> 4)[:, None] * 4 + np.arange(4)[None, :]
    column = (lane & 15)[:, None]
    body = """  %r = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(
    <4 x half> %a, <4 x half> %b, <4 x float> %c, i32 0, i32 0, i32 0)"""
    declare = """declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(
    <4 x half>, <4 x half>, <4 x float>, i32, i32, i32)"""
    inputs = [
        ("<4 x half>", a[column, parts]), ("<4 x half>", b[column, parts]),
        ("<4 x float>", c[parts, column]),
    ]  # fmt: skip
    out = evaluate(generation, inputs, ("<4 x float>", np.float32), body, declare)
    want = (a.astype(float) @ b.astype(float).T + c)[parts, column]
    np.testing.assert_allclose(out.reshape(64, 4), want, atol=1e-4)


def signed_bytes(x: Any) -> Any:
    return x.view(np.int8).reshape(-1, 4).astype(np.int64)


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201", "gfx942", "gfx90a", "gfx1030"])
def test_integer_dot_products(generation: str, native: bool) -> None:
    n = 64
    a, b, c = words(n), words(n), words(n) >> 4
    inputs = [("i32", a), ("i32", b), ("i32", c)]
    name = "llvm.amdgcn.udot4"
    out = evaluate(
        generation, inputs, ("i32", np.uint32),
        f"  %r = call i32 @{name}(i32 %a, i32 %b, i32 %c, i1 false)",
        f"declare i32 @{name}(i32, i32, i32, i1)", native=native,
    )  # fmt: skip
    u = [x.view(np.uint8).reshape(-1, 4).astype(np.int64) for x in (a, b)]
    np.testing.assert_array_equal(out, ((u[0] * u[1]).sum(1) + c) & 0xFFFFFFFF)
    if generation.startswith(("gfx11", "gfx12")):
        name, call = "llvm.amdgcn.sudot4", "i1 true, i32 %a, i1 false, i32 %b, i32 %c, i1 false"
        declare = f"declare i32 @{name}(i1, i32, i1, i32, i32, i1)"
        want = (signed_bytes(a) * u[1]).sum(1) + c
    else:
        name, call = "llvm.amdgcn.sdot4", "i32 %a, i32 %b, i32 %c, i1 false"
        declare = f"declare i32 @{name}(i32, i32, i32, i1)"
        want = (signed_bytes(a) * signed_bytes(b)).sum(1) + c
    out = evaluate(
        generation, inputs, ("i32", np.uint32), f"  %r = call i32 @{name}({call})", declare,
        native=native,
    )  # fmt: skip
    np.testing.assert_array_equal(out, want & 0xFFFFFFFF)


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201"])
def test_dot_products_of_halves(generation: str, native: bool) -> None:
    a, b = halves(2, 32), halves(2, 32)
    c = RNG.standard_normal(32).astype(np.float16)
    exact = (a.astype(float) * b.astype(float)).sum(1) + c
    inputs = [("<2 x half>", a), ("<2 x half>", b), ("half", c)]
    out = evaluate(
        generation, inputs, ("half", np.float16),
        "  %r = call half @llvm.amdgcn.fdot2.f16.f16(<2 x half> %a, <2 x half> %b, half %c)",
        "declare half @llvm.amdgcn.fdot2.f16.f16(<2 x half>, <2 x half>, half)", native=native,
    )  # fmt: skip
    np.testing.assert_allclose(out.astype(float), exact, rtol=2e-3, atol=2e-3)
    brain = [x.astype(ml_dtypes.bfloat16) for x in (a, b, c)]
    types = ("<2 x bfloat>", "<2 x bfloat>", "bfloat")
    out = evaluate(
        generation, list(zip(types, brain, strict=True)), ("bfloat", np.uint16),
        """  %r = call bfloat @llvm.amdgcn.fdot2.bf16.bf16(
        <2 x bfloat> %a, <2 x bfloat> %b, bfloat %c)""",
        "declare bfloat @llvm.amdgcn.fdot2.bf16.bf16(<2 x bfloat>, <2 x bfloat>, bfloat)",
        native=native,
    )  # fmt: skip
    wide = [x.astype(float) for x in brain]
    np.testing.assert_allclose(
        out.view(ml_dtypes.bfloat16).astype(float), (wide[0] * wide[1]).sum(1) + wide[2],
        rtol=1e-2, atol=2e-2,
    )  # fmt: skip
    inputs[2] = ("float", c.astype(np.float32))
    out = evaluate(
        generation, inputs, ("float", np.float32),
        "  %r = call float @llvm.amdgcn.fdot2(<2 x half> %a, <2 x half> %b, float %c, i1 false)",
        "declare float @llvm.amdgcn.fdot2(<2 x half>, <2 x half>, float, i1)", native=native,
    )  # fmt: skip
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6)


LANES = {
    # dpp_ctrl: the source lane of each lane, None where there is none
    0x1B: lambda i: i & ~3 | 3 - (i & 3),  # quad_perm:[3,2,1,0]
    0x111: lambda i: i - 1 if i & 15 else None,  # row_shr:1
    0x10F: lambda i: i + 15 if (i & 15) + 15 < 16 else None,  # row_shl:15
    0x12F: lambda i: i & ~15 | (i + 1) & 15,  # row_ror:15
    0x140: lambda i: i & ~15 | 15 - (i & 15),  # row_mirror
    0x141: lambda i: i & ~7 | 7 - (i & 7),  # row_half_mirror
}
NEW = {0x155: lambda i: i & ~15 | 5, 0x169: lambda i: i ^ 9}  # row_share:5, row_xmask:9
OLD = {
    0x142: lambda i: (i & ~15) - 1 if i >= 16 else None,  # row_bcast:15
    0x138: lambda i: i - 1 if i else None,  # wave_shr:1
    0x130: lambda i: i + 1 if i < 63 else None,  # wave_shl:1
}
NEWBCAST = {0x155: lambda i: i & ~15 | 5}  # row_newbcast:5, gfx90a on


@pytest.mark.parametrize("bound", [False, True], ids=["old", "zero"])
@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201", "gfx942", "gfx90a"])
def test_lanes_move_by_dpp(generation: str, bound: bool) -> None:
    """Every lane on; a lane without a source keeps the old value, or takes 0."""
    lanes = WAVE[generation]
    patterns = {**LANES, **(NEW if lanes == 32 else {**OLD, **NEWBCAST})}
    old, x = words(lanes), words(lanes)
    name = "llvm.amdgcn.update.dpp.i32"
    for control, source in patterns.items():
        modifiers = f"i32 {control}, i32 15, i32 15, i1 {int(bound)}"
        body = f"  %r = call i32 @{name}(i32 %a, i32 %b, {modifiers})"
        declare = f"declare i32 @{name}(i32, i32, i32, i32, i32, i1)"
        for native in (False, True):
            out = evaluate(
                generation, [("i32", old), ("i32", x)], ("i32", np.uint32), body, declare,
                native=native,
            )  # fmt: skip
            want = [
                x[source(i)] if source(i) is not None else 0 if bound else old[i]
                for i in range(lanes)
            ]
            assert out.tolist() == [int(v) for v in want], (hex(control), native)


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201", "gfx1030"])
def test_lanes_move_within_and_across_rows(generation: str, native: bool) -> None:
    x, picks = words(32), np.random.default_rng(2).integers(0, 16, 16)
    low, high = (
        sum(int(p) << 4 * n for n, p in enumerate(half)) for half in (picks[:8], picks[8:])
    )
    lane = np.arange(32)
    for name, row in (("permlane16", lane & 16), ("permlanex16", lane & 16 ^ 16)):
        full = f"llvm.amdgcn.{name}.i32"
        body = f"  %r = call i32 @{full}(i32 %a, i32 %a, i32 {low}, i32 {high}, i1 false, i1 false)"
        declare = f"declare i32 @{full}(i32, i32, i32, i32, i1, i1)"
        out = evaluate(generation, [("i32", x)], ("i32", np.uint32), body, declare, native=native)
        np.testing.assert_array_equal(out, x[row + picks[lane & 15]])
    index = np.random.default_rng(3).integers(0, 32, 32).astype(np.uint32)
    for name, want in (("ds.bpermute", x[index]), ("ds.permute", None)):
        full = f"llvm.amdgcn.{name}"
        place = np.random.default_rng(4).permutation(32).astype(np.uint32)
        data = index if want is not None else place
        out = evaluate(
            generation, [("i32", data * 4), ("i32", x)], ("i32", np.uint32),
            f"  %r = call i32 @{full}(i32 %a, i32 %b)", f"declare i32 @{full}(i32, i32)",
            native=native,
        )  # fmt: skip
        expected = np.zeros(32, np.uint32)
        expected[place] = x
        np.testing.assert_array_equal(out, expected if want is None else want)


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201", "gfx942", "gfx90a", "gfx1030"])
def test_a_vector_in_registers_is_indexed(generation: str, native: bool) -> None:
    """By M0 on RDNA, by the index mode on CDNA; the index differs from lane to lane."""
    lanes = WAVE[generation]
    rows = words(8 * lanes).reshape(lanes, 8)
    index = np.arange(lanes, dtype=np.uint32) * 3 % 8
    out = evaluate(
        generation, [("<8 x i32>", rows), ("i32", index)], ("i32", np.uint32),
        "  %r = extractelement <8 x i32> %a, i32 %b", native=native,
    )  # fmt: skip
    np.testing.assert_array_equal(out, rows[np.arange(lanes), index])
    out = evaluate(
        generation, [("<8 x i32>", rows), ("i32", index)], ("<8 x i32>", np.uint32),
        "  %r = insertelement <8 x i32> %a, i32 7, i32 %b", native=native,
    )  # fmt: skip
    expected = rows.copy()
    expected[np.arange(lanes), index] = 7
    np.testing.assert_array_equal(out.reshape(lanes, 8), expected)


@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201", "gfx942", "gfx90a", "gfx1030"])
def test_atomics_reach_memory_through_a_buffer(generation: str) -> None:
    """Lane i adds to dword i of a buffer of 40 bytes; beyond its end nothing happens."""
    lanes = WAVE[generation]
    start, added = words(lanes), words(lanes)
    resource = "llvm.amdgcn.make.buffer.rsrc.p8.p1"
    flags = {"gfx1100": 0x31004000, "gfx1201": 0x31004000, "gfx1030": 0x31014000}
    name = "llvm.amdgcn.raw.ptr.buffer.atomic.add.i32"
    body = f"""
  %buffer = call ptr addrspace(8) @{resource}(
    ptr addrspace(1) %pa, i16 0, i64 40, i32 {flags.get(generation, 0x27000)})
  %place = shl i32 %i32, 2
  %old = call i32 @{name}(i32 %b, ptr addrspace(8) %buffer, i32 %place, i32 0, i32 0)
  fence seq_cst
  %r = load volatile i32, ptr addrspace(1) %qa"""
    declare = f"""
declare ptr addrspace(8) @{resource}(ptr addrspace(1), i16, i64, i32)
declare i32 @{name}(i32, ptr addrspace(8), i32, i32, i32)"""
    inputs = [("i32", start), ("i32", added)]
    for native in (False, True):
        out = evaluate(generation, inputs, ("i32", np.uint32), body, declare, native=native)
        want = np.where(np.arange(lanes) < 10, start + added, start)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "lifted"])
@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201", "gfx942", "gfx90a"])
def test_lanes_are_counted_in_lds(generation: str, native: bool) -> None:
    """ds_append by the lanes that are on; all get the count before."""
    lanes = WAVE[generation]
    x = words(lanes)
    declare = """
@count = internal addrspace(3) global i32 poison, align 4
declare i32 @llvm.amdgcn.ds.append.p3(ptr addrspace(3), i1)
declare i32 @llvm.amdgcn.ds.consume.p3(ptr addrspace(3), i1)"""
    body = """
  store i32 100, ptr addrspace(3) @count
  %first = call i32 @llvm.amdgcn.ds.append.p3(ptr addrspace(3) @count, i1 false)
  %second = call i32 @llvm.amdgcn.ds.consume.p3(ptr addrspace(3) @count, i1 false)
  %part = shl i32 %second, 16
  %r = or i32 %first, %part"""
    out = evaluate(generation, [("i32", x)], ("i32", np.uint32), body, declare, native=native)
    assert set(out.tolist()) == {100 | (100 + lanes) << 16}
