"""Strict memory: what is not flushed is not seen, by whom, and what makes it seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from rawgpu.amd.spec import pm4
from rawgpu.amd.virtual.dispatch import Access, Client, GpuPageFault
from rawgpu.amd.virtual.hdp import Bar, Bars, available
from rawgpu.amd.virtual.view import GpuView
from rawgpu.virtual.memory import Arena, Mapping, map_host, peek, poke, reserve, unmap_host
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import FINE, FLUSH_HDP, VRAM, client_of, copy32, signal, until

SIZE = 0x4000
VA, CODE, FIXED = 1 << 36, (1 << 36) + 0x10000, (1 << 36) + 0x20000


class Memory:
    """An address space with data, code, and memory that may not be written."""

    def __init__(self, *, strict: bool = True, cached: bool = True) -> None:
        self.arena = Arena("test", 1 << 20)
        self.view = GpuView(strict=strict)
        self.extents = {}
        for va, writable, executable in (
            (VA, True, False), (CODE, True, True), (FIXED, False, False),
        ):  # fmt: skip
            extent = self.extents[va] = self.arena.alloc(SIZE)
            self.view.map(
                Mapping(
                    va=va,
                    size_bytes=SIZE,
                    extent=extent,
                    writable=writable,
                    executable=executable,
                    cached=cached,
                )
            )

    def host(self, va: int) -> int:
        base = va & -0x10000
        return self.extents[base].host + va - base

    def close(self) -> None:
        self.view.close()
        for extent in self.extents.values():
            extent.release()
        self.arena.close()


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = Memory()
    yield made
    made.close()


@pytest.fixture(params=[True, False], ids=["strict", "plain"])
def either(request: pytest.FixtureRequest) -> Iterator[Memory]:
    made = Memory(strict=request.param)
    yield made
    made.close()


def test_reads_and_writes_agree_with_themselves(either: Memory) -> None:
    view = either.view
    view.write(VA + 100, b"across a line boundary" * 10)
    assert view.read(VA + 100, 220) == b"across a line boundary" * 10
    addresses = np.array([VA + 1000 + 3 * i for i in range(32)], np.uint64)
    rows = np.arange(32 * 4, dtype=np.uint8).reshape(32, 4)
    view.scatter(addresses, rows)
    got = view.gather(addresses, 4)
    expected = bytearray(100)
    for number, row in enumerate(rows):
        expected[3 * number : 3 * number + 4] = row.tobytes()
    for number, row in enumerate(got):
        assert row.tobytes() == bytes(expected[3 * number : 3 * number + 4])


def test_lanes_far_apart_and_equal_lanes(either: Memory) -> None:
    addresses = np.array([VA + 0x3FF8, VA, VA + 0x3FF8, VA + 124], np.uint64)
    either.view.scatter(addresses, np.array([[1] * 8, [2] * 8, [3] * 8, [4] * 8], np.uint8))
    got = either.view.gather(addresses, 8)
    assert got[:, 0].tolist() == [3, 2, 3, 4]


@pytest.mark.parametrize(
    ("va", "access", "present"),
    [
        (VA - 4, Access.READ, False),
        (VA + SIZE, Access.WRITE, False),
        (FIXED, Access.WRITE, True),
        (VA, Access.EXECUTE, True),
        (0, Access.READ, False),
        (1 << 50, Access.READ, False),
    ],
)
def test_rights_are_kept(either: Memory, va: int, access: Access, present: bool) -> None:
    calls = {
        Access.READ: lambda: either.view.read(va, 4),
        Access.WRITE: lambda: either.view.write(va, bytes(4)),
        Access.EXECUTE: lambda: either.view.code(va, 4),
    }
    with pytest.raises(GpuPageFault) as caught:
        calls[access]()
    fault = caught.value
    assert (fault.address, fault.access, fault.present) == (va, access, present)


def test_lanes_name_the_address_that_faults(either: Memory) -> None:
    addresses = np.array([VA, VA + SIZE - 2], np.uint64)
    with pytest.raises(GpuPageFault):
        either.view.gather(addresses, 4)


def test_the_window_is_memory_with_rights(either: Memory) -> None:
    view = either.view
    view.write(VA, b"seen")
    host = view.window(VA, SIZE, Access.WRITE)
    assert host == VA + view.delta
    assert peek(host, 4) == b"seen"
    with pytest.raises(GpuPageFault):
        view.window(VA, SIZE + 1)
    with pytest.raises(GpuPageFault):
        view.window(FIXED, 4, Access.WRITE)
    fault = view.fault_at(FIXED + view.delta, Access.WRITE)
    assert (fault.address, fault.present) == (FIXED, True)


def test_first_level_caches_keep_old_data(memory: Memory) -> None:
    view = memory.view
    for client in (Client.SCALAR, Client.VECTOR):
        view.invalidate(scalar=True, vector=True, l2=True)
        poke(memory.host(VA), b"old!")
        assert view.read(VA, 4, client) == b"old!"
        poke(memory.host(VA), b"new!")
        assert view.read(VA, 4, client) == b"old!"
        view.invalidate(scalar=True, vector=True)
        assert view.read(VA, 4, client) == b"old!"  # L2 has it as well
        view.invalidate(scalar=True, vector=True, l2=True)
        assert view.read(VA, 4, client) == b"new!"


def test_fine_grained_memory_bypasses_l2_only() -> None:
    memory = Memory(cached=False)
    try:
        view = memory.view
        poke(memory.host(VA), b"old!")
        assert view.read(VA, 4) == b"old!"
        poke(memory.host(VA), b"new!")
        assert view.read(VA, 4) == b"old!"
        assert view.read(VA, 4, past_first_level=True) == b"new!"
        view.invalidate(vector=True)
        assert view.read(VA, 4) == b"new!"
        view.write(VA, b"mine")
        assert peek(memory.host(VA), 4) == b"mine"
    finally:
        memory.close()


def test_l2_holds_writes_back_until_told(memory: Memory) -> None:
    view = memory.view
    poke(memory.host(VA), b"........")
    view.write(VA + 2, b"XY")
    assert peek(memory.host(VA), 8) == b"........"
    assert view.read(VA, 8, Client.COMMAND) == b"..XY...."
    assert view.read(VA, 8, Client.SDMA) == b"........"
    poke(memory.host(VA), b"#")  # the CPU writes another byte of the line
    view.write_back()
    assert peek(memory.host(VA), 8) == b"#.XY...."


def test_the_instruction_cache_keeps_old_code(memory: Memory) -> None:
    view = memory.view
    poke(memory.host(CODE), b"one.")
    assert view.code(CODE, 4) == b"one."
    poke(memory.host(CODE), b"two.")
    assert view.code(CODE, 4) == b"one."
    view.invalidate(scalar=True, vector=True, l2=True)
    assert view.code(CODE, 4) == b"one."
    view.invalidate(code=True)
    assert view.code(CODE, 4) == b"two."
    assert len(view.code(CODE + SIZE - 8, 64)) == 8


def test_atomics_reach_memory_or_l2(either: Memory) -> None:
    view = either.view
    view.write(VA, (5).to_bytes(4, "little"))
    add = lambda raw: (int.from_bytes(raw, "little") + 1).to_bytes(4, "little")  # noqa: E731
    assert view.atomic(VA, 4, add) == (5).to_bytes(4, "little")
    assert view.read(VA, 4) == (6).to_bytes(4, "little")


def test_what_is_unmapped_is_written_back_and_vanishes(memory: Memory) -> None:
    memory.view.write(VA, b"last")
    memory.view.unmap(VA)
    assert peek(memory.extents[VA].host, 4) == b"last"
    with pytest.raises(GpuPageFault):
        memory.view.read(VA, 4)


def test_a_page_of_instructions_in_l2_is_lines_to_everybody_else(memory: Memory) -> None:
    """Kept whole for speed; stale, written, written around and dropped as its lines would be."""
    view, host = memory.view, memory.host(CODE)
    poke(host, b"old!")
    assert view.code(CODE, 4) == b"old!"
    poke(host, b"new!")
    assert view.read(CODE, 4) == b"old!", "L2 has it"
    view.invalidate(code=True)
    assert view.code(CODE, 4) == b"old!", "L2 has it still"
    view.invalidate(code=True, l2=True)
    assert view.code(CODE, 4) == b"new!"
    view.write(CODE + 8, b"mine")  # a shader's write stays in L2 ...
    assert view.code(CODE + 8, 4) == bytes(4), "and the instruction cache has not seen it"
    view.invalidate(code=True, l2=True)
    assert view.code(CODE + 8, 4) == b"mine"
    assert peek(host + 8, 4) != b"mine"
    view.write_back()
    assert peek(host + 8, 4) == b"mine"
    view.invalidate(code=True, l2=True)
    assert view.code(CODE, 16)[8:12] == b"mine"
    view.write(CODE + 16, b"cmd!", Client.COMMAND)  # beside L2, which sees it
    view.invalidate(code=True)
    assert view.code(CODE + 16, 4) == b"cmd!"
    view.invalidate(code=True, l2=True)
    view.code(CODE, 4)
    view.unmap(CODE)
    assert not view.caches.l2_pages
    memory.extents[CODE].release()
    del memory.extents[CODE]


@pytest.mark.skipif(not available(), reason="this host does not tell which pages are copies")
def test_mappings_far_apart_and_others_pages_between_them_are_told_apart() -> None:
    """Near ones are looked through together; what lies between is none of the GPU's."""
    arena = Arena("test", 1 << 30)
    extent = arena.alloc(1 << 28)
    base = reserve(1 << 28)
    bars = Bars()
    places = (0, 1 << 16, 1 << 24, 1 << 27)  # near, near, just near enough, far
    try:
        for at in places:
            extent.map_at(base + at, 0x4000, 3, offset=at, replace=True, private=True)
            bars.append(Bar(base + at, 0x4000, extent, at))
        stranger = base + (1 << 20)
        map_host(stranger, 0x1000, 3, 0x32, -1, 0)
        poke(stranger, b"mine")
        for number, at in enumerate(places):
            poke(base + at + 0x1000, bytes([number + 1]))
        bars.sync_in()
        assert [list(bar.copies) for bar in bars] == [[0x1000]] * len(places)
        poke(extent.host + 0x1001, b"g")
        bars.sync_out()
        assert peek(base + 0x1000, 2) == b"\1g", "the GPU's byte beside the CPU's"
        assert peek(extent.host + 0x1000, 1) != b"\1"
        bars.flush()
        assert [peek(extent.host + at + 0x1000, 1)[0] for at in places] == [1, 2, 3, 4]
        assert not any(bar.copies for bar in bars)
        last = list(bars)[-1]
        bars.remove(last)
        poke(base + places[-1], b"x")
        bars.sync_in()
        assert not last.copies
    finally:
        unmap_host(base, 1 << 28)
        extent.release()
        arena.close()


