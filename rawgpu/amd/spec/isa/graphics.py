"""Interpolation, parameter loads and exports: decoded, not modelled (they raise by name).

The columns of `op` are the families in which an opcode or name changed; see `describe.encoding.op`.
"""

# ruff: noqa: E501  a row is a line, as long as it is

from __future__ import annotations

from rawgpu.describe.encoding import Instruction, op, row

# fmt: off
TABLE: tuple[Instruction, ...] = (
    #   name                        format     opcode since                            operands             meaning
    row("v_interp_p10_f32",         "vinterp", op(gfx11=0x00, gfx1250=None),           "f32 = f32 f32 f32", ""),
    row("v_interp_p2_f32",          "vinterp", op(gfx11=0x01, gfx1250=None),           "f32 = f32 f32 f32", ""),
    row("v_interp_p10_f16_f32",     "vinterp", op(gfx11=0x02, gfx1250=None),           "f32 = f16 f32 f16", ""),
    row("v_interp_p2_f16_f32",      "vinterp", op(gfx11=0x03, gfx1250=None),           "f16 = f16 f32 f32", ""),
    row("v_interp_p10_rtz_f16_f32", "vinterp", op(gfx11=0x04, gfx1250=None),           "f32 = f16 f32 f16", ""),
    row("v_interp_p2_rtz_f16_f32",  "vinterp", op(gfx11=0x05, gfx1250=None),           "f16 = f16 f32 f32", ""),
    row("lds_param_load",           "ldsdir",  op(gfx11=0x00, gfx12=None),             "b32 =",             ""),
    row("lds_direct_load",          "ldsdir",  op(gfx11=0x01, gfx12=None),             "b32 =",             ""),
    row("ds_param_load",            "ldsdir",  op(gfx12=0x00, gfx1250=None),           "b32 =",             ""),
    row("ds_direct_load",           "ldsdir",  op(gfx12=0x01, gfx1250=None),           "b32 =",             ""),
    row("exp",                      "exp",     op(gfx9=0x00, gfx90a=None, gfx12=None), "= b32 b32 b32 b32", ""),
    row("export",                   "exp",     op(gfx12=0x00, gfx1250=None),           "= b32 b32 b32 b32", ""),
)
# fmt: on
