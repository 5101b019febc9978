"""The least time a row can take follows from the peaks; the kernel behind one computes."""

from __future__ import annotations

import pytest

from frontend.bench import peaks as pk
from frontend.bench.peaks import Peaks, Traffic, measure_peaks
from frontend.bench.timer import Timer
from tests.frontend.evaluator import uses_reference

PEAKS = Peaks(100.0, copy={1000: 50.0, 1_000_000: 10.0}, read={1000: 80.0, 1_000_000: 20.0})


@pytest.mark.parametrize(
    ("flops", "traffic", "ns", "bound"),
    [
        (0, Traffic(400, 400, 1000), 800 / 50, "bytes"),
        (0, Traffic(1000, 100, 1000), 200 / 50 + 900 / 80, "bytes"),
        (0, Traffic(100, 1000, 1000), 1100 / 50, "bytes"),
        (0, Traffic(400, 400, 2000), 800 / 10, "bytes"),
        (0, Traffic(400, 400, 5_000_000), 800 / 10, "bytes"),  # beyond what was measured
        (8000, Traffic(400, 400, 1000), 80, "flops"),
    ],
)
def test_the_least_time_is_that_of_arithmetic_or_of_bytes(
    flops: int, traffic: Traffic, ns: float, bound: str
) -> None:
    assert PEAKS.least_ms(flops, traffic) == pytest.approx(ns / 1e6)
    assert PEAKS.bound(flops, traffic) == bound


def test_a_small_footprint_is_held_against_the_best_of_larger_ones() -> None:
    odd = Peaks(1.0, copy={1000: 5.0, 4000: 50.0, 16000: 10.0}, read={1000: 1.0})
    assert odd.least_ms(0, Traffic(50, 50, 500)) == pytest.approx(2 / 1e6)


def test_the_better_of_two_measurements_is_kept() -> None:
    found = Peaks(1.0, copy={1000: 5.0, 4000: 3.0}, read={1000: 1.0})
    found.raise_to(Peaks(0.5, copy={1000: 4.0, 4000: 6.0}, read={1000: 2.0}))
    assert found == Peaks(1.0, copy={1000: 5.0, 4000: 6.0}, read={1000: 2.0})


@pytest.mark.host
@pytest.mark.skipif(uses_reference(), reason="measures the real engine")
def test_peaks_are_measured_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pk, "SIZES", (4096, 65536))
    found = measure_peaks("cpu:0", Timer(1, 1))
    assert found is not None
    assert found.copy.keys() == found.read.keys() == {16384, 262144}
    assert min(found.fma, *found.copy.values(), *found.read.values()) > 0


def test_a_gpu_has_no_peaks_yet() -> None:
    assert measure_peaks("amd:0", Timer(1, 1)) is None
