"""Rings: how packets reach a queue of the hardware.

A ring is four pieces of memory, each a buffer object of its own because the kernel checks their
exact sizes: the ring, a page with the pointers (laid out as `amd_queue_t`, which AQL needs and the
others do not mind), and for compute queues the end-of-pipe buffer and the context save area.

Order of a submit: packets, a fence, the write pointer as one store, the doorbell.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.amd.driver.region import HOST, LOCAL, Region, allocate, page_up
from rawgpu.amd.driver.scratch import Scratch
from rawgpu.amd.spec import aql
from rawgpu.amd.spec.hardware import (
    END_OF_PIPE_BYTES,
    LDS_APERTURE_HI,
    PAGE_BYTES,
    SCRATCH_APERTURE_HI,
)
from rawgpu.errors import DeviceError, KernelCallFailed
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags, QueueType
from rawgpu.native.code import native_code
from rawgpu.native.system import ffi

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice

WRITE_POINTER, READ_POINTER = 0x38, 0x80
"""Offsets of `write_dispatch_id` and `read_dispatch_id` in `amd_queue_t`."""
UNIT_BYTES = {
    QueueType.COMPUTE: 4,
    QueueType.SDMA: 1,
    QueueType.COMPUTE_AQL: aql.PACKET_BYTES,
}
"""What one step of a queue's pointers is."""


@dataclass(frozen=True)
class SaveSizes:
    """What CREATE_QUEUE wants to hear of the context save area, and how large it is."""

    control_stack: int
    save: int
    total: int


def save_sizes(device: AmdDevice) -> SaveSizes:
    """As the kernel states them, or else as it computes them."""
    node = device.node
    control, save, debug = device.hardware.save_area.sizes(node.cus_per_xcc, node.engines_per_xcc)
    control = node["ctl_stack_size"] or control
    save = node["cwsr_size"] or save
    return SaveSizes(control, save, page_up((save + debug) * node.xccs))