# HDP: the CPU's writes through the BAR.


@pytest.mark.parametrize("way", ["packet", "page"])
def test_bar_writes_are_seen_after_a_flush(way: str) -> None:
    from rawgpu.ioctl import kfd
    from rawgpu.ioctl.kfd import MmapType

    with Room("gfx1100") as room:
        client = client_of(room)
        local, page, queue = client.alloc(0x3000, VRAM), client.alloc(0x1000, FINE), client.queue()
        local.write(b"cpu!", 0x1004)
        queue.submit(copy32(page.va + 64, local.va + 0x1004), signal(client, page.va, 1))
        until(client, page.va, 1)
        assert page.read(4, 64) != b"cpu!"
        assert local.read(4, 0x1004) == b"cpu!"
        first: list[pm4.Pm4] = [FLUSH_HDP]
        if way == "page":
            offset = kfd.mmap_offset(MmapType.MMIO, client.gpu_id)
            poke(client.port.mmap(4096, fd=client.fd, offset=offset), b"\1\0\0\0")
            first = []
        queue.submit(*first, copy32(page.va + 64, local.va + 0x1004), signal(client, page.va, 2))
        until(client, page.va, 2)
        assert page.read(4, 64) == b"cpu!"


def test_cpu_and_gpu_write_to_one_page_and_nothing_is_lost() -> None:
    from tests.amd.virtual.client import write

    with Room("gfx1100") as room:
        client = client_of(room)
        local, page, queue = client.alloc(0x1000, VRAM), client.alloc(0x1000, FINE), client.queue()
        local.write(b"cpu0", 0)
        queue.submit(write(local.va + 8, 0x31757067), signal(client, page.va, 1))
        until(client, page.va, 1)
        assert local.read(4, 8) == b"gpu1"  # the CPU sees it beside its own
        local.write(b"cpu2", 16)
        queue.submit(write(local.va + 24, 0x33757067), FLUSH_HDP, signal(client, page.va, 2))
        until(client, page.va, 2)
        wanted = {0: b"cpu0", 8: b"gpu1", 16: b"cpu2", 24: b"gpu3"}
        assert {at: local.read(4, at) for at in wanted} == wanted
        view = client.port.process.taken[client.gpu_id].view  # type: ignore[attr-defined]
        assert {at: view.read(local.va + at, 4, Client.SDMA) for at in wanted} == wanted


