"""The disassembler in numbers: `python -m tests.amd.decode.report`.

For each of the five families that must be whole: how many of LLVM's vectors round-trip and print
LLVM's text, by spelling of 16-bit registers; then how fast instructions decode, and print.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass

from rawgpu.errors import DecodeError
from tests.amd.decode.vectors import printer, read

FAMILIES = {
    "gfx11": "gfx11", "gfx12": "gfx12", "gfx90a": "cdna", "gfx942": "cdna", "gfx950": "cdna",
}  # fmt: skip
"""Family → the group that has its vectors."""
INSTRUCTIONS = 100_000


@dataclass
class Share:
    """Of `total` vectors, how many round-trip, and how many print one of LLVM's texts."""

    total: int = 0
    trips: int = 0
    texts: int = 0

    def __str__(self) -> str:
        trips, texts = 100 * self.trips / self.total, 100 * self.texts / self.total
        return f"{self.total:6} vectors, {trips:6.2f} % round-trip, {texts:6.2f} % print"


def shares(family: str, every: int = 1) -> dict[str, Share]:
    """The family's share by spelling: `.l` and `.h`, or plain."""
    found: dict[str, Share] = {}
    for vector in read(FAMILIES[family], every=every):
        if vector.family != family:
            continue
        spelling = "v1.l v1.h" if vector.true16 else "v1"
        share = found.setdefault(spelling, Share())
        share.total += 1
        prints = printer(vector.family, vector.wave, vector.true16)
        try:
            instruction = prints.decoder.decode(vector.code)
        except DecodeError:
            continue
        share.trips += instruction.encode() == vector.code
        share.texts += " ".join(prints.text(instruction).split()) in vector.texts
    return found


def seconds(family: str, *, text: bool) -> float:
    """CPU time for 100,000 instructions, the better of two turns: the first makes the forms."""
    wave = 64 if FAMILIES[family] == "cdna" else 32
    vectors = [v for v in read(FAMILIES[family], every=7) if v.family == family and v.wave == wave]
    code = b"".join(vector.code for vector in vectors)
    prints = printer(family, wave, False)
    times = []
    for _ in range(2):
        began, count = time.process_time(), 0
        while count < INSTRUCTIONS:
            offset = 0
            while offset < len(code):
                instruction = prints.decoder.decode(code, offset)
                offset += instruction.size
                count += 1
                if text:
                    prints.text(instruction)
        times.append((time.process_time() - began) * INSTRUCTIONS / count)
    return min(times)


def main() -> int:
    least: Counter[str] = Counter()
    for family in FAMILIES:
        for spelling, share in shares(family).items():
            print(f"{family:7} {spelling:10} {share}")
            least[family] += share.trips * 100 < share.total * 99
            least[family] += share.texts * 100 < share.total * 99
    for family in FAMILIES:
        decode, both = seconds(family, text=False), seconds(family, text=True)
        print(
            f"{family:7} {INSTRUCTIONS} instructions: {decode:.2f} s decoded, {both:.2f} s printed"
        )
    return 1 if sum(least.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
