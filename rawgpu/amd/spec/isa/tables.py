"""All rows of the instruction set, every family: `ROWS`."""

from __future__ import annotations

from rawgpu.amd.spec.isa import (
    buffer,
    ds,
    flat,
    formats,
    graphics,
    mfma,
    smem,
    sop1,
    sop2,
    sopc,
    sopk,
    sopp,
    vop1,
    vop2,
    vop3,
    vop3p,
    vopc,
    vopd,
)
from rawgpu.describe import evidence
from rawgpu.describe.encoding import Instruction

ROWS: tuple[Instruction, ...] = (
    *sop1.TABLE,
    *sop2.TABLE,
    *sopc.TABLE,
    *sopk.TABLE,
    *sopp.TABLE,
    *smem.TABLE,
    *vop1.TABLE,
    *vop2.TABLE,
    *vopc.TABLE,
    *vop3.TABLE,
    *vop3p.TABLE,
    *mfma.TABLE,
    *vopd.TABLE,
    *ds.TABLE,
    *flat.TABLE,
    *buffer.TABLE,
    *graphics.TABLE,
)

SOURCE = "AMD's machine-readable ISA documents; LLVM 22.1 AMDGPU"
WITNESS = "foreign encoder: LLVM's own encoding tests of this family (tests/data/isa)"

for _family in formats.LINEAGE:
    evidence.enter("isa", _family, __name__, SOURCE, WITNESS)
