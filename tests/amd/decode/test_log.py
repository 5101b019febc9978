"""Kernel logs are told as they are: the samples field for field, what is missing left out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rawgpu.amd.decode.log import SAY, explain
from rawgpu.amd.decode.log_shapes import SHAPES
from rawgpu.crash.report import MAX_EVENTS, Report

FOLDER = Path(__file__).parents[2] / "data" / "crash"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
PREFIXES = [
    "",
    "[  123.456789] ",
    "[Fri Sep 11 08:02:15 2026] ",
    "kern  :err   : [12.5] ",
    "<3>[12.5] ",
    "Nov 04 13:30:18 host kernel: ",
    "2024-08-19T02:11:07.301093+00:00 host kernel: ",
    "3,1234,5678,-;",
    "\x1b[32m[   97.590000] \x1b[0m\x1b[33m",
    "> ",
]
HEAD = "amdgpu 0000:03:00.0: amdgpu: "


def told(*lines: str) -> Report:
    return explain(io.BytesIO("\n".join(lines).encode()))


@pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])
def test_every_field_of_a_sample_is_right_and_none_is_invented(case: dict[str, Any]) -> None:
    report = explain(io.BytesIO((FOLDER / case["file"]).read_bytes()))
    assert report.events == case["expected"]["events"]
    assert report.causes and json.dumps(report.row())


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_what_stands_before_a_line_changes_nothing(prefix: str, ending: str) -> None:
    for case in CASES:
        lines = (FOLDER / case["file"]).read_text().splitlines()
        bare = [line.partition("] ")[2] if line.startswith("[2") else line for line in lines]
        log = "".join(prefix + line + ending for line in bare)
        assert explain(io.BytesIO(log.encode())).events == case["expected"]["events"]


def test_a_sentence_is_there_for_each_kind_that_can_come_out() -> None:
    report = told(*(f"{HEAD}{example(shape.text)}" for shape in SHAPES))
    kinds = {event["kind"] for event in report.events}
    assert kinds <= SAY.keys()
    assert len(kinds) > 25
    assert all("?" not in line for line in report.text(SAY))


def example(text: str) -> str:
    """A line of a shape: every field is 1, every part that may be missing is missing."""
    import re

    text = re.sub(r"«[^»]*»", "", text)
    text = text.replace("{severity}", "uncorrectable")
    return re.sub(r"\{\w+(?::[dx])?\}", "1", re.sub(r"\{\w+:\*\}", "word", text))


def test_each_shape_finds_its_own_line() -> None:
    for shape in SHAPES:
        assert shape.match(HEAD + example(shape.text)) is not None, shape.text
        assert shape.kernels and shape.source


def fault(status: int = 0x00841B5B, *, name: str = "GCVM_L2", more: str = "") -> Report:
    return told(
        f"{HEAD}[gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32770)",
        f"{HEAD} Process my app: a pid 7 thread my thread pid 8",
        f"{HEAD}  in page starting at address 0x00007f0000001000 from client 10",
        f"{HEAD}{name}_PROTECTION_FAULT_STATUS:0x{status:08X}",
        *([more] if more else ()),
    )


@pytest.mark.parametrize(
    ("status", "access", "client", "walker"),
    [
        (0x00301031, "read", "TCP", 0),
        (0x00341051, "write", "TCP", 0),
        (0x008012B0, "exec", "SQC (inst)", 0),
        (0x00841B5B, "write", "SDMA0", 5),
        (0x00800932, "read", "CPF", 1),
    ],
)
def test_status_words_of_public_reports(status: int, access: str, client: str, walker: int) -> None:
    event = fault(status).events[0]
    assert (event["access"], event["client"]) == (access, client)
    assert event["decoded"]["walker_error"] == walker
    assert {"access", "client", "client_id", "decoded"} == set(event["derived"])


def test_names_with_blanks_and_colons_are_whole() -> None:
    event = fault().events[0]
    assert (event["process"], event["pid"], event["thread"]) == ("my app: a", 7, "my thread")


def test_a_status_of_zero_says_nothing_of_the_fault() -> None:
    event = fault(0, more=f"{HEAD}\t Faulty UTCL2 client ID: CB/DB (0x0)").events[0]
    assert event["status"] == "0x00000000"
    assert not {"client", "client_id", "access", "decoded", "derived"} & event.keys()


def test_fields_that_the_kernel_printed_win_over_our_layout() -> None:
    event = fault(0x00301031, more=f"{HEAD}\t WALKER_ERROR: 0x3").events[0]
    assert event["decoded"]["walker_error"] == 3


def test_the_media_hub_s_word_has_its_own_layout() -> None:
    word = 1 | 3 << 5 | 8 << 11 | 1 << 20 | 5 << 22
    line = f"{HEAD}MMVM_L2_PROTECTION_FAULT_STATUS_LO32:0x{word:08X}"
    event = told(f"{HEAD}[mmhub] page fault (src_id:0 ring:0 vmid:5 pasid:9)", line).events[0]
    decoded = event["decoded"]
    assert (decoded["permission_faults"], decoded["cid"], decoded["rw"]) == (3, 8, 1)
    assert decoded["vmid"] == 5 and event["access"] == "write"
    assert "client" not in event  # names of media clients differ from chip to chip


def test_a_fault_before_gfx9_has_a_page_and_four_letters() -> None:
    event = told(
        "amdgpu 0000:01:00.0: GPU fault detected: 146 0x0000480c for process X pid 5 thread X:cs0 "
        "pid 6",
        "amdgpu 0000:01:00.0:   VM_CONTEXT1_PROTECTION_FAULT_ADDR   0x00100180",
        "amdgpu 0000:01:00.0:   VM_CONTEXT1_PROTECTION_FAULT_STATUS 0x0304800C",
        "amdgpu 0000:01:00.0: VM fault (0x0c, vmid 1, pasid 32768) at page 1048960, write from "
        "'TC4' (0x54433400) (72)",
    ).events[0]
    assert event["fault_address"] == "0x0000000100180000" and event["fault_page"] == 0x100180
    assert (event["access"], event["client"], event["vmid"]) == ("write", "TC4", 1)
    assert event["decoded"] == {"protections": 0xC, "cid": 72, "rw": 1, "vmid": 1}


def test_repeats_are_counted_and_different_faults_are_not_merged() -> None:
    lines = (FOLDER / CASES[0]["file"]).read_text()
    report = explain(io.BytesIO(lines.encode() * 300))
    assert [event["count"] for event in report.events] == [300, 300]


def test_good_news_is_not_reported_as_trouble() -> None:
    report = told(
        f"{HEAD}no uncorrectable hardware errors detected in umc block",
        f"{HEAD}RAS: optional ras ta ucode is not available",
        f"{HEAD}ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
        f"{HEAD}GPU reset end with ret = 0",
    )
    assert report.events == []
    assert list(report.text(SAY)) == ["Nothing here that a GPU driver is known to say of a crash."]


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        ((), "started_unknown_end"),
        (("GPU reset succeeded, trying to resume",), "succeeded_resuming"),
        (("GPU reset succeeded, trying to resume", "GPU reset(2) succeeded!"), "succeeded"),
        (("VRAM is lost due to GPU reset!",), "vram_lost"),
        (("VRAM is lost due to GPU reset!", "GPU reset(1) succeeded!"), "succeeded_vram_lost"),
        (("GPU reset end with ret = -22",), "failed"),
    ],
)
def test_a_reset_ends_as_the_log_says(lines: tuple[str, ...], outcome: str) -> None:
    report = told(f"{HEAD}GPU reset begin!", *(HEAD + line for line in lines))
    assert [event["reset_outcome"] for event in report.events] == [outcome]


def test_a_queue_reset_without_end_is_not_said_to_have_worked() -> None:
    report = told(f"{HEAD}Starting comp_1.0.0 ring reset")
    assert report.events[0]["reset_outcome"] == "started_unknown_end"


def test_events_are_bounded_and_the_rest_is_counted() -> None:
    lines = (f"{HEAD}ring r{i} timeout, signaled seq=1, emitted seq=2" for i in range(12_000))
    report = told(*lines)
    assert len(report.events) == MAX_EVENTS
    assert report.left_out == 2000 and report.row()["left_out"] == 2000


def rocr(address: str, reason: str) -> str:
    return (
        "Memory access fault by GPU node-1 (Agent handle: 0x55d0) on address "
        f"{address}. Reason: {reason}."
    )


@pytest.mark.parametrize(
    ("address", "reason", "cause", "advice"),
    [
        ("0x7f0000001000", "Page not present or supervisor privilege", "No page was mapped",
         "Compare the address"),
        ("0x7f0000001000", "Write access to a read-only page", "its rights forbade",
         "Look at what"),
        ("0x7f0000001000", "Execute access to a page marked NX", "its rights forbade",
         "Look at what"),
        ("(nil)", "Page not present or supervisor privilege", "null pointer",
         "Look at the pointers"),
    ],
)  # fmt: skip
def test_what_rocm_s_runtime_says_has_the_same_causes(
    address: str, reason: str, cause: str, advice: str
) -> None:
    report = told(rocr(address, reason))
    assert [cause in found.text for found in report.causes] == [True]
    assert [line.startswith(advice) for line in report.advice] == [True]


def test_an_unknown_reason_of_the_runtime_has_no_cause() -> None:
    assert told(rocr("0x7f0000001000", "Unknown")).causes == []


def test_a_fault_that_kernel_and_runtime_tell_has_one_cause() -> None:
    report = explain(io.BytesIO(b"\n".join([
        f"{HEAD}[gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32770)".encode(),
        f"{HEAD}  in page starting at address 0x00007f0000001000 from client 10".encode(),
        f"{HEAD}GCVM_L2_PROTECTION_FAULT_STATUS:0x00801031".encode(),
        rocr("0x7f0000001000", "Page not present or supervisor privilege").encode(),
    ])))  # fmt: skip
    assert [(c.text[:10], c.events) for c in report.causes] == [("No page wa", (0, 1))]


def test_a_forbidden_access_comes_with_what_to_do() -> None:
    report = fault(0x00801080)  # PERMISSION_FAULTS of 8, for a write
    assert any("rights forbade" in cause.text for cause in report.causes)
    assert any("Look at what the kernel writes to" in line for line in report.advice)


def test_outcomes_are_said_in_words() -> None:
    report = told(
        f"{HEAD}GPU reset begin!", f"{HEAD}VRAM is lost due to GPU reset!",
        f"{HEAD}GPU reset(1) succeeded!",
    )  # fmt: skip
    text = "\n".join(report.text(SAY))
    assert "the whole GPU was reset: succeeded, and video memory was lost" in text
