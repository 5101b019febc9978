"""How much of what LLVM emits was checked against x86: `python -m tests.amd.virtual.coverage [N]`.

For each family: N generated functions (540 unless told) are compared with this processor, in both
engines; then the share of the rows that LLVM emits for the tensor library's tests
(`tests/data/amd/emitted.json`) of which an instruction was executed by one of these functions, and
the rows that are missing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tests.amd.virtual import foreign_run
from tests.amd.virtual.emitted import DATA

FULL_COUNT = 540
WANTED_SHARE = 0.8
FAMILIES = (("gfx1100", 32), ("gfx1100", 64), ("gfx1201", 32), ("gfx90a", 64), ("gfx942", 64))
"""The GPU that is compiled for, and the lanes of a wave."""
NOT_ARITHMETIC = frozenset(
    (
        "s_nop", "s_clause", "s_delay_alu", "s_waitcnt", "s_waitcnt_vscnt", "s_wait_alu",
        "s_wait_loadcnt", "s_wait_storecnt", "s_wait_kmcnt", "s_wait_dscnt", "s_endpgm",
        "s_set_inst_prefetch_distance", "buffer_gl0_inv", "global_inv", "buffer_inv",
        "buffer_wbl2", "s_sendmsg", "s_code_end", "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt",
    )
)  # fmt: skip
"""Rows that give no value, left out of both numbers: no comparison of values could fail on them."""


@dataclass(frozen=True)
class Coverage:
    """Rows that LLVM emits, and which of them were executed."""

    emitted: frozenset[str]
    executed: frozenset[str]

    @property
    def missing(self) -> list[str]:
        return sorted(self.emitted - self.executed)

    @property
    def share(self) -> float:
        return len(self.emitted & self.executed) / len(self.emitted)

    def __str__(self) -> str:
        part = len(self.emitted & self.executed)
        return f"{part} of {len(self.emitted)} rows ({100 * self.share:.1f} %)"


def emitted(generation: str) -> frozenset[str]:
    """Rows of the tensor library's kernels, less those without a value."""
    rows = json.loads(DATA.read_text())[generation]["rows"]
    return frozenset(rows) - NOT_ARITHMETIC


def coverage(generation: str, executed: Iterable[str]) -> Coverage:
    return Coverage(emitted(generation), frozenset(executed))


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else FULL_COUNT
    wanted = foreign_run.functions(count)
    failed = False
    for generation, lanes in FAMILIES:
        began = time.process_time()
        report = foreign_run.check(wanted, generation, lanes)
        found = coverage(generation, report.rows)
        print(
            f"{generation}, waves of {lanes}: {report.ran} functions, {report.lifted} also lifted, "
            f"{len(report.wrong)} wrong; {found}; {time.process_time() - began:.0f} s",
            flush=True,
        )
        print("  not executed:", " ".join(found.missing), flush=True)
        print(*report.wrong, sep="\n", end="\n" if report.wrong else "")
        failed |= bool(report.wrong) or found.share < WANTED_SHARE
    return failed


if __name__ == "__main__":
    sys.exit(main())
