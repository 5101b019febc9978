"""What the virtual kernel prints when its GPUs break is explained as a real kernel's log is."""

from __future__ import annotations

import io

import numpy as np
import pytest

from rawgpu.amd.decode.log import SAY, explain
from rawgpu.amd.driver.device import open_device
from rawgpu.amd.virtual import faults
from rawgpu.amd.virtual.machine import Machine
from rawgpu.crash.report import Report
from rawgpu.errors import PageFault
from rawgpu.virtual.room import Room
from tests.amd.driver.objects import SAXPY, build


def explained(lines: list[str]) -> Report:
    return explain(io.BytesIO("\n".join(lines).encode()))


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_a_kernel_s_null_pointer(arch: str) -> None:
    with Room(arch) as room:
        machine = room.machines["amd"]
        assert isinstance(machine, Machine)
        gpu = open_device("amd:0")
        y = gpu.array(np.ones(64, np.float32))
        saxpy = gpu.load(build(SAXPY, arch))["saxpy"]
        saxpy(np.uint64(0x10), y, np.float32(1), np.int32(64), grid=1, block=64)
        with pytest.raises(PageFault):
            gpu.synchronize()
        gpu.close()
        place = machine.gpus[0].place
    report = explained(machine.log)
    event = report.events[0]
    assert event["kind"] == "gpu_page_fault"
    assert event["bdf"] == f"0000:{faults.bus(place)}"
    assert int(event["fault_address"], 16) == 0
    assert event["access"] == "read" and event["client"] == "TCP"
    assert event["pid"] > 0 and event["process"]
    assert {"vmid", "pasid", "hub", "status", "decoded"} <= event.keys()
    assert any("null pointer" in cause.text for cause in report.causes)
    assert "a read by TCP" in "\n".join(report.text(SAY))


def test_a_reset_and_a_stopped_wave() -> None:
    with Room("gfx1100") as room:
        machine = room.machines["amd"]
        assert isinstance(machine, Machine)
        place = machine.gpus[0].place
    report = explained(faults.reset_lines(place))
    assert report.events == [
        {
            "kind": "gpu_reset",
            "bdf": f"0000:{faults.bus(place)}",
            "source": 3,
            "reset_outcome": "succeeded_vram_lost",
            "method": "MODE1",
            "reset_count": 1,
        }
    ]
