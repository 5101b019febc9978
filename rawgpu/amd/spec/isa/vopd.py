"""Dual issue: the two halves of a VOPD instruction. What each does is the VOP row it names.

The columns of `op` are the families in which an opcode or name changed; see `describe.encoding.op`.
"""

# ruff: noqa: E501  a row is a line, as long as it is

from __future__ import annotations

from rawgpu.describe.encoding import Instruction, op, row

# fmt: off
TABLE: tuple[Instruction, ...] = (
    #   name                       format   opcode since                                 operands               meaning
    row("v_dual_fmac_f32",         "vopd",  op(gfx11=0x00),                              "f32 = f32 f32",       "fma(f32(a), f32(b), f32(d))", "x y"),
    row("v_dual_fmaak_f32",        "vopd",  op(gfx11=0x01),                              "f32 = f32 f32 k",     "fma(f32(a), f32(b), f32(k))", "x y"),
    row("v_dual_fmamk_f32",        "vopd",  op(gfx11=0x02),                              "f32 = f32 k f32",     "fma(f32(a), f32(k), f32(b))", "x y"),
    row("v_dual_mul_f32",          "vopd",  op(gfx11=0x03),                              "f32 = f32 f32",       "f32(a) * f32(b)", "x y"),
    row("v_dual_add_f32",          "vopd",  op(gfx11=0x04),                              "f32 = f32 f32",       "f32(a) + f32(b)", "x y"),
    row("v_dual_sub_f32",          "vopd",  op(gfx11=0x05),                              "f32 = f32 f32",       "f32(a) - f32(b)", "x y"),
    row("v_dual_subrev_f32",       "vopd",  op(gfx11=0x06),                              "f32 = f32 f32",       "f32(b) - f32(a)", "x y"),
    row("v_dual_mul_dx9_zero_f32", "vopd",  op(gfx11=0x07),                              "f32 = f32 f32",       "mul_zero(f32(a), f32(b))", "x y"),
    row("v_dual_mov_b32",          "vopd",  op(gfx11=0x08),                              "b32 = b32",           "a", "x y"),
    row("v_dual_cndmask_b32",      "vopd",  op(gfx11=0x09),                              "b32 = f32 f32 vcc",   "select(lane_bit(c), b, a)", "x y"),
    row("v_dual_max_num_f32",      "vopd",  op(gfx11="0x0a v_dual_max_f32", gfx12=0x0a), "f32 = f32 f32",       "max_num(f32(a), f32(b))", "x y"),
    row("v_dual_min_num_f32",      "vopd",  op(gfx11="0x0b v_dual_min_f32", gfx12=0x0b), "f32 = f32 f32",       "min_num(f32(a), f32(b))", "x y"),
    row("v_dual_dot2acc_f32_f16",  "vopd",  op(gfx11=0x0c),                              "f32 = f16x2 f16x2",   "dot(a, b, d, \"f16\")", "x y"),
    row("v_dual_dot2acc_f32_bf16", "vopd",  op(gfx11=0x0d),                              "f32 = bf16x2 bf16x2", "dot(a, b, d, \"bf16\")", "x y"),
    row("v_dual_add_nc_u32",       "vopd",  op(gfx11=0x10),                              "u32 = u32 u32",       "add(u32(a), u32(b))", "y"),
    row("v_dual_lshlrev_b32",      "vopd",  op(gfx11=0x11),                              "u32 = u32 u32",       "u32(b) << (a & 31)", "y"),
    row("v_dual_and_b32",          "vopd",  op(gfx11=0x12),                              "u32 = u32 u32",       "u32(a) & u32(b)", "y"),
    row("v_dual_sub_nc_u32",       "vopd",  op(gfx1250=0x14),                            "u32 = u32 u32",       "sub(u32(a), u32(b))", "y"),
    row("v_dual_lshrrev_b32",      "vopd",  op(gfx1250=0x15),                            "u32 = u32 u32",       "u32(b) >> (a & 31)", "y"),
    row("v_dual_ashrrev_i32",      "vopd",  op(gfx1250=0x16),                            "i32 = u32 i32",       "i32(b) >> (a & 31)", "y"),
    row("v_dual_max_i32",          "vopd",  op(gfx1250=0x17),                            "i32 = i32 i32",       "maximum(i32(a), i32(b))", "y"),
    row("v_dual_min_i32",          "vopd",  op(gfx1250=0x18),                            "i32 = i32 i32",       "minimum(i32(a), i32(b))", "y"),
    row("v_dual_fmac_f32",         "vopd3", op(gfx1250=0x00),                            "f32 = f32 f32",       "fma(f32(a), f32(b), f32(d))", "x y"),
    row("v_dual_mul_f32",          "vopd3", op(gfx1250=0x03),                            "f32 = f32 f32",       "f32(a) * f32(b)", "x y"),
    row("v_dual_add_f32",          "vopd3", op(gfx1250=0x04),                            "f32 = f32 f32",       "f32(a) + f32(b)", "x y"),
    row("v_dual_sub_f32",          "vopd3", op(gfx1250=0x05),                            "f32 = f32 f32",       "f32(a) - f32(b)", "x y"),
    row("v_dual_subrev_f32",       "vopd3", op(gfx1250=0x06),                            "f32 = f32 f32",       "f32(b) - f32(a)", "x y"),
    row("v_dual_mul_dx9_zero_f32", "vopd3", op(gfx1250=0x07),                            "f32 = f32 f32",       "mul_zero(f32(a), f32(b))", "x y"),
    row("v_dual_mov_b32",          "vopd3", op(gfx1250=0x08),                            "b32 = b32",           "a", "x y"),
    row("v_dual_cndmask_b32",      "vopd3", op(gfx1250=0x09),                            "b32 = f32 f32 vcc",   "select(lane_bit(c), b, a)", "x y"),
    row("v_dual_max_num_f32",      "vopd3", op(gfx1250=0x0a),                            "f32 = f32 f32",       "max_num(f32(a), f32(b))", "x y"),
    row("v_dual_min_num_f32",      "vopd3", op(gfx1250=0x0b),                            "f32 = f32 f32",       "min_num(f32(a), f32(b))", "x y"),
    row("v_dual_add_nc_u32",       "vopd3", op(gfx1250=0x10),                            "u32 = u32 u32",       "add(u32(a), u32(b))", "x y"),
    row("v_dual_lshlrev_b32",      "vopd3", op(gfx1250=0x11),                            "u32 = u32 u32",       "u32(b) << (a & 31)", "x y"),
    row("v_dual_bitop2_b32",       "vopd3", op(gfx1250=0x12),                            "b32 = b32 b32",       "truth_table(a, b, 0)", "y"),
    row("v_dual_fma_f32",          "vopd3", op(gfx1250=0x13),                            "f32 = f32 f32 f32",   "fma(f32(a), f32(b), f32(c))", "x y"),
    row("v_dual_sub_nc_u32",       "vopd3", op(gfx1250=0x14),                            "u32 = u32 u32",       "sub(u32(a), u32(b))", "x y"),
    row("v_dual_lshrrev_b32",      "vopd3", op(gfx1250=0x15),                            "u32 = u32 u32",       "u32(b) >> (a & 31)", "x y"),
    row("v_dual_ashrrev_i32",      "vopd3", op(gfx1250=0x16),                            "i32 = u32 i32",       "i32(b) >> (a & 31)", "x y"),
    row("v_dual_max_i32",          "vopd3", op(gfx1250=0x17),                            "i32 = i32 i32",       "maximum(i32(a), i32(b))", "y"),
    row("v_dual_min_i32",          "vopd3", op(gfx1250=0x18),                            "i32 = i32 i32",       "minimum(i32(a), i32(b))", "y"),
    row("v_dual_fma_f64",          "vopd3", op(gfx1250=0x20),                            "f64 = f64 f64 f64",   "fma(f64(a), f64(b), f64(c))", "x"),
    row("v_dual_add_f64",          "vopd3", op(gfx1250=0x21),                            "f64 = f64 f64",       "f64(a) + f64(b)", "x"),
    row("v_dual_mul_f64",          "vopd3", op(gfx1250=0x22),                            "f64 = f64 f64",       "f64(a) * f64(b)", "x"),
    row("v_dual_max_num_f64",      "vopd3", op(gfx1250=0x23),                            "f64 = f64 f64",       "max_num(f64(a), f64(b))", "x"),
    row("v_dual_min_num_f64",      "vopd3", op(gfx1250=0x24),                            "f64 = f64 f64",       "min_num(f64(a), f64(b))", "x"),
)
# fmt: on
