"""The kernel descriptor: 64 bytes in `.rodata`, one a kernel, at the symbol `<name>.kd`.

`compute_pgm_rsrc1` to 3 have the layout of the registers in `registers.py`; the LDS size in the
second is left to who launches.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Annotated

from rawgpu.describe.request import I64, U16, U32, Struct

DESCRIPTOR_BYTES = 64
SOURCE = "LLVM 22.1 AMDGPUUsage, Kernel Descriptor; AMDHSAKernelDescriptor.h"


class Properties(IntFlag):
    """What the kernel wants in its user SGPRs, in this order, and how it runs.

    Evidence: vendor header: kernel_descriptor_t (tests/data/abi/amd_packets.json)
    """

    ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER = 1 << 0
    ENABLE_SGPR_DISPATCH_PTR = 1 << 1
    ENABLE_SGPR_QUEUE_PTR = 1 << 2
    ENABLE_SGPR_KERNARG_SEGMENT_PTR = 1 << 3
    ENABLE_SGPR_DISPATCH_ID = 1 << 4
    ENABLE_SGPR_FLAT_SCRATCH_INIT = 1 << 5
    ENABLE_SGPR_PRIVATE_SEGMENT_SIZE = 1 << 6
    ENABLE_WAVEFRONT_SIZE32 = 1 << 10
    USES_DYNAMIC_STACK = 1 << 11


USER_SGPRS = {
    Properties.ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER: 4,
    Properties.ENABLE_SGPR_DISPATCH_PTR: 2,
    Properties.ENABLE_SGPR_QUEUE_PTR: 2,
    Properties.ENABLE_SGPR_KERNARG_SEGMENT_PTR: 2,
    Properties.ENABLE_SGPR_DISPATCH_ID: 2,
    Properties.ENABLE_SGPR_FLAT_SCRATCH_INIT: 2,
    Properties.ENABLE_SGPR_PRIVATE_SEGMENT_SIZE: 1,
}
"""Registers that each takes, in order; preloaded arguments come after them."""


class KernelDescriptor(
    Struct,
    c="kernel_descriptor_t",
    source=SOURCE,
    evidence="foreign encoder: LLVM 22.1 by llvmlite, compared in tests/amd/spec",
):
    """What a kernel needs. The entry is relative to the descriptor itself."""

    group_segment_fixed_size: U32
    private_segment_fixed_size: U32
    kernarg_size: U32
    reserved0: U32 = 0
    kernel_code_entry_byte_offset: I64
    reserved1: Annotated[bytes, 20] = bytes(20)
    compute_pgm_rsrc3: U32
    compute_pgm_rsrc1: U32
    compute_pgm_rsrc2: U32
    kernel_code_properties: Annotated[Properties, "H"]
    kernarg_preload: U16 = 0  # dwords 6:0, offset in dwords 15:7
    reserved3: U32 = 0
