"""Programs: a code object in VRAM, its kernels and its globals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rawgpu.amd.driver.arguments import MAX_KERNARG_BYTES, Arguments, Grid3
from rawgpu.amd.objects import bundle, codeobject
from rawgpu.amd.objects.codeobject import CodeObject, Global
from rawgpu.amd.objects.metadata import SUFFIX, kernel_rows
from rawgpu.amd.spec.descriptor import (
    DESCRIPTOR_BYTES,
    USER_SGPRS,
    KernelDescriptor,
    Properties,
)
from rawgpu.amd.spec.hardware import CODE_ALIGN_BYTES, HARDWARE, Feature, Hardware
from rawgpu.contract import Argument, Grid, Parameter
from rawgpu.describe.field import DecodeError
from rawgpu.errors import BadElf, DeviceClosed, LaunchError
from rawgpu.launch import grid_blocks
from rawgpu.native.note import NOTE_OWNER as RAWGPU_OWNER
from rawgpu.native.note import NOTE_SECTION, decode_note

if TYPE_CHECKING:
    from rawgpu.amd.driver.device import AmdDevice
    from rawgpu.amd.driver.memory import Block

XNACK_SHIFT, SRAMECC_SHIFT = 8, 10
OFF, ON = 2, 3
"""Of both: 0 not supported, 1 any."""
SRAM_ECC = 1 << 26
"""Bit of a node's `capability`."""
MAX_BLOCK_THREADS = 1024
MAX_GRID = (1 << 32) - 1
"""Work-items in each direction: the packets' fields have 32 bits."""
DYNAMIC_STACK_BYTES, LEAST_STACK_BYTES = 1024, 16
"""For stacks whose depth the compiler could not tell, and for those it says are empty."""
SHAPES = 256
"""Launch shapes that a kernel remembers as checked."""


