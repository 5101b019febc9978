"""The native loop over work-groups of one wave: starts each group's wave and runs it.

`launch(context, guard)` runs `enter` inside the fault net. Its control block says whether to go on
with the wave in the state, or to run groups from `next` on; a wave that does not end leaves its
group's number there.
"""

from __future__ import annotations

from rawgpu.amd.virtual.wave_state import EXEC, TTMP, VECTOR_OFFSET, Word
from rawgpu.native.layout import CONTEXT, Record

CONTROL = Record(
    "control",
    "state groups next end step count_x count_y start_x start_y start_z users user_count"
    " place_x place_y place_z traps rows row_count exec mode slots scratch wave_bytes",
)
"""`groups`: 1 to run groups. `rows`: v0 and following. `place_*`: byte offset of an id's place."""

GROUPS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umax.i64(i64, i64)

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

define internal i64 @enter(ptr %context) {
entry:
  %job.at = getelementptr i8, ptr %context, i64 $CONTEXT.job
  %control = load ptr, ptr %job.at
  %state = load ptr, ptr %control
  %groups.at = getelementptr i8, ptr %control, i64 $CONTROL.groups
  %groups = load i64, ptr %groups.at
  %single = icmp eq i64 %groups, 0
  br i1 %single, label %one, label %head
one:
  %result = call i64 @kernel(ptr %state)
  ret i64 %result
head:
  %next.at = getelementptr i8, ptr %control, i64 $CONTROL.next
  %next = load i64, ptr %next.at
  %end.at = getelementptr i8, ptr %control, i64 $CONTROL.end
  %end = load i64, ptr %end.at
  %over = icmp uge i64 %next, %end
  br i1 %over, label %done, label %begin
done:
  ret i64 0
begin:
  call void @begin_group(ptr %control, ptr %state, i64 %next)
  %why = call i64 @kernel(ptr %state)
  %ended = icmp eq i64 %why, 0
  br i1 %ended, label %more, label %stop
stop:
  ret i64 %why
more:
  %step.at = getelementptr i8, ptr %control, i64 $CONTROL.step
  %step = load i64, ptr %step.at
  %after = add i64 %next, %step
  store i64 %after, ptr %next.at
  %fuel.at = getelementptr i8, ptr %state, i64 $FUEL
  %fuel = load i64, ptr %fuel.at
  %less = sub i64 %fuel, 1
  store i64 %less, ptr %fuel.at
  %empty = icmp slt i64 %less, 0
  br i1 %empty, label %pause, label %head
pause:
  ret i64 5
}

define internal i64 @field(ptr %control, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %control, i64 %offset
  %value = load i64, ptr %at
  ret i64 %value
}

