"""Scalar compares: they set SCC.

The columns of `op` are the families in which an opcode or name changed; see `describe.encoding.op`.
"""

# ruff: noqa: E501  a row is a line, as long as it is

from __future__ import annotations

from rawgpu.describe.encoding import Instruction, op, row

# fmt: off
TABLE: tuple[Instruction, ...] = (
    #   name                format  opcode since               operands     meaning
    row("s_cmp_eq_i32",     "sopc", op(gfx9=0x00),             "= i32 i32", "scc = i32(a) == i32(b)"),
    row("s_cmp_lg_i32",     "sopc", op(gfx9=0x01),             "= i32 i32", "scc = i32(a) != i32(b)"),
    row("s_cmp_gt_i32",     "sopc", op(gfx9=0x02),             "= i32 i32", "scc = i32(a) > i32(b)"),
    row("s_cmp_ge_i32",     "sopc", op(gfx9=0x03),             "= i32 i32", "scc = i32(a) >= i32(b)"),
    row("s_cmp_lt_i32",     "sopc", op(gfx9=0x04),             "= i32 i32", "scc = i32(a) < i32(b)"),
    row("s_cmp_le_i32",     "sopc", op(gfx9=0x05),             "= i32 i32", "scc = i32(a) <= i32(b)"),
    row("s_cmp_eq_u32",     "sopc", op(gfx9=0x06),             "= u32 u32", "scc = u32(a) == u32(b)"),
    row("s_cmp_lg_u32",     "sopc", op(gfx9=0x07),             "= u32 u32", "scc = u32(a) != u32(b)"),
    row("s_cmp_gt_u32",     "sopc", op(gfx9=0x08),             "= u32 u32", "scc = u32(a) > u32(b)"),
    row("s_cmp_ge_u32",     "sopc", op(gfx9=0x09),             "= u32 u32", "scc = u32(a) >= u32(b)"),
    row("s_cmp_lt_u32",     "sopc", op(gfx9=0x0a),             "= u32 u32", "scc = u32(a) < u32(b)"),
    row("s_cmp_le_u32",     "sopc", op(gfx9=0x0b),             "= u32 u32", "scc = u32(a) <= u32(b)"),
    row("s_bitcmp0_b32",    "sopc", op(gfx9=0x0c),             "= u32 u32", "scc = bit(u32(a), b & 31) == 0"),
    row("s_bitcmp1_b32",    "sopc", op(gfx9=0x0d),             "= u32 u32", "scc = bit(u32(a), b & 31) == 1"),
    row("s_bitcmp0_b64",    "sopc", op(gfx9=0x0e),             "= u64 u32", "scc = bit(u64(a), b & 63) == 0"),
    row("s_bitcmp1_b64",    "sopc", op(gfx9=0x0f),             "= u64 u32", "scc = bit(u64(a), b & 63) == 1"),
    row("s_setvskip",       "sopc", op(gfx9=0x10, gfx10=None), "= u32 u32", ""),
    row("s_set_gpr_idx_on", "sopc", op(gfx9=0x11, gfx10=None), "= b32 b32", "index_registers(a, imm)"),
    row("s_cmp_eq_u64",     "sopc", op(gfx9=0x12, gfx11=0x10), "= u64 u64", "scc = u64(a) == u64(b)"),
    row("s_cmp_lg_u64",     "sopc", op(gfx9=0x13, gfx11=0x11), "= u64 u64", "scc = u64(a) != u64(b)"),
    row("s_cmp_lt_f32",     "sopc", op(gfx115=0x41),           "= f32 f32", "scc = f32(a) < f32(b)"),
    row("s_cmp_eq_f32",     "sopc", op(gfx115=0x42),           "= f32 f32", "scc = f32(a) == f32(b)"),
    row("s_cmp_le_f32",     "sopc", op(gfx115=0x43),           "= f32 f32", "scc = f32(a) <= f32(b)"),
    row("s_cmp_gt_f32",     "sopc", op(gfx115=0x44),           "= f32 f32", "scc = f32(a) > f32(b)"),
    row("s_cmp_lg_f32",     "sopc", op(gfx115=0x45),           "= f32 f32", "scc = (f32(a) < f32(b)) | (f32(a) > f32(b))"),
    row("s_cmp_ge_f32",     "sopc", op(gfx115=0x46),           "= f32 f32", "scc = f32(a) >= f32(b)"),
    row("s_cmp_o_f32",      "sopc", op(gfx115=0x47),           "= f32 f32", "scc = ordered(f32(a), f32(b))"),
    row("s_cmp_u_f32",      "sopc", op(gfx115=0x48),           "= f32 f32", "scc = unordered(f32(a), f32(b))"),
    row("s_cmp_nge_f32",    "sopc", op(gfx115=0x49),           "= f32 f32", "scc = (f32(a) < f32(b)) | unordered(f32(a), f32(b))"),
    row("s_cmp_nlg_f32",    "sopc", op(gfx115=0x4a),           "= f32 f32", "scc = (f32(a) == f32(b)) | unordered(f32(a), f32(b))"),
    row("s_cmp_ngt_f32",    "sopc", op(gfx115=0x4b),           "= f32 f32", "scc = (f32(a) <= f32(b)) | unordered(f32(a), f32(b))"),
    row("s_cmp_nle_f32",    "sopc", op(gfx115=0x4c),           "= f32 f32", "scc = (f32(a) > f32(b)) | unordered(f32(a), f32(b))"),
    row("s_cmp_neq_f32",    "sopc", op(gfx115=0x4d),           "= f32 f32", "scc = f32(a) != f32(b)"),
    row("s_cmp_nlt_f32",    "sopc", op(gfx115=0x4e),           "= f32 f32", "scc = (f32(a) >= f32(b)) | unordered(f32(a), f32(b))"),
    row("s_cmp_lt_f16",     "sopc", op(gfx115=0x51),           "= f16 f16", "scc = f16(a) < f16(b)"),
    row("s_cmp_eq_f16",     "sopc", op(gfx115=0x52),           "= f16 f16", "scc = f16(a) == f16(b)"),
    row("s_cmp_le_f16",     "sopc", op(gfx115=0x53),           "= f16 f16", "scc = f16(a) <= f16(b)"),
    row("s_cmp_gt_f16",     "sopc", op(gfx115=0x54),           "= f16 f16", "scc = f16(a) > f16(b)"),
    row("s_cmp_lg_f16",     "sopc", op(gfx115=0x55),           "= f16 f16", "scc = (f16(a) < f16(b)) | (f16(a) > f16(b))"),
    row("s_cmp_ge_f16",     "sopc", op(gfx115=0x56),           "= f16 f16", "scc = f16(a) >= f16(b)"),
    row("s_cmp_o_f16",      "sopc", op(gfx115=0x57),           "= f16 f16", "scc = ordered(f16(a), f16(b))"),
    row("s_cmp_u_f16",      "sopc", op(gfx115=0x58),           "= f16 f16", "scc = unordered(f16(a), f16(b))"),
    row("s_cmp_nge_f16",    "sopc", op(gfx115=0x59),           "= f16 f16", "scc = (f16(a) < f16(b)) | unordered(f16(a), f16(b))"),
    row("s_cmp_nlg_f16",    "sopc", op(gfx115=0x5a),           "= f16 f16", "scc = (f16(a) == f16(b)) | unordered(f16(a), f16(b))"),
    row("s_cmp_ngt_f16",    "sopc", op(gfx115=0x5b),           "= f16 f16", "scc = (f16(a) <= f16(b)) | unordered(f16(a), f16(b))"),
    row("s_cmp_nle_f16",    "sopc", op(gfx115=0x5c),           "= f16 f16", "scc = (f16(a) > f16(b)) | unordered(f16(a), f16(b))"),
    row("s_cmp_neq_f16",    "sopc", op(gfx115=0x5d),           "= f16 f16", "scc = f16(a) != f16(b)"),
    row("s_cmp_nlt_f16",    "sopc", op(gfx115=0x5e),           "= f16 f16", "scc = (f16(a) >= f16(b)) | unordered(f16(a), f16(b))"),
)
# fmt: on
