"""The fixed kernels of `rawgpu bench virtual` are what their source says, and work."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from rawgpu.cli import bench_virtual
from rawgpu.cli import main as cli
from rawgpu.cli.bench_virtual import bench_kernels, lift_time
from rawgpu.cli.bench_virtual.kernels import CHIPS, COMMAND, HERE, object_path


def code_of(image: bytes) -> dict[str, Any]:
    """What matters of an object: code, descriptors, and where they begin."""
    elf = ELFFile(io.BytesIO(image))
    parts: dict[str, Any] = {
        name: elf.get_section_by_name(name).data() for name in (".text", ".rodata")
    }
    symbols = elf.get_section_by_name(".symtab").iter_symbols()
    parts["symbols"] = {s.name: s["st_value"] for s in symbols if not s.name.startswith(".")}
    return parts


@pytest.mark.parametrize("chip", CHIPS)
def test_the_objects_are_what_clang_makes_of_the_source(chip: str, tmp_path: Path) -> None:
    if shutil.which(COMMAND[0]) is None:
        pytest.skip(f"{COMMAND[0]} is not installed")
    made = tmp_path / "made.elf"
    command = [word.format(chip=chip, object=made) for word in COMMAND]
    subprocess.run(command, cwd=HERE, check=True)
    assert code_of(made.read_bytes()) == code_of(object_path(chip).read_bytes())


@pytest.mark.parametrize("chip", CHIPS)
def test_the_fixed_kernels_run_natively_and_give_what_numpy_gives(chip: str) -> None:
    found: dict[str, Any] = bench_kernels(chip, rounds=1)
    assert sorted(found) == ["matmul", "reduction", "softmax"]
    for name, kernel in found.items():
        assert kernel["right"], (name, kernel["largest_error"])
        assert kernel["interpreted"] == 0, name
        assert 0 < kernel["static_vector_instructions"] < kernel["static_instructions"]
    # 512**3 products, two in a dual instruction at best, for 32 or 64 lanes
    lanes = {"gfx1100": 32, "gfx942": 64}[chip]
    assert found["matmul"]["wave_instructions"] >= 512**3 // (2 * lanes)


@pytest.mark.parametrize("option", ["--arch", "--chip"])
def test_a_processor_is_chosen_and_the_columns_are_explained(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = {
        "seconds": 0.002, "wave_instructions_per_s": 3e6, "gflop_per_s": None, "lift_s": 0.1,
        "static_instructions": 9, "static_vector_instructions": 4, "right": True,
    }  # fmt: skip
    monkeypatch.setattr(
        bench_virtual, "bench", lambda chip: {"kernels": {f"k on {chip}": case}, "lift": []}
    )
    assert cli.main(["bench", "virtual", option, "gfx942"]) == 0
    out = capsys.readouterr().out
    assert "k on gfx942" in out and "k on gfx1100" not in out
    head = next(line for line in out.splitlines() if line.startswith("KERNEL"))
    assert all(column in head for column in bench_virtual.COLUMNS)
    with pytest.raises(SystemExit):
        cli.main(["bench", "virtual", "--help"])
    told = capsys.readouterr().out
    assert all(text in told for text in bench_virtual.COLUMNS.values())


@pytest.mark.parametrize("chip", CHIPS)
def test_straight_code_is_lifted_whole(chip: str) -> None:
    found: dict[str, Any] = lift_time(chip, 300)
    assert 200 < found["static_instructions"] < 400
    assert found["not_lifted"] == 0
