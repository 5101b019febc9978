"""What a stage has: its device, its kernels, and ways to say what it found.

A stage is a function of a `Check`. It returns when all is well, raises `StageFailed` or an error of
the driver when not, and `NotHere` where the device has no such thing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from rawgpu.compiler_bridge.llvm import Target, compile_ir
from rawgpu.contract import Buffer, Device, Kernel, MemoryKind, QueueKind, Signal
from rawgpu.errors import FenceTimeout, RawGpuError
from rawgpu.hwcheck.kernels import dialect_of, module_text
from rawgpu.hwcheck.probe import Probe
from rawgpu.ioctl.port import KernelPort

Array = np.ndarray[Any, np.dtype[Any]]
SPOILED = "illegal"
"""The kernel whose machine code the vendor's probe makes illegal."""
WAIT_MS = 10_000
"""The longest that a stage waits for one piece of work."""


class StageFailed(Exception):
    """A check did not hold. `kind` is what `causes.py` knows it by."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class NotHere(Exception):
    """The device has nothing that this stage could check; the text says what is missing."""


class RecordingEnds(Exception):
    """A replay has come to where the recorder was switched off."""


class Check:
    """A stage's view of one device, which is opened when first asked for."""

    def __init__(
        self,
        probe: Probe,
        name: str,
        port: KernelPort | None,
        index: int,
        *,
        opened: Callable[[Device], None] = lambda device: None,
        stop_recording: Callable[[], None] = lambda: None,
    ) -> None:
        """`opened` is told of each device; `stop_recording` is called where a record would hurt."""
        self.probe = probe
        self.name = name
        self.port = port
        self.index = index
        self.figures: dict[str, Any] = {}
        self._opened = opened
        self._stop_recording = stop_recording
        self._device: Device | None = None
        self._kernels: dict[str, tuple[Kernel, int]] = {}

    @property
    def device(self) -> Device:
        if self._device is None:
            self._device = self.probe.open(self.name, self.port, self.index)
            self._opened(self._device)
        return self._device

    # --- saying what was found ------------------------------------------------------------------

    def say(self, **figures: Any) -> None:
        """Figures for the report: numbers, texts, lists."""
        self.figures.update(figures)

    def fail(self, kind: str, message: str) -> NoReturn:
        raise StageFailed(kind, message)

    def expect(self, kind: str, holds: bool, message: str) -> None:
        """Fail with `kind` unless `holds`."""
        if not holds:
            self.fail(kind, message)

    def hook(self, answer: Any, missing: str) -> None:
        """Take what a vendor's hook answered; None is `NotHere`, `failed` a failure."""
        if answer is None:
            raise NotHere(missing)
        self.say(**{k: v for k, v in answer.items() if k not in ("failed", "why")})
        if "failed" in answer:
            self.fail(str(answer["failed"]), str(answer.get("why", "")))

    def same(self, what: str, got: Any, wanted: Any, before: Any = None) -> None:
        """Compare bit for bit. Says where the first difference is and how many there are.

        Where all wrong elements hold what stood there `before`, the kind is `stale-data`.
        """
        left, right = np.asarray(got).reshape(-1), np.asarray(wanted).reshape(-1)
        if left.shape != right.shape:
            self.fail("wrong-data", f"{what}: {left.size} elements for {right.size}")
        wrong = np.flatnonzero(left != right)
        if not wrong.size:
            return
        kind, why = "wrong-data", ""
        if before is not None:
            old = np.broadcast_to(np.asarray(before).reshape(-1), left.shape)
            if (left[wrong] == old[wrong]).all():
                kind, why = "stale-data", "; what is wrong is what stood there before"
        at = int(wrong[0])
        self.fail(
            kind,
            f"{what}: {wrong.size} of {left.size} elements are wrong, the first at {at}: "
            f"{left[at]} for {right[at]}{why}",
        )

    # --- working with the device ----------------------------------------------------------------

    def unrecorded(self) -> None:
        """What follows is not recorded, and not replayed: large data, or times that count."""
        self._stop_recording()

    def kernel(self, name: str, items: int, **values: int) -> Kernel:
        """A kernel of `kernels.py` for blocks of `items`, compiled for this device and loaded."""
        target = self.device.target()
        text = module_text(name, target, items, **values)
        made = Target(target["triple"], target["cpu"], target["features"])
        image: bytes | None = compile_ir(text, made, passes="light")
        if name == SPOILED:
            image = self.probe.spoil(image or b"")
        if image is None:
            raise NotHere("no instruction is known that this device would refuse")
        return self.device.load(image)[name]

    @property
    def blocks_have_items(self) -> bool:
        """Whether a block runs as work-items side by side, as on a GPU."""
        return dialect_of(self.device.target()).parallel

    def launch(self, kernel: Kernel, *arguments: Any, grid: int = 1, items: int = 1) -> None:
        """Launch on the device's own queue; blocks of `items` where blocks have any."""
        kernel(*arguments, grid=grid, block=items if self.blocks_have_items else 1)

    def pinned(self, value: Array) -> tuple[Buffer, Array]:
        """A host buffer that the device reaches, with a copy of `value`, and the same as array."""
        buffer = self.device.alloc(max(value.nbytes, 1), MemoryKind.PINNED)
        view = np.frombuffer(buffer.view(), value.dtype, value.size)
        view[:] = value.reshape(-1)
        return buffer, view

    def settle(self) -> None:
        """Wait for everything submitted."""
        self.device.synchronize(WAIT_MS)

    def reach(self, signal: Signal, value: int) -> None:
        signal.wait(value, WAIT_MS)

    def let_pass(self, ms: int) -> None:
        """Let time pass, as the device's side counts it: wait for what never comes."""
        with contextlib.suppress(FenceTimeout):
            self.device.new_signal().wait(1, ms)

    def copies(self) -> Any:
        return self.device.queue(QueueKind.COPY)

    def close(self) -> None:
        """Close the device, if it is open; a device that is dead may complain, which is kept."""
        device, self._device = self._device, None
        if device is None:
            return
        try:
            device.close()
        except RawGpuError as error:
            self.say(closing=f"{type(error).__name__}: {error.message}")
