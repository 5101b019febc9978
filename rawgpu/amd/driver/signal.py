"""Timelines: 64-bit counters on the host, 32 bits in memory and on the wire.

GPUs compare and write 32 bits. A signal keeps the host's value at which its word in memory stood at
0 (`base`), and moves to a fresh word, with a new base, before the distance reaches half the word's
range: comparisons on the wire never wrap.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rawgpu.errors import DeviceError
from rawgpu.native.code import native_code

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.memory import Block

REBASE_AT = 1 << 31
WIRE_LIMIT = 1 << 32
SLOT_BYTES = 64


class AmdSignal:
    """A 64-bit timeline that only grows."""

    def __init__(self, device: AmdDevice, value: int = 0, name: str = "signal") -> None:
        self.device = device
        self.name = name
        self._lock = threading.Lock()
        self._code = native_code()
        self._floor = self._base = self._highest = self._awaited = value
        self._old: list[Block] = []
        """Words that packets may still compare with."""
        self._start()

    def _start(self) -> None:
        self.block = self.device.host.alloc(SLOT_BYTES)
        self.address = self.block.address
        self._code.store64(self.address, 0)

    @property
    def value(self) -> int:
        self.device.check_open()
        self.device.port.pause()
        return self.peek()

    def peek(self) -> int:
        """The value now, and nothing else."""
        word = int(self._code.load32(self.address))
        return self._base + word if word else self._floor

    def wire(self, value: int, *, raises: bool) -> int:
        """The 32 bits that stand for `value`, for a packet that waits for it or `raises` to it."""
        with self._lock:
            if value - self._base >= REBASE_AT:
                self._rebase(value)
            if raises:
                self._highest = max(self._highest, value)
            else:
                self._awaited = max(self._awaited, value)
            return max(value - self._base, 0 if value <= self._floor else 1)

    def _rebase(self, value: int) -> None:
        """Move to a fresh word, once everything that was submitted has been reached.

        Not while a queue waits on the old word for a value that nobody has submitted yet.
        """
        if self._awaited > self._highest:
            if value - self._base < WIRE_LIMIT:
                return
            raise DeviceError(
                f"{self.name}: a queue waits for {self._awaited}; it cannot jump to {value}"
            )
        self.device.wait_until(
            lambda: self.peek() >= self._highest, 30_000, f"{self.name} to reach {self._highest}"
        )
        self._floor = self.peek()
        far = value - self._floor >= REBASE_AT
        self._base = value - 1 if far else self._floor
        self._old.append(self.block)
        self._start()

    def wait(self, value: int, timeout_ms: int = 30_000) -> None:
        """Return once `value` is reached; raise FenceTimeout, or what stopped the GPU."""
        self.device.check_open()
        if self.peek() >= value:
            return
        self.device.wait_until(
            lambda: self.peek() >= value,
            timeout_ms,
            lambda: f"{self.name}, which is at {self.peek()}, to reach {value}",
        )

    def check_device(self, device: AmdDevice) -> None:
        """A signal of another device is let onto this one, if both are behind one kernel."""
        if self.device is device:
            return
        if self.device.connection is not device.connection:
            raise DeviceError("this signal belongs to a device behind another kernel")
        self.device.host.map_on([device.node.gpu_id])
