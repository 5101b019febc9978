"""Imports keep to the rows in `layers.py`, and the checker sees an arrow that does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tidy.layers import ROW_OF, ROWS, violations
from tests.tidy.source import CODE, ROOT


def test_every_import_keeps_to_the_rows() -> None:
    assert violations(ROOT) == []


def test_a_room_stands_in_one_row_only() -> None:
    assert len(ROW_OF) == sum(len(row) for row in ROWS)


PLANTED = [
    ("rawgpu/errors.py", "import rawgpu.contract", "is above"),
    ("rawgpu/contract.py", "from rawgpu import describe", "is in the same row"),
    ("rawgpu/native/planted.py", "from rawgpu.runtime import planted", "is above"),
    ("rawgpu/cli/planted.py", "from frontend import Tensor", "is above"),
    ("rawgpu/cli/planted.py", "def late():\n    from frontend import Tensor", "is above"),
    ("rawgpu/cli/planted.py", "if 0:\n    import frontend.planted as other", "is above"),
    ("rawgpu/amd/driver/planted.py", "import rawgpu.amd.virtual.planted", "is in the same row"),
    ("rawgpu/amd/driver/planted.py", "from ..virtual import planted", "is in the same row"),
    ("rawgpu/amd/driver/planted.py", "import rawgpu.nv.spec.planted", "belongs to another vendor"),
    ("rawgpu/nv/spec/planted.py", "from ..driver import planted", "is above"),
    ("rawgpu/native/planted.py", "from .. import runtime", "is above"),
    ("rawgpu/native/planted.py", "import rawgpu", "is above"),
    ("rawgpu/runtime/planted.py", "import rawgpu.cpu.driver", "reached by name only"),
    ("frontend/planted.py", "import rawgpu.nv.driver", "reached by name only"),
    ("rawgpu/unheard_of/planted.py", "import rawgpu.errors", "has no place in ROWS"),
    (
        "rawgpu/native/planted.py",
        "import importlib\nimportlib.import_module('rawgpu.runtime')",
        "is above",
    ),
    (
        "rawgpu/native/planted.py",
        "from importlib import import_module\nimport_module(name)",
        "is a computed name",
    ),
]

FINE = [
    ("rawgpu/amd/driver/planted.py", "from rawgpu.amd.spec import planted"),
    ("rawgpu/amd/driver/planted.py", "from . import other\nfrom .other import name"),
    ("rawgpu/amd/driver/planted.py", "import numpy, rawgpu.errors, rawgpu.native.planted"),
    ("frontend/planted.py", "import rawgpu\nfrom rawgpu.cli import planted"),
    ("rawgpu/runtime/planted.py", "import importlib\nimportlib.import_module('rawgpu.cpu.driver')"),
    ("rawgpu/cli/planted.py", "import importlib\nimportlib.import_module('frontend.demo')"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two packages, in a folder where a test may plant what it likes."""
    tmp_path = tmp_path_factory.mktemp("house")
    skip = shutil.ignore_patterns("__pycache__", "data")
    for package in CODE:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=skip)
    for room in ("runtime", "describe", "amd/spec", "amd/driver", "amd/virtual", "nv/spec"):
        folder = tmp_path / "rawgpu" / room
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    return tmp_path


def plant(root: Path, file: str, line: str) -> list[str]:
    """What the checker says of `file` under `root` while `line` is appended to it."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n")
    try:
        return violations(root, file)
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)


def test_the_whole_tree_is_looked_at(copy: Path) -> None:
    path = copy / "rawgpu" / "native" / "planted.py"
    path.write_text("import frontend\n")
    found = violations(copy)
    path.unlink()
    assert found == [
        "rawgpu/native/planted.py:1: rawgpu.native.planted imports frontend, which is above"
    ]


@pytest.mark.parametrize(("file", "line", "reason"), PLANTED)
def test_a_planted_arrow_against_the_rows_is_reported(
    copy: Path, file: str, line: str, reason: str
) -> None:
    found = plant(copy, file, line)
    assert len(found) == 1
    assert reason in found[0]


@pytest.mark.parametrize(("file", "line"), FINE)
def test_an_arrow_along_the_rows_is_not_reported(copy: Path, file: str, line: str) -> None:
    assert plant(copy, file, line) == []
