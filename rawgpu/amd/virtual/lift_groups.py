"""The native loop over work-groups: starts each group's waves and runs them in turns.

`launch(context, guard)` runs `enter` inside the fault net. Its control block says which groups to
run, and where a run that was left goes on. Waves of a group run in rounds: each goes on until it
ends, meets a barrier or has used its fuel; when none can, a barrier opens. Which wave begins a
round, and in which direction turns go, is drawn from `random`. A wave that comes to what native
code cannot do leaves `enter`, and its place in the round is kept.

The code is the same for all kernels: it is compiled once, and calls the kernel by its address.
"""

from __future__ import annotations

import functools
import itertools
import re
from enum import IntEnum
from typing import Any

from rawgpu.amd.virtual.wave_state import EXEC, TTMP, VECTOR_OFFSET, Word
from rawgpu.compiler_bridge.cache import cache
from rawgpu.compiler_bridge.llvm import compile_in_process, host_target
from rawgpu.native import system
from rawgpu.native.code import native_code
from rawgpu.native.image import Image
from rawgpu.native.layout import CONTEXT, Record


class Exit(IntEnum):
    """Why lifted code returned. The state's PC is where to go on."""

    END = 0
    SLICE = 1
    """Out of fuel."""
    INTERPRET = 2
    """Before an instruction that is not lifted."""
    BARRIER = 3
    JUMP = 4


CONTROL = Record(
    "control",
    "kernel states stride status fuel random"
    " running waves current at turn direction executed vectors"
    " next end step count_x count_y start_x start_y start_z"
    " last_x last_y last_z variants row_count"
    " users user_count place_x place_y place_z place_info place_offset traps"
    " mode slots scratch wave_bytes most_waves"
    " poison poison_scalars poison_vectors poison_accumulators accumulators_at",
)
"""`kernel`: its code. `states`, `stride`: registers of the waves. `status`: a word for each wave.

`running`: 1 while a group is under way; then `waves` is how many it has, `at`, `turn` and
`direction` whose turn it is, `current` the wave that ran last. `executed`, `vectors`: instructions
counted. `next`, `end`, `step`: numbers of groups still to run. `last_*`: 1 where the last group of
that dimension is a partial one. `variants`: eight pointers to `VARIANT`, by which dimensions are
partial. `place_*`: byte offset of a register that is filled in. `poison`: what registers hold at
first, or 0; its parts' bytes follow.
"""
VARIANT = Record("variant", "waves masks rows")
"""What depends on a group's size: how many waves, EXEC of each, v0 and following of each."""

READY, AT_BARRIER, ENDED = 0, 1, 2
"""What a wave's status word says."""

GROUPS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare ptr @llvm.thread.pointer()

; Calls @enter through the fault net's guard, with this thread as the context's; 255 for a fault.
define i64 @launch(ptr %context, ptr %guard) {
entry:
  %thread = call ptr @llvm.thread.pointer()
  %thread.at = getelementptr i8, ptr %context, i64 $CONTEXT.thread
  store ptr %thread, ptr %thread.at
  %result = call i64 %guard(ptr %context, ptr @enter)
  %active.at = getelementptr i8, ptr %context, i64 $CONTEXT.active
  %active = load volatile i64, ptr %active.at
  store volatile i64 0, ptr %active.at
  %faulted = icmp eq i64 %active, 2
  %outcome = select i1 %faulted, i64 255, i64 %result
  ret i64 %outcome
}

define internal ptr @state_of(ptr %control, i64 %wave) {
  %states = call i64 @get(ptr %control, i64 $CONTROL.states)
  %stride = call i64 @get(ptr %control, i64 $CONTROL.stride)
  %offset = mul i64 %wave, %stride
  %address = add i64 %states, %offset
  %state = inttoptr i64 %address to ptr
  ret ptr %state
}

