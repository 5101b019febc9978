"""Scalar instructions with a 16-bit constant.

The columns of `op` are the families in which an opcode or name changed; see `describe.encoding.op`.
"""

# ruff: noqa: E501  a row is a line, as long as it is

from __future__ import annotations

from rawgpu.describe.encoding import Instruction, op, row

# fmt: off
TABLE: tuple[Instruction, ...] = (
    #   name                      format  opcode since                                                   operands       meaning
    row("s_movk_i32",             "sopk", op(gfx9=0x00),                                                 "b32 = k16",   "sext(imm, 16)"),
    row("s_cmovk_i32",            "sopk", op(gfx9=0x01, gfx10=0x02),                                     "b32 = k16",   "select(scc, sext(imm, 16), d)"),
    row("s_cmpk_eq_i32",          "sopk", op(gfx9=0x02, gfx10=0x03, gfx12=None),                         "= b32 k16",   "scc = i32(a) == i32(sext(imm, 16))"),
    row("s_cmpk_lg_i32",          "sopk", op(gfx9=0x03, gfx10=0x04, gfx12=None),                         "= b32 k16",   "scc = i32(a) != i32(sext(imm, 16))"),
    row("s_cmpk_gt_i32",          "sopk", op(gfx9=0x04, gfx10=0x05, gfx12=None),                         "= b32 k16",   "scc = i32(a) > i32(sext(imm, 16))"),
    row("s_cmpk_ge_i32",          "sopk", op(gfx9=0x05, gfx10=0x06, gfx12=None),                         "= b32 k16",   "scc = i32(a) >= i32(sext(imm, 16))"),
    row("s_cmpk_lt_i32",          "sopk", op(gfx9=0x06, gfx10=0x07, gfx12=None),                         "= b32 k16",   "scc = i32(a) < i32(sext(imm, 16))"),
    row("s_cmpk_le_i32",          "sopk", op(gfx9=0x07, gfx10=0x08, gfx12=None),                         "= b32 k16",   "scc = i32(a) <= i32(sext(imm, 16))"),
    row("s_cmpk_eq_u32",          "sopk", op(gfx9=0x08, gfx10=0x09, gfx12=None),                         "= b32 uk16",  "scc = u32(a) == u32(imm)"),
    row("s_cmpk_lg_u32",          "sopk", op(gfx9=0x09, gfx10=0x0a, gfx12=None),                         "= b32 uk16",  "scc = u32(a) != u32(imm)"),
    row("s_cmpk_gt_u32",          "sopk", op(gfx9=0x0a, gfx10=0x0b, gfx12=None),                         "= b32 uk16",  "scc = u32(a) > u32(imm)"),
    row("s_cmpk_ge_u32",          "sopk", op(gfx9=0x0b, gfx10=0x0c, gfx12=None),                         "= b32 uk16",  "scc = u32(a) >= u32(imm)"),
    row("s_cmpk_lt_u32",          "sopk", op(gfx9=0x0c, gfx10=0x0d, gfx12=None),                         "= b32 uk16",  "scc = u32(a) < u32(imm)"),
    row("s_cmpk_le_u32",          "sopk", op(gfx9=0x0d, gfx10=0x0e, gfx12=None),                         "= b32 uk16",  "scc = u32(a) <= u32(imm)"),
    row("s_addk_co_i32",          "sopk", op(gfx9="0x0e s_addk_i32", gfx10="0x0f s_addk_i32", gfx12=0x0f), "b32 = k16",   "scc = overflow_add(i32(d), i32(sext(imm, 16))); d = i32(d) + i32(sext(imm, 16))"),
    row("s_mulk_i32",             "sopk", op(gfx9=0x0f, gfx10=0x10),                                     "b32 = k16",   "i32(d) * i32(sext(imm, 16))"),
    row("s_cbranch_i_fork",       "sopk", op(gfx9=0x10, gfx10=None),                                     "= b64 label", ""),
    row("s_getreg_b32",           "sopk", op(gfx9=0x11, gfx10=0x12, gfx11=0x11),                         "b32 = hwreg", "read_hardware(imm)"),
    row("s_setreg_b32",           "sopk", op(gfx9=0x12, gfx10=0x13, gfx11=0x12),                         "= hwreg b32", "write_hardware(imm, a)"),
    row("s_setreg_imm32_b32",     "sopk", op(gfx9=0x14, gfx10=0x15, gfx11=0x13),                         "= hwreg k",   "write_hardware(imm, k)"),
    row("s_call_b64",             "sopk", op(gfx9=0x15, gfx10=0x16, gfx11=0x14),                         "b64 = label", "d = pc; jump(pc + 4 * sext(imm, 16))"),
    row("s_version",              "sopk", op(gfx10=0x01),                                                "himm",        "idle()"),
    row("s_waitcnt_vscnt",        "sopk", op(gfx10=0x17, gfx11=0x18, gfx12=None),                        "= b32 himm",  "wait()"),
    row("s_waitcnt_vmcnt",        "sopk", op(gfx10=0x18, gfx11=0x19, gfx12=None),                        "= b32 himm",  "wait()"),
    row("s_waitcnt_expcnt",       "sopk", op(gfx10=0x19, gfx11=0x1a, gfx12=None),                        "= b32 himm",  "wait()"),
    row("s_waitcnt_lgkmcnt",      "sopk", op(gfx10=0x1a, gfx11=0x1b, gfx12=None),                        "= b32 himm",  "wait()"),
    row("s_subvector_loop_begin", "sopk", op(gfx10=0x1b, gfx11=0x16, gfx12=None),                        "b32 = label", ""),
    row("s_subvector_loop_end",   "sopk", op(gfx10=0x1c, gfx11=0x17, gfx12=None),                        "b32 = label", ""),
)
# fmt: on
