"""The points of a tile: its unrolled and vector loops written out.

A `Point` has one coordinate for each tile loop: an int for an unrolled loop, a `Piece` for the
vector loop. A vector loop of any extent is cut into full vectors and a rest, which is one masked
vector where the machine has masks and vectors of halving length where it has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from frontend.loops import nest as ln


@dataclass(frozen=True)
class Piece:
    """Lanes of the vector loop from `start` on; only the first `active` of them exist."""

    start: int
    lanes: int
    active: int


Coordinate: TypeAlias = "int | Piece"
Point: TypeAlias = tuple[Coordinate, ...]


def pieces(extent: int, lanes: int, *, masked: bool) -> Iterator[Piece]:
    """Cut a vector loop of `extent`."""
    start = 0
    while extent - start >= lanes:
        yield Piece(start, lanes, lanes)
        start += lanes
    rest = extent - start
    if rest and masked and (rest > 1 or start):
        yield Piece(start, lanes, rest)
        return
    while rest:
        lanes //= 2
        if rest >= lanes:
            yield Piece(start, lanes, lanes)
            start += lanes
            rest -= lanes


def points(
    loops: ln.Loops, tile: Sequence[ln.Loop], extents: dict[str, int], lanes: int, *, masked: bool
) -> list[Point]:
    """Every point of the tile, in loop order, the last loop fastest. `lanes`: of a full vector."""
    found: list[Point] = []

    def visit(at: int, extents: dict[str, int], point: Point) -> None:
        if at == len(tile):
            found.append(point)
            return
        loop = tile[at]
        name = loops.outer_of.get(loop.name)
        if name is not None and name in extents and loop.name not in extents:
            _, inner, factor = loops.splits[name]
            full, rest = divmod(extents[name], factor)
            for i in range(full):
                visit(at + 1, extents | {inner: factor}, (*point, i))
            if rest:
                visit(at + 1, extents | {inner: rest}, (*point, full))
            return
        extent = extents.get(loop.name, loop.var.extent)
        if loop.kind is ln.Kind.VECTOR:
            for piece in pieces(extent, lanes, masked=masked):
                visit(at + 1, extents, (*point, piece))
            return
        for i in range(extent):
            visit(at + 1, extents, (*point, i))

    visit(0, extents, ())
    return found
