"""The bit pictures of AMD's instruction formats, and where each stands in every family.

`FORMATS[name]` are pictures keyed by the family that introduced them; a family without its own
takes its parent's (`LINEAGE`). `EXTENSIONS` are the dwords that may follow: a literal, lane
permutes (DPP) and sub-dword access (SDWA).

Sources: AMD's RDNA 3.5, RDNA 4 and CDNA 4 machine-readable ISA (MIT licence), read through the
tables of tinygrad 0.14 (MIT licence); RDNA 2, gfx90a and gfx1250 from the encoding tests of LLVM 22
(Apache-2.0 WITH LLVM-exception).
"""

# ruff: noqa: E501  a picture is a line

from __future__ import annotations

from collections.abc import Mapping

from rawgpu.describe.encoding import Encoding

LINEAGE: Mapping[str, tuple[str, ...]] = {
    "gfx9": ("gfx9",),
    "gfx90a": ("gfx90a", "gfx9"),
    "gfx942": ("gfx942", "gfx90a", "gfx9"),
    "gfx950": ("gfx950", "gfx942", "gfx90a", "gfx9"),
    "gfx10": ("gfx10", "gfx9"),
    "gfx11": ("gfx11", "gfx10", "gfx9"),
    "gfx115": ("gfx115", "gfx11", "gfx10", "gfx9"),
    "gfx12": ("gfx12", "gfx115", "gfx11", "gfx10", "gfx9"),
    "gfx1250": ("gfx1250", "gfx12", "gfx115", "gfx11", "gfx10", "gfx9"),
}
"""Every family and its ancestors, nearest first: what a row's opcode column is looked up by."""

_VOP3_TAIL = "neg:3 omod:2 src2:9 src1:9 src0:9"
_VOP3P_TAIL = "neg:3 op_sel_hi[1:0] src2:9 src1:9 src0:9"
_VOP3P_HEAD = "op:7 clamp op_sel_hi[2] op_sel:3 neg_hi:3 vdst:8"

