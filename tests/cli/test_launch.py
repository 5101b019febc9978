"""`rawgpu launch` runs kernels on the CPU and on a virtual GPU, and refuses what it cannot know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import rawgpu
from rawgpu.cli import launch
from rawgpu.cli import main as cli
from rawgpu.compiler_bridge.llvm import compile_ir, host_target
from rawgpu.contract import Parameter
from rawgpu.errors import LaunchError
from rawgpu.native.elf import signature_note_ir
from tests.amd.driver.objects import SAXPY, build

SCALE = """
define void @scale(ptr %arguments, i64 %begin, i64 %end) {
  %x = load ptr, ptr %arguments
  %a.slot = getelementptr i64, ptr %arguments, i64 1
  %a = load float, ptr %a.slot
  %at = getelementptr float, ptr %x, i64 %begin
  %old = load float, ptr %at
  %new = fmul float %old, %a
  store float %new, ptr %at
  ret void
}
"""
NOTE = signature_note_ir({"scale": [Parameter("x", "pointer", True), Parameter("a", "float32")]})
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, str, str]:
        status = cli.main(["launch", *(str(word) for word in words)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32))
    np.save(tmp_path / "y.npy", np.ones(100, dtype=np.float32))
    (tmp_path / "saxpy.o").write_bytes(build(SAXPY, "gfx1100"))
    (tmp_path / "typed.o").write_bytes(compile_ir(SCALE + NOTE, host_target()))
    (tmp_path / "bare.o").write_bytes(compile_ir(SCALE, host_target()))
    return tmp_path


@pytest.fixture
def room() -> Iterator[None]:
    with rawgpu.room("gfx1100"):
        yield


def saxpy(files: Path, *more: object) -> list[object]:
    return [
        files / "saxpy.o", "--grid", 2, "--block", 64, "--arg", f"x={files / 'x.npy'}",
        "--arg", f"y={files / 'y.npy'}", *more,
    ]  # fmt: skip


@pytest.mark.usefixtures("room")
def test_a_kernel_on_a_virtual_gpu_and_its_result_in_a_file(run: Run, files: Path) -> None:
    kept = files / "r.npy"
    words = saxpy(files, "--arg", "n=int32:100", "--arg", "a=float32:2.0", "--out", f"y={kept}")
    status, out, err = run(*words)
    assert (status, err) == (0, "")
    assert "saxpy on amd:0 (gfx1100)" in out
    assert np.array_equal(np.load(kept), 2 * np.arange(100, dtype=np.float32) + 1)


@pytest.mark.usefixtures("room")
def test_rows_for_programs(run: Run, files: Path) -> None:
    words = saxpy(files, "--arg", "a=float32:2", "--arg", "n=int32:3", "--json")
    found = json.loads(run(*words)[1])
    assert found["arrays"]["y"]["first"] == [1, 3, 5, 1, 1, 1, 1, 1]
    assert (found["device"], found["kernel"]) == ("amd:0", "saxpy")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a=2.0", "n=int32:1"], "--arg a=float32:2.0"),
        (["a=float32:2", "n=7"], "--arg n=int32:7 or --arg n=uint32:7 or --arg n=float32:7"),
        (["a=float32:2"], "takes x: pointer, y: pointer, a: bytes4, n: bytes4; given: x, y, a"),
        (["a=float32:2", "m=int32:1"], "given: x, y, a, m"),
        (["a=float32:2", "a=float32:2"], "'a' is given twice"),
        (["a=float64:2", "n=int32:1"], "8 bytes for a value of 4"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_write(
    words: list[str], says: str, run: Run, files: Path
) -> None:
    status, _, err = run(*saxpy(files, *(w for word in words for w in ("--arg", word))))
    assert status == 1 and says in err


@pytest.mark.usefixtures("room")
def test_a_fault_and_another_processor_s_code_are_told(run: Run, files: Path) -> None:
    (files / "saxpy.o").write_bytes(build(SAXPY, "gfx942"))
    assert "code for gfx942" in run(*saxpy(files))[2]
    (files / "saxpy.o").write_bytes(build(SAXPY, "gfx1100"))
    words = [files / "saxpy.o", "--arg", "x=uint64:0", "--arg", f"y={files / 'y.npy'}"]
    status, out, _ = run(*words, "--arg", "a=float32:1", "--arg", "n=int32:1", "--json")
    assert status == 1 and json.loads(out)["error"]["kind"] == "PageFault"


def test_plain_numbers_where_the_file_says_their_types(run: Run, files: Path) -> None:
    kept = files / "r.npy"
    words = [files / "typed.o", "--arg", f"x={files / 'y.npy'}", "--arg", "a=3"]
    status, out, _ = run(*words, "--out", f"x={kept}")
    assert status == 0 and "scale on cpu:0" in out
    assert np.load(kept)[:3].tolist() == [3, 1, 1]  # one block, and a block is one element


def test_without_a_signature_a_number_needs_its_type(run: Run, files: Path) -> None:
    words = [files / "bare.o", "--grid", 4, "--arg", "x=float32[2,2]"]
    status, _, err = run(*words, "--arg", "a=3")
    assert status == 1 and "--arg a=int64:3 or --arg a=uint64:3 or --arg a=float64:3" in err
    status, out, _ = run(*words, "--arg", "a=float32:3")
    assert status == 0 and "x: float32[2, 2] = [0.0, 0.0, 0.0, 0.0]" in out


def test_files_with_pickles_and_damaged_ones_are_refused(run: Run, files: Path) -> None:
    np.save(files / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    (files / "short.npy").write_bytes((files / "x.npy").read_bytes()[:90])
    (files / "odd.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((((")
    for name in ("o.npy", "short.npy", "odd.npy", "nothing.npy"):
        status, _, err = run(files / "bare.o", "--arg", f"x={files / name}")
        assert status == 1 and name in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "no NAME=VALUE"),
        ("x=complex64:1", "is no type of a number"),
        ("x=int8:300", "is no int8"),
        ("x=int32:1.5", "is no int32"),
        ("x=float32[-1]", "is no number, no array and no .npy file"),
        ("x=float32[99999999999999]", "too many"),
        ("x=hello", "'hello' is no number"),
        (f"x={__file__}", "test_launch.py is no .npy file, as numpy.save"),
    ],
)
def test_arguments_that_mean_nothing(text: str, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        launch.ArgumentText.of(text).read()


def test_grid_and_out_are_checked(run: Run, files: Path) -> None:
    base = [files / "bare.o", "--arg", "x=float32[4]", "--arg", "a=float32:1"]
    assert "--grid 'a'" in run(*base, "--grid", "a")[2]
    assert "no --arg z" in run(*base, "--out", "z=z.npy")[2]
    assert "is no array" in run(*base, "--out", f"a={files / 'a.npy'}")[2]
    missing = files / "missing" / "x.npy"
    assert f"there is no folder {missing.parent}" in run(*base, "--out", f"x={missing}")[2]
    (files / "folder.npy").mkdir()
    assert "cannot be written" in run(*base, "--out", f"x={files / 'folder.npy'}")[2]
    assert "positive" in run(*base, "--grid", "0")[2]
    assert "no kernel 'other'" in run(*base, "--kernel", "other")[2]


def test_where_results_go_is_looked_at_before_anything_runs(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rawgpu, "open", lambda name: pytest.fail("a device was opened"))
    words = [files / "bare.o", "--arg", "x=float32[4]", "--arg", "a=float32:1"]
    for out in (f"x={files / 'missing' / 'x.npy'}", "a=a.npy"):
        assert run(*words, "--out", out)[0] == 1


def test_the_result_says_how_many_ran(run: Run, files: Path) -> None:
    words = [files / "bare.o", "--arg", "x=float32[4]", "--arg", "a=float32:1"]
    assert "scale on cpu:0 (x86_64), grid 1, block 1: " in run(*words)[1]
    assert "grid 2,2, block 1: " in run(*words, "--grid", "2,2")[1]
    assert json.loads(run(*words, "--grid", "3", "--json")[1])["grid"] == [3]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("k.cl", "k.cl is no compiled file"),
        ("k.cl", "-mcpu=gfx1100 -x cl -cl-std=CL2.0 -nogpulib -O2 -c"),
        ("k.ll", "compile_ir"),
        ("x.npy", "x.npy is an array and no compiled file"),
        ("none.o", "none.o: no such file or directory\n"),
    ],
)
def test_what_no_compiler_made_is_refused_with_what_would(
    name: str, says: str, run: Run, files: Path
) -> None:
    for source in ("k.cl", "k.ll"):
        (files / source).write_text("kernel void k(void) {}")
    status, _, err = run(files / name)
    assert status == 1 and says in err
    assert "Errno" not in run(files / "bare.o", "--arg", f"x={files / 'none.npy'}")[2]
