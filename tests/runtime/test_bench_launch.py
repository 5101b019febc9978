"""The launch benchmark runs and checks what it ran; how fast is not a test's business."""

from __future__ import annotations

from rawgpu.runtime.bench_launch import bench_launch


def test_the_benchmark_checks_its_results() -> None:
    result = bench_launch(launches=500, replays=50, rounds=3)
    assert result["checked"] is True
    assert result["replay_1x1_us"] > 0
    assert result["recording_10000_us_per_launch"] > 0
