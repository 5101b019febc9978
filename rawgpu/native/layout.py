"""Records that Python and our native code share: each declared once, read by both.

Every field is a 64-bit word, so an offset is a position times eight and Python can lay records out
in plain uint64 arrays. `expand` puts offsets and values into LLVM IR text: `$PACKET.code` becomes
the byte offset, `$PACKET` the size, `$Kind.LAUNCH` an enumeration's value.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Record:
    """A run of 64-bit words with names."""

    def __init__(self, name: str, fields: str) -> None:
        self.name = name
        self.fields = tuple(fields.split())
        self.words = len(self.fields)
        self.size_bytes = 8 * self.words
        self.word = {field: position for position, field in enumerate(self.fields)}
        assert len(self.word) == self.words, f"{name} names a field twice"

    def cdef(self) -> str:
        """The C declaration for cffi."""
        body = " ".join(f"uint64_t {field};" for field in self.fields)
        return f"struct {self.name} {{ {body} }};"


class Kind(IntEnum):
    """What a packet does, with the words it uses."""

    WAIT = 0
    """target: signal's address, size: value to reach."""
    SIGNAL = 1
    """target: signal's address, size: value to store."""
    LAUNCH = 2
    """target: code, source: argument slots, size: blocks, extra: estimated ns or 0."""
    COPY = 3
    """target, source, size."""
    FILL = 4
    """target, source: the byte, size."""
    TIMESTAMP = 5
    """target: where the clock goes."""
    BARRIER = 6
    """Nothing: a queue runs its packets in order, each to its end."""


class Outcome(IntEnum):
    """How a run of packets ended."""

    DONE = 0
    BLOCKED = 1
    FAULT = 2
    STRANGER = 3
    """Nothing ran: the run's context is another thread's."""
    BUSY = 4
    """Nothing ran: another thread runs packets of this queue."""
    BEHIND = 5
    """Nothing ran: packets submitted earlier come first."""


PACKET = Record("packet", "kind target source size extra elapsed_ns spare0 spare1")
"""One command. `elapsed_ns` is filled in by runs with timings on."""

PATCH = Record("patch", "slot index offset spare")
"""At replay, `*slot = bindings[index] + offset`."""

RUN = Record(
    "run", "packets count patches patch_count bindings timings position pool queue context"
)
"""Packets to run, from `position` on; the loop leaves the position where it stopped."""

QUEUE = Record("queue", "lock pending")
"""`lock` is 1 while a thread runs packets of the queue; `pending`, while a replay must wait."""

CONTEXT = Record(
    "context",
    "thread active saved_sp stack_top stack_low job run alternate"
    " signal code address pc sp error trap spare0",
)
"""A thread that runs packets. `active` is 1 inside guarded code, 2 once it faulted; `alternate`
is a worker's stack_t; from `signal` on it is the fault's record."""

POOL = Record(
    "pool",
    # Written by the thread that publishes a job.
    "lock open epoch target arguments blocks chunk quit"
    # Written by everyone who works: next block, threads inside, first faulting context.
    " next pad0 pad1 pad2 pad3 pad4 pad5 pad6"
    " inside sleepers fault pad7 pad8 pad9 pad10 pad11"
    # Written once.
    " threads spin_ns threshold_ns clock_gettime syscall futex_number sched_yield sigaltstack",
)
"""Helpers of a device, and the one job they may join. Groups have cache lines of their own."""

PREVIOUS = Record("previous", "handler flags")
"""What handled a signal before us."""

LIBC = Record("libc", "sigaction raise sigpending")
"""Addresses the fault handler needs."""

RECORDS = {
    "PACKET": PACKET, "PATCH": PATCH, "RUN": RUN, "QUEUE": QUEUE, "CONTEXT": CONTEXT,
    "POOL": POOL, "PREVIOUS": PREVIOUS, "LIBC": LIBC,
}  # fmt: skip
ENUMS: dict[str, type[IntEnum]] = {"Kind": Kind, "Outcome": Outcome}

_TOKEN = re.compile(r"\$(\w+)(?:\.(\w+))?")


def expand(text: str, constants: dict[str, int | str] | None = None) -> str:
    """IR text with `$NAME` and `$NAME.field` filled in."""

    def value(match: re.Match[str]) -> str:
        name, field = match[1], match[2]
        if constants is not None and name in constants and field is None:
            return str(constants[name])
        if name in ENUMS:
            return str(int(ENUMS[name][field]))
        record = RECORDS[name]
        return str(record.size_bytes if field is None else 8 * record.word[field])

    return _TOKEN.sub(value, text)
