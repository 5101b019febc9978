"""The language of meanings."""

from __future__ import annotations

import pytest

from rawgpu.describe.semantics import ACTIONS, MeaningError, parse, unknown_names


def test_a_bare_expression_is_the_result() -> None:
    (statement,) = parse("f32(a) + f32(b)")
    assert statement.target == "d"


def test_statements_assign_in_order() -> None:
    assert [s.target for s in parse("d = a + b; scc = carry(a, b)")] == ["d", "scc"]


def test_an_action_assigns_nothing() -> None:
    assert parse("store(address, 32, data)")[0].target is None
    assert "atomic_add" not in ACTIONS


@pytest.mark.parametrize("text", ["", "a +", "a = b = c; ", "x.y = 1", "for a in b: pass"])
def test_what_is_no_meaning_is_refused(text: str) -> None:
    with pytest.raises(MeaningError):
        parse(text)


def test_names_are_checked() -> None:
    assert unknown_names("fma(f32(a), f32(b), f32(d))", ["a", "b"]) == []
    assert sorted(unknown_names("f23(a) + z", ["a"])) == ["f23", "z"]
    assert unknown_names("t = a; d = t", ["a"]) == []
    assert unknown_names("d = t; t = a", ["a"]) == ["t"]
    assert unknown_names("a.real", ["a"]) == ["Attribute"]
    assert unknown_names("a if b else c", ["a", "b", "c"]) == ["IfExp"]
