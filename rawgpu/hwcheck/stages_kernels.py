"""Stages of kernels: one launch, arguments, local and private memory, barriers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rawgpu.hwcheck.check import Check, NotHere
from rawgpu.hwcheck.kernels import ARGUMENT_TYPES

FACTOR = np.uint32(2654435761)
NUMPY_TYPES: dict[str, Any] = {
    "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64,
    "half": np.float16, "float": np.float32, "double": np.float64,
}  # fmt: skip
SCRATCH_WORDS = 256
BLOCK = 256
ROUNDS = 9
GROUPS = 3


def kernel(check: Check) -> None:
    """A kernel without arguments ends; one with a pointer numbers its work-items."""
    items = check.device.properties.lanes
    empty = check.kernel("empty", items)
    check.launch(empty, grid=4, items=items)
    check.settle()
    number(check, items, 5, 77)


def number(check: Check, items: int, groups: int, offset: int) -> None:
    """Run `number` and compare. Also how fault stages find out whether a device works."""
    made = check.kernel("number", items)
    out, view = check.pinned(np.zeros(items * groups, np.uint32))
    check.launch(made, out, np.uint32(offset), grid=groups, items=items)
    check.settle()
    wanted = np.arange(items * groups, dtype=np.uint32) * FACTOR + np.uint32(offset)
    check.same("numbered work-items", view, wanted, 0)


def arguments(check: Check) -> None:
    """Scalars of 1 to 8 bytes, integers and floats, and pointers, at all alignments."""
    made = check.kernel("arguments", 1)
    out, view = check.pinned(np.zeros(len(ARGUMENT_TYPES), np.uint64))
    targets = [check.pinned(np.zeros(1, np.uint64))[0] for _ in range(3)]
    generator = np.random.default_rng(3)
    given: list[Any] = []
    wanted: list[int] = []
    pointers = iter(targets)
    for type_ in ARGUMENT_TYPES:
        if type_ == "$G":
            given.append(next(pointers))
            wanted.append(given[-1].address)
            continue
        kind = np.dtype(NUMPY_TYPES[type_])
        if kind.kind == "f":
            value = kind.type(generator.uniform(-1000, 1000))
        else:
            value = kind.type(generator.integers(1 << (8 * kind.itemsize - 1), dtype=np.uint64))
        given.append(value)
        wanted.append(int.from_bytes(value.tobytes(), "little"))
    check.launch(made, out, *given)
    check.settle()
    check.same("arguments", view, np.array(wanted, np.uint64), 0)
    check.say(arguments=len(given) + 1)


def local_memory(check: Check) -> None:
    """A block uses all local memory that a block can have, and each word is read by another."""
    size = check.device.properties.local_memory_bytes
    if not size or not check.blocks_have_items:
        raise NotHere("the device has no local memory")
    words = size // 4
    made = check.kernel("local", BLOCK, words=words, last=words - 1)
    out, view = check.pinned(np.zeros(BLOCK * GROUPS, np.uint32))
    check.launch(made, out, np.uint32(5), grid=GROUPS, items=BLOCK)
    check.settle()
    held = np.arange(words, dtype=np.uint32) * FACTOR + np.uint32(5)
    wanted = []
    for group in range(GROUPS):
        mirrored = (held + np.uint32(group))[::-1]
        total = np.zeros(BLOCK, np.uint32)
        for start in range(0, words, BLOCK):
            piece = mirrored[start : start + BLOCK]
            total[: piece.size] = total[: piece.size] * np.uint32(31) + piece
        wanted.append(total)
    check.same("sums over local memory", view, np.concatenate(wanted), 0)
    check.say(local_memory_bytes=size)


def scratch(check: Check) -> None:
    """Each work-item has private memory of its own, indexed at run time, in many waves at once."""
    items = check.device.properties.lanes
    groups = 12
    made = check.kernel("scratch", items, words=SCRATCH_WORDS)
    out, view = check.pinned(np.zeros(items * groups, np.uint32))
    check.launch(made, out, np.uint32(7), grid=groups, items=items)
    check.settle()
    item, group = np.arange(items, dtype=np.uint32), np.arange(groups, dtype=np.uint32)
    at = item * np.uint32(7) % np.uint32(SCRATCH_WORDS)
    wanted = (at * at + item)[None, :] + group[:, None]
    check.same("private memory", view, wanted, 0)
    check.say(private_bytes_per_item=4 * SCRATCH_WORDS)


def barriers(check: Check) -> None:
    """Waves of a block exchange values, round after round."""
    if not check.blocks_have_items:
        raise NotHere("a block has one work-item")
    made = check.kernel("barriers", BLOCK)
    out, view = check.pinned(np.zeros(BLOCK * GROUPS, np.uint32))
    check.launch(made, out, np.uint32(ROUNDS), grid=GROUPS, items=BLOCK)
    check.settle()
    wanted = []
    for group in range(GROUPS):
        value = np.arange(BLOCK, dtype=np.uint32) + np.uint32(group)
        for turn in range(ROUNDS):
            value = np.roll(value, -(7 * turn + 1)) * np.uint32(3) + np.uint32(turn)
        wanted.append(value)
    check.same("values exchanged", view, np.concatenate(wanted), 0)
