"""The packet loop, as LLVM IR text: runs packets until they end, block on a signal, or fault.

`run_packets(context, run)` starts at `run.position` and returns an Outcome; a packet that waits on
a signal not yet there ends the run, and the caller comes back later. `replay(run)` fills in bound
addresses and starts at 0; one argument and no lock of Python's, because at 1 µs a replay each of
those shows. The whole loop is guarded, so a copy from a bad address is caught as well.

Neither looks for Python's pending signals: a Ctrl-C is delivered when the replay is over. To stop
between packets would leave half of what a replay writes, and training steps write in place.
"""

from __future__ import annotations

from rawgpu.native.layout import expand

_DRAIN = """
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define hidden i64 @run_guarded(ptr %context) {
entry:
  %run.at = getelementptr i8, ptr %context, i64 $CONTEXT.run
  %run = load ptr, ptr %run.at
  %packets = load ptr, ptr %run
  %count.at = getelementptr i8, ptr %run, i64 $RUN.count
  %count = load i64, ptr %count.at
  %timings.at = getelementptr i8, ptr %run, i64 $RUN.timings
  %timings = load i64, ptr %timings.at
  %timed = icmp ne i64 %timings, 0
  %pool.at = getelementptr i8, ptr %run, i64 $RUN.pool
  %pool = load ptr, ptr %pool.at
  %position.at = getelementptr i8, ptr %run, i64 $RUN.position
  %start = load i64, ptr %position.at
  br label %head
head:
  %i = phi i64 [%start, %entry], [%next, %advance]
  store i64 %i, ptr %position.at
  %end = icmp uge i64 %i, %count
  br i1 %end, label %done, label %packet
packet:
  %p = getelementptr [$PACKET x i8], ptr %packets, i64 %i
  %kind = load i64, ptr %p
  %target.at = getelementptr i8, ptr %p, i64 $PACKET.target
  %target = load ptr, ptr %target.at
  %source.at = getelementptr i8, ptr %p, i64 $PACKET.source
  %source = load ptr, ptr %source.at
  %size.at = getelementptr i8, ptr %p, i64 $PACKET.size
  %size = load i64, ptr %size.at
  switch i64 %kind, label %advance [
    i64 $Kind.WAIT, label %wait
    i64 $Kind.SIGNAL, label %signal
    i64 $Kind.LAUNCH, label %launch
    i64 $Kind.COPY, label %copy
    i64 $Kind.FILL, label %fill
    i64 $Kind.TIMESTAMP, label %timestamp
  ]
wait:
  %reached = load atomic i64, ptr %target acquire, align 8
  %short = icmp ult i64 %reached, %size
  br i1 %short, label %blocked, label %advance
signal:
  store atomic i64 %size, ptr %target seq_cst, align 8
  br label %advance
copy:
  call void @llvm.memmove.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  br label %advance
fill:
  %word = ptrtoint ptr %source to i64
  %byte = trunc i64 %word to i8
  call void @llvm.memset.p0.i64(ptr %target, i8 %byte, i64 %size, i1 false)
  br label %advance
timestamp:
  %stamp = call i64 @now(ptr %pool)
  store atomic i64 %stamp, ptr %target release, align 8
  br label %advance
launch:
  br i1 %timed, label %begin, label %choose
begin:
  %t0 = call i64 @now(ptr %pool)
  br label %choose
choose:
  %before = phi i64 [0, %launch], [%t0, %begin]
  %many = icmp ugt i64 %size, 1
  br i1 %many, label %spread, label %single
single:
  call void %target(ptr %source, i64 0, i64 %size)
  call void @plain_flags()
  br label %launched
spread:
  %outcome = call i64 @launch_many(ptr %context, ptr %pool, ptr %p)
  %bad = icmp ne i64 %outcome, $Outcome.DONE
  br i1 %bad, label %fault, label %launched
launched:
  br i1 %timed, label %finish, label %advance
finish:
  %t1 = call i64 @now(ptr %pool)
  %elapsed = sub i64 %t1, %before
  %elapsed.at = getelementptr i8, ptr %p, i64 $PACKET.elapsed_ns
  store i64 %elapsed, ptr %elapsed.at
  br label %advance
advance:
  %next = add i64 %i, 1
  br label %head
done:
  ret i64 $Outcome.DONE
blocked:
  ret i64 $Outcome.BLOCKED
fault:
  ret i64 $Outcome.FAULT
}

define hidden i64 @run_locked(ptr %context, ptr %run) {
entry:
  %thread = call ptr @llvm.thread.pointer()
  store ptr %thread, ptr %context
  %run.at = getelementptr i8, ptr %context, i64 $CONTEXT.run
  store ptr %run, ptr %run.at
  %job.at = getelementptr i8, ptr %context, i64 $CONTEXT.job
  store ptr null, ptr %job.at
  %outcome = call i64 @guarded_call(ptr %context, ptr @run_guarded)
  %active.at = getelementptr i8, ptr %context, i64 $CONTEXT.active
  store volatile i64 0, ptr %active.at
  %fault = icmp eq i64 %outcome, $Outcome.FAULT
  br i1 %fault, label %clean, label %done
clean:
  %job = load ptr, ptr %job.at
  %shared = icmp ne ptr %job, null
  br i1 %shared, label %cancel, label %done
cancel:
  call void @cancel_job(ptr %job)
  br label %done
done:
  ret i64 %outcome
}

define hidden void @lock_queue(ptr %pool, ptr %queue) {
entry:
  %yield.at = getelementptr i8, ptr %pool, i64 $POOL.sched_yield
  %sched_yield = load ptr, ptr %yield.at
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %again]
  %pair = cmpxchg ptr %queue, i64 0, i64 1 acq_rel monotonic, align 8
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %done, label %pause
pause:
  call void @relax()
  %next = add i64 %i, 1
  %long = icmp ugt i64 %next, 200
  br i1 %long, label %yield, label %again
yield:
  %ignored = call i32 %sched_yield()
  br label %again
again:
  br label %head
done:
  ret void
}

define hidden i64 @run_packets(ptr %context, ptr %run) {
  %queue.at = getelementptr i8, ptr %run, i64 $RUN.queue
  %queue = load ptr, ptr %queue.at
  %pool.at = getelementptr i8, ptr %run, i64 $RUN.pool
  %pool = load ptr, ptr %pool.at
  call void @lock_queue(ptr %pool, ptr %queue)
  %outcome = call i64 @run_locked(ptr %context, ptr %run)
  store atomic i64 0, ptr %queue release, align 8
  ret i64 %outcome
}

; With the queue's lock held: give it back after the run, or at once if something comes first.
define hidden i64 @replay_locked(ptr %context, ptr %run, ptr %queue) {
entry:
  %pending.at = getelementptr i8, ptr %queue, i64 $QUEUE.pending
  %pending = load atomic i64, ptr %pending.at acquire, align 8
  %first = icmp eq i64 %pending, 0
  br i1 %first, label %start, label %behind
start:
  %bindings.at = getelementptr i8, ptr %run, i64 $RUN.bindings
  %bindings = load ptr, ptr %bindings.at
  %patches.at = getelementptr i8, ptr %run, i64 $RUN.patches
  %patches = load ptr, ptr %patches.at
  %count.at = getelementptr i8, ptr %run, i64 $RUN.patch_count
  %count = load i64, ptr %count.at
  %position.at = getelementptr i8, ptr %run, i64 $RUN.position
  store i64 0, ptr %position.at
  br label %head
head:
  %i = phi i64 [0, %start], [%next, %patch]
  %end = icmp uge i64 %i, %count
  br i1 %end, label %run.all, label %patch
patch:
  %row = getelementptr [$PATCH x i8], ptr %patches, i64 %i
  %slot = load ptr, ptr %row
  %index.at = getelementptr i8, ptr %row, i64 $PATCH.index
  %index = load i64, ptr %index.at
  %offset.at = getelementptr i8, ptr %row, i64 $PATCH.offset
  %offset = load i64, ptr %offset.at
  %bound.at = getelementptr i64, ptr %bindings, i64 %index
  %bound = load i64, ptr %bound.at
  %value = add i64 %bound, %offset
  store i64 %value, ptr %slot
  %next = add i64 %i, 1
  br label %head
run.all:
  %outcome = call i64 @run_locked(ptr %context, ptr %run)
  store atomic i64 0, ptr %queue release, align 8
  ret i64 %outcome
behind:
  store atomic i64 0, ptr %queue release, align 8
  ret i64 $Outcome.BEHIND
}

; The fast way: no waiting, no context to hand over.
define hidden i64 @replay(ptr %run) {
entry:
  %context.at = getelementptr i8, ptr %run, i64 $RUN.context
  %context = load ptr, ptr %context.at
  %unset = icmp eq ptr %context, null
  br i1 %unset, label %stranger, label %compare
compare:
  %thread = call ptr @llvm.thread.pointer()
  %owner = load ptr, ptr %context
  %mine = icmp eq ptr %owner, %thread
  br i1 %mine, label %lock, label %stranger
lock:
  %queue.at = getelementptr i8, ptr %run, i64 $RUN.queue
  %queue = load ptr, ptr %queue.at
  %pair = cmpxchg ptr %queue, i64 0, i64 1 acq_rel monotonic, align 8
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %go, label %busy
go:
  %outcome = call i64 @replay_locked(ptr %context, ptr %run, ptr %queue)
  ret i64 %outcome
stranger:
  ret i64 $Outcome.STRANGER
busy:
  ret i64 $Outcome.BUSY
}

; The patient way, and for a thread's first replay.
define hidden i64 @replay_as(ptr %context, ptr %run) {
  %queue.at = getelementptr i8, ptr %run, i64 $RUN.queue
  %queue = load ptr, ptr %queue.at
  %pool.at = getelementptr i8, ptr %run, i64 $RUN.pool
  %pool = load ptr, ptr %pool.at
  call void @lock_queue(ptr %pool, ptr %queue)
  %context.at = getelementptr i8, ptr %run, i64 $RUN.context
  store ptr %context, ptr %context.at
  %outcome = call i64 @replay_locked(ptr %context, ptr %run, ptr %queue)
  ret i64 %outcome
}
"""


def drain_ir() -> str:
    """IR text; needs the text of `faultnet` and `pool` beside it."""
    return expand(_DRAIN)
