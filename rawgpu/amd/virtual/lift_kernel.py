"""A kernel's machine code as one LLVM function.

    i64 kernel(ptr state)

runs the wave in `state` from its PC until it ends, meets a barrier, has used its fuel, or comes to
an instruction that is not lifted; the result says which (`Exit`). Basic blocks are those of the
machine code. Any of them can be the start, so a wave can stop and go on.

Before the code is written a pass over the blocks finds where EXEC is known to be full, which spares
masks in most kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.spec.isa.operands import Operand
from rawgpu.amd.virtual.dispatch import GpuPageFault, WaveHalted
from rawgpu.amd.virtual.lift_groups import Exit
from rawgpu.amd.virtual.lift_memory import Helpers
from rawgpu.amd.virtual.lift_strips import STRIP, CrossesLanes, StripExecution, StripMachine
from rawgpu.amd.virtual.lift_wave import PAIR_AHEAD
from rawgpu.amd.virtual.wave_code import Code
from rawgpu.amd.virtual.wave_execute import Outcome
from rawgpu.amd.virtual.wave_operands import EXEC, VECTOR_FORMATS, Facts
from rawgpu.amd.virtual.wave_state import Word
from rawgpu.compiler_bridge.text import Block, Function, Module
from rawgpu.compiler_bridge.types import i64, ptr
from rawgpu.virtual.meaning import NotInEngine, NotInNative

MOST_INSTRUCTIONS = 20_000
LONGEST_BLOCK = 1000
"""Instructions; longer ones are cut, since LLVM's time grows worse than linearly with a block."""
LANE_FORMATS = frozenset(("vop1", "vop2", "vopc", "vop3", "vop3sd", "vop3p", "vopd"))
"""Formats of which most instructions keep to their lanes."""
LEAST_STRIPS = 4
"""Of a wave that is done in strips. Two pay in long code alone, and take longer to lift."""
PLAIN_LOAD = re.compile(
    r"(d = )?((lds_)?load(_signed)?\(address, \d+\)|pack\(lds_load\([^()]*\), lds_load\([^()]*\)\))"
)
VECTOR_COUNT = 1 | 1 << 32
"""What an instruction that works on lanes adds to the wave's count."""


@dataclass
class BasicBlock:
    """Instructions from one leader to the next."""

    start: int
    instructions: list[tuple[int, MachineInstruction]] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    full: set[int] = field(default_factory=set)
    """Scalar registers known to be all ones at the start."""


def _flow(instruction: MachineInstruction) -> str:
    """How an instruction ends a block: "branch", "jump", "end", "barrier", or ""."""
    meaning = instruction.meaning
    if "branch_if" in meaning:
        return "always" if "branch_if(1)" in meaning else "branch"
    for word, kind in (("jump(", "jump"), ("end()", "end"), ("barrier()", "barrier")):
        if word in meaning:
            return kind
    if "barrier_wait" in meaning:
        return "barrier"
    return ""


def _target(instruction: MachineInstruction, pc: int) -> int:
    offset = instruction.get("simm16")
    return pc + instruction.size + 4 * (offset - 0x10000 if offset & 0x8000 else offset)


def find_blocks(code: Code, entry: int) -> dict[int, BasicBlock]:
    """All blocks reachable from `entry`, by address."""
    leaders, todo, seen = {entry}, [entry], {}
    while todo:
        pc = todo.pop()
        while pc not in seen:
            try:
                instruction = code.at(pc)
            except (WaveHalted, GpuPageFault):
                break  # met only by a wave that gets there; the interpreter says what it is
            seen[pc] = instruction
            if len(seen) > MOST_INSTRUCTIONS:
                raise NotInEngine(f"more than {MOST_INSTRUCTIONS} instructions")
            following, kind = pc + instruction.size, _flow(instruction)
            if kind in ("branch", "always"):
                leaders.add(_target(instruction, pc))
                todo.append(_target(instruction, pc))
            if kind:
                leaders.add(following)
            if kind in ("always", "end"):
                break
            pc = following
    blocks: dict[int, BasicBlock] = {}
    todo = sorted(leaders, reverse=True)
    while todo:
        leader = todo.pop()
        if leader in seen and leader not in blocks:
            block = blocks[leader] = _block(leader, leaders, seen)
            if len(block.instructions) == LONGEST_BLOCK:
                todo += block.successors
    return dict(sorted(blocks.items()))


