"""`rawgpu evidence`: each declaration of hardware and kernels, and what from outside pins it."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict

from rawgpu.describe.evidence import KINDS, NONE_YET, report
from rawgpu.runtime.ledger import ledger


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which part of the ledger."""
    parser.add_argument("--none-yet", action="store_true", help="only what nothing outside pins")
    parser.epilog = "Witnesses: " + ", ".join(KINDS) + "."


def run(options: argparse.Namespace) -> int:
    """Print the ledger and how many declarations each kind of witness pins."""
    entries = ledger()
    shown = [entry for entry in entries if entry.witness == NONE_YET or not options.none_yet]
    if options.json:
        counts = Counter(entry.witness for entry in entries)
        rows = [asdict(entry) | {"witness": entry.witness} for entry in shown]
        print(json.dumps({"declarations": rows, "counts": {kind: counts[kind] for kind in KINDS}}))
    else:
        print(report(shown))
    return 0
