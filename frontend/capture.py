"""`jit`: record what a function computes once, then replay it. Its rules are in `help(jit)`.

`Jit` finds the recording that fits a call; `recorder.py` makes one, `recording.py` replays it.
"""

from __future__ import annotations

import functools
import itertools
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from frontend import tracing
from frontend.nested import form, mapped
from frontend.ops.common import grad_mode
from frontend.recorder import Recorder
from frontend.recording import Recording
from frontend.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

FORMS = 64
"""So many forms of arguments are remembered, those used last."""
RECORDINGS = 4
"""So many recordings of one form, which differ in what they read from elsewhere."""

_clock = itertools.count(1)


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """A function that records what it computes once, then replays it.

        @jit
        def step(x, y):
            loss = model(x).cross_entropy(y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss

    The first call with arguments of some form runs the function on tensors without a value and
    makes one plan of all it returns, every tensor it gave a new value, and every gradient it left.
    That call and later ones replay the plan; no Python of the function runs any more. What a replay
    may depend on is looked up or compared at each call:

    - arguments: tensors by shape, dtype, device, need of a gradient, and by which of them are the
      same tensor; numbers and text by value; other objects by `==`;
    - tensors that the function reads from elsewhere, such as parameters, optimiser state and
      running statistics, and gradients from before: by their value now; another shape or dtype, or
      a gradient that came or went, asks for another recording;
    - random draws: they go on in their generator's stream;
    - `training` of the modules that were called, and whether gradients are recorded.

    All else in Python (numbers in attributes and globals, what lists and files hold) is read while
    recording and stays as it was then. So does what the function does besides: it prints once, and
    a new tensor it stores in an attribute or a list has no value outside; return it, or `assign`
    it.

    State that changes (`opt.step()`, `t += 1`) is updated in place when nobody else holds its old
    value, else in memory of its own. What a call returns has no history of gradients. A function
    that raises changes no tensor. A recorded function called by another becomes part of it. Threads
    that share one wait for each other.
    """
    return Jit(function)


class Jit(Generic[P, R]):
    """A recorded function, or method: then each instance has recordings of its own.

    Raises OperationError where the function asks for a tensor's value, or gets an argument that
    has no value to recognise it by.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self._recordings: dict[object, list[Recording]] = {}
        self._lock = threading.RLock()
        self._instances: dict[int, tuple[weakref.ref[Any], dict[object, list[Recording]]]] = {}
        functools.update_wrapper(self, function)

    @property
    def recordings(self) -> int:
        """How many recordings are kept."""
        return sum(map(len, self._recordings.values()))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        bound: Jit[..., R] = Jit.__new__(Jit)
        bound.function = types.MethodType(self.function, instance)
        bound._recordings, bound._lock = self._recordings_of(instance), self._lock
        return bound

    def _recordings_of(self, instance: object) -> dict[object, list[Recording]]:
        """An instance's recordings, which go when it goes."""
        key = id(instance)
        known = self._instances.get(key)
        if known is None:
            gone = weakref.ref(instance, lambda _: self._instances.pop(key, None))
            known = self._instances[key] = (gone, {})
        return known[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return jit, (self.function,)  # a copy records for itself

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if tracing.state.trace is not None:  # part of an outer recording
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        key = (form((args, kwargs), tensors), tuple(_sharing(tensors)), grad_mode.enabled)
        with self._lock:
            known = self._recordings.get(key, ())
            recording = next((r for r in known if r.fits(tensors)), None)
            if recording is None:
                recording = self._record(tensors, args, kwargs)
                self._keep(key, recording)
            recording.used = next(_clock)
            return recording.replay(tensors)  # type: ignore[no-any-return]

    def _keep(self, key: object, recording: Recording) -> None:
        """Remember a new recording, and forget the one or the form used longest ago if need be."""
        known = self._recordings.setdefault(key, [])
        known.append(recording)
        if len(known) > RECORDINGS:
            known.remove(min(known[:-1], key=lambda r: r.used))
        if len(self._recordings) > FORMS:
            others = {k: max(r.used for r in v) for k, v in self._recordings.items() if k != key}
            del self._recordings[min(others, key=lambda k: others[k])]

    def _record(self, tensors: list[Tensor], args: Any, kwargs: Any) -> Recording:
        """Record with stand-ins for the arguments, so that no other tensor is taken for one.

        An argument that the function reads from elsewhere too goes in itself, in another try.
        """
        met: frozenset[int] = frozenset()
        while True:
            recorder = Recorder(tensors, met)
            given = mapped((args, kwargs), Tensor, recorder.stand_in)
            try:
                returned = recorder.run(self.function, *given)
            except Exception:
                if recorder.met <= met:
                    raise
            else:
                if recorder.met <= met:
                    return recorder.finish(returned)
            met |= recorder.met


def _sharing(tensors: Sequence[Tensor]) -> list[int]:
    """Which arguments are the same tensor."""
    first: dict[int, int] = {}
    return [first.setdefault(id(t), i) for i, t in enumerate(tensors)]
