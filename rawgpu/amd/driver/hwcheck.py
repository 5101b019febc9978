"""AMD's part of the self-test: nodes, KFD's interface, an empty packet, the BAR, interrupts.

`rawgpu/hwcheck/probe.py` has the protocol; this module keeps it and does not import it. Whatever is
asked here is asked through the driver's own parts.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from typing import Any

from rawgpu.amd.driver.connection import KFD_PATH, connect
from rawgpu.amd.driver.device import AmdDevice, hardware_of, host_port
from rawgpu.amd.driver.hwcheck_causes import CAUSES
from rawgpu.amd.driver.queue import pack
from rawgpu.amd.driver.ring import READ_POINTER, UNIT_BYTES, Ring
from rawgpu.amd.driver.topology import ROOT, Node, gpu_nodes, title_of
from rawgpu.amd.spec import aql, pm4
from rawgpu.amd.spec.hardware import HARDWARE, LDS_APERTURE_HI, SCRATCH_APERTURE_HI, name_of
from rawgpu.contract import Device, QueueKind
from rawgpu.errors import BadElf, DeviceNotFound, DevicePermission, KernelCallFailed
from rawgpu.ioctl import amdgpu_info, kfd
from rawgpu.ioctl.kfd import QueueType
from rawgpu.ioctl.port import KernelPort
from rawgpu.native.system import ffi
from rawgpu.virtual import room

Answer = Mapping[str, Any] | None

NODES_TOLD = 64
"""Nodes of the topology that a report looks at."""
FILES = (
    "/proc/sys/kernel/osrelease",
    "/sys/module/amdgpu/version",
    "/sys/module/amdgpu/srcversion",
    "/sys/module/amdgpu/parameters/cwsr_enable",
    "/sys/module/amdgpu/parameters/sched_policy",
    "/sys/module/amdgpu/parameters/mes",
)
RING_BYTES, NOPS = 64 << 10, 5
EMPTY_NS, WAKE_MS, WAKES = 5_000_000_000, 1000, 8
SLEEP_85, ILLEGAL_WORD = 0xBF000055, 0xFFFFFFFF
"""SOPP without its opcode, which differs between generations; and bits 31:26 that no format has."""
RECORDED_BYTES = 256 << 10
"""Of one range of memory; what lies beyond is not recorded."""
SIGNAL_BYTES = 64
"""Buffers no larger are fences and timestamps, which only the GPU writes."""


class AmdProbe:
    """One probe serves all AMD devices."""

    causes = CAUSES
    volatile: Mapping[str, frozenset[str]] = {"WaitEvents": frozenset({"timeout"})}
    private: tuple[str, ...] = ("unique_id",)

    def __init__(self) -> None:
        self._ring: Ring | None = None
        """One that no queue of the device has."""

    def place(self, name: str) -> tuple[KernelPort | None, int]:
        """The port, virtual ones first, and the number of the GPU behind it."""
        ports = room.ports("amd")
        real = host_port()
        ports += [] if real is None else [real]
        number = int(name.partition(":")[2] or 0)
        for port in ports:
            count = len(gpu_nodes(port))
            if number < count:
                return port, number
            number -= count
        if not ports:
            raise DeviceNotFound("KFD is Linux's, and this is another system")
        return ports[0], number

    def open(self, name: str, port: KernelPort | None, index: int) -> Device:
        assert port is not None
        return AmdDevice(name, port, self._node(port, index))

    def _node(self, port: KernelPort, index: int) -> Node:
        nodes = gpu_nodes(port)
        if index >= len(nodes):
            raise DeviceNotFound(f"the topology shows {len(nodes)} GPUs, and not number {index}")
        return nodes[index]

    # --- before the device is opened ------------------------------------------------------------

    def nodes(self, port: KernelPort | None, index: int) -> Answer:
        assert port is not None
        fd = port.open(KFD_PATH)
        port.close(fd)
        found, hidden = gpu_nodes(port), _hidden(port)
        answer: dict[str, Any] = {"gpus": len(found), "hidden_nodes": hidden}
        if index >= len(found):
            kind = "hidden" if hidden else "no-node"
            text = f"{KFD_PATH} opens, and the topology shows {len(found)} GPUs"
            return {**answer, "failed": kind, "why": f"{text}; {hidden} nodes are hidden"}
        node = found[index]
        row = HARDWARE.get(node.target_version)
        answer |= {
            "arch": name_of(node.target_version),
            "title": title_of(port, node),
            "node": node.number,
        }
        if row is None:
            return {**answer, "failed": "no-row", "why": f"no row describes {answer['arch']}"}
        answer |= {"proven": row.proven, "render": node.render_path}
        fd = port.open(node.render_path)
        port.close(fd)
        return answer

    def abi(self, port: KernelPort | None, index: int) -> Answer:
        assert port is not None
        node = self._node(port, index)
        connection = connect(port, node, f"amd:{index}")
        try:
            gpu = connection.gpu(node, f"amd:{index}")
            version = connection.ioctl(kfd.GetVersion())
            answer: dict[str, Any] = {
                "kfd": f"{version.major_version}.{version.minor_version}",
                "row": connection.abi.name,
                "create_queue_bytes": connection.abi[kfd.CreateQueue].about.size,
            }
            clocks = [connection.ioctl(connection.new(kfd.GetClockCounters, gpu_id=node.gpu_id))
                      for _ in range(2)]  # fmt: skip
            if clocks[1].gpu_clock_counter < clocks[0].gpu_clock_counter:
                return {**answer, "failed": "clock", "why": "the GPU's counter went back"}
            if connection.abi.has(kfd.AvailableMemory):
                request = connection.new(kfd.AvailableMemory, gpu_id=node.gpu_id)
                answer["available_bytes"] = connection.ioctl(request).available
            answer |= _device_info(port, gpu.render_fd)
            return answer | _apertures(connection, node) | _sizes(node)
        finally:
            connection.leave()

    # --- with the device ------------------------------------------------------------------------

    def empty_packet(self, device: Device) -> Answer:
        """A queue of its own, NOPs, a doorbell; then the hardware's read pointer must move."""
        assert isinstance(device, AmdDevice)
        several = device.node.xccs > 1
        kind = QueueType.COMPUTE_AQL if several else QueueType.COMPUTE
        ring = self._ring = Ring(device, kind, RING_BYTES, "an empty queue")
        try:
            if several:
                for _ in range(NOPS):
                    ring.write_aql(pack(aql.BarrierAnd(barrier=True).encode()))
            else:
                for _ in range(NOPS):
                    ring.write(pack(pm4.Nop(payload=(0,)).encode()))
            wanted = ring.written // UNIT_BYTES[kind]
            ring.ring_doorbell()
            end = device.port.now_ns() + EMPTY_NS
            while ring.read_pointer != wanted and device.port.now_ns() < end:
                device.port.pause()
                device.check_reports()
            read = ring.read_pointer
        finally:
            self._ring = None
            ring.close()
        answer: dict[str, Any] = {"queue": kind.name.lower(), "read_pointer": read}
        if read != wanted:
            text = f"the read pointer is at {read} of {wanted} after {EMPTY_NS // 10**9} s"
            return {**answer, "failed": "doorbell-ignored", "why": text}
        return answer

    def copy_engine(self, device: Device) -> Answer:
        assert isinstance(device, AmdDevice)
        node = device.node
        engines = {
            "engines": node["num_sdma_engines"],
            "xgmi_engines": node["num_sdma_xgmi_engines"],
            "queues_per_engine": node["num_sdma_queues_per_engine"],
        }
        if not sum((engines["engines"], engines["xgmi_engines"])):
            return {**engines, "failed": "no-engine", "why": "the topology counts no SDMA engine"}
        return engines

    def window(self, device: Device) -> Answer:
        assert isinstance(device, AmdDevice)
        node = device.node
        if node.large_bar:
            return {"large_bar": True, "vram_bytes": node.vram_bytes}
        return {
            "large_bar": False,
            "vram_bytes": node.vram_bytes,
            "failed": "small-bar",
            "why": f"the CPU reaches a part of {node.vram_bytes >> 20} MiB only; data was right",
        }

    def event_wake(self, device: Device) -> Answer:
        """Submit, then sleep in the kernel: an event that is set before the sleep also ends it."""
        assert isinstance(device, AmdDevice)
        deaf = not device.hardware.interrupt_context_is_event
        queue = device.queue(QueueKind.COPY if deaf else QueueKind.COMPUTE)
        events, signal = device.connection.events, device.new_signal()
        for turn in range(1, WAKES + 1):
            while events.wait((device.event,), 0):
                pass  # what earlier submits left
            queue.signal(signal, turn)
            queue.submit()
            woken = events.wait((device.event,), WAKE_MS)
            device.check_reports()
            signal.wait(turn, WAKE_MS)
            if not woken:
                text = f"the fence was written, and {WAKE_MS} ms passed without an event"
                return {"wakes": turn - 1, "failed": "no-interrupt", "why": text}
        return {"wakes": WAKES, "by": "a copy queue" if deaf else "a compute queue"}

    def spoil(self, image: bytes) -> bytes | None:
        """Put a word that no generation decodes in place of `s_sleep 85`, in whatever encoding."""
        words = memoryview(bytearray(image[: len(image) & -4])).cast("I")
        places = [i for i, word in enumerate(words) if word & 0xFF00FFFF == SLEEP_85]
        if len(places) != 1:
            raise BadElf(f"{len(places)} marks in a kernel that must have one")
        words[places[0]] = ILLEGAL_WORD
        return words.tobytes() + image[len(image) & -4 :]

    def now_ns(self, device: Device) -> int:
        assert isinstance(device, AmdDevice)
        return device.port.now_ns()

    # --- for the report -------------------------------------------------------------------------

    def facts(self, port: KernelPort | None, index: int) -> Mapping[str, Any]:
        """Versions, module parameters, and the properties of the GPU's node."""
        assert port is not None
        found: dict[str, Any] = {}
        for path in FILES:
            text = _read(port, path)
            if text is not None:
                found[path] = text.strip()
        nodes = gpu_nodes(port)
        if index < len(nodes):
            kept = {k: v for k, v in nodes[index].properties.items() if k not in self.private}
            found["properties"] = kept
            found["name"] = nodes[index].name
            found["peers"] = sorted(nodes[index].peers)
            hardware = hardware_of(nodes[index])
            found["row"] = {"name": hardware.name, "evidence": hardware.evidence}
        return found

    def memory(self, device: Device) -> Iterable[tuple[int, int, str, str]]:
        """Live host buffers, and rings as far as they are recorded. VRAM is left alone."""
        assert isinstance(device, AmdDevice)
        for ring in (*device.rings(), *filter(None, [self._ring])):
            read = ring.pointers.address + READ_POINTER
            yield read, 8, f"read pointer of {ring.name}", "device"
            yield ring.ring.address, min(ring.size_bytes, RECORDED_BYTES), ring.name, ""
        for address, size in device.host.live().items():
            by = "device" if size <= SIGNAL_BYTES else ""
            yield address, min(size, RECORDED_BYTES), f"{size} bytes", by


