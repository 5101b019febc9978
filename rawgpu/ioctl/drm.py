"""Requests that every DRM driver understands: version, buffer handles, dma-bufs, syncobjs."""

from __future__ import annotations

from rawgpu.describe.request import I32, I64, U32, U64, Request, pointer

WITNESS = "vendor header: drm.h, layout from DWARF (tests/data/abi/amdgpu_drm.json)"


class CoreRequest(Request, magic="d", c="drm_{}", source="drm/drm.h, Linux 6.1", evidence=WITNESS):
    """An ioctl of every DRM driver."""


class Version(CoreRequest, nr=0x00):
    """Driver name and version: ask with lengths 0, then with memory for the texts."""

    version_major: I32 = 0
    version_minor: I32 = 0
    version_patchlevel: I32 = 0
    name_len: U64 = 0
    name: U64 = pointer(bytes, count="name_len", default=0)
    date_len: U64 = 0
    date: U64 = pointer(bytes, count="date_len", default=0)
    desc_len: U64 = 0
    desc: U64 = pointer(bytes, count="desc_len", default=0)


class GemClose(CoreRequest, nr=0x09, direction="W"):
    """Give a buffer's handle back."""

    handle: U32
    pad: U32 = 0


class GetCap(CoreRequest, nr=0x0C):
    """A capability of the driver."""

    capability: U64
    value: U64 = 0


class PrimeHandleToFd(CoreRequest, nr=0x2D, c="drm_prime_handle"):
    """A dma-buf of a buffer; `flags` are those of open."""

    handle: U32
    flags: U32 = 0
    fd: I32 = -1


class PrimeFdToHandle(CoreRequest, nr=0x2E, c="drm_prime_handle"):
    """A buffer from a dma-buf."""

    handle: U32 = 0
    flags: U32 = 0
    fd: I32


class SyncobjCreate(CoreRequest, nr=0xBF):
    """A fence that processes can share; flag 1: signaled from the start."""

    handle: U32 = 0
    flags: U32 = 0


class SyncobjDestroy(CoreRequest, nr=0xC0):
    """Give a syncobj back."""

    handle: U32
    pad: U32 = 0


class SyncobjHandleToFd(CoreRequest, nr=0xC1, c="drm_syncobj_handle"):
    """A descriptor of a syncobj."""

    handle: U32
    flags: U32 = 0
    fd: I32 = -1
    pad: U32 = 0


class SyncobjFdToHandle(CoreRequest, nr=0xC2, c="drm_syncobj_handle"):
    """A syncobj from a descriptor."""

    handle: U32 = 0
    flags: U32 = 0
    fd: I32
    pad: U32 = 0


class SyncobjWait(CoreRequest, nr=0xC3):
    """Wait for syncobjs; an absolute time in ns. ETIME when it is over."""

    handles: U64 = pointer("I", count="count_handles")
    timeout_nsec: I64
    count_handles: U32
    flags: U32 = 0
    first_signaled: U32 = 0
    pad: U32 = 0


class SyncobjReset(CoreRequest, nr=0xC4, c="drm_syncobj_array"):
    """Take signals back."""

    handles: U64 = pointer("I", count="count_handles")
    count_handles: U32
    pad: U32 = 0


class SyncobjTimelineWait(CoreRequest, nr=0xCA):
    """Wait for points of timelines."""

    handles: U64 = pointer("I", count="count_handles")
    points: U64 = pointer("Q", count="count_handles")
    timeout_nsec: I64
    count_handles: U32
    flags: U32 = 0
    first_signaled: U32 = 0
    pad: U32 = 0


class SyncobjTimelineSignal(CoreRequest, nr=0xCD, c="drm_syncobj_timeline_array"):
    """Signal points of timelines."""

    handles: U64 = pointer("I", count="count_handles")
    points: U64 = pointer("Q", count="count_handles")
    count_handles: U32
    flags: U32 = 0


REQUESTS: tuple[type[Request], ...] = (
    Version,
    GemClose,
    GetCap,
    PrimeHandleToFd,
    PrimeFdToHandle,
    SyncobjCreate,
    SyncobjDestroy,
    SyncobjHandleToFd,
    SyncobjFdToHandle,
    SyncobjWait,
    SyncobjReset,
    SyncobjTimelineWait,
    SyncobjTimelineSignal,
)
