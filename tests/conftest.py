"""What every test shares: options, the random profile, a cache of its own, the count of cells.

`--on gfx942` runs tests of `frontend` on a virtual GPU, `RAWGPU_DEVICE=amd:0` on a real one. A test
about the CPU device itself is marked `host`, and left out then.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
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
    parser.addoption("--on", metavar="GPU", help="tensors live on this virtual GPU by default")
    parser.addoption(
        "--part", metavar="K/N", help="only the K-th of N fixed parts, chosen by the tests' names"
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
    if gpu := config.getoption("--on"):
        os.environ["RAWGPU_VIRTUAL"] = gpu
        os.environ["RAWGPU_DEVICE"] = "amd:0"
    if "RAWGPU_CACHE" not in os.environ:
        folder = tempfile.mkdtemp(prefix="rawgpu-tests-")
        os.environ["RAWGPU_CACHE"] = folder
        config.add_cleanup(lambda: forget(folder))


def forget(folder: str) -> None:
    """Remove the run's cache."""
    del os.environ["RAWGPU_CACHE"]
    shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about another device, and what is not in this part."""
    kept = items
    if not os.environ.get("RAWGPU_DEVICE", "cpu").startswith("cpu"):
        kept = [item for item in kept if item.get_closest_marker("host") is None]
    if part := config.getoption("--part"):
        number, of = (int(text) for text in part.split("/"))
        assert 1 <= number <= of, f"--part {part}: write 1/3, 2/3 or 3/3"
        kept = [item for item in kept if zlib.crc32(item.nodeid.encode()) % of == number - 1]
    if len(kept) < len(items):
        remaining = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in remaining])
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many cells (operation × dtype) were compared with NumPy, and by how many examples.

    And the sum of what tests recorded as `count WHAT`, and each `share WHAT` as it is.
    """
    examples: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    shares: dict[str, str] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name.startswith("cell "):
                examples[name] += int(str(value))
            elif name.startswith("count "):
                counted[name.removeprefix("count ")] += int(str(value))
            elif name.startswith("share "):
                shares[name.removeprefix("share ")] = str(value)
    if examples:
        terminalreporter.write_line(
            f"{len(examples)} cells (operation × dtype) compared with NumPy, "
            f"{sum(examples.values())} examples, at least {min(examples.values())} each"
        )
    for what, number in sorted(counted.items()):
        terminalreporter.write_line(f"{number} {what}")
    for what, share in sorted(shares.items()):
        terminalreporter.write_line(f"{what}: {share}")
