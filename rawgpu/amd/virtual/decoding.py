"""Decoding that remembers: rings say the same things over and over.

A packet is a frozen value, so what was decoded once from some dwords serves again.
"""

from __future__ import annotations

from rawgpu.describe.packet import Packet, PacketSet

REMEMBERED = 1 << 14


class Decoder:
    """Decodes packets whose length the first dword tells: PM4."""

    def __init__(self, packets: PacketSet) -> None:
        self._packets = packets
        self._lengths: dict[bytes, int] = {}
        self._decoded: dict[bytes, Packet] = {}

    def measure(self, data: bytes, dword: int = 0) -> int:
        """The length in dwords of the packet at `dword`."""
        head = data[4 * dword : 4 * dword + 4]
        length = self._lengths.get(head)
        if length is None:
            length = self._lengths[head] = self._packets.measure(head)
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
