"""Tests here realise through `frontend.engine`, or NumPy where there is none.

See `evaluator.py`.
"""

from __future__ import annotations

from tests.frontend import evaluator

evaluator.install()


def pytest_report_header() -> str:
    kind = "NumPy's stand-in" if evaluator.uses_reference() else "the real engine"
    return f"frontend tests realise through {kind}"
