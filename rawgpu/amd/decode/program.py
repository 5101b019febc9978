"""Code objects taken apart for reading: stretches of code with names, kernels, descriptors.

`open_programs` takes what compilers write (relocatable and linked ELF, offload bundles) and
`raw_program` bytes without any file around them. Nothing is relocated: what a relocation would
change is said by name. Next: `listing.py`, which prints it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rawgpu.amd.objects import bundle, elffile
from rawgpu.amd.objects.elffile import ElfFile, Sec, Sym
from rawgpu.amd.objects.metadata import SUFFIX, kernel_rows
from rawgpu.amd.objects.relocate import KINDS
from rawgpu.amd.spec.descriptor import DESCRIPTOR_BYTES, KernelDescriptor, Properties
from rawgpu.amd.spec.generations import GENERATIONS, Machine
from rawgpu.amd.spec.hardware import BY_NAME, Hardware
from rawgpu.errors import BadElf, BadFile, UnsupportedDevice
from rawgpu.native.elf import SHF_EXECINSTR, SHN_LORESERVE, SHT_NOBITS

MACH_MASK = 0xFF
"""Of a code object's e_flags: which processor."""


@dataclass(frozen=True)
class Code:
    """A stretch of machine code, with what is known of its addresses."""

    section: str
    address: int
    data: memoryview
    labels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    """Where a symbol ends, by name; a symbol without size has no end."""
    relocations: Mapping[int, str] = field(default_factory=dict)
    waves: Mapping[int, int] = field(default_factory=dict)
    """Lanes of the code that begins at an address, for kernels."""
    wave: int = 32
    """Lanes of all other code."""


@dataclass(frozen=True)
class KernelFacts:
    """A kernel: its descriptor, and its row of the metadata where the file has one."""

    name: str
    descriptor: KernelDescriptor
    row: Mapping[str, Any]

    @property
    def lanes(self) -> int:
        wide = self.descriptor.kernel_code_properties & Properties.ENABLE_WAVEFRONT_SIZE32
        return 32 if wide else 64


@dataclass(frozen=True)
class Listed:
    """A program for one processor."""

    target: str
    hardware: Hardware
    machine: Machine
    version: int
    """Of the code object; 0 for bytes without a file."""
    linked: bool
    codes: tuple[Code, ...]
    kernels: tuple[KernelFacts, ...]


def rows_of(arch: str) -> tuple[Hardware, Machine]:
    """A processor's rows. UnsupportedDevice with the names that there are."""
    if arch not in BY_NAME or arch not in GENERATIONS:
        names = ", ".join(name for name in GENERATIONS if name in BY_NAME)
        raise UnsupportedDevice(f"no row describes {arch!r}; there are: {names}")
    return BY_NAME[arch], GENERATIONS[arch]


def is_program(data: bytes) -> bool:
    """Whether `data` begins as a code object for an AMD GPU, or a bundle, does."""
    machine = int.from_bytes(data[18:20], "little")
    return is_file(data) and (machine == elffile.EM_AMDGPU or bundle.is_bundle(data))


def is_file(data: bytes) -> bool:
    """Whether `data` begins as any ELF, or a bundle, does: it is not bare machine code."""
    return data.startswith(b"\x7fELF") or bundle.is_bundle(data)


def open_programs(data: bytes, arch: str | None = None) -> list[Listed]:
    """The programs in a file: one, or those of a bundle; only that for `arch` where it is given.

    BadElf for what is damaged, hostile or not AMD's; UnsupportedDevice for unknown processors.
    """
    if not bundle.is_bundle(data):
        listed = _from_elf(data, "")
        if arch is not None and rows_of(arch)[0] is not listed.hardware:
            raise BadElf(f"this is code for {listed.hardware.name}, not for {arch}")
        return [listed]
    if arch is not None:
        return [_from_elf(bundle.choose(data, arch), arch)]
    found = [
        _from_elf(image, target)
        for target, image in bundle.entries(data).items()
        if bundle.processor(target)
    ]
    if not found:
        raise BadElf("the bundle has no code for an AMD GPU")
    return found


def raw_program(data: bytes, arch: str, *, wave: int | None = None, address: int = 0) -> Listed:
    """Bytes that are machine code and nothing else."""
    hardware, machine = rows_of(arch)
    lanes = machine.waves[0] if wave is None else wave
    if lanes not in machine.waves:
        raise UnsupportedDevice(f"{arch} has no waves of {lanes} lanes")
    code = Code("code", address, memoryview(data), wave=lanes)
    return Listed("", hardware, machine, 0, False, (code,), ())


