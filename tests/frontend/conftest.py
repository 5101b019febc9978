"""Tests here realise through `frontend.engine`, or NumPy where there is none.

See `evaluator.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.frontend import evaluator

evaluator.install()


def pytest_report_header() -> str:
    kind = "NumPy's stand-in" if evaluator.uses_reference() else "the real engine"
    return f"frontend tests realise through {kind}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many cells (operation × dtype) were compared with NumPy, and by how many examples."""
    examples: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name.startswith("cell "):
                examples[name] += int(str(value))
    if examples:
        terminalreporter.write_line(
            f"{len(examples)} cells (operation × dtype) compared with NumPy, "
            f"{sum(examples.values())} examples, at least {min(examples.values())} each"
        )
