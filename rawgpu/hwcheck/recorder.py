"""The recorder of a stage: `trace.Recorder` with the time, and with memory that comes and goes.

A driver's buffers live and die during a stage, so what is watched is asked anew at each look. On
real hardware a fence may be written between two looks; memory that only the device writes is
therefore always put down to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from rawgpu.ioctl.port import KernelPort
from rawgpu.native.system import ffi
from rawgpu.trace.record import CHUNK, Recorder

Memory = Callable[[], Iterable[tuple[int, int, str, str]]]
MAX_BYTES = 48 << 20
"""Of one stage's recording; it ends there."""
END = {"call": "end"}
"""The line where a recording was switched off: a replay stops there too."""


class StageRecorder(Recorder):
    """Records until `stop`; passes everything on for ever."""

    def __init__(self, port: KernelPort, file: TextIO) -> None:
        self._on = True
        self._written = 0
        self._sources: list[Memory] = []
        self._held: dict[tuple[int, int], bytes] = {}
        """What watched memory had at the last look, by address and size."""
        super().__init__(port, file)

    def follow(self, memory: Memory) -> None:
        """From now on, watch what `memory` names, as it comes and goes."""
        self._sources = [memory]

    def stop(self) -> None:
        """Record nothing more."""
        if self._on:
            self._line(END)
            self._on = False

    def _look(self, by: str) -> None:
        if not self._on:
            return
        before, self._held = self._held, {}
        for source in self._sources:
            for address, size, label, owner in source():
                # Read as the driver does: /proc/self/mem is slow, and refused, on device mappings.
                now = bytes(ffi.buffer(ffi.cast("char *", address), size))
                was = before.get((address, size)) or bytes(size)
                self._held[address, size] = now
                if now != was:
                    self._changes(address, was, now, label, owner or by)

    def _changes(self, address: int, was: bytes, now: bytes, label: str, by: str) -> None:
        """Write down the pieces that differ."""
        for at in range(0, len(now), CHUNK):
            piece = now[at : at + CHUNK]
            if piece != was[at : at + CHUNK]:
                where = {"label": label, "address": address + at, "data": piece.hex()}
                self._line({"call": "memory", "by": by, **where})

    def _line(self, line: dict[str, Any]) -> None:
        if not self._on:
            return
        if self._written:  # the first line is the format's
            line = {**line, "ns": self._port.now_ns()}
        self._written += len(json.dumps(line))
        super()._line(line)
        if self._written > MAX_BYTES:
            self.stop()
