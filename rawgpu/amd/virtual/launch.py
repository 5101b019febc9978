"""From compute registers to a `Dispatch`: what the dispatcher reads when a launch comes."""

from __future__ import annotations

import functools
from typing import Any

from rawgpu.amd.spec.hardware import Feature, Hardware
from rawgpu.amd.virtual.boards import Board
from rawgpu.amd.virtual.dispatch import Dispatch, Misuse, NotModelled, Services
from rawgpu.amd.virtual.queues import Queue
from rawgpu.describe.field import DecodeError
from rawgpu.describe.register import RegisterSet

MOST_ITEMS = 1024
REMEMBERED = 4096
UCONFIG_FIRST = 0x30000


class Registers:
    """One XCC's compute registers of one queue; 0 where nothing was written."""

    def __init__(self, hardware: Hardware) -> None:
        self._set = hardware.registers
        self._values: dict[int, int] = {}
        self._described: set[int] = set()
        """Offsets that were found in the rows."""
        self._dispatches: dict[tuple[object, ...], Dispatch | None] = {}

    def update(self, writes: dict[int, int]) -> None:
        """Several writes at once. Raises NotModelled as `write` does."""
        if writes.keys() <= self._described:
            self._values.update(writes)
            return
        for offset, value in writes.items():
            self.write(offset, value)

    def dispatch(
        self, board: Board, sizes: tuple[int, ...], initiator: int, xcc: int
    ) -> Dispatch | None:
        """The dispatch that stands here, None for an empty grid; what was checked is remembered."""
        key = (tuple(self._values.items()), sizes, initiator, xcc)
        if key in self._dispatches:
            return self._dispatches[key]
        made = from_registers(board, self, sizes, initiator, xcc)
        if made is not None:
            check(board, made)
        if len(self._dispatches) >= REMEMBERED:
            self._dispatches.clear()
        self._dispatches[key] = made
        return made

    def write(self, offset: int, value: int) -> None:
        """Raises NotModelled for a register that no row describes."""
        try:
            self._set.at(offset)
        except DecodeError:
            space = "user configuration" if offset >= UCONFIG_FIRST else "shader"
            raise NotModelled(f"the {space} register at {offset:#x}") from None
        self._described.add(offset)
        self._values[offset] = value

    def raw(self, name: str) -> int:
        return self._values.get(self._set.offset(name), 0)

    def read(self, name: str) -> Any:
        """The register's fields. Raises DecodeError for bits that no field names."""
        return decoded(self._set, name, self.raw(name))

    def has(self, name: str) -> bool:
        try:
            self._set.named(name)
        except KeyError:
            return False
        return True


def start_dispatch(
    queue: Queue, registers: Registers, sizes: tuple[int, ...], initiator: int, xcc: int
) -> None:
    """DISPATCH_DIRECT and its like: the waves run beside what follows."""
    dispatch = registers.dispatch(queue.gpu.board, sizes, initiator, xcc)
    if dispatch is not None:
        run(queue, dispatch)


def run(queue: Queue, dispatch: Dispatch) -> None:
    """Hand a dispatch, which was checked, to the shader engine."""
    if queue.services is None:
        queue.services = _services(queue)
    view = queue.view.family[dispatch.xcc]
    waves = queue.gpu.machine.run_dispatch(dispatch, view, queue.services)
    queue.add_dispatch(waves, dispatch.xcc)


def _services(queue: Queue) -> Services:
    """What all waves of a queue ask for; they draw from one stream, in the order that they run."""
    gpu, process = queue.gpu, queue.process
    return Services(
        chance=queue.chance.fork("waves"),
        clock=gpu.clock,
        message=lambda number, m0: gpu.interrupt(process, m0 & 0xFF_FFFF if number == 1 else 0),
        device_number=gpu.number,
    )


def check(board: Board, dispatch: Dispatch) -> None:
    """What the hardware silently gets wrong, or hangs on."""
    hardware = board.hardware
    x, y, z = dispatch.group_size
    if not 0 < dispatch.items <= MOST_ITEMS:
        raise Misuse(f"a work-group of {x} x {y} x {z} items; the limit is {MOST_ITEMS}")
    if dispatch.lds_bytes > hardware.lds_bytes:
        raise Misuse(f"{dispatch.lds_bytes} bytes of LDS, of {hardware.lds_bytes}")
    if dispatch.scratch_enabled and not (dispatch.scratch_wave_bytes and dispatch.scratch_waves):
        raise Misuse("RSRC2.SCRATCH_EN is set and COMPUTE_TMPRING_SIZE gives waves no scratch")


def vgprs(board: Board, field: int, wave_size: int) -> int:
    """Vector registers that RSRC1.VGPRS stands for."""
    granule = board.vgpr_granule
    if Feature.WAVE32 in board.hardware.features and wave_size == 64:
        granule //= 2
    return (field + 1) * granule


