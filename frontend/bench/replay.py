"""A computation that is replayed: planned and recorded once, run again into the same memory.

`prepare` takes several graphs of one form over different leaves, so that a benchmark can go from one set of inputs
to the next and nothing can be packed or remembered from the call before.

    calls = prepare([[x + 1] for x in inputs], "cpu:0")
    calls[0]()                # computes; no allocation, no planning
    calls[0].read(0)          # the first result as an array
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from frontend import engine
from frontend.dtype import DType
from frontend.graph.node import Node
from frontend.schedule.plan import Plan, Step, signature
from frontend.tensor import Tensor


class Replay:
    """A recorded computation on leaves of its own. Calling it runs it; results lie in shared memory."""

    def __init__(self, run: engine.Run, words: np.ndarray[Any, Any], results: list[Result]) -> None:
        self._run = run  # owns what the recordings were made of
        self._words = words
        self.results = results
        self._recordings = [part for part in run._segments if not isinstance(part, Step)]
        assert len(self._recordings) == len(run._segments), "a benchmark stays on one device"

    def __call__(self) -> None:
        """Compute the results from the leaves, and return when they are there."""
        for recording in self._recordings:
            recording.replay(self._words)

    def read(self, number: int) -> np.ndarray[Any, Any]:
        """A copy of result `number`, which the last call of any sibling has written."""
        return self.results[number].read()


class Result:
    """Memory for one result."""

    def __init__(self, storage: engine.Storage, shape: tuple[int, ...], dtype: DType) -> None:
        self.storage = storage
        self.shape = shape
        self.dtype = dtype

    def read(self) -> np.ndarray[Any, Any]:
        size_bytes = self.storage.size_bytes
        data = bytearray(self.storage.buffer.read(size_bytes)) if size_bytes else bytearray()
        return np.frombuffer(data, dtype=self.dtype.numpy).reshape(self.shape)


def prepare(variants: Sequence[Sequence[Tensor]], device: str) -> list[Replay]:
    """One replay for each variant: results of one form over leaves of their own.

    All variants write to the same results. The leaves must be realised.
    """
    form: tuple[object, ...] | None = None
    plan = Plan()
    shared: dict[int, engine.Storage] = {}
    replays: list[Replay] = []
    for tensors in variants:
        wanted = [t.node for t in tensors]
        roots = list(dict.fromkeys(engine.base(n) for n in wanted))
        own_form, leaves = signature(roots)
        if form is None:
            form = own_form
            plan = engine._find_plan(form, roots)
            shared = _allocate(plan, device)
        assert own_form == form, "the variants of a benchmark have one form"
        run = engine.Run(plan)
        words = np.zeros_like(run._words)
        for number, binding in run._leaves:
            words[binding] = leaves[number].storage.address
        for number, binding, _, _ in run._allocated:
            words[binding] = shared[number].address
        for binding, _, _ in run._arenas:
            words[binding] = shared[-1].address
        replays.append(Replay(run, words, _results(wanted, roots, shared)))
    return replays


def _allocate(plan: Plan, device: str) -> dict[int, engine.Storage]:
    """Memory for each result by its number, and for the temporaries as number -1."""
    where = engine.opened(device)
    sizes = {p.number: p.size_bytes for p in plan.places if p.kind == "result"}
    if plan.arenas:
        (sizes[-1],) = plan.arenas.values()
    return {n: engine.Storage(where.alloc(size), size) for n, size in sizes.items()}


def _results(
    wanted: Sequence[Node], roots: Sequence[Node], shared: dict[int, engine.Storage]
) -> list[Result]:
    found = []
    for node in wanted:
        root = engine.base(node)
        storage = root.storage if root.storage is not None else shared[roots.index(root)]
        found.append(Result(storage, node.shape, node.dtype))
    return found
