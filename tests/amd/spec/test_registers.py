"""Every declared register field equals the vendor's, as Mesa's register database has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rawgpu.amd.spec import pm4, registers
from rawgpu.describe.register import RegisterSet

DATA = json.loads((Path(__file__).parents[2] / "data/abi/amd_compute_regs.json").read_text())
CHIPS: dict[str, Any] = DATA["chips"]
FAMILIES = [
    ("gfx9", registers.COMPUTE_GFX9),
    ("gfx940", registers.COMPUTE_GFX940),
    ("gfx10", registers.COMPUTE_GFX10),
    ("gfx103", registers.COMPUTE_GFX10),
    ("gfx11", registers.COMPUTE_GFX11),
    ("gfx115", registers.COMPUTE_GFX11),
    ("gfx12", registers.COMPUTE_GFX12),
]


@pytest.mark.parametrize(("chip", "rows"), FAMILIES, ids=[name for name, _ in FAMILIES])
def test_a_family_s_registers_are_the_vendor_s(chip: str, rows: RegisterSet) -> None:
    theirs = CHIPS[chip]["regs"]
    for register in rows:
        about = register.about
        row = theirs[about.name]
        assert about.offset == int(row["at"], 16), about.name
        ours = {f.name: (f.low, f.low + f.width - 1) for f in about.fields}
        if ours == {"value": (0, 31)}:
            assert not row["fields"], about.name
        else:
            assert ours == {name: (low, high) for name, low, high, _ in row["fields"]}, about.name


WITH_EVENTS = [chip for chip in CHIPS if "VGT_EVENT_TYPE" in CHIPS[chip]["enums"]]


@pytest.mark.parametrize("chip", WITH_EVENTS)
def test_events_have_the_vendor_s_numbers(chip: str) -> None:
    theirs = CHIPS[chip]["enums"]["VGT_EVENT_TYPE"]
    for event in pm4.EventType:
        assert theirs[event.name] == event.value


def test_registers_are_where_the_packet_s_dword_index_says() -> None:
    packet = pm4.SetShReg(register=0xB830, values=(1, 2))
    assert packet.encode() == [0xC0027600, 0x20C, 1, 2]
    packet = pm4.SetUconfigReg(register=0x301EC, values=(0x20,))
    assert packet.encode() == [0xC0017900, 0x7B, 0x20]
