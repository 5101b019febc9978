"""Rivals turn a row into calls, refuse what they cannot do, and are not waited for for ever."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
import pytest

from frontend.bench import rivals
from frontend.bench.rivals import BadRequest, Refusal, Tinygrad, at_most
from frontend.bench.row import Input, Row

SETS = [[np.full((4, 4), i, np.float32)] for i in range(3)]
ADD_ONE = Row("add_one", (Input((4, 4)),), lambda a: a + 1, lambda t, a: a + 1)


class FakeTinygrad:
    """What of tinygrad is used, on arrays."""

    compilations = 0

    class Tensor:
        def __init__(self, array: Any) -> None:
            self.array = array

        def realize(self) -> FakeTinygrad.Tensor:
            return self

        def numpy(self) -> Any:
            return self.array

        def __add__(self, other: Any) -> FakeTinygrad.Tensor:
            return FakeTinygrad.Tensor(self.array + other)

    class Device:
        DEFAULT = "CPU"
        waits = 0

        def __class_getitem__(cls, name: str) -> Any:
            return cls

        @classmethod
        def synchronize(cls) -> None:
            cls.waits += 1

    @staticmethod
    def TinyJit(function: Any) -> Any:
        FakeTinygrad.compilations += 1
        return function


@pytest.fixture
def tinygrad(monkeypatch: pytest.MonkeyPatch) -> Tinygrad:
    for name in ("DEV", "CC", "NUM_CPU_THREADS"):
        monkeypatch.setenv(name, "")  # so that what is set here goes again
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "tinygrad", FakeTinygrad)
    return Tinygrad(2)


def test_each_set_of_inputs_has_a_call_and_each_call_is_waited_for(tinygrad: Tinygrad) -> None:
    calls = tinygrad.calls(ADD_ONE, SETS)["tinygrad"]
    before = FakeTinygrad.Device.waits
    for i, call in enumerate(calls):
        assert (tinygrad.value(call()) == i + 1).all()
    assert FakeTinygrad.Device.waits == before + 3
    assert os.environ["NUM_CPU_THREADS"] == "2"


def test_what_it_cannot_do_or_not_in_time_is_refused(
    tinygrad: Tinygrad, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Row("bad", (), lambda a: a.no_such_thing(), lambda t, a: a)
    with pytest.raises(Refusal, match="AttributeError: 'Tensor' object has no attribute"):
        tinygrad.calls(bad, SETS)
    slow = Row("slow", (), lambda a: time.sleep(5) or a, lambda t, a: a)
    monkeypatch.setattr(rivals, "COMPILE_S", 0.05)
    with pytest.raises(Refusal, match=r"TimeoutError: not ready after 0.05 s"):
        tinygrad.calls(slow, SETS)


def test_a_row_may_say_what_tinygrad_calls_it(tinygrad: Tinygrad) -> None:
    row = Row("two", (), lambda a: a + 1, lambda t, a: a, tinygrad=lambda a: a + 2)
    call = tinygrad.calls(row, SETS)["tinygrad"][0]
    assert (tinygrad.value(call()) == 2).all()


def test_time_limits_do_not_outlive_their_block() -> None:
    with at_most(0.05):
        pass
    time.sleep(0.1)  # an alarm left over would end the process


def test_a_rival_that_is_missing_is_named(
    tinygrad: Tinygrad, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tinygrad", None)
    with pytest.raises(BadRequest, match=r"needs tinygrad \(pip install tinygrad\)"):
        Tinygrad(1)


@pytest.mark.full
def test_the_real_tinygrad_does_what_the_small_rows_say() -> None:
    """Those whose names differ from ours are the ones that can be wrong."""
    torch = pytest.importorskip("torch", reason="PyTorch is the judge")
    pytest.importorskip("tinygrad", reason="it is what is called")
    from frontend.bench import check
    from frontend.bench.operations import OPERATIONS

    real = Tinygrad(1)
    rng = np.random.default_rng(0)
    tried = 0
    for op in OPERATIONS:
        (size, *_) = op.sizes.values()
        small = op.row(op.word, tuple(max(9, min(n, 20)) for n in size))
        sets = [[part.draw(rng) for part in small.inputs] for _ in range(2)]
        for call, arrays in zip(real.calls(small, sets)["tinygrad"], sets, strict=True):
            assert check.same_meaning(small, torch, arrays, real.value(call())), op.word
        tried += 1
    assert tried == len(OPERATIONS)
