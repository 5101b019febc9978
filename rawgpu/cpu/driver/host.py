"""What this machine's CPU is, from sysfs and procfs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from rawgpu.contract import DeviceInfo, DeviceProperties
from rawgpu.errors import RawGpuError
from rawgpu.native import system

CPUINFO = Path("/proc/cpuinfo")
CACHE = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_bytes(text: str) -> int:
    """`48K`, `2M`, `1G` or a plain number, in bytes."""
    found = re.fullmatch(r"\s*(\d+)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if found is None:
        raise RawGpuError(f"{text!r} is no size", hint="a number of bytes, or 512K, 64M, 8G")
    return int(found[1]) * UNITS[found[2].upper()]


def memory_limit() -> int | None:
    """The most the device may hold: RAWGPU_CPU_MEMORY, or no limit of ours."""
    wanted = os.environ.get("RAWGPU_CPU_MEMORY", "")
    try:
        return size_bytes(wanted) if wanted else None
    except RawGpuError as error:
        raise RawGpuError(f"RAWGPU_CPU_MEMORY: {error.message}", hint=error.hint) from None


def data_caches(root: Path = CACHE) -> tuple[int, ...]:
    """Sizes of the data and unified caches, first level first; empty where sysfs has none."""
    levels: dict[int, int] = {}
    for index in sorted(root.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            if kind in ("Data", "Unified"):
                levels[int((index / "level").read_text())] = size_bytes(
                    (index / "size").read_text()
                )
        except (OSError, ValueError, RawGpuError):
            continue  # a machine or container that shows only part of it
    return tuple(size for _, size in sorted(levels.items()))


def _cpuinfo(path: Path = CPUINFO) -> dict[str, str]:
    """The first processor's entries."""
    rows: dict[str, str] = {}
    try:
        text = path.read_text()
    except OSError:
        return rows
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        rows[key.strip()] = value.strip()
    return rows


def title() -> str:
    """The processor's name as the system gives it."""
    rows = _cpuinfo()
    return rows.get("model name") or rows.get("Processor") or f"{system.MACHINE} processor"


def features() -> frozenset[str]:
    """Feature names in the kernel's spelling."""
    rows = _cpuinfo()
    return frozenset((rows.get("flags") or rows.get("Features") or "").split())


def vector_lanes(names: frozenset[str]) -> int:
    """float32 lanes of the widest vector unit."""
    if "avx512f" in names:
        return 16
    return 8 if "avx2" in names else 4


def properties(name: str, limit_bytes: int | None) -> DeviceProperties:
    """The device's row."""
    names = features()
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceProperties(
        name=name,
        arch=system.MACHINE,
        title=title(),
        lanes=vector_lanes(names),
        compute_units=len(os.sched_getaffinity(0)),
        memory_bytes=limit_bytes or physical,
        local_memory_bytes=0,
        max_block_threads=1,
        max_grid=((1 << 31) - 1,) * 3,
        cache_bytes=data_caches(),
        features=names,
        evidence="runs on this processor",
    )


def discover() -> list[DeviceInfo]:
    """One device, on the systems we run on."""
    if sys.platform != "linux" or system.MACHINE not in ("x86_64", "aarch64"):
        return []
    return [DeviceInfo(name="cpu:0", arch=system.MACHINE, title=title())]
