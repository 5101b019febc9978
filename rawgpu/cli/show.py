"""Plain text for a terminal: tables, sizes and a progress bar, with no package but Python's own."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TextIO

BAR_CELLS = 28
REDRAW_S = 0.05


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the last is not padded."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    widths[-1] = 0
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def size(count_bytes: int) -> str:
    """1536 is `1.5 KiB`."""
    amount = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


class Progress:
    """A bar on one line of standard error; silent where that is no terminal, or when told so."""

    def __init__(
        self, label: str, total: int, *, silent: bool = False, stream: TextIO | None = None
    ) -> None:
        self.label = label
        self.total: int = max(total, 1)
        self.stream: TextIO = sys.stderr if stream is None else stream
        self.silent: bool = silent or not self.stream.isatty()
        self.done: int = 0
        self.drawn_at: float = 0.0

    def __enter__(self) -> Progress:
        self.draw("")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.silent:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def step(self, note: str = "", count: int = 1) -> None:
        """Say that `count` more of `total` are done."""
        self.done += count
        now = time.monotonic()
        if self.done >= self.total or now - self.drawn_at >= REDRAW_S:
            self.drawn_at = now
            self.draw(note)

    def draw(self, note: str) -> None:
        """Write the line again."""
        if self.silent:
            return
        full = min(BAR_CELLS, BAR_CELLS * self.done // self.total)
        bar = "█" * full + "·" * (BAR_CELLS - full)
        percent = 100 * self.done // self.total
        self.stream.write(f"\r\x1b[K{self.label} {bar} {percent:3d} %  {note}")
        self.stream.flush()