class Ring:
    """A queue of the hardware."""

    def __init__(self, device: AmdDevice, kind: QueueType, size_bytes: int, name: str) -> None:
        self.device = device
        self.kind = kind
        self.name = name
        self.size_bytes = size_bytes
        self.unit_bytes = UNIT_BYTES[kind]
        self.written = 0
        """Bytes since the queue's birth."""
        self.id: int | None = None
        self._code = native_code()
        self._regions: list[Region] = []
        self.save_area: Region | None = None
        """Where the waves of a compute queue are while it is off the hardware."""
        self.sizes = save_sizes(device)
        try:
            self._create()
        except BaseException:
            device.connection.give_back(self.close)
            raise

    def _region(self, size_bytes: int, flags: AllocFlags = HOST, *, visible: bool = True) -> Region:
        made = allocate(
            self.device.connection, self.device.gpu, size_bytes, flags, host_visible=visible
        )
        self._regions.append(made)
        return made

    def _create(self) -> None:
        device = self.device
        # Without AQL_QUEUE_MEM: it maps half the memory twice, which only gfx7 and gfx8 need.
        self.ring = self._region(self.size_bytes)
        if self.kind == QueueType.COMPUTE_AQL:
            empty = bytes([aql.PacketType.INVALID]).ljust(aql.PACKET_BYTES, b"\0")
            count = self.size_bytes // aql.PACKET_BYTES
            ffi.memmove(ffi.cast("char *", self.ring.address), empty * count, self.size_bytes)
        self.pointers = self._region(PAGE_BYTES)
        self.queue_va = self.pointers.address
        self._write_pointer = self.pointers.address + WRITE_POINTER
        self.describe(device.scratch)
        fields = {}
        if self.kind != QueueType.SDMA:
            sizes = self.sizes
            where = LOCAL | AllocFlags.PUBLIC if device.node.large_bar else HOST
            self.save_area = self._region(sizes.total, where)
            fields = {
                "eop_buffer_address": self._region(END_OF_PIPE_BYTES, LOCAL, visible=False).address,
                "eop_buffer_size": END_OF_PIPE_BYTES,
                "ctx_save_restore_address": self.save_area.address,
                "ctx_save_restore_size": sizes.save,
                "ctl_stack_size": sizes.control_stack,
            }
        request = device.connection.new(
            kfd.CreateQueue,
            ring_base_address=self.ring.address,
            write_pointer_address=self._write_pointer,
            read_pointer_address=self.pointers.address + READ_POINTER,
            ring_size=self.size_bytes,
            gpu_id=device.node.gpu_id,
            queue_type=self.kind,
            **fields,
        )
        try:
            reply = device.connection.ioctl(request)
        except KernelCallFailed as error:
            raise _refused(self.name, self.kind, error) from error
        self.id = reply.queue_id
        self._doorbell = device.doorbells(reply.doorbell_offset)

    def describe(self, scratch: Scratch) -> None:
        """Fill in `amd_queue_t`; the pointers in it are left as they are."""
        node = self.device.node
        cus = node.cus_per_xcc * node.xccs
        waves = node["max_waves_per_simd"] * node["simd_per_cu"]  # of one unit
        raw = aql.AmdQueue(
            base_address=self.ring.address,
            size=self.size_bytes // aql.PACKET_BYTES,
            group_segment_aperture_base_hi=LDS_APERTURE_HI,
            private_segment_aperture_base_hi=SCRATCH_APERTURE_HI,
            max_cu_id=max(cus, 1) - 1,
            max_wave_id=max(waves, 1) - 1,
            compute_tmpring_size=scratch.tmpring,
            scratch_resource_descriptor=scratch.buffer(64, scratch.xcc_bytes),
            scratch_backing_memory_location=scratch.address,
            scratch_backing_memory_byte_size=scratch.xcc_bytes * node.xccs,
            scratch_wave64_lane_byte_size=scratch.lane_bytes,
            queue_properties=aql.QueueProperties.IS_PTR64 | aql.QueueProperties.ENABLE_PROFILING,
        ).encode()
        keep = ((WRITE_POINTER, 8), (READ_POINTER, 8))
        at = 0
        for start, size in (*keep, (len(raw), 0)):
            ffi.memmove(ffi.cast("char *", self.queue_va + at), raw[at:start], start - at)
            at = start + size

    @property
    def read_pointer(self) -> int:
        """How far the hardware has read, in its own unit; for reports only."""
        return int(self._code.load64(self.pointers.address + READ_POINTER))

    def write(self, data: bytes) -> None:
        """Put packets behind those that are there; the caller knows that there is room."""
        assert len(data) <= self.size_bytes and len(data) % self.unit_bytes == 0, len(data)
        at = self.written % self.size_bytes
        first = min(len(data), self.size_bytes - at)
        base = ffi.cast("char *", self.ring.address)
        ffi.memmove(base + at, data[:first], first)
        if first < len(data):
            ffi.memmove(base, data[first:], len(data) - first)
        self.written += len(data)

    def write_aql(self, packet: bytes) -> None:
        """Put one packet in, its first dword last."""
        at = self.ring.address + self.written % self.size_bytes
        ffi.memmove(ffi.cast("char *", at + 4), packet[4:], aql.PACKET_BYTES - 4)
        self._code.store32(at, int.from_bytes(packet[:4], "little"))
        self.written += aql.PACKET_BYTES

    def ring_doorbell(self) -> None:
        """Let the hardware see what was written."""
        pointer = self.written // self.unit_bytes
        self._code.fence_device()
        self._code.store64(self._write_pointer, pointer)
        last = pointer - 1 if self.kind == QueueType.COMPUTE_AQL else pointer
        self.device.port.store_doorbell(self._doorbell, last)

    def set_running(self, running: bool) -> None:
        """Take the queue off the hardware, where its waves are saved, or put it back."""
        assert self.id is not None
        request = self.device.connection.new(
            kfd.UpdateQueue,
            ring_base_address=self.ring.address,
            queue_id=self.id,
            ring_size=self.size_bytes,
            queue_percentage=kfd.MAX_QUEUE_PERCENTAGE if running else 0,
            queue_priority=7,
        )
        self.device.connection.ioctl(request)

    def wave_state(self) -> None:
        """Have the kernel complete the save area of the stopped queue."""
        assert self.id is not None and self.save_area is not None
        request = self.device.connection.new(
            kfd.GetQueueWaveState, queue_id=self.id, ctl_stack_address=self.save_area.address
        )
        self.device.connection.ioctl(request)

    def close(self) -> None:
        """Destroy the queue, then its memory. After a refusal, a further call goes on there."""
        connection = self.device.connection
        if self.id is not None:
            connection.ioctl(connection.new(kfd.DestroyQueue, queue_id=self.id))
            self.id = None
        while self._regions:
            connection.give_back(self._regions.pop().close)


def _refused(name: str, kind: QueueType, error: KernelCallFailed) -> Exception:
    if error.errno == errno.ENOMEM and kind == QueueType.SDMA:
        return DeviceError(f"{name}: no copy-engine queue is left", hint="close other queues")
    if error.errno == errno.ENOSPC:
        return DeviceError(f"{name}: this process has all the queues the kernel gives one")
    if error.errno == errno.EINVAL:
        return KernelCallFailed(
            error.message,
            errno=error.errno,
            request=error.request,
            hint="the kernel's size of the context save area may differ from ours: "
            "cat /sys/devices/virtual/kfd/kfd/topology/nodes/*/properties",
        )
    return error
