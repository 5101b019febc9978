"""Where the driver emits what keeps memory in order: found in its source, so none is missed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import rawgpu.amd.driver

FOLDER = Path(rawgpu.amd.driver.__file__).parent
OF_BOUNDARIES = ("flush_hdp", "acquire_all", "wake", "wait", "signal", "timestamp")
"""Packets that `Boundaries` has."""
ANYWHERE = ("_fence", "_wait", "Trap", "EventWrite", "fence_device", "predicated")
"""Other packets and fences, by the name under which they are emitted."""
OUTSIDE = {
    "hwcheck.py": "a self-test that takes the driver apart; its results are its own check",
}


def sites() -> dict[str, int]:
    """`ComputeQueue.launch: acquire_all` and its line; with ` #2` if a function has it twice."""
    found: dict[str, int] = {}
    for path in sorted(FOLDER.glob("*.py")):
        if path.name in OUTSIDE:
            continue
        for name, line in sorted(_of(ast.parse(path.read_text()), ""), key=lambda row: row[1]):
            again = sum(key.partition(" #")[0] == name for key in found)
            found[f"{name} #{again + 1}" if again else name] = line
    return found


def _of(tree: ast.AST, place: str) -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield from _of(node, f"{place}.{node.name}" if place else node.name)
            continue
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            continue  # whether there is such a packet, not the packet
        name = _emitted(node)
        if name and not place.endswith("__init__"):  # there packets are made, not emitted
            yield f"{place}: {name}", node.lineno  # type: ignore[attr-defined]
        yield from _of(node, place)


def _emitted(node: ast.AST) -> str | None:
    if not isinstance(node, (ast.Attribute, ast.Name)) or not isinstance(node.ctx, ast.Load):
        return None
    if isinstance(node, ast.Name):
        return node.id if node.id in ANYWHERE else None
    owner = node.value.attr if isinstance(node.value, ast.Attribute) else ""
    owner = node.value.id if isinstance(node.value, ast.Name) else owner
    if node.attr in ANYWHERE:
        return node.attr
    if owner == "boundaries" and node.attr in OF_BOUNDARIES:
        return node.attr
    if node.attr == "flush_hdp":  # the CPU's own flush, of the device
        return "device.flush_hdp"
    if owner == "caches" and node.attr == "dispatch":
        return "caches.dispatch"
    return None
