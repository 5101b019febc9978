"""What all structs of the amdgpu header have in common, and its numbers for engines."""

from __future__ import annotations

from enum import IntEnum

from rawgpu.describe.request import Request, Struct

HEADER = "drm/amdgpu_drm.h, ROCm flavour of 2025"
WITNESS = "vendor header: amdgpu_drm.h, layout from DWARF (tests/data/abi/amdgpu_drm.json)"


class AmdgpuRequest(Request, magic="d", c="drm_amdgpu_{}", source=HEADER, evidence=WITNESS):
    """An ioctl of the amdgpu driver."""


class AmdgpuStruct(Struct, c="drm_amdgpu_{}", source=HEADER, evidence=WITNESS):
    """A struct that ioctls of the amdgpu driver contain or point to."""


class HwIp(IntEnum):
    """AMDGPU_HW_IP_*."""

    GFX = 0
    COMPUTE = 1
    DMA = 2
    UVD = 3
    VCE = 4
    UVD_ENC = 5
    VCN_DEC = 6
    VCN_ENC = 7
    VCN_JPEG = 8
    VPE = 9
