"""Stages pass on a GPU that works, and fail with the right cause on one that does not."""

from __future__ import annotations

import errno
import io
import re
from typing import Any

import pytest

from rawgpu.amd.driver.hdp import HdpFlush
from rawgpu.amd.virtual.dispatch import run_nothing
from rawgpu.hwcheck.plan import BY_NAME, STAGES
from rawgpu.virtual.faults import Faults
from tests.hwcheck.rooms import Plant, stage

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("name", ["nodes", "abi", "memory", "doorbell", "fence", "events"])
def test_a_stage_passes_on_a_gpu_that_works(name: str) -> None:
    result = stage(name)
    assert result.status == "passed", result


@pytest.mark.parametrize("arch", ["gfx1201", "gfx942", "gfx90a"])
def test_an_empty_packet_is_read_by_every_kind_of_queue(arch: str) -> None:
    result = stage("doorbell", arch)
    assert result.status == "passed", result


@pytest.mark.parametrize("kernel", ["6.1", "6.6", "6.12.107", "1.22"])
def test_every_version_of_the_kernel_interface_passes(kernel: str) -> None:
    result = stage("abi", kernel=kernel)
    assert result.status == "passed", result
    assert result.figures["kfd"] == result.figures["row"]


def test_kernels_give_what_numpy_gives() -> None:
    for name in ("kernel", "arguments", "recording"):
        assert stage(name).status == "passed"


def fail(call: str, number: int, **more: Any) -> Plant:
    def plant(faults: Faults) -> None:
        faults.fail(call, errno=number, **more)

    return plant


def hang(packet: int) -> Plant:
    return lambda faults: faults.hang(packet=packet)


CASES: dict[str, tuple[str, dict[str, Any], Plant, str, str]] = {
    "hidden node": ("nodes", {"hidden": [0]}, lambda f: None, "hidden", "cgroup"),
    "no module": ("nodes", {}, fail("open", errno.ENOENT), "DeviceNotFound", "module"),
    "no permission": ("nodes", {}, fail("open", errno.EACCES), "DevicePermission", "group"),
    "no room for a process": ("nodes", {}, fail("open", errno.ENOMEM), "KernelCallFailed",
                              "could not make this process"),
    "another user": ("abi", {}, fail("AcquireVm", errno.EBUSY), "ProcessMustRestart", "holds"),
    "no vm": ("abi", {}, fail("AcquireVm", errno.EINVAL), "KernelCallFailed", "render file"),
    "no memory": ("memory", {}, fail("AllocMemoryOfGpu", errno.ENOMEM, nth=2, times=9),
                  "OutOfMemory", "memory"),
    "no mapping": ("memory", {}, fail("MapMemoryToGpu", errno.EINVAL, nth=2), "KernelCallFailed",
                   "page tables"),
    "save area": ("doorbell", {}, fail("CreateQueue", errno.EINVAL), "KernelCallFailed",
                  "context save area"),
    "no queue left": ("doorbell", {}, fail("CreateQueue", errno.EPERM), "KernelCallFailed",
                      "scheduling policy"),
    "a dead scheduler": ("doorbell", {}, hang(1), "doorbell-ignored", "firmware stuck"),
    "a reset": ("fence", {}, lambda f: f.reset(packet=3), "Reset", "reset the GPU"),
    "no copy engine": ("copy", {"sdma": False}, lambda f: None, "no-engine", "no SDMA engine"),
    "copy engine hangs": ("copy", {}, hang(2), "FenceTimeout", "SDMA engine hangs"),
    "small bar": ("visibility", {"large_bar": False}, lambda f: None, "small-bar",
                  "Resizable BAR is off"),
    "a fence that never comes": ("fence", {}, hang(2), "FenceTimeout", "RELEASE_MEM"),
    "deaf": ("events", {}, lambda f: f.lose_interrupt(times=1000), "no-interrupt", "interrupt"),
    "no store is seen": ("kernel", {"runner": run_nothing}, lambda f: None, "stale-data",
                         "stores are not seen"),
    "a wave hangs": ("kernel", {}, hang(9), "Reset|FenceTimeout", "did not end"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_fails_the_right_stage_with_the_right_cause(case: str) -> None:
    name, options, plant, kind, cause = CASES[case]
    result = stage(name, plant=plant, **options)
    assert result.status == "failed", result
    assert re.fullmatch(kind, result.kind), result
    assert cause in result.cause
    assert result.try_next
    assert "Traceback" not in result.message + result.cause


def test_a_flush_that_does_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HdpFlush, "flush", lambda self: None)
    result = stage("visibility")
    assert (result.kind, "HDP" in result.cause) == ("stale-data", True), result


def test_a_wrong_instruction_fails_the_check_of_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rawgpu.hwcheck import check, kernels

    def other(*words: Any, **values: Any) -> str:
        return kernels.module_text(*words, **values).replace("fadd", "fsub")

    monkeypatch.setattr(check, "module_text", other)
    result = stage("recording")
    assert result.kind == "wrong-data"
    assert "1023 of 1024 elements are wrong, the first at 1" in result.message


def test_stages_that_need_others_come_after_them() -> None:
    names = [s.name for s in STAGES]
    assert len(BY_NAME) == len(STAGES)
    for at, one in enumerate(STAGES):
        assert all(name in names[:at] for name in one.needs), one.name
    broken = [s.faults for s in STAGES]
    assert broken == sorted(broken), "faults on purpose come last"


def test_on_the_cpu_what_does_not_apply_is_skipped_with_a_reason() -> None:
    for name in ("nodes", "doorbell", "barriers", "fault-loop"):
        result = stage(name, device="cpu:0")
        assert result.status == "skipped" and result.message
    for name in ("memory", "fence", "arguments", "scratch", "recording"):
        assert stage(name, device="cpu:0").status == "passed"


@pytest.mark.parametrize("name", ["fault-read", "fault-illegal"])
def test_a_fault_on_purpose_is_told_and_got_over(name: str) -> None:
    result = stage(name, kernel="1.22")
    assert result.status == "passed", result
    assert result.figures["reopened"] == "in the same process"


def test_a_fault_that_ends_the_process_is_said_to() -> None:
    result = stage("fault-write")
    assert result.status == "passed", result
    assert result.figures["reopened"] == "in a new process only"
    assert result.figures["access"] == "write"


def test_a_recording_has_no_line_after_its_end() -> None:
    file = io.StringIO()
    assert stage("visibility", record=file).status == "passed"
    lines = file.getvalue().splitlines()
    assert '"call":"end"' in lines[-1]
    assert sum('"call":"end"' in line for line in lines) == 1
