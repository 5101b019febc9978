"""`rawgpu explain FILE|-`: what a kernel log, or a piece of one, says of a GPU's crash."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import BinaryIO, cast

from rawgpu.cli.files import why
from rawgpu.crash.others import Noticing
from rawgpu.errors import BadFile
from rawgpu.runtime import decoders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The log."""
    parser.add_argument("file", help="a kernel log or a piece of one; - reads standard input")
    parser.epilog = "sudo dmesg | rawgpu explain -     journalctl -k -b -1 | rawgpu explain -"


def run(options: argparse.Namespace) -> int:
    """Read it as a stream, whatever its size; 0 also where it says nothing of a GPU."""
    if options.file == "-":
        return explain(sys.stdin.buffer, as_json=options.json)
    try:
        with Path(options.file).open("rb") as stream:
            return explain(stream, as_json=options.json)
    except BrokenPipeError:  # the reader of what we print has gone; the command line knows
        raise
    except (OSError, ValueError) as error:
        raise BadFile(f"{options.file}: {why(error)}") from None


def explain(stream: BinaryIO, *, as_json: bool) -> int:
    """Print what the vendors' readers make of it."""
    log = decoders.log_reader("amd")  # the only one yet; others will share the pass over the log
    noticing = Noticing(stream)
    report = log.explain(cast("BinaryIO", noticing))
    if as_json:
        others = {"not_read": noticing.drivers} if noticing.drivers else {}
        print(json.dumps(report.row() | others))
    else:
        print("\n".join(report.text(log.SAY)))
        if noticing.drivers:
            names = ", ".join(noticing.drivers)
            print(f"\nThere are lines of {names} too, which this version does not read yet.")
    return 0
