"""`rawgpu decode FILE`: what a GPU or its kernel driver reads, through the declarations."""

from __future__ import annotations

import argparse
import json

from rawgpu.cli.files import ELF_MAGIC, add_arch, prefixed, read_input, wanted_arch
from rawgpu.errors import BadFile, RawGpuError
from rawgpu.runtime import decoders

ZIP_MAGIC, RESULTS = b"PK\x03\x04", b"results.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and what it is."""
    parser.add_argument("file", help="raw bytes, hexadecimal text, or a recording; - reads")
    add_arch(parser)
    kinds = sorted({kind for v in decoders.available() for kind in decoders.decoder(v).KINDS})
    parser.add_argument("--kind", choices=kinds, help="what it is; recordings and ELF say it")
    parser.epilog = (
        "In text, 0xc0021500 is a dword and 001502c0 are its bytes in order; # begins a comment. "
        "Registers are lines such as COMPUTE_PGM_LO = 0x10, or 0xb830 0x10."
    )


def run(options: argparse.Namespace) -> int:
    """Print it."""
    data, arch = read_input(options.file), wanted_arch(options)
    check_archive(data, options.file)
    try:
        decoder, kind = _decoder(data, arch, options.kind)
        printed = decoder.decode(data, kind, arch)
        if options.json:
            print(json.dumps({"file": options.file, "kind": kind, **printed.rows()}))
            return 0
        for line in printed.text():
            print(line)
    except RawGpuError as error:
        raise prefixed(error, options.file) from None
    return 0


def check_archive(data: bytes, path: str) -> None:
    """Raise BadFile for a zip, with the way to what is inside."""
    if not data.startswith(ZIP_MAGIC):
        return
    if RESULTS not in data[:64]:
        raise BadFile(f"{path} is a zip archive", hint="unpack it, and decode what is inside")
    raise BadFile(
        f"{path} is a bundle of rawgpu hwcheck; its recordings are traces/STAGE.jsonl inside",
        hint=f"unzip {path}, then rawgpu decode traces/kernel.jsonl; or rawgpu hwcheck --replay "
        f"{path}",
    )


def _decoder(data: bytes, arch: str | None, kind: str | None) -> tuple[decoders.Decoder, str]:
    """Whose it is, and what: as said, or as the bytes say themselves."""
    candidates = [decoders.decoder(vendor) for vendor in decoders.available()]
    if arch is not None:
        candidates = [decoders.for_arch(arch)]
    for candidate in candidates:
        found = kind if kind is not None else candidate.recognise(data)
        if found is None and data.startswith(ELF_MAGIC):
            found = "code"  # another machine's: the reader of code says whose
        if found in candidate.KINDS:
            return candidate, found
    raise BadFile(
        "neither a recording nor a compiled program, so say what this is",
        hint="--kind pm4, aql, sdma, registers, descriptor or code",
    )
