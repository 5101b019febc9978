"""Files that the kernel shows of its GPUs: KFD's topology, the render nodes, IP discovery.

Built when a machine is built, as a dictionary from path to text; folders follow from the paths. A
file may raise instead, as one does that a container hides.

Source: linux 6.12.107 amdkfd/kfd_topology.c, amdgpu/amdgpu_discovery.c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rawgpu.amd.virtual.boards import Board

TOPOLOGY = "/sys/devices/virtual/kfd/kfd/topology"
KFD_PATH = "/dev/kfd"
RENDER_FIRST = 128
VENDOR_ID = 0x1002
IP_GC, IP_SDMA0, IP_NBIF = 11, 42, 108
"""Hardware ids in IP discovery."""
IP_BASES = {
    IP_GC: (0x1260, 0xA000, 0x1C000, 0x2402C00),
    IP_SDMA0: (0x1260, 0xA000, 0x1C000, 0x2402C00),
    IP_NBIF: (0x0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000),
}
"""Register bases in dwords. With segment 2 of NBIF, HDP_FLUSH_REQ (0x106) is register 0xe26."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a board sits in the machine."""

    board: Board
    number: int
    gpu_id: int
    node: int
    render: int
    location: int
    hidden: bool = False
    """Whether a container's device rules hide it."""

    @property
    def path(self) -> str:
        return f"/dev/dri/renderD{self.render}"


def places(boards: Sequence[Board], hidden: Iterable[int] = ()) -> list[Place]:
    """Boards in their slots: node 0 is the CPU."""
    return [
        Place(
            board=board,
            number=number,
            gpu_id=0x2000 + 0x1235 * (number + 1) & 0xFFFF,
            node=number + 1,
            render=RENDER_FIRST + number,
            location=0x300 + 0x4000 * number & 0xFFFF,
            hidden=number in hidden,
        )
        for number, board in enumerate(boards)
    ]


def lines(values: Mapping[str, int]) -> bytes:
    return "".join(f"{name} {value}\n" for name, value in values.items()).encode()


def peers(place: Place, everybody: Sequence[Place], linked: bool) -> list[Place]:
    """GPUs whose memory this one can reach."""
    if not linked or not place.board.peer_capable:
        return []
    return [p for p in everybody if p is not place and p.board.peer_capable]


def files(
    everybody: Sequence[Place], *, sizes: bool, linked: bool, system_bytes: int
) -> dict[str, bytes]:
    """All files. `sizes`: whether this kernel exports the context save area's sizes."""
    found = {
        f"{TOPOLOGY}/generation_id": b"2\n",
        f"{TOPOLOGY}/system_properties": lines(
            {"platform_oem": 35498446626881, "platform_id": 71788775140929, "platform_rev": 1}
        ),
        "/sys/module/amdgpu/version": b"6.12.107\n",
    }
    found |= _cpu_files(len(everybody), system_bytes)
    for place in everybody:
        found |= _gpu_files(place, peers(place, everybody, linked), sizes)
        found |= _render_files(place)
    return found


def _cpu_files(gpus: int, system_bytes: int) -> dict[str, bytes]:
    base = f"{TOPOLOGY}/nodes/0"
    properties = dict.fromkeys(_PROPERTIES, 0) | {
        "cpu_cores_count": 16,
        "mem_banks_count": 1,
        "io_links_count": gpus,
        "num_xcc": 0,
        "max_engine_clk_ccompute": 4500,
    }
    bank = {
        "heap_type": 0, "size_in_bytes": system_bytes, "flags": 0, "width": 64, "mem_clk_max": 4800,
    }  # fmt: skip
    found = {
        f"{base}/gpu_id": b"0\n",
        f"{base}/name": b"\n",
        f"{base}/properties": lines(properties),
        f"{base}/mem_banks/0/properties": lines(bank),
    }
    for number in range(gpus):
        found[f"{base}/io_links/{number}/properties"] = _link(2, 0, number + 1, 20)
    return found


_PROPERTIES = (
    "cpu_cores_count", "simd_count", "mem_banks_count", "caches_count", "io_links_count",
    "p2p_links_count", "cpu_core_id_base", "simd_id_base", "max_waves_per_simd", "lds_size_in_kb",
    "gds_size_in_kb", "num_gws", "wave_front_size", "array_count", "simd_arrays_per_engine",
    "cu_per_simd_array", "simd_per_cu", "max_slots_scratch_cu", "gfx_target_version", "vendor_id",
    "device_id", "location_id", "domain", "drm_render_minor", "hive_id", "num_sdma_engines",
    "num_sdma_xgmi_engines", "num_sdma_queues_per_engine", "num_cp_queues", "cwsr_size",
    "ctl_stack_size", "max_engine_clk_fcompute", "local_mem_size", "fw_version", "capability",
    "debug_prop", "sdma_fw_version", "unique_id", "num_xcc", "max_engine_clk_ccompute",
)  # fmt: skip
"""In the order in which the kernel writes them."""