def _from_elf(data: bytes, target: str) -> Listed:
    file = elffile.read(memoryview(data))
    hardware = _hardware(file.flags & MACH_MASK)
    machine = GENERATIONS[hardware.name]
    kernels = tuple(_kernels(file))
    lanes = {kernel.name: kernel.lanes for kernel in kernels}
    for kernel in kernels:
        if kernel.lanes not in machine.waves:
            raise BadElf(f"kernel {kernel.name!r}: {hardware.name} has no waves of its size")
    codes = tuple(_codes(file, lanes, machine.waves[0]))
    name = target or f"amdgcn-amd-amdhsa--{hardware.name}"
    return Listed(name, hardware, machine, file.version, file.linked, codes, kernels)


def _hardware(mach: int) -> Hardware:
    for row in BY_NAME.values():
        if row.mach == mach or mach in row.generic:
            return row
    raise UnsupportedDevice(f"code for processor {mach:#x}, which no row describes")


def _symbols(file: ElfFile) -> Iterator[Sym]:
    """Named symbols with a section, each once."""
    seen = set()
    for symbol in (*file.symbols, *file.dynamic_symbols):
        key = symbol.name, symbol.section, symbol.value
        if symbol.named and 0 < symbol.section < SHN_LORESERVE and key not in seen:
            seen.add(key)
            if symbol.section < len(file.sections):
                yield symbol


def _codes(file: ElfFile, lanes: Mapping[str, int], default: int) -> Iterator[Code]:
    by_section: dict[int, list[Sym]] = {}
    for symbol in _symbols(file):
        by_section.setdefault(symbol.section, []).append(symbol)
    usual = next(iter(lanes.values()), default)
    for section in file.sections:
        if not section.flags & SHF_EXECINSTR or section.type == SHT_NOBITS or not section.data:
            continue
        labels: dict[int, tuple[str, ...]] = {}
        ends: dict[str, int] = {}
        waves: dict[int, int] = {}
        for symbol in by_section.get(section.index, ()):
            labels[symbol.value] = (*labels.get(symbol.value, ()), symbol.name)
            if symbol.size_bytes:
                ends[symbol.name] = symbol.value + symbol.size_bytes
            waves[symbol.value] = lanes.get(symbol.name, usual)
        yield Code(
            section.name,
            section.address,
            section.data,
            labels,
            ends,
            dict(_relocations(file, section)),
            waves,
            usual,
        )


def _relocations(file: ElfFile, section: Sec) -> Iterator[tuple[int, str]]:
    for rela in file.relocations.get(section.index, ()):
        kind = KINDS.get(rela.kind)
        name = file.symbols[rela.symbol].name if rela.symbol < len(file.symbols) else ""
        addend = f"{rela.addend:+#x}" if rela.addend else ""
        yield rela.offset, f"{kind.name if kind else rela.kind} {name}{addend}"


def _kernels(file: ElfFile) -> Iterator[KernelFacts]:
    rows = kernel_rows(file)
    names = set()
    for symbol in _symbols(file):
        if not symbol.name.endswith(SUFFIX) or symbol.name in names:
            continue
        names.add(symbol.name)
        section = file.sections[symbol.section]
        at = symbol.value - section.address
        data = bytes(section.data[max(at, 0) : at + DESCRIPTOR_BYTES])
        if at < 0 or len(data) != DESCRIPTOR_BYTES:
            raise BadElf(f"symbol {symbol.name!r} is no kernel descriptor")
        name = symbol.name[: -len(SUFFIX)]
        yield KernelFacts(name, read_descriptor(data, name), rows.get(name, {}))


def read_descriptor(data: bytes, name: str) -> KernelDescriptor:
    """The descriptor in 64 bytes. BadFile where reserved bits are set."""
    if len(data) != DESCRIPTOR_BYTES:
        raise BadFile(f"a kernel descriptor has {DESCRIPTOR_BYTES} bytes, not {len(data)}")
    words = KernelDescriptor.decode(data)
    if words.reserved0 or words.reserved3 or any(words.reserved1):
        raise BadElf(f"the descriptor of kernel {name!r} has reserved bits set")
    return words