def _block(start: int, leaders: set[int], seen: dict[int, MachineInstruction]) -> BasicBlock:
    """The block from `start` on; where it is cut, the next instruction becomes a leader."""
    block, pc = BasicBlock(start), start
    while True:
        instruction = seen[pc]
        block.instructions.append((pc, instruction))
        kind, following = _flow(instruction), pc + instruction.size
        long = len(block.instructions) == LONGEST_BLOCK
        if kind or long or following in leaders or following not in seen:
            break
        pc = following
    if kind in ("branch", "always"):
        block.successors.append(_target(instruction, pc))
    if kind not in ("always", "end"):
        block.successors.append(following)
    return block


# Where registers are known to be all ones.


def _transfer(full: set[int], instruction: MachineInstruction) -> None:
    """Change `full` as the instruction changes scalar registers."""
    name, d = instruction.row.name, instruction.operands.get("d")
    co = instruction.operands.get("co")
    if co is not None and co.kind == "sgpr":
        _clear(full, co.index, co.registers)
    source = instruction.operands.get("a")
    exec_full = EXEC in full
    if "saveexec" in name or "wrexec" in name:
        source_full = source is not None and _is_full(full, source)
        full.discard(EXEC)
        full.discard(EXEC + 1)
        if d is not None:
            _clear(full, d.index, d.registers)
            if exec_full and "saveexec" in name:
                full.update(range(d.index, d.index + d.registers))
        if name.startswith("s_or_saveexec") and (exec_full or source_full):
            full.update((EXEC, EXEC + 1))
        return
    if "exec =" in instruction.meaning:
        full.discard(EXEC)
        full.discard(EXEC + 1)
    if d is None or d.kind != "sgpr":
        return
    becomes = False
    if name.startswith("s_mov_b") and source is not None:
        becomes = _is_full(full, source)
    elif name.startswith("s_or_b") and source is not None:
        becomes = _is_full(full, source) or _is_full(full, instruction.operands["b"])
    _clear(full, d.index, d.registers)
    if becomes:
        full.update(range(d.index, d.index + d.registers))


def _is_full(full: set[int], operand: Operand) -> bool:
    if operand.kind == "sgpr":
        return all(i in full for i in range(operand.index, operand.index + operand.registers))
    return operand.kind == "constant" and operand.value == (1 << operand.bits) - 1


def _clear(full: set[int], index: int, count: int) -> None:
    for i in range(index, index + count):
        full.discard(i)


def find_full(blocks: dict[int, BasicBlock], entry: int, *, entry_full: bool) -> None:
    """Fill in `BasicBlock.full`: what holds on every way to the block."""
    known: dict[int, set[int]] = {entry: {EXEC, EXEC + 1} if entry_full else set()}
    todo = [entry]
    while todo:
        block = blocks[todo.pop()]
        full = set(known[block.start])
        for _, instruction in block.instructions:
            for part in instruction.parts or (instruction,):
                _transfer(full, part)
        for successor in block.successors:
            if successor not in blocks:
                continue
            before = known.get(successor)
            after = set(full) if before is None else before & full
            if before is None or after != before:
                known[successor] = after
                todo.append(successor)
    for start, block in blocks.items():
        block.full = known.get(start, set())


def _loads_a_pair(instruction: MachineInstruction) -> bool:
    """Whether it loads two words that lie side by side."""
    if instruction.row.name != "ds_load_2addr_b32":
        return False
    return instruction.get("offset1") == instruction.get("offset0") + 1


def _loaded_registers(instruction: MachineInstruction) -> range | None:
    """The vector registers that an instruction loads whole from LDS, if it does no more than that.

    What comes from global memory takes long, and a store that waits for it would hold up all loads
    of addresses whose low twelve bits are the store's.
    """
    operand = instruction.operands.get("d")
    if instruction.format != "ds" or operand is None or operand.bits % 32:
        return None
    if operand.kind not in ("vgpr", "agpr") or not PLAIN_LOAD.fullmatch(instruction.meaning):
        return None
    first = operand.index + (256 if operand.kind == "agpr" else 0)
    registers = range(first, first + operand.registers)
    for role, other in instruction.operands.items():
        if role != "d" and other.kind in ("vgpr", "agpr"):
            start = other.index + (256 if other.kind == "agpr" else 0)
            if start < registers.stop and registers.start < start + other.registers:
                return None  # what it reads would be overwritten midway
    return registers


