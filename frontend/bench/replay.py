"""A computation that is replayed: planned and recorded once, run again into the same memory.

`prepare` takes several graphs of one form over different leaves, so that a benchmark can go from
one set of inputs to the next and nothing can be packed or remembered from the call before.

    calls = prepare([[x + 1] for x in inputs])
    calls[0]()                # computes; no allocation, no planning
    calls[0].read(0)          # the first result as an array
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from frontend import engine
from frontend.dtype import DType
from frontend.graph.node import Node, Op
from frontend.schedule.plan import Plan, Step, signature
from frontend.tensor import Tensor
from rawgpu.contract import Recording

ALONE, SHARED = 1, 1 << 40
"""Launches said to be so short that no thread helps, or so long that all do."""


class Result:
    """Memory for one result, which every replay of a family writes."""

    def __init__(self, storage: engine.Storage, shape: tuple[int, ...], dtype: DType) -> None:
        self.storage = storage
        self.shape = shape
        self.dtype = dtype

    def read(self) -> np.ndarray[Any, Any]:
        size_bytes = self.storage.size_bytes
        data = bytearray(self.storage.buffer.read(size_bytes)) if size_bytes else bytearray()
        return np.frombuffer(data, dtype=self.dtype.numpy).reshape(self.shape)


class Replay:
    """A recorded computation on leaves of its own; calling it runs it."""

    def __init__(self, run: engine.Run, words: np.ndarray[Any, Any], results: list[Result]) -> None:
        self._run = run  # owns the kernels that the recordings launch
        self._words = words
        self._recordings: list[Recording] = []
        for part in run._segments:
            assert not isinstance(part, Step), "a benchmark stays on one device"
            self._recordings.append(part)
        self.results = results

    def __call__(self) -> None:
        """Compute the results from the leaves, and return when they are there."""
        for recording in self._recordings:
            recording.replay(self._words)

    def read(self, number: int) -> np.ndarray[Any, Any]:
        """A copy of result `number`, which the last call of the family has written."""
        return self.results[number].read()


class _Memory:
    """What the replays of one family share: the results and the temporaries."""

    def __init__(self, plan: Plan) -> None:
        self.results = {
            p.number: _allocated(p.device, p.size_bytes) for p in plan.places if p.kind == "result"
        }
        self.arenas = {device: _allocated(device, size) for device, size in plan.arenas.items()}


def _allocated(device: str, size_bytes: int) -> engine.Storage:
    return engine.Storage(engine.opened(device).alloc(size_bytes), size_bytes)


def prepare(variants: Sequence[Sequence[Tensor]], work_ns: int | None = None) -> list[Replay]:
    """One replay for each variant: results of one form over leaves of their own.

    The leaves must be realised. `work_ns` is what every launch is said to take, which decides
    whether threads share it: `ALONE` or `SHARED`.
    """
    plan: Plan | None = None
    first: tuple[object, ...] = ()
    replays: list[Replay] = []
    for tensors in variants:
        wanted = [t.node for t in tensors]
        roots = list(dict.fromkeys(engine.base(n) for n in wanted))
        assert all(n.op is not Op.BUFFER for n in roots), "nothing to compute"
        form, leaves = signature(roots)
        if plan is None:
            first, plan = form, engine.find_plan(form, roots)
            if work_ns is not None:
                plan = replace(plan, steps=[replace(s, work_ns=work_ns) for s in plan.steps])
            memory = _Memory(plan)
        assert form == first, "the variants of a benchmark have one form"
        run = engine.Run(plan)
        words = _bound(run, leaves, memory)
        replays.append(Replay(run, words, _results(wanted, roots, memory)))
    return replays


def _bound(run: engine.Run, leaves: Sequence[Node], memory: _Memory) -> np.ndarray[Any, Any]:
    """The addresses that the run's recordings take, by their binding."""
    words = np.zeros_like(run._words)
    for place, binding in zip(run.plan.places, run._binding, strict=True):
        if place.kind == "leaf":
            words[binding] = leaves[place.number].storage.address
        elif place.kind == "result":
            words[binding] = memory.results[place.number].address
        elif place.device in memory.arenas:
            words[binding] = memory.arenas[place.device].address
    return words


def _results(wanted: Sequence[Node], roots: Sequence[Node], memory: _Memory) -> list[Result]:
    return [
        Result(memory.results[roots.index(engine.base(node))], node.shape, node.dtype)
        for node in wanted
    ]
