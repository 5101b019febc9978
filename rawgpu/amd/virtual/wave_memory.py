"""Memory as the interpreter's waves see it: LDS, scratch, global, flat, buffers, atomics."""

from __future__ import annotations

from typing import Any

import numpy as np

from rawgpu.amd.virtual.dispatch import Client, Dispatch, GpuMemory
from rawgpu.amd.virtual.wave_atomics import changed
from rawgpu.amd.virtual.wave_operands import Address, Facts
from rawgpu.amd.virtual.wave_state import WaveState, Word
from rawgpu.virtual.meaning import NotInEngine, Raw, Typed

M64 = (1 << 64) - 1


def _scratch_step(offsets: Any, size: int) -> int:
    """Bytes of an access to scratch that lie side by side.

    Neighbouring dwords of a lane do not, so what may cross from one into the next moves by bytes.
    """
    step = min(size, 4)
    return step if not (offsets & (step - 1)).any() else 1


class WaveMemory:
    """Loads, stores and atomics of the active lanes."""

    def __init__(
        self, state: WaveState, lds: Any, facts: Facts, dispatch: Dispatch, memory: GpuMemory
    ) -> None:
        self.state, self.lds, self.facts = state, lds, facts
        self.dispatch, self.memory = dispatch, memory
        self.past_first_level = False

    def exec_mask(self) -> Raw:
        raise NotImplementedError

    def _active(self) -> Any:
        mask = self.exec_mask()
        return np.arange(self.state.lanes) if mask is None else np.flatnonzero(mask)

    # Addresses of the active lanes.

    def _lane_addresses(self, address: Address, active: Any) -> Any:
        """64-bit addresses, or 32-bit ones in LDS."""
        if address.space == "lds":
            lanes = address.lanes[active].astype(np.uint64) + np.uint64(address.offset & M64)
            return lanes & np.uint64(0xFFFFFFFF)
        offset = np.uint64(address.offset & M64)
        if address.base is None:
            return address.lanes[active].astype(np.uint64) + offset
        lanes = address.lanes[active].astype(np.uint64)
        return lanes + address.base.astype(np.uint64) + offset

    def _scratch_offsets(self, address: Address, active: Any) -> Any:
        total = np.full(len(active), address.offset, np.int64)
        if address.base is not None:
            total += address.base.view(np.int32).astype(np.int64)
        if address.lanes is not None:
            total += address.lanes[active].view(np.int32).astype(np.int64)
        return total

    def _swizzled(self, offsets: Any, active: Any) -> Any:
        """Where bytes of lanes' scratch are: dwords of all lanes side by side."""
        lanes = self.state.lanes
        base = self.state.get(Word.SCRATCH)
        place = (offsets >> 2) * (4 * lanes) + (offsets & 3) + active * 4 + base
        return place.astype(np.uint64)

    # Loads.

    def load(self, address: Address, bits: int, *, signed: bool) -> list[Raw]:
        active = self._active()
        size = bits // 8
        rows = np.zeros((self.state.lanes, max(4, size)), np.uint8)
        if len(active):
            rows[active, :size] = self._gather(address, active, size)
        if signed and size < 4:
            kind = np.int8 if size == 1 else np.int16
            narrow = np.ascontiguousarray(rows[:, :size]).view(kind)[:, 0]
            return [narrow.astype(np.int32).view(np.uint32)]
        words = rows.view(np.uint32)
        return [np.ascontiguousarray(words[:, i]) for i in range(words.shape[1])]

    def _gather(self, address: Address, active: Any, size: int) -> Any:
        if address.space == "lds":
            return self._gather_lds(self._lane_addresses(address, active), size)
        if address.space == "scratch":
            return self._gather_scratch(self._scratch_offsets(address, active), active, size)
        if address.space == "buffer":
            return self._gather_buffer(address, active, size)
        where = self._lane_addresses(address, active)
        if address.space == "flat":
            return self._gather_flat(where, active, size)
        return self.memory.gather(where, size, past_first_level=self.past_first_level)

    def _gather_lds(self, where: Any, size: int) -> Any:
        inside = where + np.uint64(size) <= np.uint64(len(self.lds))
        safe = np.where(inside, where, 0).astype(np.int64)
        if not len(self.lds):
            return np.zeros((len(where), size), np.uint8)
        found = self.lds[(safe[:, None] + np.arange(size)) % len(self.lds)]
        return np.where(inside[:, None], found, 0)

    def _gather_scratch(self, offsets: Any, active: Any, size: int) -> Any:
        out = np.zeros((len(active), size), np.uint8)
        step = _scratch_step(offsets, size)
        for at in range(0, size, step):
            where = self._swizzled(offsets + at, active)
            out[:, at : at + step] = self.memory.gather(where, min(step, size - at))
        return out

    def _split_flat(self, where: Any) -> tuple[Any, Any]:
        """Which lanes mean LDS, and which scratch."""
        shared, private = self.facts.apertures
        high = where >> np.uint64(32)
        return high == np.uint64(shared >> 32), high == np.uint64(private >> 32)

    def _gather_flat(self, where: Any, active: Any, size: int) -> Any:
        local, private = self._split_flat(where)
        out = np.zeros((len(active), size), np.uint8)
        plain = ~(local | private)
        low = where & np.uint64(0xFFFFFFFF)
        if plain.any():
            out[plain] = self.memory.gather(
                where[plain], size, past_first_level=self.past_first_level
            )
        if local.any():
            out[local] = self._gather_lds(low[local], size)
        if private.any():
            offsets = low[private].astype(np.int64)
            out[private] = self._gather_scratch(offsets, active[private], size)
        return out

    def load_scalar(self, address: Address, bits: int, *, signed: bool) -> list[Raw]:
        va = int(address.base[0]) + address.offset & M64
        size = bits // 8
        if size >= 4:
            va &= ~3
        data = self.memory.read(va, size, Client.SCALAR)
        if size < 4:
            number = int.from_bytes(data, "little", signed=signed)
            return [np.array([number & 0xFFFFFFFF], np.uint32)]
        words = np.frombuffer(data, np.uint32)
        return [words[i : i + 1] for i in range(len(words))]

    # Stores.

    def store(self, address: Address, bits: int, words: list[Raw]) -> None:
        active = self._active()
        if not len(active):
            return
        size = bits // 8
        rows = np.stack([word[active] for word in words], axis=1).view(np.uint8)
        data = np.ascontiguousarray(rows[:, :size])
        if address.space == "lds":
            self._scatter_lds(self._lane_addresses(address, active), data)
        elif address.space == "scratch":
            self._scatter_scratch(self._scratch_offsets(address, active), active, data)
        elif address.space == "buffer":
            self._scatter_buffer(address, active, data)
        elif address.space == "flat":
            self._scatter_flat(self._lane_addresses(address, active), active, data)
        else:
            self.memory.scatter(self._lane_addresses(address, active), data)

    def _scatter_lds(self, where: Any, data: Any) -> None:
        size = data.shape[1]
        inside = where + np.uint64(size) <= np.uint64(len(self.lds))
        places = where[inside].astype(np.int64)[:, None] + np.arange(size)
        self.lds[places] = data[inside]

    def _scatter_scratch(self, offsets: Any, active: Any, data: Any) -> None:
        size = data.shape[1]
        step = _scratch_step(offsets, size)
        for at in range(0, size, step):
            part = np.ascontiguousarray(data[:, at : at + step])
            self.memory.scatter(self._swizzled(offsets + at, active), part)

    def _scatter_flat(self, where: Any, active: Any, data: Any) -> None:
        local, private = self._split_flat(where)
        plain = ~(local | private)
        low = where & np.uint64(0xFFFFFFFF)
        if plain.any():
            self.memory.scatter(where[plain], data[plain])
        if local.any():
            self._scatter_lds(low[local], data[local])
        if private.any():
            offsets = low[private].astype(np.int64)
            self._scatter_scratch(offsets, active[private], data[private])

    # Buffers. Source: RDNA3 ISA, section 9.1.

    def _buffer_places(self, address: Address, active: Any, size: int) -> tuple[Any, Any]:
        """Addresses and which of them are in bounds."""
        words = [int(word[0]) for word in address.base]
        base = words[0] | (words[1] & 0xFFFF) << 32
        stride, records = words[1] >> 16 & 0x3FFF, words[2]
        index, offset = address.lanes
        soffset = words[4]
        if self._is_scratch(words):
            return self._scratch_buffer(base, offset, address.offset, soffset, active, words)
        where = np.full(len(active), address.offset, np.uint64)
        if offset is not None:
            where += offset[active].astype(np.uint64)
        inside = where + np.uint64(size) <= np.uint64(records)
        if stride:
            number = np.zeros(len(active), np.uint64)
            if index is not None:
                number = index[active].astype(np.uint64)
            inside = number < np.uint64(records)
            where += number * np.uint64(stride)
        return where + np.uint64(base + soffset & M64), inside

    def _is_scratch(self, words: list[int]) -> bool:
        """Whether the descriptor puts dwords of all lanes side by side."""
        stride = words[1] >> 16 & 0x3FFF
        swizzled = words[1] >> 31 & 1 or (words[1] >> 30 & 3 and stride)
        return bool(words[3] >> 23 & 1 or (swizzled and not self.facts.swizzles_linear_buffers))

    def _buffer_step(self, address: Address, active: Any, size: int) -> int:
        """Bytes of an access that lie side by side."""
        if not self._is_scratch([int(word[0]) for word in address.base]):
            return min(size, 4)
        return _scratch_step(self._buffer_places(address, active, 1)[0].astype(np.int64), size)

    def _scratch_buffer(
        self, base: int, offset: Any, constant: int, soffset: int, active: Any, words: list[int]
    ) -> tuple[Any, Any]:
        """The descriptor of scratch: the lane's number is the index, dwords are side by side."""
        place = np.full(len(active), constant, np.int64)
        if offset is not None:
            place += offset[active].astype(np.int64)
        lanes = self.state.lanes
        where = (place >> 2) * (4 * lanes) + (place & 3) + active * 4 + base + soffset
        return where.astype(np.uint64), np.ones(len(active), np.bool_)

    def _gather_buffer(self, address: Address, active: Any, size: int) -> Any:
        out = np.zeros((len(active), size), np.uint8)
        step = self._buffer_step(address, active, size)
        for at in range(0, size, step):
            moved = Address("buffer", address.base, address.lanes, address.offset + at)
            where, inside = self._buffer_places(moved, active, step)
            if inside.any():
                out[inside, at : at + step] = self.memory.gather(where[inside], step)
        return out

    def _scatter_buffer(self, address: Address, active: Any, data: Any) -> None:
        size = data.shape[1]
        step = self._buffer_step(address, active, size)
        for at in range(0, size, step):
            moved = Address("buffer", address.base, address.lanes, address.offset + at)
            where, inside = self._buffer_places(moved, active, step)
            part = np.ascontiguousarray(data[:, at : at + step])
            if inside.any():
                self.memory.scatter(where[inside], part[inside])

    # Atomics: lane after lane.

    def atomic(self, address: Address, what: str, values: list[Typed]) -> Typed:
        active = self._active()
        kind, bits, operands = self._atomic_operands(what, values)
        spread = [np.broadcast_to(raw, (self.state.lanes,)) for raw in operands]
        old = np.zeros(self.state.lanes, np.uint32 if bits == 32 else np.uint64)
        where = self._atomic_places(address, active, bits)
        for lane, place in zip(active.tolist(), where, strict=True):
            if place is not None:
                arguments = [int(raw[lane]) for raw in spread]
                old[lane] = self._change(*place, bits, what, kind, arguments)
        return Typed("u", bits, old)

    def _atomic_operands(self, what: str, values: list[Typed]) -> tuple[str, int, list[Any]]:
        """Kind and width of the operation, and its operands as unsigned integers."""
        packed = what == "add_packed"
        kind, bits = (str(values[1].raw), 32) if packed else (values[0].kind, values[0].bits)
        operands = [value.raw for value in values if value.kind != "text"]
        if values[0].kind == "f":
            operands = [raw.view(np.uint32 if bits == 32 else np.uint64) for raw in operands]
        return kind, bits, operands

    def atomic_scalar(self, address: Address, what: str, values: list[Typed]) -> Typed:
        """One operation at a scalar address."""
        kind, bits, operands = self._atomic_operands(what, values)
        va = int(address.base[0]) + address.offset & M64
        arguments = [int(raw[0]) for raw in operands]
        old = self._change("global", va, bits, what, kind, arguments)
        return Typed("u", bits, np.array([old], np.uint32 if bits == 32 else np.uint64))

    def append(self, offset: int, step: int) -> Raw:
        """Add `step` for each lane that is on to a dword of LDS; its old value."""
        count = len(self._active()) * step & 0xFFFFFFFF
        old = self._change("lds", offset & 0xFFFF, 32, "add", "u", [count])
        return np.array([old], np.uint32)

    def _atomic_places(
        self, address: Address, active: Any, bits: int
    ) -> list[tuple[str, int] | None]:
        """Memory and address for each lane; None where a buffer has no such place."""
        if address.space == "buffer":
            where, inside = self._buffer_places(address, active, bits // 8)
            pairs = zip(where.tolist(), inside.tolist(), strict=True)
            return [("global", va) if ok else None for va, ok in pairs]
        if address.space == "scratch":
            return self._private_places(self._scratch_offsets(address, active), active, bits)
        where = self._lane_addresses(address, active)
        if address.space != "flat":
            return [(address.space, va) for va in where.tolist()]
        local, private = self._split_flat(where)
        low = (where & np.uint64(0xFFFFFFFF)).astype(np.int64)
        places: list[tuple[str, int] | None] = [
            ("lds", int(va) & 0xFFFFFFFF) if is_local else ("global", int(va))
            for va, is_local in zip(where, local, strict=True)
        ]
        if private.any():
            own = self._private_places(low, active, bits)
            places = [b if p else a for a, b, p in zip(places, own, private, strict=True)]
        return places

    def _private_places(self, offsets: Any, active: Any, bits: int) -> list[tuple[str, int] | None]:
        if bits > 32:  # its dwords are apart
            raise NotInEngine("64-bit atomics in scratch memory")
        return [("global", va) for va in self._swizzled(offsets, active).tolist()]

    def _change(
        self, space: str, va: int, bits: int, what: str, kind: str, arguments: list[int]
    ) -> int:
        size = bits // 8

        def change(before: bytes) -> bytes:
            old = int.from_bytes(before, "little")
            return changed(what, kind, bits, old, arguments).to_bytes(size, "little")

        if space != "lds":
            return int.from_bytes(self.memory.atomic(va, size, change), "little")
        if va + size > len(self.lds):
            return 0
        before = self.lds[va : va + size].tobytes()
        self.lds[va : va + size] = np.frombuffer(change(before), np.uint8)
        return int.from_bytes(before, "little")
