"""The evidence ledger: what from outside this project pins each declaration.

If a declaration is wrong, the driver and the virtual device that read it agree on the error and
every test passes. So each declaration names a witness, as `kind: which one`, or "none yet". A
declaration enters the ledger when its module is imported; `report(entries())` prints it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

NONE_YET = "none yet"

KINDS = (
    "vendor header",
    "foreign encoder",
    "foreign driver's stream",
    "recorded trace",
    "run on chip",
    NONE_YET,
)
"""What a witness can be. The text after the colon says which header, encoder, driver or chip."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One declaration: what it is, where its facts come from, and who else says so."""

    kind: str
    """"packet", "register", "struct", "request", "row"."""
    name: str
    module: str
    source: str
    evidence: str

    @property
    def witness(self) -> str:
        """The kind of witness, one of `KINDS`."""
        return self.evidence.partition(":")[0]


_ENTRIES: dict[tuple[str, str, str], Entry] = {}


def check(name: str, source: str, evidence: str) -> None:
    """Raise TypeError, at import, for a declaration without source or with an unheard-of witness.

    Only "none yet" goes without the colon and the name of the witness.
    """
    if not source:
        raise TypeError(f"{name} names no source: how do we know?")
    kind, _, which = evidence.partition(":")
    if kind not in KINDS or (kind != NONE_YET and not which.strip()):
        known = ", ".join(repr(kind) for kind in KINDS)
        raise TypeError(
            f"{name}: evidence {evidence!r} is not '<kind>: <which>' with one of {known}"
        )


def enter(kind: str, name: str, module: str, source: str, evidence: str) -> None:
    """Put a declaration into the ledger; a declaration that was executed again replaces itself."""
    check(name, source, evidence)
    entry = Entry(kind=kind, name=name, module=module, source=source, evidence=evidence)
    _ENTRIES[kind, module, name] = entry


def entries(prefix: str = "rawgpu.") -> list[Entry]:
    """All declarations from imported modules below `prefix`, in order of declaration."""
    return [entry for entry in _ENTRIES.values() if entry.module.startswith(prefix)]


def unproven(prefix: str = "rawgpu.") -> list[Entry]:
    """Those that nothing from outside pins yet."""
    return [entry for entry in entries(prefix) if entry.witness == NONE_YET]


def report(listed: Iterable[Entry]) -> str:
    """The ledger as text: one line a declaration, by module, then the counts."""
    lines: list[str] = []
    module = ""
    counts: Counter[str] = Counter()
    for entry in sorted(listed, key=lambda entry: entry.module):
        if entry.module != module:
            module = entry.module
            lines.append(module)
        counts[entry.witness] += 1
        lines.append(f"  {entry.kind:8} {entry.name:36} {entry.evidence}")
    lines.append(f"{sum(counts.values())} declarations")
    lines += [f"  {counts[kind]:5} {kind}" for kind in KINDS if counts[kind]]
    return "\n".join(lines)
