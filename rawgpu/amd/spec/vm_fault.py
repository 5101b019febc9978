"""What a memory hub remembers of a page fault: its status word, per generation of hubs.

The kernel prints the word after a fault, and on GPUs up to gfx8 as another register. Names of
clients are what the kernel calls them; those of media and display hubs differ from chip to chip.

Source: linux 6.12.107 amdgpu/gmc_v8_0.c, gmc_v9_0.c, gfxhub_v2_0.c, gfxhub_v3_0.c, mmhub_v4_1_0.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag

from rawgpu.describe.register import Register, at

PRINTED = "recorded trace: kernel logs that print word and fields (tests/data/crash)"
SOURCE = "linux 6.12.107 amdgpu/gmc_v9_0.c, gfxhub_v2_0.c, gfxhub_v3_0.c, gfxhub_v12_0.c"


class Permission(IntFlag):
    """Bits of PERMISSION_FAULTS: the page was there and forbade this, or with VALID, was not.

    Evidence: recorded trace: kernel logs that print word and fields (tests/data/crash)
    """

    VALID = 1
    READ = 2
    WRITE = 4
    EXECUTE = 8


class VM_L2_PROTECTION_FAULT_STATUS(Register, offset=0, source=SOURCE, evidence=PRINTED):
    """Of gfx9 to gfx12. Where a register lies differs between hubs; nobody here reads it."""

    MORE_FAULTS: int = at(0, default=0)
    WALKER_ERROR: int = at(3, 1, default=0)
    PERMISSION_FAULTS: Permission = at(7, 4, default=Permission(0))
    MAPPING_ERROR: int = at(8, default=0)
    CID: int = at(17, 9, default=0)
    RW: int = at(18, default=0)
    ATOMIC: int = at(19, default=0)
    VMID: int = at(23, 20, default=0)
    VF: int = at(24, default=0)
    VFID: int = at(29, 25, default=0)  # 28:25 before gfx10.3, where bit 29 is not used


class MMVM_L2_PROTECTION_FAULT_STATUS_LO32(
    Register, offset=0, source="linux 6.12.107 amdgpu/mmhub_v4_1_0.c"
):
    """Of media hubs from v4.1 on: everything has moved."""

    MORE_FAULTS: int = at(0, default=0)
    WALKER_ERROR: int = at(4, 1, default=0)
    PERMISSION_FAULTS: Permission = at(9, 5, default=Permission(0))
    MAPPING_ERROR: int = at(10, default=0)
    CID: int = at(19, 11, default=0)
    RW: int = at(20, default=0)
    ATOMIC: int = at(21, default=0)
    VMID: int = at(25, 22, default=0)
    VF: int = at(26, default=0)


class VM_CONTEXT1_PROTECTION_FAULT_STATUS(
    Register, offset=0, source="linux 6.12.107 amdgpu/gmc_v8_0.c, sid.h"
):
    """Of GPUs before gfx9; the address beside it counts pages."""

    PROTECTIONS: int = at(7, 0, default=0)
    MEMORY_CLIENT_ID: int = at(20, 12, default=0)
    MEMORY_CLIENT_RW: int = at(24, default=0)
    VMID: int = at(28, 25, default=0)


STATUS_BY_NAME: Mapping[str, type[Register]] = {
    "VM_L2_PROTECTION_FAULT_STATUS": VM_L2_PROTECTION_FAULT_STATUS,
    "GCVM_L2_PROTECTION_FAULT_STATUS": VM_L2_PROTECTION_FAULT_STATUS,
    "GCVM_L2_PROTECTION_FAULT_STATUS_LO32": VM_L2_PROTECTION_FAULT_STATUS,
    "MMVM_L2_PROTECTION_FAULT_STATUS": VM_L2_PROTECTION_FAULT_STATUS,
    "MMVM_L2_PROTECTION_FAULT_STATUS_LO32": MMVM_L2_PROTECTION_FAULT_STATUS_LO32,
    "VM_CONTEXT1_PROTECTION_FAULT_STATUS": VM_CONTEXT1_PROTECTION_FAULT_STATUS,
}
"""The word's layout by the name that the kernel prints."""

_COMMON = {
    4: "CPF", 5: "CPC", 6: "CPG", 7: "RLC", 8: "TCP", 9: "SQC (inst)", 10: "SQC (data)", 11: "SQG",
}  # fmt: skip
CLIENTS_GFX9: Mapping[int, str] = {0: "CB", 1: "DB", 2: "IA", 3: "WD", **_COMMON, 12: "PA"}
CLIENTS_GFX10: Mapping[int, str] = {
    0: "CB/DB", 2: "GE1", 3: "GE2", **_COMMON, 13: "SDMA0", 14: "SDMA1", 15: "GCR", 16: "SDMA2",
    17: "SDMA3",
}  # fmt: skip
"""Clients of the graphics hub. Source: gmc_v9_0.c gfxhub_client_ids, gfxhub_v2_0.c."""

CLIENTS_BY_NAME: Mapping[str, Mapping[int, str]] = {
    "VM_L2_PROTECTION_FAULT_STATUS": CLIENTS_GFX9,
    "GCVM_L2_PROTECTION_FAULT_STATUS": CLIENTS_GFX10,
    "GCVM_L2_PROTECTION_FAULT_STATUS_LO32": CLIENTS_GFX10,
}
HUBS_BY_NAME: Mapping[tuple[str, str], str] = {
    ("VM_L2_PROTECTION_FAULT_STATUS", "UTCL2"): "gfxhub0",
    ("GCVM_L2_PROTECTION_FAULT_STATUS", "UTCL2"): "gfxhub",
}
"""What the kernel calls the hub whose status register and interrupt client have these names."""
