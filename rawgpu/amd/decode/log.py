"""Kernel logs of AMD GPUs: from lines to events, and what the events mean together.

`explain(stream)` gives a `Report`. `Story` has a method for each thing that a line of `log_shapes`
does; it keeps state for each GPU, whose lines may interleave, and takes nothing for known that the
log does not say: a header that is missing leaves its fields out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

from rawgpu.amd.decode.log_fault import ORDER, STATUS_SUFFIX, Fault, decode_status, page_address
from rawgpu.amd.decode.log_meaning import SAY, judge
from rawgpu.amd.decode.log_shapes import SHAPES
from rawgpu.amd.spec.vm_fault import VM_CONTEXT1_PROTECTION_FAULT_STATUS
from rawgpu.crash.reader import Found, Reader
from rawgpu.crash.report import Collector, Report

__all__ = ["SAY", "explain"]


@dataclass
class Gpu:
    """What is under way on one GPU; the one without name has what no line binds to a GPU."""

    fault: Fault | None = None
    reset: dict[str, Any] | None = None
    vram_lost: bool = False
    queue_reset: dict[str, Any] | None = None
    timeout: dict[str, Any] | None = None
    mes: dict[str, Any] | None = None
    coredump: dict[str, Any] | None = None
    wants_process: str = ""
    """Whose process the next line that names one is: "fault" or "timeout"."""


class Story:
    """Turns lines into events."""

    def __init__(self) -> None:
        self.collected: Collector = Collector()
        self.gpus: dict[str, Gpu] = {}
        self.latest: str = ""
        self._does: dict[str, Callable[[Found, Gpu], None]] = {
            name.removeprefix("on_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("on_")
        }

    def take(self, found: Found) -> None:
        """One line. Without a bus id it belongs to the GPU that spoke last."""
        bdf = found.bdf if found.bdf is not None else self.latest
        gpu = self.gpus.get(bdf)
        if gpu is None:
            if len(self.gpus) >= MAX_GPUS:
                return
            gpu = self.gpus[bdf] = Gpu()
        self.latest = bdf
        self._does[found.shape.does](found, gpu)

    def finish(self) -> Report:
        """All events, with what they mean together."""
        for gpu in self.gpus.values():
            self._end_fault(gpu)
            self._end_timeout(gpu)
            self._end_reset(gpu)
            self._unfinished(gpu)
        report = self.collected.report
        report.causes, report.advice = judge(report.events)
        return report

    # Helpers.

    def _event(self, kind: str, found: Found, *names: str, **more: Any) -> dict[str, Any]:
        """A new event with the line's fields of these names, in place and still growing."""
        event: dict[str, Any] = {"kind": kind}
        if found.bdf is not None:
            event["bdf"] = found.bdf
        event.update({name: found.fields[name] for name in names if name in found.fields})
        event.update(more)
        return event

    def _whole(self, event: dict[str, Any]) -> dict[str, Any]:
        """Put an event that is complete."""
        return self.collected.close(self.collected.add(event))

    # Page faults.

    def _begin_fault(self, found: Found, gpu: Gpu) -> Fault:
        self._end_fault(gpu)
        event = self.collected.add(self._event("gpu_page_fault", found))
        gpu.fault = Fault(event)
        gpu.wants_process = "fault"
        return gpu.fault

    def _end_fault(self, gpu: Gpu) -> None:
        fault, gpu.fault = gpu.fault, None
        if fault is None:
            return
        if "status" in fault.event:
            decode_status(fault)
        ordered = {name: fault.event[name] for name in ORDER if name in fault.event}
        fault.event.clear()
        fault.event.update(ordered)
        self.collected.close(fault.event)

    def _open_fault(self, found: Found, gpu: Gpu, *taken: str) -> Fault:
        """The fault that a line is about: a new one if the current has such a line already."""
        if gpu.fault is None or any(name in gpu.fault.event for name in taken):
            return self._begin_fault(found, gpu)
        return gpu.fault

    def on_fault(self, found: Found, gpu: Gpu) -> None:
        fault = self._begin_fault(found, gpu)
        self._copy(found, fault.event, "hub", "ih_ring", "vmid", "pasid")
        self._name_process(found, fault.event)

    @staticmethod
    def _copy(found: Found, event: dict[str, Any], *names: str) -> None:
        event.update({name: found.fields[name] for name in names if name in found.fields})

    @staticmethod
    def _name_process(found: Found, event: dict[str, Any]) -> None:
        """Process and thread. A kernel job has no name and number 0: neither is said."""
        for name, number in (("process", "pid"), ("thread", "tid")):
            if found.fields.get(number) and found.fields.get(name):
                event[name] = found.fields[name]
                event[number] = found.fields[number]

    def on_process(self, found: Found, gpu: Gpu) -> None:
        if gpu.wants_process == "fault" and gpu.fault is not None:
            self._name_process(found, gpu.fault.event)
        elif gpu.wants_process == "timeout" and gpu.timeout is not None:
            self._name_process(found, gpu.timeout)
            event = gpu.timeout
            same = event.get("thread") == event.get("process") and event.get("tid") == event.get(
                "pid"
            )
            if same:  # a thread that is its process says nothing more
                event.pop("thread", None)
                event.pop("tid", None)
            self._end_timeout(gpu)
        gpu.wants_process = ""

    def on_address(self, found: Found, gpu: Gpu) -> None:
        fault = self._open_fault(found, gpu, "fault_address")
        self._copy(found, fault.event, "fault_address")
        fault.interrupt = str(found.fields.get("client_word", ""))

    def on_die(self, found: Found, gpu: Gpu) -> None:
        fault = self._open_fault(found, gpu, "die")
        self._copy(found, fault.event, "node_id", "die")

    def on_status(self, found: Found, gpu: Gpu) -> None:
        fault = self._open_fault(found, gpu, "status")
        lo32 = "_LO32" if "_STATUS_LO32" in found.shape.text else ""
        name = str(found.fields["status_register"])
        fault.event["status_register"] = name + STATUS_SUFFIX + lo32
        fault.event["status"] = found.fields["status"]

    def on_client(self, found: Found, gpu: Gpu) -> None:
        if gpu.fault is not None:
            self._copy(found, gpu.fault.event, "client", "client_id")

    def on_field(self, found: Found, gpu: Gpu) -> None:
        if gpu.fault is not None:
            for name, value in found.fields.items():
                gpu.fault.printed[name] = int(str(value), 16)

    # Page faults before gfx9.

    def on_old_fault(self, found: Found, gpu: Gpu) -> None:
        fault = self._begin_fault(found, gpu)
        self._copy(found, fault.event, "src_id")
        self._name_process(found, fault.event)

    def on_old_address(self, found: Found, gpu: Gpu) -> None:
        fault = self._open_fault(found, gpu, "fault_page")
        fault.event["fault_page"] = int(str(found.fields["page"]), 16)
        page_address(fault.event)

    def on_old_status(self, found: Found, gpu: Gpu) -> None:
        fault = self._open_fault(found, gpu, "status")
        fault.event["status_register"] = VM_CONTEXT1_PROTECTION_FAULT_STATUS.about.name
        fault.event["status"] = found.fields["status"]

    def on_old_words(self, found: Found, gpu: Gpu) -> None:
        fault = self._open_fault(found, gpu, "client")
        self._copy(found, fault.event, "vmid", "pasid", "fault_page", "client", "client_id")
        fault.event["access"] = found.fields["rw"]
        page_address(fault.event)

    # Hangs and recovery.

    def on_timeout(self, found: Found, gpu: Gpu) -> None:
        self._end_timeout(gpu)
        names = ("engine_or_ring", "signaled_seq", "emitted_seq", "reset_outcome")
        gpu.timeout = self.collected.add(self._event("ring_timeout", found, *names))
        gpu.wants_process = "timeout"

    def _end_timeout(self, gpu: Gpu) -> None:
        timeout, gpu.timeout = gpu.timeout, None
        if timeout is not None:
            self.collected.close(timeout)

    def on_illegal_opcode(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("illegal_opcode", found, "ip"))

    def on_illegal_register(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("illegal_register_access", found, "ip"))

    def on_sdma_illegal(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("sdma_illegal_command", found, "command"))

    def on_ip_hung(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("ip_block_hung", found, "ip"))

    def on_mes(self, found: Found, gpu: Gpu) -> None:
        event = self._event("mes_timeout", found, "message", "message_id", "mes_pipe")
        gpu.mes = self._whole(event)

    def on_mes_doorbell(self, found: Found, gpu: Gpu) -> None:
        """The consequence of the message that was not answered, or all that is left of it."""
        if gpu.mes is None or "doorbell" in gpu.mes or gpu.mes.get("count", 1) > 1:
            self._whole(self._event("mes_timeout", found, "doorbell"))
        else:
            gpu.mes["doorbell"] = found.fields["doorbell"]
        gpu.mes = None

    def on_queue_reset_start(self, found: Found, gpu: Gpu) -> None:
        self._unfinished(gpu)
        gpu.queue_reset = self._event("queue_reset", found, "engine_or_ring")

    def _unfinished(self, gpu: Gpu) -> None:
        """A reset of one ring of which the log does not say how it went."""
        started, gpu.queue_reset = gpu.queue_reset, None
        if started is not None and "engine_or_ring" in started:
            started["reset_outcome"] = "started_unknown_end"
            self._whole(started)

    def on_queue_reset_error(self, found: Found, gpu: Gpu) -> None:
        if gpu.queue_reset is None:
            gpu.queue_reset = self._event("queue_reset", found)
        gpu.queue_reset["error_code"] = found.fields["error_code"]

    def on_queue_reset_end(self, found: Found, gpu: Gpu) -> None:
        started, gpu.queue_reset = gpu.queue_reset, None
        event = self._event("queue_reset", found, "engine_or_ring", "reset_outcome")
        if started is not None and "error_code" in started:
            event["error_code"] = started["error_code"]
        self._whole(event)

    def on_reset_start(self, found: Found, gpu: Gpu) -> None:
        self._end_reset(gpu)
        event = self._event("gpu_reset", found, "source", reset_outcome="started_unknown_end")
        gpu.reset, gpu.vram_lost = self.collected.add(event), False

    def _end_reset(self, gpu: Gpu) -> None:
        reset, gpu.reset = gpu.reset, None
        if reset is not None:
            self.collected.close(reset)

    def _reset(self, found: Found, gpu: Gpu) -> dict[str, Any]:
        """The reset under way; a log that starts late has one without beginning."""
        if gpu.reset is None:
            gpu.reset = self.collected.add(self._event("gpu_reset", found))
            gpu.vram_lost = False
        return gpu.reset

    def on_reset_method(self, found: Found, gpu: Gpu) -> None:
        self._reset(found, gpu).setdefault("method", found.fields["method"])

    def on_reset_resume(self, found: Found, gpu: Gpu) -> None:
        reset = self._reset(found, gpu)
        reset["reset_outcome"] = "succeeded_vram_lost" if gpu.vram_lost else "succeeded_resuming"

    def on_vram_lost(self, found: Found, gpu: Gpu) -> None:
        reset = self._reset(found, gpu)
        gpu.vram_lost = True
        succeeded = str(reset.get("reset_outcome", "")).startswith("succeeded")
        reset["reset_outcome"] = "succeeded_vram_lost" if succeeded else "vram_lost"

    def on_reset_done(self, found: Found, gpu: Gpu) -> None:
        reset = self._reset(found, gpu)
        reset["reset_outcome"] = "succeeded_vram_lost" if gpu.vram_lost else "succeeded"
        reset["reset_count"] = found.fields["reset_count"]
        self._end_reset(gpu)

    def on_reset_failed(self, found: Found, gpu: Gpu) -> None:
        error = found.fields.get("error_code")
        if error == 0:  # "ended with 0": what came before says how
            return
        reset = self._reset(found, gpu)
        reset["reset_outcome"] = "failed"
        self._copy(found, reset, "error_code", "reset_count")

    def on_coredump(self, found: Found, gpu: Gpu) -> None:
        gpu.coredump = self._whole(self._event("coredump_available", found))

    def on_coredump_path(self, found: Found, gpu: Gpu) -> None:
        if gpu.coredump is not None:
            gpu.coredump["path"] = found.fields["path"]

    def on_wedged(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("wedged", found, "reset_outcome"))

    def on_lost(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("gpu_lost", found))

    def on_ib_test(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("ib_test_failed", found, "engine_or_ring", "error_code"))

    def on_ring_test(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("ring_test_failed", found, "engine_or_ring", "error_code"))

    def on_fallback(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("fence_fallback", found, "engine_or_ring"))

    def on_rejected(self, found: Found, gpu: Gpu) -> None:
        event: dict[str, Any] = {"kind": "cs_rejected", "error_code": found.fields["error_code"]}
        self._whole(event)

    def on_ih_overflow(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("ih_overflow", found))

    def on_init(self, found: Found, gpu: Gpu) -> None:
        stage = f"{found.fields['stage']} of IP block <{found.fields['block']}>"
        self._whole(self._event("init_failure", found, "error_code", stage=stage))

    # Compute.

    def on_sq(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("sq_interrupt", found, "detail", "type", "priv"))

    def on_preemption(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("kfd_preemption_failed", found))

    def on_preemption_why(self, found: Found, gpu: Gpu) -> None:
        """A second line about a preemption that failed, where there was a first."""
        last = self.collected.report.events[-1:] or [{}]
        if last[0].get("kind") != "kfd_preemption_failed":
            self._whole(self._event("kfd_preemption_failed", found))

    def on_evict(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("kfd_evict_failed", found, "queue"))

    def on_restore(self, found: Found, gpu: Gpu) -> None:
        self._whole({"kind": "kfd_restore_failed"})

    def on_vital(self, found: Found, gpu: Gpu) -> None:
        self._whole({"kind": "kfd_vital_buffer_freed", "address": found.fields["address"]})

    def on_hsa_memory(self, found: Found, gpu: Gpu) -> None:
        names = ("hsa_node", "agent_handle", "fault_address", "fault_type")
        event: dict[str, Any] = {"kind": "hsa_memory_fault"}
        self._copy(found, event, *names)
        event["fault_type"] = str(event["fault_type"]).rstrip(".")
        self._whole(event)

    def on_hsa_exception(self, found: Found, gpu: Gpu) -> None:
        event: dict[str, Any] = {"kind": "hsa_hw_exception"}
        self._copy(found, event, "hsa_node", "agent_handle", "reason")
        self._whole(event)

    # Memory errors and firmware.

    def on_ras(self, found: Found, gpu: Gpu) -> None:
        severity = str(found.fields["severity"])
        if severity in ("correctable", "uncorrectable", "deferred"):
            names = ("block", "count", "new", "socket", "die", "severity")
            self._whole(self._event("ras_error", found, *names))

    def on_smu(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("smu_error", found, "message", "response"))

    def on_psp(self, found: Found, gpu: Gpu) -> None:
        self._whole(self._event("psp_error", found, "command", "response"))

    def on_stalled(self, found: Found, gpu: Gpu) -> None:
        event = self._event("gpu_lockup", found, "engine_or_ring", "stalled_ms")
        gpu.timeout = self.collected.add(event)

    def on_lockup(self, found: Found, gpu: Gpu) -> None:
        event = gpu.timeout
        if event is None or event["kind"] != "gpu_lockup":
            event = self.collected.add(self._event("gpu_lockup", found))
            gpu.timeout = event
        self._copy(found, event, "engine_or_ring", "current_fence", "last_fence")
        self._end_timeout(gpu)


MAX_GPUS = 1024
"""Whose state is kept; a log that names more is not a machine's."""


@cache
def reader() -> Reader:
    """The reader of these lines; made once."""
    return Reader(SHAPES)


def explain(stream: BinaryIO) -> Report:
    """Everything that a log tells of AMD GPUs."""
    story = Story()
    for found in reader().read(stream):
        story.take(found)
    return story.finish()