define internal i64 @enter(ptr %context) {
entry:
  %job.at = getelementptr i8, ptr %context, i64 $CONTEXT.job
  %control = load ptr, ptr %job.at
  %kernel.int = call i64 @get(ptr %control, i64 $CONTROL.kernel)
  %kernel = inttoptr i64 %kernel.int to ptr
  %status.int = call i64 @get(ptr %control, i64 $CONTROL.status)
  %status = inttoptr i64 %status.int to ptr
  call void @poison_states(ptr %control)
  %running = call i64 @get(ptr %control, i64 $CONTROL.running)
  %between = icmp eq i64 %running, 0
  br i1 %between, label %next.group, label %pick

next.group:
  %next = call i64 @get(ptr %control, i64 $CONTROL.next)
  %end = call i64 @get(ptr %control, i64 $CONTROL.end)
  %over = icmp uge i64 %next, %end
  br i1 %over, label %done, label %begin
done:
  ret i64 0
begin:
  call void @begin_group(ptr %control, ptr %status, i64 %next)
  call void @new_round(ptr %control)
  br label %pick

pick:
  %at = call i64 @get(ptr %control, i64 $CONTROL.at)
  %waves = call i64 @get(ptr %control, i64 $CONTROL.waves)
  %round.over = icmp uge i64 %at, %waves
  br i1 %round.over, label %round.end, label %turn.of
turn.of:
  %turn = call i64 @get(ptr %control, i64 $CONTROL.turn)
  %direction = call i64 @get(ptr %control, i64 $CONTROL.direction)
  %forward = icmp eq i64 %direction, 1
  %up = add i64 %turn, %at
  %from.end = add i64 %turn, %waves
  %down = sub i64 %from.end, %at
  %place = select i1 %forward, i64 %up, i64 %down
  %wrapped = sub i64 %place, %waves
  %beyond = icmp uge i64 %place, %waves
  %wave = select i1 %beyond, i64 %wrapped, i64 %place
  %wave.status = getelementptr i64, ptr %status, i64 %wave
  %how = load i64, ptr %wave.status
  %waits = icmp ne i64 %how, 0
  br i1 %waits, label %advance, label %run
run:
  call void @put(ptr %control, i64 $CONTROL.current, i64 %wave)
  %fuel = call i64 @get(ptr %control, i64 $CONTROL.fuel)
  %empty = icmp slt i64 %fuel, 0
  br i1 %empty, label %pause, label %go
pause:
  ret i64 $SLICE
go:
  %state = call ptr @state_of(ptr %control, i64 %wave)
  call void @put(ptr %state, i64 $FUEL, i64 %fuel)
  %why = call i64 %kernel(ptr %state)
  %left = call i64 @get(ptr %state, i64 $FUEL)
  %less = sub i64 %left, 1
  call void @put(ptr %control, i64 $CONTROL.fuel, i64 %less)
  call void @add_counts(ptr %control, ptr %state)
  switch i64 %why, label %leave [
    i64 $END, label %ended
    i64 $BARRIER, label %barrier
    i64 $SLICE, label %advance
    i64 $JUMP, label %pick
  ]
leave:
  ret i64 %why
ended:
  store i64 2, ptr %wave.status
  br label %advance
barrier:
  store i64 1, ptr %wave.status
  br label %advance
advance:
  %after = add i64 %at, 1
  call void @put(ptr %control, i64 $CONTROL.at, i64 %after)
  br label %pick

round.end:
  %left.over = call i64 @round_end(ptr %status, i64 %waves)
  %goes.on = icmp ne i64 %left.over, 0
  br i1 %goes.on, label %again, label %group.done
again:
  call void @new_round(ptr %control)
  br label %pick
group.done:
  call void @put(ptr %control, i64 $CONTROL.running, i64 0)
  %step = call i64 @get(ptr %control, i64 $CONTROL.step)
  %number = call i64 @get(ptr %control, i64 $CONTROL.next)
  %following = add i64 %number, %step
  call void @put(ptr %control, i64 $CONTROL.next, i64 %following)
  br label %next.group
}

; Whether any wave has not ended. Where all that live are at a barrier, it opens.
define internal i64 @round_end(ptr %status, i64 %waves) {
entry:
  br label %count
count:
  %i = phi i64 [0, %entry], [%i.next, %count]
  %ready = phi i64 [0, %entry], [%ready.next, %count]
  %waiting = phi i64 [0, %entry], [%waiting.next, %count]
  %at = getelementptr i64, ptr %status, i64 %i
  %how = load i64, ptr %at
  %is.ready = icmp eq i64 %how, 0
  %is.waiting = icmp eq i64 %how, 1
  %one.ready = zext i1 %is.ready to i64
  %one.waiting = zext i1 %is.waiting to i64
  %ready.next = add i64 %ready, %one.ready
  %waiting.next = add i64 %waiting, %one.waiting
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %waves
  br i1 %more, label %count, label %counted
counted:
  %live = add i64 %ready.next, %waiting.next
  %some = icmp ne i64 %ready.next, 0
  br i1 %some, label %out, label %open
open:
  %j = phi i64 [0, %counted], [%j.next, %open]
  %place = getelementptr i64, ptr %status, i64 %j
  %old = load i64, ptr %place
  %is = icmp eq i64 %old, 1
  %new = select i1 %is, i64 0, i64 %old
  store i64 %new, ptr %place
  %j.next = add i64 %j, 1
  %further = icmp ult i64 %j.next, %waves
  br i1 %further, label %open, label %out
out:
  ret i64 %live
}