def probe() -> AmdProbe:
    """What the self-test finds by name."""
    return AmdProbe()


def _read(port: KernelPort, path: str) -> str | None:
    """A small file's text; None where it cannot be read."""
    try:
        return port.read(path).decode("utf-8", "replace")
    except (KernelCallFailed, DeviceNotFound, DevicePermission):
        return None


def _hidden(port: KernelPort) -> int:
    """Nodes that are listed and may not be read."""
    try:
        names = [n for n in port.list(ROOT) if n.isdigit()][:NODES_TOLD]
    except (KernelCallFailed, DeviceNotFound, DevicePermission):
        return 0
    count = 0
    for name in names:
        try:
            port.read(f"{ROOT}/{name}/gpu_id")
        except DevicePermission:
            count += 1
        except KernelCallFailed as error:
            count += error.errno in (errno.EPERM, errno.EACCES)
    return count


def _device_info(port: KernelPort, render_fd: int) -> dict[str, Any]:
    """What the render node says, in a struct of exactly our size."""
    kind = amdgpu_info.InfoDevice
    answer = ffi.new("char[]", kind.about.size)
    request = amdgpu_info.Info(
        return_pointer=int(ffi.cast("uintptr_t", answer)),
        return_size=kind.about.size,
        query=amdgpu_info.InfoQuery.DEV_INFO,
    )
    port.ioctl(render_fd, request)
    info = kind.decode(ffi.buffer(answer)[:])
    return {"info_bytes": kind.about.size, "gpu_counter_khz": info.gpu_counter_freq}


