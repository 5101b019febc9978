from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from rawgpu.compiler_bridge.llvm import compile_in_process
from rawgpu.compiler_bridge.text import Function, Module
from rawgpu.compiler_bridge.types import f32, f64, i1, i8, i32, i64, ptr, vector, void
from tests.compiler_bridge.native import NativeMap, load

V16 = vector(f32, 16)


def test_a_module_prints_as_written() -> None:
    module = Module(triple="x86_64-unknown-linux-gnu")
    f = module.function(
        "scale",
        [(ptr, "p", "noalias"), (f32, "by")],
        f32,
        linkage="internal",
        attributes="nounwind",
    )
    pointer, by = f.args
    x = f.load(f32, pointer, align=16)
    f.store(f.fmul(x, by, "contract"), pointer)
    f.ret(x)
    assert str(module) == (
        'target triple = "x86_64-unknown-linux-gnu"\n'
        "define internal float @scale(ptr noalias %p, float %by) nounwind {\n"
        "entry:\n"
        "  %v0 = load float, ptr %p, align 16\n"
        "  %v1 = fmul contract float %v0, %by\n"
        "  store float %v1, ptr %p, align 4\n"
        "  ret float %v0\n"
        "}\n"
    )


def test_a_loop_with_phis_runs() -> None:
    module = Module()
    f = module.function("run", [(ptr, "x"), (ptr, "y"), (i64, "n")])
    source, target, count = f.args
    entry, loop, done = f.current, f.block("loop"), f.block("done")
    f.br(loop)
    f.at(loop)
    i = f.phi(i64, (f.const(i64, 0), entry))
    total = f.phi(f32, (f.const(f32, 0.5), entry))
    more = f.fadd(total, f.load(f32, f.gep(source, i, f32)))
    f.store(more, f.gep(target, i, f32))
    following = f.add(i, f.const(i64, 1), "nuw nsw")
    i.add(following, loop)
    total.add(more, loop)
    f.condbr(f.icmp("ult", following, count), loop, done)
    f.at(done)
    f.ret()
    x, y = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    _, address = load(str(module), "run")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)(
        x.ctypes.data, y.ctypes.data, 10
    )
    np.testing.assert_array_equal(y, np.cumsum(x) + np.float32(0.5))


def lanes(ops: Any) -> Function:
    function: Function = ops.function
    return function


def test_vector_instructions_do_what_their_names_say() -> None:
    x = np.arange(16, dtype=np.float32)

    def reverse(ops: Any, v: Any) -> Any:
        return lanes(ops).shuffle(v, v, range(15, -1, -1))

    def third_everywhere(ops: Any, v: Any) -> Any:
        return lanes(ops).splat(lanes(ops).extract(v, 3), 16)

    def with_first_replaced(ops: Any, v: Any) -> Any:
        return lanes(ops).insert(v, lanes(ops).const(f32, 99.0), 0)

    def sum_everywhere(ops: Any, v: Any) -> Any:
        f = lanes(ops)
        return f.splat(f.reduce("fadd", v, f.const(f32, 0.0), "reassoc"), 16)

    def small_or_zero(ops: Any, v: Any) -> Any:
        f = lanes(ops)
        return f.select(f.fcmp("olt", v, f.const(V16, 8.0)), v, f.const(V16, 0.0))

    np.testing.assert_array_equal(NativeMap(reverse)(x), x[::-1])
    np.testing.assert_array_equal(NativeMap(third_everywhere)(x), np.full(16, 3, np.float32))
    np.testing.assert_array_equal(NativeMap(with_first_replaced)(x), [99, *range(1, 16)])
    np.testing.assert_array_equal(NativeMap(sum_everywhere)(x), np.full(16, 120, np.float32))
    np.testing.assert_array_equal(NativeMap(small_or_zero)(x), np.where(x < 8, x, 0))


def test_masked_memory_and_local_memory() -> None:
    def through_memory(ops: Any, v: Any) -> Any:
        f = lanes(ops)
        spot = f.alloca(V16, align=64)
        f.store(f.const(V16, -1.0), spot, align=64)
        even = f.icmp("eq", f.and_(f.lane_numbers(i32, 16), f.const(vector(i32, 16), 1)),
                      f.const(vector(i32, 16), 0))  # fmt: skip
        f.masked_store(v, spot, even)
        low = f.icmp("ult", f.lane_numbers(i32, 16), f.const(vector(i32, 16), 8))
        return f.masked_load(V16, spot, low, f.const(V16, 7.0))

    x = np.arange(16, dtype=np.float32)
    want = np.where(np.arange(16) < 8, np.where(np.arange(16) % 2 == 0, x, -1), 7)
    np.testing.assert_array_equal(NativeMap(through_memory)(x), want)


