"""`rawgpu disasm`, `decode`, `explain` and `evidence` say what they read, or what is wrong."""

from __future__ import annotations

import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rawgpu.amd.spec import pm4
from rawgpu.cli import main as cli
from rawgpu.compiler_bridge.llvm import Target, compile_ir
from rawgpu.compiler_bridge.target import X86_64_TRIPLE
from rawgpu.crash.others import Noticing
from rawgpu.hwcheck import bundle
from rawgpu.hwcheck.results import Run
from tests.amd.driver.objects import SAXPY, build

Said = Callable[..., tuple[int, str, str]]
LOGS = Path(__file__).parents[1] / "data" / "crash"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs the command line: its status, output and complaints."""

    def run(*words: object) -> tuple[int, str, str]:
        status = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.o"
    path.write_bytes(build(SAXPY, "gfx1100"))
    return path


def test_disasm_of_a_file(said: Said, saxpy: Path) -> None:
    status, out, _ = said("disasm", saxpy, "--explain", "--kernel", "saxpy")
    assert status == 0 and "s_endpgm" in out and "; f32(a) * f32(b)" in out
    status, out, _ = said("disasm", saxpy, "--json")
    assert json.loads(out)["programs"][0]["kernels"][0]["name"] == "saxpy"


def test_disasm_of_bare_code(said: Said, tmp_path: Path) -> None:
    path = tmp_path / "code.txt"
    path.write_text("000080bf 0000b0bf\n")
    assert "s_endpgm" in said("disasm", path, "--arch", "gfx1100")[1]
    status, _, err = said("disasm", path)
    assert status == 1 and "--arch" in err and "code.txt" in err
    assert "xg1" in said("disasm", path, "--arch", "xg1")[2]


def test_decode_knows_what_says_it_itself_and_asks_for_the_rest(
    said: Said, saxpy: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ring.bin"
    path.write_bytes(pm4.DispatchDirect(x=1, y=1, z=1, initiator=1).pack())
    status, out, _ = said("decode", path, "--kind", "pm4", "--arch", "gfx1100")
    assert status == 0 and "DispatchDirect(x=1" in out
    rows = json.loads(said("decode", path, "--kind", "pm4", "--arch", "gfx1100", "--json")[1])
    assert rows["kind"] == "pm4" and rows["packets"][0]["packet"] == "DispatchDirect"
    assert "s_endpgm" in said("decode", saxpy)[1]
    assert "--kind" in said("decode", path)[2]
    assert "--arch" in said("decode", path, "--kind", "pm4")[2]
    assert "no device" in said("decode", path, "--kind", "pm4", "--device", "amd:9")[2]


def test_decode_takes_the_processor_of_a_device(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rawgpu

    path = tmp_path / "ring.bin"
    path.write_bytes(pm4.ReleaseMem(address=0x1000).pack())
    with rawgpu.room("gfx942"):
        out = said("decode", path, "--kind", "pm4", "--device", "amd")[1]
    assert "ReleaseMem(address=4096)" in out


def test_explain_of_a_file_and_of_standard_input(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LOGS / "010-amd-illegal-opcode-mode1.log"
    status, out, _ = said("explain", path)
    assert status == 0 and "ring gfx_0.0.0 did not finish in time" in out and "Why:" in out
    stream = SimpleNamespace(buffer=io.BytesIO(path.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    report = json.loads(said("explain", "-", "--json")[1])
    assert [event["kind"] for event in report["events"]][:2] == ["ring_timeout", "illegal_opcode"]
    assert set(report) == {"events", "causes", "advice"}
    assert said("explain", path / "nowhere")[0] == 1


def test_evidence_lists_every_declaration_and_counts(said: Said) -> None:
    status, out, _ = said("evidence")
    assert status == 0
    assert out.splitlines()[-1].endswith("none yet")
    assert "BarrierAnd" in out and "AllocFlags" in out and "gfx1250" in out
    ledger = json.loads(said("evidence", "--json")[1])
    assert sum(ledger["counts"].values()) == len(ledger["declarations"]) > 300
    bare = json.loads(said("evidence", "--json", "--none-yet")[1])
    assert len(bare["declarations"]) == ledger["counts"]["none yet"]
    assert not {"DmaData", "BarrierAnd", "BarrierOr"} & {e["name"] for e in bare["declarations"]}


def test_a_file_that_cannot_be_read_is_named(said: Said, tmp_path: Path) -> None:
    for command in ("disasm", "decode", "explain"):
        status, _, err = said(command, tmp_path / "nothing.bin")
        assert status == 1 and "nothing.bin" in err
        assert said(command, tmp_path)[0] == 1
    assert shutil.which("true") is None or said("disasm", shutil.which("true"))[0] == 1


def test_lines_of_other_drivers_are_not_passed_over_in_silence(said: Said, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("[1.0] NVRM: Xid (PCI:0000:01:00): 31, pid=7\n[2.0] i915 0000:00:02.0: hang\n")
    status, out, _ = said("explain", log)
    assert status == 0
    assert "There are lines of NVIDIA's driver, i915 too, which this version does not read" in out
    assert json.loads(said("explain", log, "--json")[1])["not_read"] == ["NVIDIA's driver", "i915"]
    log.write_text("[1.0] amdgpu 0000:03:00.0: all is well\n")
    assert "does not read" not in said("explain", log)[1]


def test_a_mark_that_is_cut_by_two_reads_is_noticed() -> None:
    noticing = Noticing(io.BytesIO(b"[1.0] NVRM: Xid"))
    while noticing.read(3):
        pass
    assert noticing.drivers == ["NVIDIA's driver"]


def test_another_machine_s_code_is_called_by_its_name(said: Said, tmp_path: Path) -> None:
    path = tmp_path / "host.o"
    path.write_bytes(
        compile_ir("define void @f() { ret void }", Target(X86_64_TRIPLE, "x86-64-v3"))
    )
    for command in ("disasm", "decode"):
        assert "an ELF for x86-64, and this reads code for AMD GPUs" in said(command, path)[2]


def test_a_bundle_of_the_self_test_says_where_its_recordings_are(
    said: Said, tmp_path: Path
) -> None:
    path = tmp_path / "h.zip"
    bundle.write(Run("amd:0"), tmp_path, path, bundle.Cleaner([], []))
    status, _, err = said("decode", path)
    assert status == 1 and "traces/STAGE.jsonl" in err and f"--replay {path}" in err
    with zipfile.ZipFile(path, "w") as other:
        other.writestr("a", "b")
    assert "is a zip archive" in said("decode", path)[2]


def test_text_that_is_no_hexadecimal_is_refused_with_the_rule(said: Said, tmp_path: Path) -> None:
    path = tmp_path / "t"
    for text, says in (("zz", "'zz' is no hexadecimal"), ("abc", "'abc' has an odd number")):
        path.write_text(text)
        err = said("decode", path, "--kind", "pm4", "--arch", "gfx1100")[2]
        assert says in err and "with 0x it is a dword" in err and "two digits each" in err
