"""What AcquireMem and ReleaseMem do to the modelled caches, by generation.

L2 has a write-back and an invalidate; the first-level vector caches of gfx10 and later are two (GLV
and GL1), and both must be named before what a shader reads is fresh.
"""

from __future__ import annotations

from rawgpu.amd.spec.pm4 import (
    EVERYTHING,
    AcquireMem,
    AcquireMem10,
    ReleaseMem,
    ReleaseMem10,
)
from rawgpu.amd.virtual.dispatch import NotModelled
from rawgpu.amd.virtual.view import GpuView


def acquire(view: GpuView, packet: AcquireMem) -> None:
    """Carry out an AcquireMem."""
    if packet.base or packet.size != EVERYTHING:
        raise NotModelled("an AcquireMem of part of memory")
    if isinstance(packet, AcquireMem10):
        if packet.gl2_wb:
            view.write_back()
        view.invalidate(
            code=packet.gli_inv != 0,
            scalar=packet.glk_inv,
            vector=packet.glv_inv and packet.gl1_inv,
            l2=packet.gl2_inv,
        )
        return
    if packet.tc_wb_action:
        view.write_back()
    view.invalidate(
        code=packet.sh_icache_action,
        scalar=packet.sh_kcache_action,
        vector=packet.tcl1_action,
        l2=packet.tc_action,
    )


def release(view: GpuView, packet: ReleaseMem) -> None:
    """Carry out the cache part of a ReleaseMem."""
    if isinstance(packet, ReleaseMem10):
        if packet.gl2_wb:
            view.write_back()
        view.invalidate(vector=packet.glv_inv and packet.gl1_inv, l2=packet.gl2_inv)
        return
    if packet.tc_wb_action:
        view.write_back()
    view.invalidate(vector=packet.tcl1_action, l2=packet.tc_action)


def system_acquire(view: GpuView) -> None:
    """What an AQL packet with a system-scope acquire fence does before it runs."""
    for part in view.family:  # what L2 holds back stays: giving it out is the release's part
        part.invalidate(code=True, scalar=True, vector=True, l2=True)


def agent_acquire(view: GpuView) -> None:
    """What an agent-scope acquire fence does: XCCs of one agent have an L2 each."""
    several = len(view.family) > 1
    for part in view.family:
        part.invalidate(scalar=True, vector=True, l2=several)


def system_release(view: GpuView) -> None:
    """What an AQL packet with a system-scope release fence does when it is done."""
    for part in view.family:
        part.write_back()
