"""The doctor says what is there and what to do, also where much is broken."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

import rawgpu
from rawgpu.cli import doctor, facts
from rawgpu.cli.main import main

HEALTHY: dict[str, Any] = {
    "packages": [{"name": "numpy", "version": "2.0", "needed": True}],
    "drivers": ["cpu"],
    "devices": [{"name": "cpu:0", "arch": "x86_64", "usable": True, "title": "", "note": ""}],
    "nodes": [],
    "cpu": {},
    "memory": {"transparent_hugepages": "madvise"},
    "cache": {"problems": []},
}

NODE = {"path": "/dev/kfd", "readable": True, "writable": True, "group": "render", "driver": None}


def test_a_healthy_machine_needs_nothing() -> None:
    assert doctor.advice(HEALTHY) == []


@pytest.mark.parametrize(
    ("part", "facts_of", "words"),
    [
        ("packages", [{"name": "cffi", "version": None, "needed": True}], "pip install cffi"),
        ("packages", [{"name": "llvm", "version": None, "needed": True}], "--force-reinstall"),
        ("nodes", [NODE | {"readable": False}], "usermod -aG render"),
        ("nodes", [NODE], "driver for the CPU only"),
        ("memory", {"transparent_hugepages": "never"}, "echo madvise"),
        ("memory", {"error": "OSError: gone"}, "gone"),
        ("cache", {"problems": ["chmod 700 there"]}, "chmod 700"),
    ],
)
def test_each_fault_has_its_advice(part: str, facts_of: Any, words: str) -> None:
    assert any(words in line for line in doctor.advice(HEALTHY | {part: facts_of}))


def test_the_device_that_cannot_be_used_says_why() -> None:
    device = HEALTHY["devices"][0] | {"usable": False, "note": "no such luck"}
    assert doctor.advice(HEALTHY | {"devices": [device]}) == ["cpu:0: no such luck"]


def test_a_part_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> dict[str, Any]:
        raise PermissionError("/proc is closed")

    monkeypatch.setattr(facts, "cpu", fail)
    main(["doctor"])
    text = capsys.readouterr().out
    assert "/proc is closed" in text
    assert "numpy" in text


@pytest.mark.skipif(sys.platform != "linux", reason="the CPU device runs on Linux")
def test_here_the_doctor_finds_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert "cpu:0" in [device["name"] for device in report["devices"]]
    assert all(p["version"] for p in report["packages"] if p["needed"])


@pytest.mark.skipif(sys.platform != "linux", reason="the CPU device runs on Linux")
def test_devices_are_listed_for_people_and_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["devices"]) == 0
    assert "cpu:0" in capsys.readouterr().out
    assert main(["devices", "--json"]) == 0
    assert "cpu:0" in [row["name"] for row in json.loads(capsys.readouterr().out)["devices"]]


def test_a_doctor_without_a_usable_device_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(facts, "devices", list)
    assert main(["doctor"]) == 1
    assert "no device can be used" in capsys.readouterr().err


def test_a_virtual_gpu_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    with rawgpu.room("gfx1100"):
        main(["doctor"])
    text = capsys.readouterr().out
    assert "amd:0   gfx1100  usable, virtual" in text
    assert text.count("virtual") == 2, "the GPU, and how one gets such; not the CPU"


def test_a_bad_variable_is_one_line_of_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAWGPU_VIRTUAL", "gfx1100*x")
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "devices could not be listed: see below" in lines
    (told,) = [line for line in lines if line.startswith("  - devices: ")]
    assert "RAWGPU_VIRTUAL: 'gfx1100*x' names no virtual GPU; try: RAWGPU_VIRTUAL=" in told