def test_casts_and_integers() -> None:
    def body(ops: Any, v: Any) -> Any:
        f = lanes(ops)
        wide = f.cast("sext", f.cast("trunc", v, vector(i8, 16)), vector(i32, 16))
        shifted = f.ashr(f.shl(wide, f.const(wide.type, 3)), f.const(wide.type, 1))
        return f.xor(f.mul(shifted, f.const(wide.type, -1)), f.lshr(v, f.const(v.type, 31)))

    x = np.array([0, 1, 127, 128, 255, 0x8000_0001, 0xFFFF_FFFF], np.uint32)
    wide = x.astype(np.int8).astype(np.int32)
    want = (-((wide << 3) >> 1)).view(np.uint32) ^ (x >> 31)
    np.testing.assert_array_equal(NativeMap(body, (i32,), i32)(x), want)


def test_tables_metadata_and_declarations_appear_once() -> None:
    module = Module()
    f = module.function("f", [(ptr, "p"), (V16, "v")], f64)
    first = module.table("t", f64, [0.5, 0.25])
    assert module.table("t", f64, [0.5, 0.25]).text == first.text
    with pytest.raises(AssertionError):
        module.table("t", f64, [0.5])
    for _ in range(2):
        f.store(f.fma(f.args[1], f.args[1], f.args[1]), f.args[0], align=64, nontemporal=True)
    f.ret(f.load(f64, f.gep(first, 1, f64)))
    text = str(module)
    assert text.count("@t = private unnamed_addr constant") == 1
    assert text.count("declare <16 x float> @llvm.fma.v16f32") == 1
    assert text.count("!0 = !{i32 1}") == 1
    assert text.count("!nontemporal !0") == 2
    assert compile_in_process(text)


def test_hand_written_parts_and_calls() -> None:
    module = Module()
    module.append("define internal i32 @seven() {\n  ret i32 7\n}")
    module.global_variable("spot", "internal global i32 0")
    module.declare("memset", ptr, [ptr, i32, i64])
    f = module.function("f", [(ptr, "p")], i32)
    f.call("memset", ptr, [f.args[0], f.const(i32, 0), f.const(i64, 4)])
    f.call("llvm.assume", void, [f.const(i1, True)])
    module.declare("llvm.assume", void, [i1])
    f.ret(f.call("seven", i32, []))
    assert compile_in_process(str(module))


def test_debug_locations_follow_each_instruction() -> None:
    module = Module()
    f = module.function("f", [(i32, "x")], i32)
    f.debug = ", !dbg !7"
    f.ret(f.add(f.args[0], f.args[0]))
    assert str(module).count(", !dbg !7") == 2


def test_operands_of_different_types_are_our_mistake() -> None:
    f = Module().function("f", [(i32, "x"), (i64, "y")])
    with pytest.raises(AssertionError):
        f.add(f.args[0], f.args[1])
    with pytest.raises(AssertionError):
        f.icmp("eq", f.args[0], f.args[1])
    with pytest.raises(AssertionError):
        f.condbr(f.args[0], f.block(), f.block())


@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
@pytest.mark.parametrize("form", ["or", "xor", "add", "copysign"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_bits_of_two_vectors_joined_under_a_mask(
    lanes: int, form: str, order: tuple[int, int, int]
) -> None:
    """LLVM 22 swaps inputs of a masked vpternlog, where one of them is read from memory."""
    kind = vector(i32, lanes)
    module = Module()
    f = module.function("join", [(ptr, n) for n in "xyzm"])
    x, y = (f.load(kind, f.args[i], align=4) for i in order[:2])
    mask = f.icmp("ne", f.load(kind, f.args[3], align=4), f.const(kind, 0))
    low, high = f.const(kind, 0x7FFF_FFFF), f.const(kind, -0x8000_0000)
    if form == "xor":
        joined = f.xor(f.and_(f.xor(x, y), low), y)
    elif form == "copysign":
        floats = vector(f32, lanes)
        pair = [f.bitcast(x, floats), f.bitcast(y, floats)]
        joined = f.bitcast(f.intrinsic("llvm.copysign", floats, pair), kind)
    else:
        joined = f.binary(form, f.and_(low, x), f.and_(high, y))
    f.store(f.select(mask, joined, y), f.args[order[2]], align=4)
    f.ret()
    rng = np.random.default_rng(lanes)
    arrays = [rng.integers(0, 1 << 32, lanes, dtype=np.uint32) for _ in "xyz"]
    arrays.append(rng.integers(0, 2, lanes, dtype=np.uint32))
    before = [array.copy() for array in arrays]
    _, address = load(str(module), "join")
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(address)
    run(*(array.ctypes.data for array in arrays))
    a, b = (before[i] for i in order[:2])
    wanted = (a & 0x7FFF_FFFF) | (b & 0x8000_0000)
    np.testing.assert_array_equal(arrays[order[2]], np.where(before[3] != 0, wanted, b))
