"""Which engine runs a queue."""

from __future__ import annotations

from rawgpu.amd.virtual.aql import run_aql
from rawgpu.amd.virtual.cp import run_ring
from rawgpu.amd.virtual.queues import SDMA_TYPES, Queue, Steps
from rawgpu.amd.virtual.sdma import run_sdma
from rawgpu.ioctl.kfd import QueueType


def engine_for(queue: Queue) -> Steps:
    """The engine, before its first step."""
    if queue.shape.kind in SDMA_TYPES:
        return run_sdma(queue)
    if queue.shape.kind is QueueType.COMPUTE_AQL:
        return run_aql(queue)
    return run_ring(queue)
