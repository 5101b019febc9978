"""What a wave is on each AMD GPU: rows that state differences, for whoever runs or reads code.

`GENERATIONS` maps the compiler's name of a GPU to its row; `row.family` names its instruction set
in `isa`. What a driver must know of the same GPU is in `hardware.py`.

Sources: LLVM 22's AMDGPUUsage and subtarget features; AMD's ISA documents of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rawgpu.describe.generation import Generation

SOURCE = "LLVM 22.1 AMDGPUUsage and AMDGPU subtarget features"
ENCODER = "foreign encoder: LLVM 22.1 assembles and disassembles this family"


class Trait(Enum):
    """What some machines do and others do not."""

    TRUE16 = "16-bit operands of short vector instructions name either half of a register"
    KEEPS_UPPER_HALF = "a 16-bit result leaves the other half of its register alone"
    PACKED_WORK_ITEM = "v0 holds the three work-item numbers, 10 bits each"
    GROUP_IN_TRAP_REGISTERS = "work-group numbers are in ttmp7 and ttmp9, not in user SGPRs"
    MODE_IEEE = "MODE has IEEE and DX10_CLAMP bits"
    SPLIT_BARRIER = "barriers are signalled and waited for apart"
    SPLIT_WAIT = "each kind of memory access has a counter and a wait instruction of its own"
    STORE_COUNTER = "stores have a counter of their own"
    DUAL_ISSUE = "two vector instructions in one word (VOPD)"
    MFMA = "matrix multiplies with accumulation registers"
    WMMA = "matrix multiplies on ordinary registers"
    WMMA_DUPLICATED = "WMMA wants A and B in both halves of the lanes"
    DOT = "dot products of packed small integers and halves"
    SCALAR_FLOAT = "scalar instructions on floats"
    EVEN_TUPLES = "tuples of vector registers begin at an even number"
    FP8 = "8-bit floats"
    SCALED_FLOATS = "matrix multiplies of 4, 6 and 8 bits with shared scales"
    SCALE_OFFSET = "memory offsets may be scaled by the size of the access"
    NAMED_REGISTER_BANKS = "S_SET_VGPR_MSB reaches registers above v255"


class Fp8(Enum):
    """Which 8-bit floats a machine has."""

    NONE = "none"
    FNUZ = "no infinities, no negative zero, one NaN; biases 8 and 16"
    OCP = "as the Open Compute Project has them; biases 7 and 15"


@dataclass(frozen=True, kw_only=True)
class Machine(Generation):
    """One GPU, as its waves see it. `name` is the compiler's."""

    family: str
    """The key of its instruction set: `isa.decoder.decoder_for(row.family, wave)`."""
    waves: tuple[int, ...]
    """Lanes a wave may have; the first is what compilers take."""
    vgprs: int = 256
    accumulators: int = 0
    """Accumulation registers, beside the others in one file."""
    vgpr_granule: Mapping[int, int]
    """Registers are given in this unit, by wave size."""
    vgpr_file: Mapping[int, int]
    """Registers of a SIMD, a lane, by wave size."""
    sgprs: int
    fp8: Fp8 = Fp8.NONE
    traits: frozenset[Trait] = frozenset()


GFX90A = Machine(
    name="gfx90a",
    source=SOURCE,
    evidence=ENCODER,
    family="gfx90a",
    waves=(64,),
    accumulators=256,
    vgpr_granule={64: 8},
    vgpr_file={64: 512},
    sgprs=102,
    traits=frozenset(
        {Trait.PACKED_WORK_ITEM, Trait.MODE_IEEE, Trait.MFMA, Trait.DOT, Trait.EVEN_TUPLES}
    ),
)
GFX942 = GFX90A.evolve(
    "gfx942",
    source=SOURCE,
    evidence=ENCODER,
    family="gfx942",
    fp8=Fp8.FNUZ,
    put={"traits": [Trait.FP8]},
)
GFX950 = GFX942.evolve(
    "gfx950",
    source=SOURCE,
    evidence=ENCODER,
    family="gfx950",
    fp8=Fp8.OCP,
    put={"traits": [Trait.SCALED_FLOATS]},
)
GFX1030 = Machine(
    name="gfx1030",
    source=SOURCE,
    evidence=ENCODER,
    family="gfx10",
    waves=(32, 64),
    vgpr_granule={32: 16, 64: 8},
    vgpr_file={32: 1024, 64: 512},
    sgprs=106,
    traits=frozenset({Trait.KEEPS_UPPER_HALF, Trait.MODE_IEEE, Trait.STORE_COUNTER, Trait.DOT}),
)
GFX1100 = GFX1030.evolve(
    "gfx1100",
    source=SOURCE,
    evidence=ENCODER,
    family="gfx11",
    vgpr_granule={32: 24, 64: 12},
    vgpr_file={32: 1536, 64: 768},
    put={
        "traits": [
            Trait.TRUE16,
            Trait.PACKED_WORK_ITEM,
            Trait.DUAL_ISSUE,
            Trait.WMMA,
            Trait.WMMA_DUPLICATED,
        ]
    },
)
GFX1101 = GFX1100.evolve("gfx1101", source=SOURCE, evidence=ENCODER)
GFX1102 = GFX1100.evolve(
    "gfx1102",
    source=SOURCE,
    evidence=ENCODER,
    vgpr_granule={32: 16, 64: 8},
    vgpr_file={32: 1024, 64: 512},
)
GFX1103 = GFX1102.evolve("gfx1103", source=SOURCE, evidence=ENCODER)
GFX1150 = GFX1102.evolve(
    "gfx1150",
    source=SOURCE,
    evidence=ENCODER,
    family="gfx115",
    put={"traits": [Trait.SCALAR_FLOAT]},
)
GFX1151 = GFX1150.evolve(
    "gfx1151",
    source=SOURCE,
    evidence=ENCODER,
    vgpr_granule={32: 24, 64: 12},
    vgpr_file={32: 1536, 64: 768},
)
GFX1200 = GFX1151.evolve(
    "gfx1200",
    source=SOURCE,
    evidence=ENCODER,
    family="gfx12",
    fp8=Fp8.OCP,
    put={
        "traits": [
            Trait.GROUP_IN_TRAP_REGISTERS,
            Trait.SPLIT_BARRIER,
            Trait.SPLIT_WAIT,
            Trait.FP8,
        ]
    },
    drop={"traits": [Trait.MODE_IEEE, Trait.WMMA_DUPLICATED]},
)
GFX1201 = GFX1200.evolve("gfx1201", source=SOURCE, evidence=ENCODER)
GFX1250 = GFX1200.evolve(
    "gfx1250",
    source=SOURCE,
    evidence=ENCODER,
    family="gfx1250",
    waves=(32,),
    vgprs=1024,
    vgpr_granule={32: 16},
    vgpr_file={32: 1024},
    put={
        "traits": [
            Trait.EVEN_TUPLES,
            Trait.SCALED_FLOATS,
            Trait.SCALE_OFFSET,
            Trait.NAMED_REGISTER_BANKS,
        ]
    },
)

GENERATIONS: Mapping[str, Machine] = {
    row.name: row
    for row in (
        GFX90A,
        GFX942,
        GFX950,
        GFX1030,
        GFX1100,
        GFX1101,
        GFX1102,
        GFX1103,
        GFX1150,
        GFX1151,
        GFX1200,
        GFX1201,
        GFX1250,
    )
}
"""Every row, by the compiler's name."""
