"""The interpreter and the lifter agree to the last bit on random sequences."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.amd.virtual.wave_batch import FAMILIES, Batch, difference, run, sequence
from tests.amd.virtual.wave_one import made

IDS = [f"{generation}-{wave}" for generation, _, wave in FAMILIES]
FEW, MANY = 100, 20_000
OPEN_SHARE = 0.03
"""Sequences in which a NaN is open, at most: they are compared up to there only."""


def check(generation: str, family: str, wave: int, count: int, note: Callable[..., None]) -> None:
    report = run(generation, family, wave, range(count))
    assert not report.wrong, "\n".join(report.wrong)
    assert report.ran == count
    assert report.open <= max(3, OPEN_SHARE * count), report.open
    note("count sequences of machine code, lifted and interpreted alike", report.ran)


@pytest.mark.parametrize(("generation", "family", "wave"), FAMILIES, ids=IDS)
def test_random_sequences_give_equal_registers_and_memory(
    generation: str, family: str, wave: int, record_property: Callable[..., None]
) -> None:
    check(generation, family, wave, FEW, record_property)


@pytest.mark.full
@pytest.mark.parametrize(("generation", "family", "wave"), FAMILIES, ids=IDS)
def test_many_random_sequences(
    generation: str, family: str, wave: int, record_property: Callable[..., None]
) -> None:
    check(generation, family, wave, MANY, record_property)


def test_other_code_gives_other_results() -> None:
    """The check can fail: all that a sequence changes is compared."""
    codes = [sequence(random.Random(seed), "gfx11", 32) for seed in range(20)]
    others = [[*code[:-1], code[0]] for code in codes]
    first = Batch("gfx1100", "gfx11", 32, range(20), codes).interpret()
    second = Batch("gfx1100", "gfx11", 32, range(20), others).interpret()
    found = [bool(difference(a, b)[0]) for a, b in zip(first, second, strict=True)]
    assert sum(found) > 8


@pytest.mark.parametrize("generation", ["gfx1100", "gfx1201"])
def test_halves_of_a_comparison_are_packed(generation: str) -> None:
    """LLVM 22 left the comparison's half out, where the other half came from memory."""
    family = {"gfx1100": "gfx11", "gfx1201": "gfx12"}[generation]
    compare = made("v_cmp_lt_u32", family, 32, src0=256 + 1, vsrc1=2)
    packs = [
        made("s_pack_lh_b32_b16", family, 32, sdst=4, ssrc0=10, ssrc1=106),
        made("s_pack_hh_b32_b16", family, 32, sdst=5, ssrc0=10, ssrc1=106),
        made("s_pack_ll_b32_b16", family, 32, sdst=6, ssrc0=106, ssrc1=10),
    ]
    codes = [[compare, pack] for pack in packs] + [[compare, *packs]]
    assert Batch(generation, family, 32, range(4), codes).differences() == []
