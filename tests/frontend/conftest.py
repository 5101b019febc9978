"""Tests here realise through `frontend.engine`, or NumPy where there is none.

See `evaluator.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontend import evaluator

evaluator.install()

HERE = Path(__file__).parent
GENERATOR = ("loops", "instructions", "schedule", "text", "bench")
"""Tests of stages name their targets, or look at what is generated for the CPU."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is not about the device that tensors live on."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.relative_to(HERE).parts[0] in GENERATOR:
            item.add_marker(pytest.mark.host)


def pytest_report_header() -> str:
    kind = "NumPy's stand-in" if evaluator.uses_reference() else "the real engine"
    return f"frontend tests realise through {kind}"