define internal void @new_round(ptr %control) {
  call void @put(ptr %control, i64 $CONTROL.at, i64 0)
  %waves = call i64 @get(ptr %control, i64 $CONTROL.waves)
  %old = call i64 @get(ptr %control, i64 $CONTROL.random)
  %scaled = mul i64 %old, 6364136223846793005
  %new = add i64 %scaled, 1442695040888963407
  call void @put(ptr %control, i64 $CONTROL.random, i64 %new)
  %high = lshr i64 %new, 33
  %share = mul i64 %high, %waves
  %turn = lshr i64 %share, 31
  call void @put(ptr %control, i64 $CONTROL.turn, i64 %turn)
  %back = and i64 %new, 4294967296
  %backwards = icmp ne i64 %back, 0
  %down = sub i64 %waves, 1
  %direction = select i1 %backwards, i64 %down, i64 1
  call void @put(ptr %control, i64 $CONTROL.direction, i64 %direction)
  ret void
}

; The wave's count has all instructions in its lower half and vector ones in its upper half.
define internal void @add_counts(ptr %control, ptr %state) {
  %count = call i64 @get(ptr %state, i64 $COUNT)
  call void @put(ptr %state, i64 $COUNT, i64 0)
  %all = and i64 %count, 4294967295
  %vector = lshr i64 %count, 32
  %executed = call i64 @get(ptr %control, i64 $CONTROL.executed)
  %executed.new = add i64 %executed, %all
  call void @put(ptr %control, i64 $CONTROL.executed, i64 %executed.new)
  %vectors = call i64 @get(ptr %control, i64 $CONTROL.vectors)
  %vectors.new = add i64 %vectors, %vector
  call void @put(ptr %control, i64 $CONTROL.vectors, i64 %vectors.new)
  ret void
}

; Once a dispatch: registers hold what nobody put there.
define internal void @poison_states(ptr %control) {
entry:
  %from = call i64 @get(ptr %control, i64 $CONTROL.poison)
  %wanted = icmp ne i64 %from, 0
  %most = call i64 @get(ptr %control, i64 $CONTROL.most_waves)
  %scalars = call i64 @get(ptr %control, i64 $CONTROL.poison_scalars)
  %vectors = call i64 @get(ptr %control, i64 $CONTROL.poison_vectors)
  %others = call i64 @get(ptr %control, i64 $CONTROL.poison_accumulators)
  %others.at = call i64 @get(ptr %control, i64 $CONTROL.accumulators_at)
  br i1 %wanted, label %each, label %out
each:
  %i = phi i64 [0, %entry], [%i.next, %each]
  %address = phi i64 [%from, %entry], [%address.next, %each]
  %state = call ptr @state_of(ptr %control, i64 %i)
  %source = inttoptr i64 %address to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %state, ptr %source, i64 %scalars, i1 false)
  %v = getelementptr i8, ptr %state, i64 $VECTORS
  call void @llvm.memcpy.p0.p0.i64(ptr %v, ptr %source, i64 %vectors, i1 false)
  %a = getelementptr i8, ptr %state, i64 %others.at
  call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %source, i64 %others, i1 false)
  %address.next = add i64 %address, 4160
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %most
  br i1 %more, label %each, label %finish
finish:
  call void @put(ptr %control, i64 $CONTROL.poison, i64 0)
  br label %out
out:
  ret void
}

