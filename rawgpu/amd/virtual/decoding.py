"""Decoding that remembers: rings say the same things over and over.

A packet is a frozen value, so what was decoded once from some dwords serves again; and so does a
whole indirect buffer that has the same bytes as one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rawgpu.amd.spec.pm4 import PredExec, SetShReg, SetUconfigReg
from rawgpu.describe.field import DecodeError
from rawgpu.describe.packet import Packet, PacketSet

REMEMBERED = 1 << 14
REMEMBERED_BUFFERS = 256


@dataclass
class Entry:
    """Packets of an indirect buffer that are run as one: all set registers, or it is a single one.

    Where decoding failed there is the error in place of packets, for who gets there.
    """

    begin: int
    """The dword at which it begins."""
    end: int
    packets: list[Packet]
    writes: dict[int, int] = field(default_factory=dict)
    """Registers by offset; empty where the packet does something else."""
    error: DecodeError | None = None


class Decoder:
    """Decodes packets whose length the first dword tells: PM4."""

    def __init__(self, packets: PacketSet) -> None:
        self._packets = packets
        self._lengths: dict[bytes, int] = {}
        self._decoded: dict[bytes, Packet] = {}
        self._buffers: dict[bytes, list[Entry]] = {}

    def buffer(self, data: bytes) -> list[Entry]:
        """A whole indirect buffer."""
        entries = self._buffers.get(data)
        if entries is None:
            entries = joined(self._entries(data))
            if len(self._buffers) >= REMEMBERED_BUFFERS:
                del self._buffers[next(iter(self._buffers))]
            self._buffers[data] = entries
        return entries

    def _entries(self, data: bytes) -> Iterator[Entry]:
        at = 0
        while 4 * at < len(data):
            try:
                packet = self.decode(data, at)
            except DecodeError as error:
                yield Entry(at, at, [], error=error)
                return
            end = at + packet.dwords
            writes = {}
            if isinstance(packet, (SetShReg, SetUconfigReg)):
                writes = {packet.register + 4 * n: value for n, value in enumerate(packet.values)}
            yield Entry(at, end, [packet], writes)
            at = end

    def measure(self, data: bytes, dword: int = 0) -> int:
        """The length in dwords of the packet at `dword`."""
        head = data[4 * dword : 4 * dword + 4]
        length = self._lengths.get(head)
        if length is None:
            try:
                length = self._lengths[head] = self._packets.measure(head)
            except DecodeError as error:
                raise error.at(dword) from None
        return length

    def decode(self, data: bytes, dword: int = 0) -> Packet:
        """The packet at `dword`. Raises DecodeError with its place."""
        end = dword + self.measure(data, dword)
        raw = data[4 * dword : 4 * end]
        packet = self._decoded.get(raw)
        if packet is None:
            packet = self._packets.decode_at(data, dword)
            if len(self._decoded) >= REMEMBERED:
                self._decoded.clear()
            self._decoded[raw] = packet
        return packet


def joined(entries: Iterator[Entry]) -> list[Entry]:
    """Neighbours that set registers as one, none across the end of a predicated part."""
    found: list[Entry] = []
    ends: set[int] = set()
    for entry in entries:
        last = found[-1] if found else None
        if last is not None and last.writes and entry.writes and entry.begin not in ends:
            last.packets += entry.packets
            last.writes |= entry.writes
            last.end = entry.end
            continue
        found.append(entry)
        for packet in entry.packets:
            if isinstance(packet, PredExec):
                ends.add(entry.end + packet.exec_count)
    return found
