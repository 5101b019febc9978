"""The project's own files, read once, for the tests beside this one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("rawgpu", "frontend")
TEXT = (*CODE, "tests", "tools", "docs", "benchmarks", ".ci")
TEXT_SUFFIXES = frozenset({".py", ".md", ".toml", ".yaml", ".yml", ".cfg", ".txt", ".ll", ""})


@dataclass(frozen=True)
class Source:
    """A module, by the name it is imported by; parsed when somebody looks."""

    name: str
    path: Path

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def tree(self) -> ast.Module:
        return parsed(self.path.read_text(encoding="utf-8"))


def module_name(path: Path, root: Path) -> str:
    """`rawgpu/cli/__init__.py` is `rawgpu.cli`."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a module's text; the copies that tests plant arrows in are parsed once."""
    return ast.parse(text)


def modules(root: Path) -> Iterator[Source]:
    """Every module of the two packages under `root`."""
    for package in CODE:
        for path in sorted((root / package).rglob("*.py")):
            yield Source(module_name(path, root), path)


@cache
def project_modules() -> tuple[Source, ...]:
    """The modules of this tree."""
    return tuple(modules(ROOT))


@cache
def text_files() -> tuple[Path, ...]:
    """Every text file of the project that a person wrote."""
    found = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES]
    for folder in TEXT:
        found += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
        ]
    return tuple(sorted(found))