define internal void @begin_group(ptr %control, ptr %status, i64 %number) {
entry:
  %count.x = call i64 @get(ptr %control, i64 $CONTROL.count_x)
  %count.y = call i64 @get(ptr %control, i64 $CONTROL.count_y)
  %rest = udiv i64 %number, %count.x
  %x0 = urem i64 %number, %count.x
  %y0 = urem i64 %rest, %count.y
  %z0 = udiv i64 %rest, %count.y
  %last.x = call i64 @get(ptr %control, i64 $CONTROL.last_x)
  %last.y = call i64 @get(ptr %control, i64 $CONTROL.last_y)
  %last.z = call i64 @get(ptr %control, i64 $CONTROL.last_z)
  %at.last.x = icmp eq i64 %x0, %last.x
  %at.last.y = icmp eq i64 %y0, %last.y
  %at.last.z = icmp eq i64 %z0, %last.z
  %bit.x = zext i1 %at.last.x to i64
  %bit.y = select i1 %at.last.y, i64 2, i64 0
  %bit.z = select i1 %at.last.z, i64 4, i64 0
  %bits.xy = or i64 %bit.x, %bit.y
  %bits = or i64 %bits.xy, %bit.z
  %variants = call i64 @get(ptr %control, i64 $CONTROL.variants)
  %table = inttoptr i64 %variants to ptr
  %variant.at = getelementptr i64, ptr %table, i64 %bits
  %variant = load ptr, ptr %variant.at
  %waves = call i64 @get(ptr %variant, i64 $VARIANT.waves)
  %masks.int = call i64 @get(ptr %variant, i64 $VARIANT.masks)
  %masks = inttoptr i64 %masks.int to ptr
  %rows.int = call i64 @get(ptr %variant, i64 $VARIANT.rows)
  %rows = inttoptr i64 %rows.int to ptr
  call void @put(ptr %control, i64 $CONTROL.waves, i64 %waves)
  call void @put(ptr %control, i64 $CONTROL.running, i64 1)
  %start.x = call i64 @get(ptr %control, i64 $CONTROL.start_x)
  %start.y = call i64 @get(ptr %control, i64 $CONTROL.start_y)
  %start.z = call i64 @get(ptr %control, i64 $CONTROL.start_z)
  %x = add i64 %x0, %start.x
  %y.plain = add i64 %y0, %start.y
  %z = add i64 %z0, %start.z
  %traps = call i64 @get(ptr %control, i64 $CONTROL.traps)
  %in.traps = icmp ne i64 %traps, 0
  %y.low = and i64 %y.plain, 65535
  %z.up = shl i64 %z, 16
  %yz = or i64 %y.low, %z.up
  %y = select i1 %in.traps, i64 %yz, i64 %y.plain
  %users.int = call i64 @get(ptr %control, i64 $CONTROL.users)
  %users = inttoptr i64 %users.int to ptr
  %user.bytes = call i64 @get(ptr %control, i64 $CONTROL.user_count)
  %row.bytes = call i64 @get(ptr %control, i64 $CONTROL.row_count)
  %place.x = call i64 @get(ptr %control, i64 $CONTROL.place_x)
  %place.y = call i64 @get(ptr %control, i64 $CONTROL.place_y)
  %place.z = call i64 @get(ptr %control, i64 $CONTROL.place_z)
  %place.info = call i64 @get(ptr %control, i64 $CONTROL.place_info)
  %place.offset = call i64 @get(ptr %control, i64 $CONTROL.place_offset)
  %mode = call i64 @get(ptr %control, i64 $CONTROL.mode)
  %slots = call i64 @get(ptr %control, i64 $CONTROL.slots)
  %scratch = call i64 @get(ptr %control, i64 $CONTROL.scratch)
  %wave.bytes = call i64 @get(ptr %control, i64 $CONTROL.wave_bytes)
  %most = call i64 @get(ptr %control, i64 $CONTROL.most_waves)
  %first.slot = mul i64 %number, %most
  br label %each
each:
  %i = phi i64 [0, %entry], [%i.next, %begun]
  %wave.status = getelementptr i64, ptr %status, i64 %i
  store i64 0, ptr %wave.status
  %state = call ptr @state_of(ptr %control, i64 %i)
  call void @llvm.memcpy.p0.p0.i64(ptr %state, ptr %users, i64 %user.bytes, i1 false)
  call void @put32(ptr %state, i64 %place.z, i64 %z)
  call void @put32(ptr %state, i64 %place.y, i64 %y)
  call void @put32(ptr %state, i64 %place.x, i64 %x)
  br i1 %in.traps, label %trap, label %plain
trap:
  %wave.id = shl i64 %i, 25
  call void @put32(ptr %state, i64 $TRAP_WAVE, i64 %wave.id)
  call void @put32(ptr %state, i64 $TRAP_ZERO, i64 0)
  br label %plain
plain:
  %is.first = icmp eq i64 %i, 0
  %first.bit = select i1 %is.first, i64 2147483648, i64 0
  %info = or i64 %first.bit, %most
  call void @put32(ptr %state, i64 %place.info, i64 %info)
  %slot.all = add i64 %first.slot, %i
  %slot = urem i64 %slot.all, %slots
  %offset = mul i64 %slot, %wave.bytes
  call void @put32(ptr %state, i64 %place.offset, i64 %offset)
  %own.scratch = add i64 %scratch, %offset
  call void @put(ptr %state, i64 $SCRATCH, i64 %own.scratch)
  %row.offset = mul i64 %i, %row.bytes
  %own.rows = getelementptr i8, ptr %rows, i64 %row.offset
  %v = getelementptr i8, ptr %state, i64 $VECTORS
  call void @llvm.memcpy.p0.p0.i64(ptr %v, ptr %own.rows, i64 %row.bytes, i1 false)
  %mask.at = getelementptr i64, ptr %masks, i64 %i
  %mask = load i64, ptr %mask.at
  call void @put(ptr %state, i64 $EXEC, i64 %mask)
  call void @put(ptr %state, i64 $MODE, i64 %mode)
  call void @put(ptr %state, i64 $SCC, i64 0)
  call void @put(ptr %state, i64 $PC, i64 0)
  br label %begun
begun:
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %waves
  br i1 %more, label %each, label %out
out:
  ret void
}
"""
DUMMY = 4 * EXEC
"""Where ids go that nobody asked for: EXEC, which is written after them."""
TRAP_X, TRAP_YZ = 4 * (TTMP + 9), 4 * (TTMP + 7)
POISON_STEP_BYTES = 4160
"""How far apart in the poison the waves' registers begin."""


