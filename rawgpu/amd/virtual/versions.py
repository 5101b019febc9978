"""Kernels that a room can have: which requests they know, and how strict they are.

The default is the strictest: what it takes, all others of its requests' versions take.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawgpu.describe.abi import Abi
from rawgpu.describe.generation import Generation
from rawgpu.ioctl import amdgpu, kfd

SOURCE = "linux amdkfd/kfd_chardev.c, kfd_queue.c"


@dataclass(frozen=True, kw_only=True)
class Kernel(Generation):
    """One kernel. `name` is what the room's option `kernel` takes."""

    version: tuple[int, int]
    drm: Abi
    queue_buffers_checked: bool = False
    """Whether CREATE_QUEUE looks at the mappings of its buffers (since 6.12)."""
    exact_save_area: bool = False
    """Whether save area and end-of-pipe sizes must be equal, not only large enough."""
    exports_sizes: bool = False
    """Whether sysfs tells the save area's sizes."""
    last_request: int = 0x26
    unknown_is_enotty: bool = True

    @property
    def abi(self) -> Abi:
        return kfd.KFD_VERSIONS[self.version]


LINUX_6_1 = Kernel(
    name="6.1", source=SOURCE, version=(1, 11), drm=amdgpu.AMDGPU_2022, last_request=0x23
)
LINUX_6_6 = LINUX_6_1.evolve("6.6", source=SOURCE, version=(1, 14), last_request=0x26)
LINUX_6_12 = LINUX_6_6.evolve(
    "6.12", source=SOURCE, version=(1, 17), queue_buffers_checked=True, exact_save_area=True
)
LINUX_6_12_107 = LINUX_6_12.evolve("6.12.107", source=SOURCE, exact_save_area=False)
LINUX_NEXT = LINUX_6_12_107.evolve(
    "1.22",
    source="later headers; behaviour beyond the requests is a guess",
    version=(1, 22),
    drm=amdgpu.AMDGPU_2025,
    exports_sizes=True,
    last_request=0x27,
)

KERNELS: dict[str, Kernel] = {
    row.name: row for row in (LINUX_6_1, LINUX_6_6, LINUX_6_12, LINUX_6_12_107, LINUX_NEXT)
}
DEFAULT = LINUX_6_12.name
