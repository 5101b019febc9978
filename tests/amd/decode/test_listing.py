"""Programs as text: addresses, names, labels, descriptors; LLVM's own tool says the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

from rawgpu.amd.decode import entry
from rawgpu.amd.decode.listing import lines
from rawgpu.amd.decode.program import open_programs, raw_program
from rawgpu.errors import BadElf, BadFile, LaunchError, UnsupportedDevice
from tests.amd.driver.objects import GLOBALS, SAXPY, build
from tests.amd.objects.test_codeobject import bundled, link, needs_linker

OBJDUMP = shutil.which("llvm-objdump-19") or shutil.which("llvm-objdump")
BRANCH = "0200a0bf000080bf000080bf0000b0bf"  # s_branch over two s_nop to s_endpgm


def test_a_kernel_is_printed_with_addresses_names_and_descriptor() -> None:
    text = list(entry.disassemble(build(SAXPY, "gfx1100")).text())
    assert text[0] == "gfx1100: code object v6, relocatable"
    assert "kernel saxpy, waves of 32:" in text
    assert any("COMPUTE_PGM_RSRC1 = " in line and "FLOAT_MODE=240" in line for line in text)
    assert any(re.search(r"argument at +16: 4 bytes, by_value a", line) for line in text)
    assert text[text.index("saxpy:") + 1].startswith("  000000  ")
    assert any("s_cbranch_execz .L0" in line for line in text) and ".L0:" in text


def test_explain_adds_the_meaning_of_each_instruction() -> None:
    text = list(entry.disassemble(build(SAXPY, "gfx1100"), explain=True).text())
    at = next(i for i, line in enumerate(text) if "v_mul_f32_e32" in line)
    assert text[at + 1].strip() == "; f32(a) * f32(b)"


def test_rows_are_the_same_as_text() -> None:
    data = build(GLOBALS, "gfx942")
    printed = entry.disassemble(data, explain=True)
    rows = json.loads(json.dumps(printed.rows()))["programs"][0]
    assert rows["arch"] == "gfx942"
    assert rows["kernels"][0]["name"] == "bump" and rows["kernels"][0]["lanes"] == 64
    found = [line["text"] for section in rows["sections"] for line in section["lines"]]
    shown = "\n".join(printed.text())
    assert len(found) > 30 and all(text in shown for text in found)
    assert any(line.get("meaning") for section in rows["sections"] for line in section["lines"])


def test_what_a_relocation_changes_is_said_by_name() -> None:
    text = "\n".join(entry.disassemble(build(GLOBALS, "gfx942")).text())
    assert "R_AMDGPU_GOTPCREL32_LO helper+0x4" in text


def test_one_kernel_or_function_alone() -> None:
    data = build(GLOBALS, "gfx1100")
    text = list(entry.disassemble(data, kernel="helper").text())
    assert "helper:" in text and "bump:" not in text
    with pytest.raises(LaunchError, match=r"no code called 'nobody'; it has bump, helper"):
        entry.disassemble(data, kernel="nobody")


def test_bytes_that_are_no_instruction_become_data_with_the_reason() -> None:
    raw = bytes.fromhex("000080bf" + "ffffffff" + "0000b0bf" + "01")
    found = lines(raw_program(raw, "gfx1100").codes[0], raw_program(raw, "gfx1100").machine)
    assert [line.text for line in found] == ["s_nop 0", ".long 0xffffffff", "s_endpgm", ".byte 0x1"]
    assert found[1].note and found[3].note


def test_branches_name_their_target_and_say_where_there_is_none() -> None:
    code = raw_program(bytes.fromhex(BRANCH), "gfx1100")
    found = lines(code.codes[0], code.machine)
    assert (found[0].text, found[0].target, found[3].labels) == ("s_branch .L0", 12, (".L0",))
    away = raw_program(bytes.fromhex("0f00a0bf0000b0bf"), "gfx1100")
    assert lines(away.codes[0], away.machine)[0].note == "the target is no instruction here"
    back = raw_program(bytes.fromhex("000080bffeffa0bf"), "gfx1100")
    assert lines(back.codes[0], back.machine)[1].target == 0


def test_padding_is_one_line() -> None:
    code = raw_program(bytes.fromhex("00009fbf" * 50), "gfx1100")
    found = lines(code.codes[0], code.machine)
    assert [(line.text, line.count) for line in found] == [("s_code_end", 50)]


def test_both_spellings_of_16_bit_registers() -> None:
    code = bytes.fromhex("01050a64")
    for true16, text in ((None, "v5.l, v1.l, v2.l"), (False, "v5, v1, v2")):
        printed = entry.disassemble(code, arch="gfx1100", true16=true16)
        assert any(text in line for line in printed.text())


@pytest.mark.parametrize("squeeze", [False, True])
def test_a_bundle_has_a_program_for_each_processor(squeeze: bool) -> None:
    whole = bundled(
        {
            "host-x86_64-unknown-linux-gnu-": b"",
            "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-": build(SAXPY, "gfx942"),
            "hipv4-amdgcn-amd-amdhsa--gfx1100": build(SAXPY, "gfx1100"),
        }
    )
    if squeeze:
        packed = zlib.compress(whole)
        head = b"CCOB" + bytes([2, 0, 0, 0]) + (24 + len(packed)).to_bytes(4, "little")
        whole = head + len(whole).to_bytes(4, "little") + bytes(8) + packed
    assert [p.hardware.name for p in open_programs(whole)] == ["gfx942", "gfx1100"]
    assert [p.hardware.name for p in open_programs(whole, "gfx1100")] == ["gfx1100"]
    with pytest.raises(BadElf, match="gfx1201"):
        open_programs(whole, "gfx1201")


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(BadFile, match="--arch"):
        entry.disassemble(b"\0\1\2\3")
    with pytest.raises(BadElf, match="code for gfx1100, not for gfx942"):
        entry.disassemble(build(SAXPY, "gfx1100"), arch="gfx942")
    with pytest.raises(UnsupportedDevice, match="gfx1100"):
        entry.disassemble(b"\0\1\2\3", arch="xg1")
    with pytest.raises(UnsupportedDevice, match="no waves of 32"):
        entry.disassemble(b"\0\1\2\3", arch="gfx942", wave=32)


@needs_linker
@pytest.mark.skipif(OBJDUMP is None, reason="llvm-objdump is not installed")
@pytest.mark.parametrize("cpu", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_llvm_s_tool_sees_the_same_instructions_names_and_targets(cpu: str, tmp_path: Path) -> None:
    """Mnemonics, addresses and labels; numbers are spelled differently from version to version."""
    path = link(build(SAXPY, cpu), tmp_path)
    assert OBJDUMP is not None
    done = subprocess.run(
        [OBJDUMP, "-d", "--symbolize-operands", path], check=True, capture_output=True, text=True
    )
    theirs = {}
    for line in done.stdout.splitlines():
        match = re.match(r"\s+(\S+)(.*)// ([0-9A-F]{12}):", line)
        if match is not None:
            theirs[int(match[3], 16)] = match[1].removesuffix("_e32").removesuffix("_e64")
    program = open_programs(path.read_bytes())[0]
    mine = {}
    branches = 0
    for line in lines(program.codes[0], program.machine, true16=False):
        for number in range(line.count):
            name = line.text.split()[0].removesuffix("_e32").removesuffix("_e64")
            mine[line.address + number * len(line.raw)] = name
        if line.target is not None:
            branches += 1
            assert line.target in theirs
    assert branches and len(mine) > 20
    assert {at: mine.get(at) for at in theirs} == theirs
