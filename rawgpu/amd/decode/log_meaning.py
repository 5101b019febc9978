"""What events of AMD GPUs mean, alone and together: sentences, causes, advice, one row each.

A cause is said where all of its kinds are among the events, in any order. `sure` is what the driver
itself says or what follows from it; the rest is what usually is so, and is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rawgpu.crash.report import Cause

Event = Mapping[str, Any]

SAY: Mapping[str, str] = {
    "gpu_page_fault": (
        "process {process} ({pid}): a {access} by {client} at {fault_address} faulted"
        " || a {access} by {client} at {fault_address} faulted"
        " || process {process} ({pid}): an access at {fault_address} faulted"
        " || an access at {fault_address} faulted || a page fault"
    ),
    "ring_timeout": (
        "ring {engine_or_ring} did not finish in time (a job of {process}, {pid}): "
        "{signaled_seq} was done of {emitted_seq}"
        " || ring {engine_or_ring} did not finish in time: {signaled_seq} was done of {emitted_seq}"
        " || ring {engine_or_ring} did not finish in time ({reset_outcome})"
    ),
    "illegal_opcode": (
        "{ip}: the command processor met a word that is none of its commands"
        " || the command processor met a word that is none of its commands"
    ),
    "illegal_register_access": (
        "{ip}: a command reached for a register it may not || a command reached for a register it "
        "may not"
    ),
    "sdma_illegal_command": "a copy engine met {command}, which unprivileged buffers may not have",
    "ip_block_hung": "block {ip} hangs",
    "mes_timeout": (
        "the scheduler's firmware (MES) did not answer {message} for doorbell {doorbell}"
        " || the scheduler's firmware (MES) did not answer {message}"
        " || the scheduler's firmware (MES) did not answer message {message_id}"
        " || the scheduler's firmware (MES) did not remove the queue of doorbell {doorbell}"
    ),
    "queue_reset": "reset of ring {engine_or_ring} alone: {reset_outcome}",
    "gpu_reset": (
        "the whole GPU was reset by {method}: {reset_outcome}"
        " || the whole GPU was reset: {reset_outcome} || the whole GPU was reset"
    ),
    "coredump_available": "the kernel kept a dump at {path} || the kernel kept a dump",
    "wedged": "the driver's verdict: {reset_outcome}",
    "gpu_lost": "the GPU does not answer on its bus",
    "ib_test_failed": "{engine_or_ring} did not run a test after a start or reset ({error_code})",
    "ring_test_failed": "ring {engine_or_ring} does not take commands ({error_code})",
    "fence_fallback": "an interrupt of ring {engine_or_ring} was lost; polling found it done",
    "cs_rejected": "the kernel refused command buffers ({error_code})",
    "ih_overflow": "more interrupts came than the kernel could take",
    "init_failure": "{stage} failed ({error_code})",
    "sq_interrupt": "a wave was stopped, error type {type} (0 ECC, 1 illegal instruction, "
    "2 memory violation, 3 ECC of instructions)",
    "kfd_preemption_failed": "compute queues did not leave the hardware when told to",
    "kfd_evict_failed": "queue {queue} could not be evicted || queues could not be evicted",
    "kfd_restore_failed": "queues could not be restored",
    "kfd_vital_buffer_freed": "a process freed memory that its queue needs, at {address}",
    "hsa_memory_fault": "ROCm's runtime: an access at {fault_address} on node {hsa_node} faulted: "
    "{fault_type}",
    "hsa_hw_exception": "ROCm's runtime: node {hsa_node}: {reason}",
    "ras_error": "memory of block {block}: {severity} errors || {severity} hardware error",
    "smu_error": "power management's firmware (SMU) did not answer: {message}",
    "psp_error": "the security processor (PSP) refused {command}: {response}",
    "gpu_lockup": "ring {engine_or_ring} stands still",
}


@dataclass(frozen=True)
class Rule:
    """A cause, or advice, and the events it needs."""

    kinds: tuple[str, ...]
    text: str
    sure: bool = False
    advice: str = ""
    when: Callable[[Event], bool] = lambda _: True
    """Of events of the first kind."""
    unless: tuple[str, ...] = ()
    """Kinds that explain it better."""


def _null(event: Event) -> bool:
    return "fault_address" in event and int(str(event["fault_address"]), 16) < 1 << 16


def _absent(event: Event) -> bool:
    return bool(event.get("decoded", {}).get("permission_faults", 0) & 1)


def _forbidden(event: Event) -> bool:
    permission = event.get("decoded", {}).get("permission_faults", 0)
    return bool(permission) and not permission & 1


def _reason(*words: str) -> Callable[[Event], bool]:
    """What ROCm's runtime gives as reason, address 0 aside."""
    return lambda event: (
        not _null(event) and any(word in str(event.get("fault_type", "")) for word in words)
    )


def _walk(event: Event) -> bool:
    return bool(event.get("decoded", {}).get("walker_error", 0))


def _outcome(*names: str) -> Callable[[Event], bool]:
    return lambda event: event.get("reset_outcome") in names


NULL = "An address at or near 0 was used: a null pointer in a kernel, or an argument never set."
NULL_ADVICE = (
    "Look at the pointers that the kernel was launched with; rawgpu disasm FILE "
    "--explain says what each instruction reads."
)
ABSENT = (
    "No page was mapped at the address: memory that was freed, never mapped on this GPU, or "
    "an index past the end of a buffer."
)
ABSENT_ADVICE = "Compare the address with the program's allocations at that time."
FORBIDDEN = (
    "A page was there and its rights forbade the access: a write to read-only memory, or a "
    "jump into data."
)
FORBIDDEN_ADVICE = (
    "Look at what the kernel writes to: a buffer that was mapped for reading, code, or memory "
    "of another process; rawgpu disasm FILE --explain shows its stores and jumps."
)

