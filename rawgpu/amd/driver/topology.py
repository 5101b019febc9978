"""The machine as the kernel describes it in sysfs: nodes, memory banks, links.

Read through a KernelPort, so a virtual room's files and the host's are read alike. Nodes that a
container hides (EPERM) are passed over.

Source: linux 6.12 amdkfd/kfd_topology.c.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field

from rawgpu.amd.spec.hardware import name_of
from rawgpu.errors import BadFile, DeviceNotFound, DevicePermission, KernelCallFailed
from rawgpu.ioctl.port import KernelPort

ROOT = "/sys/devices/virtual/kfd/kfd/topology/nodes"
HEAP_PUBLIC, HEAP_PRIVATE = 1, 2
MAX_NODES = 4096
NAMELESS = "ip discovery"
"""A node's name where the driver knows the chip by its parts only, on cards of all kinds."""
CACHE_DATA = 1 << 1
"""Bit of a cache's `type`: it holds data."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A GPU node."""

    number: int
    gpu_id: int
    name: str
    properties: Mapping[str, int]
    vram_bytes: int
    large_bar: bool
    """Whether the CPU reaches all VRAM."""
    caches: tuple[int, ...] = ()
    """Sizes in bytes of one of each level, first level first."""
    peers: frozenset[int] = field(default_factory=frozenset)
    """Numbers of the nodes that a link leads to."""

    def __getitem__(self, name: str) -> int:
        """A property; 0 where this kernel does not tell it."""
        return self.properties.get(name, 0)

    @property
    def target_version(self) -> int:
        return self["gfx_target_version"]

    @property
    def xccs(self) -> int:
        return max(self["num_xcc"], 1)

    @property
    def cus_per_xcc(self) -> int:
        """Compute units of one XCC, as the topology counts them."""
        return self["simd_count"] // max(self["simd_per_cu"], 1) // self.xccs

    @property
    def engines_per_xcc(self) -> int:
        """Shader engines of one XCC."""
        return max(self["array_count"] // max(self["simd_arrays_per_engine"], 1) // self.xccs, 1)

    @property
    def render_path(self) -> str:
        return f"/dev/dri/renderD{self['drm_render_minor']}"


def title_of(port: KernelPort, node: Node) -> str:
    """What people call the GPU: the product's name, else the kernel's, else the compiler's.

    The kernel calls most GPUs since 2021 by the way it learnt of them, which tells nobody anything.
    """
    path = f"/sys/class/drm/renderD{node['drm_render_minor']}/device/product_name"
    try:
        product = port.read(path).decode("utf-8", "replace").strip()
    except (KernelCallFailed, DeviceNotFound, DevicePermission):
        product = ""  # only boards that hold their own description have this file
    known = node.name if node.name != NAMELESS else ""
    return product or known or name_of(node.target_version)


def parse_properties(text: bytes, where: str) -> dict[str, int]:
    """Lines of `name value`. BadFile for anything else."""
    found: dict[str, int] = {}
    for line in text.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(" ")
        try:
            found[name] = int(value)
        except ValueError:
            raise BadFile(f"{where}: {line!r} is no property") from None
    return found


def _names(port: KernelPort, path: str) -> tuple[str, ...]:
    """What is in a folder; nothing where there is none."""
    try:
        return port.list(path)
    except (KernelCallFailed, DeviceNotFound, DevicePermission):
        return ()


def gpu_nodes(port: KernelPort) -> list[Node]:
    """The GPUs that this process may see, in order. Empty where KFD is not there."""
    found = []
    for name in sorted(filter(str.isdigit, _names(port, ROOT)), key=int)[:MAX_NODES]:
        try:
            node = _node(port, int(name))
        except KernelCallFailed as error:
            if error.errno in (errno.EPERM, errno.EACCES, errno.ENOENT):
                continue  # hidden by a container
            raise
        if node is not None:
            found.append(node)
    return found


def hidden_nodes(port: KernelPort) -> int:
    """How many nodes there are that this process may not see."""
    hidden = 0
    for name in filter(str.isdigit, _names(port, ROOT)):
        try:
            port.read(f"{ROOT}/{name}/gpu_id")
        except KernelCallFailed as error:
            hidden += error.errno in (errno.EPERM, errno.EACCES)
    return hidden


def _node(port: KernelPort, number: int) -> Node | None:
    path = f"{ROOT}/{number}"
    text = port.read(f"{path}/gpu_id").strip()
    if not text or not int(text):
        return None  # a processor
    properties = parse_properties(port.read(f"{path}/properties"), f"{path}/properties")
    banks = [
        parse_properties(port.read(f"{path}/mem_banks/{i}/properties"), path)
        for i in _names(port, f"{path}/mem_banks")
    ]
    public = sum(b.get("size_in_bytes", 0) for b in banks if b.get("heap_type") == HEAP_PUBLIC)
    private = sum(b.get("size_in_bytes", 0) for b in banks if b.get("heap_type") == HEAP_PRIVATE)
    return Node(
        number=number,
        gpu_id=int(text),
        name=port.read(f"{path}/name").decode("ascii", "replace").strip(),
        properties=properties,
        vram_bytes=public + private,
        large_bar=public > 0 and not private,
        caches=_caches(port, path),
        peers=_peers(port, path),
    )


def _caches(port: KernelPort, path: str) -> tuple[int, ...]:
    levels: dict[int, int] = {}
    for i in _names(port, f"{path}/caches"):
        row = parse_properties_loosely(port.read(f"{path}/caches/{i}/properties"))
        level, size = row.get("level", 0), row.get("size", 0)
        if level and row.get("type", CACHE_DATA) & 1:
            levels.setdefault(level, size << 10)
    return tuple(size for _, size in sorted(levels.items()))


def parse_properties_loosely(text: bytes) -> dict[str, int]:
    """As `parse_properties`, without the lines whose value is no number (`sibling_map`)."""
    found: dict[str, int] = {}
    for line in text.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[name] = int(value)
    return found


def _peers(port: KernelPort, path: str) -> frozenset[int]:
    found = set()
    for kind in ("io_links", "p2p_links"):
        for i in _names(port, f"{path}/{kind}"):
            row = parse_properties(port.read(f"{path}/{kind}/{i}/properties"), path)
            found.add(row.get("node_to", 0))
    return frozenset(found)
