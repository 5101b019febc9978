#!/usr/bin/env python3
"""Derive every declared list of bits and numbers again from the vendors' headers.

    python tools/bit_lists.py [FOLDER]

An enumeration of `rawgpu.ioctl` or of a vendor's spec whose docstring names a pattern of constants
(`KFD_IOC_QUEUE_TYPE_*`) is made anew from the constants of FOLDER (by default `tests/data/abi`) and
compared both ways: a member with another value, a member that no header has, a constant that has
no member. Exit status 1 if anything differs. What may lack members, and why, is in `PARTIAL`.
"""

from __future__ import annotations

import enum
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rawgpu.runtime.ledger import PATTERN, enumerations

LAYOUTS = Path(__file__).resolve().parent.parent / "tests" / "data" / "abi"

PARTIAL: Mapping[str, tuple[str, str]] = {
    "ExceptionCode": ("MAX", "a count"),
    "FirmwareType": ("VERSION", "a query whose name begins alike"),
    "GemCreateFlags": ("NO_EVICT|SPARSE|TOP_DOWN", "flags out of the kernel's tree"),
    "GemDomain": ("DGMA|DGMA_IMPORT|MASK", "domains out of the kernel's tree, and the mask of all"),
    "HwIp": ("INSTANCE_MAX_COUNT|NUM", "counts"),
    "InfoQuery": (
        "(FW|MMR|RAS_ENABLED|SENSOR|VBIOS|VIDEO_CAPS)_.+|CAPABILITY|VIRTUAL_RANGE",
        "lists of arguments whose names begin alike, and queries out of the kernel's tree",
    ),
    "Opcode": (
        "AQL_.+|DUMMY_TRAP|GPUVM_INV|PRE_EXE|PTEPDE|SEM",
        "packets that the kernel's own driver sends, or that no reader here uses",
    ),
    "ResetCause": (".+_RESET", "the list of resets, whose names begin alike"),
    "SmiEvent": ("MSG_SIZE", "a size"),
    "VmPageFlags": ("MTYPE_.+|OP_.+|PAGE_.+", "a field's own numbers, and the other pattern's"),
}
"""The constants that a list leaves out, as a pattern, and why."""

MMAP_TYPE_SHIFT = 62
"""The kernel's own header has these numbers in place, in bits 63:62."""
ELSEWHERE = ("Protection",)
"""Lists of the C library, which is not among the measured."""


def constants(folder: Path = LAYOUTS) -> dict[str, int]:
    """Every named constant of the folder's files."""
    found: dict[str, int] = {}
    for name in ("kfd", "amdgpu_drm", "amd_packets"):
        facts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        found.update({k: v for k, v in facts["constants"].items() if isinstance(v, int)})
        for members in facts.get("enums", {}).values():
            found.update(members)
        for constant, value in facts.get("kernel_private", {}).items():
            if constant.startswith("KFD_MMAP_TYPE_") and str(value).startswith("0x"):
                found[constant] = int(value, 16) >> MMAP_TYPE_SHIFT
    sdma = json.loads((folder / "amd_sdma.json").read_text(encoding="utf-8"))
    for generation in sdma["gens"].values():
        found.update(generation["ops"])
    return found


def derived(kind: type[enum.Enum], known: Mapping[str, int]) -> dict[str, int]:
    """The list as the headers have it: each constant that fits a pattern of the docstring."""
    found: dict[str, int] = {}
    for pattern in PATTERN.findall(kind.__doc__ or ""):
        before, _, after = pattern.partition("*")
        shape = re.compile(re.escape(before) + r"(\w+)" + re.escape(after) + "$")
        for name, value in known.items():
            match = shape.match(name)
            if match is not None:
                found[match[1]] = value
    return found


def compare(kind: type[enum.Enum], known: Mapping[str, int]) -> Iterator[str]:
    """What differs between a list and what its pattern gives."""
    theirs = derived(kind, known)
    seen = set()
    for name, member in kind.__members__.items():
        same = [n for n in theirs if n == name or (n.startswith(name) and name not in theirs)]
        seen.update(same)
        values = {theirs[n] for n in same}
        if int(member.value) not in values:
            yield f"{kind.__name__}.{name} is {member.value}, the headers have {values or 'none'}"
    left_out, _ = PARTIAL.get(kind.__name__, ("", ""))
    for name in sorted(theirs.keys() - seen):
        if not re.fullmatch(left_out, name):
            yield f"{kind.__name__} lacks {name}, {theirs[name]}"


def differences(folder: Path = LAYOUTS) -> list[str]:
    """Every difference in every list."""
    known = constants(folder)
    return [
        f"{kind.__module__}: {line}"
        for kind in enumerations()
        if PATTERN.search(kind.__doc__ or "") and kind.__name__ not in ELSEWHERE
        for line in compare(kind, known)
    ]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else LAYOUTS
    known: dict[str, Any] = constants(folder)
    for kind in enumerations():
        if PATTERN.search(kind.__doc__ or "") and kind.__name__ not in ELSEWHERE:
            print(f"{kind.__name__}: {derived(kind, known)}")
    found = differences(folder)
    print("\n".join(found) or "no differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