RULES: tuple[Rule, ...] = (
    Rule(("gpu_page_fault",), NULL, advice=NULL_ADVICE, when=_null),
    Rule(("hsa_memory_fault",), NULL, advice=NULL_ADVICE, when=_null),
    Rule(
        ("gpu_page_fault",),
        ABSENT,
        advice=ABSENT_ADVICE,
        when=lambda event: _absent(event) and not _null(event),
    ),
    Rule(("hsa_memory_fault",), ABSENT, advice=ABSENT_ADVICE, when=_reason("Page not present")),
    Rule(("gpu_page_fault",), FORBIDDEN, advice=FORBIDDEN_ADVICE, when=_forbidden),
    Rule(
        ("hsa_memory_fault",),
        FORBIDDEN,
        advice=FORBIDDEN_ADVICE,
        when=_reason("read-only", "marked NX"),
    ),
    Rule(
        ("gpu_page_fault",),
        "The page tables could not be walked: the driver's mistake, or memory that was lost.",
        when=_walk,
    ),
    Rule(
        ("illegal_opcode", "ring_timeout"),
        "The hang follows from the bad command: a command buffer was overwritten or built wrong. "
        "The process named owns the job; that does not prove who wrote over it.",
        sure=False,
    ),
    Rule(
        ("ring_timeout",),
        "A job did not end within the driver's time limit: a loop without end, a wait for what "
        "never comes, or too much work in one submission.",
        when=lambda event: event.get("reset_outcome") is None,
        unless=("illegal_opcode", "illegal_register_access", "gpu_page_fault", "gpu_lost"),
    ),
    Rule(
        ("ring_timeout",),
        "The job was stopped and the ring went on (soft recovery): only that job is lost.",
        sure=True,
        when=_outcome("soft_recovered"),
    ),
    Rule(
        ("mes_timeout", "gpu_reset"),
        "The scheduler's firmware answered no more, so that one queue could not be reset alone "
        "and the whole GPU was.",
        sure=True,
    ),
    Rule(
        ("queue_reset", "gpu_reset"),
        "Resetting the one ring failed, so the whole GPU was reset.",
        sure=True,
        when=_outcome("failed"),
    ),
    Rule(
        ("gpu_reset",),
        "Video memory was lost in the reset: every program that used this GPU has lost its data, "
        "guilty or not.",
        sure=True,
        advice="Restart the programs that use this GPU.",
        when=_outcome("succeeded_vram_lost", "vram_lost"),
    ),
    Rule(
        ("gpu_reset",),
        "A reset began, and this log ends before it says how it went.",
        sure=True,
        advice="Take the log again, with the minute after the reset.",
        when=_outcome("started_unknown_end", "succeeded_resuming"),
    ),
    Rule(
        ("gpu_reset",),
        "The reset failed: the GPU cannot be used until the machine restarts.",
        sure=True,
        advice="Restart the machine.",
        when=_outcome("failed"),
    ),
    Rule(
        ("gpu_page_fault", "queue_reset"),
        "A fault of VMID 0 beside a queue's reset is a consequence of the reset, not its cause.",
        when=lambda event: event.get("decoded", {}).get("vmid", event.get("vmid")) == 0,
    ),
    Rule(
        ("ib_test_failed",),
        "After a start or a reset each engine runs a test, and this one did not: it, or the whole "
        "GPU, has not recovered (-110 is a time limit).",
        sure=True,
        advice="Restart the machine; if it comes back, try another version of kernel and firmware.",
    ),
    Rule(
        ("sq_interrupt",),
        "The code has an instruction that this GPU does not have: built for another, or "
        "overwritten.",
        sure=True,
        advice="Compare the file's processor with the GPU's: rawgpu disasm FILE, rawgpu devices.",
        when=lambda event: event.get("type") == 1,
    ),
    Rule(
        ("gpu_lost",),
        "The GPU is gone from the bus: power, heat, the slot or the card itself.",
        advice="Power the machine off and on; if it comes back, check power supply and slot.",
    ),
    Rule(
        ("ras_error",),
        "Memory of the GPU had an error that could not be corrected.",
        sure=True,
        advice="Retire the page or the card; what the program computed is not to be trusted.",
        when=lambda event: event.get("severity") == "uncorrectable",
    ),
    Rule(
        ("kfd_vital_buffer_freed",),
        "A process freed its queue's own memory: a mistake of the runtime or the program.",
        sure=True,
    ),
    Rule(
        ("coredump_available",),
        "",
        advice="Copy the kernel's dump now: it is deleted after about five minutes.",
    ),
)


def judge(events: Sequence[Event]) -> tuple[list[Cause], list[str]]:
    """Causes and advice for the events of one log."""
    by_kind: dict[str, list[int]] = {}
    for number, event in enumerate(events):
        by_kind.setdefault(event["kind"], []).append(number)
    causes: list[Cause] = []
    advice: list[str] = []
    for rule in RULES:
        missing = any(kind not in by_kind for kind in rule.kinds)
        if missing or any(kind in by_kind for kind in rule.unless):
            continue
        first = [number for number in by_kind[rule.kinds[0]] if rule.when(events[number])]
        if not first:
            continue
        others = [number for kind in rule.kinds[1:] for number in by_kind[kind]]
        if rule.text:
            about = tuple(sorted(first + others))
            if causes and causes[-1].text == rule.text:  # the kernel says it, and the runtime
                about = tuple(sorted({*causes.pop().events, *about}))
            causes.append(Cause(rule.text, about, rule.sure))
        if rule.advice and rule.advice not in advice:
            advice.append(rule.advice)
    return causes, advice
