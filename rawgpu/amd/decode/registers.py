"""A register dump in words: compute registers of a GPU, and its memory hubs' fault status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rawgpu.amd.decode.describe import register_fields, register_text
from rawgpu.amd.decode.source import register_pairs
from rawgpu.amd.decode.stream import register_line, register_row
from rawgpu.amd.spec.hardware import Hardware
from rawgpu.amd.spec.vm_fault import STATUS_BY_NAME
from rawgpu.describe.register import Register


def _named(name: str, hardware: Hardware) -> type[Register] | None:
    try:
        return hardware.registers.named(name)
    except KeyError:
        return STATUS_BY_NAME.get(name)


def register_dump(data: bytes, hardware: Hardware) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each register as text and as data. A name or offset that no row has is said to be none."""
    for where, value in register_pairs(data):
        if isinstance(where, int):
            if value >> 32:
                yield f"{where:#x} = {value:#x} is wider than a register", {"offset": where}
            else:
                yield register_line(where, value, hardware), register_row(where, value, hardware)
            continue
        kind = _named(where, hardware)
        row: dict[str, Any] = {"register": where, "value": value}
        if kind is None or value >> kind.about.width:
            why = "which no row names" if kind is None else "which is too wide"
            yield f"{where} = {value:#x}, {why}", row
            continue
        fields, unknown = register_fields(kind, value)
        row |= {"fields": fields} | ({"unnamed": unknown} if unknown else {})
        yield register_text(kind, value), row
