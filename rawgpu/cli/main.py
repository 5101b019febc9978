"""The `rawgpu` command: finds the command that was asked for, and says what went wrong.

A command is a module with two functions: `add_arguments(parser)` and `run(options) -> int`.
`COMMANDS` names them; only the one that runs is imported, by name, so that `rawgpu doctor` works
where half of the stack is broken, and so that a command can live where its work is: the demo trains
a network, which is the tensor library's business and above this row.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Protocol, cast

from rawgpu.errors import RawGpuError


@dataclass(frozen=True)
class Command:
    """Where a command is, and what `rawgpu --help` says of it."""

    module: str
    help: str


COMMANDS = {
    "devices": Command("rawgpu.cli.devices", "list the devices that are there"),
    "doctor": Command("rawgpu.cli.doctor", "say what is installed, what is missing, what to do"),
    "hwcheck": Command("rawgpu.cli.hwcheck", "test a GPU stage by stage, with a report to send"),
    "demo": Command("frontend.demo", "train a small network on handwritten digits"),
    "launch": Command("rawgpu.cli.launch", "run a kernel of a compiled file on arrays"),
    "disasm": Command("rawgpu.cli.disasm", "print machine code, and what it does"),
    "decode": Command("rawgpu.cli.decode", "print packets, registers, descriptors, recordings"),
    "explain": Command("rawgpu.cli.explain", "say what a kernel log tells of a GPU's crash"),
    "evidence": Command("rawgpu.cli.evidence", "say what from outside pins each declaration"),
    "bench launch": Command("frontend.bench.launch", "time launches, recorded and eager"),
    "bench speed": Command("frontend.bench.speed", "time operations, alone or against others"),
    "bench virtual": Command("rawgpu.cli.bench_virtual", "time virtual GPUs on fixed kernels"),
    "bench frontend": Command("frontend.bench.front_end", "time scheduling and code generation"),
    "bench memory": Command("frontend.bench.memory", "measure growth, and a step of training"),
}


class CommandModule(Protocol):
    """What a command's module has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


def find(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The command that `words` begin with, and the words after it; None for no command."""
    for length in (2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in COMMANDS:
            return name, list(words[length:])
    return None


def usage() -> str:
    """What `rawgpu --help` prints."""
    return "\n".join(
        [
            "usage: rawgpu COMMAND [--json] [...]",
            "",
            *_listed(COMMANDS),
            "",
            "`rawgpu COMMAND --help` says more. Every command takes --json.",
        ]
    )


def group_usage(word: str) -> str | None:
    """What `rawgpu WORD` prints where WORD begins several commands; None where it begins none."""
    rows = {name: command for name, command in COMMANDS.items() if name.startswith(word + " ")}
    if not rows:
        return None
    return "\n".join([f"usage: rawgpu {word} COMMAND [--json] [...]", "", *_listed(rows)])


def _listed(rows: Mapping[str, Command]) -> list[str]:
    """A line a command, their descriptions below one another."""
    wide = max(map(len, rows)) + 2
    return [f"  {name:{wide}}{command.help}" for name, command in rows.items()]


def version() -> str:
    """What `rawgpu --version` prints."""
    try:
        return f"rawgpu {metadata.version('rawgpu')}"
    except metadata.PackageNotFoundError:
        return "rawgpu, not installed as a package"


def load(name: str) -> CommandModule:
    """The module of a command. An ImportError names a file of ours or a package that is missing."""
    return cast("CommandModule", importlib.import_module(COMMANDS[name].module))


def execute(name: str, words: list[str]) -> int:
    """Parse the words after the command's name and run it."""
    command = load(name)
    parser = argparse.ArgumentParser(prog=f"rawgpu {name}", description=COMMANDS[name].help)
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def report(error: RawGpuError, *, as_json: bool) -> None:
    """Print an error of ours: its text for people, its class and text for programs."""
    if as_json:
        text = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
        print(json.dumps({"error": text}))
    else:
        print(f"rawgpu: {error}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0: done; 1: it failed and said why; 2: the words were not understood."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            code = _answer(words)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a full disk can still be told
        return code
    except RawGpuError as error:
        report(error, as_json="--json" in words)
        return 1
    except KeyboardInterrupt:
        print("\nrawgpu: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has gone, as `| head` does
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        print(f"rawgpu: {error}", file=sys.stderr)
        return 1


def _answer(words: list[str]) -> int:
    """Do what the words ask for."""
    helps = ("-h", "--help", "help")
    if not words or words[0] in helps:
        print(usage())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(version())
        return 0
    found = find(words)
    if found is not None:
        return execute(*found)
    group = group_usage(words[0])
    if group is not None and (len(words) == 1 or words[1] in helps):
        print(group)
        return 2 if len(words) == 1 else 0
    print(f"rawgpu: no command {' '.join(words[:2])!r}\n\n{usage()}", file=sys.stderr)
    return 2


def _discard_output() -> None:
    """What could not be written is gone; Python would complain once more at exit."""
    with suppress(OSError, ValueError, AttributeError):  # a stream without a descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
