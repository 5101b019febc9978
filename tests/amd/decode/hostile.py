"""Damaged and invented input for everything that reads files: made from a seed, with its limits."""

from __future__ import annotations

import io
import json
import random
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from rawgpu.amd.decode import entry, log
from rawgpu.amd.objects import bundle
from rawgpu.amd.spec.generations import GENERATIONS
from rawgpu.errors import RawGpuError
from rawgpu.trace.record import FORMAT
from tests.amd.driver.objects import GLOBALS, SAXPY, build

LOGS = sorted((Path(__file__).parents[2] / "data" / "crash").glob("*.log"))
SIZES = (0, 1, 3, 4, 17, 64, 256, 1000)
RECORDING = [
    FORMAT,
    {"call": "open", "path": "/dev/kfd", "flags": 2, "fd": 3},
    {
        "call": "ioctl", "fd": 3, "request": "GetVersion", "number": "0x80084b01", "fields": {},
        "sent": "0000000000000000", "got": "0100000011000000",
    },
    {"call": "memory", "by": "driver", "label": "pm4 ring", "address": 4096, "data": "00000080"},
    {"call": "doorbell", "address": 4096, "value": 1, "bits": 64},
    {"call": "read", "path": "/sys/x", "data": "00"},
]  # fmt: skip


@cache
def seeds() -> tuple[bytes, ...]:
    """Good files, to be damaged."""
    objects = [build(GLOBALS, "gfx1100"), build(SAXPY, "gfx942")]
    name = b"hipv4-amdgcn-amd-amdhsa--gfx1100"
    head = bundle.MAGIC + (1).to_bytes(8, "little")
    at = len(head) + 24 + len(name)
    row = b"".join(value.to_bytes(8, "little") for value in (at, len(objects[0]), len(name)))
    plain = head + row + name + objects[0]
    packed = zlib.compress(plain)
    squeezed = b"CCOB" + bytes([2, 0, 0, 0]) + (24 + len(packed)).to_bytes(4, "little")
    squeezed += len(plain).to_bytes(4, "little") + bytes(8) + packed
    text = "\n".join(json.dumps(line) for line in RECORDING) + "\n"
    registers = (
        b"COMPUTE_PGM_RSRC1 = 0xac0000\n0xb848 0x12345\nGCVM_L2_PROTECTION_FAULT_STATUS: 1\n"
    )
    hexes = b"0xc0011000 0x1 0x2 # a nop\n00: 001502c0 0000 0000\n"
    logs = [path.read_bytes() for path in LOGS]
    return (*objects, plain, squeezed, text.encode(), registers, hexes, *logs)


def damaged(chance: random.Random) -> bytes:
    """A good file with some bytes changed, cut, doubled or moved; or bytes out of nowhere."""
    if chance.random() < 0.25:
        return chance.randbytes(chance.choice(SIZES))
    data = bytearray(chance.choice(seeds()))
    for _ in range(chance.choice((1, 1, 2, 8, 40))):
        at = chance.randrange(len(data)) if data else 0
        match chance.randrange(5):
            case 0 | 1:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 2:
                data[at : at + 8] = chance.choice((b"\xff" * 8, bytes(8), b"\0\0\0\x80" * 2))
            case 3:
                del data[at : at + chance.choice((1, 4, 64))]
            case _:
                data[at:at] = data[at : at + chance.choice((1, 4, 64))]
    if chance.random() < 0.1:
        del data[chance.randrange(len(data) + 1) :]
    return bytes(data)


Reader = Callable[[bytes], None]


def readers(chance: random.Random) -> Iterator[Reader]:
    """Each command, with options by chance."""
    arch = chance.choice([None, *GENERATIONS])

    def disassemble(data: bytes) -> None:
        kernel = chance.choice([None, None, "bump", "nobody"])
        printed = entry.disassemble(data, arch=arch, kernel=kernel, explain=True)
        list(printed.text())
        json.dumps(printed.rows())

    def decode(data: bytes) -> None:
        printed = entry.decode(data, chance.choice(entry.KINDS), arch)
        list(printed.text())
        json.dumps(printed.rows())

    def explain(data: bytes) -> None:
        report = log.explain(io.BytesIO(data))
        list(report.text(log.SAY))
        json.dumps(report.row())

    yield disassemble
    yield decode
    yield explain


def attack(count: int, seed: int) -> dict[str, int]:
    """Give `count` inputs to the readers in turn; what they did, by class of error or "read".

    Any error that is not of ours passes through, with what replays it.
    """
    done: dict[str, int] = {}
    number = 0
    while number < count:
        chance = random.Random(f"{seed} {number}")
        for reader in readers(chance):
            data = damaged(chance)
            try:
                reader(data)
                kind = "read"
            except RawGpuError as error:
                kind = type(error).__name__
            except Exception as error:
                error.add_note(f"seed {seed}, input {number}: {reader.__name__}, {data[:60]!r}")
                raise
            done[kind] = done.get(kind, 0) + 1
            number += 1
    return done
