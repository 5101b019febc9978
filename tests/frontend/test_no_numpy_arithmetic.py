"""All numbers come from generated kernels: NumPy only holds bytes and moves them in and out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from frontend import demo_training
from frontend.demo_training import Data, Plan
from tests.frontend.watched_numpy import (
    FRONTEND,
    HOLDS_OR_MOVES,
    NAMES_A_SPLIT,
    NumPyArithmetic,
    StandIn,
    forbidden_in_frontend,
    watch,
)
from tests.tidy.source import ROOT

MEASURES = ROOT / "frontend" / "bench"
"""Makes inputs for, and judges, what it measures; no tensor's value comes from there."""


def files() -> list[Path]:
    found = sorted((ROOT / "frontend").rglob("*.py"))
    return [path for path in found if not path.is_relative_to(MEASURES)]


def names_of_numpy(tree: ast.Module) -> Iterator[str]:
    """`random.default_rng` for `np.random.default_rng`, and what is imported from numpy by name."""
    inner = {
        id(n.value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Attribute)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            dotted = ast.unparse(node)
            if re.fullmatch(r"np(\.\w+)+", dotted):
                yield dotted.removeprefix("np.")
        elif isinstance(node, ast.ImportFrom) and node.module == "numpy":
            yield from (alias.name for alias in node.names)


def computes(name: str) -> bool:
    """Whether this name of NumPy could compute a number. Types and dtypes cannot."""
    if name in HOLDS_OR_MOVES or name in NAMES_A_SPLIT:
        return False
    return not isinstance(getattr(np, name.split(".")[0], None), type)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT / "frontend")))
def test_a_file_names_nothing_of_numpy_that_computes(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [name for name in names_of_numpy(tree) if computes(name)] == []


@pytest.mark.parametrize("line", ["np.add(a, b)", "np.linalg.norm(a)", "from numpy import exp"])
def test_a_planted_name_that_computes_is_seen(line: str) -> None:
    assert [name for name in names_of_numpy(ast.parse(line)) if computes(name)]


def planted(line: str) -> Callable[[Any], Any]:
    """A function that looks as if it stood in a file of the tensor library."""
    module = ModuleType("frontend.planted")
    module.__dict__["np"] = StandIn("numpy")
    source = f"def f(a):\n    return {line}\n"
    exec(compile(source, f"{FRONTEND}/planted.py", "exec"), module.__dict__)
    function: Callable[[Any], Any] = module.__dict__["f"]
    return function


COMPUTES = """
a + a, 2 * a, -a, a == 1, a @ a, a.sum(), a.mean(), a.max(), a.dot(a), a.cumsum()
np.exp(a), np.add(a, a), np.asarray([1.0]) * 2, np.zeros(3) + 1
"""


@pytest.mark.parametrize("line", re.split(r",(?![^(]*\))|\n", COMPUTES.strip()))
def test_numpy_arithmetic_in_the_tensor_library_raises(line: str) -> None:
    with pytest.raises(NumPyArithmetic):
        planted(line)(watch(np.ones(3, dtype=np.float32)))


@pytest.mark.parametrize("line", ["np.asarray(a)", "a.reshape(1, 3)", "a[1:]", "a.tolist()"])
def test_holding_and_moving_does_not_raise(line: str) -> None:
    planted(line)(watch(np.ones(3, dtype=np.float32)))


def test_a_network_trains_without_numpy_arithmetic() -> None:
    data = demo_training.load_data()
    watched = Data(
        watch(data.images), watch(data.labels), watch(data.test_images), data.test_labels
    )
    with forbidden_in_frontend():
        outcome = demo_training.train(["cpu:0"], watched, Plan(epochs=1), 0, lambda note: None)
    assert outcome.accuracy > 0.5
