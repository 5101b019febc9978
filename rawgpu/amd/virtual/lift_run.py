"""Lifted dispatches."""

from __future__ import annotations

from rawgpu.amd.virtual.dispatch import Dispatch, GpuMemory, Running, Services


def lifted_dispatch(dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running | None:
    return None
