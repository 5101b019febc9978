"""Commands being put together, and laid out in native memory for the packet loop."""

from __future__ import annotations

from typing import Any

from rawgpu.contract import Binding
from rawgpu.launch import ArgumentPacker
from rawgpu.native import system
from rawgpu.native.layout import PACKET, PATCH, Kind

_TAIL = (0, 0, 0)
_LAUNCH = int(Kind.LAUNCH)  # an enumeration's attribute costs 50 ns a look

_COPY = ArgumentPacker("copy", None)


class Encoder:
    """Packets and argument words as lists, and the objects they need alive."""

    def __init__(self) -> None:
        self.packets: list[tuple[int, ...]] = []
        self.words: list[int] = []
        self.names: list[str] = []
        """Per packet, for fault messages."""
        self.kernels: list[Any] = []
        """Per packet: the kernel of a launch, the Signal of a wait or signal, else None."""
        self.keep: dict[int, list[Any]] = {}
        """What must outlive the run, by packet."""
        self.patches: dict[tuple[bool, int], Binding] = {}
        """What to bind: whether it is one of `words` or else of the packets' words, and which."""
        self.shared = False
        """Whether a launch has more than one block."""

    def add(self, name: str, owner: Any, *fields: int) -> int:
        """Append a packet: kind, target, source, size, extra; returns its number."""
        self.packets.append((*fields, *_TAIL))
        self.names.append(name)
        self.kernels.append(owner)
        return len(self.packets) - 1

    def launch(
        self, kernel: Any, words: list[int | Binding], keep: list[Any], blocks: int, work_ns: int
    ) -> int:
        """Append a launch. `source` is its first word's position until `Batch` knows an address."""
        start = len(self.words)
        for position, word in enumerate(words):
            if isinstance(word, Binding):
                self.patches[True, start + position] = word
                self.words.append(0)
            else:
                self.words.append(word)
        if blocks > 1:
            self.shared = True
        self.keep[len(self.packets)] = keep
        return self.add(kernel.name, kernel, _LAUNCH, kernel.address, start, blocks, work_ns)

    def copy(self, target: Any, source: Any, size_bytes: int) -> int:
        """Append a copy between addresses; either may be a Binding."""
        number = len(self.packets)
        fields = []
        for column, place in ((PACKET.word["target"], target), (PACKET.word["source"], source)):
            word = _COPY.one(column - 1, place)
            if isinstance(word, Binding):
                self.patches[False, number * PACKET.words + column] = word
                word = 0
            fields.append(word)
        self.keep[number] = [block_of(target), block_of(source)]
        return self.add("copy", None, Kind.COPY, fields[0], fields[1], size_bytes, 0)


def block_of(value: Any) -> Any:
    """What keeps an argument's memory: the block of a buffer or of an array's buffer."""
    buffer = getattr(value, "buffer", value)
    return getattr(buffer, "block", None)


class Batch:
    """An encoder's contents in native memory, ready to run."""

    def __init__(self, encoder: Encoder, pool: Any, queue: Any) -> None:
        ffi = system.ffi
        self.names = encoder.names
        self.kernels = encoder.kernels
        self.keep = encoder.keep
        self.shared = encoder.shared
        self.words: Any = ffi.new("uint64_t[]", encoder.words or 1)
        self.words_at = int(ffi.cast("uintptr_t", self.words))
        flat: list[int] = []
        for packet in encoder.packets:
            if packet[0] == _LAUNCH:
                flat += packet[:2]
                flat.append(self.words_at + 8 * packet[2])
                flat += packet[3:]
            else:
                flat += packet
        self.packets: Any = ffi.new("uint64_t[]", flat or 1)
        self.packets_at = int(ffi.cast("uintptr_t", self.packets))
        rows: list[int] = []
        for (is_word, place), binding in encoder.patches.items():
            base = self.words_at if is_word else self.packets_at
            rows += (base + 8 * place, binding.index, binding.offset_bytes & (1 << 64) - 1, 0)
        self.patches: Any = ffi.new("uint64_t[]", rows or 1)
        self.binding_count = 1 + max((b.index for b in encoder.patches.values()), default=-1)
        self.run: Any = ffi.new("struct run *")
        self.run.packets = self.packets_at
        self.run.count = len(encoder.packets)
        self.run.patches = int(ffi.cast("uintptr_t", self.patches))
        self.run.patch_count = len(rows) // PATCH.words
        self.run.pool = int(ffi.cast("uintptr_t", pool))
        self.run.queue = int(ffi.cast("uintptr_t", queue))

    def elapsed_ns(self, packet: int) -> int:
        """Time that a launch took in the last run with timings."""
        return int(self.packets[packet * PACKET.words + PACKET.word["elapsed_ns"]])
