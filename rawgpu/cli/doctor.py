"""`rawgpu doctor`: what is installed, which device nodes exist and may be opened, what to do.

It looks and asks; it opens no device, and makes nothing but the cache's folder. `facts.py` gathers,
one kind of fact in a part, as plain data that `--json` prints whole; `advice` turns the facts into
what to do. It works where much is broken: a part that fails says so and the others go on.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from typing import Any

from rawgpu.cli import facts
from rawgpu.cli.show import size, table
from rawgpu.errors import RawGpuError

Report = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond --json."""
    parser.epilog = "Opens no device, makes the cache folder. Exit status 1: no device can be used."


def gather() -> Report:
    """All facts, and what follows from them."""
    parts: dict[str, Callable[[], Any]] = {
        "packages": facts.packages,
        "drivers": facts.drivers,
        "devices": facts.devices,
        "nodes": facts.nodes,
        "cpu": facts.cpu,
        "memory": facts.memory,
        "cache": facts.cache,
    }
    report: Report = {"python": platform.python_version(), "system": platform.platform()}
    for name, part in parts.items():
        try:
            report[name] = part()
        except RawGpuError as error:
            hint = "" if error.hint is None else f"; try: {error.hint}"
            report[name] = {"error": error.message + hint}
        except (OSError, ImportError) as error:
            report[name] = {"error": f"{type(error).__name__}: {error}"}
    report["advice"] = advice(report)
    return report


def rows_of(report: Report, part: str) -> list[Any]:
    """The rows of a part that is a list; none where gathering failed."""
    found = report[part]
    return found if isinstance(found, list) else []


def advice(report: Report) -> list[str]:
    """What to do, most urgent first."""
    wanted = [
        f"{part}: {facts_of['error']}"
        for part, facts_of in report.items()
        if isinstance(facts_of, dict) and "error" in facts_of
    ]
    missing = [p["name"] for p in rows_of(report, "packages") if p["needed"] and not p["version"]]
    if missing == ["llvm"]:
        wanted.append("llvmlite's LLVM does not load: pip install --force-reinstall llvmlite")
    elif missing:
        packages = " ".join(name for name in missing if name != "llvm")
        wanted.append(f"install what is missing: pip install {packages}")
    if rows_of(report, "nodes") and rows_of(report, "drivers") == ["cpu"]:
        wanted.append("there are GPU nodes, and this version has a driver for the CPU only")
    for node in rows_of(report, "nodes"):
        if not (node["readable"] and node["writable"]):
            group = node["group"] or "its group"
            remedy = f"sudo usermod -aG {group} $USER, then log in again"
            wanted.append(f"{node['path']} is closed to you: {remedy}")
    wanted += [f"{d['name']}: {d['note']}" for d in rows_of(report, "devices") if d["note"]]
    memory = report["memory"]
    if memory.get("transparent_hugepages") == "never":
        wanted.append(
            "large buffers get no huge pages: "
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        )
    wanted += report["cache"].get("problems", [])
    return wanted


def show_packages(report: Report) -> str:
    return table(
        ("PACKAGE", "VERSION", ""),
        [
            (p["name"], p["version"] or "missing", "needed" if p["needed"] else "optional")
            for p in rows_of(report, "packages")
        ],
    )


def show_devices(report: Report) -> str:
    if not isinstance(report["devices"], list):
        return "devices could not be listed: see below"
    rows = [(d["name"], d["arch"], _state(d), d["title"]) for d in rows_of(report, "devices")]
    return table(("DEVICE", "ARCH", "", "TITLE"), rows)


def _state(device: Report) -> str:
    if not device["usable"]:
        return "unusable"
    return "usable, virtual" if device.get("virtual") else "usable"


def show_nodes(report: Report) -> str:
    rows = [
        (
            node["path"],
            "r" * node["readable"] + "w" * node["writable"] or "closed",
            node["group"] or "-",
            node["driver"] or "-",
        )
        for node in rows_of(report, "nodes")
    ]
    if not rows:
        return (
            "no GPU device node: /dev/kfd, /dev/dri/renderD* and /dev/nvidia* are not there\n"
            "(RAWGPU_VIRTUAL=gfx1100 before a command gives it a virtual GPU, amd:0)"
        )
    return table(("NODE", "YOU MAY", "GROUP", "KERNEL DRIVER"), rows)


def show_machine(report: Report) -> str:
    cpu, memory, cache = report["cpu"], report["memory"], report["cache"]
    rows = [
        ("drivers", " ".join(rows_of(report, "drivers"))),
        ("python", report["python"]),
        ("system", report["system"]),
        ("processor", f"{cpu.get('model', '?')}, {cpu.get('usable_cores', '?')} cores usable"),
        ("features", " ".join(cpu.get("features", [])) or "-"),
        ("memory", size(memory.get("total_bytes", 0))),
        ("huge pages", memory.get("transparent_hugepages") or "not offered"),
        ("lockable", memory.get("lockable") or "?"),
        (
            "cache",
            f"{cache.get('path', '?')}, {size(cache.get('size_bytes', 0))} "
            f"in {cache.get('files', 0)} files",
        ),
    ]
    return "\n".join(f"{name:12}{text}" for name, text in rows)


def run(options: argparse.Namespace) -> int:
    """Print the report; 1 where no device can be used."""
    report = gather()
    usable = any(device["usable"] for device in rows_of(report, "devices"))
    if options.json:
        print(json.dumps(report))
        return 0 if usable else 1
    for show in (show_machine, show_packages, show_devices, show_nodes):
        print(show(report), end="\n\n")
    if report["advice"]:
        print("To do:")
        for line in report["advice"]:
            print(f"  - {line}")
    else:
        print("Nothing to do.")
    if not usable:
        print("rawgpu: no device can be used", file=sys.stderr)
    return 0 if usable else 1
