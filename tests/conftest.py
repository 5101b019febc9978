"""What every test shares: options, the random profile, a cache of its own, the count of cells."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# A noisy machine must not fail a test by being slow; a failure prints what replays it.
settings.register_profile(
    "rawgpu", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rawgpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden files with what came out"
    )


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """True where golden files are to be rewritten; the diff is reviewed like code."""
    return bool(request.config.getoption("--update-golden"))


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled kernels out of the user's cache, and old ones out of the tests.

    The processes of one run inherit the folder, so each kernel is compiled once. RAWGPU_CACHE from
    outside is kept, as CI and impatient people want.
    """
    if "RAWGPU_CACHE" not in os.environ:
        folder = tempfile.mkdtemp(prefix="rawgpu-tests-")
        os.environ["RAWGPU_CACHE"] = folder
        config.add_cleanup(lambda: forget(folder))


def forget(folder: str) -> None:
    """Remove the run's cache."""
    del os.environ["RAWGPU_CACHE"]
    shutil.rmtree(folder, ignore_errors=True)


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
