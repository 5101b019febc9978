"""Finding and opening devices, and what importing costs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rawgpu
from frontend import demo, engine
from rawgpu.errors import DeviceNotFound, RawGpuError
from rawgpu.runtime import discover
from tests.cpu.driver.kernels import signed

ROOT = Path(__file__).parents[2]


def test_the_cpu_is_listed_last() -> None:
    assert rawgpu.devices()[-1].name == "cpu:0"


def test_devices_open_by_name() -> None:
    for name in ("cpu:0", "cpu"):
        with rawgpu.open(name) as gpu:
            assert gpu.properties.name == "cpu:0"


def test_the_environment_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAWGPU_DEVICE", "cpu:0")
    with rawgpu.open() as gpu:
        assert gpu.properties.name == "cpu:0"


def test_a_device_that_the_environment_names_and_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAWGPU_DEVICE", "cpu:9")
    with pytest.raises(DeviceNotFound, match=r"no device 'cpu:9' \(from RAWGPU_DEVICE\)"):
        rawgpu.open()
    with pytest.raises(DeviceNotFound, match="no device 'cpu:8'; there"):
        rawgpu.open("cpu:8")


def test_a_limit_that_is_no_size_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAWGPU_CPU_MEMORY", "much")
    with pytest.raises(RawGpuError, match="RAWGPU_CPU_MEMORY: 'much' is no size"):
        rawgpu.open("cpu:0")


@pytest.mark.parametrize("name", ["cpu:1", "gpu:0", "cpu:x", ":", "cpu:0:0"])
def test_an_unknown_name_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(DeviceNotFound, match="cpu:0"):
        rawgpu.open(name)


def test_the_readmes_example_runs() -> None:
    with rawgpu.open("cpu:0") as gpu:
        saxpy = gpu.load(signed())["saxpy"]
        x, y = gpu.array(np.ones(512, np.float32)), gpu.array(np.zeros(512, np.float32))
        saxpy(x, y, np.float32(2.0), np.int32(512), grid=512 // 256)
        assert (y.numpy() == 2).all()


def test_vendors_without_a_driver_have_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(discover.VENDORS, "none", "rawgpu.none.driver.device")
    assert discover.driver("none") is None
    assert rawgpu.devices()


def test_opening_the_cpu_again_needs_no_compiler() -> None:
    with rawgpu.open("cpu"):
        pass  # now our own native code is in the cache
    program = "import sys, rawgpu; rawgpu.open('cpu'); print('llvmlite.binding' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_importing_imports_no_driver_and_no_compiler() -> None:
    program = (
        "import sys, rawgpu; "
        "print([name for name in sys.modules if name.startswith(('rawgpu.', 'llvmlite', 'cffi'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = set(eval(done.stdout))
    assert not [
        n for n in names if n.startswith(("llvmlite", "cffi", "rawgpu.cpu", "rawgpu.native"))
    ]


def test_the_tensor_library_and_the_demo_say_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAWGPU_DEVICE", "cpu:9")
    with pytest.raises(DeviceNotFound, match="RAWGPU_DEVICE: no device 'cpu:9'"):
        engine.default_device()
    for words in (["--device", "amd:9"], ["--gpus", "9"]):
        parser = argparse.ArgumentParser()
        demo.add_arguments(parser)
        with pytest.raises(DeviceNotFound) as refusal:
            demo.groups(parser.parse_args(words))
        assert "RAWGPU_VIRTUAL=gfx1100" in (refusal.value.hint or "")
