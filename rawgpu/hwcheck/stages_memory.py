"""Stages before the first packet, and those that move bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rawgpu.contract import MemoryKind, Queue
from rawgpu.hwcheck.check import Check

ADDRESS_LIMIT = 1 << 48
SIZES = (1, 4096, 65_536, 3 << 20)
ODD_BYTES = 9_001
LARGE_BYTES = 9 << 20
"""More than two of the largest packets that every copy engine takes."""
ROUNDS = 8
VISIBLE_BYTES = 64 << 10
FEW = slice(2048, 3072)
"""Words read directly: 4 KiB, which drivers do not copy out by an engine."""


def nodes(check: Check) -> None:
    """The device nodes are there and open; the topology is readable."""
    check.hook(check.probe.nodes(check.port, check.index), "the device has no nodes to look at")


def abi(check: Check) -> None:
    """The kernel module is of a version we know and takes our structs."""
    check.hook(check.probe.abi(check.port, check.index), "no kernel driver is behind the device")


def memory(check: Check) -> None:
    """Allocations of both kinds, at addresses that fit; pinned memory holds what is put there."""
    device = check.device
    row = device.properties
    check.say(
        arch=row.arch,
        title=row.title,
        memory_bytes=row.memory_bytes,
        compute_units=row.compute_units,
        lanes=row.lanes,
        evidence=row.evidence,
    )
    held = []
    for size in SIZES:
        local, pinned = device.alloc(size), device.alloc(size, MemoryKind.PINNED)
        for buffer in (local, pinned):
            check.expect(
                "address", 0 < buffer.address < ADDRESS_LIMIT, f"an address of {buffer.address:#x}"
            )
        view = np.frombuffer(pinned.view(), np.uint8, size)
        wanted = np.arange(size, dtype=np.uint32).astype(np.uint8) ^ 0x5A
        view[:] = wanted
        held.append((local, pinned, view, wanted))
    for _, _, view, wanted in held:  # after all are there: none overlaps another
        check.same("pinned memory", view, wanted)
    check.say(allocations=device.memory().allocations)
    for local, pinned, _, _ in held:
        local.close()
        pinned.close()
    device.trim()


def copy_engine(check: Check) -> None:
    """Host to device to host by a copy queue, odd sizes and large ones; fills."""
    answer = check.probe.copy_engine(check.device)
    check.hook(answer, "the device has no copy engine")
    queue = check.copies()
    generator = np.random.default_rng(1)
    _copy_round(check, queue, generator.integers(0, 256, ODD_BYTES, np.uint8))
    check.unrecorded()
    _copy_round(check, queue, generator.integers(0, 256, LARGE_BYTES + 12, np.uint8))


def _copy_round(check: Check, queue: Queue, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    """In, out, and a fill of all but the last byte."""
    source, _ = check.pinned(data)
    target, view = check.pinned(np.zeros_like(data))
    middle = check.device.alloc(data.nbytes)
    queue.copy(middle, source, data.nbytes)
    queue.copy(target, middle, data.nbytes)
    queue.submit()
    queue.synchronize()
    check.same(f"{data.nbytes} bytes copied in and out", view, data, 0)
    queue.fill(target, 0xA5, data.nbytes - 1)
    queue.submit()
    queue.synchronize()
    check.same("a fill", view[:-1], np.full(data.nbytes - 1, 0xA5, np.uint8), data[:-1])
    check.same("the byte after a fill", view[-1:], data[-1:])


def visibility(check: Check) -> None:
    """The device sees what the CPU wrote to its memory, and the CPU what the device wrote."""
    device = check.device
    answer = check.probe.window(device)
    local = device.alloc(VISIBLE_BYTES)
    pinned, view = check.pinned(np.zeros(VISIBLE_BYTES // 4, np.uint32))
    queue = check.copies()
    ramp = np.arange(view.size, dtype=np.uint32)
    queue.fill(local, 0x33, VISIBLE_BYTES)
    queue.submit()
    queue.synchronize()
    before = np.full_like(ramp, 0x33333333)
    for number in range(ROUNDS):
        data = ramp * np.uint32(2654435761) + np.uint32(number)
        local.write(data)  # through the BAR where the CPU reaches it
        queue.copy(pinned, local, VISIBLE_BYTES)
        queue.submit()
        queue.synchronize()
        check.same("what the CPU wrote, seen by the device", view, data, before)
        before = data
    check.unrecorded()  # what follows reads the device's memory directly
    for number in range(ROUNDS):
        view[:] = ramp ^ np.uint32(0x5A5A0000 + number)
        queue.copy(local, pinned, VISIBLE_BYTES)
        queue.submit()
        queue.synchronize()
        few = np.frombuffer(local.read(4 * FEW.stop - 4 * FEW.start, 4 * FEW.start), np.uint32)
        check.same("what the device wrote, seen by the CPU", few, view[FEW], before[FEW])
        many = np.frombuffer(local.read(), np.uint32)
        check.same("what the device wrote, read back", many, view, before)
        before = view.copy()
    if answer is not None:
        check.hook(answer, "")