@pytest.mark.skipif(not available(), reason="this host does not tell which pages are copies")
def test_no_write_is_lost_when_a_second_thread_begins() -> None:
    """It may write at once, also while the first lets the GPU run: nothing may be held back."""
    with Room("gfx1100") as room:
        client = client_of(room)
        local, page, queue = client.alloc(0x2000, VRAM), client.alloc(0x1000, FINE), client.queue()
        local.write(b"old!")
        seen: list[bytes] = []

        def other() -> None:
            local.write(b"new!", 0x1000)
            view = client.port.process.taken[client.gpu_id].view  # type: ignore[attr-defined]
            seen.extend(view.read(local.va + at, 4, Client.SDMA) for at in (0, 0x1000))

        compile_like = threading.Thread(target=seen.clear, name="rawgpu-compile")
        compile_like.start()
        compile_like.join()
        queue.submit(copy32(page.va + 64, local.va), signal(client, page.va, 1))
        until(client, page.va, 1)
        assert page.read(4, 64) != b"old!", "one of our own threads touches no memory"
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert seen == [b"old!", b"new!"]


def test_plain_rooms_show_everything_at_once() -> None:
    with Room("gfx1100", strict=False) as room:
        client = client_of(room)
        local, page, queue = client.alloc(0x1000, VRAM), client.alloc(0x1000, FINE), client.queue()
        local.write(b"cpu!")
        queue.submit(copy32(page.va + 64, local.va), signal(client, page.va, 1))
        until(client, page.va, 1)
        assert page.read(4, 64) == b"cpu!"


