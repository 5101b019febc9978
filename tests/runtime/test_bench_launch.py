"""The launch benchmark runs and checks what it ran; how fast is not a test's business."""

from __future__ import annotations

import pytest

import rawgpu
from rawgpu.errors import UnsupportedDevice
from rawgpu.runtime import bench_launch as module
from rawgpu.runtime.bench_launch import FEW, bench_launch, sizes


def test_the_benchmark_checks_its_results() -> None:
    result = bench_launch(launches=500, replays=50, rounds=3)
    assert result["checked"] is True
    assert result["replay_1x1_us"] > 0
    assert result["recording_500_us_per_launch"] > 0


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_it_runs_on_a_virtual_gpu_with_fewer_launches(arch: str) -> None:
    with rawgpu.room(arch):
        assert sizes("amd:0") is FEW
        result = bench_launch("amd:0", launches=20, replays=5, rounds=2)
    assert result["checked"] is True
    assert result["recording_20_us_per_launch"] > 0
    assert sizes("cpu:0")["launches"] == 10_000


def test_a_target_without_a_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADD", {"amdgcn": ""})
    with pytest.raises(UnsupportedDevice, match="no kernel for"):
        bench_launch("cpu:0", launches=1, replays=1, rounds=1)
