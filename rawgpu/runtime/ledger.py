"""The evidence ledger of everything that is declared: every declaring module is imported.

Declarations enter when their modules are imported (`rawgpu/describe/evidence.py`). Lists of bits
and numbers do not: their docstrings name the vendor's constants or another witness, and a list
whose docstring names neither has none.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterator

from rawgpu.describe import evidence

PACKAGES = ("rawgpu.ioctl", "rawgpu.amd.spec", "rawgpu.amd.spec.isa")
"""Where declarations are. More vendors, more rows."""
PATTERN = re.compile(r"\b[A-Z][A-Z0-9_]*_\*\w*")
"""How a docstring names a vendor's constants: KFD_IOC_QUEUE_TYPE_*."""
STATED = re.compile(r"^ *Evidence: (.+)$", re.MULTILINE)
"""How a docstring names a witness where the vendor's constants have no names."""
HEADERS = {
    "KFD_": "kfd.json", "EC_": "kfd.json", "DEBUG_": "kfd.json", "AMDGPU_": "amdgpu_drm.json",
    "SDMA_": "amd_sdma.json", "HSA_": "amd_packets.json", "AMD_": "amd_packets.json",
}  # fmt: skip
"""Where the constants of a pattern were copied to, below tests/data/abi."""


def modules() -> Iterator[str]:
    """The modules that declare."""
    for package in PACKAGES:
        if importlib.util.find_spec(package.rpartition(".")[0]) is None:
            continue
        if importlib.util.find_spec(package) is None:
            continue
        found = importlib.import_module(package)
        for module in pkgutil.iter_modules(found.__path__):
            if not module.ispkg and not module.name.startswith("_"):
                yield f"{package}.{module.name}"


def enumerations() -> list[type[enum.Enum]]:
    """Every list of bits or numbers, in order of declaration; not lists of words of our own."""
    found = []
    for name in modules():
        module = importlib.import_module(name)
        for item in vars(module).values():
            mine = isinstance(item, type) and issubclass(item, enum.IntEnum | enum.IntFlag)
            if mine and item.__module__ == name:
                found.append(item)
    return found


def witness(kind: type[enum.Enum]) -> str:
    """Who else says what this list says."""
    stated = STATED.search(kind.__doc__ or "")
    if stated is not None:
        evidence.check(kind.__name__, "its docstring", stated[1])
        return stated[1]
    patterns = PATTERN.findall(kind.__doc__ or "")
    for pattern in patterns:
        for prefix, file in HEADERS.items():
            if pattern.startswith(prefix):
                return f"vendor header: {', '.join(patterns)} (tests/data/abi/{file})"
    return evidence.NONE_YET


def ledger() -> list[evidence.Entry]:
    """Every declaration, in order."""
    lists = [
        evidence.Entry(
            kind="bits" if issubclass(kind, enum.IntFlag) else "numbers",
            name=kind.__name__,
            module=kind.__module__,
            source=(kind.__doc__ or "").split("\n")[0],
            evidence=witness(kind),
        )
        for kind in enumerations()
    ]
    return [*evidence.entries(), *lists]
