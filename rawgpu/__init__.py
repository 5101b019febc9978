"""rawgpu: GPUs driven from user space, with nothing of the vendor's in between.

A launch by hand:

    with rawgpu.open("cpu:0") as gpu:
        saxpy = gpu.load(Path("saxpy.o").read_bytes())["saxpy"]
        x, y = gpu.array(numpy_x), gpu.array(numpy_y)
        saxpy(x, y, np.float32(2.0), np.int32(n), grid=n // 256)
        print(y.numpy())
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
