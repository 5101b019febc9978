"""Every link in a document leads somewhere, and every file that one names is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.source import ROOT, text_files

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml|yaml|npz|txt))`")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


def anchors(text: str) -> set[str]:
    """The names that a document's headings have in links, as code hosts make them."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def broken(path: Path, root: Path) -> Iterator[str]:
    """What in the document at `path` leads nowhere."""
    text = path.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path if not file else (path.parent / file).resolve()
        if not there.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(there.read_text(encoding="utf-8")):
            yield f"{target}: no such heading"
    for named in CODE_PATH.findall(prose):
        bases = (root, root / "rawgpu", path.parent)
        if not any((base / named).exists() for base in bases):
            yield f"`{named}`: no such file"


@pytest.mark.parametrize("path", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_document_leads_only_to_what_is_there(path: Path) -> None:
    assert list(broken(path, ROOT)) == []


def test_a_broken_link_heading_and_file_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n[ok](#a-heading) [gone](gone.md) [none](#none) `no/such.py`\n"
        "[away](https://example.org)\n```\n[not a link](gone.md)\n```\n"
    )
    assert len(list(broken(page, tmp_path))) == 3


def test_the_documents_that_a_newcomer_needs_are_there() -> None:
    needed = ["README.md", "LICENSE", "docs/architecture.md", "docs/glossary.md"]
    assert [name for name in needed if not (ROOT / name).exists()] == []
    assert list((ROOT / "docs" / "decisions").glob("0*.md"))
