#!/usr/bin/env python3
"""Compare the declared kernel ABI with layouts measured from the vendors' headers.

    python tools/parity.py [FOLDER]

FOLDER holds `kfd.json` and `amdgpu_drm.json` (by default `tests/data/abi`): sizes and offsets from
the debug information of compiled headers, request numbers from their macros. Every request and
struct is compared by size, offsets and number; every enumeration whose docstring names a pattern of
constants (`KFD_IOC_QUEUE_TYPE_*`) by value. Exit status 1 if anything differs.
"""

from __future__ import annotations

import enum
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from rawgpu.describe.codec import NestedCodec
from rawgpu.describe.request import About, Request, Struct, Union

ROOT = Path(__file__).resolve().parent.parent
LAYOUTS = ROOT / "tests" / "data" / "abi"

MODULES = {
    "kfd": ("kfd_base", "kfd_debug", "kfd"),
    "amdgpu_drm": ("drm", "amdgpu_base", "amdgpu_info", "amdgpu"),
}
"""Layout file: the modules of `rawgpu.ioctl` that it judges."""

LATER = "none yet"
"""Evidence of declarations from a newer header than the measured one."""


def modules(layout: str) -> list[ModuleType]:
    return [importlib.import_module(f"rawgpu.ioctl.{name}") for name in MODULES[layout]]


def declared(layout: str) -> list[type[Struct | Union]]:
    """The structs, requests and unions of a layout file's modules, in order of declaration."""
    found = []
    for module in modules(layout):
        for item in vars(module).values():
            mine = isinstance(item, type) and item.__module__ == module.__name__
            if mine and issubclass(item, (Struct, Union)) and "about" in item.__dict__:
                found.append(item)
    return found


def flat(about: About, prefix: str = "", base: int = 0) -> Iterator[tuple[str, int, int]]:
    """Each member as path, offset and size; a union, which C leaves unnamed, adds no name."""
    for member in about.members:
        path, offset = prefix + member.name, base + member.offset
        kind = member.codec.kind if isinstance(member.codec, NestedCodec) else None
        if kind is not None and issubclass(kind, Union):
            yield from flat(kind.about, prefix, offset)
            continue
        yield path, offset, member.size
        if kind is not None:
            yield from flat(kind.about, path + ".", offset)


def compare_struct(
    kind: type[Struct | Union], layout: dict[str, Any], *, older: bool
) -> Iterator[str]:
    """What is different between a declaration and a measured layout.

    An older version of a struct is its beginning: it may lack fields at the end.
    """
    about = kind.about
    mine = {path: (offset, size) for path, offset, size in flat(about)}
    theirs = {f["name"]: (f["offset"], f["size"]) for f in layout["fields"]}
    end = max((m.offset + m.size for m in about.members), default=0)
    if about.flexible is not None:
        mine[about.flexible.name] = (about.flexible.offset, 0)
    for path, place in theirs.items():
        if older and place[0] >= end:
            continue
        if path not in mine:
            yield f"{about.name} lacks {path} of {about.c}"
        elif path in mine and mine[path] != place:
            yield f"{about.name}.{path} is at {mine[path]}, in {about.c} at {place}"
    for member in about.members:
        union = isinstance(member.codec, NestedCodec) and issubclass(member.codec.kind, Union)
        if not union and member.name not in theirs:
            yield f"{about.name}.{member.name} is not in {about.c}"
    question = _up(end, about.align)
    if not older and question != layout["size"]:
        yield f"{about.name} has {question} bytes, {about.c} {layout['size']}"


def _up(value: int, align: int) -> int:
    return (value + align - 1) & -align


def compare_structs(name: str, facts: dict[str, Any]) -> Iterator[str]:
    kinds = declared(name)
    for kind in kinds:
        about = kind.about
        later = issubclass(kind, Struct) and about.evidence == LATER
        if about.c in ("", "-") or later:
            continue  # C has no name for it: it is compared where it is used
        layout = facts["structs"].get(about.c)
        if layout is None:
            yield f"{about.name}: no struct {about.c} was measured"
            continue
        newer = [k for k in kinds if kind in k.__mro__[1:] and k.about.evidence != LATER]
        yield from compare_struct(kind, layout, older=bool(newer))


def compare_numbers(name: str, facts: dict[str, Any]) -> Iterator[str]:
    """Requests whose number no header has, and requests of the header that are not declared."""
    numbers = {}
    for ioctl, fact in facts["ioctls"].items():
        for key, value in fact.items():
            if key == "hex" or key.startswith("request_in"):
                numbers[int(value, 16)] = ioctl
    nrs = {fact.get("nr", int(fact["hex"], 16) & 0xFF) for fact in facts["ioctls"].values()}
    seen = set()
    for kind in declared(name):
        if issubclass(kind, Request):
            seen.add(kind.about.nr)
            if kind.about.number not in numbers:
                yield f"{kind.about.name}: no header has the number {kind.about.number:#010x}"
    if name == "kfd":  # of DRM only what a compute driver needs is declared
        for missing in sorted(nrs - seen):
            yield f"request {missing:#x} of {name} is not declared"


def constants(facts: dict[str, Any]) -> dict[str, int]:
    found = dict(facts["constants"])
    for members in facts.get("enums", {}).values():
        found.update(members)
    return {key: value for key, value in found.items() if isinstance(value, int)}


def compare_enums(name: str, facts: dict[str, Any]) -> Iterator[str]:
    known = constants(facts)
    for module in modules(name):
        for kind in vars(module).values():
            mine = isinstance(kind, type) and issubclass(kind, enum.Enum)
            if not mine or kind.__module__ != module.__name__:
                continue
            patterns = re.findall(r"\b[A-Z][A-Z0-9_]*_\*\w*", kind.__doc__ or "")
            if not patterns or kind.__name__ == "MmapType":
                continue  # the kernel's own header has those, shifted
            for member in kind.__members__.values():
                names = [pattern.replace("*", member.name) for pattern in patterns]
                values = {known[text] for text in names if text in known}
                if values != {int(member.value)}:
                    where = " or ".join(names)
                    yield f"{kind.__name__}.{member.name} is {member.value}, {where} {values}"


def differences(name: str, folder: Path = LAYOUTS) -> list[str]:
    """Everything in which the declarations differ from layout file `name`."""
    facts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return [
        *compare_structs(name, facts),
        *compare_numbers(name, facts),
        *compare_enums(name, facts),
    ]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else LAYOUTS
    status = 0
    for name in MODULES:
        found = differences(name, folder)
        print(f"{name}: {len(declared(name))} structs, {len(found)} differences")
        for line in found:
            print(f"  {line}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