define internal void @begin_group(ptr %control, ptr %state, i64 %number) {
entry:
  %count.x = call i64 @field(ptr %control, i64 $CONTROL.count_x)
  %count.y = call i64 @field(ptr %control, i64 $CONTROL.count_y)
  %rest = udiv i64 %number, %count.x
  %x0 = urem i64 %number, %count.x
  %y0 = urem i64 %rest, %count.y
  %z0 = udiv i64 %rest, %count.y
  %start.x = call i64 @field(ptr %control, i64 $CONTROL.start_x)
  %start.y = call i64 @field(ptr %control, i64 $CONTROL.start_y)
  %start.z = call i64 @field(ptr %control, i64 $CONTROL.start_z)
  %x = add i64 %x0, %start.x
  %y = add i64 %y0, %start.y
  %z = add i64 %z0, %start.z
  %users = call i64 @field(ptr %control, i64 $CONTROL.users)
  %users.at = inttoptr i64 %users to ptr
  %user.bytes = call i64 @field(ptr %control, i64 $CONTROL.user_count)
  call void @llvm.memcpy.p0.p0.i64(ptr %state, ptr %users.at, i64 %user.bytes, i1 false)
  %traps = call i64 @field(ptr %control, i64 $CONTROL.traps)
  %in.traps = icmp ne i64 %traps, 0
  br i1 %in.traps, label %trap, label %plain
trap:
  %y.low = and i64 %y, 65535
  %z.up = shl i64 %z, 16
  %yz = or i64 %y.low, %z.up
  br label %ids
plain:
  br label %ids
ids:
  %second = phi i64 [%yz, %trap], [%y, %plain]
  %x.32 = trunc i64 %x to i32
  %y.32 = trunc i64 %second to i32
  %z.32 = trunc i64 %z to i32
  %place.z = call i64 @field(ptr %control, i64 $CONTROL.place_z)
  %z.at = getelementptr i8, ptr %state, i64 %place.z
  store i32 %z.32, ptr %z.at
  %place.y = call i64 @field(ptr %control, i64 $CONTROL.place_y)
  %y.at = getelementptr i8, ptr %state, i64 %place.y
  store i32 %y.32, ptr %y.at
  %place.x = call i64 @field(ptr %control, i64 $CONTROL.place_x)
  %x.at = getelementptr i8, ptr %state, i64 %place.x
  store i32 %x.32, ptr %x.at
  %rows = call i64 @field(ptr %control, i64 $CONTROL.rows)
  %rows.at = inttoptr i64 %rows to ptr
  %row.bytes = call i64 @field(ptr %control, i64 $CONTROL.row_count)
  %v.at = getelementptr i8, ptr %state, i64 $VECTORS
  call void @llvm.memcpy.p0.p0.i64(ptr %v.at, ptr %rows.at, i64 %row.bytes, i1 false)
  %exec = call i64 @field(ptr %control, i64 $CONTROL.exec)
  %exec.at = getelementptr i8, ptr %state, i64 $EXEC
  store i64 %exec, ptr %exec.at
  %mode = call i64 @field(ptr %control, i64 $CONTROL.mode)
  %mode.at = getelementptr i8, ptr %state, i64 $MODE
  store i64 %mode, ptr %mode.at
  %scc.at = getelementptr i8, ptr %state, i64 $SCC
  store i64 0, ptr %scc.at
  %pc.at = getelementptr i8, ptr %state, i64 $PC
  store i64 0, ptr %pc.at
  %slots = call i64 @field(ptr %control, i64 $CONTROL.slots)
  %slot = urem i64 %number, %slots
  %wave.bytes = call i64 @field(ptr %control, i64 $CONTROL.wave_bytes)
  %offset = mul i64 %slot, %wave.bytes
  %base = call i64 @field(ptr %control, i64 $CONTROL.scratch)
  %scratch = add i64 %base, %offset
  %scratch.at = getelementptr i8, ptr %state, i64 $SCRATCH
  store i64 %scratch, ptr %scratch.at
  ret void
}
"""
DUMMY = 504
"""Where ids go that nobody asked for: EXEC, which is written after them."""


def groups_ir() -> str:
    """The text, to be put behind a module that defines `kernel`."""
    text = GROUPS
    for name, record in (("CONTEXT", CONTEXT), ("CONTROL", CONTROL)):
        for field, word in sorted(record.word.items(), key=lambda item: -len(item[0])):
            text = text.replace(f"${name}.{field})", f"{8 * word})")
            text = text.replace(f"${name}.{field}\n", f"{8 * word}\n")
    numbers = {
        "FUEL": Word.FUEL, "VECTORS": VECTOR_OFFSET, "EXEC": 4 * EXEC, "MODE": Word.MODE,
        "SCC": Word.SCC, "PC": Word.PC, "SCRATCH": Word.SCRATCH,
    }  # fmt: skip
    for name, number in numbers.items():
        text = text.replace(f"${name}\n", f"{int(number)}\n")
    assert "$" not in text, text[text.index("$") :][:80]
    return text


TRAP_X, TRAP_YZ = 4 * (TTMP + 9), 4 * (TTMP + 7)