def _apertures(connection: Any, node: Node) -> dict[str, Any]:
    """Where the GPU sees local and private memory: what flat addresses are judged by."""
    kind = connection.abi[kfd.ProcessDeviceApertures]
    count = connection.ioctl(connection.new(kfd.GetProcessAperturesNew)).num_of_nodes
    array = ffi.new("char[]", kind.about.size * max(count, 1))
    request = connection.new(
        kfd.GetProcessAperturesNew,
        kfd_process_device_apertures_ptr=int(ffi.cast("uintptr_t", array)),
        num_of_nodes=count,
    )
    count = connection.ioctl(request).num_of_nodes
    raw, size = ffi.buffer(array)[:], kind.about.size
    rows = [kind.decode(raw[i * size : (i + 1) * size]) for i in range(count)]
    mine = next((row for row in rows if row.gpu_id == node.gpu_id), None)
    if mine is None:
        return {"failed": "apertures", "why": f"{count} GPUs have apertures, and this has none"}
    told = {"lds_base": hex(mine.lds_base), "scratch_base": hex(mine.scratch_base)}
    if (mine.lds_base >> 32, mine.scratch_base >> 32) != (LDS_APERTURE_HI, SCRATCH_APERTURE_HI):
        return {**told, "failed": "apertures", "why": f"local and private memory are at {told}"}
    return told | {"gpuvm_limit": hex(mine.gpuvm_limit)}


def _sizes(node: Node) -> dict[str, Any]:
    """The context save area by the kernel's numbers, where it tells them, and by ours."""
    hardware = hardware_of(node)
    control, save, _ = hardware.save_area.sizes(node.cus_per_xcc, node.engines_per_xcc)
    told = node["ctl_stack_size"], node["cwsr_size"]
    answer: dict[str, Any] = {"save_area": [control, save], "save_area_told": list(told)}
    if any(told) and told != (control, save):
        why = f"the kernel says {told}, our formula ({control}, {save}); the kernel's are used"
        answer |= {"save_area_note": why}
    return answer
