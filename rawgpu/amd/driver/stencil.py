"""A packet encoded once, whose fields are filled in many times.

Where the fields lie is read from the packet's declaration; only fields of whole dwords are taken,
and addresses whose low bits are zero because they are aligned.
"""

from __future__ import annotations

from rawgpu.describe.packet import Packet

_MASK = 0xFFFFFFFF


class Stencil:
    """`Stencil(packet, "address", "data")(address, data)` are the packet's dwords with these."""

    def __init__(self, packet: Packet, *names: str) -> None:
        self._words = packet.encode()
        fields = {item.name: item for item in packet.about.fields}
        self._places: list[tuple[int, bool, int]] = []
        for name in names:
            item = fields[name]
            index, low = divmod(item.low, 32)
            assert item.unit == 1 << low and low + item.width in (32, 64), (packet, name)
            self._places.append((index, low + item.width == 64, item.unit - 1))

    def __call__(self, *values: int) -> list[int]:
        words = self._words.copy()
        for (index, wide, rest), value in zip(self._places, values, strict=True):
            assert value >= 0 and not value & rest and value >> 32 <= (_MASK if wide else 0), value
            words[index] = value & _MASK
            if wide:
                words[index + 1] = value >> 32
        return words
