"""Rows that state only what changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest

from rawgpu.describe import evidence
from rawgpu.describe.generation import Generation, Table
from rawgpu.describe.value import DeclarationError


class Feature(Enum):
    DOT = 1
    CLUSTERS = 2


@dataclass(frozen=True, kw_only=True)
class Chip(Generation):
    lanes: int
    local_bytes: int
    features: frozenset[Feature] = frozenset()


FIRST = Chip(
    name="xg1", source="manual 1", lanes=64, local_bytes=65536, features=frozenset([Feature.DOT])
)
SECOND = FIRST.evolve(
    "xg2",
    source="manual 2",
    lanes=32,
    put={"features": [Feature.CLUSTERS]},
    drop={"features": [Feature.DOT]},
)


def test_a_row_has_its_parents_facts_but_for_its_changes() -> None:
    assert (SECOND.lanes, SECOND.local_bytes) == (32, 65536)
    assert SECOND.features == {Feature.CLUSTERS}
    assert SECOND.lineage() == ["xg2", "xg1"]
    assert SECOND.differences() == {
        "lanes": (64, 32),
        "features": (frozenset([Feature.DOT]), frozenset([Feature.CLUSTERS])),
    }
    assert SECOND.parent is FIRST
    assert "parent" not in repr(SECOND)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 64}, "xg3: lanes is 64 in xg1 already"),
        ({"lane": 64}, "changes lane, which xg1 does not state"),
        ({"put": {"features": [Feature.DOT]}}, "where it is already"),
        ({"drop": {"features": [Feature.CLUSTERS]}}, "where it is not"),
        ({"drop": {"lanes": [64]}}, "is no frozenset"),
        ({"put": {"colours": [64]}}, "is no frozenset"),
    ],
)
def test_a_row_that_says_too_much_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        FIRST.evolve("xg3", source="manual 3", **changes)  # type: ignore[arg-type]


def test_a_row_names_its_source() -> None:
    with pytest.raises(TypeError, match="names no source"):
        FIRST.evolve("xg3", source="", lanes=32)


def test_a_table_evolves_and_knows_what_changed() -> None:
    first = Table("1", ["a", "b"])
    second = first.evolve("2", put=["c"], drop=["a"])
    assert list(second) == ["b", "c"]
    assert second.changes() == (["c"], ["a"])
    assert first.changes() == (["a", "b"], [])
    assert len(second) == 2
    assert "b" in second
    assert repr(second) == "Table('2', 2 entries)"
    with pytest.raises(DeclarationError, match="2 lacks"):
        second.evolve("3", drop=["a"])
    with pytest.raises(DeclarationError, match="2 has"):
        second.evolve("3", put=["b"])
    with pytest.raises(DeclarationError, match="in one place"):
        Table("1", ["a", "a"])


def test_the_ledger_lists_each_declaration_with_its_witness() -> None:
    mine = [entry for entry in evidence.entries(__name__) if entry.name.startswith("xg")]
    assert [entry.name for entry in mine][:2] == ["xg1", "xg2"]
    assert mine[0] in evidence.unproven(__name__)
    assert "row      xg1" in evidence.report(mine)
    assert "none yet" in evidence.report(mine)


@pytest.mark.parametrize("witness", ["", "hearsay: a friend", "vendor header", "vendor header: "])
def test_a_witness_is_of_a_known_kind_and_has_a_name(witness: str) -> None:
    with pytest.raises(TypeError, match="is not '<kind>: <which>'"):
        evidence.check("x", "a manual", witness)
    evidence.check("x", "a manual", "vendor header: x.h")