@pytest.mark.parametrize("name", ["gfx90a", "gfx1100"])
def test_the_drivers_packets_do_what_their_boundary_needs(name: str) -> None:
    """`submit` makes everything fresh, `dispatch` the first level, `release` gives results out."""
    from rawgpu.amd.spec.hardware import BY_NAME
    from rawgpu.amd.virtual import flush

    policy = BY_NAME[name].caches
    memory = Memory()
    try:
        view = memory.view

        def stale() -> tuple[bool, bool, bool]:
            poke(memory.host(VA), b"2")
            poke(memory.host(CODE), b"2")
            return (
                view.read(VA, 1, Client.SCALAR) != b"2",
                view.read(VA, 1, Client.VECTOR) != b"2",
                view.code(CODE, 1) != b"2",
            )

        def warm() -> None:
            view.invalidate(code=True, scalar=True, vector=True, l2=True)
            poke(memory.host(VA), b"1")
            poke(memory.host(CODE), b"1")
            view.read(VA, 1, Client.SCALAR)
            view.read(VA, 1, Client.VECTOR)
            view.code(CODE, 1)

        warm()
        poke(memory.host(VA), b"2")
        poke(memory.host(CODE), b"2")
        flush.acquire(view, policy.submit)
        assert stale() == (False, False, False)
        warm()
        flush.acquire(view, policy.dispatch)
        assert not view.caches.scalar
        assert not view.caches.vector
        assert view.caches.code
        view.write(VA, b"3")
        assert peek(memory.host(VA), 1) != b"3"
        flush.release(view, policy.release)
        assert peek(memory.host(VA), 1) == b"3"
    finally:
        memory.close()


def test_each_xcc_has_an_l2_of_its_own() -> None:
    from rawgpu.amd.virtual import flush

    arena = Arena("test", 1 << 20)
    view = GpuView(strict=True, xccs=2)
    extent = arena.alloc(SIZE)
    view.map(Mapping(va=VA, size_bytes=SIZE, extent=extent))
    one, two = view.family
    poke(extent.host, b"old!")
    assert two.read(VA, 4) == b"old!"
    one.write(VA, b"new!")
    assert one.read(VA, 4) == b"new!"
    flush.agent_acquire(view)
    assert two.read(VA, 4) == b"old!", "it was not written back"
    flush.system_release(view)
    assert two.read(VA, 4) == b"old!", "it was not invalidated"
    flush.agent_acquire(view)
    assert two.read(VA, 4) == b"new!"
    add = lambda raw: bytes([raw[0] + 1]) + raw[1:]  # noqa: E731
    one.atomic(VA, 4, add)
    assert two.atomic(VA, 4, add) == b"oew!"
    two.write(VA + 64, b"x")
    view.unmap(VA)
    assert peek(extent.host + 64, 1) == b"x"
    view.close()
    extent.release()
    arena.close()
