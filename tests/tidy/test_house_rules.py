"""Rules that a reader can rely on in every file, kept by machine because people forget."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.source import ROOT, Source, project_modules, text_files

LONGEST_LINES = 800
"""Past 500 lines one asks which two files it is; `tools/check.py` lists those. Here is the end."""

MAY_BE_LONGER: dict[str, str] = {}
"""File: the reason. Tables run as long as the hardware."""

GENERATION = re.compile(r"(gfx[0-9][0-9a-f]{2,4}|sm_\d+[a-z]?|xe_?(lp|hpg|hpc|lpg|2|3)|apple\d+)$")

# Written in pieces, so that this file may be searched as well.
NOT_OURS_TO_SAY = [
    ("/wo" + "rk/", "a path of one machine"),
    ("/opt/" + "pypi", "a path of one machine"),
    ("/opt/" + "wheels", "a path of one machine"),
    ("/ro" + "ot/", "a path of one machine"),
    ("this ses" + "sion", "how the work was organised"),
    ("helper ag" + "ent", "how the work was organised"),
]
NUMBERED = re.compile(r"\biss" + r"ue #?\d+", re.IGNORECASE)


def code() -> list[Source]:
    return list(project_modules())


def where(source: Source, node: ast.AST) -> str:
    return f"{source.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Each call with the dotted text of what is called."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def imported(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """The first part of each imported name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node, (node.module or "").split(".")[0]


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(s.path.relative_to(ROOT)) for s in code() if not ast.get_docstring(s.tree)]
    assert silent == []


def test_every_folder_of_code_is_a_package() -> None:
    folders = {source.path.parent for source in code()}
    assert [str(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def test_no_file_grows_past_the_end() -> None:
    for source in code():
        name = str(source.path.relative_to(ROOT))
        lines = source.path.read_text(encoding="utf-8").count("\n")
        assert lines <= LONGEST_LINES or name in MAY_BE_LONGER, f"{name} has {lines} lines"


def test_nothing_from_outside_is_unpickled() -> None:
    found = [
        where(source, node)
        for source in code()
        for node, name in imported(source)
        if name in ("pickle", "marshal", "shelve", "dill", "cloudpickle")
    ]
    found += [
        where(source, node)
        for source in code()
        for node, _ in calls(source)
        for keyword in node.keywords
        if keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) is not False
    ]
    assert found == []


def test_no_command_goes_through_a_shell() -> None:
    found = [
        where(source, node)
        for source in code()
        for node, name in calls(source)
        if name in ("os.system", "os.popen")
        or any(k.arg == "shell" and getattr(k.value, "value", True) for k in node.keywords)
    ]
    assert found == []


def test_chance_comes_from_the_schedule_only() -> None:
    """One seed decides all that a machine room does; a second source of chance would hide."""
    found = [
        where(source, node)
        for source in code()
        for node, name in imported(source)
        if name == "random"
        and source.name.startswith("rawgpu.")
        and source.name != "rawgpu.virtual.schedule"
    ]
    assert found == []


def constants(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def generation_comparisons(tree: ast.AST) -> Iterator[ast.AST]:
    """Comparisons, `startswith` calls and match cases whose constant names a generation."""
    for node in ast.walk(tree):
        prefix = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if prefix and node.func.attr in ("startswith", "endswith"):  # type: ignore[attr-defined]
            if any(re.match(r"gfx|sm_", text) for text in constants(node)):
                yield node
        elif isinstance(node, (ast.Compare, ast.match_case)):
            asked = node.pattern if isinstance(node, ast.match_case) else node
            if any(GENERATION.match(text) for text in constants(asked)):
                yield node


def test_code_asks_for_a_fact_and_never_for_a_generation_by_name() -> None:
    found = [
        where(source, node)
        for source in code()
        if "spec" not in source.name.split(".")
        for node in generation_comparisons(source.tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "if arch == 'gfx1100': pass",
        "if arch in ('sm_90', 'sm_100a'): pass",
        "x = arch.startswith('gfx11')",
        "match arch:\n    case 'gfx942': pass",
    ],
)
def test_a_planted_comparison_with_a_generation_is_seen(line: str) -> None:
    assert list(generation_comparisons(ast.parse(line)))


def test_a_table_keyed_by_generation_is_no_comparison() -> None:
    assert not list(generation_comparisons(ast.parse("rows = {'gfx1100': 1}; rows['sm_90']")))


def test_text_says_nothing_of_how_and_where_it_was_written() -> None:
    found = []
    for path in text_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for words, why in NOT_OURS_TO_SAY:
                if words in line.lower():
                    found.append(f"{path.relative_to(ROOT)}:{number}: {words!r} is {why}")
            if NUMBERED.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: a number only its writers know")
    assert found == []
