"""The words for matrix multiplies: an instruction's shape, types and modifiers as a `Product`."""

from __future__ import annotations

from typing import Any

from rawgpu.amd.spec.isa import matrix
from rawgpu.amd.spec.isa.formats import LINEAGE
from rawgpu.amd.spec.isa.small_floats import small_floats
from rawgpu.amd.virtual.wave_matrix import WIDTHS, Product, multiply
from rawgpu.amd.virtual.wave_special import SpecialWords
from rawgpu.virtual.meaning import NotInEngine, Raw, Typed

SMALL = ("fp8", "bf8", "fp6", "bf6", "fp4")
SCALED_KINDS = SMALL
"""By the type code of `cbsz` and `blgp` in scaled multiplies."""


class MatrixWords(SpecialWords):
    """`wmma`, `swmmac`, `mfma`, `smfmac`, `mfma_scaled`. Results are written past EXEC."""

    def word_wmma(self, a: Typed, b: Typed, c: Typed, *rest: Typed) -> Typed:
        ab, cd, m, n, k = (value.raw for value in rest)
        return self._product(self._wmma(ab, cd, (m, n, k, 1), sparse=False), a, b, c, None)

    def word_swmmac(self, a: Typed, b: Typed, d: Typed, index: Typed, *rest: Typed) -> Typed:
        ab, cd, m, n, k = (value.raw for value in rest)
        return self._product(self._wmma(ab, cd, (m, n, k, 1), sparse=True), a, b, d, index)

    def word_mfma(self, a: Typed, b: Typed, c: Typed, *rest: Typed) -> Typed:
        ab, cd, m, n, k, blocks = (value.raw for value in rest)
        return self._product(self._mfma(ab, cd, (m, n, k, blocks), sparse=False), a, b, c, None)

    def word_smfmac(self, a: Typed, b: Typed, d: Typed, index: Typed, *rest: Typed) -> Typed:
        ab, cd, m, n, k = (value.raw for value in rest)
        return self._product(self._mfma(ab, cd, (m, n, k, 1), sparse=True), a, b, d, index)

    def word_mfma_scaled(self, a: Typed, b: Typed, c: Typed, *rest: Typed) -> Typed:
        scale_a, scale_b, (m, n, k) = rest[0], rest[1], (value.raw for value in rest[2:])
        get = self.instruction.get
        kinds = tuple(SCALED_KINDS[get(name)] for name in ("cbsz", "blgp"))
        facts = self._facts((kinds[0], kinds[1]), "f32", (m, n, k, 1), sparse=False)
        picks = tuple(get("op_sel") >> at & 1 | (get("op_sel_hi") >> at & 1) << 1 for at in (0, 1))
        if scale_a.kind == "n":
            return self._product(Product(**facts), a, b, c, None)
        product = Product(**facts, scaled=(picks[0], picks[1]))
        return self._product(product, a, b, c, None, (scale_a, scale_b))

    # Descriptions.

    def _facts(
        self, kinds: tuple[str, str], cd: str, shape: tuple[int, int, int, int], *, sparse: bool
    ) -> dict[str, Any]:
        lineage, wave = LINEAGE[self.facts.family], self.facts.wave
        formats = small_floats(self.facts.family)
        small = [formats[kind] if kind in SMALL else None for kind in kinds]
        bits = [s.bits if s else WIDTHS[kind] for s, kind in zip(small, kinds, strict=True)]
        try:
            places = matrix.layout(lineage, wave, shape, bits[0], wide=cd == "f64", sparse=sparse)
        except KeyError as error:
            raise NotInEngine(f"{self.instruction.name}: {error.args[0]}") from None
        held = 1 << len(places.a.slot)
        return {
            "shape": shape, "kinds": kinds, "small": tuple(small), "layout": places, "wave": wave,
            "added": "f32" if cd == "bf16f32" else cd,
            "result": "bf16" if cd == "bf16f32" else cd,
            "sums": matrix.sums(lineage, kinds[0], held), "saturate": self.saturate,
        }  # fmt: skip

    def _kinds(self, ab: str) -> tuple[str, str]:
        first, _, second = ab.partition("_")
        return first, second or first

    def _wmma(self, ab: str, cd: str, shape: tuple[int, int, int, int], *, sparse: bool) -> Product:
        get, kinds = self.instruction.get, self._kinds(ab)
        neg, neg_hi, op_sel = get("neg"), get("neg_hi"), get("op_sel")
        facts = self._facts(kinds, cd, shape, sparse=sparse)
        integer = cd == "i32"
        if sparse:
            stored = 1 << len(facts["layout"].a.slot)
            facts["index_shift"] = 2 * stored * (op_sel & 3)
        return Product(
            **facts,
            signed=(bool(neg & 1), bool(neg & 2)),
            negate_even=0 if integer else neg & 3,
            negate_odd=0 if integer else neg_hi & 3,
            negate_added=bool(neg & 4) and not sparse,
            absolute_added=bool(neg_hi & 4) and not sparse,
            high_half=(op_sel >> 2 & 1) * 3,
        )

    def _mfma(self, ab: str, cd: str, shape: tuple[int, int, int, int], *, sparse: bool) -> Product:
        get = self.instruction.get
        facts = self._facts(self._kinds(ab), cd, shape, sparse=sparse)
        pattern = get("blgp")
        if cd == "f64" and matrix.F64_SIGNS & set(LINEAGE[self.facts.family]):
            return Product(
                **facts, negate_even=pattern & 3, negate_odd=pattern & 3,
                negate_added=bool(pattern & 4),
            )  # fmt: skip
        if sparse:
            stored = 1 << len(facts["layout"].a.slot)
            shift = 0 if get("cbsz") else 2 * stored * get("abid")
            return Product(**facts, index_shift=shift)
        return Product(**facts, broadcast=(get("cbsz"), get("abid")), lanes=pattern)

    # Computing.

    def _rows(self, value: Typed, count: int) -> list[Raw]:
        return [self.machine.spread(word) for word in self.words_of(value, count)]

    def _matrix_rows(self, role: str, value: Typed) -> list[Raw]:
        """All registers of a matrix operand; a constant stands for every element."""
        operand = self.instruction.operands[role]
        type_ = self.instruction.form.types[role]
        if operand.kind in ("constant", "literal") and type_.element == 64:
            words = (operand.value & 0xFFFFFFFF, operand.value >> 32)
            pair = [self.ops.const("u", 32, word) for word in words]
            return [self.machine.spread(word) for word in pair] * (type_.bits // 64)
        return self._rows(value, operand.registers)

    def _product(
        self,
        product: Product,
        a: Typed,
        b: Typed,
        added: Typed,
        index: Typed | None,
        scales: tuple[Typed, Typed] | None = None,
    ) -> Typed:
        target = self.instruction.operands["d"]
        from_d = index is not None
        groups = [
            self._matrix_rows("a", a),
            self._matrix_rows("b", b),
            self._matrix_rows("d" if from_d else "c", added),
            self._rows(self.fetched(target), target.registers),
            [] if index is None else self._rows(index, -(-index.bits // 32)),
            *([self._rows(scale, 1) for scale in scales] if scales else ([], [])),
        ]
        words = self.machine.on_rows(
            lambda a, b, c, old, index, x, y: multiply(product, a, b, c, old, index, (x, y)),
            groups,
        )
        base = target.index + (256 if target.kind == "agpr" else 0)
        for number, word in enumerate(words):
            self.machine.write_v(base + number, word, None)
        if len(words) == 1:
            return Typed("u", 32, words[0])
        return Typed("w", 32 * len(words), words)
