"""AQL packets, queue, signal and DMA_DATA lie where the vendor's headers have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rawgpu.amd.spec import aql
from rawgpu.amd.spec.descriptor import Properties
from rawgpu.amd.spec.pm4 import DestinationSelect, DmaData, DmaSelect, InterruptSelect
from rawgpu.describe.packet import Packet
from rawgpu.describe.request import Struct
from tools.parity import flat

FACTS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/abi/amd_packets.json").read_text()
)
PACKETS = [
    (aql.KernelDispatch, "hsa_kernel_dispatch_packet_s"),
    (aql.BarrierAnd, "hsa_barrier_and_packet_s"),
    (aql.BarrierOr, "hsa_barrier_or_packet_s"),
]


def places(struct: str) -> dict[str, tuple[int, int]]:
    """Offset and size of each member but the header; an array's members are numbered."""
    found = {}
    for field in FACTS["structs"][struct]["fields"]:
        name, offset, size = field["name"], field["offset"], field["size"]
        if name == "dep_signal":
            for i in range(5):
                found[f"dep_signal_{i}"] = (offset + 8 * i, 8)
        elif name not in ("header", "setup") and not name.startswith("reserved"):
            found[name] = (offset, size)
    return found


@pytest.mark.parametrize(("packet", "struct"), PACKETS)
def test_a_packet_s_fields_are_the_header_s_members(packet: type[Packet], struct: str) -> None:
    about = packet.about
    mine = {
        field.name: (field.low // 8, field.width // 8) for field in about.fields if field.low >= 32
    }
    assert mine == places(struct)
    assert 4 * about.dwords == FACTS["structs"][struct]["size"] == aql.PACKET_BYTES


def test_the_first_dword_s_bits_are_the_header_s() -> None:
    bits, setup = FACTS["header_bits"], FACTS["setup_bits"]
    wanted = {
        "barrier": tuple(bits["BARRIER"]),
        "acquire": tuple(bits["ACQUIRE_FENCE_SCOPE"]),
        "release": tuple(bits["RELEASE_FENCE_SCOPE"]),
        "dimensions": (16 + setup["DIMENSIONS"][0], setup["DIMENSIONS"][1]),
    }
    about = aql.KernelDispatch.about
    assert {f.name: (f.low, f.width) for f in about.fields if f.low < 32} == wanted
    low, width = bits["TYPE"]
    assert about.header.opcode == (low + width - 1, low)


@pytest.mark.parametrize(
    ("struct", "name"), [(aql.AmdSignal, "amd_signal_s"), (aql.AmdQueue, "amd_queue_s")]
)
def test_structs_in_memory_are_the_header_s(struct: type[Struct], name: str) -> None:
    """The queue begins with the runtime's own, whose members ours names without a prefix."""
    theirs: dict[str, tuple[int, int]] = {}
    for field in FACTS["structs"][name]["fields"]:
        if field["name"] == "hsa_queue":
            inner = FACTS["structs"]["hsa_queue_s"]["fields"]
            theirs |= {f["name"]: (f["offset"], f["size"]) for f in inner}
            theirs["reserved_1"] = theirs.pop("reserved1")
        else:
            theirs[field["name"]] = (field["offset"], field["size"])
    assert {path: (offset, size) for path, offset, size in flat(struct.about)} == theirs
    assert struct.about.size == FACTS["structs"][name]["size"]
    assert struct.about.c == name


def test_dma_data_begins_its_fields_where_the_header_does() -> None:
    row = FACTS["pm4"]["DMA_DATA"]
    renamed = {"SRC_ADDR": "source", "DST_ADDR": "target", "CMD_RAW_WAIT": "raw_wait"}
    lows = {
        renamed.get(name, name.lower()): 32 * dword + bit
        for name, (dword, bit) in row["lows"].items()
    }
    mine = {field.name: field.low for field in DmaData.about.fields}
    assert {name: mine[name] for name in lows} == lows
    assert (DmaData.about.opcode, DmaData.about.dwords) == (row["opcode"], row["dwords"])
    assert sorted(int(value) for value in row["selectors"]) == sorted(DmaSelect)


def test_release_mem_s_selections_have_the_header_s_numbers() -> None:
    theirs = FACTS["pm4"]["RELEASE_MEM"]["selectors"]
    assert [int(value) for value in theirs["INT_SEL"]] == sorted(InterruptSelect)
    assert [int(value) for value in theirs["DST_SEL"]] == sorted(DestinationSelect)


def test_a_descriptor_s_properties_are_the_bits_of_the_vendor_s_struct() -> None:
    theirs = FACTS["kernel_code_properties"]
    assert {flag.name: int(flag) for flag in Properties} == {
        name.upper(): 1 << bit for name, bit in theirs.items()
    }
