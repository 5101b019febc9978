"""A kernel's arguments: where each lies in the kernarg segment, and how a call's values get there.

Metadata gives an argument's size, and whether it is a pointer; its type where the file has a
`.note.rawgpu` too, or the compiler wrote down the type's name, as OpenCL's do. A plain number for a
scalar of unknown type is refused: it could be meant as an int or as a float.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rawgpu.amd.driver.typenames import element_of, may_be, scalar_of
from rawgpu.contract import Argument, Binding, Parameter
from rawgpu.errors import BadElf, LaunchError
from rawgpu.launch import POINTER, ArgumentPacker, DeviceArray, Reach, scalar_packer

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_POINTERS = ("global_buffer", "image", "sampler", "pipe", "queue")
MAX_KERNARG_BYTES = 1 << 16


@dataclass(frozen=True)
class Place:
    """One argument in the segment."""

    offset: int
    size_bytes: int


@dataclass(frozen=True)
class Grid3:
    """A launch's shape: blocks, and threads of a block."""

    blocks: tuple[int, int, int]
    block: tuple[int, int, int]


Hidden = Callable[["Grid3", int], int]
"""The value of a hidden argument, from the launch's shape and the queue's address."""

HIDDEN: dict[str, Hidden] = {
    "hidden_block_count_x": lambda g, q: g.blocks[0],
    "hidden_block_count_y": lambda g, q: g.blocks[1],
    "hidden_block_count_z": lambda g, q: g.blocks[2],
    "hidden_group_size_x": lambda g, q: g.block[0],
    "hidden_group_size_y": lambda g, q: g.block[1],
    "hidden_group_size_z": lambda g, q: g.block[2],
    "hidden_remainder_x": lambda g, q: 0,
    "hidden_remainder_y": lambda g, q: 0,
    "hidden_remainder_z": lambda g, q: 0,
    "hidden_global_offset_x": lambda g, q: 0,
    "hidden_global_offset_y": lambda g, q: 0,
    "hidden_global_offset_z": lambda g, q: 0,
    "hidden_grid_dims": lambda g, q: dimensions(g),
    "hidden_queue_ptr": lambda g, q: q,
    "hidden_private_base": lambda g, q: 0,  # read by gfx8 only
    "hidden_shared_base": lambda g, q: 0,
    "hidden_none": lambda g, q: 0,
    "hidden_printf_buffer": lambda g, q: 0,
    "hidden_hostcall_buffer": lambda g, q: 0,
    "hidden_multigrid_sync_arg": lambda g, q: 0,
    "hidden_heap_v1": lambda g, q: 0,
    "hidden_default_queue": lambda g, q: 0,
    "hidden_completion_action": lambda g, q: 0,
    "hidden_dynamic_lds_size": lambda g, q: 0,
}
"""Hidden arguments of code objects 4 to 6. Grids are whole blocks, so remainders are 0; what needs
a host service (printf, hostcall, device heap) gets 0, which device libraries take as absent."""


def dimensions(grid: Grid3) -> int:
    """How many sizes count: 1 to 3."""
    for number in (2, 1):
        if grid.blocks[number] > 1 or grid.block[number] > 1:
            return number + 1
    return 1


class Arguments:
    """The kernarg segment of a kernel."""

    def __init__(
        self,
        kernel: str,
        rows: Sequence[Mapping[str, Any]] | None,
        size_bytes: int,
        typed: tuple[Parameter, ...] | None,
        device: Reach | None = None,
    ) -> None:
        self.kernel = kernel
        self.size_bytes = size_bytes
        self.hidden: list[tuple[Place, Hidden]] = []
        self.places: list[Place] = []
        self.signature: tuple[Parameter, ...] | None = None
        if rows is None:
            self._packer = ArgumentPacker(kernel, None, device)
            return
        parameters: list[Parameter] = []
        self._elements: list[str | None] = []
        """By position: what a pointer leads to, where its type's name says it."""
        for number, row in enumerate(rows):
            self._row(number, row, parameters)
        if typed is not None:
            self._agree(typed)
            parameters = list(typed)
        self.signature = tuple(parameters)
        packer = _Packer(kernel, self.signature, self.places, device)
        packer.know(self._elements, typed is not None)
        self._packer = packer
        self._layout, self._order = _layout(self.places)

    def _row(self, number: int, row: Mapping[str, Any], parameters: list[Parameter]) -> None:
        title = f"metadata of kernel {self.kernel!r}, argument {number}"
        kind, offset, size = row.get(".value_kind"), row.get(".offset"), row.get(".size")
        if not isinstance(kind, str) or not isinstance(offset, int) or not isinstance(size, int):
            raise BadElf(f"{title}: no kind, offset or size")
        if offset < 0 or size <= 0 or offset + size > self.size_bytes:
            raise BadElf(f"{title}: {size} bytes at {offset} of {self.size_bytes}")
        place = Place(offset, size)
        if kind in HIDDEN:
            if size not in _CODES:
                raise BadElf(f"{title}: a hidden argument of {size} bytes")
            self.hidden.append((place, HIDDEN[kind]))
            return
        name = row.get(".name")
        name = name if isinstance(name, str) and name else f"argument{number}"
        if kind in _POINTERS:
            if size != 8:
                raise BadElf(f"{title}: a pointer of {size} bytes")
            writes = row.get(".actual_access", row.get(".access")) != "read_only"
            parameters.append(Parameter(name, POINTER, writes))
            self._elements.append(element_of(row.get(".type_name")))
        elif kind == "by_value":
            dtype = scalar_of(row.get(".type_name"), size)
            parameters.append(Parameter(name, dtype or f"bytes{size}"))
            self._elements.append(None)
        else:
            raise BadElf(f"{title} is a {kind}, which is not supported")
        self.places.append(place)

    def _agree(self, typed: tuple[Parameter, ...]) -> None:
        """The note's types must have the metadata's sizes."""
        sizes = [8 if p.dtype == POINTER else _size_of(p.dtype) for p in typed]
        if sizes != [place.size_bytes for place in self.places]:
            raise BadElf(f"note and metadata disagree about the arguments of {self.kernel!r}")

    def pack(self, arguments: Sequence[Argument]) -> list[Any]:
        """Each argument as a word, bytes, or the binding that will give it."""
        words = self._packer(arguments)
        if self.signature is None and 8 * len(words) > self.size_bytes:
            raise LaunchError(
                f"{self.kernel} has {self.size_bytes} bytes of arguments, not {8 * len(words)}"
            )
        return words

    def pack_one(self, position: int, value: Argument) -> Any:
        """The word of one argument."""
        return self._packer.one(position, value)

    def place(self, position: int) -> Place:
        """Where an argument lies. Without metadata each takes 8 bytes."""
        return self.places[position] if self.signature is not None else Place(8 * position, 8)

    def template(self, grid: Grid3, queue_va: int) -> bytes:
        """The segment with hidden arguments filled in, and zeros elsewhere."""
        image = bytearray(self.size_bytes)
        for place, value in self.hidden:
            end = place.offset + place.size_bytes
            image[place.offset : end] = value(grid, queue_va).to_bytes(place.size_bytes, "little")
        return bytes(image)

    def store(self, target: memoryview, words: Sequence[Any]) -> None:
        """Put packed words into a segment."""
        if self.signature is None:
            struct.pack_into(f"<{len(words)}Q", target, 0, *words)
        elif self.places:
            self._layout.pack_into(target, 0, *[words[i] for i in self._order])


