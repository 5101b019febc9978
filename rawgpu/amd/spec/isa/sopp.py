"""Scalar program flow: branches, waits, barriers, messages.

The columns of `op` are the families in which an opcode or name changed; see `describe.encoding.op`.
"""

# ruff: noqa: E501  a row is a line, as long as it is

from __future__ import annotations

from rawgpu.describe.encoding import Instruction, op, row

# fmt: off
TABLE: tuple[Instruction, ...] = (
    #   name                            format  opcode since                                                   operands   meaning
    row("s_nop",                        "sopp", op(gfx9=0x00),                                                 "uimm",    "idle()"),
    row("s_endpgm",                     "sopp", op(gfx9=0x01, gfx11=0x30),                                     "endpgm",  "end()"),
    row("s_branch",                     "sopp", op(gfx9=0x02, gfx11=0x20),                                     "label",   "branch_if(1)"),
    row("s_wakeup",                     "sopp", op(gfx9=0x03, gfx11=0x34),                                     "",        "idle()"),
    row("s_cbranch_scc0",               "sopp", op(gfx9=0x04, gfx11=0x21),                                     "label",   "branch_if(scc == 0)"),
    row("s_cbranch_scc1",               "sopp", op(gfx9=0x05, gfx11=0x22),                                     "label",   "branch_if(scc == 1)"),
    row("s_cbranch_vccz",               "sopp", op(gfx9=0x06, gfx11=0x23),                                     "label",   "branch_if(vccz)"),
    row("s_cbranch_vccnz",              "sopp", op(gfx9=0x07, gfx11=0x24),                                     "label",   "branch_if(vccz == 0)"),
    row("s_cbranch_execz",              "sopp", op(gfx9=0x08, gfx11=0x25),                                     "label",   "branch_if(execz)"),
    row("s_cbranch_execnz",             "sopp", op(gfx9=0x09, gfx11=0x26),                                     "label",   "branch_if(execz == 0)"),
    row("s_barrier",                    "sopp", op(gfx9=0x0a, gfx11=0x3d, gfx12=None),                         "",        "barrier()"),
    row("s_setkill",                    "sopp", op(gfx9=0x0b, gfx11=0x01),                                     "uimm",    "idle()"),
    row("s_waitcnt",                    "sopp", op(gfx9=0x0c, gfx11=0x09),                                     "waitcnt", "wait()"),
    row("s_sethalt",                    "sopp", op(gfx9=0x0d, gfx11=0x02),                                     "uimm",    "halt(imm)"),
    row("s_sleep",                      "sopp", op(gfx9=0x0e, gfx11=0x03),                                     "uimm",    "sleep(imm)"),
    row("s_setprio",                    "sopp", op(gfx9=0x0f, gfx11=0x35),                                     "uimm",    "idle()"),
    row("s_sendmsg",                    "sopp", op(gfx9=0x10, gfx11=0x36),                                     "sendmsg", "r = message(imm)"),
    row("s_sendmsghalt",                "sopp", op(gfx9=0x11, gfx11=0x37),                                     "sendmsg", "r = message(imm); halt(1)"),
    row("s_trap",                       "sopp", op(gfx9=0x12, gfx11=0x10),                                     "uimm",    "trap(imm)"),
    row("s_icache_inv",                 "sopp", op(gfx9=0x13, gfx11=0x3c),                                     "",        "cache_control()"),
    row("s_incperflevel",               "sopp", op(gfx9=0x14, gfx11=0x38),                                     "uimm",    "idle()"),
    row("s_decperflevel",               "sopp", op(gfx9=0x15, gfx11=0x39),                                     "uimm",    "idle()"),
    row("s_ttracedata",                 "sopp", op(gfx9=0x16, gfx11=0x3a),                                     "",        "idle()"),
    row("s_cbranch_cdbgsys",            "sopp", op(gfx9=0x17, gfx11=0x27, gfx12=None),                         "label",   "branch_if(0)"),
    row("s_cbranch_cdbguser",           "sopp", op(gfx9=0x18, gfx11=0x28, gfx12=None),                         "label",   "branch_if(0)"),
    row("s_cbranch_cdbgsys_or_user",    "sopp", op(gfx9=0x19, gfx11=0x29, gfx12=None),                         "label",   "branch_if(0)"),
    row("s_cbranch_cdbgsys_and_user",   "sopp", op(gfx9=0x1a, gfx11=0x2a, gfx12=None),                         "label",   "branch_if(0)"),
    row("s_endpgm_saved",               "sopp", op(gfx9=0x1b, gfx11=0x31),                                     "",        "end()"),
    row("s_set_gpr_idx_off",            "sopp", op(gfx9=0x1c, gfx10=None),                                     "", "index_registers_off()"),
    row("s_set_gpr_idx_mode",           "sopp", op(gfx9=0x1d, gfx10=None),                                     "uimm", "set_index_mode(imm)"),
    row("s_endpgm_ordered_ps_done",     "sopp", op(gfx9=0x1e, gfx11=0x32, gfx12=None),                         "",        ""),
    row("s_code_end",                   "sopp", op(gfx10=0x1f),                                                "",        ""),
    row("s_set_inst_prefetch_distance", "sopp", op(gfx10="0x20 s_inst_prefetch", gfx11=0x04, gfx12=None),      "himm",    "idle()"),
    row("s_clause",                     "sopp", op(gfx10=0x21, gfx11=0x05),                                    "himm",    "idle()"),
    row("s_wait_idle",                  "sopp", op(gfx10=0x22, gfx11=0x0a),                                    "",        "wait()"),
    row("s_wait_alu",                   "sopp", op(gfx10="0x23 s_waitcnt_depctr", gfx11="0x08 s_waitcnt_depctr", gfx12=0x08), "depctr",  "wait()"),
    row("s_round_mode",                 "sopp", op(gfx10=0x24, gfx11=0x11),                                    "himm",    "set_mode(0, imm)"),
    row("s_denorm_mode",                "sopp", op(gfx10=0x25, gfx11=0x12),                                    "uimm",    "set_mode(4, imm)"),
    row("s_ttracedata_imm",             "sopp", op(gfx10=0x28, gfx11=0x3b),                                    "himm",    "idle()"),
    row("s_delay_alu",                  "sopp", op(gfx11=0x07),                                                "delay",   "idle()"),
    row("s_wait_event",                 "sopp", op(gfx11=0x0b),                                                "himm",    "wait()"),
    row("s_singleuse_vdst",             "sopp", op(gfx115=0x13),                                               "himm",    "idle()"),
    row("s_barrier_wait",               "sopp", op(gfx12=0x14),                                                "simm",    "barrier_wait(imm)"),
    row("s_barrier_leave",              "sopp", op(gfx12=0x15),                                                "",        "scc = 0; barrier_leave()"),
    row("s_wait_loadcnt",               "sopp", op(gfx12=0x40),                                                "himm",    "wait()"),
    row("s_wait_storecnt",              "sopp", op(gfx12=0x41),                                                "himm",    "wait()"),
    row("s_wait_samplecnt",             "sopp", op(gfx12=0x42),                                                "himm",    "wait()"),
    row("s_wait_bvhcnt",                "sopp", op(gfx12=0x43),                                                "himm",    "wait()"),
    row("s_wait_expcnt",                "sopp", op(gfx12=0x44),                                                "himm",    "wait()"),
    row("s_wait_dscnt",                 "sopp", op(gfx12=0x46),                                                "himm",    "wait()"),
    row("s_wait_kmcnt",                 "sopp", op(gfx12=0x47),                                                "himm",    "wait()"),
    row("s_wait_loadcnt_dscnt",         "sopp", op(gfx12=0x48),                                                "himm",    "wait()"),
    row("s_wait_storecnt_dscnt",        "sopp", op(gfx12=0x49),                                                "himm",    "wait()"),
    row("s_monitor_sleep",              "sopp", op(gfx1250=0x04),                                              "uimm",    "sleep(imm)"),
    row("s_set_vgpr_msb",               "sopp", op(gfx1250=0x06),                                              "uimm",    ""),
    row("s_setprio_inc_wg",             "sopp", op(gfx1250=0x3e),                                              "himm",    "idle()"),
    row("s_wait_xcnt",                  "sopp", op(gfx1250=0x45),                                              "himm",    "wait()"),
    row("s_wait_asynccnt",              "sopp", op(gfx1250=0x4a),                                              "himm",    "wait()"),
    row("s_wait_tensorcnt",             "sopp", op(gfx1250=0x4b),                                              "himm",    "wait()"),
)
# fmt: on
