"""Queues: packets are built here, and handed over by `submit`.

`Submitter` is what all kinds share: a timeline that each submit raises by one, what must outlive
the submits in flight, and room in the ring. `ComputeQueue` runs launches by PM4, `AqlQueue` by AQL
with PM4 inside, on parts with several XCCs; `copyqueue.py` has the copy engines.

A compute submit is: wait for the previous submit; make the host's writes visible (HDP flush, all
caches); the packets; raise the timeline; wake who sleeps. After a wait for another queue's signal
all caches are invalidated again, since what that queue wrote may be in them.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rawgpu.amd.driver.dispatch import KERNARG_ALIGN, Boundaries, launch_of
from rawgpu.amd.driver.memory import Block
from rawgpu.amd.driver.program import AmdKernel
from rawgpu.amd.driver.ring import Ring
from rawgpu.amd.driver.signal import AmdSignal
from rawgpu.amd.driver.stencil import Stencil
from rawgpu.amd.spec import aql, pm4
from rawgpu.contract import (
    Argument,
    Buffer,
    Grid,
    Kernel,
    PeerCopy,
    Queue,
    Signal,
    Timestamp,
)
from rawgpu.errors import DeviceClosed, DeviceError, FenceTimeout, LaunchError
from rawgpu.ioctl.kfd import QueueType
from rawgpu.launch import check_reach, counter_value, wait_limit
from rawgpu.native.code import native_code

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.recording import AmdRecording

RING_BYTES = 1 << 20
CHUNK_BYTES = 64 << 10
XCC_FIRST = 1
"""Mask of the XCC that does what must be done once."""
AGAIN_MS = 500
"""How long a queue whose waves stood still is given before one looks whether they still do."""


@dataclass
class Submission:
    """A submit in flight."""

    value: int
    """Of the queue's timeline, when it is done."""
    end: int
    """Ring bytes written by then."""
    names: tuple[str, ...]
    keep: list[Any] = field(default_factory=list)