class KernelLifter:
    """Writes the function."""

    def __init__(
        self, module: Module, code: Code, entry: int, facts: Facts, flushed: frozenset[int]
    ) -> None:
        self.code, self.entry, self.facts, self.flushed = code, entry, facts, flushed
        self.module = module
        self.f: Function = module.function("kernel", [(ptr, "state")], i64)
        self.machine = StripMachine(self.f, facts, Helpers(module, facts.wave), flushed)
        self.machine.entry = entry
        self.in_strips = facts.wave // STRIP >= LEAST_STRIPS
        self.execution = StripExecution(self.machine, facts)
        self.not_lifted: dict[str, int] = {}
        self.exits: dict[int, Block] = {}

    def lift(self, *, entry_full: bool) -> None:
        blocks = find_blocks(self.code, self.entry)
        find_full(blocks, self.entry, entry_full=entry_full)
        f = self.f
        self.labels = {start: f.block(f"pc_{start - self.entry:x}") for start in blocks}
        pc = self.machine.word(Word.PC)
        two = f.const(i64, 2)  # addresses are those of words: closer together they make a table
        place = f.intrinsic("llvm.fshr", i64, [pc, pc, two])
        cases = " ".join(self._case(start, label) for start, label in self.labels.items())
        outside = f.block("outside")
        f.line(f"switch i64 {place.text}, label %{outside.name} [{cases}]")
        f.at(outside)
        f.ret(f.const(i64, Exit.INTERPRET))
        for start, block in blocks.items():
            self._lift_block(self.labels[start], block)

    def _lift_block(self, label: Block, block: BasicBlock) -> None:
        f, machine = self.f, self.machine
        f.at(label)
        machine.begin_block()
        machine.flushed_widths = self.flushed
        machine.exec_full = all(EXEC + i in block.full for i in range(self.facts.wave // 32))
        if any(s <= block.start for s in block.successors):
            self._burn_fuel(block.start)
        full = set(block.full)
        count = 0
        for pc, instruction in block.instructions:
            count += VECTOR_COUNT if instruction.format in VECTOR_FORMATS else 1
            outcome = self._lift_one(pc, instruction)
            if outcome is None:
                count -= VECTOR_COUNT if instruction.format in VECTOR_FORMATS else 1
                self._leave(block, pc, instruction, count)
                return
            for part in instruction.parts or (instruction,):
                _transfer(full, part)
            machine.exec_full = all(EXEC + i in full for i in range(self.facts.wave // 32))
            if outcome.kind not in ("next", "wait", "sleep", "cache"):
                self._count(count)
                self._finish(outcome, pc, instruction)
                return
        self._count(count)
        self._check_mode()
        machine.flush()
        last, instruction = block.instructions[-1]
        self._go(last + instruction.size)

    def _check_mode(self) -> None:
        if self.machine.flushed_widths != self.flushed:
            raise NotInEngine("a change of denormals that outlives a block")

    def _burn_fuel(self, start: int) -> None:
        f, machine = self.f, self.machine
        left = f.sub(machine.word(Word.FUEL), f.const(i64, 1))
        machine.put_word(Word.FUEL, left)
        empty, more = f.block("empty"), f.block("more")
        f.condbr(f.icmp("slt", left, f.const(i64, 0)), empty, more)
        f.at(empty)
        machine.put_word(Word.PC, start - self.entry)
        f.ret(f.const(i64, Exit.SLICE))
        f.at(more)

    def _count(self, count: int) -> None:
        total = self.f.add(self.machine.word(Word.COUNT), self.f.const(i64, count))
        self.machine.put_word(Word.COUNT, total)

    def _lift_one(self, pc: int, instruction: MachineInstruction) -> Outcome | None:
        """None where the instruction is left to the interpreter."""
        machine = self.machine
        machine.pc = pc - self.entry
        ways = [self._whole]
        if self.in_strips and instruction.format in LANE_FORMATS:
            ways.append(self._in_strips)
        saved, closed = machine.snapshot(), False
        while True:
            machine.pair = PAIR_AHEAD if _loads_a_pair(instruction) else None
            try:
                return ways.pop()(instruction, pc)
            except CrossesLanes:
                machine.restore(saved)
            except NotInNative:
                raise
            except NotInEngine as error:
                name = f"{instruction.name}: {error}"
                self.not_lifted[name] = self.not_lifted.get(name, 0) + 1
                machine.restore(saved)
                return None
            if not ways:  # it needs what the strips under way make
                assert not closed, instruction.name
                machine.close()
                saved, closed = machine.snapshot(), True
                ways.append(self._whole)

    def _in_strips(self, instruction: MachineInstruction, pc: int) -> Outcome:
        """With what goes before it, for some lanes at a time."""
        with self.machine.strip():
            return self.execution.execute(instruction, pc)

    def _whole(self, instruction: MachineInstruction, pc: int) -> Outcome:
        """For all lanes, in front of the strips under way."""
        direct = self.in_strips and self.machine.exec_full
        self.machine.load_to(_loaded_registers(instruction) if direct else None)
        outcome = self.execution.execute(instruction, pc)
        self.machine.load_to(None)
        return outcome

    def _leave(
        self, block: BasicBlock, pc: int, instruction: MachineInstruction, count: int
    ) -> None:
        """Return before the instruction, to be interpreted; the rest is a block of its own."""
        self._count(count)
        self.machine.flush()
        self._exit(Exit.INTERPRET, pc)
        position = [at for at, _ in block.instructions].index(pc)
        rest = block.instructions[position + 1 :]
        following = pc + instruction.size
        if not rest or following in self.labels:
            return
        full = set(block.full)
        for _, done in block.instructions[: position + 1]:
            for part in done.parts or (done,):
                _transfer(full, part)
        label = self.f.block(f"pc_{following - self.entry:x}")
        self.labels[following] = label
        tail = BasicBlock(following, rest, block.successors, full)
        self._add_case(following, label)
        self._lift_block(label, tail)

    def _add_case(self, start: int, label: Block) -> None:
        """One more block that a wave can begin at."""
        lines = self.f.blocks[0].lines
        at = next(i for i, line in enumerate(lines) if "switch i64" in line)
        lines[at] = lines[at][:-1] + f" {self._case(start, label)}]"

    def _case(self, start: int, label: Block) -> str:
        place = (start - self.entry & (1 << 64) - 1) >> 2
        return f"i64 {place}, label %{label.name}"

    def _exit(self, why: Exit, pc: int) -> None:
        self.machine.put_word(Word.PC, pc - self.entry)
        self.f.ret(self.f.const(i64, why))

    def _go(self, pc: int) -> None:
        label = self.labels.get(pc)
        if label is None:
            self._exit(Exit.INTERPRET, pc)
        else:
            self.f.br(label)

    def _way(self, pc: int) -> Block:
        """The block for `pc`, or one that leaves for the interpreter."""
        label = self.labels.get(pc) or self.exits.get(pc)
        if label is None:
            here = self.f.current
            label = self.exits[pc] = self.f.block("leave")
            self.f.at(label)
            self._exit(Exit.INTERPRET, pc)
            self.f.at(here)
        return label

    def _finish(self, outcome: Outcome, pc: int, instruction: MachineInstruction) -> None:
        f, machine = self.f, self.machine
        following = pc + instruction.size
        self._check_mode()
        machine.flush()
        match outcome.kind:
            case "branch" if outcome.argument is None:
                self._go(_target(instruction, pc))
            case "branch":
                yes, no = self._way(_target(instruction, pc)), self._way(following)
                f.condbr(outcome.argument, yes, no)
            case "jump":
                entry = f.add(machine.word(Word.CODE), f.const(i64, 0))
                machine.put_word(Word.PC, f.sub(outcome.argument, entry))
                f.ret(f.const(i64, Exit.JUMP))
            case "end":
                self._exit(Exit.END, pc)
            case "barrier" | "barrier_wait":
                self._exit(Exit.BARRIER, following)
            case "barrier_signal":
                self._go(following)
            case _:  # traps and halts are the interpreter's
                self._exit(Exit.INTERPRET, pc)