# fmt: off
FORMATS: Mapping[str, Mapping[str, Encoding]] = {
    "sop2": {"gfx9": Encoding("10 op:7 sdst:7 ssrc1:8 ssrc0:8")},
    "sop1": {"gfx9": Encoding("101111101 sdst:7 op:8 ssrc0:8")},
    "sopc": {"gfx9": Encoding("101111110 op:7 ssrc1:8 ssrc0:8")},
    "sopk": {"gfx9": Encoding("1011 op:5 sdst:7 simm16:16")},
    "sopp": {"gfx9": Encoding("101111111 op:7 simm16:16")},
    "vop2": {"gfx9": Encoding("0 op:6 vdst:8 vsrc1:8 src0:9")},
    "vop1": {"gfx9": Encoding("0111111 vdst:8 op:8 src0:9")},
    "vopc": {"gfx9": Encoding("0111110 op:8 vsrc1:8 src0:9")},
    "vop3": {
        "gfx9":  Encoding(f"110100 op:10 clamp op_sel:4 abs:3 vdst:8 | {_VOP3_TAIL}"),
        "gfx10": Encoding(f"110101 op:10 clamp op_sel:4 abs:3 vdst:8 | {_VOP3_TAIL}"),
    },
    "vop3sd": {
        "gfx9":  Encoding(f"110100 op:10 clamp sdst:7 vdst:8 | {_VOP3_TAIL}"),
        "gfx10": Encoding(f"110101 op:10 clamp sdst:7 vdst:8 | {_VOP3_TAIL}"),
    },
    "vop3p": {
        "gfx9":  Encoding(f"110100111 {_VOP3P_HEAD} | {_VOP3P_TAIL}"),
        "gfx10": Encoding(f"110011000 {_VOP3P_HEAD} | {_VOP3P_TAIL}"),
    },
    "mfma": {
        "gfx90a":  Encoding("110100111 op:7 acc_cd abid:4 cbsz:3 vdst:8 | blgp:3 acc:2 src2:9 src1:9 src0:9"),
    },
    "mfma_scale": {
        "gfx950": Encoding(
            "1101001110101100 - op_sel_hi[2] op_sel:3 -:11 |"
            " -:3 op_sel_hi[1:0] -:9 scale1:9 scale0:9 |"
            " 110100111 op:7 acc_cd abid:4 cbsz:3 vdst:8 | blgp:3 acc:2 src2:9 src1:9 src0:9"
        ),
    },
    "vopd": {
        "gfx11": Encoding("110010 opx:4 opy:5 vsrcx1:8 srcx0:9 | vdstx:8 vdsty:7 vsrcy1:8 srcy0:9"),
    },
    "vopd3": {
        "gfx1250": Encoding("11001111 opx:6 opy:6 -:3 srcx0:9 | vsrcx2:8 vsrcx1:8 - negy:3 negx:3 srcy0:9 | vdsty:8 vsrcy2:8 vsrcy1:8 vdstx:8"),
    },
    "vinterp": {
        "gfx11": Encoding("11001101 - op:7 clamp op_sel:4 wait_exp:3 vdst:8 | neg:3 -:2 src2:9 src1:9 src0:9"),
    },
    "ldsdir": {
        "gfx11": Encoding("11001110 -:2 op:2 wait_vdst:4 attr:6 attr_chan:2 vdst:8"),
        "gfx12": Encoding("11001110 wait_vm_vsrc - op:2 wait_va_vdst:4 attr:6 attr_chan:2 vdst:8"),
    },
    "smem": {
        "gfx9":  Encoding("110000 op:8 imm glc nv soffset_en - sdata:7 sbase:6 | soffset:7 -:4 offset:21"),
        "gfx10": Encoding("111101 op:8 - glc - dlc - sdata:7 sbase:6 | soffset:7 -:4 offset:21"),
        "gfx11": Encoding("111101 op:8 -:3 glc dlc sdata:7 sbase:6 | soffset:7 -:4 offset:21"),
        "gfx12": Encoding("111101 - th:2 scope:2 nv - op:6 sdata:7 sbase:6 | soffset:7 - offset:24"),
        "gfx1250": Encoding("111101 - th:2 scope:2 nv - op:6 sdata:7 sbase:6 | soffset:7 scale_offset offset:24"),
    },
    "ds": {
        "gfx9":   Encoding("110110 - op:8 gds offset1:8 offset0:8 | vdst:8 data1:8 data0:8 addr:8"),
        "gfx90a": Encoding("110110 acc op:8 gds offset1:8 offset0:8 | vdst:8 data1:8 data0:8 addr:8"),
        "gfx10":  Encoding("110110 op:8 gds - offset1:8 offset0:8 | vdst:8 data1:8 data0:8 addr:8"),
        "gfx12":  Encoding("110110 op:8 -:2 offset1:8 offset0:8 | vdst:8 data1:8 data0:8 addr:8"),
    },
    "flat": {
        "gfx9":   Encoding("110111 - op:7 slc glc 00 lds offset:13 | vdst:8 nv saddr:7 data:8 addr:8"),
        "gfx90a": Encoding("110111 scc op:7 slc glc 00 lds offset:13 | vdst:8 acc saddr:7 data:8 addr:8"),
        "gfx942": Encoding("110111 sc1 op:7 nt sc0 00 sve offset:13 | vdst:8 acc saddr:7 data:8 addr:8"),
        "gfx10":  Encoding("110111 - op:7 slc glc 00 lds dlc offset:12 | vdst:8 - saddr:7 data:8 addr:8"),
        "gfx11":  Encoding("110111 - op:7 00 slc glc dlc offset:13 | vdst:8 sve saddr:7 data:8 addr:8"),
        "gfx12":  Encoding("11101100 -:2 op:8 -:6 nv saddr:7 | - data:8 th:3 scope:2 sve -:9 vdst:8 | offset:24 addr:8"),
        "gfx1250": Encoding("11101100 -:2 op:8 -:6 nv saddr:7 | - data:8 th:3 scope:2 sve scale_offset -:8 vdst:8 | offset:24 addr:8"),
    },
    "scratch": {
        "gfx9":   Encoding("110111 - op:7 slc glc 01 lds offset:13 | vdst:8 nv saddr:7 data:8 addr:8"),
        "gfx90a": Encoding("110111 scc op:7 slc glc 01 lds offset:13 | vdst:8 acc saddr:7 data:8 addr:8"),
        "gfx942": Encoding("110111 sc1 op:7 nt sc0 01 sve offset:13 | vdst:8 acc saddr:7 data:8 addr:8"),
        "gfx10":  Encoding("110111 - op:7 slc glc 01 lds dlc offset:12 | vdst:8 - saddr:7 data:8 addr:8"),
        "gfx11":  Encoding("110111 - op:7 01 slc glc dlc offset:13 | vdst:8 sve saddr:7 data:8 addr:8"),
        "gfx12":  Encoding("11101101 -:2 op:8 -:6 nv saddr:7 | - data:8 th:3 scope:2 sve -:9 vdst:8 | offset:24 addr:8"),
        "gfx1250": Encoding("11101101 -:2 op:8 -:6 nv saddr:7 | - data:8 th:3 scope:2 sve scale_offset -:8 vdst:8 | offset:24 addr:8"),
    },
    "global": {
        "gfx9":   Encoding("110111 - op:7 slc glc 10 lds offset:13 | vdst:8 nv saddr:7 data:8 addr:8"),
        "gfx90a": Encoding("110111 scc op:7 slc glc 10 lds offset:13 | vdst:8 acc saddr:7 data:8 addr:8"),
        "gfx942": Encoding("110111 sc1 op:7 nt sc0 10 sve offset:13 | vdst:8 acc saddr:7 data:8 addr:8"),
        "gfx10":  Encoding("110111 - op:7 slc glc 10 lds dlc offset:12 | vdst:8 - saddr:7 data:8 addr:8"),
        "gfx11":  Encoding("110111 - op:7 10 slc glc dlc offset:13 | vdst:8 sve saddr:7 data:8 addr:8"),
        "gfx12":  Encoding("11101110 -:2 op:8 -:6 nv saddr:7 | - data:8 th:3 scope:2 sve -:9 vdst:8 | offset:24 addr:8"),
        "gfx1250": Encoding("11101110 -:2 op:8 -:6 nv saddr:7 | - data:8 th:3 scope:2 sve scale_offset -:8 vdst:8 | offset:24 addr:8"),
    },
    "mubuf": {
        "gfx9":   Encoding("111000 - op:7 slc lds - glc idxen offen offset:12 | soffset:8 tfe -:2 srsrc:5 vdata:8 vaddr:8"),
        "gfx90a": Encoding("111000 - op:7 slc lds scc glc idxen offen offset:12 | soffset:8 acc -:2 srsrc:5 vdata:8 vaddr:8"),
        "gfx942": Encoding("111000 - op:7 nt lds sc1 sc0 idxen offen offset:12 | soffset:8 acc -:2 srsrc:5 vdata:8 vaddr:8"),
        "gfx10":  Encoding("111000 op[7] op[6:0] - lds dlc glc idxen offen offset:12 | soffset:8 tfe slc - srsrc:5 vdata:8 vaddr:8"),
        "gfx11":  Encoding("111000 op:8 -:3 glc dlc slc offset:12 | soffset:8 idxen offen tfe srsrc:5 vdata:8 vaddr:8"),
        "gfx12":  Encoding("110001 -:3 tfe op:8 -:6 nv soffset:7 | idxen offen format:7 th:3 scope:2 rsrc:9 - vdata:8 | offset:24 vaddr:8"),
    },
    "mtbuf": {
        "gfx9":   Encoding("111010 nfmt:3 dfmt:4 op:4 glc idxen offen offset:12 | soffset:8 tfe slc - srsrc:5 vdata:8 vaddr:8"),
        "gfx90a": Encoding("111010 nfmt:3 dfmt:4 op:4 glc idxen offen offset:12 | soffset:8 acc slc scc srsrc:5 vdata:8 vaddr:8"),
        "gfx942": Encoding("111010 nfmt:3 dfmt:4 op:4 sc0 idxen offen offset:12 | soffset:8 acc nt sc1 srsrc:5 vdata:8 vaddr:8"),
        "gfx10":  Encoding("111010 format:7 op[2:0] dlc glc idxen offen offset:12 | soffset:8 tfe slc op[3] srsrc:5 vdata:8 vaddr:8"),
        "gfx11":  Encoding("111010 format:7 op:4 glc dlc slc offset:12 | soffset:8 idxen offen tfe srsrc:5 vdata:8 vaddr:8"),
        "gfx12":  Encoding("110001 -:3 tfe op:8 -:6 nv soffset:7 | idxen offen format:7 th:3 scope:2 rsrc:9 - vdata:8 | offset:24 vaddr:8"),
    },
    "exp": {
        "gfx9":  Encoding("110001 -:13 vm done compr target:6 en:4 | vsrc3:8 vsrc2:8 vsrc1:8 vsrc0:8"),
        "gfx10": Encoding("111110 -:13 vm done compr target:6 en:4 | vsrc3:8 vsrc2:8 vsrc1:8 vsrc0:8"),
        "gfx11": Encoding("111110 -:12 row - done - target:6 en:4 | vsrc3:8 vsrc2:8 vsrc1:8 vsrc0:8"),
    },
}

