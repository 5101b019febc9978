"""What a process holds: of its host, and in the books of the virtual kernel that serves it.

before = Ledger.of(port)
...
assert Ledger.of(port).beyond(before) == {}
"""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from rawgpu.amd.driver.reserve import HIGH, LOW
from rawgpu.amd.virtual.port import Port


@dataclass(frozen=True)
class Ledger:
    """Counts, by what is counted."""

    counts: dict[str, int]

    @classmethod
    def of(cls, port: Port) -> Ledger:
        gc.collect(0)
        machine = port.machine
        taken = [t for process in port.processes for t in process.taken.values()]
        buffers = [buffer for t in taken for buffer in t.buffers.values()]
        views = {id(t.view): t.view for t in taken if t.view is not None}
        return cls(
            {
                "files": len(port.files),
                "mappings of memory": len(port.mapped),
                "reserved ranges": len(port.reserved),
                "buffers": len(buffers),
                "buffers mapped on GPUs": sum(len(buffer.mapped) for buffer in buffers),
                "ranges of GPUs": sum(len(view.space.ranges) for view in views.values()),
                "queues": sum(len(p.queues) for p in port.processes),
                "queues on GPUs": sum(len(gpu.queues) for gpu in machine.gpus),
                "doorbells": sum(len(t.doorbell_bits) for t in taken),
                "events": sum(len(p.events) for p in port.processes),
                "contexts": len(port.processes),
                "bars": sum(len(gpu.bars) for gpu in machine.gpus),
                "bytes of VRAM": sum(gpu.vram.used_bytes for gpu in machine.gpus),
                "bytes of host memory": machine.system.used_bytes,
                **of_host(),
            }
        )

    def beyond(self, before: Ledger) -> dict[str, int]:
        """What there is more of, and by how much."""
        more = {name: n - before.counts[name] for name, n in self.counts.items()}
        return {name: n for name, n in more.items() if n > 0}


def of_host() -> dict[str, int]:
    """Descriptors, threads, and mappings where GPUs' memory lies."""
    ours = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(word, 16) for word in line.split(maxsplit=1)[0].split("-"))
        ours += (end - start) * (LOW <= start < HIGH)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "bytes mapped for GPUs": ours,
    }
