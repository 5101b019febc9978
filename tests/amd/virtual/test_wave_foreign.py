"""Meanings against another machine: LLVM functions on this processor and on the engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tests.amd.virtual.coverage import FAMILIES, FULL_COUNT, WANTED_SHARE, coverage
from tests.amd.virtual.foreign_run import KINDS, Result, check, difference, functions

FEW, FEW_LIFTED = 60, 6
"""Functions, and of these every n-th is lifted too."""
IDS = [f"{generation}-{lanes}" for generation, lanes in FAMILIES]


def compare(
    generation: str, lanes: int, count: int, lift_every: int, note: Callable[..., None]
) -> float:
    """The share of rows that were executed."""
    report = check(functions(count), generation, lanes, lift_every=lift_every)
    assert not report.wrong, "\n".join(report.wrong)
    assert report.ran == count
    found = coverage(generation, report.rows)
    note("count generated functions that gave this processor's results", report.ran)
    note(f"share executed and compared, of what LLVM emits for {generation}-{lanes}", str(found))
    return found.share


@pytest.mark.parametrize(("generation", "lanes"), FAMILIES, ids=IDS)
def test_generated_functions_give_what_this_processor_gives(
    generation: str, lanes: int, record_property: Callable[..., None]
) -> None:
    compare(generation, lanes, FEW, FEW_LIFTED, record_property)


@pytest.mark.full
@pytest.mark.parametrize(("generation", "lanes"), FAMILIES, ids=IDS)
def test_all_generated_functions_in_both_engines(
    generation: str, lanes: int, record_property: Callable[..., None]
) -> None:
    share = compare(generation, lanes, FULL_COUNT, 1, record_property)
    assert share >= WANTED_SHARE


def test_one_bit_of_a_value_is_seen() -> None:
    """The check can fail: every output of every kind of function is compared."""
    for number, function in enumerate(functions(80)):
        rng = np.random.default_rng(number)
        out = rng.integers(0, 1 << 32, (64, 16), dtype=np.uint64) << np.uint64(16)
        want = Result(out, np.zeros(16, np.uint8))
        assert difference(function, want, want) == "" or any(o.near for o in function.outputs)
        for place, output in enumerate(function.outputs):
            if output.near:
                continue
            got = dataclasses.replace(want, out=out.copy())
            got.out[5, place] ^= np.uint64(1)
            assert difference(function, want, got).startswith(f"output {place} "), function.kind


FAULTS = [
    ("gfx1201", 32, "convert_scalar", 3, "s_cvt_hi_f32_f16 read no upper half"),
    ("gfx942", 64, "pairs_float", 0, "v_pk_mov_b32 took its upper word by op_sel_hi"),
    ("gfx90a", 64, "local", 0, "v_pk_mov_b32 took its upper word by op_sel_hi"),
]


@pytest.mark.parametrize(("generation", "lanes", "kind", "seed", "fault"), FAULTS)
def test_functions_that_found_faults(
    generation: str, lanes: int, kind: str, seed: int, fault: str
) -> None:
    assert check([KINDS[kind](seed)], generation, lanes).wrong == [], fault
