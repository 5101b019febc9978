"""Where the time goes: one row for each launch of what runs within it.

    with profile() as p:
        step(x, y)
    print(p.table())

`RAWGPU_PROFILE=1` prints the same for a whole program when it ends, kernels of equal name together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One launch, or several of the same kernel. Operations and bytes are by our own count."""

    name: str
    device: str
    launches: int
    ns: int
    flops: int
    bytes_moved: int
    virtual: bool = False
    """Whether the device is: then its times are made up."""

    @property
    def gflops(self) -> float:
        """GFLOP/s; integer operations count too."""
        return self.flops / self.ns if self.ns else 0.0

    @property
    def gbytes(self) -> float:
        """GB/s: every buffer of a launch once, whatever the caches did."""
        return self.bytes_moved / self.ns if self.ns else 0.0


class Profile:
    """Collects launches. `rows` has them in order."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def by_kernel(self) -> list[Row]:
        """Launches of the same kernel together, the longest first."""
        sums: dict[tuple[str, str], Row] = {}
        for r in self.rows:
            key = (r.device, r.name)
            old = sums.get(key, Row(r.name, r.device, 0, 0, 0, 0))
            sums[key] = Row(
                r.name,
                r.device,
                old.launches + r.launches,
                old.ns + r.ns,
                old.flops + r.flops,
                old.bytes_moved + r.bytes_moved,
                r.virtual,
            )
        return sorted(sums.values(), key=lambda r: -r.ns)

    def table(self, rows: Sequence[Row] | None = None) -> str:
        """As text: kernel, launches, time, share, GFLOP/s, GB/s."""
        rows = self.by_kernel() if rows is None else rows
        total = sum(r.ns for r in rows) or 1
        wide = max([6, *(len(r.name) for r in rows)])
        lines = [f"{'kernel':{wide}}  device  launches        ms  share  GFLOP/s    GB/s"]
        lines += [
            f"{r.name:{wide}}  {r.device:6}  {r.launches:8}  {r.ns / 1e6:8.3f}  {r.ns / total:5.1%}"
            f"  {r.gflops:7.1f}  {r.gbytes:6.1f}"
            for r in rows
        ]
        launches = sum(r.launches for r in rows)
        lines.append(f"{'total':{wide}}  {'':6}  {launches:8}  {total / 1e6:8.3f}")
        made_up = sorted({r.device for r in rows if r.virtual})
        if made_up:
            lines.append(f"virtual, so that times are made up: {', '.join(made_up)}")
        return "\n".join(lines)


active: list[Profile] = []
"""The profiles that listen now; the engine asks for timings only if there is one."""


@contextmanager
def profile() -> Iterator[Profile]:
    """Collect every launch of the block; each launch is timed by its device."""
    p = Profile()
    active.append(p)
    try:
        yield p
    finally:
        active.remove(p)