class Image:
    """A code object at its address. Lives as long as a kernel, or a launch of one, needs it."""

    def __init__(self, device: AmdDevice, parsed: CodeObject) -> None:
        align = max([CODE_ALIGN_BYTES, *(s.align for s in parsed.file.sections if s.flags & 2)])
        # Where nothing but a kernel can write VRAM, the first kernels run from host memory.
        reached = device.node.large_bar or device.copy_engine() is not None
        allocator = device.local if reached else device.host
        self.block: Block = allocator.alloc(parsed.size_bytes + align - CODE_ALIGN_BYTES)
        self.address = -(-self.block.address // align) * align
        self.entries: tuple[tuple[int, str], ...] = ()
        """First instructions of the kernels, with their names."""
        self.parsed = parsed
        device.images.add(self)
        self.data = bytes(parsed.image_at(self.address))
        device.transfer.write(self.block, self.address - self.block.address, memoryview(self.data))


class AmdKernel:
    """An entry point, with what a launch needs to know."""

    def __init__(
        self,
        device: AmdDevice,
        image: Image,
        name: str,
        row: Mapping[str, Any] | None,
        place: Global,
        typed: tuple[Parameter, ...] | None,
    ) -> None:
        self.device = device
        self.image = image
        self.name = name
        self.descriptor_va = image.address + place.offset
        self.descriptor = _descriptor(image, name, place)
        words = self.descriptor
        size = words.kernarg_size
        rows = None
        if row is not None:
            rows, size = _argument_rows(name, row, size)
        self.arguments = Arguments(name, rows, size, typed, device)
        self.pack = self.arguments.pack
        self.signature = self.arguments.signature
        self.entry_va = self.descriptor_va + words.kernel_code_entry_byte_offset
        properties = words.kernel_code_properties
        wave32 = bool(properties & Properties.ENABLE_WAVEFRONT_SIZE32)
        hardware = device.hardware
        if wave32 and Feature.WAVE32 not in hardware.features:
            raise BadElf(f"kernel {name!r} wants waves of 32 lanes, and {hardware.name} has none")
        self.lanes = 32 if wave32 else 64
        self.lds_bytes: int = words.group_segment_fixed_size
        self.private_bytes = _private_bytes(hardware, words)
        limit = row.get(".max_flat_workgroup_size") if row is not None else None
        self.max_threads = limit if isinstance(limit, int) and limit > 0 else MAX_BLOCK_THREADS
        self.max_threads = min(self.max_threads, MAX_BLOCK_THREADS)
        self.user_sgprs = [(flag, n) for flag, n in USER_SGPRS.items() if flag & properties]
        self.preload_dwords = words.kernarg_preload & 0x7F
        self.preload_offset = words.kernarg_preload >> 7
        self._shapes: dict[Any, Grid3] = {}
        self.launches: dict[Any, Any] = {}
        """Encoded launches by shape; `dispatch.py` fills it."""
        self._check(image, hardware)

    def _check(self, image: Image, hardware: Hardware) -> None:
        if self.entry_va % CODE_ALIGN_BYTES:
            raise BadElf(f"kernel {self.name!r} begins at {self.entry_va:#x}, no multiple of 256")
        if not image.address <= self.entry_va < image.address + image.parsed.size_bytes:
            raise BadElf(f"kernel {self.name!r} begins outside the file")
        if self.lds_bytes > hardware.lds_bytes:
            raise BadElf(
                f"kernel {self.name!r} needs {self.lds_bytes} bytes of local memory, and "
                f"{hardware.name} has {hardware.lds_bytes}"
            )
        used = sum(n for _, n in self.user_sgprs) + self.preload_dwords
        if used > hardware.max_user_sgprs:
            raise BadElf(f"kernel {self.name!r} wants {used} user SGPRs")
        if 4 * (self.preload_dwords + self.preload_offset) > max(self.arguments.size_bytes, 0):
            raise BadElf(f"kernel {self.name!r} preloads more arguments than it has")
        registers = hardware.registers
        words = self.descriptor
        try:
            registers.named("COMPUTE_PGM_RSRC1").decode(words.compute_pgm_rsrc1)
            registers.named("COMPUTE_PGM_RSRC2").decode(words.compute_pgm_rsrc2)
            registers.named("COMPUTE_PGM_RSRC3").decode(words.compute_pgm_rsrc3)
        except DecodeError as error:
            raise BadElf(f"kernel {self.name!r}: {error.message}") from None

    def shape(self, grid: Grid, block: Grid) -> Grid3:
        """A launch's shape, checked. LaunchError for what the kernel or the GPU cannot do."""
        if type(grid) is not int and not isinstance(grid, tuple):
            return self._check_shape(grid, block)
        if type(block) is not int and not isinstance(block, tuple):
            return self._check_shape(grid, block)
        known = self._shapes.get((grid, block))
        if known is None:
            known = self._check_shape(grid, block)
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            self._shapes[grid, block] = known
        return known

    def _check_shape(self, grid: Grid, block: Grid) -> Grid3:
        blocks, threads = grid_blocks(grid), grid_blocks(block, "block")
        count = threads[0] * threads[1] * threads[2]
        if count > self.max_threads:
            raise LaunchError(
                f"{self.name}: a block of {count} threads, and the limit is {self.max_threads}"
            )
        for blocks_n, threads_n in zip(blocks, threads, strict=True):
            if blocks_n * threads_n > MAX_GRID:
                raise LaunchError(f"{self.name}: {blocks_n} blocks of {threads_n} threads in a row")
        return Grid3(blocks, threads)

    def __call__(self, *arguments: Argument, grid: Grid = 1, block: Grid = 1) -> None:
        self.device.run(self, arguments, grid, block)

    def __repr__(self) -> str:
        return f"<AmdKernel {self.name} at {self.entry_va:#x}>"


def _descriptor(image: Image, name: str, place: Global) -> KernelDescriptor:
    if place.is_code or place.size_bytes not in (0, DESCRIPTOR_BYTES) or place.offset % 4:
        raise BadElf(f"symbol {name + SUFFIX!r} is no kernel descriptor")
    data = image.data[place.offset : place.offset + DESCRIPTOR_BYTES]
    words = KernelDescriptor.decode(data)
    if len(data) != DESCRIPTOR_BYTES or words.reserved0 or words.reserved3 or any(words.reserved1):
        raise BadElf(f"the descriptor of kernel {name!r} has reserved bits set")
    return words


def _private_bytes(hardware: Hardware, words: KernelDescriptor) -> int:
    """Private memory of a lane. Code that has any is given some, also where it states none."""
    size = words.private_segment_fixed_size
    if words.kernel_code_properties & Properties.USES_DYNAMIC_STACK:
        size += DYNAMIC_STACK_BYTES
    scratch_enable = hardware.registers.named("COMPUTE_PGM_RSRC2")(SCRATCH_EN=1).encode()
    if words.compute_pgm_rsrc2 & scratch_enable:
        size = max(size, LEAST_STACK_BYTES)
    return size


def _argument_rows(name: str, row: Mapping[str, Any], size: int) -> tuple[list[Any], int]:
    rows = row.get(".args", [])
    stated = row.get(".kernarg_segment_size", size)
    if not isinstance(rows, list) or not all(isinstance(item, dict) for item in rows):
        raise BadElf(f"metadata of kernel {name!r} has no list of arguments")
    if not isinstance(stated, int) or not 0 <= max(size, stated) <= MAX_KERNARG_BYTES:
        raise BadElf(f"kernel {name!r} has {stated!r} bytes of arguments")
    return rows, max(size, stated)


class AmdProgram:
    """A loaded code object."""

    def __init__(self, device: AmdDevice, data: bytes) -> None:
        self._device = device
        if bundle.is_bundle(data):
            data = bundle.choose(data, device.hardware.name)
        parsed = codeobject.parse(data)
        check_target(device, parsed.file.flags)
        rows, typed = kernel_rows(parsed.file), _signatures(parsed)
        names = [n[: -len(SUFFIX)] for n in parsed.globals if n.endswith(SUFFIX)]
        missing = [name for name in rows if name not in names]
        if missing:
            raise BadElf(f"metadata describes kernel {missing[0]!r}, which has no descriptor")
        self._image: Image | None = Image(device, parsed)
        self._kernels = {
            name: AmdKernel(
                device,
                self._image,
                name,
                rows.get(name),
                parsed.globals[name + SUFFIX],
                typed.get(name),
            )
            for name in sorted(names)
        }
        self._image.entries = tuple((k.entry_va, k.name) for k in self._kernels.values())

    def __repr__(self) -> str:
        if self._image is None:
            return "<AmdProgram (closed)>"
        return f"<AmdProgram on {self._device.name}: {', '.join(self._kernels) or 'no kernel'}>"

    def _open(self) -> Image:
        self._device.check_open()
        if self._image is None:
            raise DeviceClosed("this program was closed")
        return self._image

    def __getitem__(self, name: str) -> AmdKernel:
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

    def _global(self, symbol: str) -> tuple[Block, int, Global]:
        image = self._open()
        found = image.parsed.globals.get(symbol)
        if found is None or found.is_code or symbol.endswith(SUFFIX):
            raise LaunchError(f"the program has no global {symbol!r}")
        return image.block, image.address - image.block.address + found.offset, found

    def read_global(self, symbol: str) -> bytes:
        """The bytes of a global, after everything submitted."""
        block, offset, found = self._global(symbol)
        return self._device.transfer.read(block, offset, found.size_bytes)

    def write_global(self, symbol: str, data: bytes) -> None:
        """Overwrite a global from its start; LaunchError for constants and for too many bytes."""
        block, offset, found = self._global(symbol)
        if len(data) > found.size_bytes:
            raise LaunchError(f"{len(data)} bytes for global {symbol!r} of {found.size_bytes}")
        if not found.writable:
            raise LaunchError(f"global {symbol!r} is constant")
        self._device.synchronize()
        self._device.transfer.write(block, offset, memoryview(data))

    def close(self) -> None:
        """Forget the kernels. Memory is given back when no launch and no kernel needs it."""
        self._image = None
        self._kernels = {}


PROCESSORS = {row.mach: row.name for row in HARDWARE.values()}
"""Names by the numbers that code objects have."""


def check_target(device: AmdDevice, flags: int) -> None:
    """Raise BadElf for code of another processor, or of a variant this GPU does not run."""
    hardware, mach = device.hardware, flags & 0xFF
    if mach != hardware.mach and mach not in hardware.generic:
        raise BadElf(
            f"code for {PROCESSORS.get(mach, f'processor {mach:#x}')}, "
            f"and {device.name} is {hardware.name}",
            hint=f"compile with -mcpu={hardware.name}",
        )
    if flags >> XNACK_SHIFT & 3 == ON:
        raise BadElf("code for retried page faults (xnack+), which are off", hint="xnack-")
    ecc, has_ecc = flags >> SRAMECC_SHIFT & 3, bool(device.node["capability"] & SRAM_ECC)
    if (ecc == ON and not has_ecc) or (ecc == OFF and has_ecc):
        raise BadElf(f"code for sramecc{'+' if ecc == ON else '-'}, which this GPU is not")


def _signatures(parsed: CodeObject) -> dict[str, tuple[Parameter, ...]]:
    """Typed signatures, where the file has our own note."""
    found = {}
    for section in parsed.file.sections:
        if section.name == NOTE_SECTION and RAWGPU_OWNER in bytes(section.data[:64]):
            for signature in decode_note(bytes(section.data)):
                found[signature.name] = signature.parameters
    return found
