"""LLVM's own encode and decode tests, as rows; see tests/data/isa/README.md."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rawgpu.amd.decode.disasm import Printer

FOLDER = Path(__file__).parents[2] / "data" / "isa"

DEFAULT_TRUE16 = ("gfx11", "gfx115")
"""Families whose rows without a spelling write `.l` and `.h`."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Bytes and the texts that LLVM's tests give them."""

    family: str
    wave: int
    true16: bool
    code: bytes
    texts: tuple[str, ...]


@cache
def printer(family: str, wave: int, true16: bool) -> Printer:
    return Printer(family, wave=wave, true16=true16)


def read(group: str, *, every: int = 1, start: int = 0) -> Iterator[Vector]:
    """Every n-th vector of a group, from row `start`."""
    with lzma.open(FOLDER / f"llvm22_{group}.tsv.xz", "rt") as file:
        for number, line in enumerate(file):
            if number % every != start:
                continue
            family, wave, spelling, code, *texts = line.rstrip("\n").split("\t")
            true16 = spelling == "t" or (spelling == "d" and family in DEFAULT_TRUE16)
            if "interp" in texts[0] and spelling == "d":
                true16 = False
            yield Vector(family, int(wave), true16, bytes.fromhex(code), tuple(texts))
