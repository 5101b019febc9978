"""Rows against numbers from outside: traces, LLVM's tables, the kernel's headers."""

from __future__ import annotations

import pytest

from rawgpu.amd.spec import aql
from rawgpu.amd.spec.descriptor import KernelDescriptor
from rawgpu.amd.spec.hardware import BY_NAME, HARDWARE, Feature, name_of
from rawgpu.compiler_bridge import target_names


def test_save_area_of_a_recorded_trace() -> None:
    """What ROCr 5.2.3 asked for on a topology of 80 units, gfx1030."""
    control, save, debug = BY_NAME["gfx1030"].save_area.sizes(80, 4)
    assert (control, save) == (0x7000, 0x1A97000)
    assert (save + debug + 0xFFF) & -0x1000 == 0x1AAB000


def test_shader_engines_bound_the_waves_of_gfx90a() -> None:
    control, _, debug = BY_NAME["gfx90a"].save_area.sizes(104, 8)
    assert debug == 4096 * 32
    assert control == (40 + 4096 * 8 + 8 + 0xFFF) & -0x1000
    _, _, debug = BY_NAME["gfx942"].save_area.sizes(38, 4)
    assert debug == 38 * 40 * 32


@pytest.mark.parametrize("row", HARDWARE.values(), ids=BY_NAME)
def test_a_row_s_name_is_its_version_and_llvm_s(row: object) -> None:
    from rawgpu.amd.spec.hardware import Hardware

    assert isinstance(row, Hardware)
    assert name_of(row.target_version) == row.name
    assert row.name in target_names.TABLES["amdgcn"].cpus


def test_unproven_rows_say_so() -> None:
    assert {n for n, row in BY_NAME.items() if not row.proven} == {"gfx90a", "gfx1030", "gfx1250"}


def test_absolute_scratch_has_a_buffer_descriptor() -> None:
    """So has the AQL queue of a part with several XCCs, which code does not look at."""
    for row in HARDWARE.values():
        architected = Feature.ARCHITECTED_SCRATCH in row.features
        several = row.name in ("gfx942", "gfx950")
        assert (not architected or several) == bool(row.scratch.buffer_word3), row.name


def test_aql_structs_have_the_header_s_offsets() -> None:
    """From amd_hsa_queue.h and amd_hsa_signal.h."""
    at = {m.name: m.offset for m in aql.AmdQueue.about.members}
    expected = {
        "write_dispatch_id": 0x38, "group_segment_aperture_base_hi": 0x40,
        "private_segment_aperture_base_hi": 0x44, "max_cu_id": 0x48, "max_wave_id": 0x4C,
        "read_dispatch_id": 0x80, "read_dispatch_id_field_base_byte_offset": 0x88,
        "compute_tmpring_size": 0x8C, "scratch_resource_descriptor": 0x90,
        "scratch_backing_memory_location": 0xA0, "scratch_wave64_lane_byte_size": 0xB0,
        "queue_properties": 0xB4, "queue_inactive_signal": 0xC0,
    }  # fmt: skip
    assert {name: at[name] for name in expected} == expected
    assert aql.AmdQueue.about.size == 256
    at = {m.name: m.offset for m in aql.AmdSignal.about.members}
    assert (at["value"], at["event_mailbox_ptr"], at["event_id"], at["start_ts"]) == (8, 16, 24, 32)
    assert aql.AmdSignal.about.size == 64


def test_descriptor_has_llvm_s_offsets() -> None:
    at = {m.name: m.offset for m in KernelDescriptor.about.members}
    assert KernelDescriptor.about.size == 64
    assert at["kernel_code_entry_byte_offset"] == 16
    assert (at["compute_pgm_rsrc3"], at["compute_pgm_rsrc1"]) == (44, 48)
    assert (at["compute_pgm_rsrc2"], at["kernel_code_properties"]) == (52, 56)
    assert at["kernarg_preload"] == 58


def test_aql_packets_made_by_hand() -> None:
    packet = aql.KernelDispatch(
        dimensions=1,
        workgroup_size_x=64,
        workgroup_size_y=1,
        workgroup_size_z=1,
        grid_size_x=256,
        grid_size_y=1,
        grid_size_z=1,
        private_segment_size=0,
        group_segment_size=512,
        kernel_object=0x12_0000_0040,
        kernarg_address=0x13_0000_0080,
    )
    words = [0x00011502, 0x00010040, 1, 256, 1, 1, 0, 512, 0x40, 0x12, 0x80, 0x13, 0, 0, 0, 0]
    assert packet.encode() == words
    assert aql.AQL.decode_at(words) == packet
    vendor = aql.VendorPm4(
        format=1,
        indirect_buffer_0=0xC0023F00,
        indirect_buffer_1=0x1000,
        indirect_buffer_2=0x12,
        indirect_buffer_3=0x00800010,
    )
    words = [0x00011500, 0xC0023F00, 0x1000, 0x12, 0x00800010, 10, *[0] * 10]
    assert vendor.encode() == words
    assert aql.AQL.decode_at(words) == vendor
