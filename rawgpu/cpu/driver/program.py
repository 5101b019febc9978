"""Programs of the CPU device: a loaded object, its kernels and its globals.

A kernel is `void k(ptr arguments, i64 begin, i64 end)`: it runs blocks `begin` to `end` of its
grid. `arguments` points to 64-bit words, one per argument: a pointer, or a scalar's bits, zero-
extended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rawgpu.contract import Argument, Grid, Parameter
from rawgpu.errors import BadElf, DeviceClosed, LaunchError
from rawgpu.launch import ArgumentPacker, grid_blocks
from rawgpu.native import system
from rawgpu.native.image import Image

if TYPE_CHECKING:
    from rawgpu.cpu.driver.device import CpuDevice


class CpuKernel:
    """An entry point. Keeps its program's code mapped."""

    __slots__ = ("address", "device", "image", "name", "pack", "signature")

    def __init__(
        self,
        device: CpuDevice,
        image: Image,
        name: str,
        signature: tuple[Parameter, ...] | None,
    ) -> None:
        self.device = device
        self.image = image
        self.name = name
        self.signature = signature
        self.address = image.address(name)
        self.pack = ArgumentPacker(name, signature, device)

    def __call__(self, *arguments: Argument, grid: Grid = 1, block: Grid = 1) -> None:
        self.device.run(self, arguments, grid, block)

    def __repr__(self) -> str:
        return f"<CpuKernel {self.name} at {self.address:#x}>"


def blocks_of(kernel: CpuKernel, grid: Grid, block: Grid) -> int:
    """Number of blocks; a block on a CPU is one call's worth and has one thread."""
    if type(grid) is not int or grid < 1:
        x, y, z = grid_blocks(grid)
        grid = x * y * z
    if block != 1 and grid_blocks(block, "block") != (1, 1, 1):
        raise LaunchError(
            f"{kernel.name}: block is {block}, and a CPU's block has 1 thread", hint="block=1"
        )
    if grid >= 1 << 62:
        raise LaunchError(f"{kernel.name}: {grid} blocks")
    return grid


class CpuProgram:
    """A loaded object."""

    def __init__(self, device: CpuDevice, loaded: Image) -> None:
        self._device = device
        self._image: Image | None = loaded
        self._kernels: dict[str, CpuKernel] = {}
        if loaded.signatures is None:
            for name in sorted(loaded.functions):
                self._add(name, None)
        for row in loaded.signatures or ():
            if row.name not in loaded.functions:
                raise BadElf(
                    f"the note describes kernel {row.name!r}, which is not a global function"
                )
            self._add(row.name, row.parameters)

    def _add(self, name: str, signature: tuple[Parameter, ...] | None) -> None:
        image = self._open()
        if name not in image.symbols or not image.is_code(image.address(name)):
            raise BadElf(f"kernel {name!r} is not defined in a section of code")
        self._kernels[name] = CpuKernel(self._device, image, name, signature)

    def _open(self) -> Image:
        self._device.check_open()
        if self._image is None:
            raise DeviceClosed("this program was closed")
        return self._image

    def __getitem__(self, name: str) -> CpuKernel:
        self._open()
        try:
            return self._kernels[name]
        except KeyError:
            raise LaunchError(
                f"the program has no kernel {name!r}; it has {', '.join(self._kernels) or 'none'}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def _global(self, symbol: str) -> tuple[int, int]:
        image = self._open()
        if symbol not in image.symbols or image.is_code(image.symbols[symbol][0]):
            raise LaunchError(f"the program has no global {symbol!r}")
        return image.symbols[symbol]

    def read_global(self, symbol: str) -> bytes:
        """The bytes of a global, after everything submitted."""
        address, size_bytes = self._global(symbol)
        self._device.synchronize()
        return bytes(system.ffi.buffer(system.ffi.cast("char *", address), size_bytes))

    def write_global(self, symbol: str, data: bytes) -> None:
        """Overwrite a global from its start; LaunchError for constants and for too many bytes."""
        address, size_bytes = self._global(symbol)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise LaunchError(f"global {symbol!r} takes bytes, not a {type(data).__name__}")
        data = bytes(data)
        if len(data) > size_bytes:
            raise LaunchError(f"{len(data)} bytes for global {symbol!r} of {size_bytes}")
        if not self._open().is_writable(address):
            raise LaunchError(f"global {symbol!r} is constant")
        target: Any = system.ffi.cast("char *", address)
        system.ffi.memmove(target, data, len(data))

    def close(self) -> None:
        """Forget the kernels. Code is unmapped when no launch and no kernel object needs it."""
        self._image = None
        self._kernels = {}
