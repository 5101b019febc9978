"""Strips: instructions that work lane by lane, done for sixteen lanes at a time.

A register of 64 lanes is four of the host's, so that a few instructions of a wave fill all that the
host has. A run of instructions that keep to their lanes is therefore a loop over strips of lanes,
in which a register of the wave is one of the host: what runs between first and last instruction
stays in registers. What does not keep to its lanes, and scalar instructions, goes in front of the
loop, as long as it needs nothing that the loop makes; then the loop ends, and another begins.

Vector registers pass from one to the other in memory. One that is written in front of the loop
while the loop still needs what it had before gets a row of its own (`_placed`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rawgpu.amd.virtual.lift_memory import CHUNK, Helpers
from rawgpu.amd.virtual.lift_wave import LiftMachine
from rawgpu.amd.virtual.wave_execute import Execution
from rawgpu.amd.virtual.wave_operands import VCC, Address, Facts
from rawgpu.amd.virtual.wave_state import EXEC, VECTOR_OFFSET
from rawgpu.compiler_bridge.text import Block, Function, Value
from rawgpu.compiler_bridge.types import i1, i8, i32, i64, vector
from rawgpu.virtual.lift import integer
from rawgpu.virtual.meaning import Typed

STRIP = CHUNK
MOST_ROWS = 32
"""Rows for registers that are written in front of a loop; more would not stay in the cache."""
UNROLLED_LINES = 320
"""Of all strips together, up to which a loop's body is written out for each."""
_NAME = re.compile(r"%v\d+")


class CrossesLanes(Exception):
    """Needs more than a strip of lanes, or what the loop under way makes."""


