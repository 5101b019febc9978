"""Arenas, windows and ranges: memory that several see."""

from __future__ import annotations

import itertools
import os

import pytest

from rawgpu.virtual.memory import (
    Arena,
    Full,
    Mapping,
    Ranges,
    Window,
    peek,
    poke,
    unmap_host,
)
from rawgpu.virtual.schedule import Chance

PAGE = 4096


def test_an_arena_hands_out_and_joins_what_comes_back() -> None:
    arena = Arena("test", 16 * PAGE)
    parts = [arena.alloc(4 * PAGE) for _ in range(4)]
    with pytest.raises(Full):
        arena.alloc(1)
    for part in (parts[1], parts[3], parts[2]):
        part.release()
    assert arena.used_bytes == 4 * PAGE
    arena.alloc(12 * PAGE).release()
    parts[0].release()
    arena.alloc(16 * PAGE).release()
    arena.close()


def test_random_allocations_never_overlap_and_all_comes_back() -> None:
    chance = Chance(11)
    arena = Arena("test", 256 * PAGE)
    held = []
    for _ in range(2000):
        if held and chance.below(3) == 0:
            held.pop(chance.below(len(held))).release()
            continue
        try:
            held.append(arena.alloc(PAGE * (1 + chance.below(9))))
        except Full:
            held.pop(0).release()
        spans = sorted((e.offset, e.offset + e.size_bytes) for e in held)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    for extent in held:
        extent.release()
    assert arena.used_bytes == 0
    arena.alloc(256 * PAGE).release()
    arena.close()


def test_memory_that_comes_back_is_wiped_and_costs_nothing() -> None:
    arena = Arena("test", 1 << 40)
    extent = arena.alloc(1 << 30)
    poke(extent.host, b"x" * (64 * PAGE))
    assert os.fstat(arena.fd).st_blocks * 512 == 64 * PAGE
    extent.release()
    assert os.fstat(arena.fd).st_blocks == 0
    again = arena.alloc(PAGE)
    assert peek(again.host, PAGE) == bytes(PAGE)
    again.release()
    arena.close()


def test_a_window_shows_what_is_mapped_and_nothing_else() -> None:
    arena, window = Arena("test", 1 << 20), Window(1 << 32)
    extent = arena.alloc(2 * PAGE)
    poke(extent.host, b"hello")
    window.map(Mapping(va=0x10000, size_bytes=2 * PAGE, extent=extent))
    assert peek(window.delta + 0x10000, 5) == b"hello"
    host = extent.map_at(0, PAGE, 3)
    poke(host, b"HELLO")
    assert peek(window.delta + 0x10000, 5) == b"HELLO"
    with pytest.raises(FileExistsError):
        window.map(Mapping(va=0x11000, size_bytes=PAGE, extent=extent))
    window.unmap(0x10000)
    assert "rawgpu" not in _mapping_at(window.delta + 0x10000)
    assert _mapping_at(window.delta + 0x10000).split()[1] == "---p"
    unmap_host(host, PAGE)
    extent.release()
    window.close()
    arena.close()


def _mapping_at(address: int) -> str:
    with open("/proc/self/maps") as file:
        for line in file:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if low <= address < high:
                return line
    return ""


def test_rights_of_a_window_are_the_hosts() -> None:
    arena, window = Arena("test", 1 << 20), Window(1 << 32)
    extent = arena.alloc(PAGE)
    window.map(Mapping(va=0x10000, size_bytes=PAGE, extent=extent, writable=False))
    assert _mapping_at(window.delta + 0x10000).split()[1] == "r--s"
    high = Mapping(va=1 << 45, size_bytes=PAGE, extent=extent)
    window.map(high)
    assert window.ranges.find((1 << 45) + 8) is high
    window.close()
    extent.release()
    arena.close()


def test_ranges_find_and_refuse() -> None:
    arena = Arena("test", 1 << 20)
    extent = arena.alloc(PAGE)
    ranges = Ranges()
    for va in (0x5000, 0x1000, 0x9000):
        ranges.add(Mapping(va=va, size_bytes=0x2000, extent=extent))
    assert [m.va for m in ranges] == [0x1000, 0x5000, 0x9000]
    assert ranges.find(0x2FFF) is not None
    assert ranges.find(0x3000) is None
    assert ranges.find(0xFFF) is None
    assert [m.va for m in ranges.overlapping(0x2000, 0x4000)] == [0x1000, 0x5000]
    for va, size in ((0x0, 0x1001), (0x2FFF, 1), (0x4000, 0x2000), (0x0, 0x10000)):
        with pytest.raises(FileExistsError):
            ranges.add(Mapping(va=va, size_bytes=size, extent=extent))
    assert ranges.remove(0x5000).va == 0x5000
    with pytest.raises(KeyError):
        ranges.remove(0x5000)
    extent.release()
    arena.close()
