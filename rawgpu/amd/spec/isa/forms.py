"""How each form of a row is laid out: which bits of the word choose which operand.

`Layout.complete` gives a form its slots; `variant` makes the form that a literal, DPP, SDWA, an
absent base register or an operand width asks for. `decoder.py` finds and reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rawgpu.amd.spec.isa import formats
from rawgpu.amd.spec.isa.machine import Form, Slot
from rawgpu.amd.spec.isa.notation import BANKS, OP_SEL_BIT, PLACES, parse_operands
from rawgpu.amd.spec.isa.operand_tables import OperandTables
from rawgpu.amd.spec.isa.operands import OperandType, operand_type
from rawgpu.describe.encoding import Encoding, Instruction

Pick = Callable[[int], str | None]

F8F6F4_REGISTERS = (8, 8, 6, 6, 4, 8, 8, 8)
"""Registers of 32 values, by the type that `cbsz` or `blgp` chooses: fp8, bf8, fp6, bf6, fp4."""

_MEMORY = frozenset(("ds", "flat", "global", "scratch", "mubuf", "mtbuf"))


class Layout:
    """Lays out forms for one family and wave size."""

    def __init__(self, lineage: tuple[str, ...], wave: int) -> None:
        self.lineage, self.wave = lineage, wave
        self.tables = OperandTables(lineage, wave)
        self.split_halves = "gfx11" in lineage  # bit 7 of a 16-bit register's code is its half

    def name(self, row: Instruction) -> str:
        """The row's name in this family: that of the nearest column."""
        for generation in self.lineage:
            column = row.opcodes.columns.get(generation)
            if column is not None:
                return column.name or row.name
        return row.name

    def variant(self, form: Form, row: Instruction, key: str) -> Form:
        """The variant of `form` that `key` names; `row` is the form's, but for scaled matrices."""
        encoding, kind, literal_field = form.encoding, form.kind, form.literal_field
        if key == "literal":
            if literal_field is None:
                encoding, literal_field = encoding.extended("literal:32"), "literal"
        elif key == "literal64":
            if literal_field is not None:  # as wide already, and shared
                return self._shared_literal(form, row)
            encoding, literal_field = encoding.extended("literal:64"), "literal"
        elif key in ("dpp", "dpp8", "sdwa"):
            compares = key == "sdwa" and form.format == "vopc"
            picture = formats.extension("sdwa_compare" if compares else key, self.lineage)
            assert picture is not None
            encoding = encoding.extended(picture)
            kind = f"e64_{key}" if form.format.startswith("vop3") else key
        else:
            kind = key
        made = Form(row, self.name(row), form.format, kind, encoding, (), {})
        made.literal_field = literal_field
        self.complete(made)
        made.pick = None
        return made

    def _shared_literal(self, form: Form, row: Instruction) -> Form:
        made = Form(row, form.name, form.format, form.kind, form.encoding, (), {})
        made.literal_field, made.literal_type = form.literal_field, form.literal_type
        self.complete(made)
        return made

    def complete(self, form: Form) -> None:
        """Make the slots of a form that is met for the first time."""
        row = form.row
        types: dict[str, OperandType] = {}
        slots: list[Slot] = []
        notation = "vop2" if form.format.startswith("vopd") else row.format
        parsed = parse_operands(row.operands, notation)
        if form.format in ("flat", "global", "scratch") and not form.kind.startswith("saddr"):
            form.pick = self._pick_flat(form)
        if form.format == "mfma" and "f8f6f4" in row.name and not form.kind:
            form.pick = _pick_widths(form.encoding)
        if form.format == "smem" and not form.kind:
            form.pick = self._pick_scalar(form.encoding)
        for role, bank, token in parsed:
            slot = self._slot(form, role, bank, token)
            if slot is not None:
                if role == "d" and "?" in row.operands:
                    slot = replace(slot, only_if=_return_bit(form.encoding))
                slots.append(slot)
                types[role] = slot.type
        slots += self._memory_slots(form)
        form.slots, form.types = tuple(slots), types
        form.ready = True

    def _slot(self, form: Form, role: str, bank: str | None, token: str) -> Slot | None:
        """The slot of one operand of the row; None where it is implicit or fixed."""
        format_, row_name = form.format, form.row.name
        if "f8f6f4" in row_name and not form.kind and format_.startswith("mfma"):
            return None  # the variant that the operand types choose has the slots
        if token == "exec" and "gfx10" not in self.lineage:
            token = "vcc" if format_ == "vopc" else "m"
        if token in ("exec", "lds") or role == "imm":
            return None
        if token == "k":
            self._add_literal(form)
            return None
        if token == "vcc":
            if format_ not in ("vop3", "vop3sd") and form.kind != "vopd3":
                return self._vcc(form, role)
            token, bank = "m", "s"
        if token == "address":
            return self._address_slot(form)
        if form.kind.endswith("tfe"):  # one more register, for the status of the fetch
            token = f"b{operand_type(token.lstrip('?'), self.wave).bits + 32}"
        if token == "m" and format_ == "vopc":
            return self._vcc(form, role)
        if "f8f6f4" in row_name and role in ("a", "b") and form.format.startswith("mfma"):
            token = f"b32x{F8F6F4_REGISTERS[int(form.kind.split()[1 if role == 'a' else 2])]}"
        type_ = operand_type(token, self.wave)
        field_, place = self._place(form, role)
        if bank is not None:
            place = "agpr_src" if bank == "a" and place == "src" else BANKS[bank]
        elif type_.base == "m":
            place = "ssrc" if place == "src" else "sgpr"
        return self._make_slot(form, role, type_, place, field_)

    def _add_literal(self, form: Form) -> None:
        """The literal that is always there; of 64 bits for instructions on 64-bit floats."""
        name = form.row.name
        token = "f16" if name.endswith("f16") else "u64" if name.endswith("f64") else "b32"
        form.literal_type, form.literal_field = operand_type(token, self.wave), "literal"
        if "literal" not in form.encoding.pieces:
            form.encoding = form.encoding.extended("literal:64" if token == "u64" else "literal:32")

    def _place(self, form: Form, role: str) -> tuple[str, str]:
        field_, place = PLACES[form.format][role]
        if role == "a" and form.kind.endswith(("dpp", "dpp8")):
            return "dpp_src0", "vgpr"
        if role == "a" and form.kind == "sdwa":
            return "sdwa_src0", "sdwa"
        if role == "b" and form.kind == "sdwa":
            return "vsrc1", "sdwa"
        return field_, place

    def _make_slot(
        self, form: Form, role: str, type_: OperandType, place: str, field_: str
    ) -> Slot:
        encoding = form.encoding
        piece = encoding.pieces[field_][0]
        half_style, extra, extra_at, flip = "none", None, 9, 0
        if type_.is_half and place != "sgpr":
            selects = form.format in ("vop3", "vinterp") and "op_sel" in encoding.pieces
            if selects and role in OP_SEL_BIT:
                op_sel = encoding.pieces["op_sel"][0]
                half_style, extra = "extra", op_sel.shift + OP_SEL_BIT[role]
                extra_at = 8 if place == "vgpr" else 9
            elif form.format in ("vop1", "vop2", "vopc") and self.split_halves:
                half_style = "code"
        if place == "sdwa":
            extra = encoding.pieces["s0" if role == "a" else "s1"][0].shift
            extra_at, flip, place, half_style = 8, 1, "src", "none"
        if place in ("vgpr", "av") and form.format in _MEMORY:
            place = "vgpr"
            holds_data = role in ("d", "data", "data2") or "_gws_" in form.name
            if "acc" in encoding.pieces and holds_data:
                place, extra, extra_at = "av8", encoding.pieces["acc"][0].shift, 8
        elif place == "av":
            name, bit = ("acc_cd", 0) if role in ("c", "d") else ("acc", "ab".index(role))
            extra = encoding.pieces[name][0].shift + bit
            place, extra_at = ("av8", 8) if role == "d" else ("av9", 9)
        scale = {"sbase": 1, "srsrc": 2}.get(field_, 0)
        if field_ == "vdsty" and piece.width == 7:  # the lowest bit is the other half's, flipped
            scale, extra, extra_at, flip = 1, encoding.pieces["vdstx"][0].shift, 0, 1
        return Slot(
            role,
            type_,
            self.tables.get(place, type_, half_style),
            field_,
            piece.shift,
            piece.mask,
            scale,
            extra,
            extra_at,
            flip,
        )

    def _vcc(self, form: Form, role: str) -> Slot | None:
        """VCC where a 32-bit form names it: an operand of no field, or SDWA's own."""
        type_ = operand_type("m", self.wave)
        vcc = self.tables.vcc()
        if form.kind == "sdwa" and "sdst" in form.encoding.pieces and role == "d":
            sdst, sd = (form.encoding.pieces[name][0].shift for name in ("sdst", "sd"))
            return Slot(
                role,
                type_,
                [vcc] * 128 + list(self.tables.get("sgpr", type_)),
                "sdst",
                sdst,
                127,
                0,
                sd,
                7,
            )
        form.fixed = {**form.fixed, role: vcc}
        return None

    def _memory_slots(self, form: Form) -> Iterator[Slot]:
        """The operands that a memory format has beside those in the row."""
        if form.format in ("mubuf", "mtbuf") and form.row.operands:
            wide = "rsrc" in form.encoding.pieces
            b32, b128 = operand_type("b32", self.wave), operand_type("b128", self.wave)
            yield self._make_slot(form, "base", b128, "sgpr", "rsrc" if wide else "srsrc")
            yield self._make_slot(form, "soffset", b32, "sgpr" if wide else "ssrc", "soffset")
        if form.format in ("flat", "global", "scratch") and form.kind.startswith("saddr"):
            type_ = operand_type("b32" if form.format == "scratch" else "b64", self.wave)
            yield self._make_slot(form, "base", type_, "sgpr", "saddr")
        if form.format == "smem" and form.kind == "soffset":
            b32 = operand_type("b32", self.wave)
            yield self._make_slot(form, "soffset", b32, "sgpr", "soffset")

    def _address_slot(self, form: Form) -> Slot | None:
        if form.format == "ds":
            return self._make_slot(form, "address", operand_type("b32", self.wave), "vgpr", "addr")
        if form.format in ("mubuf", "mtbuf"):
            if not form.kind:
                form.pick = _pick_buffer(form.encoding)
            if form.kind.startswith("off") or not form.kind:
                return None
            token = "b64" if form.kind.startswith("both") else "b32"
            return self._make_slot(form, "address", operand_type(token, self.wave), "vgpr", "vaddr")
        if form.kind.endswith("noaddr"):
            return None
        narrow = form.format == "scratch" or form.kind == "saddr"
        token = "b32" if narrow else "b64"
        return self._make_slot(form, "address", operand_type(token, self.wave), "vgpr", "addr")

    def _pick_flat(self, form: Form) -> Pick | None:
        """FLAT's scalar base is absent, or present; scratch's vector offset as well."""
        encoding = form.encoding
        saddr = encoding.pieces["saddr"][0]
        if self.split_halves:
            absent: tuple[int, ...] = (124,)
        else:
            absent = (0x7F, 125) if "gfx10" in self.lineage else (0x7F,)
        sve = encoding.pieces.get("sve")
        if form.format == "flat" and "gfx1250" not in self.lineage:
            return None
        scratch = form.format == "scratch"

        def pick(word: int) -> str | None:
            base = word >> saddr.shift & saddr.mask
            has_base = base not in absent
            if scratch:
                has_vector = bool(word >> sve[0].shift & 1) if sve else not has_base
                if sve is None and base == 0x7F and len(absent) == 2:
                    has_vector = False  # gfx10 has a code for neither
                if has_base:
                    return "saddr" if has_vector else "saddr_noaddr"
                return None if has_vector else "noaddr"
            return "saddr" if has_base else None

        return pick

    def _pick_scalar(self, encoding: Encoding) -> Pick:
        """Scalar memory takes a register offset where its field is not null, or its bit is set."""
        soffset = encoding.pieces["soffset"][0]
        enable = encoding.pieces.get("soffset_en")
        null = 124 if self.split_halves else 125

        def pick(word: int) -> str | None:
            if enable is not None:
                return "soffset" if word >> enable[0].shift & 1 else None
            return "soffset" if word >> soffset.shift & soffset.mask != null else None

        return pick


def _return_bit(encoding: Encoding) -> int:
    """The bit by which an atomic gives back what was in memory."""
    name = next(name for name in ("th", "glc", "sc0") if name in encoding.pieces)
    return encoding.pieces[name][0].shift


def _pick_widths(encoding: Encoding) -> Pick:
    def pick(word: int) -> str | None:
        return f"0 {encoding.get(word, 'cbsz')} {encoding.get(word, 'blgp')}"

    return pick


def _pick_buffer(encoding: Encoding) -> Pick:
    offen, idxen = encoding.pieces["offen"][0].shift, encoding.pieces["idxen"][0].shift
    tfe = encoding.pieces["tfe"][0].shift if "tfe" in encoding.pieces else None

    def pick(word: int) -> str | None:
        key = ("off", "one", "one", "both")[(word >> offen & 1) + 2 * (word >> idxen & 1)]
        return f"{key}_tfe" if tfe is not None and word >> tfe & 1 else key

    return pick
