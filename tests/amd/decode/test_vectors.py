"""Decode, print and encode against LLVM's tests. Counts are printed; floors may only be raised."""

from __future__ import annotations

from collections import Counter

import pytest

from rawgpu.errors import DecodeError
from tests.amd.decode.vectors import printer, read

# group → the least shares, in percent, of vectors that round-trip and that print LLVM's text
FLOORS = {
    "gfx11": (100.0, 99.9),
    "gfx12": (100.0, 99.9),
    "cdna": (100.0, 99.5),
    "gfx10": (99.9, 99.0),
    "gfx1250": (99.0, 97.0),
    "gfx9": (99.0, 98.5),
}


def shares(group: str, every: int) -> tuple[float, float]:
    counts: Counter[str] = Counter()
    for vector in read(group, every=every):
        counts["all"] += 1
        prints = printer(vector.family, vector.wave, vector.true16)
        try:
            instruction = prints.decoder.decode(vector.code)
        except DecodeError:
            continue
        counts["round trip"] += instruction.encode() == vector.code
        counts["text"] += " ".join(prints.text(instruction).split()) in vector.texts
    every_one = counts["all"]
    found = 100.0 * counts["round trip"] / every_one, 100.0 * counts["text"] / every_one
    print(f"{group}: {every_one} vectors, {found[0]:.2f} % round-trip, {found[1]:.2f} % print")
    return found


@pytest.mark.parametrize("group", FLOORS)
def test_a_sample_of_the_vectors_round_trips_and_prints(group: str) -> None:
    trips, texts = shares(group, every=1 if group == "cdna" else 17)
    assert trips >= FLOORS[group][0] - 0.1
    assert texts >= FLOORS[group][1] - 0.3


@pytest.mark.full
@pytest.mark.parametrize("group", FLOORS)
def test_all_vectors_round_trip_and_print(group: str) -> None:
    trips, texts = shares(group, every=1)
    assert trips >= FLOORS[group][0] and texts >= FLOORS[group][1]


@pytest.mark.parametrize("family", ["gfx90a", "gfx942", "gfx950"])
def test_each_cdna_family_prints_99_percent(family: str) -> None:
    good = total = 0
    for vector in read("cdna"):
        if vector.family == family:
            total += 1
            prints = printer(family, 64, False)
            instruction = prints.decoder.decode(vector.code)
            good += " ".join(prints.text(instruction).split()) in vector.texts
            assert instruction.encode() == vector.code
    assert good >= 0.99 * total
