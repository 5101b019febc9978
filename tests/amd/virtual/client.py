"""A driver of few lines, for tests of the virtual machine; it does as told, right or wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rawgpu.amd.virtual
from rawgpu.amd.spec import pm4, sdma
from rawgpu.amd.spec.hardware import HARDWARE, HDP_FLUSH_DONE, HDP_FLUSH_REQ
from rawgpu.describe.packet import Packet
from rawgpu.errors import KernelCallFailed
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags, EventType, QueueType
from rawgpu.ioctl.port import KernelPort
from rawgpu.native.system import ffi
from rawgpu.virtual.memory import peek, poke
from rawgpu.virtual.room import Room

assert rawgpu.amd.virtual.VENDOR == "amd"

TOPOLOGY = "/sys/devices/virtual/kfd/kfd/topology/nodes"
FINE = AllocFlags.GTT | AllocFlags.WRITABLE | AllocFlags.COHERENT | AllocFlags.UNCACHED
COARSE = AllocFlags.GTT | AllocFlags.WRITABLE
VRAM = AllocFlags.VRAM | AllocFlags.WRITABLE | AllocFlags.PUBLIC
FLUSH_HDP = pm4.WaitRegMem(
    function=pm4.Function.GREATER_EQUAL,
    mem_space=pm4.Space.REGISTER,
    operation=pm4.Operation.WRITE_WAIT_WRITE,
    address=HDP_FLUSH_REQ | HDP_FLUSH_DONE << 32,
    reference=0xFFFFFFFF,
)
PATIENCE = 2000


@dataclass
class Region:
    """Allocated memory."""

    va: int
    size: int
    handle: int
    mmap_offset: int

    def read(self, size: int, at: int = 0) -> bytes:
        return peek(self.va + at, size)

    def write(self, data: bytes, at: int = 0) -> None:
        poke(self.va + at, data)


def keep(data: bytes) -> tuple[Any, int]:
    """Memory of the process that holds `data`, and its address."""
    array = ffi.new("char[]", data)
    return array, int(ffi.cast("uintptr_t", array))


class Client:
    """One GPU of a port, taken."""

    def __init__(self, port: KernelPort, number: int = 0, *, fd: int = 0) -> None:
        self.port = port
        base = f"{TOPOLOGY}/{number + 1}"
        self.gpu_id = int(port.read(f"{base}/gpu_id"))
        lines = port.read(f"{base}/properties").decode().splitlines()
        self.properties = {k: int(v) for k, v in (line.split() for line in lines)}
        self.hardware = HARDWARE[self.properties["gfx_target_version"]]
        self.fd = fd or port.open("/dev/kfd")
        self.render = port.open(f"/dev/dri/renderD{self.properties['drm_render_minor']}")
        version = port.ioctl(self.fd, kfd.GetVersion())
        row = kfd.row_for(version.major_version, version.minor_version)
        assert row is not None
        self.abi = row
        self.next_va = (1 << 36) + (number << 34)
        self.regions: list[Region] = []

    def acquire(self) -> Client:
        self.port.ioctl(self.fd, kfd.AcquireVm(drm_fd=self.render, gpu_id=self.gpu_id))
        return self

    def alloc(
        self,
        size: int,
        flags: AllocFlags = FINE,
        *,
        map_cpu: bool = True,
        map_gpu: bool = True,
        va: int = 0,
    ) -> Region:
        va = va or self.take_va(size)
        request = kfd.AllocMemoryOfGpu(va_addr=va, size=size, gpu_id=self.gpu_id, flags=flags)
        made = self.port.ioctl(self.fd, request)
        region = Region(va, size, made.handle, made.mmap_offset)
        if map_cpu:
            self.port.mmap(size, fd=self.render, offset=made.mmap_offset, address=va)
        if map_gpu:
            self.map(region)
        self.regions.append(region)
        return region

    def take_va(self, size: int) -> int:
        va = self.next_va
        self.next_va += (size + 0x1FFFFF) & -0x200000
        return va

    def map(self, region: Region, *gpu_ids: int, done: int = 0) -> kfd.MapMemoryToGpu:
        ids = gpu_ids or (self.gpu_id,)
        _kept, address = keep(struct.pack(f"<{len(ids)}I", *ids))
        return self.port.ioctl(
            self.fd,
            kfd.MapMemoryToGpu(
                handle=region.handle,
                device_ids_array_ptr=address,
                n_devices=len(ids),
                n_success=done,
            ),
        )

    def unmap(self, region: Region, *gpu_ids: int) -> None:
        ids = gpu_ids or (self.gpu_id,)
        _kept, address = keep(struct.pack(f"<{len(ids)}I", *ids))
        self.port.ioctl(
            self.fd,
            kfd.UnmapMemoryFromGpu(
                handle=region.handle, device_ids_array_ptr=address, n_devices=len(ids)
            ),
        )

    def free(self, region: Region, *, mapped_cpu: bool = True) -> None:
        self.unmap(region)
        self.port.ioctl(self.fd, kfd.FreeMemoryOfGpu(handle=region.handle))
        if mapped_cpu:
            self.port.munmap(region.va, region.size)
        self.regions.remove(region)

    def save_sizes(self) -> tuple[int, int, int]:
        properties = self.properties
        xccs = max(properties["num_xcc"], 1)
        cus = properties["simd_count"] // properties["simd_per_cu"] // xccs
        engines = properties["array_count"] // properties["simd_arrays_per_engine"] // xccs
        return self.hardware.save_area.sizes(cus, engines)

    def queue_request(
        self, kind: QueueType = QueueType.COMPUTE, ring_bytes: int = 0x4000
    ) -> kfd.CreateQueue:
        """All that a queue of this kind needs, allocated."""
        ring = self.alloc(ring_bytes)
        pointers = self.alloc(0x1000)
        fields: dict[str, Any] = {}
        if kind in (QueueType.COMPUTE, QueueType.COMPUTE_AQL):
            control, save, debug = self.save_sizes()
            total = (save + debug) * max(self.properties["num_xcc"], 1) + 0xFFF & -0x1000
            area = self.alloc(total, COARSE, map_cpu=False)
            eop = self.alloc(0x1000, AllocFlags.VRAM | AllocFlags.WRITABLE, map_cpu=False)
            fields = {
                "eop_buffer_address": eop.va,
                "eop_buffer_size": 0x1000,
                "ctx_save_restore_address": area.va,
                "ctx_save_restore_size": save,
                "ctl_stack_size": control,
            }
        aql = kind is QueueType.COMPUTE_AQL
        return self.abi[kfd.CreateQueue](
            ring_base_address=ring.va,
            ring_size=ring_bytes,
            write_pointer_address=pointers.va + (0x38 if aql else 8),
            read_pointer_address=pointers.va + (0x80 if aql else 0),
            gpu_id=self.gpu_id,
            queue_type=kind,
            **fields,
        )

    def create(self, request: kfd.CreateQueue) -> kfd.CreateQueue:
        return self.port.ioctl(self.fd, request)

    def queue(self, kind: QueueType = QueueType.COMPUTE, ring_bytes: int = 0x4000) -> HostQueue:
        return HostQueue(self, self.create(self.queue_request(kind, ring_bytes)))

    def event(self, kind: EventType, page: int = 0, auto_reset: int = 1) -> kfd.CreateEvent:
        request = kfd.CreateEvent(
            event_page_offset=page, event_type=kind, auto_reset=auto_reset, node_id=0
        )
        return self.port.ioctl(self.fd, request)

    def wait(
        self, *ids: int, timeout: int = 1000, every: bool = False
    ) -> tuple[kfd.WaitResult, list[kfd.EventData]]:
        _kept, address = keep(b"".join(kfd.EventData(event_id=i).encode() for i in ids))
        request = kfd.WaitEvents(
            events_ptr=address, num_events=len(ids), wait_for_all=every, timeout=timeout
        )
        reply = self.port.ioctl(self.fd, request)
        raw = peek(address, 48 * len(ids))
        entries = [kfd.EventData.decode(raw[i : i + 48]) for i in range(0, len(raw), 48)]
        return kfd.WaitResult(reply.wait_result), entries


class HostQueue:
    """The process's side of a queue: ring, write pointer, doorbell."""

    def __init__(self, client: Client, made: kfd.CreateQueue) -> None:
        self.client = client
        self.made = made
        offset = made.doorbell_offset
        page = client.port.mmap(8192, fd=client.fd, offset=offset & ~0x1FFF)
        self.doorbell = page + (offset & 0x1FFF)
        self.written = 0
        """In bytes."""

    def put(self, data: bytes) -> None:
        """Into the ring, and nothing else."""
        size = self.made.ring_size
        for start in range(0, len(data), 4):
            at = (self.written + start) % size
            poke(self.made.ring_base_address + at, data[start : start + 4])
        self.written += len(data)

    @property
    def pointer(self) -> int:
        return self.written // {0: 4, 2: 64}.get(int(self.made.queue_type), 1)

    def store_pointer(self) -> None:
        poke(self.made.write_pointer_address, struct.pack("<Q", self.pointer))

    def ring(self) -> None:
        value = self.pointer - (1 if self.made.queue_type == QueueType.COMPUTE_AQL else 0)
        self.client.port.store_doorbell(self.doorbell, value)

    def submit(self, *packets: Packet) -> None:
        self.put(b"".join(packet.pack() for packet in packets))
        self.store_pointer()
        self.ring()

    def read_pointer(self) -> int:
        return int(struct.unpack("<Q", peek(self.made.read_pointer_address, 8))[0])

    def drain(self) -> None:
        """Wait until the engine read everything."""
        for _ in range(PATIENCE):
            if self.read_pointer() == self.pointer:
                return
            self.client.port.pause()
        raise AssertionError(f"read pointer {self.read_pointer()} of {self.pointer}")

    def destroy(self) -> None:
        self.client.port.ioctl(self.client.fd, kfd.DestroyQueue(queue_id=self.made.queue_id))