def sgprs(board: Board, field: int) -> int:
    """Scalar registers; from gfx10 on every wave has all."""
    if Feature.WAVE32 in board.hardware.features:
        return 106
    return (field // 2 + 1) * 16


def from_registers(
    board: Board, registers: Registers, sizes: tuple[int, ...], initiator: int, xcc: int
) -> Dispatch | None:
    """The dispatch that the registers describe; None for an empty grid."""
    hardware = board.hardware
    start_bits = decoded(hardware.registers, "COMPUTE_DISPATCH_INITIATOR", initiator)
    if not start_bits.COMPUTE_SHADER_EN:
        raise Misuse("a dispatch whose initiator has not COMPUTE_SHADER_EN")
    full, partial = _threads(registers, bool(start_bits.PARTIAL_TG_EN))
    groups, partial = _groups(sizes, full, partial, bool(start_bits.USE_THREAD_DIMENSIONS))
    start: tuple[int, ...] = (0, 0, 0)
    if not start_bits.FORCE_START_AT_000:
        start = tuple(registers.raw(f"COMPUTE_START_{axis}") for axis in "XYZ")
    groups = tuple(max(n - s, 0) for n, s in zip(groups, start, strict=True))
    if 0 in groups:
        return None
    wave32 = bool(getattr(start_bits, "CS_W32_EN", 0))
    entry = (registers.raw("COMPUTE_PGM_HI") << 32 | registers.raw("COMPUTE_PGM_LO")) << 8
    base = registers.raw("COMPUTE_DISPATCH_SCRATCH_BASE_HI") << 32
    base = (base | registers.raw("COMPUTE_DISPATCH_SCRATCH_BASE_LO")) << 8
    return describe(
        board,
        kernel_va=entry,
        entry_va=entry,
        rsrc=(
            registers.raw("COMPUTE_PGM_RSRC1"),
            registers.raw("COMPUTE_PGM_RSRC2"),
            registers.raw("COMPUTE_PGM_RSRC3") if registers.has("COMPUTE_PGM_RSRC3") else 0,
        ),
        groups=groups,
        start=start,
        group_size=full,
        partial=partial,
        wave_size=32 if wave32 else 64,
        user_data=[registers.raw(f"COMPUTE_USER_DATA_{i}") for i in range(16)],
        tmpring=registers.raw("COMPUTE_TMPRING_SIZE"),
        scratch_base=base,
        xcc=xcc,
        xccs=1,
    )


@functools.lru_cache(4096)
def decoded(registers: RegisterSet, name: str, value: int) -> Any:
    """A register's value as its fields. Raises DecodeError for bits that no field names."""
    return registers.named(name).decode(value)


def _threads(registers: Registers, partial_on: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rows = [registers.read(f"COMPUTE_NUM_THREAD_{axis}") for axis in "XYZ"]
    full = tuple(row.NUM_THREAD_FULL for row in rows)
    partial = tuple(row.NUM_THREAD_PARTIAL if partial_on else 0 for row in rows)
    return full, partial


def _groups(
    sizes: tuple[int, ...], full: tuple[int, ...], partial: tuple[int, ...], items: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Groups in each dimension; sizes may count work-items."""
    if not items:
        return sizes, partial
    if 0 in full:
        raise Misuse("a work-group without items")
    counts = tuple(-(-size // of) for size, of in zip(sizes, full, strict=True))
    return counts, tuple(size % of for size, of in zip(sizes, full, strict=True))


def describe(
    board: Board,
    *,
    kernel_va: int,
    entry_va: int,
    rsrc: tuple[int, int, int],
    groups: tuple[int, ...],
    start: tuple[int, ...],
    group_size: tuple[int, ...],
    partial: tuple[int, ...],
    wave_size: int,
    user_data: list[int],
    tmpring: int,
    scratch_base: int,
    xcc: int,
    xccs: int,
) -> Dispatch:
    """The dispatch, with RSRC registers decoded."""
    hardware = board.hardware
    one = decoded(hardware.registers, "COMPUTE_PGM_RSRC1", rsrc[0])
    two = decoded(hardware.registers, "COMPUTE_PGM_RSRC2", rsrc[1])
    ring = decoded(hardware.registers, "COMPUTE_TMPRING_SIZE", tmpring)
    offset = 0
    try:
        three = decoded(hardware.registers, "COMPUTE_PGM_RSRC3", rsrc[2])
        offset = 4 * getattr(three, "ACCUM_OFFSET", -1) + 4
    except KeyError:
        pass
    waves = ring.WAVES * (board.engines if hardware.scratch.waves_per_engine else 1)
    return Dispatch(
        generation=board.name,
        kernel_va=kernel_va,
        entry_va=entry_va,
        groups=_three(groups),
        start=_three(start),
        group_size=_three(group_size),
        partial=_three(partial),
        wave_size=wave_size,
        user_sgprs=tuple(user_data[: two.USER_SGPR]),
        group_id_sgprs=(bool(two.TGID_X_EN), bool(two.TGID_Y_EN), bool(two.TGID_Z_EN)),
        group_info_sgpr=bool(two.TG_SIZE_EN),
        item_ids=two.TIDIG_COMP_CNT,
        vgprs=vgprs(board, one.VGPRS, wave_size),
        accumulator_offset=offset,
        sgprs=sgprs(board, one.SGPRS),
        float_mode=one.FLOAT_MODE,
        ieee=bool(getattr(one, "IEEE_MODE", 0)),
        dx10_clamp=bool(getattr(one, "DX10_CLAMP", 0)),
        fp16_overflow=bool(one.FP16_OVFL),
        trap_mask=two.EXCP_EN,
        privileged=bool(one.PRIV),
        workgroup_processor_mode=bool(getattr(one, "WGP_MODE", 0)),
        lds_bytes=two.LDS_SIZE * hardware.lds_granule_bytes,
        scratch_base=scratch_base,
        scratch_wave_bytes=ring.WAVESIZE * hardware.scratch.granule_bytes,
        scratch_waves=waves,
        scratch_enabled=bool(two.SCRATCH_EN),
        xcc=xcc,
        xccs=xccs,
        rsrc=rsrc,
    )


def _three(values: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = values
    return x, y, z
