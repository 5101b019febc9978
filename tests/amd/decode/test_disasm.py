"""Disassembly of whole code, its speed, and what a foreign disassembler says of changed bits."""

from __future__ import annotations

import random
import re
import shutil
import subprocess

import pytest

from rawgpu.amd.decode.disasm import disassemble
from rawgpu.errors import DecodeError
from tests.amd.decode import report
from tests.amd.decode.vectors import Vector, printer, read

LLVM_MC = shutil.which("llvm-mc-19") or shutil.which("llvm-mc")

CPUS = {
    "gfx90a": "gfx90a",
    "gfx942": "gfx942",
    "gfx10": "gfx1030",
    "gfx11": "gfx1100",
    "gfx12": "gfx1200",
}
"""Families that LLVM 19 knows."""

NEWER = re.compile(
    r"/\*|swizzle|s_prefetch|s_buffer_prefetch|th:|scope:|s_version|depctr|hwreg|sendmsg"
)
"""Spellings that changed after LLVM 19."""


def test_lines_follow_each_other() -> None:
    code = bytes.fromhex("03050a06c01f52dc010004050000b0bf")
    lines = list(disassemble(code, "gfx11"))
    assert [(line.offset, line.text) for line in lines] == [
        (0, "v_add_f32_e32 v5, v3, v2"),
        (4, "global_load_b32 v5, v1, s[4:5] offset:-64"),
        (12, "s_endpgm"),
    ]


def test_both_spellings_of_16_bit_registers() -> None:
    code = bytes.fromhex("01050a64")
    assert next(disassemble(code, "gfx11")).text == "v_add_f16_e32 v5.l, v1.l, v2.l"
    assert next(disassemble(code, "gfx11", true16=False)).text == "v_add_f16_e32 v5, v1, v2"


def test_code_that_ends_inside_an_instruction_is_refused() -> None:
    with pytest.raises(DecodeError, match="the code ends before"):
        list(disassemble(bytes.fromhex("c01f52dc"), "gfx11"))


@pytest.mark.full
def test_the_five_families_print_99_percent_and_say_how_fast() -> None:
    """Times are printed and not asserted: a noisy machine is no fault of the code."""
    for family in report.FAMILIES:
        for spelling, share in report.shares(family).items():
            print(f"{family} {spelling}: {share}")
            assert share.trips >= 0.99 * share.total and share.texts >= 0.99 * share.total
        decoded, printed = (report.seconds(family, text=text) for text in (False, True))
        print(f"{family}: {report.INSTRUCTIONS} instructions, {decoded:.2f} s, {printed:.2f} s")


@pytest.mark.parametrize("family", report.FAMILIES)
def test_a_sample_of_each_family_prints_in_both_spellings(family: str) -> None:
    found = report.shares(family, every=1 if report.FAMILIES[family] == "cdna" else 41)
    spellings = {"v1"} if report.FAMILIES[family] == "cdna" else {"v1", "v1.l v1.h"}
    assert found.keys() == spellings
    for share in found.values():
        assert share.total > 400
        assert share.trips >= 0.99 * share.total and share.texts >= 0.99 * share.total


def foreign(cpu: str, wave: int, codes: list[bytes]) -> dict[bytes, str]:
    """What llvm-mc prints for each code that it decodes to the very same bytes."""
    assert LLVM_MC is not None
    features = f"+wavefrontsize{wave}" if wave == 32 or cpu.startswith("gfx1") else ""
    if cpu.startswith(("gfx11", "gfx12")):
        features += ",-real-true16"
    lines = "\n".join(",".join(f"0x{byte:02x}" for byte in code) for code in codes)
    command = [LLVM_MC, "-arch=amdgcn", f"-mcpu={cpu}", f"-mattr={features}"]
    done = subprocess.run(
        [*command, "-disassemble", "-show-encoding"],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"\s*(.*?)\s*; encoding: \[(.*)\]", line)
        if match:
            code = bytes(int(byte, 16) for byte in match[2].split(","))
            found[code] = " ".join(match[1].split())
    return found


def mutated(vector: Vector, chooser: random.Random) -> bytes | None:
    """The vector with a register, constant or modifier changed; None where nothing is to change."""
    decoder = printer(vector.family, vector.wave, False).decoder
    instruction = decoder.decode(vector.code)
    if instruction.parts:
        return None
    encoding = instruction.form.encoding
    fields = [slot.field for slot in instruction.form.slots]
    fields += [
        f for f in ("offset", "simm16", "neg", "abs", "clamp", "omod") if f in encoding.widths
    ]
    fields = [f for f in fields if f in encoding.widths]
    if not fields:
        return None
    field = chooser.choice(fields)
    values = instruction.values
    width = encoding.widths[field]
    values[field] = (values[field] + chooser.choice((1, 2, 4, 8, 16, 32))) % (1 << width)
    return encoding.to_bytes(values)


def compare(family: str, count: int, seed: int) -> None:
    chooser = random.Random(seed)
    group = "cdna" if family in ("gfx90a", "gfx942") else family
    wave = 64 if group == "cdna" else 32
    vectors = [v for v in read(group) if v.family == family and v.wave == wave]
    codes = []
    while len(codes) < count:
        code = mutated(chooser.choice(vectors), chooser)
        if code is not None:
            codes.append(code)
    theirs = foreign(CPUS[family], wave, codes)
    prints = printer(family, wave, False)
    agree = 0
    differences = []
    for code in codes:
        text = theirs.get(code)
        if text is None or NEWER.search(text):
            continue
        try:
            mine = " ".join(prints.text(prints.decoder.decode(code)).split())
        except DecodeError as error:
            mine = str(error)
        if mine == text:
            agree += 1
        else:
            differences.append((code.hex(), text, mine))
    total = agree + len(differences)
    print(f"{family}: {agree} of {total} mutated instructions agree (seed {seed})")
    assert total > count // 3
    assert agree >= 0.99 * total, differences[:20]


@pytest.mark.skipif(LLVM_MC is None, reason="llvm-mc is not installed")
@pytest.mark.parametrize("family", CPUS)
def test_mutated_registers_agree_with_llvm(family: str) -> None:
    compare(family, 400, seed=1)


@pytest.mark.full
@pytest.mark.skipif(LLVM_MC is None, reason="llvm-mc is not installed")
@pytest.mark.parametrize("family", CPUS)
def test_ten_thousand_mutated_instructions_agree_with_llvm(family: str) -> None:
    compare(family, 10_000 // len(CPUS) * 2, seed=2)