EXTENSIONS: Mapping[str, Mapping[str, str]] = {
    "literal": {"gfx9": "literal:32"},
    "dpp": {
        "gfx9":  "row_mask:4 bank_mask:4 src1_abs src1_neg src0_abs src0_neg bound_ctrl -:2 dpp_ctrl:9 dpp_src0:8",
        "gfx10": "row_mask:4 bank_mask:4 src1_abs src1_neg src0_abs src0_neg bound_ctrl fi - dpp_ctrl:9 dpp_src0:8",
    },
    "dpp8": {"gfx10": "dpp_lanes:24 dpp_src0:8"},
    "sdwa": {
        "gfx9": "s1 - src1_abs src1_neg src1_sext src1_sel:3 s0 - src0_abs src0_neg src0_sext src0_sel:3"
                " omod:2 clamp dst_unused:2 dst_sel:3 sdwa_src0:8",
    },
    "sdwa_compare": {
        "gfx9": "s1 - src1_abs src1_neg src1_sext src1_sel:3 s0 - src0_abs src0_neg src0_sext src0_sel:3"
                " sd sdst:7 sdwa_src0:8",
    },
}
# fmt: on


def picture(name: str, lineage: tuple[str, ...]) -> Encoding | None:
    """The picture of format `name` in a family; None where the family has no such format."""
    columns = FORMATS[name]
    return next((columns[g] for g in lineage if g in columns), None)


def extension(name: str, lineage: tuple[str, ...]) -> str | None:
    """The picture of the dwords that extension `name` adds; None where there is none."""
    columns = EXTENSIONS[name]
    return next((columns[g] for g in lineage if g in columns), None)
