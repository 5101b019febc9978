"""Machine code as lines: addresses, bytes, text, names of symbols and of branch targets.

`lines` is the data, `listing_text` and `listing_rows` print it, for people and for programs. Bytes
that are no instruction become data, four at a time, with the reason: a section may hold a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rawgpu.amd.decode.describe import descriptor_lines, kernel_rows
from rawgpu.amd.decode.disasm import Printer
from rawgpu.amd.decode.program import Code, Listed
from rawgpu.amd.spec.generations import Machine, Trait
from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.errors import DecodeError, LaunchError

COLLAPSE = 4
"""So many equal lines in a row, padding, become one."""
NO_MEANING = "not modelled: running it raises by name"


@dataclass(frozen=True, slots=True)
class CodeLine:
    """An instruction, or data where there is none."""

    address: int
    raw: bytes
    text: str
    labels: tuple[str, ...] = ()
    target: int | None = None
    """Where a branch goes."""
    meaning: str = ""
    note: str = ""
    count: int = 1
    """How many times in a row it stands there."""


@cache
def printer(family: str, wave: int, true16: bool) -> Printer:
    return Printer(family, wave=wave, true16=true16)


def lines(code: Code, machine: Machine, *, true16: bool | None = None) -> list[CodeLine]:
    """Every line of a stretch of code, branch targets named."""
    spelled = Trait.TRUE16 in machine.traits if true16 is None else true16
    found = list(_decoded(code, machine, spelled))
    starts = {line.address for line in found}
    wanted = {line.target for line in found if line.target is not None}
    names = {address: labels[0] for address, labels in code.labels.items()}
    made = {
        address: f".L{number}"
        for number, address in enumerate(sorted((wanted & starts) - names.keys()))
    }
    names.update(made)
    return list(_collapsed(_named(line, code, names, made) for line in found))


def _decoded(code: Code, machine: Machine, true16: bool) -> Iterator[CodeLine]:
    data, wave, at = code.data, code.wave, 0
    prints = printer(machine.family, wave, true16)
    while at < len(data):
        address = code.address + at
        here = code.waves.get(address, wave)
        if here != wave:
            wave, prints = here, printer(machine.family, here, true16)
        try:
            instruction = prints.decoder.decode(data, at)
            text = prints.text(instruction)
        except DecodeError as error:
            raw = bytes(data[at : at + 4])
            word = int.from_bytes(raw, "little")
            text = f".long {word:#010x}" if len(raw) == 4 else f".byte {', '.join(map(hex, raw))}"
            yield CodeLine(address, raw, text, note=_reason(error))
            at += 4
            continue
        size = instruction.size
        target = _target(instruction, address)
        meaning = _meaning(instruction)
        yield CodeLine(address, bytes(data[at : at + size]), text, (), target, meaning)
        at += size


def _reason(error: DecodeError) -> str:
    """Why, without the family and the bytes, which stand beside it."""
    parts = error.message.split(": ")
    return parts[1] if len(parts) > 1 else error.message


def _meaning(instruction: MachineInstruction) -> str:
    halves = instruction.parts or (instruction,)
    return " :: ".join(half.meaning or NO_MEANING for half in halves)


def _target(instruction: MachineInstruction, address: int) -> int | None:
    if "label" not in instruction.row.operands.split():
        return None
    distance = instruction.get("simm16")
    return address + instruction.size + 4 * (distance - (distance >> 15 << 16))


def _named(line: CodeLine, code: Code, names: dict[int, str], made: dict[int, str]) -> CodeLine:
    labels = code.labels.get(line.address, ())
    if line.address in made:
        labels = (made[line.address],)
    text, note = line.text, line.note
    if line.target is not None:
        place = names.get(line.target)
        head = text.rpartition(" ")[0]
        text = f"{head} {place if place else hex(line.target)}"
        note = note if place else "the target is no instruction here"
    here = range(line.address - code.address, line.address - code.address + len(line.raw))
    found = [code.relocations[at] for at in here if at in code.relocations]
    return replace(line, labels=labels, text=text, note="; ".join([note] * bool(note) + found))


def _collapsed(listed: Iterator[CodeLine]) -> Iterator[CodeLine]:
    run: list[CodeLine] = []
    for line in listed:
        if run and line.raw == run[0].raw and not line.labels and not line.note:
            run.append(line)
            continue
        yield from _one_run(run)
        run = [line]
    yield from _one_run(run)


def _one_run(run: list[CodeLine]) -> Iterator[CodeLine]:
    if len(run) < COLLAPSE or run[0].target is not None:
        yield from run
    else:
        yield replace(run[0], count=len(run))


def only_kernel(listed: Listed, name: str) -> Listed:
    """The program with the code of kernel, or function, `name` alone. LaunchError if none has it.

    A symbol without size ends where the next begins.
    """
    for code in listed.codes:
        starts = sorted(code.labels)
        for start in starts:
            if name not in code.labels[start]:
                continue
            later = [address for address in starts if address > start]
            end = code.ends.get(name, later[0] if later else code.address + len(code.data))
            first, last = start - code.address, end - code.address
            cut = replace(
                code,
                address=start,
                data=code.data[first:last],
                relocations={k - first: v for k, v in code.relocations.items() if k >= first},
            )
            kernels = tuple(kernel for kernel in listed.kernels if kernel.name == name)
            return replace(listed, codes=(cut,), kernels=kernels)
    known = sorted({label for code in listed.codes for ls in code.labels.values() for label in ls})
    raise LaunchError(f"the program has no code called {name!r}; it has {', '.join(known)}")


def listing_text(
    listed: Listed, *, explain: bool = False, true16: bool | None = None
) -> Iterator[str]:
    """A program for people."""
    kind = f"code object v{listed.version}, {'linked' if listed.linked else 'relocatable'}"
    yield f"{listed.hardware.name}: {kind if listed.version else 'machine code'}"
    for kernel in listed.kernels:
        yield ""
        yield from descriptor_lines(kernel, listed.hardware)
    for code in listed.codes:
        yield ""
        yield f"{code.section}, {len(code.data)} bytes:"
        for line in lines(code, listed.machine, true16=true16):
            for label in line.labels:
                yield f"{label}:"
            raw = line.raw.hex()
            shown = " ".join(raw[i : i + 8] for i in range(0, len(raw), 8))
            note = f"  ; {line.note}" if line.note else ""
            times = f"  ; {line.count} times" if line.count > 1 else ""
            yield f"  {line.address:06x}  {shown:17}  {line.text}{times}{note}"
            if explain and line.meaning:
                yield f"{'':29}; {line.meaning}"


def listing_rows(
    listed: Listed, *, explain: bool = False, true16: bool | None = None
) -> dict[str, Any]:
    """A program for programs: plain lists and dictionaries."""
    sections = []
    for code in listed.codes:
        rows = []
        for line in lines(code, listed.machine, true16=true16):
            row: dict[str, Any] = {
                "address": line.address,
                "bytes": line.raw.hex(),
                "text": line.text,
            }
            if line.labels:
                row["labels"] = list(line.labels)
            if line.target is not None:
                row["target"] = line.target
            if line.note:
                row["note"] = line.note
            if line.count > 1:
                row["count"] = line.count
            if explain and line.meaning:
                row["meaning"] = line.meaning
            rows.append(row)
        sections.append({"section": code.section, "address": code.address, "lines": rows})
    return {
        "target": listed.target,
        "arch": listed.hardware.name,
        "code_object_version": listed.version,
        "linked": listed.linked,
        "kernels": [kernel_rows(kernel, listed.hardware) for kernel in listed.kernels],
        "sections": sections,
    }
