"""rawgpu: GPUs driven from user space, with nothing of the vendor's in between.

A launch by hand; `SAXPY` is the text of a kernel, which stands in README.md:

    import numpy as np
    import rawgpu
    from rawgpu.compiler_bridge.llvm import compile_ir, host_target

    with rawgpu.open("cpu:0") as cpu:
        saxpy = cpu.load(compile_ir(SAXPY, host_target(), passes="light"))["saxpy"]
        x = cpu.array(np.arange(1000, dtype=np.float32))
        y = cpu.array(np.ones(1000, dtype=np.float32))
        saxpy(x, y, np.float32(2.0), grid=1000)
        print(y.numpy()[:4])  # [1. 3. 5. 7.]

Read `errors.py` and `contract.py` first, then `runtime`, which finds and opens devices. `cpu` is
the complete backend, `native` what it runs on, `compiler_bridge` how text becomes machine code.
For GPUs: `describe`, `ioctl`, then `amd`; `virtual` and `trace` stand in for hardware. `cli` is the
command.
"""

from __future__ import annotations

from rawgpu.contract import Binding, DeviceInfo, MemoryKind, Parameter, QueueKind
from rawgpu.launch import DeviceArray
from rawgpu.runtime.device import open_device as open
from rawgpu.runtime.discover import devices
from rawgpu.runtime.rooms import room

__all__ = [
    "Binding",
    "DeviceArray",
    "DeviceInfo",
    "MemoryKind",
    "Parameter",
    "QueueKind",
    "devices",
    "open",
    "room",
]
