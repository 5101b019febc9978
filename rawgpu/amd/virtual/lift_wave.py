"""The lifter's machine: registers as LLVM values within a basic block, kept in memory between.

At the end of a block every changed register is stored, so that a wave can stop, be interpreted and
go on at the start of any block. Loads and stores of lanes call helpers (`lift_memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rawgpu.amd.virtual.lift_memory import Helpers
from rawgpu.amd.virtual.wave_operands import Address, Facts
from rawgpu.amd.virtual.wave_state import (
    EXEC,
    LOAD_SAMPLES,
    SAMPLES,
    SCALAR_SAMPLES,
    STORE_SAMPLES,
    VECTOR_OFFSET,
    Word,
)
from rawgpu.compiler_bridge.text import Block, Function, Value
from rawgpu.compiler_bridge.types import Type, i1, i8, i32, i64, ptr, vector
from rawgpu.virtual.lift import LlvmLanes, integer
from rawgpu.virtual.meaning import NotInEngine, NotInNative, Typed

PAIR_AHEAD = Value(i32, "pair ahead")
DEALLOC_VGPRS = 3
"""The message with which a wave of RDNA 3 and later gives up its vector registers."""
REPLAY_BIT = 25
"""Of MODE on gfx1250: how faults are retried. Nothing that a wave can see."""


def _may_cross(address: Address, bits: int) -> bool:
    """Whether an access to scratch may lie across two dwords, as far as is known beforehand."""
    known = address.base is None and address.lanes is None
    step = min(bits // 8, 4)
    return address.space == "scratch" and step > 1 and not (known and address.offset % step == 0)


class LiftMachine:
    """`Machine` that writes LLVM IR. One for a function; `begin_block` forgets cached registers."""

    def __init__(
        self, function: Function, facts: Facts, helpers: Helpers, flushed: frozenset[int]
    ) -> None:
        self.f, self.facts, self.helpers = function, facts, helpers
        self.lanes = facts.wave
        self.ops = LlvmLanes(function, facts.wave)
        self.flushed_widths = flushed
        self.arithmetic = self.ops  # other rounding, and FP16_OVFL, are not for native code
        self.saturates_small = False
        self.row = vector(i32, facts.wave)
        self.mask_type = integer(facts.wave)
        self.state = function.args[0]
        self.exec_full = False
        self.pc = 0
        self.entry = 0
        self.pair: Value | None = None
        """For an instruction that loads two words side by side: `PAIR_AHEAD`, then the second."""
        self._sites = 0
        self.begin_block()

    # Blocks.

    def begin_block(self) -> None:
        self._s: dict[int, Value] = {}
        self._v: dict[int, Value] = {}
        self._dirty: set[tuple[str, int]] = set()
        self._scc: Value | None = None
        self._exec: Value | None = None

    def flush(self) -> None:
        """Store what was changed."""
        for kind, index in sorted(self._dirty):
            if kind == "s":
                self._store_scalar(index)
            elif kind == "v":
                self.f.store(self._v[index], self._row_at(index), align=64)
            else:
                assert self._scc is not None
                self.f.store(self.f.cast("zext", self._scc, i64), self._at(Word.SCC))
        self._dirty.clear()

    def _store_scalar(self, index: int) -> None:
        """Pairs are stored, as they are loaded, in one: halves would have to be joined first."""
        if index % 2 and ("s", index - 1) in self._dirty:
            return
        value = self._s[index]
        if index % 2 == 0 and ("s", index + 1) in self._dirty:
            value = self._joined(value, self._s[index + 1])
        self.f.store(value, self._at(4 * index), align=4)

    def _joined(self, low: Value, high: Value) -> Value:
        f = self.f
        upper = f.shl(f.cast("zext", high, i64), f.const(i64, 32))
        return f.or_(upper, f.cast("zext", low, i64))

    def snapshot(self) -> tuple[Any, ...]:
        """What an instruction that turns out not to be lifted must be undone to."""
        lines = [(block, len(block.lines)) for block in self._written_blocks()]
        return (
            dict(self._s), dict(self._v), set(self._dirty), self._scc, self._exec, self.exec_full,
            self.flushed_widths, lines, len(self.f.blocks), self.f.current,
        )  # fmt: skip

    def restore(self, saved: tuple[Any, ...]) -> None:
        scalars, vectors, dirty, self._scc, self._exec, self.exec_full, *rest = saved
        self._s, self._v, self._dirty = dict(scalars), dict(vectors), set(dirty)
        self.flushed_widths, lines, count, self.f.current = rest
        del self.f.blocks[count:]
        for block, length in lines:
            del block.lines[length:]

    def _written_blocks(self) -> set[Block]:
        """Those there are that an instruction may write to; allocas in the first do no harm."""
        return {self.f.current}

    def _at(self, offset: int) -> Value:
        return self.f.gep(self.state, offset, i8)

    def _row_at(self, index: int) -> Value:
        return self._at(VECTOR_OFFSET + index * self.facts.wave * 4)

    def word(self, word: Word) -> Value:
        return self.f.load(i64, self._at(word))

    def put_word(self, word: Word, value: Value | int) -> None:
        raw = self.f.const(i64, value) if isinstance(value, int) else value
        self.f.store(raw, self._at(word))

    # Registers.

    def read_s(self, index: int) -> Value:
        found = self._s.get(index)
        if found is None:
            found = self._s[index] = self.f.load(i32, self._at(4 * index))
        return found

    def write_s(self, index: int, value: Value) -> None:
        self._s[index] = value
        self._dirty.add(("s", index))
        if index in (EXEC, EXEC + 1):
            self._exec = None
            self.exec_full = False

    def read_v(self, index: int) -> Value:
        found = self._v.get(index)
        if found is None:
            found = self._v[index] = self.f.load(self.row, self._row_at(index), align=64)
        return found

    def write_v(self, index: int, value: Value, mask: Value | None) -> None:
        value = self.ops.spread(value)
        if mask is not None:
            value = self.f.select(mask, value, self.read_v(index))
        self._v[index] = value
        self._dirty.add(("v", index))

    def read_scc(self) -> Value:
        if self._scc is None:
            self._scc = self.f.cast("trunc", self.word(Word.SCC), i1)
        return self._scc

    def write_scc(self, value: Value) -> None:
        self._scc = value
        self._dirty.add(("scc", 0))

    def exec_bits(self) -> Value:
        low = self.read_s(EXEC)
        return low if self.facts.wave == 32 else self._joined(low, self.read_s(EXEC + 1))

    def exec_mask(self) -> Value | None:
        if self.exec_full:
            return None
        if self._exec is None:
            self._exec = self.mask_of_bits(self.exec_bits())
        return self._exec

    def mask_of_bits(self, bits: Value) -> Value:
        if bits.text[0] not in "%@":
            bits = self.f.or_(bits, self.f.const(bits.type, 0))
        return self.f.bitcast(bits, vector(i1, self.lanes))

    def bits_of_mask(self, mask: Value) -> Value:
        return self.f.bitcast(mask, self.mask_type)

    def lane_ids(self) -> Value:
        return self.f.const_vector(i32, range(self.lanes))

    # Lanes.

    def spread(self, value: Value) -> Value:
        return self.ops.spread(value)

    def first(self, value: Value) -> Value:
        return self.f.extract(value, 0) if value.type.lanes else value

    def own(self, value: Any) -> Any:
        return value

    def permute(self, value: Value, lanes: Value) -> Value:
        name = self.helpers.permute()
        return self.f.call(name, self.row, [self.spread(value), self.spread(lanes)])

    def pick(self, value: Value, lanes: list[int]) -> Value:
        return self.f.shuffle(value, value, lanes)

    def on_rows(
        self, function: Callable[..., Sequence[Value]], groups: Sequence[Sequence[Value]]
    ) -> list[Value]:
        raise NotInEngine("a function of NumPy arrays")

    def constant_mask(self, lanes: list[bool]) -> Value:
        return self.f.const_vector(i1, lanes)

    def lane(self, value: Value, number: Value) -> Value:
        return self.f.extract(value, number)

    def with_lane(self, value: Value, number: Value, scalar: Value) -> Value:
        return self.f.insert(value, scalar, number)

    def first_active(self) -> Value:
        if self.exec_full:
            return self.f.const(i32, 0)
        bits = self.exec_bits()
        no = self.f.const(i1, False)
        found = self.f.intrinsic("llvm.cttz", bits.type, [bits, no])
        none = self.f.icmp("eq", bits, self.f.const(bits.type, 0))
        found = self.f.select(none, self.f.const(bits.type, 0), found)
        return found if bits.type == i32 else self.f.cast("trunc", found, i32)

    # Memory.

    def _note_pc(self) -> None:
        """Which instruction it was, should this access fault."""
        offset = self.f.const(i64, self.pc)
        self.f.store(offset, self._at(Word.FAULT_PC), volatile=True)

    def _sample(self, where: int, va: Value, size: int = 1) -> None:
        """Note an address that is accessed: strict caches want some of each launch."""
        self._sites += 1
        if where == STORE_SAMPLES:
            va = self.f.or_(va, self.f.const(i64, (size - 1) << 56))
        self.f.store(va, self._at(where + 8 * (self._sites % SAMPLES)))

    def _sample_lanes(self, where: int, address: Address, size: int) -> None:
        if not self.exec_full or address.space != "global":
            return
        f = self.f
        va = self.first(address.lanes)
        if address.base is not None:
            va = f.add(address.base, f.cast("zext", va, i64))
        self._sample(where, f.add(va, f.const(i64, address.offset)), min(size, 4))

    def _safe_base(self, base: Value, reach: int) -> Value:
        """A GPU address as a host pointer; one beyond the window as the window's start."""
        limit = self.word(Word.LIMIT)
        last = self.f.sub(limit, self.f.const(i64, reach))
        inside = self.f.icmp("ult", base, last)
        safe = self.f.select(inside, base, self.f.const(i64, 0))
        return self.f.cast("inttoptr", self.f.add(safe, self.word(Word.DELTA)), ptr)

    def _places(self, address: Address, size: int) -> list[tuple[str, Value, Value, Value, int]]:
        """Helper kind, base pointer, lanes, bound, bytes: one for each access that is made."""
        f, zero = self.f, self.f.const(i64, 0)
        if address.space == "lds":
            lanes = address.lanes
            if address.offset:
                lanes = f.add(lanes, f.const(self.row, address.offset))
            base = f.cast("inttoptr", self.word(Word.LDS), ptr)
            return [("lds", base, lanes, self.word(Word.LDS_BYTES), size)]
        if address.space == "global" and address.base is not None:
            start = f.add(address.base, f.const(i64, address.offset))
            return [("near", self._safe_base(start, 1 << 33), address.lanes, zero, size)]
        if address.space == "global":
            lanes = address.lanes
            if address.offset:
                lanes = f.add(lanes, f.const(lanes.type, address.offset))
            delta = f.cast("inttoptr", self.word(Word.DELTA), ptr)
            return [("far", delta, lanes, self.word(Word.LIMIT), size)]
        if address.space == "scratch":
            base = self._safe_base(self.word(Word.SCRATCH), 1 << 33)
            step = min(size, 4)
            return [
                ("near", base, self._swizzled(address, at), zero, step)
                for at in range(0, size, step)
            ]
        raise NotInEngine(f"{address.space} memory")

    def _swizzled(self, address: Address, at: int) -> Value:
        f = self.f
        total: Value = f.const(self.row, address.offset + at)
        for part in (address.base, address.lanes):
            if part is not None:
                total = f.add(total, self.spread(part))
        dword = f.lshr(total, f.const(self.row, 2))
        place = f.mul(dword, f.const(self.row, 4 * self.lanes))
        place = f.add(place, f.and_(total, f.const(self.row, 3)))
        return f.add(place, f.mul(self.lane_ids(), f.const(self.row, 4)))

    def _mask_argument(self) -> list[Value]:
        return [] if self.exec_full else [self.exec_bits()]

    def load(self, address: Address, bits: int, *, signed: bool) -> list[Value]:
        if self.pair is not None and address.space == "lds":
            first, self.pair = self.pair, None
            return self._load_pair(address) if first is PAIR_AHEAD else [first]
        return self._load(address, bits, signed=signed)

    def _load_pair(self, address: Address) -> list[Value]:
        """Two words side by side in one access: this one, and the next that is asked for."""
        low, self.pair = self._load(address, 64, signed=False, kind="words")
        return [low]

    def _load(
        self, address: Address, bits: int, *, signed: bool, kind: str | None = None
    ) -> list[Value]:
        if address.space == "flat":
            raise NotInEngine("flat memory")
        if _may_cross(address, bits):
            return self._load_bytes(address, bits, signed=signed)
        self._note_pc()
        self._sample_lanes(LOAD_SAMPLES, address, bits // 8)
        words: list[Value] = []
        for own, base, lanes, bound, size in self._places(address, bits // 8):
            masked = self._mask_argument()
            count = max(1, size // 4)
            name = self.helpers.load(kind or own, size, bool(masked), signed and size < 4)
            space, wanted = self._result_rows(count)
            self.f.call(name, Type("void", 0), [base, lanes, bound, *masked, space])
            if not wanted:
                words += [self.f.undef(self.row)] * count
                continue
            words += (
                [
                    self.f.load(self.row, self.f.gep(space, i * self.lanes * 4, i8), align=64)
                    for i in range(count)
                ]
                if count > 1
                else [self.f.load(self.row, space, align=64)]
            )
        return words

    def _result_rows(self, count: int) -> tuple[Value, bool]:
        """Memory for what is loaded, and whether the values are wanted too."""
        return self.helpers.room(self.f, count), True

    def _load_bytes(self, address: Address, bits: int, *, signed: bool) -> list[Value]:
        """A lane's dwords in scratch are apart, and the address may be of no dword."""
        f, words = self.f, []
        for at in range(0, bits // 8, 4):
            word: Value = f.const(self.row, 0)
            count = min(4, bits // 8 - at)
            for i in range(count):
                (byte,) = self._load(
                    replace(address, offset=address.offset + at + i), 8, signed=False
                )
                word = f.or_(word, f.shl(byte, f.const(self.row, 8 * i)))
            if signed and count < 4:
                unused = f.const(self.row, 32 - 8 * count)
                word = f.ashr(f.shl(word, unused), unused)
            words.append(word)
        return words

    def _store_bytes(self, address: Address, bits: int, words: list[Value]) -> None:
        f = self.f
        rows = [self.spread(word) for word in words]
        for at in range(bits // 8):
            byte = f.lshr(rows[at // 4], f.const(self.row, 8 * (at % 4)))
            self.store(replace(address, offset=address.offset + at), 8, [byte])

    def store(self, address: Address, bits: int, words: list[Value]) -> None:
        if address.space == "flat":
            raise NotInEngine("flat memory")
        if _may_cross(address, bits):
            self._store_bytes(address, bits, words)
            return
        self._note_pc()
        self._sample_lanes(STORE_SAMPLES, address, bits // 8)
        places = self._places(address, bits // 8)
        for number, (kind, base, lanes, bound, size) in enumerate(places):
            count = max(1, size // 4)
            part = words[number * count : (number + 1) * count]
            masked = self._mask_argument()
            name = self.helpers.store(kind, size, bool(masked))
            rows = [self.spread(word) for word in part]
            self.f.call(name, Type("void", 0), [base, lanes, bound, *masked, *rows])

    def load_scalar(self, address: Address, bits: int, *, signed: bool) -> list[Value]:
        self._note_pc()
        f = self.f
        start = f.add(address.base, f.const(i64, address.offset))
        if bits >= 32:
            start = f.and_(start, f.const(i64, -4))
        self._sample(SCALAR_SAMPLES, start)
        base = self._safe_base(start, 1 << 12)
        if bits < 32:
            narrow = f.load(integer(bits), base, align=1)
            return [f.cast("sext" if signed else "zext", narrow, i32)]
        return [f.load(i32, f.gep(base, 4 * i, i8), align=4) for i in range(bits // 32)]

    def atomic(self, address: Address, what: str, values: list[Typed]) -> Typed:
        raise NotInEngine(f"atomic_{what}")

    # The rest.

    def program_counter(self, pc: int) -> Value:
        """Relative to where the code lies, which may differ from launch to launch."""
        return self.f.add(self.word(Word.CODE), self.f.const(i64, pc - self.entry))

    def set_mode(self, field: int, count: int, value: int) -> None:
        """Denormals of float32 and of the others; rounding other than to nearest is not done."""
        if field == 0:
            if value & 15:
                raise NotInNative("a rounding mode")
            return
        widths = set(self.flushed_widths) - {16, 32, 64}
        if value & 3 != 3:
            widths.add(32)
        if value >> 2 & 3 != 3:
            widths |= {16, 64}
        self.flushed_widths = frozenset(widths)
        old = self.f.and_(self.word(Word.MODE), self.f.const(i64, ~0xF0))
        self.put_word(Word.MODE, self.f.or_(old, self.f.const(i64, value << 4)))

    def set_mode_bits(self, offset: int, count: int, value: Value) -> None:
        if (offset, count) == (REPLAY_BIT, 1):
            return
        if not value.text.isdigit() or offset < 4 or offset + count > 8:
            raise NotInNative("s_setreg of MODE")
        shift, ones = offset - 4, (1 << count) - 1
        denormals = (0 if 32 in self.flushed_widths else 3) | (
            0 if 64 in self.flushed_widths else 12
        )
        new = denormals & ~(ones << shift) | (int(value.text) & ones) << shift
        self.set_mode(4, 4, new)

    def hardware_register(self, number: int) -> Value:
        if number in (20, 21):
            whole = self.word(Word.SCRATCH)
            part = self.f.lshr(whole, self.f.const(i64, 32 * (number - 20)))
            return self.f.cast("trunc", part, i32)
        raise NotInEngine(f"hardware register {number}")

    def clock(self) -> Value:
        raise NotInEngine("clock")

    def message(self, kind: int) -> Value:
        if kind == DEALLOC_VGPRS and self.facts.message_returns:  # nobody sees that it did
            return self.f.const(i32, 0)
        raise NotInEngine("message")