def word_bytes(word: int | bytes, size_bytes: int) -> bytes:
    """A packed word as it stands in memory."""
    return word if isinstance(word, bytes) else word.to_bytes(size_bytes, "little")


def _size_of(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _layout(places: Sequence[Place]) -> tuple[struct.Struct, list[int]]:
    """A struct that stores all arguments at once, and the order in which it takes them."""
    order = sorted(range(len(places)), key=lambda i: places[i].offset)
    text, at = "<", 0
    for i in order:
        place = places[i]
        if place.offset < at:
            raise BadElf("metadata has arguments that overlap")
        gap = place.offset - at
        text += (f"{gap}x" if gap else "") + _CODES.get(place.size_bytes, f"{place.size_bytes}s")
        at = place.offset + place.size_bytes
    return struct.Struct(text), order


class _Packer(ArgumentPacker):
    """As its parent, and takes scalars whose type nobody knows."""

    def __init__(
        self,
        kernel: str,
        signature: tuple[Parameter, ...],
        places: Sequence[Place],
        device: Reach | None,
    ) -> None:
        super().__init__(kernel, signature, device)
        self._packers = tuple(
            _bytes_packer(place.size_bytes) if parameter.dtype.startswith("bytes") else packer
            for parameter, place, packer in zip(signature, places, self._packers, strict=True)
        )

    def know(self, elements: Sequence[str | None], noted: bool) -> None:
        """Check arrays against what pointers lead to; unless `noted`, be free about signs.

        The scalars' types are the compiler's names then, and C takes an int for an unsigned one.
        """
        rows = zip(self._packers, self.signature or (), elements, strict=True)
        self._packers = tuple(
            _array_packer(packer, element)
            if element is not None
            else packer
            if noted or row.dtype == POINTER or row.dtype.startswith("bytes")
            else _scalar_packer(row.dtype)
            for packer, row, element in rows
        )


def _array_packer(packer: Callable[[Any], Any], element: str) -> Callable[[Any], Any]:
    known: set[np.dtype[Any]] = set()

    def pack(value: Any) -> Any:
        if type(value) is DeviceArray and value.dtype not in known:
            if not may_be(value.dtype, element):
                raise LaunchError(
                    f"an array of {value.dtype} for a pointer to {element}",
                    hint="x.buffer, if its bytes are meant",
                )
            known.add(value.dtype)
        return packer(value)

    return pack


def _scalar_packer(dtype: str) -> Callable[[Any], Any]:
    plain, raw = scalar_packer(dtype), _bytes_packer(np.dtype(dtype).itemsize)
    whole = np.dtype(dtype).kind in "iu"

    def pack(value: Any) -> Any:
        as_it_is = isinstance(value, (bytes, bytearray))
        return (raw if as_it_is or (whole and isinstance(value, np.integer)) else plain)(value)

    return pack


def _bytes_packer(size_bytes: int) -> Callable[[Any], Any]:
    def pack(value: Any) -> Any:
        if isinstance(value, Binding):
            if size_bytes != 8:
                raise LaunchError(f"a binding has 8 bytes, this argument {size_bytes}")
            return value
        if isinstance(value, np.generic):
            raw = value.tobytes()
        elif isinstance(value, (bytes, bytearray)):
            raw = bytes(value)
        elif isinstance(value, (int, float)):
            raise LaunchError(
                f"plain number {value!r}, and the file gives {size_bytes} bytes and no type",
                hint=f"np.int{8 * size_bytes}({value!r}) or np.float{8 * size_bytes}({value!r})",
            )
        else:
            raise LaunchError(f"a {type(value).__name__} for a value of {size_bytes} bytes")
        if len(raw) != size_bytes:
            raise LaunchError(f"{len(raw)} bytes for a value of {size_bytes}")
        return raw if size_bytes not in _CODES else int.from_bytes(raw, "little")

    return pack
