"""What the generator makes of a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from frontend.target import target_of
from rawgpu.errors import UnsupportedDevice


def device(triple: str, cpu: str, features: str) -> Any:
    """As much of a device as the generator asks for."""
    facts = {"triple": triple, "cpu": cpu, "features": features}
    properties = SimpleNamespace(
        name="cpu:0", cache_bytes=(32 << 10, 1 << 20), lanes=32, local_memory_bytes=65536,
        compute_units=2,
    )  # fmt: skip
    return SimpleNamespace(target=lambda: facts, properties=properties)


V3 = "+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt"


def test_a_processor_without_fused_multiply_add_is_refused_by_name() -> None:
    old = V3.replace("+fma,", "")
    with pytest.raises(UnsupportedDevice, match="lacks fma"):
        target_of(device("x86_64-unknown-linux-gnu", "x86-64", old))


def test_vectors_are_as_wide_as_the_processor_has_them() -> None:
    narrow = target_of(device("x86_64-unknown-linux-gnu", "haswell", V3))
    wide = target_of(device("x86_64-unknown-linux-gnu", "icelake-server", V3 + ",+avx512f"))
    assert narrow.machine.lanes(32) == 8 and not narrow.machine.masked
    assert wide.machine.lanes(32) == 16 and wide.machine.masked


def test_a_gpu_has_a_lane_for_each_work_item_whatever_the_element() -> None:
    gpu = target_of(device("amdgcn-amd-amdhsa", "gfx1100", ""))
    assert gpu.machine.lanes(32) == gpu.machine.lanes(64) == 32


def test_an_architecture_without_a_text_level_is_refused() -> None:
    with pytest.raises(UnsupportedDevice, match="no code generation for riscv64"):
        target_of(device("riscv64-unknown-linux-gnu", "generic", ""))