_GET = re.compile(r"^  %(\S+) = call i64 @get\(ptr (\S+), i64 (\S+)\)$", re.MULTILINE)
_PUT = re.compile(r"^  call void @put\(ptr (\S+), i64 (\S+), i64 (\S+)\)$", re.MULTILINE)
_PUT32 = re.compile(r"^  call void @put32\(ptr (\S+), i64 (\S+), i64 (\S+)\)$", re.MULTILINE)


def _expand_accesses(text: str) -> str:
    """`@get` and `@put` of words in a record as instructions: there is no pass that inlines."""
    count = itertools.count()

    def get(match: re.Match[str]) -> str:
        name, record, offset = match.groups()
        at = f"%at.{next(count)}"
        place = f"  {at} = getelementptr i8, ptr {record}, i64 {offset}\n"
        return place + f"  %{name} = load i64, ptr {at}"

    def put(match: re.Match[str]) -> str:
        record, offset, value = match.groups()
        at = f"%at.{next(count)}"
        place = f"  {at} = getelementptr i8, ptr {record}, i64 {offset}\n"
        return place + f"  store i64 {value}, ptr {at}"

    def put32(match: re.Match[str]) -> str:
        record, offset, value = match.groups()
        at, low = f"%at.{next(count)}", f"%low.{next(count)}"
        place = f"  {at} = getelementptr i8, ptr {record}, i64 {offset}\n"
        return place + f"  {low} = trunc i64 {value} to i32\n  store i32 {low}, ptr {at}"

    return _PUT32.sub(put32, _PUT.sub(put, _GET.sub(get, text)))


def groups_ir() -> str:
    """The text."""
    text = _expand_accesses(GROUPS)
    for name, record in (("CONTEXT", CONTEXT), ("CONTROL", CONTROL), ("VARIANT", VARIANT)):
        for field, word in sorted(record.word.items(), key=lambda item: -len(item[0])):
            text = text.replace(f"${name}.{field})", f"{8 * word})")
            text = text.replace(f"${name}.{field}\n", f"{8 * word}\n")
            text = text.replace(f"${name}.{field},", f"{8 * word},")
    numbers = {
        "FUEL": Word.FUEL, "VECTORS": VECTOR_OFFSET, "EXEC": 4 * EXEC, "MODE": Word.MODE,
        "SCC": Word.SCC, "PC": Word.PC, "SCRATCH": Word.SCRATCH, "COUNT": Word.COUNT,
        "TRAP_WAVE": 4 * (TTMP + 8), "TRAP_ZERO": 4 * (TTMP + 6),
        **{why.name: int(why) for why in Exit},
    }  # fmt: skip
    for name, number in numbers.items():
        for end in "\n,)":
            text = text.replace(f"${name}{end}", f"{int(number)}{end}")
    assert "$" not in text, text[text.index("$") :][:80]
    return text


class GroupLoop:
    """The compiled loop. `launch(context record, guard)` gives an `Exit`, or 255 for a fault."""

    def __init__(self) -> None:
        text, host = groups_ir(), host_target()

        def build() -> bytes:
            return compile_in_process(text, host, passes="light", level=2)

        self.image = Image(cache().get_or_build("plan", f"group loop {host!r} {text}", build))
        address = self.image.address("launch")
        self.launch: Any = system.ffi.cast("uint64_t (*)(void *, void *)", address)
        self.guard: Any = system.ffi.cast("void *", native_code().image.address("guarded_call"))


@functools.cache
def group_loop() -> GroupLoop:
    """The loop of this process."""
    return GroupLoop()