class Arena:
    """Host memory handed out in ascending pieces; pieces live as long as who holds the block."""

    def __init__(self, device: AmdDevice) -> None:
        self._device = device
        self._block: Block | None = None
        self._at = 0

    def take(self, size_bytes: int) -> tuple[int, memoryview, Block]:
        """An address that is a multiple of 64, its bytes, and the block to keep."""
        size = -(-max(size_bytes, 1) // KERNARG_ALIGN) * KERNARG_ALIGN
        block = self._block
        if block is None or self._at + size > block.capacity_bytes:
            block = self._block = self._device.host.alloc(max(CHUNK_BYTES, size))
            self._at = 0
            self._view = block.view(block.capacity_bytes)
        start, self._at = self._at, self._at + size
        return block.address + start, self._view[start : start + size_bytes], block


class AmdTimestamp:
    """Eight bytes that a queue fills with the GPU's clock; reads as nanoseconds."""

    def __init__(self, device: AmdDevice) -> None:
        self._device = device
        self.block = device.host.alloc(8)
        native_code().store64(self.block.address, 0)

    @property
    def ticks(self) -> int:
        return int(native_code().load64(self.block.address))

    def __getitem__(self, _: int) -> int:
        return self.ticks * 1_000_000_000 // self._device.clock_hz


class Submitter:
    """What every queue has."""

    def __init__(self, device: AmdDevice, kind: QueueType, name: str, ring_bytes: int) -> None:
        self.device = self._device = device
        self.name = name
        self.timeline = AmdSignal(device, name=f"{device.name} {name}")
        self.ring = Ring(device, kind, ring_bytes, f"{device.name} {name}")
        self.submitted = 0
        self.lock = threading.RLock()
        self.inflight: deque[Submission] = deque()
        self._read = 0
        """Ring bytes that are known to have been read."""
        self.closed = False
        self.stuck = False
        """Whether a wait for it ran out."""
        self.stood: tuple[str, ...] = ()
        """Where its waves stood then, all of them at two looks; empty if they moved."""
        self._keep: list[Any] = []
        self._names: list[str] = []

    # --- what was submitted ---------------------------------------------------------------------

    def retire(self) -> None:
        """Let go of what submits that are done were holding."""
        reached = self.timeline.peek()
        with self.lock:
            while self.inflight and self.inflight[0].value <= reached:
                self._read = self.inflight.popleft().end

    def running(self) -> tuple[str, ...]:
        """Kernels of the submits in flight, oldest first."""
        self.retire()
        return tuple(name for submission in tuple(self.inflight) for name in submission.names)

    def make_room(self, size_bytes: int) -> None:
        """Wait until the ring has `size_bytes` free."""
        if size_bytes > self.ring.size_bytes // 2:
            raise DeviceError(
                f"{self.name}: {size_bytes} bytes of packets in one submit",
                hint="submit more often, or record",
            )
        while self.ring.written + size_bytes - self._read > self.ring.size_bytes:
            value = self.inflight[0].value
            self._device.wait_until(
                lambda v=value: self.timeline.peek() >= v,  # type: ignore[misc]
                30_000,
                f"room in the ring of {self.name}",
            )
            self.retire()

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """A submit that fails before it is in the ring never was: the next one is as good."""
        submitted, written = self.submitted, self.ring.written
        try:
            yield
        except BaseException:
            if self.ring.written == written:
                self.submitted = submitted
                self._keep, self._names = [], []
            raise

    def accept(self) -> None:
        """Note a submit that was just written."""
        keep, self._keep = self._keep, []
        names, self._names = tuple(self._names), []
        self._device.lately.extend(names)
        for item in keep:
            if type(item) is Block:
                item.uses[self] = self.submitted
        self.inflight.append(Submission(self.submitted, self.ring.written, names, keep))

    def synchronize(self, timeout_ms: int = 30_000) -> None:
        """Wait for everything submitted."""
        self.check_open()
        timeout_ms = int(wait_limit(timeout_ms))
        with self.lock:  # not a submit that another thread is still writing, and may take back
            value = self.submitted
        if self.timeline.peek() < value:
            try:
                if self.stood and timeout_ms > AGAIN_MS:
                    timeout_ms -= self._wait_briefly(value)
                self._wait_until(value, timeout_ms)
            except FenceTimeout:  # and not Ctrl-C: the work goes on then, and closing waits for it
                self.stuck = True
                raise
            self.stuck = False
        self.retire()
        self._device.check_reports()

    def _wait_until(self, value: int, timeout_ms: int) -> None:
        self._device.wait_until(
            lambda: self.timeline.peek() >= value, timeout_ms, lambda: self.where(value)
        )

    def _wait_briefly(self, value: int) -> int:
        """FenceTimeout where waves stand as they stood before; else how many ms were waited."""
        before = self.stood
        try:
            self._wait_until(value, AGAIN_MS)
        except FenceTimeout:
            if self.stood == before:
                raise
        return AGAIN_MS

    def wait_submitted(self, value: int) -> None:
        """Wait until the submit with this number has ended."""
        if self.timeline.peek() < value and not self.closed:
            self._wait_until(value, 30_000)

    def where(self, value: int) -> str:
        """What a time-out says: `compute0, which is at fence 41 of 42`."""
        return f"{self.name}, which was at fence {self.timeline.peek()} of {value}"

    def own(self, signal: Signal) -> AmdSignal:
        """The signal, if this GPU can reach it."""
        self.check_open()
        if not isinstance(signal, AmdSignal):
            raise LaunchError("this signal belongs to another vendor's device")
        signal.check_device(self._device)
        return signal

    def check_open(self) -> None:
        """Raise DeviceClosed if this queue or its device is closed."""
        self._device.check_open()
        if self.closed:
            raise DeviceClosed(f"{self.name} was closed")

    def close(self) -> None:
        """Wait for what is in flight, and destroy the queue. Idempotent.

        A queue that did not end in time before is not waited for again.
        """
        if self.closed:
            return
        try:
            if self._device.dead is None and not self.stuck:
                self.synchronize()
        finally:
            self.closed = True
            self._device.forget(self)
            connection = self._device.connection
            connection.give_back(self.ring.close)
            self.inflight.clear()
            self._keep.clear()
        connection.settle()


class ComputeQueue(Submitter):
    """Launches by PM4."""

    mode = "pm4"

    def __init__(
        self, device: AmdDevice, name: str, *, kind: QueueType = QueueType.COMPUTE
    ) -> None:
        super().__init__(device, kind, name, RING_BYTES)
        self.boundaries: Boundaries = device.boundaries
        self.kernargs = Arena(device)
        self._parts: list[list[int] | bytes] = []
        """PM4 as dwords, and AQL packets, in order."""
        self._fresh = True
        """Whether the next launch must first see what others wrote."""

    # --- building -------------------------------------------------------------------------------

    def wait(self, signal: Signal, value: int) -> None:
        own = self.own(signal)
        wire = own.wire(counter_value(value), raises=False)
        self._keep.append(own)
        self.add(self.boundaries.wait(own.address, wire))
        self._fresh = True

    def signal(self, signal: Signal, value: int) -> None:
        own = self.own(signal)
        wire = own.wire(counter_value(value), raises=True)
        self._keep.append(own)
        self.add(self.boundaries.signal(own.address, wire), once=True)

    def launch(
        self,
        kernel: Kernel,
        arguments: Sequence[Argument],
        *,
        grid: Grid = 1,
        block: Grid = 1,
        work_ns: int = 0,
    ) -> None:
        self.check_open()
        own = own_kernel(kernel, self._device)
        words = own.pack(arguments)
        if any(not isinstance(word, (int, bytes)) for word in words):
            raise LaunchError(f"{own.name}: only a recording can have bindings")
        shape = own.shape(grid, block)
        scratch = self._device.scratch_for(own.private_bytes)
        launch = launch_of(own, shape, scratch, self.ring.queue_va, self.mode)
        address, segment, chunk = self.kernargs.take(launch.room_bytes)
        segment[: len(launch.template)] = launch.template
        own.arguments.store(segment, words)
        self._look_afresh()
        part = self.pack_launch(launch.place(address, segment))
        if isinstance(part, list):
            self.add(part)
        else:
            self._parts.append(part)
        self._keep += (own.image.block, chunk, launch.scratch)
        self._keep += filter(None, map(block_of, arguments))
        self._names.append(own.name)

    def _look_afresh(self) -> None:
        """Once after each wait: see what others wrote."""
        if self._fresh:
            self.add(self.boundaries.flush_hdp + self.boundaries.acquire_all)
            self._fresh = False

    def add(self, words: list[int], *, once: bool = False) -> None:
        """Append PM4; `once`: on one XCC only, where there are several."""
        words = self.once(words) if once else words
        last = self._parts[-1] if self._parts else None
        if isinstance(last, list):
            last += words
        else:
            self._parts.append(list(words))

    def keep(self, *memory: Any) -> None:
        """Hold what the next submit uses until that is done."""
        self._keep += memory

    def once(self, words: list[int]) -> list[int]:
        """PM4 that one XCC alone must run."""
        return words

    def pack_launch(self, words: list[int]) -> list[int] | bytes:
        """An encoded launch as a part of a submit."""
        return words

    def copy(self, target: Buffer, source: Buffer, size_bytes: int) -> None:
        """A copy by a kernel; ranges do not overlap."""
        self.check_open()
        for buffer, what in ((target, "target"), (source, "source")):
            check_size(what, buffer, size_bytes)
            check_reach(self._device, buffer, "the queue is")
        self._device.blit.copy(self, target, source, size_bytes)

    def pull(self, source_queue: Queue, copies: Sequence[PeerCopy]) -> bool:
        """Copies out of another device's memory; False where they must go through the host."""
        self.check_open()
        return self._device.peers.pull(self, source_queue, copies)

    def fill(self, target: Buffer, byte: int, size_bytes: int) -> None:
        self.check_open()
        check_size("target", target, size_bytes)
        check_reach(self._device, target, "the queue is")
        if not 0 <= byte <= 255:
            raise LaunchError(f"fill with {byte}, which is no byte")
        self._device.blit.fill(self, target, byte, size_bytes)

    def timestamp(self) -> Timestamp:
        self.check_open()
        slot = AmdTimestamp(self._device)
        self._keep.append(slot)
        self._look_afresh()  # ahead of the clock: it is no part of what is timed
        self.add(self.boundaries.timestamp(slot.block.address), once=True)
        self.add(self.boundaries.acquire_all)
        return Timestamp(slot)

    def barrier(self) -> None:
        """Nothing to add: each launch waits for those before it and sees what they wrote."""
        self.check_open()

    # --- handing over ---------------------------------------------------------------------------

    def submit(self) -> None:
        with self.lock:
            self.check_open()
            if not self._parts:
                return
            self._device.check_reports()
            parts, self._parts = self._parts, []
            self._fresh = True
            with self.all_or_nothing():
                self.hand_over([self.begin(), *parts, self.end()])

    def begin(self) -> list[int]:
        """The wait for the previous submit."""
        wire = self.timeline.wire(self.submitted, raises=False)
        return self.boundaries.wait(self.timeline.address, wire)

    def end(self) -> list[int]:
        """The packets that raise the timeline and wake the host."""
        self.submitted += 1
        wire = self.timeline.wire(self.submitted, raises=True)
        done = self.boundaries.signal(self.timeline.address, wire)
        return self.once(done + self.boundaries.wake)

    def hand_over(self, parts: Sequence[list[int] | bytes]) -> None:
        """Write the parts to the ring and ring the doorbell."""
        if not self.boundaries.flush_hdp:
            self._device.flush_hdp()
        data = b"".join([pack(part) if isinstance(part, list) else part for part in parts])
        self.make_room(len(data))
        self.ring.write(data)
        self.accept()
        self.ring.ring_doorbell()

    def replay(self, parts: Sequence[list[int] | bytes], keep: list[Any], names: list[str]) -> None:
        """Submit what a recording encoded: the first row, the previous submit's end, the parts.

        What was appended to the queue before goes first, in the same submit.
        """
        with self.lock:
            self.check_open()
            self._device.check_reports()
            self._keep += keep
            self._names += names
            first = self.boundaries.flush_hdp + self.boundaries.acquire_all
            before, self._parts = self._parts, []
            self._fresh = True
            with self.all_or_nothing():
                if before:
                    self.hand_over([self.begin(), *before, first, *parts, self.end()])
                else:
                    self.hand_over([first + self.begin(), *parts, self.end()])

    def freeze(self, words: list[int], arena: Arena) -> tuple[list[int] | bytes, Block]:
        """PM4 put into memory for good, and what runs it from the ring."""
        address, view, chunk = arena.take(4 * len(words))
        view[:] = pack(words)
        return indirect(address, len(words)), chunk

    def record(self) -> AmdRecording:
        from rawgpu.amd.driver.recording import AmdRecording

        self.check_open()
        return AmdRecording(self._device, self)


class AqlQueue(ComputeQueue):
    """Launches by AQL packets, everything else by PM4 in indirect buffers.

    On parts with several XCCs all of them run the PM4; what must happen once is predicated.
    """

    mode = "aql"

    def __init__(self, device: AmdDevice, name: str) -> None:
        super().__init__(device, name, kind=QueueType.COMPUTE_AQL)

    def once(self, words: list[int]) -> list[int]:
        return predicated(words)

    def pack_launch(self, words: list[int]) -> bytes:
        return pack(words)

    def hand_over(self, parts: Sequence[list[int] | bytes]) -> None:
        """Packets of the ring; PM4 goes into memory, with a packet that runs it."""
        if not self.boundaries.flush_hdp:
            self._device.flush_hdp()
        packets: list[bytes] = []
        for part in merged(parts):
            if isinstance(part, list):
                packet, chunk = self.freeze(part, self.kernargs)
                self._keep.append(chunk)
                packets.append(packet)
            else:
                packets += [part[i : i + 64] for i in range(0, len(part), aql.PACKET_BYTES)]
        self.make_room(aql.PACKET_BYTES * len(packets))
        for packet in packets:
            self.ring.write_aql(packet)
        self.accept()
        self.ring.ring_doorbell()

    def freeze(self, words: list[int], arena: Arena) -> tuple[bytes, Block]:
        address, view, chunk = arena.take(4 * len(words))
        view[:] = pack(words)
        return vendor_packet(address, len(words)), chunk


def merged(parts: Sequence[list[int] | bytes]) -> list[list[int] | bytes]:
    """Neighbours of PM4 as one."""
    found: list[list[int] | bytes] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, list) and isinstance(last, list):
            found[-1] = last + part
        elif part:
            found.append(part)
    return found


