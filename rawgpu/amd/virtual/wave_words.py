"""The words of meanings that need a wave: packed parts, other lanes, memory.

Memory itself is the machine's; here an instruction's fields become an `Address`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from rawgpu.amd.virtual.wave_operands import Address, Operands
from rawgpu.virtual.meaning import NotInEngine, Raw, Typed

ATOMICS = frozenset(
    (
        "swap", "cmpswap", "add", "sub", "rsub", "sub_clamp", "cond_sub", "min", "max", "and", "or",
        "xor", "mskor", "inc", "dec", "wrap", "add_packed", "cond_swap",
    )
)  # fmt: skip


class WaveWords(Operands):
    """Words beyond arithmetic."""

    def call(self, word: str, arguments: list[ast.expr]) -> Typed:
        packed: Callable[[list[ast.expr]], Typed] | None = getattr(self, f"packed_{word}", None)
        if packed is not None:
            return packed(arguments)
        space, found, what = word.rpartition("atomic_")
        if found and what in ATOMICS and space in ("", "lds_", "scalar_"):
            address, *values = map(self.value, arguments)
            if space == "scalar_":
                return self.scalar_atomic(what, address, values)
            return self.machine.atomic(address.raw, what, values)
        return super().call(word, arguments)

    def scalar_atomic(self, what: str, address: Typed, values: list[Typed]) -> Typed:
        raise NotInEngine(f"scalar_atomic_{what}")

    # Packed parts.

    def _both_parts(self, node: ast.expr) -> list[Typed]:
        out = []
        for part in (0, 1):
            self.half_mode = part
            out.append(self.finished(self.value(node)))
        self.half_mode = None
        return out

    def packed_halves(self, arguments: list[ast.expr]) -> Typed:
        low, high = self._both_parts(arguments[0])
        return self.word_pack(
            Typed("u", 16, self.as_bits(low, 16)), Typed("u", 16, self.as_bits(high, 16))
        )

    def packed_words(self, arguments: list[ast.expr]) -> Typed:
        low, high = self._both_parts(arguments[0])
        return Typed("u", 64, self.joined(self.as_bits(low, 32), self.as_bits(high, 32)))

    def packed_pairs(self, arguments: list[ast.expr]) -> Typed:
        """The low word from the first source, the high one from the second, each by `op_sel`."""
        chosen = self.instruction.get("op_sel")
        picks = (chosen & 1, chosen >> 1 & 1)
        values = [self.words_of(self.value(node), 2) for node in arguments]
        return Typed("u", 64, self.joined(values[0][picks[0]], values[1][picks[1]]))

    def packed_mix(self, arguments: list[ast.expr]) -> Typed:
        """A source of a mixed-precision fma: float32, or a half where op_sel_hi has its bit."""
        name, place = arguments[0], arguments[1]
        assert isinstance(name, ast.Name) and isinstance(place, ast.Constant), name
        get, at = self.instruction.get, int(place.value)  # type: ignore[arg-type]
        value = self.fetched(self.instruction.operands[name.id])
        if get("op_sel_hi") >> at & 1:
            half = self.word_half(value, Typed("n", 0, get("op_sel") >> at & 1))
            value = self._number_to_float(self.view("f", 16, half), 32)
        value = self.view("u", 32, value)
        value = self.signed(value, bool(get("neg") >> at & 1), bool(get("neg_hi") >> at & 1))
        return self.view("f", 32, value)

    def word_clamped(self, x: Typed) -> Typed:
        return self.finished(x)

    def packed_dot(self, arguments: list[ast.expr]) -> Typed:
        values = [self.value(node) for node in arguments]
        name = str(values[3].raw)
        if name not in ("iu8", "iu4"):
            return self.word_dot(*values)
        neg = self.instruction.get("neg")
        kinds = ("i" if neg & 1 else "u", "i" if neg & 2 else "u")
        x, y, z = values[:3]
        return self._integer_dot(x, y, z, kinds, int(name[2:]))

    # Other lanes.

    def word_lane_bit(self, mask: Typed) -> Typed:
        if mask.kind == "b":
            return mask
        return Typed("b", 1, self.machine.mask_of_bits(mask.raw))

    def word_read_lane(self, x: Typed, lane: Typed) -> Typed:
        number = self._u("and", 32, self.machine.first(self.as_bits(lane, 32)), self.facts.wave - 1)
        return Typed("u", 32, self.machine.lane(self.machine.spread(x.raw), number))

    def word_read_first_lane(self, x: Typed) -> Typed:
        number = self.machine.first_active()
        return Typed("u", 32, self.machine.lane(self.machine.spread(x.raw), number))

    def word_write_lane(self, old: Typed, value: Typed, lane: Typed) -> Typed:
        """Writes past EXEC, at once; the result is only what is there already."""
        number = self._u("and", 32, self.machine.first(self.as_bits(lane, 32)), self.facts.wave - 1)
        scalar = self.machine.first(self.as_bits(value, 32))
        new = self.machine.with_lane(self.machine.spread(old.raw), number, scalar)
        self.machine.write_v(self.instruction.operands["d"].index, new, None)
        return Typed("u", 32, new)

    def _below(self, x: Typed, low: int) -> Typed:
        """How many bits of x are set for lanes below this one, counting lanes from `low`."""
        ops, lanes = self.ops, self.machine.lane_ids()
        first = ops.const("u", 32, low)
        at = self._u(
            "umin", 32, ops.binary("sub", 32, ops.binary("umax", 32, lanes, first), first), 32
        )
        wide = ops.resize(at, 32, 64, signed=False)
        ones = self._u("sub", 64, ops.binary("shl", 64, ops.const("u", 64, 1), wide), 1)
        mask = ops.resize(ones, 64, 32, signed=False)
        bits = ops.binary("and", 32, self.machine.spread(self.as_bits(x, 32)), mask)
        return Typed("u", 32, ops.unary("popcount", 32, bits))

    def word_lanes_below_low(self, x: Typed) -> Typed:
        return self._below(x, 0)

    def word_lanes_below_high(self, x: Typed) -> Typed:
        return self._below(x, 32)

    def _lane_index(self, address: Typed) -> Raw:
        at: Address = address.raw
        raw = self._u("add", 32, at.lanes, at.offset & 0xFFFFFFFF)
        return self._u("and", 32, self._u("lshr", 32, raw, 2), self.facts.wave - 1)

    def word_permute_backward(self, address: Typed, data: Typed) -> Typed:
        index = self._lane_index(address)
        moved = self.machine.permute(self.machine.spread(data.raw), index)
        mask = self.machine.exec_mask()
        if mask is not None:
            on = self.machine.permute(self.ops.bool_to_int(mask, 32), index)
            live = self.ops.compare("ne", 32, on, self.ops.const("u", 32, 0))
            moved = self.ops.select(live, moved, self.ops.const("u", 32, 0))
        return Typed("u", 32, moved)

    def word_permute_backward_fi(self, address: Typed, data: Typed) -> Typed:
        index = self._lane_index(address)
        return Typed("u", 32, self.machine.permute(self.machine.spread(data.raw), index))

    def word_permute_forward(self, address: Typed, data: Typed) -> Typed:
        """Each lane in turn: the highest sender wins."""
        index, value = self._lane_index(address), self.machine.spread(data.raw)
        mask = self.machine.exec_mask()
        result = self.machine.spread(self.ops.const("u", 32, 0))
        for lane in range(self.facts.wave):
            number = self.ops.const("u", 32, lane)
            target = self.machine.lane(index, number)
            new = self.machine.with_lane(result, target, self.machine.lane(value, number))
            if mask is not None:
                on = self.machine.lane(self.ops.bool_to_int(mask, 32), number)
                live = self.ops.compare("ne", 32, on, self.ops.const("u", 32, 0))
                new = self.ops.select(live, new, result)
            result = new
        return Typed("u", 32, result)

    def word_swizzle(self, address: Typed, imm: Typed | None = None) -> Typed:
        offset = self.instruction.get("offset0") | self.instruction.get("offset1") << 8
        sources = swizzle_lanes(offset, self.facts.wave)
        at: Address = address.raw
        return Typed("u", 32, self._picked(self.machine.spread(at.lanes), sources))

    def _picked(self, value: Raw, sources: list[int]) -> Raw:
        """Lanes by constant numbers; those that are off give 0."""
        moved = self.machine.pick(value, sources)
        mask = self.machine.exec_mask()
        if mask is None:
            return moved
        on = self.machine.pick(mask, sources)
        return self.ops.select(on, moved, self.ops.const("u", 32, 0))

    def _row_permute(self, x: Typed, low: Typed, high: Typed, other: bool) -> Typed:
        """Within rows of 16, or from the other row, by 16 selectors of 4 bits."""
        lanes = self.machine.lane_ids()
        place = self._u("and", 32, lanes, 15)
        wide = self.joined(self.as_bits(low, 32), self.as_bits(high, 32))
        shift = self.ops.resize(self._u("shl", 32, place, 2), 32, 64, signed=False)
        pick = self.ops.resize(self.ops.binary("lshr", 64, wide, shift), 64, 32, signed=False)
        return self._from_row(x, self._u("and", 32, pick, 15), other)

    def _from_row(self, x: Typed, pick: Raw, other: bool) -> Typed:
        row = self._u("and", 32, self.machine.lane_ids(), 0xFFFFFFF0)
        if other:
            row = self._u("xor", 32, row, 16)
        index = self.ops.binary("or", 32, row, pick)
        moved = self.machine.permute(self.machine.spread(x.raw), index)
        mask = self.machine.exec_mask()
        if mask is not None and not self.instruction.get("op_sel") & 1:  # op_sel[0]: fetch inactive
            on = self.machine.permute(self.ops.bool_to_int(mask, 32), index)
            live = self.ops.compare("ne", 32, on, self.ops.const("u", 32, 0))
            if self.instruction.get("op_sel") & 2:
                old: Raw = self.ops.const("u", 32, 0)
            else:
                old = self.lookup("d").raw
            moved = self.ops.select(live, moved, old)
        return Typed("u", 32, moved)

    def word_permlane16(self, x: Typed, low: Typed, high: Typed) -> Typed:
        return self._row_permute(x, low, high, False)

    def word_permlanex16(self, x: Typed, low: Typed, high: Typed) -> Typed:
        return self._row_permute(x, low, high, True)

    def word_permlane16_var(self, x: Typed, pick: Typed) -> Typed:
        return self._from_row(x, self._u("and", 32, self.as_bits(pick, 32), 15), False)

    def word_permlanex16_var(self, x: Typed, pick: Typed) -> Typed:
        return self._from_row(x, self._u("and", 32, self.as_bits(pick, 32), 15), True)

    def word_permlane64(self, x: Typed) -> Typed:
        wave = self.facts.wave
        half = [(i + wave // 2) % wave for i in range(wave)] if wave == 64 else list(range(wave))
        return Typed("u", 32, self.machine.pick(self.machine.spread(x.raw), half))

    # Addresses.

    def state_address(self) -> Typed:
        build: Callable[[], Address] = getattr(self, f"_{self.instruction.format}_address")
        return Typed("a", 64, build())

    def moved(self, address: Typed, by: int) -> Typed:
        at: Address = address.raw
        return Typed("a", 64, Address(at.space, at.base, at.lanes, at.offset + by))

    def _ds_address(self) -> Address:
        lanes = self.fetched(self.instruction.operands["address"]).raw
        pair = "2addr" in self.instruction.row.name
        offset = 0 if pair else self.instruction.offset
        return Address("lds", None, self.machine.spread(lanes), offset)

    def _global_address(self) -> Address:
        operands = self.instruction.operands
        base = self.fetched(operands["base"]).raw if "base" in operands else None
        lanes = self.machine.spread(self.fetched(operands["address"]).raw)
        if self.instruction.get("scale_offset"):
            lanes = self._u("mul", 32 if base is not None else 64, lanes, self._access_bytes())
        return Address("global", base, lanes, self.instruction.offset)

    def _access_bytes(self) -> int:
        """What a lane reads or writes, as the meaning says."""
        found = re.search(r"address, (\d+)|[uif](\d+)\(data", self.instruction.meaning)
        if found is None:
            raise NotInEngine(f"{self.instruction.name}: scale_offset")
        return int(found[1] or found[2]) // 8

    def _flat_address(self) -> Address:
        at = self._global_address()
        return Address("flat", at.base, at.lanes, at.offset)

    def _scratch_address(self) -> Address:
        operands = self.instruction.operands
        base = self.fetched(operands["base"]).raw if "base" in operands else None
        lanes = None
        if "address" in operands:
            lanes = self.machine.spread(self.fetched(operands["address"]).raw)
        return Address("scratch", base, lanes, self.instruction.offset)

    def _smem_address(self) -> Address:
        operands = self.instruction.operands
        base = self.fetched(operands["base"])
        if base.kind == "w":  # a buffer: its address is in the first two words
            low, high = base.raw[0], self._u("and", 32, base.raw[1], 0xFFFF)
            base = Typed("u", 64, self.joined(low, high))
        raw = base.raw
        if "soffset" in operands:
            extra = self.fetched(operands["soffset"]).raw
            if self.instruction.get("scale_offset"):
                extra = self._u("mul", 32, extra, self._access_bytes())
            raw = self.ops.binary("add", 64, raw, self.ops.resize(extra, 32, 64, signed=False))
        return Address("scalar", raw, None, self.instruction.offset)

    def _mubuf_address(self) -> Address:
        """base: the descriptor's words; lanes: (index, offset), each None where absent."""
        operands = self.instruction.operands
        words = self.words_of(self.fetched(operands["base"]), 4)
        soffset = self.as_bits(self.fetched(operands["soffset"]), 32)
        index = offset = None
        if "address" in operands:
            parts = self.words_of(self.fetched(operands["address"]), 2)
            parts = [self.machine.spread(part) for part in parts]
            if self.instruction.get("idxen"):
                index = parts.pop(0)
            if self.instruction.get("offen"):
                offset = parts.pop(0)
        return Address("buffer", (*words, soffset), (index, offset), self.instruction.get("offset"))

    # Memory.

    def _loaded(self, words: list[Raw], bits: int) -> Typed:
        if len(words) == 1:
            return Typed("u", 32, words[0])
        if len(words) == 2:
            return Typed("u", 64, self.joined(words[0], words[1]))
        return Typed("w", bits, words)

    def _load(self, address: Typed, bits: Typed, signed: bool) -> Typed:
        size = int(bits.raw)
        return self._loaded(self.machine.load(address.raw, size, signed=signed), size)

    def word_load(self, address: Typed, bits: Typed) -> Typed:
        return self._load(address, bits, False)

    def word_load_signed(self, address: Typed, bits: Typed) -> Typed:
        return self._load(address, bits, True)

    word_lds_load, word_lds_load_signed = word_load, word_load_signed

    def word_store(self, address: Typed, bits: Typed, value: Typed) -> Typed:
        size = int(bits.raw)
        words = self.words_of(value, max(1, size // 32))
        self.machine.store(address.raw, size, [self.machine.spread(word) for word in words])
        return Typed("n", 0, 0)

    word_lds_store = word_store

    def word_load_scalar(self, address: Typed, bits: Typed) -> Typed:
        size = int(bits.raw)
        return self._loaded(self.machine.load_scalar(address.raw, size, signed=False), size)

    def word_load_scalar_signed(self, address: Typed, bits: Typed) -> Typed:
        size = int(bits.raw)
        return self._loaded(self.machine.load_scalar(address.raw, size, signed=True), size)


def swizzle_lanes(offset: int, wave: int) -> list[int]:
    """The source lanes of a ds_swizzle. Source: RDNA3 ISA, DS_SWIZZLE_B32."""
    out = []
    for i in range(wave):
        at, block = i & 31, i & ~31
        if offset >= 0xE000:  # the order of a Fourier transform: bits of the lane, reversed
            keep = offset & 31
            source = int(f"{at:05b}"[::-1], 2) >> keep.bit_count() | at & keep
        elif offset >= 0xC000:  # rotate
            amount, mask = offset >> 5 & 31, offset & 31
            step = -amount if offset >> 10 & 1 else amount
            source = (at & mask) | ((at + step) & ~mask & 31)
        elif offset & 0x8000:
            source = (at & ~3) + (offset >> 2 * (at & 3) & 3)
        else:
            source = ((at & (offset & 31)) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)
        out.append(block + source)
    return out
