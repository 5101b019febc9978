"""What this machine is and has, for `rawgpu doctor`; asked of files and libraries only."""

from __future__ import annotations

import contextlib
import grp
import os
import platform
import re
import resource
import stat
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import rawgpu
from rawgpu.compiler_bridge.cache import LIMIT_BYTES, cache_directory
from rawgpu.runtime.discover import VENDORS, driver

NEEDED = ("numpy", "cffi", "pyelftools", "llvmlite")
OPTIONAL = ("safetensors", "torch")

NODES = ("dev/kfd", "dev/dri/renderD*", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia[0-9]*")

# What kernels gain most from; the rest is in /proc/cpuinfo.
FEATURES = frozenset(
    {"sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16"}
    | {"amx_bf16", "asimd", "asimdhp", "asimddp", "bf16", "sve", "sve2", "sme"}
)


def installed(package: str) -> str | None:
    """The version of a package; None where it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def llvm_version() -> str | None:
    """The version of the LLVM that llvmlite carries."""
    try:
        from llvmlite import binding
    except (ImportError, OSError):
        return None
    return ".".join(str(part) for part in binding.llvm_version_info)


def packages() -> list[dict[str, Any]]:
    """Python packages, needed ones first, and the LLVM inside llvmlite."""
    rows = [{"name": name, "version": installed(name), "needed": True} for name in NEEDED]
    rows.append({"name": "llvm", "version": llvm_version(), "needed": True})
    rows += [{"name": name, "version": installed(name), "needed": False} for name in OPTIONAL]
    return rows


def devices() -> list[dict[str, Any]]:
    """What `rawgpu.devices()` finds."""
    return [asdict(info) for info in rawgpu.devices()]


def drivers() -> list[str]:
    """The vendors that this installation has a driver of ours for."""
    return [vendor for vendor in VENDORS if driver(vendor) is not None]


def kernel_driver(node: Path, root: Path) -> str | None:
    """The kernel driver behind a device node, where sysfs tells."""
    if node.name.startswith("nvidia"):
        return "nvidia"
    link = root / "sys/class/drm" / node.name / "device/driver"
    if link.exists():
        return link.resolve().name
    return "amdgpu" if node.name == "kfd" else None


def group_of(status: os.stat_result) -> str | None:
    """The group to be in, where being in it helps; None for a node that groups do not open."""
    if not status.st_mode & stat.S_IWGRP:
        return None
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return str(status.st_gid)


def nodes(root: Path = Path("/")) -> list[dict[str, Any]]:
    """The device nodes of GPUs under `root`, and whether this user may open them."""
    return [
        {
            "path": f"/{path.relative_to(root)}",
            "readable": os.access(path, os.R_OK),
            "writable": os.access(path, os.W_OK),
            "group": group_of(path.stat()),
            "driver": kernel_driver(path, root),
        }
        for pattern in NODES
        for path in sorted(root.glob(pattern))
    ]


def usable_cores() -> int:
    """How many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Model, processors and the instruction sets that matter here."""
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.+)$", text, re.MULTILINE)
    return {
        "arch": platform.machine(),
        "model": model[1] if model else platform.processor() or platform.machine(),
        "usable_cores": usable_cores(),
        "features": [name for name in (flags[1].split() if flags else ()) if name in FEATURES],
    }


def chosen(text: str) -> str | None:
    """The word in brackets: `always [madvise] never` is `madvise`."""
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else None


def memory(root: Path = Path("/")) -> dict[str, Any]:
    """Size, huge pages, and how much may be locked, which pinning counts against."""
    huge = root / "sys/kernel/mm/transparent_hugepage/enabled"
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "total_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "transparent_hugepages": chosen(huge.read_text()) if huge.exists() else None,
        "lockable": "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes",
    }


def cache_problems(directory: Path) -> list[str]:
    """Why compiled kernels cannot be kept in `directory`, which is made, and what to do."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        return [f"{directory} cannot be made ({error.strerror}): name another in RAWGPU_CACHE"]
    problems = []
    if found.st_uid != os.geteuid():
        problems.append(f"{directory} belongs to another user: name another in RAWGPU_CACHE")
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problems.append(
            f"others may write to {directory}, so it is not used: chmod 700 {directory}"
        )
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        problems.append(f"{directory} is closed to you: name another in RAWGPU_CACHE")
    return problems


def _sizes(directory: Path) -> Iterator[int]:
    """Sizes of the files there; other processes may remove some meanwhile."""
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                yield entry.stat().st_size


def cache() -> dict[str, Any]:
    """Where compiled kernels are kept, and how many there are."""
    directory = cache_directory()
    if directory is None:
        return {"path": "off", "files": 0, "size_bytes": 0, "limit_bytes": 0, "problems": []}
    problems = cache_problems(directory)
    readable = directory.is_dir() and os.access(directory, os.R_OK | os.X_OK)
    sizes = list(_sizes(directory)) if readable else []
    return {
        "path": str(directory),
        "files": len(sizes),
        "size_bytes": sum(sizes),
        "limit_bytes": LIMIT_BYTES,
        "problems": problems,
    }