def properties(place: Place, links: int, sizes: bool) -> dict[str, int]:
    """A GPU node's properties."""
    board = place.board
    hardware = board.hardware
    control, save, _ = board.save_sizes
    values = dict.fromkeys(_PROPERTIES, 0) | {
        "simd_count": board.compute_units * board.simd_per_cu,
        "mem_banks_count": 1,
        "caches_count": 3,
        "io_links_count": 1,
        "p2p_links_count": links,
        "simd_id_base": 0x8000_1000 + 0x100 * place.number,
        "max_waves_per_simd": hardware.max_waves_per_simd,
        "lds_size_in_kb": hardware.lds_bytes >> 10,
        "num_gws": 64,
        "wave_front_size": hardware.lanes,
        "array_count": board.arrays,
        "simd_arrays_per_engine": board.arrays_per_engine,
        "cu_per_simd_array": -(-board.compute_units // board.arrays),
        "simd_per_cu": board.simd_per_cu,
        "max_slots_scratch_cu": board.scratch_slots_per_cu,
        "gfx_target_version": hardware.target_version,
        "vendor_id": VENDOR_ID,
        "device_id": board.device_id,
        "location_id": place.location,
        "drm_render_minor": place.render,
        "num_sdma_engines": board.sdma_engines,
        "num_sdma_xgmi_engines": board.sdma_xgmi_engines,
        "num_sdma_queues_per_engine": board.sdma_queues_per_engine,
        "num_cp_queues": board.compute_queues,
        "cwsr_size": save,
        "ctl_stack_size": control,
        "max_engine_clk_fcompute": board.clock_mhz,
        "fw_version": board.mec_firmware,
        "capability": board.capability,
        "debug_prop": 1495,
        "sdma_fw_version": board.sdma_firmware,
        "unique_id": 0x5A00_0000_0000_0000 + place.gpu_id,
        "num_xcc": board.xccs,
        "max_engine_clk_ccompute": 4500,
    }
    if not sizes:
        del values["cwsr_size"], values["ctl_stack_size"]
    return values


def _link(kind: int, start: int, end: int, weight: int) -> bytes:
    return lines(
        {
            "type": kind, "version_major": 0, "version_minor": 0, "node_from": start,
            "node_to": end, "weight": weight, "min_latency": 0, "max_latency": 0,
            "min_bandwidth": 312, "max_bandwidth": 31504, "recommended_transfer_size": 0,
            "recommended_sdma_engine_id_mask": 0, "flags": 1,
        }
    )  # fmt: skip


def _gpu_files(place: Place, linked: Sequence[Place], sizes: bool) -> dict[str, bytes]:
    base = f"{TOPOLOGY}/nodes/{place.node}"
    board = place.board
    heap = 1 if board.large_bar else 2
    bank = {
        "heap_type": heap, "size_in_bytes": board.vram_bytes, "flags": 0, "width": 384,
        "mem_clk_max": 1249,
    }  # fmt: skip
    found = {
        f"{base}/gpu_id": f"{place.gpu_id}\n".encode(),
        f"{base}/name": f"{board.codename}\n".encode(),
        f"{base}/properties": lines(properties(place, len(linked), sizes)),
        f"{base}/mem_banks/0/properties": lines(bank),
        f"{base}/io_links/0/properties": _link(2, place.node, 0, 20),
    }
    for number, peer in enumerate(linked):
        kind = board.link_type
        found[f"{base}/p2p_links/{number}/properties"] = _link(kind, place.node, peer.node, 40)
    for number, (level, size, kind) in enumerate(((1, 32, 9), (1, 32, 10), (2, 6144, 9))):
        found[f"{base}/caches/{number}/properties"] = _cache(number, level, size, kind)
    return found


def _cache(number: int, level: int, kib: int, kind: int) -> bytes:
    values = {
        "processor_id_low": 0x8000_1000 + number, "level": level, "size": kib,
        "cache_line_size": 128, "cache_lines_per_tag": 1, "association": 16, "latency": 0,
        "type": kind,
    }  # fmt: skip
    return lines(values) + b"sibling_map 1\n"


def _render_files(place: Place) -> dict[str, bytes]:
    board = place.board
    device = f"/sys/class/drm/renderD{place.render}/device"
    found = {
        f"{device}/vendor": b"0x1002\n",
        f"{device}/device": f"{board.device_id:#06x}\n".encode(),
        f"{device}/product_name": f"{board.title}\n".encode(),
        f"{device}/mem_info_vram_total": f"{board.vram_bytes}\n".encode(),
    }
    versions = {
        IP_GC: board.gc_version,
        IP_SDMA0: board.sdma_version,
        IP_NBIF: board.nbio_version,
    }
    for block, (major, minor, revision) in versions.items():
        base = f"{device}/ip_discovery/die/0/{block}/0"
        found[f"{base}/major"] = f"{major}\n".encode()
        found[f"{base}/minor"] = f"{minor}\n".encode()
        found[f"{base}/revision"] = f"{revision}\n".encode()
        found[f"{base}/base_addr"] = "".join(f"0x{b:08X}\n" for b in IP_BASES[block]).encode()
    return found
