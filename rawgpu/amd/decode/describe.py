"""Kernel descriptors and registers in words, through their declarations."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from rawgpu.amd.decode.program import KernelFacts
from rawgpu.amd.spec.descriptor import KernelDescriptor
from rawgpu.amd.spec.hardware import Hardware
from rawgpu.describe.register import Register
from rawgpu.describe.value import show

PROGRAM_REGISTERS = ("COMPUTE_PGM_RSRC1", "COMPUTE_PGM_RSRC2", "COMPUTE_PGM_RSRC3")
PADDING = ("reserved0", "reserved1", "reserved3")


def register_fields(kind: type[Register], value: int) -> tuple[dict[str, Any], int]:
    """The fields of `value` that are not zero, and the bits that no field names."""
    known = value & kind.about.known
    fields = kind.decode(known, strict=False)
    found = {name: getattr(fields, name) for name in fields.field_names()}
    return {name: item for name, item in found.items() if item}, value & ~kind.about.known


def register_text(kind: type[Register], value: int) -> str:
    """`COMPUTE_PGM_RSRC1 = 0xac0000: FLOAT_MODE=192, IEEE_MODE=1`."""
    fields, unknown = register_fields(kind, value)
    shown = [f"{name}={show(item)}" for name, item in fields.items()]
    if unknown:
        shown.append(f"unnamed bits {unknown:#x}")
    plain = list(fields) == ["value"] or not shown
    return f"{kind.about.name} = {value:#x}" + ("" if plain else f": {', '.join(shown)}")


def descriptor_fields(words: KernelDescriptor) -> dict[str, Any]:
    """A descriptor's fields, without padding; flags by name."""
    fields = {}
    for name in words.field_names():
        value = getattr(words, name)
        if name not in PADDING:
            fields[name] = show(value) if isinstance(value, enum.Enum) else value
    return fields


def words_lines(words: KernelDescriptor, hardware: Hardware) -> Iterator[str]:
    """A descriptor, a line a field; the program registers with their fields."""
    for name, value in descriptor_fields(words).items():
        upper = name.upper()
        if upper in PROGRAM_REGISTERS:
            yield f"  {register_text(hardware.registers.named(upper), value)}"
        else:
            yield f"  {name} = {value if isinstance(value, str) else show(value)}"


def descriptor_lines(kernel: KernelFacts, hardware: Hardware) -> Iterator[str]:
    """A kernel's descriptor and arguments for people."""
    yield f"kernel {kernel.name}, waves of {kernel.lanes}:"
    yield from words_lines(kernel.descriptor, hardware)
    for row in argument_rows(kernel):
        name = row.get("name", "")
        yield f"  argument at {row['offset']:3}: {row['size']} bytes, {row['kind']} {name}".rstrip()


def argument_rows(kernel: KernelFacts) -> list[dict[str, Any]]:
    """The arguments that the metadata lists: offset, size, kind, and name where it has one."""
    found = []
    rows = kernel.row.get(".args", [])
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        offset, size, kind = row.get(".offset"), row.get(".size"), row.get(".value_kind")
        if isinstance(offset, int) and isinstance(size, int):
            one = {"offset": offset, "size": size, "kind": str(kind)}
            if isinstance(row.get(".name"), str):
                one["name"] = row[".name"]
            found.append(one)
    return found


def kernel_rows(kernel: KernelFacts, hardware: Hardware) -> dict[str, Any]:
    """A kernel for programs."""
    fields = descriptor_fields(kernel.descriptor)
    registers = {}
    for name in PROGRAM_REGISTERS:
        named, unknown = register_fields(hardware.registers.named(name), fields[name.lower()])
        registers[name] = named | ({"unnamed": unknown} if unknown else {})
    return {
        "name": kernel.name,
        "lanes": kernel.lanes,
        "descriptor": fields,
        "registers": registers,
        "arguments": argument_rows(kernel),
    }
