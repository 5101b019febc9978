"""Worker threads that share a launch's blocks, as LLVM IR text.

Waking a sleeping thread costs 80 µs, so a launch is shared only when it is long: by its `work_ns`
hint, or, without one, when the first 1/64 of its blocks took long enough. The publishing thread
works too. Workers spin for a bounded time after a job, then sleep on a futex.

A worker counts itself into `inside` before it looks at `open`, and the publisher clears `open`
before it waits for `inside` to be 0 (both sequentially consistent), so nobody reads a job that is
being replaced.
"""

from __future__ import annotations

from rawgpu.native.layout import expand

FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129
CLOCK_MONOTONIC = 1
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
RELAX = {"x86_64": "pause", "aarch64": "isb"}
"""What a spinning thread executes; most AArch64 cores ignore `yield`, so `isb`."""

_POOL = """
define hidden void @relax() alwaysinline {
  call void asm sideeffect "$RELAX", "~{memory}"()
  ret void
}

define hidden i64 @now(ptr %pool) {
  %time = alloca [2 x i64], align 16
  %clock.at = getelementptr i8, ptr %pool, i64 $POOL.clock_gettime
  %clock = load ptr, ptr %clock.at
  %ignored = call i32 %clock(i32 $CLOCK_MONOTONIC, ptr %time)
  %seconds = load i64, ptr %time
  %ns.at = getelementptr i8, ptr %time, i64 8
  %ns = load i64, ptr %ns.at
  %whole = mul i64 %seconds, 1000000000
  %total = add i64 %whole, %ns
  ret i64 %total
}

; Blocks from the shared counter until none is left.
define hidden i64 @work(ptr %pool) {
entry:
  %target.at = getelementptr i8, ptr %pool, i64 $POOL.target
  %target = load ptr, ptr %target.at
  %arguments.at = getelementptr i8, ptr %pool, i64 $POOL.arguments
  %arguments = load ptr, ptr %arguments.at
  %blocks.at = getelementptr i8, ptr %pool, i64 $POOL.blocks
  %blocks = load i64, ptr %blocks.at
  %chunk.at = getelementptr i8, ptr %pool, i64 $POOL.chunk
  %chunk = load i64, ptr %chunk.at
  %next.at = getelementptr i8, ptr %pool, i64 $POOL.next
  br label %head
head:
  %begin = atomicrmw add ptr %next.at, i64 %chunk acq_rel, align 8
  %over = icmp uge i64 %begin, %blocks
  br i1 %over, label %done, label %run
run:
  %most = add i64 %begin, %chunk
  %past = icmp ugt i64 %most, %blocks
  %end = select i1 %past, i64 %blocks, i64 %most
  call void %target(ptr %arguments, i64 %begin, i64 %end)
  call void @plain_flags()
  br label %head
done:
  ret i64 $Outcome.DONE
}

define hidden i64 @work_guarded(ptr %context) {
  %job.at = getelementptr i8, ptr %context, i64 $CONTEXT.job
  %pool = load ptr, ptr %job.at
  %outcome = call i64 @work(ptr %pool)
  ret i64 %outcome
}

; Close the job to new workers and wait for those inside.
define hidden void @finish_job(ptr %pool) {
entry:
  %open.at = getelementptr i8, ptr %pool, i64 $POOL.open
  store atomic i64 0, ptr %open.at seq_cst, align 8
  %inside.at = getelementptr i8, ptr %pool, i64 $POOL.inside
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %again]
  %inside = load atomic i64, ptr %inside.at seq_cst, align 8
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %done, label %pause
pause:
  call void @relax()
  %next = add i64 %i, 1
  %long = icmp ugt i64 %next, 2000
  br i1 %long, label %yield, label %again
yield:
  %yield.at = getelementptr i8, ptr %pool, i64 $POOL.sched_yield
  %sched_yield = load ptr, ptr %yield.at
  %ignored = call i32 %sched_yield()
  br label %again
again:
  br label %head
done:
  ret void
}

; The publisher itself faulted: nobody starts another block, and the pool is free again.
define hidden void @cancel_job(ptr %pool) {
  %next.at = getelementptr i8, ptr %pool, i64 $POOL.next
  store atomic i64 4611686018427387904, ptr %next.at seq_cst, align 8
  call void @finish_job(ptr %pool)
  store atomic i64 0, ptr %pool release, align 8
  ret void
}

define hidden i64 @launch_many(ptr %context, ptr %pool, ptr %packet) {
entry:
  %target.at = getelementptr i8, ptr %packet, i64 $PACKET.target
  %target = load ptr, ptr %target.at
  %source.at = getelementptr i8, ptr %packet, i64 $PACKET.source
  %arguments = load ptr, ptr %source.at
  %size.at = getelementptr i8, ptr %packet, i64 $PACKET.size
  %blocks = load i64, ptr %size.at
  %extra.at = getelementptr i8, ptr %packet, i64 $PACKET.extra
  %work = load i64, ptr %extra.at
  %threads.at = getelementptr i8, ptr %pool, i64 $POOL.threads
  %threads = load i64, ptr %threads.at
  %threshold.at = getelementptr i8, ptr %pool, i64 $POOL.threshold_ns
  %threshold = load i64, ptr %threshold.at
  %alone = icmp eq i64 %threads, 0
  br i1 %alone, label %serial, label %judge
judge:
  %unknown = icmp eq i64 %work, 0
  br i1 %unknown, label %probe, label %decide
probe:
  %part = lshr i64 %blocks, 6
  %first = call i64 @llvm.umax.i64(i64 %part, i64 1)
  %t0 = call i64 @now(ptr %pool)
  call void %target(ptr %arguments, i64 0, i64 %first)
  call void @plain_flags()
  %t1 = call i64 @now(ptr %pool)
  %spent = sub i64 %t1, %t0
  %left = sub i64 %blocks, %first
  %parts = udiv i64 %left, %first
  %guess = mul i64 %spent, %parts
  br label %decide
decide:
  %start = phi i64 [0, %judge], [%first, %probe]
  %estimate = phi i64 [%work, %judge], [%guess, %probe]
  %rest = sub i64 %blocks, %start
  %small = icmp ult i64 %estimate, %threshold
  %one = icmp ult i64 %rest, 2
  %keep = or i1 %small, %one
  br i1 %keep, label %serial, label %lock
lock:
  %pair = cmpxchg ptr %pool, i64 0, i64 1 acq_rel monotonic, align 8
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %publish, label %serial
serial:
  %from = phi i64 [0, %entry], [%start, %decide], [%start, %lock]
  call void %target(ptr %arguments, i64 %from, i64 %blocks)
  call void @plain_flags()
  ret i64 $Outcome.DONE
publish:
  %job.target = getelementptr i8, ptr %pool, i64 $POOL.target
  store ptr %target, ptr %job.target
  %job.arguments = getelementptr i8, ptr %pool, i64 $POOL.arguments
  store ptr %arguments, ptr %job.arguments
  %job.blocks = getelementptr i8, ptr %pool, i64 $POOL.blocks
  store i64 %blocks, ptr %job.blocks
  %all = add i64 %threads, 1
  %shares = shl i64 %all, 3
  %share = udiv i64 %rest, %shares
  %chunk = call i64 @llvm.umax.i64(i64 %share, i64 1)
  %job.chunk = getelementptr i8, ptr %pool, i64 $POOL.chunk
  store i64 %chunk, ptr %job.chunk
  %job.next = getelementptr i8, ptr %pool, i64 $POOL.next
  store atomic i64 %start, ptr %job.next monotonic, align 8
  %job.fault = getelementptr i8, ptr %pool, i64 $POOL.fault
  store atomic ptr null, ptr %job.fault monotonic, align 8
  %job.at = getelementptr i8, ptr %context, i64 $CONTEXT.job
  store ptr %pool, ptr %job.at
  %job.open = getelementptr i8, ptr %pool, i64 $POOL.open
  store atomic i64 1, ptr %job.open seq_cst, align 8
  %epoch.at = getelementptr i8, ptr %pool, i64 $POOL.epoch
  %old = atomicrmw add ptr %epoch.at, i64 1 seq_cst, align 8
  %sleepers.at = getelementptr i8, ptr %pool, i64 $POOL.sleepers
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %wake, label %share.in
wake:
  call void @wake_workers(ptr %pool)
  br label %share.in
share.in:
  %ignored = call i64 @work(ptr %pool)
  call void @finish_job(ptr %pool)
  store ptr null, ptr %job.at
  %culprit = load atomic ptr, ptr %job.fault acquire, align 8
  %clean = icmp eq ptr %culprit, null
  br i1 %clean, label %release, label %report
report:
  %to = getelementptr i8, ptr %context, i64 $CONTEXT.signal
  %of = getelementptr i8, ptr %culprit, i64 $CONTEXT.signal
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %of, i64 56, i1 false)
  br label %release
release:
  %outcome = phi i64 [$Outcome.DONE, %share.in], [$Outcome.FAULT, %report]
  store atomic i64 0, ptr %pool release, align 8
  ret i64 %outcome
}

define hidden void @wake_workers(ptr %pool) {
  %syscall.at = getelementptr i8, ptr %pool, i64 $POOL.syscall
  %syscall = load ptr, ptr %syscall.at
  %futex.at = getelementptr i8, ptr %pool, i64 $POOL.futex_number
  %futex = load i64, ptr %futex.at
  %epoch.at = getelementptr i8, ptr %pool, i64 $POOL.epoch
  %ignored = call i64 (i64, ...) %syscall(i64 %futex, ptr %epoch.at, i64 $FUTEX_WAKE, i64 1000000)
  ret void
}

define hidden void @stop_workers(ptr %pool) {
  %quit.at = getelementptr i8, ptr %pool, i64 $POOL.quit
  store atomic i64 1, ptr %quit.at seq_cst, align 8
  %epoch.at = getelementptr i8, ptr %pool, i64 $POOL.epoch
  %old = atomicrmw add ptr %epoch.at, i64 1 seq_cst, align 8
  call void @wake_workers(ptr %pool)
  ret void
}

; What pthread_create starts; its context names the pool as its job.
define hidden ptr @worker(ptr %context) {
entry:
  %thread = call ptr @llvm.thread.pointer()
  store ptr %thread, ptr %context
  %job.at = getelementptr i8, ptr %context, i64 $CONTEXT.job
  %pool = load ptr, ptr %job.at
  %alternate.at = getelementptr i8, ptr %context, i64 $CONTEXT.alternate
  %alternate = load ptr, ptr %alternate.at
  %sigaltstack.at = getelementptr i8, ptr %pool, i64 $POOL.sigaltstack
  %sigaltstack = load ptr, ptr %sigaltstack.at
  %ignored = call i32 %sigaltstack(ptr %alternate, ptr null)
  %epoch.at = getelementptr i8, ptr %pool, i64 $POOL.epoch
  %sleepers.at = getelementptr i8, ptr %pool, i64 $POOL.sleepers
  %quit.at = getelementptr i8, ptr %pool, i64 $POOL.quit
  %inside.at = getelementptr i8, ptr %pool, i64 $POOL.inside
  %open.at = getelementptr i8, ptr %pool, i64 $POOL.open
  %active.at = getelementptr i8, ptr %context, i64 $CONTEXT.active
  %syscall.at = getelementptr i8, ptr %pool, i64 $POOL.syscall
  %syscall = load ptr, ptr %syscall.at
  %futex.at = getelementptr i8, ptr %pool, i64 $POOL.futex_number
  %futex = load i64, ptr %futex.at
  %spin.at = getelementptr i8, ptr %pool, i64 $POOL.spin_ns
  %spin = load i64, ptr %spin.at
  br label %idle
idle:
  %last = phi i64 [0, %entry], [%seen, %leave]
  %started = call i64 @now(ptr %pool)
  br label %spin.head
spin.head:
  %turn = phi i64 [0, %idle], [%turn.next, %spin.on], [0, %woken]
  %since = phi i64 [%started, %idle], [%since, %spin.on], [%started.again, %woken]
  %epoch = load atomic i64, ptr %epoch.at acquire, align 8
  %changed = icmp ne i64 %epoch, %last
  br i1 %changed, label %enter, label %spin.pause
spin.pause:
  call void @relax()
  %turn.next = add i64 %turn, 1
  %low = and i64 %turn.next, 31
  %ask = icmp eq i64 %low, 0
  br i1 %ask, label %clock, label %spin.on
clock:
  %time = call i64 @now(ptr %pool)
  %waited = sub i64 %time, %since
  %enough = icmp uge i64 %waited, %spin
  br i1 %enough, label %sleep, label %spin.on
spin.on:
  br label %spin.head
sleep:
  %was = atomicrmw add ptr %sleepers.at, i64 1 seq_cst, align 8
  %expected = trunc i64 %last to i32
  %result = call i64 (i64, ...) %syscall(i64 %futex, ptr %epoch.at, i64 $FUTEX_WAIT,
                                         i32 %expected, ptr null)
  %were = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst, align 8
  br label %woken
woken:
  %started.again = call i64 @now(ptr %pool)
  br label %spin.head
enter:
  %seen = phi i64 [%epoch, %spin.head]
  %quit = load atomic i64, ptr %quit.at seq_cst, align 8
  %stop = icmp ne i64 %quit, 0
  br i1 %stop, label %exit, label %count
count:
  %before = atomicrmw add ptr %inside.at, i64 1 seq_cst, align 8
  %open = load atomic i64, ptr %open.at seq_cst, align 8
  %closed = icmp eq i64 %open, 0
  br i1 %closed, label %leave, label %join
join:
  %outcome = call i64 @guarded_call(ptr %context, ptr @work_guarded)
  store volatile i64 0, ptr %active.at
  %fault = icmp eq i64 %outcome, $Outcome.FAULT
  br i1 %fault, label %blame, label %leave
blame:
  %fault.at = getelementptr i8, ptr %pool, i64 $POOL.fault
  %pair = cmpxchg ptr %fault.at, ptr null, ptr %context acq_rel monotonic, align 8
  %next.at = getelementptr i8, ptr %pool, i64 $POOL.next
  store atomic i64 4611686018427387904, ptr %next.at seq_cst, align 8
  br label %leave
leave:
  %after = atomicrmw sub ptr %inside.at, i64 1 seq_cst, align 8
  br label %idle
exit:
  ret ptr null
}

; 1 once the counter reaches the value, 0 when the time is over. Spins, then yields.
define hidden i64 @wait_counter(ptr %pool, ptr %counter, i64 %value, i64 %timeout_ns) {
entry:
  %yield.at = getelementptr i8, ptr %pool, i64 $POOL.sched_yield
  %sched_yield = load ptr, ptr %yield.at
  %start = call i64 @now(ptr %pool)
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %on]
  %seen = load atomic i64, ptr %counter acquire, align 8
  %reached = icmp uge i64 %seen, %value
  br i1 %reached, label %yes, label %look
look:
  %next = add i64 %i, 1
  %time = call i64 @now(ptr %pool)
  %spent = sub i64 %time, %start
  %over = icmp uge i64 %spent, %timeout_ns
  br i1 %over, label %no, label %rest
rest:
  %long = icmp ugt i64 %next, 1000
  br i1 %long, label %yield, label %pause
pause:
  call void @relax()
  br label %on
yield:
  %ignored = call i32 %sched_yield()
  br label %on
on:
  br label %head
yes:
  ret i64 1
no:
  ret i64 0
}

declare i64 @llvm.umax.i64(i64, i64)
"""


def pool_ir(machine: str) -> str:
    """IR text for `machine`; needs the text of `faultnet` beside it."""
    constants: dict[str, int | str] = {
        "RELAX": RELAX[machine],
        "CLOCK_MONOTONIC": CLOCK_MONOTONIC,
        "FUTEX_WAIT": FUTEX_WAIT_PRIVATE,
        "FUTEX_WAKE": FUTEX_WAKE_PRIVATE,
    }
    return expand(_POOL, constants)
