"""The KFD declarations against numbers from the kernel's headers, and their versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawgpu.describe.abi import answer_to
from rawgpu.describe.request import Struct
from rawgpu.ioctl import kfd, kfd_debug
from rawgpu.ioctl.kfd import (
    KFD_1_11,
    KFD_1_12,
    KFD_1_14,
    KFD_1_17,
    KFD_1_22,
    KFD_OUT_OF_TREE,
    AllocFlags,
    CreateQueue,
    KfdFeature,
    MmapType,
    mmap_offset,
    row_for,
    split_handle,
    split_mmap_offset,
)

FACTS = json.loads((Path(__file__).parents[1] / "data/abi/kfd.json").read_text())
QUEUE = {
    "ring_base_address": 0x1000,
    "write_pointer_address": 0x2000,
    "read_pointer_address": 0x3000,
    "ring_size": 4096,
    "gpu_id": 77,
    "queue_type": kfd.QueueType.COMPUTE,
}


def test_create_queue_grows_at_1_17() -> None:
    old = int(FACTS["ioctls"]["AMDKFD_IOC_CREATE_QUEUE"]["request_in_1.11"], 16)
    new = FACTS["ioctls"]["AMDKFD_IOC_CREATE_QUEUE"]["request"]
    sizes = {abi.name: abi[CreateQueue].about.size for abi in kfd.KFD_VERSIONS.values()}
    assert {name for name, size in sizes.items() if size == 88} == {
        "1.11",
        "1.12",
        "1.13",
        "1.14",
        "1.15",
        "1.16",
    }
    assert KFD_1_11[CreateQueue].about.number == old
    assert KFD_1_17[CreateQueue].about.number == KFD_1_22[CreateQueue].about.number == new
    assert KFD_1_22[CreateQueue].field_names()[-1] == "metadata_ring_size"
    assert KFD_1_17[CreateQueue].field_names()[-1] == "pad"


def test_a_kernel_takes_the_create_queue_of_any_driver() -> None:
    old = KFD_1_11[CreateQueue](**QUEUE)
    seen = KFD_1_22.receive(old)
    assert isinstance(seen, kfd.CreateQueue22)
    assert (seen.sdma_engine_id, seen.ring_size) == (0, 4096)
    reply = answer_to(old, seen.replace(queue_id=5))
    assert type(reply) is CreateQueue
    assert reply.queue_id == 5


def test_versions_know_what_they_brought() -> None:
    assert not KFD_1_11.has(kfd.ExportDmabuf)
    assert KFD_1_12.has(kfd.ExportDmabuf)
    assert KFD_1_14.features == {KfdFeature.EVENT_AGE}
    assert KfdFeature.SDMA_BY_ENGINE in KFD_1_22.features
    assert not KFD_1_17.has(kfd_debug.RlcSpm)
    assert KFD_OUT_OF_TREE.has(kfd_debug.RlcSpm)
    assert KFD_1_17.by_number(0x4B27) is None


def test_every_request_of_the_headers_is_in_some_row() -> None:
    declared = {nr for abi in (KFD_1_22, KFD_OUT_OF_TREE) for _, nr in abi.requests}
    wanted = {int(fact["hex"], 16) & 0xFF for fact in FACTS["ioctls"].values()}
    assert declared == wanted


@pytest.mark.parametrize(
    ("version", "name"),
    [((1, 11), "1.11"), ((1, 17), "1.17"), ((1, 22), "1.22"), ((1, 40), "1.22")],
)
def test_a_kernels_version_picks_the_row(version: tuple[int, int], name: str) -> None:
    row = row_for(*version)
    assert row is not None
    assert row.name == name


def test_other_majors_and_older_kernels_have_no_row() -> None:
    assert row_for(2, 0) is None
    assert row_for(0, 17) is None
    assert row_for(1, 10) is None


def test_mmap_offsets_are_the_kernels() -> None:
    private = FACTS["kernel_private"]
    for kind in MmapType:
        assert mmap_offset(kind) == int(private[f"KFD_MMAP_TYPE_{kind.name}"], 16)
    assert mmap_offset(MmapType.MMIO, 1) == 1 << private["KFD_MMAP_GPU_ID_SHIFT"]
    offset = mmap_offset(MmapType.DOORBELL, 0xBEEF, 0x1FF8)
    assert split_mmap_offset(offset) == (MmapType.DOORBELL, 0xBEEF, 0x1FF8)
    with pytest.raises(AssertionError):
        mmap_offset(MmapType.DOORBELL, 1 << 16)
    assert split_handle(0xBEEF_0000_0007) == (0xBEEF, 7)


def test_constants_are_the_kernels() -> None:
    private = FACTS["kernel_private"]
    assert private["doorbell_slice_bytes"] == kfd.DOORBELL_BYTES
    assert int(private["KFD_FIRST_NONSIGNAL_EVENT_ID"], 16) == kfd.FIRST_NONSIGNAL_EVENT
    assert int(private["UNSIGNALED_EVENT_SLOT"], 16) == kfd.UNSIGNALED_SLOT
    constants = FACTS["constants"]
    assert constants["KFD_SIGNAL_EVENT_LIMIT"] == kfd.EVENT_SLOTS
    assert constants["KFD_MAX_QUEUE_PERCENTAGE"] == kfd.MAX_QUEUE_PERCENTAGE
    assert constants["KFD_MAX_QUEUE_PRIORITY"] == kfd.MAX_QUEUE_PRIORITY
    assert constants["NUM_OF_SUPPORTED_GPUS"] == kfd.NODES_IN_OLD_APERTURES


STRUCTS = sorted(
    {item for abi in (*kfd.KFD_VERSIONS.values(), KFD_OUT_OF_TREE) for item in abi},
    key=lambda item: item.__name__,
)


def named_bytes(kind: type[Struct]) -> bytes:
    """Ones where a field is, zeros in the holes that C leaves."""
    mask = bytearray(kind.about.size)
    for member in kind.about.members:
        mask[member.offset : member.offset + member.size] = b"\xff" * member.size
    return bytes(mask)


@given(st.sampled_from(STRUCTS), st.binary(min_size=256, max_size=256))
def test_whatever_a_kernel_writes_is_decoded_and_comes_back(
    kind: type[Struct], noise: bytes
) -> None:
    raw = bytes(a & b for a, b in zip(named_bytes(kind), noise * 2, strict=False))
    value = kind.decode(raw)
    assert value.encode() == raw
    assert kind.decode(value.encode()) == value
    assert kind.__name__ in repr(value)


def test_a_pointer_may_count_smaller_things() -> None:
    [(member, address, size)] = kfd.SetCuMask(
        queue_id=1, num_cu_mask=96, cu_mask_ptr=0x1000
    ).pointers()
    assert (member.name, address, size) == ("cu_mask_ptr", 0x1000, 12)


def test_requests_print_what_they_ask() -> None:
    request = kfd.AllocMemoryOfGpu(
        va_addr=0x7F00_0000_0000,
        size=4096,
        gpu_id=77,
        flags=AllocFlags.VRAM | AllocFlags.WRITABLE,
    )
    assert repr(request) == (
        "AllocMemoryOfGpu(va_addr=0x7f0000000000, size=4096, handle=0, mmap_offset=0, gpu_id=77, "
        "flags=AllocFlags.VRAM|WRITABLE)"
    )
    event = kfd.EventData(
        event_id=3,
        payload=kfd.EventPayload(memory_exception_data=kfd.MemoryExceptionData(va=0x1000)),
    )
    assert kfd.EventData.decode(event.encode()).payload.memory_exception_data.va == 0x1000
    assert len(event.encode()) == 48
