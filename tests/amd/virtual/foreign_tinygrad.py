"""Runs tinygrad's own driver on a virtual machine; started by test_tinygrad.py as a process.

Arguments: the GPU, then the programs by name. Its file layer is pointed at the virtual kernel, and
addresses are handed out below 1 << 40. Nothing else of it is touched.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import numpy as np

import rawgpu.amd.virtual
from rawgpu.amd.virtual.foreign import ForeignPort
from rawgpu.amd.virtual.port import Port
from rawgpu.errors import RawGpuError
from rawgpu.ioctl.port import Protection
from rawgpu.virtual.room import Room

assert rawgpu.amd.virtual.VENDOR == "amd"
ALIGN = 2 << 20


class File:
    """tinygrad's FileIOInterface, in a virtual machine."""

    foreign: ForeignPort
    next_address = 1 << 37

    def __init__(self, path: str = "", flags: int = 0, fd: int | None = None) -> None:
        self.path = path
        self.fd = -1 if fd is None else fd
        if path.startswith("/dev/"):
            self.fd = checked(File.foreign.open(path))

    def ioctl(self, request: int, arg: Any) -> int:
        return checked(File.foreign.ioctl(self.fd, request & 0xFFFFFFFF, ctypes.addressof(arg)))

    def mmap(self, start: int, size: int, prot: int, flags: int, offset: int) -> int:
        return map_memory(start, size, prot, self.fd, offset)

    @staticmethod
    def anon_mmap(start: int, size: int, prot: int, flags: int, offset: int) -> int:
        return map_memory(start, size, prot, -1, offset)

    @staticmethod
    def munmap(address: int, size: int) -> int:
        return checked(File.foreign.munmap(address, size))

    def read(self, size: int | None = None, binary: bool = False, offset: int | None = None) -> Any:
        data = File.foreign.port.read(self.path)
        return data if binary else data.decode()

    def listdir(self) -> list[str]:
        return list(File.foreign.port.list(self.path))

    @staticmethod
    def exists(path: str) -> bool:
        try:
            File.foreign.port.list(path)
        except RawGpuError:
            return False
        return True


def checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def map_memory(start: int, size: int, prot: int, fd: int, offset: int) -> int:
    if start:
        return checked(File.foreign.mmap(start, size, prot, fd, offset))
    start = File.next_address
    File.next_address += size + ALIGN & -ALIGN
    return File.foreign.port.mmap(
        size, fd=fd, offset=offset, address=start, protection=Protection(prot)
    )


def add(tensor: Any) -> None:
    value = np.arange(60, dtype=np.float32).reshape(3, 20)
    np.testing.assert_array_equal((tensor(value) + 1).numpy(), value + 1)


def matmul(tensor: Any) -> None:
    left = np.arange(20 * 9, dtype=np.float32).reshape(20, 9) / 16
    right = np.arange(9 * 12, dtype=np.float32).reshape(9, 12) / 8
    np.testing.assert_allclose((tensor(left) @ tensor(right)).numpy(), left @ right, rtol=1e-5)


def convolution(tensor: Any) -> None:
    image = np.arange(3 * 8 * 8, dtype=np.float32).reshape(1, 3, 8, 8) / 64
    weight = np.arange(4 * 3 * 9, dtype=np.float32).reshape(4, 3, 3, 3) / 32
    wanted = np.zeros((1, 4, 6, 6), np.float32)
    for y in range(6):
        for x in range(6):
            patch = image[0, :, y : y + 3, x : x + 3]
            wanted[0, :, y, x] = (weight * patch).sum((1, 2, 3))
    got = tensor(image).conv2d(tensor(weight)).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-4)


def training(tensor: Any) -> None:
    """Three steps of descent on two layers, against the same in NumPy."""
    chance = np.random.default_rng(3)
    x, wanted = chance.normal(size=(16, 8)), chance.normal(size=(16, 4))
    first, second = chance.normal(size=(8, 12)) / 4, chance.normal(size=(12, 4)) / 4
    layers = [tensor(w.astype(np.float32)) for w in (first, second)]
    inputs, targets = tensor(x.astype(np.float32)), tensor(wanted.astype(np.float32))
    for _ in range(3):
        loss = ((inputs @ layers[0]).relu() @ layers[1] - targets).square().mean()
        gradients = loss.gradient(*layers)
        layers = [w - 0.5 * g for w, g in zip(layers, gradients, strict=True)]
        layers = [w.realize() for w in layers]
        hidden = np.maximum(x @ first, 0)
        error = 2 * (hidden @ second - wanted) / wanted.size
        back = (error @ second.T) * (hidden > 0)
        first, second = first - 0.5 * x.T @ back, second - 0.5 * hidden.T @ error
    for ours, theirs in zip((first, second), layers, strict=True):
        np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-4, atol=1e-5)


def start(name: str, **options: Any) -> None:
    """Give tinygrad a machine with this GPU."""
    import tinygrad.runtime.support.hcq as support

    support.FileIOInterface = File
    import tinygrad.runtime.ops_amd as driver

    driver.FileIOInterface = File
    room = Room(name, threaded=True, kernel="6.12.107", **options).__enter__()
    port = room.port("amd")
    assert isinstance(port, Port)
    File.foreign = ForeignPort(port)


def main(name: str, programs: list[str]) -> None:
    start(name)
    from tinygrad import Tensor

    for program in programs:
        globals()[program](lambda value: Tensor(value, device="AMD"))
        print("right:", program, flush=True)
    os._exit(0)  # its finalizers would outlive the room


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