_VENDOR = Stencil(
    aql.VendorPm4(
        format=1,
        indirect_buffer_0=0,
        indirect_buffer_1=0,
        indirect_buffer_2=0,
        indirect_buffer_3=0,
    ),
    *(f"indirect_buffer_{i}" for i in range(4)),
)


def vendor_packet(address: int, dwords: int) -> bytes:
    """An AQL packet that runs PM4 in memory."""
    return pack(_VENDOR(*indirect(address, dwords)))


def indirect(address: int, dwords: int) -> list[int]:
    """The packet that runs PM4 in memory."""
    return pm4.IndirectBuffer(address=address, size_dwords=dwords).encode()


def predicated(words: list[int]) -> list[int]:
    """The same on the first XCC only."""
    return pm4.PredExec(xcc_mask=XCC_FIRST, exec_count=len(words)).encode() + words


def pack(words: Sequence[int]) -> bytes:
    """Dwords as bytes."""
    return struct.pack(f"<{len(words)}I", *words)


def own_kernel(kernel: Kernel, device: AmdDevice) -> AmdKernel:
    """The kernel, if it is of a program that this device loaded."""
    if not isinstance(kernel, AmdKernel) or kernel.device is not device:
        raise LaunchError(f"{kernel.name} belongs to another device")
    return kernel


def check_size(what: str, buffer: Any, size_bytes: int) -> None:
    """A copy or fill must stay inside the buffer."""
    room = getattr(buffer, "buffer", buffer).size_bytes
    if not 0 <= size_bytes <= room:
        raise LaunchError(f"{size_bytes} bytes for a {what} of {room}")


def block_of(value: Any) -> Any:
    """What keeps an argument's memory: the block of a buffer or of an array's buffer."""
    buffer = getattr(value, "buffer", value)
    return getattr(buffer, "block", None)
