"""Rings and indirect buffers as text: PM4, AQL and SDMA packets through their declarations.

Each packet becomes an `Item`: where it begins, its text, and what is inside it: registers that a
SetShReg writes, the IndirectBuffer in a vendor's AQL packet. What cannot be decoded is printed with
the reason, up to where its header says that the next packet begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rawgpu.amd.decode.describe import register_fields, register_text
from rawgpu.amd.spec.aql import AQL, PACKET_BYTES, PacketType, VendorPm4
from rawgpu.amd.spec.hardware import Hardware
from rawgpu.amd.spec.pm4 import SetShReg, SetUconfigReg
from rawgpu.describe.field import DecodeError
from rawgpu.describe.packet import Packet, PacketSet, Undecoded
from rawgpu.describe.value import show

SHOWN_WORDS = 8
"""Of a payload; a count stands for the rest."""


@dataclass(frozen=True)
class Item:
    """A packet, or words that are none."""

    offset: int
    """In bytes."""
    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    inside: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        inner = ", ".join(f"{name}={_value(item)}" for name, item in self.fields.items())
        return f"{self.name}({inner})" + (f"  ; {self.problem}" if self.problem else "")

    def row(self) -> dict[str, Any]:
        """For programs."""
        found: dict[str, Any] = {"offset": self.offset, "packet": self.name}
        found["fields"] = {name: _plain(item) for name, item in self.fields.items()}
        if self.problem:
            found["problem"] = self.problem
        if self.inside:
            found["inside"] = list(self.inside)
        return found


def _value(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > SHOWN_WORDS:
        shown = ", ".join(map(show, value[:SHOWN_WORDS]))
        return f"({shown}, … {len(value) - SHOWN_WORDS} more)"
    return show(value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [int(item) for item in value]
    return show(value) if hasattr(value, "name") else value


def ring(data: bytes, packets: PacketSet, hardware: Hardware) -> Iterator[Item]:
    """The packets of a PM4 or SDMA ring or indirect buffer. `data` is whole dwords."""
    for at, packet in packets.walk(data, strict=False):
        yield _item(4 * at, packet, hardware)


def aql(data: bytes, hardware: Hardware) -> Iterator[Item]:
    """The slots of an AQL ring, 64 bytes each; those that hold nothing are left out."""
    for at in range(0, len(data), PACKET_BYTES):
        slot = data[at : at + PACKET_BYTES]
        if slot[0] == PacketType.INVALID or not any(slot):
            continue
        if len(slot) < PACKET_BYTES:
            yield Item(at, "cut off", problem=f"{len(slot)} bytes of a packet of {PACKET_BYTES}")
            return
        _, packet = next(iter(AQL.walk(slot, strict=False)))
        yield _item(at, packet, hardware)


def _item(offset: int, packet: Packet | Undecoded, hardware: Hardware) -> Item:
    if isinstance(packet, Undecoded):
        return Item(offset, "undecoded", {"words": packet.words}, packet.reason)
    fields = {name: getattr(packet, name) for name in packet.field_names()}
    rows = packet.about.fields
    plain = {f.name for f in rows if f.const is not None or fields[f.name] == f.default}
    shown = {name: value for name, value in fields.items() if name not in plain}
    inside: tuple[str, ...] = ()
    if isinstance(packet, (SetShReg, SetUconfigReg)):
        inside = tuple(_registers(packet.register, packet.values, hardware))
    elif isinstance(packet, VendorPm4):
        inside = tuple(_vendor(packet, hardware))
    return Item(offset, type(packet).__name__, shown, "", inside)


def _registers(first: int, values: tuple[int, ...], hardware: Hardware) -> Iterator[str]:
    for i, value in enumerate(values):
        yield register_line(first + 4 * i, value, hardware)


def register_line(offset: int, value: int, hardware: Hardware) -> str:
    """A register at `offset` bytes with its fields; its offset alone where no row names it."""
    try:
        return register_text(hardware.registers.at(offset), value)
    except DecodeError:
        return f"register at {offset:#x} = {value:#x}, which no row names"


def register_row(offset: int, value: int, hardware: Hardware) -> dict[str, Any]:
    """The same for programs."""
    row: dict[str, Any] = {"offset": offset, "value": value}
    try:
        kind = hardware.registers.at(offset)
    except DecodeError:
        return row
    fields, unknown = register_fields(kind, value)
    row |= {"register": kind.about.name, "fields": fields}
    return row | ({"unnamed": unknown} if unknown else {})


def _vendor(packet: VendorPm4, hardware: Hardware) -> Iterator[str]:
    words = [getattr(packet, f"indirect_buffer_{i}") for i in range(4)]
    for item in ring(b"".join(w.to_bytes(4, "little") for w in words), hardware.pm4, hardware):
        yield item.text