def until(client: Client, address: int, value: int) -> None:
    """Wait for a 32-bit word."""
    for _ in range(PATIENCE):
        if peek(address, 4) == struct.pack("<I", value):
            return
        client.port.pause()
    raise AssertionError(f"{peek(address, 4).hex()} at {address:#x}, not {value:#x}")


def write(address: int, *words: int) -> pm4.WriteData:
    return pm4.WriteData(dst_sel=pm4.CopyTarget.MEMORY, address=address, data=words)


def wait_equal(address: int, value: int) -> pm4.WaitRegMem:
    return pm4.WaitRegMem(
        function=pm4.Function.EQUAL,
        mem_space=pm4.Space.MEMORY,
        address=address,
        reference=value,
    )


def copy32(target: int, source: int) -> pm4.CopyData:
    memory = pm4.CopySource.MEMORY
    return pm4.CopyData(src_sel=memory, dst_sel=pm4.CopyTarget.MEMORY, source=source, target=target)


def signal(client: Client, address: int, value: int, event: int = 0) -> pm4.ReleaseMem:
    """The generation's release, with data and perhaps an interrupt."""
    select = pm4.InterruptSelect.AFTER_WRITE_CONFIRM if event else pm4.InterruptSelect.NONE
    return client.hardware.caches.release.replace(
        address=address,
        data=value,
        data_sel=pm4.DataSelect.DATA_32,
        int_sel=select,
        int_ctxid=event,
    )


def sdma_packets(client: Client) -> dict[str, Any]:
    """The generation's SDMA packets by the name of their first declaration."""
    found: dict[str, Any] = {}
    for kind in client.hardware.sdma:
        roots = [k for k in kind.__mro__ if k.__module__ == sdma.__name__ and k is not sdma.Sdma]
        found.setdefault(roots[-1].__name__, kind)
    return found


def refusal(call: Any) -> int:
    """The errno with which a call is refused; 0 if it is not."""
    try:
        call()
    except KernelCallFailed as error:
        return error.errno
    return 0


def room(spec: str = "gfx1100", **options: Any) -> Room:
    return Room(spec, **options)


def client_of(entered: Room, number: int = 0, **options: Any) -> Client:
    return Client(entered.port("amd"), number, **options).acquire()


def fill_words(region: Region, words: Sequence[int]) -> None:
    region.write(struct.pack(f"<{len(words)}I", *words))
