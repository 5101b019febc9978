"""Importing the packages is light: it touches no device and loads only what is needed."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.tidy.layers import VENDORS
from tests.tidy.source import ROOT

PROBE = """
import json, sys
opened = []
def watch(event, arguments):
    if event == "open" or event.startswith(("os.listdir", "os.scandir", "subprocess", "socket")):
        opened.append(f"{event} {arguments[0] if arguments else ''}")
sys.addaudithook(watch)
import rawgpu, frontend
threads = len(__import__("os").listdir("/proc/self/task")) if sys.platform == "linux" else 1
print(json.dumps({"opened": opened, "modules": sorted(sys.modules), "threads": threads}))
"""

NEVER = ("torch", "sklearn", "safetensors", "pytest", "multiprocessing.pool")


def probe() -> dict[str, list[str]]:
    """What a fresh interpreter did while it imported both packages."""
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], cwd=ROOT, capture_output=True, check=True
    ).stdout
    result: dict[str, list[str]] = json.loads(out)
    return result


def test_import_touches_no_device_and_starts_no_process() -> None:
    opened = probe()["opened"]
    devices = ("open /dev/", "os.listdir /dev", "os.scandir /dev", "open /sys/", "subprocess")
    harmless = ("open /dev/null", "open /dev/urandom")
    assert [x for x in opened if x.startswith(devices) and not x.startswith(harmless)] == []
    assert [x for x in opened if x.startswith("socket")] == []


def test_import_loads_no_vendor_and_no_optional_package() -> None:
    loaded = probe()["modules"]
    vendors = tuple(f"rawgpu.{vendor}" for vendor in VENDORS)
    assert [name for name in loaded if name.startswith(vendors)] == []
    assert [name for name in loaded if name in NEVER] == []
