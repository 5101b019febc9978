"""Reads what LLVM prints about a text, and finds the line it means."""

from __future__ import annotations

import re

from rawgpu.errors import CompileError

_PARSE_ERROR = re.compile(r"^<string>:(\d+):(\d+): error: (.*)$", re.MULTILINE)
# "LLVM ERROR: ..." and "error: ..." end the process; an assertion or a stack dump may surround
# them.
# A message about a whole function has a place that is none.
_FATAL = re.compile(r"^(?:LLVM ERROR|fatal error|error): (?:<unknown>:0:0: )?(.*)$", re.MULTILINE)


def _squeeze(line: str) -> str:
    return " ".join(line.split(";", 1)[0].split())


def find_line(text: str, log: str) -> int | None:
    """1-based line of `text` that a log without positions talks about; None if none matches.

    The verifier prints the instruction in canonical form, possibly with attributes the text lacks,
    so the whole line is tried first, then the name it defines, for each line of the log. Where it
    prints several instructions, the last one is the user and so the one to look at.
    """
    lines = [_squeeze(line) for line in text.splitlines()]
    printed = [_squeeze(line) for line in log.splitlines() if line.startswith("  ")]
    for candidate in reversed(printed):
        if candidate and candidate in lines:
            return lines.index(candidate) + 1
    for candidate in reversed(printed):
        name = candidate.split(" = ", 1)[0] + " = "
        hits = [i for i, line in enumerate(lines) if name != candidate and line.startswith(name)]
        if len(hits) == 1:
            return hits[0] + 1
    for i, line in enumerate(lines):  # inline assembly is quoted without the call around it
        if " asm " in line and any(
            _squeeze(part) in line for part in log.splitlines() if part.strip()
        ):
            return i + 1
    called = [f"@{name}(" for name in re.findall(r"%(llvm\.[\w.]+)", log)]
    for i, line in enumerate(lines):
        if "call " in line and any(name in line for name in called):
            return i + 1
    functions = re.findall(r"@([\w.$-]+)|in function '([\w.$-]+)'", log)
    for i, line in enumerate(lines):
        if line.startswith("define") and any(f"@{a or b}(" in line for a, b in functions):
            return i + 1
    return None


def explains(log: str) -> bool:
    """Whether LLVM said why it ended its process."""
    return _FATAL.search(log) is not None


def compile_error(text: str, log: str) -> CompileError:
    """The error for a log that LLVM printed about `text`."""
    found = _PARSE_ERROR.search(log)
    if found:
        line, summary = int(found[1]), found[3]
    else:
        place = find_line(text, log)
        fatal = _FATAL.search(log)
        first = next((part for part in log.splitlines() if part.strip()), "no message")
        summary = fatal[1] if fatal else first.strip()
        if place is None:
            return CompileError(f"LLVM: {summary}", log=log)
        line = place
    lines = text.splitlines()
    source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return CompileError(f"LLVM, line {line}: {summary}: {source}", line=line, text=source, log=log)
