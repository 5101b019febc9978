"""The ELF note in which a CPU kernel carries its signature.

Section `.note.rawgpu`, owner `rawgpu`, type 1; the description is JSON in UTF-8:

    {"kernels": {"scale": [["x", "pointer", true], ["a", "float32", false]]}}

A row is a parameter: its name, its NumPy dtype or `pointer`, and whether the kernel writes through
it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rawgpu.contract import Parameter
from rawgpu.errors import BadElf

NOTE_SECTION = ".note.rawgpu"
NOTE_OWNER = b"rawgpu\0"
NOTE_TYPE = 1
MAX_NOTE_BYTES = 1 << 22
DTYPES = frozenset(
    ["pointer", "bool", "float16", "bfloat16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
_HEADER = struct.Struct("<III")


@dataclass(frozen=True)
class KernelSignature:
    """A kernel's symbol and its parameters, in order."""

    name: str
    parameters: tuple[Parameter, ...]


def encode_note(signatures: Iterable[KernelSignature]) -> bytes:
    """The note's bytes: header, owner, description, each padded to 4."""
    kernels = {
        signature.name: [[p.name, p.dtype, p.writes] for p in signature.parameters]
        for signature in signatures
    }
    for name, rows in kernels.items():
        for _, dtype, _ in rows:
            assert dtype in DTYPES, (name, dtype)
    description = json.dumps({"kernels": kernels}, separators=(",", ":")).encode()
    owner = NOTE_OWNER + bytes(-len(NOTE_OWNER) % 4)
    head = _HEADER.pack(len(NOTE_OWNER), len(description), NOTE_TYPE)
    return head + owner + description + bytes(-len(description) % 4)


def _rows(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Owner, type and description of each note in a section."""
    position = 0
    while position < len(data):
        if len(data) - position < _HEADER.size:
            raise BadElf(f"note {NOTE_SECTION} ends inside a header", offset=position)
        owner_bytes, size_bytes, kind = _HEADER.unpack_from(data, position)
        owner_at = position + _HEADER.size
        start = owner_at + (owner_bytes + 3 & -4)
        if start + size_bytes > len(data):
            raise BadElf(f"note {NOTE_SECTION} ends inside its description", offset=position)
        yield data[owner_at : owner_at + owner_bytes], kind, data[start : start + size_bytes]
        position = start + (size_bytes + 3 & -4)


def _parameter(kernel: str, row: Any) -> Parameter:
    match row:
        case [str(name), str(dtype), bool(writes)] if dtype in DTYPES:
            return Parameter(name, dtype, writes)
    raise BadElf(f"note {NOTE_SECTION}: parameter {str(row)[:80]} of kernel {kernel!r}")


def decode_note(data: bytes) -> tuple[KernelSignature, ...]:
    """Signatures in a note section; notes of other owners are passed over."""
    if len(data) > MAX_NOTE_BYTES:
        raise BadElf(f"note {NOTE_SECTION} has {len(data)} bytes")
    signatures: list[KernelSignature] = []
    for owner, kind, description in _rows(data):
        if owner != NOTE_OWNER or kind != NOTE_TYPE:
            continue
        try:
            kernels = json.loads(description)["kernels"].items()
            pairs = [(str(name), list(rows)) for name, rows in kernels]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadElf(f"note {NOTE_SECTION}: {error}") from None
        for name, rows in pairs:
            parameters = tuple(_parameter(name, row) for row in rows)
            signatures.append(KernelSignature(name, parameters))
    return tuple(signatures)


def signature_note_ir(kernels: Mapping[str, Sequence[Parameter]]) -> str:
    """LLVM IR text, one global, that puts the note into an object. Once per module."""
    note = encode_note(KernelSignature(name, tuple(rows)) for name, rows in kernels.items())
    text = "".join(f"\\{byte:02X}" for byte in note)
    return (
        f'@"rawgpu.note" = hidden constant [{len(note)} x i8] c"{text}", '
        f'section "{NOTE_SECTION}", align 4\n'
    )