class StripMachine(LiftMachine):
    """A `LiftMachine` that also writes strips. Code goes in front of the loop, or `in_strip`."""

    def __init__(
        self, function: Function, facts: Facts, helpers: Helpers, flushed: frozenset[int]
    ) -> None:
        self.in_strip = False
        self._rows: Value | None = None
        super().__init__(function, facts, helpers, flushed)

    def begin_block(self) -> None:
        super().begin_block()
        self._begin_run()

    def _begin_run(self) -> None:
        self.head: Block | None = None
        """Of the loop."""
        self.front = self.body = self.f.current
        """Where code goes that is not in strips, and in strips."""
        self._strip: dict[int, Value] = {}
        self._changed: set[int] = set()
        """Vector registers whose latest value the loop makes, or must store."""
        self._touched: set[int] = set()
        """Those whose rows the loop reads."""
        self._placed: dict[int, Value] = {}
        """Those whose latest value is in a row of its own."""
        self._used = 0
        self._parts: dict[int, tuple[Value, int]] = {}
        """Scalar registers that the loop makes: of which lane mask they are which word."""
        self._masks: dict[int, Value] = {}
        """These masks, by the first register."""
        self._strip_exec: Value | None = None
        self._target: range | None = None
        self._next = 0

    def snapshot(self) -> tuple[Any, ...]:
        own = (
            self.head, self.front, self.body, dict(self._strip), set(self._changed),
            set(self._touched), dict(self._placed), self._used, dict(self._parts),
            dict(self._masks), self._strip_exec,
        )  # fmt: skip
        return super().snapshot(), own

    def restore(self, saved: tuple[Any, ...]) -> None:
        basis, own = saved
        super().restore(basis)
        (
            self.head, self.front, self.body, self._strip, self._changed, self._touched,
            self._placed, self._used, self._parts, self._masks, self._strip_exec,
        ) = own  # fmt: skip
        for name in ("_strip", "_placed", "_parts", "_masks"):
            setattr(self, name, dict(getattr(self, name)))
        self._changed, self._touched = set(self._changed), set(self._touched)
        self._target = None

    def _written_blocks(self) -> set[Block]:
        return {self.f.current, self.front, self.body}

    # Inside and outside.

    @contextmanager
    def strip(self) -> Iterator[None]:
        """Write to the loop's body."""
        f = self.f
        self.front = f.current
        if self.head is None:
            self.head = self.body = f.block("strip")
            f.at(self.head)
            self._lane = f.phi(i64)
            offset = f.add(self._lane, self._lane)
            self._chunk = f.gep(self.state, f.add(offset, offset), i8)
        f.at(self.body)
        self._shape(STRIP)
        self.in_strip = True
        try:
            yield
            self.body = f.current
        finally:
            self.in_strip = False
            self._shape(self.facts.wave)
            f.at(self.front)

    def _shape(self, lanes: int) -> None:
        self.lanes = self.ops.lanes = lanes
        self.row, self.mask_type = vector(i32, lanes), integer(lanes)

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """Write in front of the loop."""
        inner = self.f.current
        if self.in_strip:
            self.f.at(self.front)
        yield
        if self.in_strip:
            self.front = self.f.current
            self.f.at(inner)

    def _whole(self) -> None:
        if self.in_strip:
            raise CrossesLanes

    def flush(self) -> None:
        self.close()
        super().flush()

    # The loop.

    def close(self) -> None:
        """End the loop: registers are in memory then, or scalars."""
        if self.head is None:
            return
        f = self.f
        self.front = f.current
        self._store_rows()
        f.at(self.body)
        self._shape(STRIP)
        self.in_strip = True
        for index in sorted(self._changed):
            f.store(self.read_v(index), self._strip_row(index), align=64)
        self.in_strip = False
        self._shape(self.facts.wave)
        strips = self.facts.wave // STRIP
        masks = {mask.text: mask for mask, _ in self._parts.values()}
        if self.body is self.head and len(self.body.lines) * strips <= UNROLLED_LINES:
            made = self._unrolled(list(masks.values()))
        else:
            made = self._loop(list(masks.values()))
        self._v.clear()
        for index, (mask, number) in self._parts.items():
            whole = made[mask.text]
            moved = f.lshr(whole, f.const(whole.type, 32)) if number else whole
            self._s[index] = f.cast("trunc", moved, i32)
            self._dirty.add(("s", index))
        self._begin_run()

    def _store_rows(self) -> None:
        for kind, index in sorted(self._dirty):
            if kind == "v":
                self.f.store(self._v[index], self._row_at(index), align=64)
        self._dirty = {(kind, index) for kind, index in self._dirty if kind != "v"}

    def _loop(self, masks: list[Value]) -> dict[str, Value]:
        """The lane masks that are made, whole, by their names."""
        f, front, head, lane = self.f, self.front, self.head, self._lane
        assert head is not None
        after, made, type_ = f.block("after"), {}, self.mask_type
        f.at(head)
        sums = [f.phi(type_, (f.const(type_, 0), front)) for _ in masks]
        f.at(self.body)
        for total, mask in zip(sums, masks, strict=True):
            bits = f.cast("zext", f.bitcast(mask, integer(STRIP)), type_)
            moved = f.shl(bits, f.cast("trunc", lane, type_))
            made[mask.text] = f.or_(total, moved)
            total.add(made[mask.text], self.body)
        following = f.add(lane, f.const(i64, STRIP))
        lane.add(f.const(i64, 0), front)
        lane.add(following, self.body)
        more = f.icmp("ne", following, f.const(i64, self.facts.wave))
        f.condbr(more, head, after)
        f.at(front)
        f.br(head)
        f.at(after)
        return made

    def _unrolled(self, masks: list[Value]) -> dict[str, Value]:
        """The body once for each strip, instead of a loop."""
        f, head = self.f, self.head
        assert head is not None
        f.blocks.remove(head)
        f.at(self.front)
        names = [line.split(" = ", 1)[0].strip() for line in head.lines if " = " in line]
        parts: dict[str, list[Value]] = {mask.text: [] for mask in masks}
        for lane in range(0, self.facts.wave, STRIP):
            new = {name: f.fresh() for name in names}
            new[self._lane.text] = str(lane)

            def renamed(match: re.Match[str], new: dict[str, str] = new) -> str:
                return new.get(match[0], match[0])

            self.front.lines += [_NAME.sub(renamed, line) for line in head.lines]
            for name, part in parts.items():
                part.append(Value(vector(i1, STRIP), new.get(name, name)))
        return {name: self._side_by_side(part) for name, part in parts.items()}

    def _side_by_side(self, parts: list[Value]) -> Value:
        f = self.f
        while len(parts) > 1:
            parts = [
                f.shuffle(low, high, range(2 * low.type.lanes))
                for low, high in zip(parts[::2], parts[1::2], strict=True)
            ]
        return f.bitcast(parts[0], self.mask_type)

    # Scalar registers.

    def read_s(self, index: int) -> Value:
        if index in self._parts:
            raise CrossesLanes
        if index not in self._s:
            with self._outside():
                super().read_s(index)
        return self._s[index]

    def write_s(self, index: int, value: Value) -> None:
        self._whole()
        self._forget_part(index)
        super().write_s(index, value)

    def _forget_part(self, index: int) -> None:
        self._parts.pop(index, None)
        for first in (index - 1, index):
            self._masks.pop(first, None)
        if index in (EXEC, EXEC + 1):
            self._strip_exec = None

    def read_scc(self) -> Value:
        with self._outside():
            return super().read_scc()

    def write_scc(self, value: Value) -> None:
        self._whole()
        super().write_scc(value)

    # Lane masks.

    def write_mask_part(self, index: int, mask: Value) -> None:
        """A lane mask into scalar registers, which have all of it after the loop."""
        for number in range(self.facts.wave // 32):
            self._forget_part(index + number)
            self._s.pop(index + number, None)
            self._dirty.discard(("s", index + number))
            self._parts[index + number] = mask, number
        self._masks[index] = mask
        if index == EXEC:
            self._exec, self.exec_full = None, False

    def mask_part(self, index: int) -> Value | None:
        """The strip's part of a lane mask that the loop made."""
        return self._masks.get(index) if self.in_strip else None

    def exec_mask(self) -> Value | None:
        if not self.in_strip or self.exec_full:
            return super().exec_mask()
        if EXEC in self._masks:
            return self._masks[EXEC]
        if self._strip_exec is None:
            self._strip_exec = self.mask_of_bits(self.exec_bits())
        return self._strip_exec

    def mask_of_bits(self, bits: Value) -> Value:
        if not self.in_strip:
            return super().mask_of_bits(bits)
        lane = self.f.cast("trunc", self._lane, bits.type) if bits.type != i64 else self._lane
        part = self.f.cast("trunc", self.f.lshr(bits, lane), integer(STRIP))
        return self.f.bitcast(part, vector(i1, STRIP))

    def bits_of_mask(self, mask: Value) -> Value:
        self._whole()
        return super().bits_of_mask(mask)

    # Vector registers.

    def _strip_row(self, index: int) -> Value:
        return self.f.gep(self._chunk, VECTOR_OFFSET + index * self.facts.wave * 4, i8)

    def read_v(self, index: int) -> Value:
        if not self.in_strip:
            if index in self._v:
                return self._v[index]
            if index in self._placed:
                found = self._v[index] = self.f.load(self.row, self._placed[index], align=64)
                return found
            if index in self._changed:
                raise CrossesLanes
            return super().read_v(index)
        if index not in self._strip:
            self._strip[index] = self._read_part(index)
        return self._strip[index]

    def _read_part(self, index: int) -> Value:
        f = self.f
        if index in self._placed:
            lane_bytes = f.shl(self._lane, f.const(i64, 2))
            return f.load(self.row, f.gep(self._placed[index], lane_bytes, i8), align=64)
        if ("v", index) in self._dirty:
            with self._outside():
                f.store(self._v[index], self._row_at(index), align=64)
            self._dirty.discard(("v", index))
        self._touched.add(index)
        return f.load(self.row, self._strip_row(index), align=64)

    def write_v(self, index: int, value: Value, mask: Value | None) -> None:
        if self._target is not None and index in self._target:
            return  # the load put it there
        if self.in_strip:
            value = self.ops.spread(value)
            if mask is not None:
                value = self.f.select(mask, value, self.read_v(index))
            self._forget_row(index)
            self._strip[index] = value
            self._changed.add(index)
            return
        super().write_v(index, value, mask)
        if index in self._touched or index in self._changed:
            value = self._v[index]
            row = self._new_rows(range(index, index + 1))
            self.f.store(value, row, align=64)
            self._v[index] = value

    def _forget_row(self, index: int) -> None:
        self._v.pop(index, None)
        self._dirty.discard(("v", index))
        self._placed.pop(index, None)
        self._strip.pop(index, None)

    def _new_rows(self, registers: range) -> Value:
        """Rows of their own for registers that are written in front of the loop."""
        if self._used + len(registers) > MOST_ROWS:
            raise CrossesLanes
        if self._rows is None:
            self._rows = self.f.alloca(vector(i32, self.facts.wave), MOST_ROWS, align=64)
        size = 4 * self.facts.wave
        first = self.f.gep(self._rows, self._used * size, i8)
        for number, index in enumerate(registers):
            self._forget_row(index)
            self._placed[index] = self.f.gep(self._rows, (self._used + number) * size, i8)
            self._changed.add(index)
        self._used += len(registers)
        return first

    # Loads that write registers where they are.

    def load_to(self, registers: range | None) -> None:
        """The next instruction does nothing but load these; None: it is another."""
        self._target = registers
        self._next = registers.start if registers is not None else 0

    def _result_rows(self, count: int) -> tuple[Value, bool]:
        if self._target is None:
            return super()._result_rows(count)
        registers = range(self._next, self._next + count)
        assert registers[-1] in self._target, registers
        self._next += count
        if any(i in self._touched or i in self._changed for i in registers):
            return self._new_rows(registers), False
        for index in registers:
            self._forget_row(index)
        return self._row_at(registers.start), False

    # Lanes.

    def lane_ids(self) -> Value:
        if not self.in_strip:
            return super().lane_ids()
        first = self.f.splat(self.f.cast("trunc", self._lane, i32), STRIP)
        return self.f.add(first, self.f.const_vector(i32, range(STRIP)))

    def first(self, value: Value) -> Value:
        if value.type.lanes:
            self._whole()
        return super().first(value)

    def pick(self, value: Value, lanes: list[int]) -> Value:
        if not self.in_strip:
            return super().pick(value, lanes)
        own = lanes[:STRIP]
        for at, lane in enumerate(lanes):
            if lane - at // STRIP * STRIP != own[at % STRIP] or not 0 <= own[at % STRIP] < STRIP:
                raise CrossesLanes
        return self.f.shuffle(value, value, own)

    def constant_mask(self, lanes: list[bool]) -> Value:
        if not self.in_strip:
            return super().constant_mask(lanes)
        if lanes != lanes[:STRIP] * (self.facts.wave // STRIP):
            raise CrossesLanes
        return self.f.const_vector(i1, lanes[:STRIP])

    def permute(self, value: Value, lanes: Value) -> Value:
        self._whole()
        return super().permute(value, lanes)

    def on_rows(
        self, function: Callable[..., Sequence[Value]], groups: Sequence[Sequence[Value]]
    ) -> list[Value]:
        self._whole()
        return super().on_rows(function, groups)

    def lane(self, value: Value, number: Value) -> Value:
        self._whole()
        return super().lane(value, number)

    def with_lane(self, value: Value, number: Value, scalar: Value) -> Value:
        self._whole()
        return super().with_lane(value, number, scalar)

    def first_active(self) -> Value:
        self._whole()
        return super().first_active()

    # Memory and the rest.

    def load(self, address: Address, bits: int, *, signed: bool) -> list[Value]:
        self._whole()
        return super().load(address, bits, signed=signed)

    def store(self, address: Address, bits: int, words: list[Value]) -> None:
        self._whole()
        super().store(address, bits, words)

    def load_scalar(self, address: Address, bits: int, *, signed: bool) -> list[Value]:
        self._whole()
        return super().load_scalar(address, bits, signed=signed)

    def program_counter(self, pc: int) -> Value:
        self._whole()
        return super().program_counter(pc)

    def hardware_register(self, number: int) -> Value:
        self._whole()
        return super().hardware_register(number)


class StripExecution(Execution):
    """`Execution` that knows of lane masks which a loop makes part by part."""

    machine: StripMachine

    def state_vcc(self) -> Typed:
        part = self.machine.mask_part(VCC)
        return super().state_vcc() if part is None else Typed("b", 1, part)

    def lookup(self, name: str) -> Typed:
        operand, type_ = self.instruction.operands.get(name), self.instruction.form.types.get(name)
        if operand is not None and operand.kind == "sgpr" and type_ is not None:
            part = self.machine.mask_part(operand.index) if type_.base == "m" else None
            if part is not None:
                return Typed("b", 1, part)
        return super().lookup(name)

    def _write_mask(self, index: int, value: Typed) -> None:
        machine = self.machine
        if not machine.in_strip:
            super()._write_mask(index, value)
            return
        lanes, mask = machine.spread(self.truth(value)), machine.exec_mask()
        if mask is not None:
            lanes = self.ops.both(lanes, mask)
        if index != self.facts.null:
            machine.write_mask_part(index, lanes)
