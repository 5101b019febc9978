"""The rows of the house, and a checker of every import against them.

A row may import the rows below it: never its own row, never one above. Inside a room anything goes.
A change that needs a new arrow edits `ROWS` or `BY_NAME`, where a reviewer sees it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import Source, modules

VENDORS = ("cpu", "amd", "nv", "intel", "metal")

ROWS: tuple[tuple[str, ...], ...] = (
    ("frontend", "rawgpu.__main__"),
    ("rawgpu.cli",),
    ("rawgpu.hwcheck",),
    ("rawgpu",),  # the package's own face, which hands out what runtime and errors define
    ("rawgpu.runtime",),
    tuple(f"rawgpu.{v}.{role}" for v in VENDORS for role in ("driver", "virtual", "decode")),
    tuple(f"rawgpu.{v}.spec" for v in VENDORS) + tuple(f"rawgpu.{v}" for v in VENDORS),
    ("rawgpu.virtual",),
    ("rawgpu.trace", "rawgpu.crash"),
    ("rawgpu.ioctl",),
    ("rawgpu.native",),
    ("rawgpu.compiler_bridge",),
    ("rawgpu.launch",),  # what every driver does with a launch by hand
    ("rawgpu.describe", "rawgpu.contract"),
    ("rawgpu.errors",),
)

BY_NAME = {
    # These find what they need by a name in a table, when it is asked for. That is how a runtime
    # reaches vendors that it must not know, and a command its work in the tensor library.
    "rawgpu.runtime": tuple(f"rawgpu.{vendor}" for vendor in VENDORS),
    "rawgpu.hwcheck": tuple(f"rawgpu.{vendor}" for vendor in VENDORS),
    "rawgpu.cli": ("rawgpu.cli", "frontend", "rawgpu.amd.virtual"),  # the last to be measured
}

ROW_OF = {room: number for number, row in enumerate(ROWS) for room in row}


def room_of(name: str) -> str | None:
    """The room that module `name` is in; None for what is not ours. Longest match wins."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        room = ".".join(parts[:length])
        # `rawgpu` is only its own __init__: a new folder under it needs a place in ROWS.
        if room in ROW_OF and (room != "rawgpu" or length == len(parts)):
            return room
    return "nowhere" if parts[0] in ("rawgpu", "frontend") else None


def vendor_of(room: str) -> str | None:
    """The vendor whose room this is, if it is one's."""
    parts = room.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in VENDORS else None


def forbidden(importer: str, imported: str) -> str | None:
    """Why module `importer` may not import module `imported`; None when it may."""
    source, target = room_of(importer), room_of(imported)
    if target is None or source == target:
        return None
    if source == "nowhere" or target == "nowhere":
        return "has no place in ROWS"
    assert source is not None
    if ROW_OF[target] < ROW_OF[source]:
        return "is above"
    if ROW_OF[target] == ROW_OF[source]:
        return "is in the same row"
    vendors = vendor_of(source), vendor_of(target)
    if vendors[1] is not None and vendors[0] != vendors[1]:
        return "belongs to another vendor" if vendors[0] else "is a vendor's, reached by name only"
    return None


def base_of(node: ast.ImportFrom, source: Source) -> str:
    """The absolute name of the package that a `from … import` statement names."""
    if node.level == 0:
        return node.module or ""
    package = source.name.split(".") if source.is_package else source.name.split(".")[:-1]
    package = package[: len(package) - (node.level - 1)]
    return ".".join([*package, node.module] if node.module else package)


def imports(source: Source, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and absolute name of all that a module imports, wherever the statement stands."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = base_of(node, source)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                # Of `from rawgpu import errors`, the module is meant; of a name, its package.
                yield node.lineno, full if full in known else base


def named_imports(source: Source) -> Iterator[tuple[int, str | None]]:
    """Line and name of each `import_module(…)`; None where the name is computed."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else None
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called not in ("import_module", "__import__"):
            continue
        first = node.args[0] if node.args else None
        constant = isinstance(first, ast.Constant) and isinstance(first.value, str)
        yield node.lineno, first.value if constant else None


def forbidden_by_name(importer: str, imported: str | None) -> str | None:
    """Why `import_module(imported)` may not stand in `importer`; None when it may."""
    allowed = BY_NAME.get(room_of(importer) or "", ())
    if imported is None:
        return None if allowed else "is a computed name"
    if allowed and imported.startswith(allowed):
        return None
    return forbidden(importer, imported)


def violations(root: Path, only: str = "") -> list[str]:
    """Every arrow under `root`, or in the file `only`, against the rows; one line each."""
    sources = list(modules(root))
    known = frozenset(source.name for source in sources)
    known |= {name.rpartition(".")[0] for name in known}
    found = []
    for source in sources:
        where = source.path.relative_to(root)
        if only not in ("", str(where)):
            continue
        for line, name in imports(source, known):
            if reason := forbidden(source.name, name):
                found.append(f"{where}:{line}: {source.name} imports {name}, which {reason}")
        for line, named in named_imports(source):
            if reason := forbidden_by_name(source.name, named):
                found.append(f"{where}:{line}: {source.name} imports {named}, which {reason}")
    return found
