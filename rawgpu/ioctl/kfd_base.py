"""What all structs of the KFD header have in common."""

from __future__ import annotations

from rawgpu.describe.request import Request, Struct

HEADER = "linux/kfd_ioctl.h 1.17"
WITNESS = "vendor header: kfd_ioctl.h 1.17 and 1.11, layout from DWARF (tests/data/abi/kfd.json)"


class KfdRequest(Request, magic="K", c="kfd_ioctl_{}_args", source=HEADER, evidence=WITNESS):
    """An ioctl of /dev/kfd."""


class KfdStruct(Struct, source=HEADER, evidence=WITNESS):
    """A struct that ioctls of /dev/kfd contain or point to."""
