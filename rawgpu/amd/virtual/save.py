"""Taking a queue off the hardware: its waves are written to the context save area.

Nothing is read back when the queue returns: the waves wait meanwhile where they are. Local memory
is not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawgpu.amd.spec.generations import GENERATIONS
from rawgpu.amd.spec.savearea import WaveRecords, WaveToSave, saved
from rawgpu.amd.virtual.dispatch import HaltCause, Live
from rawgpu.virtual.memory import poke

if TYPE_CHECKING:
    from rawgpu.amd.virtual.queues import Queue

HALTED = 1 << 13
"""Of STATUS."""
SGPR_BLOCK = 16


def save(queue: Queue) -> tuple[int, int]:
    """Write the waves of each XCC; bytes of control stack and of waves that the first has."""
    shape, board = queue.shape, queue.gpu.board
    live = queue.services.live if queue.services is not None else []
    sizes = (0, 0)
    for xcc in range(board.xccs):
        waves = [_wave(queue, wave) for wave in live if wave.dispatch.xcc == xcc]
        part = saved(waves, shape.control_bytes, board.hardware.save_area.records)
        room = queue.view.space.ranges.find(shape.save_area)
        if room is None or len(part) > shape.save_bytes:
            return 0, 0
        poke(room.host(shape.save_area + xcc * shape.save_bytes), part)
        if xcc == 0:
            stack = int.from_bytes(part[4:8], "little")
            sizes = stack, len(part) - shape.control_bytes
    return sizes


def _wave(queue: Queue, wave: Live) -> WaveToSave:
    dispatch, records = wave.dispatch, queue.gpu.board.hardware.save_area.records
    exec_bits, scalars, vectors = wave.registers()
    halt = next((halt for halt in queue.halts if halt.pc == wave.place), None)
    return WaveToSave(
        pc=wave.place,
        exec=exec_bits,
        lanes=dispatch.wave_size,
        sgprs=_scalars(scalars, dispatch.sgprs, records),
        vgprs=_vectors(vectors, dispatch.vgprs, dispatch.wave_size, dispatch.generation),
        lds=b"",
        first=False,
        status=HALTED if halt is not None else 0,
        exceptions=_exceptions(halt.cause, records) if halt is not None else 0,
    )


def _exceptions(cause: HaltCause, records: WaveRecords) -> int:
    if cause is HaltCause.ILLEGAL_INSTRUCTION:
        return 1 << records.illegal_instruction
    return 1 << records.memory_violation if cause is HaltCause.MEMORY_VIOLATION else 0


def _scalars(data: bytes, count: int, records: WaveRecords) -> bytes:
    """All 128, or as many blocks as the wave has."""
    blocks = len(data) // 4 // SGPR_BLOCK if records.sgprs is None else -(-count // SGPR_BLOCK)
    return data[: 4 * SGPR_BLOCK * blocks]


def _vectors(data: bytes, count: int, lanes: int, generation: str) -> bytes:
    """As many as are allocated."""
    granule = GENERATIONS[generation].vgpr_granule[lanes]
    return data.ljust(4 * lanes * (-(-count // granule) * granule), b"\0")
