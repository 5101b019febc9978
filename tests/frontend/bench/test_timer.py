"""Contestants take turns, short calls are repeated, long ones are cut short."""

from __future__ import annotations

import os

import pytest

from frontend.bench import timer as tm
from frontend.bench.timer import Timer, on_processors, processors


class Clock:
    """Time that calls move on by themselves."""

    def __init__(self) -> None:
        self.ns = 0
        self.log: list[str] = []

    def call(self, name: str, ns: int) -> None:
        self.log.append(name)
        self.ns += ns

    def timer(self, rounds: int) -> Timer:
        timer = Timer(1, rounds)
        timer.now = lambda: self.ns
        return timer


def test_a_figure_is_the_median_of_the_rounds_and_a_peak_the_best() -> None:
    clock, costs = Clock(), iter([30, 40, 50, 30, 90])  # warm-up, then four rounds
    calls = [lambda: clock.call("a", next(costs) * 1_000_000)]
    assert clock.timer(4).medians_ms([calls]) == [45.0]
    costs = iter([30, 40, 50, 30, 90])
    assert clock.timer(4).best_ms(calls) == 30.0


def test_short_calls_are_repeated_and_go_round_between_inputs() -> None:
    clock = Clock()
    calls = [lambda name=name: clock.call(name, 1000) for name in "ab"]
    assert clock.timer(1).medians_ms([calls]) == [0.001]
    assert len(clock.log) >= tm.LEAST_NS / 1000
    assert clock.log[:4] == ["a", "b", "a", "b"]


def test_contestants_take_turns_and_each_begins_as_often() -> None:
    clock = Clock()
    contestants = [[lambda name=name: clock.call(name, 60_000_000)] for name in "ab"]
    clock.timer(4).medians_ms(contestants)
    assert clock.log == [*"ab", *"ab", *"ba", *"ab", *"ba"]


def test_a_slow_contestant_has_fewer_rounds_but_a_figure() -> None:
    clock = Clock()
    slow, quick = tm.MOST_NS * 2 // 3, 60_000_000
    contestants = [[lambda: clock.call("s", slow)], [lambda: clock.call("q", quick)]]
    medians = clock.timer(7).medians_ms(contestants)
    assert medians == [pytest.approx(slow / 1e6), pytest.approx(60.0)]
    assert clock.log.count("s") == 1 + 2
    assert clock.log.count("q") == 1 + 7


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not say")
def test_processors_are_given_back() -> None:
    before = os.sched_getaffinity(0)
    with on_processors(1) as count:
        assert count == processors() == 1
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
    with on_processors(None) as count:
        assert count == len(before)
