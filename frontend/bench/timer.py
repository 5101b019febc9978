"""Times several calls turn by turn, so that what disturbs one disturbs the others as well."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice

LEAST_NS = 2_500_000
"""One timing takes at least about this long."""
MOST_NS = 10_000_000_000
"""A contestant that has taken so long in all has its figure, however few its rounds."""

Call = Callable[[], object]


class Timer:
    """Measures several calls turn by turn.

    On one thread it takes CPU time of the process, which other programs on the machine disturb
    least; on several, wall time.
    """

    def __init__(self, threads: int, rounds: int) -> None:
        self.threads = threads
        self.now = time.process_time_ns if threads == 1 else time.perf_counter_ns
        self.rounds = rounds

    def medians_ms(self, contestants: Sequence[Sequence[Call]]) -> list[float]:
        """Milliseconds a call; a contestant's calls differ in their inputs alone."""
        return [statistics.median(of_one) for of_one in self.times_ms(contestants)]

    def best_ms(self, calls: Sequence[Call]) -> float:
        """Milliseconds a call in the best round, for what is to be a limit."""
        return min(self.times_ms([calls])[0])

    def times_ms(self, contestants: Sequence[Sequence[Call]]) -> list[list[float]]:
        """Milliseconds a call, for each contestant one of each round."""
        batches = [self._batch(calls) for calls in contestants]
        times: list[list[float]] = [[] for _ in batches]
        taken = [0] * len(batches)
        for number in range(self.rounds):
            order = list(range(len(batches)))
            for i in order[number % len(order) :] + order[: number % len(order)]:
                if taken[i] < MOST_NS:
                    took = self._time_ns(batches[i])
                    taken[i] += took
                    times[i].append(took / len(batches[i]) / 1e6)
        return times

    def _batch(self, calls: Sequence[Call]) -> list[Call]:
        """The calls over and over, so many that one timing is long enough. Also warms up."""
        count = len(calls)
        while True:
            batch = list(islice(cycle(calls), count))
            took = self._time_ns(batch)
            if took >= LEAST_NS:
                return self._shortened(batch, took)
            count = max(2 * count, math.ceil(count * LEAST_NS / max(took, 1_000)))

    @staticmethod
    def _shortened(batch: list[Call], took: int) -> list[Call]:
        """Long calls need not all be in one timing."""
        return (
            batch[: max(1, math.ceil(len(batch) * LEAST_NS / took))]
            if took > 20 * LEAST_NS
            else batch
        )

    def _time_ns(self, batch: Sequence[Call]) -> int:
        now = self.now
        start = now()
        for call in batch:
            call()
        return now() - start


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def on_processors(count: int | None) -> Iterator[int]:
    """Use only the first `count` of the processors that we may use, None for all; gives how many.

    A device that is open already keeps its threads: enter this first.
    """
    if count is None or not hasattr(os, "sched_getaffinity"):
        yield min(count or processors(), processors())
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield processors()
    finally:
        os.sched_setaffinity(0, before)
