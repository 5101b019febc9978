"""`rawgpu disasm FILE`: machine code as text, with addresses, names and, if wanted, meanings."""

from __future__ import annotations

import argparse
import json

from rawgpu.cli.files import ELF_MAGIC, add_arch, prefixed, read_input, wanted_arch
from rawgpu.errors import BadFile, RawGpuError
from rawgpu.runtime import decoders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, which part of it, and how much to say."""
    parser.add_argument(
        "file", help="a code object, linked or not, a bundle, or bare code; - reads"
    )
    add_arch(parser)
    parser.add_argument("--kernel", metavar="NAME", help="only this kernel or function")
    parser.add_argument("--wave", type=int, choices=(32, 64), help="lanes, for bare code")
    parser.add_argument("--explain", action="store_true", help="what each instruction does")
    parser.add_argument(
        "--plain16", action="store_true", help="16-bit registers as v1, not as v1.l and v1.h"
    )
    parser.epilog = "Bare code is raw bytes or hexadecimal text, and needs --arch or --device."


def run(options: argparse.Namespace) -> int:
    """Print it."""
    data, arch = read_input(options.file), wanted_arch(options)
    try:
        decoder = decoders.for_arch(arch) if arch is not None else decoders.for_program(data)
        if decoder is None and data.startswith(ELF_MAGIC):  # AMD's reader says whose it is
            decoder = decoders.decoder("amd")
        if decoder is None:
            raise BadFile(
                "no program of a vendor's known here, so say whose machine code this is",
                hint="--arch gfx1100",
            )
        printed = decoder.disassemble(
            data,
            arch=arch,
            kernel=options.kernel,
            wave=options.wave,
            explain=options.explain,
            true16=False if options.plain16 else None,
        )
        if options.json:
            print(json.dumps({"file": options.file, **printed.rows()}))
            return 0
        for line in printed.text():
            print(line)
    except RawGpuError as error:
        raise prefixed(error, options.file) from None
    return 0
