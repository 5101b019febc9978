"""The declared kernel ABI is the measured one, and the comparison sees what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import parity


@pytest.mark.parametrize("name", parity.MODULES)
def test_every_declaration_equals_the_measured_layout(name: str) -> None:
    assert parity.differences(name) == []
    assert len(parity.declared(name)) > 60


def plant(tmp_path: Path, change: Any, name: str = "kfd") -> list[str]:
    facts = json.loads((parity.LAYOUTS / f"{name}.json").read_text())
    change(facts)
    (tmp_path / f"{name}.json").write_text(json.dumps(facts))
    return parity.differences(name, tmp_path)


def test_a_planted_offset_is_seen(tmp_path: Path) -> None:
    def change(facts: Any) -> None:
        facts["structs"]["kfd_event_data"]["fields"][-2]["offset"] = 36

    found = plant(tmp_path, change)
    assert found == ["EventData.event_id is at (40, 4), in kfd_event_data at (36, 4)"]


def test_a_planted_size_field_number_and_constant_are_seen(tmp_path: Path) -> None:
    def change(facts: Any) -> None:
        facts["structs"]["kfd_ioctl_svm_args"]["size"] = 32
        facts["structs"]["kfd_ioctl_acquire_vm_args"]["fields"][0]["name"] = "fd"
        facts["ioctls"]["AMDKFD_IOC_SVM"]["hex"] = "0xc0204b20"
        facts["ioctls"]["NEW"] = {"hex": "0xc0204b30", "nr": 0x30}
        facts["constants"]["KFD_IOC_QUEUE_TYPE_SDMA"] = 9

    assert plant(tmp_path, change) == [
        "AcquireVm lacks fd of kfd_ioctl_acquire_vm_args",
        "AcquireVm.drm_fd is not in kfd_ioctl_acquire_vm_args",
        "Svm has 24 bytes, kfd_ioctl_svm_args 32",
        "Svm: no header has the number 0xc0184b20",
        "request 0x30 of kfd is not declared",
        "QueueType.SDMA is 1, KFD_IOC_QUEUE_TYPE_SDMA {9}",
    ]


def test_a_struct_that_was_not_measured_is_seen(tmp_path: Path) -> None:
    def change(facts: Any) -> None:
        del facts["structs"]["drm_amdgpu_heap_info"]

    assert plant(tmp_path, change, "amdgpu_drm") == [
        "HeapInfo: no struct drm_amdgpu_heap_info was measured"
    ]


def test_the_command_prints_what_it_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert parity.main([]) == 0
    assert "0 differences" in capsys.readouterr().out
