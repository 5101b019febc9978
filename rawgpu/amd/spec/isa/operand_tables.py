"""Interned operands: for each type and register file, a list indexed by the field's code."""

from __future__ import annotations

from rawgpu.amd.spec.isa.machine import Table
from rawgpu.amd.spec.isa.operands import (
    LITERAL,
    SCALARS,
    Operand,
    OperandType,
    constant,
    operand_type,
    scalar_table,
    vector_table,
)

LITERAL_MARK = Operand("literal", 0, 32, 0, None, "", LITERAL)
"""Stands in the tables for a literal, which each instruction makes for itself."""

LITERAL64_MARK = Operand("literal", 0, 64, 0, None, "", 254)
"""The same for a literal of 64 bits (gfx1250)."""


class OperandTables:
    """The tables of one family and wave size.

    Places: `vgpr`, `sgpr` (a destination or base), `agpr`, `src` (9 bits: scalars, constants,
    vectors), `ssrc` (the 8 bits of it that are no vector), `agpr_src` (an accumulation register in
    a source field), `av8` and `av9` (vector or accumulation, by one more bit). Half styles of
    16-bit operands: `code` (bit 7 of the vector's number is the half), `extra` (one more bit),
    `none`.
    """

    def __init__(self, lineage: tuple[str, ...], wave: int) -> None:
        self.wave = wave
        self.scalars = next(SCALARS[g] for g in lineage if g in SCALARS)
        self.wide_literals = "gfx1250" in lineage
        self._tables: dict[tuple[str, str, str], Table] = {}

    def scalar(self, code: int) -> Operand:
        """The single scalar register with this number."""
        operand = self.get("sgpr", operand_type("b32", self.wave))[code]
        assert operand is not None, code
        return operand

    def vcc(self) -> Operand:
        operand = self.get("sgpr", operand_type("m", self.wave))[106]
        assert operand is not None
        return operand

    def get(self, place: str, type_: OperandType, half_style: str = "none") -> Table:
        key = (place, type_.token, half_style)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = self._build(place, type_, half_style)
        return found

    def _build(self, place: str, type_: OperandType, half_style: str) -> Table:
        low = 0 if type_.is_half else None
        if place == "sgpr":
            return scalar_table(self.scalars, type_, low)
        vectors = vector_table("v", type_, low)
        if half_style == "code":
            high = vector_table("v", type_, 1)
            vectors = vectors[:128] + high[:128]
            for code, operand in enumerate(vectors[128:], 128):
                if operand is not None:
                    operand.code = code
        if place in ("av8", "av9"):
            accumulators = vector_table("a", type_, low)
            if place == "av8":
                return [*vectors, *accumulators]
            sources = self._sources(type_, low)
            return [*sources, *vectors, *sources, *accumulators]
        if place == "agpr":
            return vector_table("a", type_, low)
        if place == "vgpr":
            return [*vectors, *vector_table("v", type_, 1)] if half_style == "extra" else vectors
        if place == "agpr_src":
            return [*[None] * 256, *vector_table("a", type_, low)]
        table = self._sources(type_, low)
        if place == "ssrc":
            return table
        table = [*table, *vectors]
        if half_style == "extra":
            table += [*self._sources(type_, 1), *vector_table("v", type_, 1)]
        return table

    def _sources(self, type_: OperandType, half: int | None) -> list[Operand | None]:
        """The 256 source codes that are no vector register."""
        table = scalar_table(self.scalars, type_, half)
        for code in range(128, 256):
            table.append(LITERAL_MARK if code == LITERAL else constant(code, type_))
        if self.wide_literals:
            table[254] = LITERAL64_MARK
        return table
