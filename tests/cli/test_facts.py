"""The doctor's facts, read from made-up machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rawgpu.cli import facts


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A file system with an AMD card whose nodes are there."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name in ("dev/kfd", "dev/dri/renderD128", "dev/dri/card0", "dev/nvidia0"):
        (tmp_path / name).touch()
    device = tmp_path / "sys/class/drm/renderD128/device"
    device.mkdir(parents=True)
    driver = tmp_path / "sys/bus/pci/drivers/amdgpu"
    driver.mkdir(parents=True)
    (device / "driver").symlink_to(driver)
    return tmp_path


def test_device_nodes_are_found_with_their_kernel_driver(machine: Path) -> None:
    found = {node["path"]: node["driver"] for node in facts.nodes(machine)}
    assert found == {
        "/dev/kfd": "amdgpu",
        "/dev/dri/renderD128": "amdgpu",
        "/dev/nvidia0": "nvidia",
    }


def test_a_node_names_the_group_that_opens_it(machine: Path) -> None:
    node = machine / "dev/kfd"
    node.chmod(0o660)
    (row,) = [row for row in facts.nodes(machine) if row["path"] == "/dev/kfd"]
    assert row["group"] is not None
    node.chmod(0o600)
    (row,) = [row for row in facts.nodes(machine) if row["path"] == "/dev/kfd"]
    assert row["group"] is None


@pytest.mark.skipif(os.getuid() == 0, reason="root may open everything")
def test_a_closed_node_is_reported_as_closed(machine: Path) -> None:
    (machine / "dev/kfd").chmod(0)
    (row,) = [row for row in facts.nodes(machine) if row["path"] == "/dev/kfd"]
    assert not row["readable"]
    assert not row["writable"]


def test_a_machine_without_a_gpu_has_no_nodes(tmp_path: Path) -> None:
    assert facts.nodes(tmp_path) == []


def test_the_processor_is_read_on_x86(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fpu avx2 fma xyz\n")
    found = facts.cpu(info)
    assert found["model"] == "Fast One"
    assert found["features"] == ["avx2", "fma"]


def test_the_processor_is_read_on_arm(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")
    assert facts.cpu(info)["features"] == ["asimd", "sve"]


def test_the_processor_of_a_machine_that_tells_nothing_is_still_named(tmp_path: Path) -> None:
    found = facts.cpu(tmp_path / "absent")
    assert found["model"]
    assert found["usable_cores"] >= 1


def test_the_chosen_word_is_the_one_in_brackets() -> None:
    assert facts.chosen("always [madvise] never\n") == "madvise"
    assert facts.chosen("none") is None


def test_a_missing_package_has_no_version() -> None:
    assert facts.installed("no-such-package-of-ours") is None
    assert facts.installed("numpy")


def test_the_cache_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "far" / "cache"
    assert facts.cache_problems(directory) == []
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_file_that_another_process_removes_meanwhile_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "kept").write_bytes(b"12345")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")  # stat finds as little of it
    monkeypatch.setenv("RAWGPU_CACHE", str(tmp_path))
    found = facts.cache()
    assert (found["files"], found["size_bytes"]) == (1, 5)


def test_a_cache_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "cache"):
        (problem,) = facts.cache_problems(directory)
        assert "cannot be made" in problem
