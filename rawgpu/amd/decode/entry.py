"""What `rawgpu disasm` and `rawgpu decode` ask of AMD: see `rawgpu/runtime/decoders.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rawgpu.amd.decode import listing, source, stream
from rawgpu.amd.decode.describe import descriptor_fields, descriptor_lines, kernel_rows, words_lines
from rawgpu.amd.decode.program import (
    Listed,
    is_file,
    is_program,
    open_programs,
    raw_program,
    read_descriptor,
    rows_of,
)
from rawgpu.amd.decode.recording import recording_rows, recording_text
from rawgpu.amd.decode.registers import register_dump
from rawgpu.amd.spec.descriptor import DESCRIPTOR_BYTES
from rawgpu.amd.spec.generations import GENERATIONS
from rawgpu.amd.spec.hardware import Hardware
from rawgpu.errors import BadFile

__all__ = ["ARCHS", "KINDS", "decode", "disassemble", "is_program", "recognise"]

ARCHS = tuple(GENERATIONS)


@dataclass(frozen=True)
class Printed:
    """A decoded thing, as text for people or as plain data for programs."""

    text: Callable[[], Iterator[str]]
    rows: Callable[[], dict[str, Any]]


def disassemble(
    data: bytes,
    *,
    arch: str | None = None,
    kernel: str | None = None,
    wave: int | None = None,
    explain: bool = False,
    true16: bool | None = None,
) -> Printed:
    """A code object, a bundle of them, or bare machine code, for which `arch` must be given."""
    if is_file(data):
        programs = open_programs(data, arch)
    elif arch is None:
        raise BadFile("no ELF and no bundle, so say whose machine code this is", hint="--arch NAME")
    else:
        programs = [raw_program(source.numbers(data), arch, wave=wave)]
    if kernel is not None:
        programs = [listing.only_kernel(program, kernel) for program in programs]

    def text() -> Iterator[str]:
        for number, program in enumerate(programs):
            if number:
                yield ""
            yield from listing.listing_text(program, explain=explain, true16=true16)

    def rows() -> dict[str, Any]:
        made = [listing.listing_rows(p, explain=explain, true16=true16) for p in programs]
        return {"programs": made}

    return Printed(text, rows)


def recognise(data: bytes) -> str | None:
    """The kind of what begins as a file of ours or of a compiler's; None where that is unsaid."""
    if source.is_recording(data):
        return "trace"
    return "code" if is_program(data) else None


def decode(data: bytes, kind: str, arch: str | None) -> Printed:
    """Packets, registers, descriptors, a recording or code. Raises BadFile and its kin."""
    if kind == "code":
        return disassemble(data, arch=arch)
    if kind == "trace":
        hardware = rows_of(arch)[0] if arch is not None else None
        return Printed(
            lambda: recording_text(data, hardware), lambda: recording_rows(data, hardware)
        )
    if kind == "descriptor" and is_file(data):
        return _descriptors_of(open_programs(data, arch))
    if arch is None:
        raise BadFile(f"{kind} differs between processors", hint="--arch gfx1100, or --device")
    return _READERS[kind](data, rows_of(arch)[0])


def _items(read: Callable[[bytes, Hardware], Iterator[stream.Item]]) -> Any:
    def reader(data: bytes, hardware: Hardware) -> Printed:
        raw = source.dwords(source.numbers(data))

        def text() -> Iterator[str]:
            for item in read(raw, hardware):
                yield f"{item.offset:06x}  {item.text}"
                yield from (f"{'':10}{line}" for line in item.inside)

        return Printed(text, lambda: {"packets": [item.row() for item in read(raw, hardware)]})

    return reader


def _descriptor_reader(data: bytes, hardware: Hardware) -> Printed:
    raw = source.numbers(data)
    if not raw or len(raw) % DESCRIPTOR_BYTES:
        raise BadFile(f"{len(raw)} bytes are no kernel descriptors of {DESCRIPTOR_BYTES}")
    found = [
        read_descriptor(raw[at : at + DESCRIPTOR_BYTES], f"at {at:#x}")
        for at in range(0, len(raw), DESCRIPTOR_BYTES)
    ]

    def text() -> Iterator[str]:
        for number, words in enumerate(found):
            yield f"descriptor {number}:"
            yield from words_lines(words, hardware)

    return Printed(text, lambda: {"descriptors": [descriptor_fields(w) for w in found]})


def _descriptors_of(programs: list[Listed]) -> Printed:
    def text() -> Iterator[str]:
        for program in programs:
            yield f"{program.hardware.name}:"
            for kernel in program.kernels:
                yield from descriptor_lines(kernel, program.hardware)

    def rows() -> dict[str, Any]:
        return {
            "kernels": [
                kernel_rows(kernel, program.hardware)
                for program in programs
                for kernel in program.kernels
            ]
        }

    return Printed(text, rows)


def _register_reader(data: bytes, hardware: Hardware) -> Printed:
    found = list(register_dump(data, hardware))
    return Printed(
        lambda: (text for text, _ in found), lambda: {"registers": [row for _, row in found]}
    )


_READERS: Mapping[str, Callable[[bytes, Hardware], Printed]] = {
    "pm4": _items(lambda raw, hardware: stream.ring(raw, hardware.pm4, hardware)),
    "aql": _items(stream.aql),
    "sdma": _items(lambda raw, hardware: stream.ring(raw, hardware.sdma, hardware)),
    "registers": _register_reader,
    "descriptor": _descriptor_reader,
}

KINDS = (*_READERS, "trace", "code")
