"""From bytes to instructions and back, by the tables of this package.

    decoder = decoder_for("gfx11", wave=32)
    instruction = decoder.decode(code, offset)
    instruction.name, instruction.format        "v_add_f32", "vop2"
    instruction.operands["a"]                   Operand(kind="sgpr", index=3, bits=32, …)
    instruction.meaning                         "f32(a) + f32(b)"
    instruction.encode()                        the same bytes

A row of the tables has a *form* for each way to write it: VOP2 in 32 bits or in the 64 of VOP3, with
a literal, with DPP or SDWA behind it. Forms are made when first met. `decode/disasm.py` prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from rawgpu.amd.spec.isa import formats
from rawgpu.amd.spec.isa.machine import Form, MachineInstruction, Slot, Table
from rawgpu.amd.spec.isa.operands import (
    LITERAL,
    NULL,
    SCALARS,
    SPECIAL,
    Operand,
    OperandType,
    constant,
    literal,
    operand_type,
    scalar_table,
    vector_table,
)
from rawgpu.amd.spec.isa.tables import ROWS
from rawgpu.describe.encoding import DecodeError, Dispatch, Encoding, Instruction

SOURCE_EXTENSIONS = {0xFA: "dpp", 0xE9: "dpp8", 0xEA: "dpp8", 0xF9: "sdwa"}
"""What follows an instruction whose first source has this code."""

VOP3_OF = {"vopc": 0x000, "vop2": 0x100, "vop1": 0x140}
"""Where the 64-bit twins of 32-bit vector instructions begin in VOP3's opcodes; VOP1 moved."""

_SOP = {"d": ("sdst", "sgpr"), "a": ("ssrc0", "ssrc"), "b": ("ssrc1", "ssrc")}
_VOP3 = {
    "d": ("vdst", "vgpr"),
    "co": ("sdst", "sgpr"),
    "a": ("src0", "src"),
    "b": ("src1", "src"),
    "c": ("src2", "src"),
    "e": ("scale0", "src"),
    "f": ("scale1", "src"),
}
_VOP2 = {"d": ("vdst", "vgpr"), "a": ("src0", "src"), "b": ("vsrc1", "vgpr")}
_FLAT = {
    "d": ("vdst", "vgpr"),
    "address": ("addr", "vgpr"),
    "data": ("data", "vgpr"),
    "base": ("saddr", "sgpr"),
}
_BUFFER = {
    "d": ("vdata", "vgpr"),
    "data": ("vdata", "vgpr"),
    "address": ("vaddr", "vgpr"),
    "base": ("srsrc", "sgpr"),
    "soffset": ("soffset", "ssrc"),
}

PLACES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "sop2": _SOP,
    "sop1": _SOP,
    "sopc": _SOP,
    "sopk": {"d": ("sdst", "sgpr"), "a": ("sdst", "sgpr")},
    "sopp": {},
    "vop2": _VOP2,
    "vop1": _VOP2,
    "vopc": _VOP2,
    "vop3": _VOP3,
    "vop3sd": _VOP3,
    "vop3p": _VOP3,
    "mfma": _VOP3,
    "mfma_scale": _VOP3,
    "vinterp": _VOP3,
    "smem": {"d": ("sdata", "sgpr"), "base": ("sbase", "sgpr"), "soffset": ("soffset", "sgpr")},
    "ds": {
        "d": ("vdst", "vgpr"),
        "address": ("addr", "vgpr"),
        "data": ("data0", "vgpr"),
        "data2": ("data1", "vgpr"),
    },
    "flat": _FLAT,
    "global": _FLAT,
    "scratch": _FLAT,
    "mubuf": _BUFFER,
    "mtbuf": _BUFFER,
    "ldsdir": {"d": ("vdst", "vgpr")},
    "exp": {
        "a": ("vsrc0", "vgpr"),
        "b": ("vsrc1", "vgpr"),
        "c": ("vsrc2", "vgpr"),
        "e": ("vsrc3", "vgpr"),
    },
}
"""Where the bits of each role stand: format → role → (field, bank)."""

ROLES_RIGHT: Mapping[str, tuple[str, ...]] = {
    "smem": ("base", "soffset", "data"),
    "ds": ("data", "data2"),
    "flat": ("data",),
    "global": ("data",),
    "scratch": ("data",),
    "mubuf": ("data",),
    "mtbuf": ("data",),
}
"""The roles that types right of `=` take in turn; `a b c e f` elsewhere."""

OP_SEL_BIT = {"a": 0, "b": 1, "c": 2, "d": 3}

BANKS = {"s": "sgpr", "v": "vgpr", "a": "agpr", "av": "av", "ss": "ssrc"}
"""Prefixes of a type in the rows that move an operand to another register file."""

IMMEDIATES = frozenset(
    "uimm himm k16 uk16 label endpgm hwreg sendmsg sendmsg_rtn waitcnt delay depctr".split()
)
"""Words in a row's operands for constants that stand in the instruction itself."""

_LITERAL_MARK = Operand("literal", 0, 32, 0, None, "", LITERAL)


def parse_operands(text: str, format_: str) -> list[tuple[str, str | None, str]]:
    """(role, bank prefix or None, type token) for each operand of a row, in assembly order."""
    left, equals, right = text.partition("=")
    if not equals:
        left, right = "", text
    out: list[tuple[str, str | None, str]] = []
    roles_right = iter(ROLES_RIGHT.get(format_, ("a", "b", "c", "e", "f")))
    for side, roles in ((left, iter(("d", "co"))), (right, roles_right)):
        for token in side.split():
            if token in IMMEDIATES:
                out.append(("imm", None, token))
                continue
            if token in ("vcc", "exec", "address", "k", "lds"):
                role = {"vcc": "co" if side is left else "c", "exec": "d"}.get(token, token)
                if token == "vcc" and side is left and not out:
                    role = "d"
                out.append((role, None, token))
                continue
            bank, dot, type_ = token.rpartition(".")
            out.append((next(roles), bank if dot else None, type_.lstrip("?")))
    return out


class Decoder:
    """Decodes for one family ("gfx11") and wave size. Take it from `decoder_for`."""

    def __init__(self, family: str, wave: int) -> None:
        self.family, self.wave = family, wave
        self.lineage = formats.LINEAGE[family]
        self.scalars = next(SCALARS[g] for g in self.lineage if g in SCALARS)
        self.split_halves = "gfx11" in self.lineage  # 16-bit code bit 7 chooses a register's half
        self.rows: dict[str, tuple[Instruction, str, int]] = {}
        self._tables: dict[tuple[str, str, str], Table] = {}
        self._dispatch: Dispatch[Form] = Dispatch()
        self._late: dict[tuple[int, int], Form] = {}  # opcodes with bits in the second dword
        for row in ROWS:
            column = row.opcodes.at(self.lineage)
            if column is not None and column.opcode is not None:
                self._add_row(row, self._name(row), column.opcode)
        self._scaled = {o: row for row, _, o in self.rows.values() if row.format == "mfma_scale"}
        if self._scaled:
            self._add_scaled()
        self._vopd = {
            side: {
                opcode: row
                for row, _, opcode in self.rows.values()
                if row.format == "vopd" and side in row.flags
            }
            for side in ("x", "y")
        }
        if self._vopd["x"]:
            self._add_vopd()

    def _name(self, row: Instruction) -> str:
        """The row's name in this family: that of the nearest column that gives one."""
        for generation in self.lineage:
            column = row.opcodes.columns.get(generation)
            if column is not None:
                return column.name or row.name
        return row.name

    def vopd_name(self, row: Instruction) -> str:
        """What a half of a dual instruction is called in this family."""
        return self._name(row)

    # Building the tables.

    def _add_row(self, row: Instruction, name: str, opcode: int) -> None:
        self.rows[f"{row.format}:{name}"] = (row, name, opcode)
        if row.format in ("vopd", "mfma_scale") or row.name == "v_mfma_ld_scale_b32":
            return
        has_twin = "e64" in row.flags
        kind = "e32" if has_twin else ""
        carries = "co" in self._roles(row)
        format_ = "vop3sd" if row.format == "vop3" and carries else row.format
        self._add_form(row, name, format_, kind, opcode)
        if has_twin:
            format_ = "vop3sd" if carries else "vop3"
            base = VOP3_OF[row.format]
            if row.format == "vop1" and "gfx10" in self.lineage:
                base = 0x180
            self._add_form(row, name, format_, "e64", base + opcode)

    def _roles(self, row: Instruction) -> set[str]:
        return {role for role, _, _ in parse_operands(row.operands, row.format)}

    def _add_form(self, row: Instruction, name: str, format_: str, kind: str, opcode: int) -> None:
        encoding = formats.picture(format_, self.lineage)
        assert encoding is not None, (row.name, format_, self.family)
        mask, value = encoding.fixed_mask, encoding.fixed_value
        for piece in encoding.pieces.get("op", ()):
            mask |= piece.mask << piece.shift
            value |= (opcode >> piece.at & piece.mask) << piece.shift
        form = Form(row, name, format_, kind, encoding, (), {})
        low = (1 << 32) - 1
        if mask >> 32 and encoding.pieces["op"][0].shift < 32 <= encoding.pieces["op"][-1].shift:
            late = self._late.get((mask & low, value & low))
            if late is None:
                late = self._late[mask & low, value & low] = Form(
                    row, name, format_, kind, encoding, (), {}, ready=True
                )
                late.pick = lambda word: f"op {encoding.get(word, 'op')}"
                self._dispatch.add(mask & low, value & low, late)
            late.variants[f"op {opcode}"] = form
            return
        self._dispatch.add(mask & low, value & low, form)

    def _add_vopd(self) -> None:
        encoding = formats.picture("vopd", self.lineage)
        assert encoding is not None
        row = next(iter(self._vopd["x"].values()))
        form = Form(row, "v_dual", "vopd", "", encoding, (), {}, ready=True)
        self._dispatch.add(encoding.fixed_mask & 0xFFFFFFFF, encoding.fixed_value, form)

    def _add_scaled(self) -> None:
        """Scaled matrix multiplies: the first dword says only that; the opcode is in the third."""
        encoding = formats.picture("mfma_scale", self.lineage)
        assert encoding is not None
        row = next(iter(self._scaled.values()))
        form = Form(row, row.name, "mfma_scale", "", encoding, (), {}, ready=True)
        form.pick = lambda word: self._scaled_key(encoding, word)
        alone, _, _ = self.rows["vop3p:v_mfma_ld_scale_b32"]
        picture = formats.picture("vop3p", self.lineage)
        assert picture is not None
        form.variants["alone"] = Form(alone, alone.name, "vop3p", "", picture, (), {})
        self._complete(form.variants["alone"])
        low = (1 << 32) - 1
        self._dispatch.add(encoding.fixed_mask & low, encoding.fixed_value & low, form)

    def _scaled_key(self, encoding: Encoding, word: int) -> str:
        opcode = encoding.get(word, "op")
        if opcode not in self._scaled or not encoding.matches(word):
            return "alone"
        return f"{opcode} {encoding.get(word, 'cbsz')} {encoding.get(word, 'blgp')}"

    def _complete(self, form: Form) -> None:
        """Make the slots of a form that is met for the first time."""
        row = form.row
        types: dict[str, OperandType] = {}
        slots: list[Slot] = []
        parsed = parse_operands(row.operands, row.format)
        if form.format in ("flat", "global", "scratch") and not form.kind.startswith("saddr"):
            form.pick = self._pick_flat(form)
        if form.format == "mfma" and "f8f6f4" in row.name and not form.kind:
            form.pick = _pick_widths(form.encoding)
        if form.format == "smem" and not form.kind:
            form.pick = self._pick_scalar(form.encoding)
        for role, bank, token in parsed:
            slot = self._slot(form, role, bank, token)
            if slot is not None:
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
            form.literal_field = "literal"
            if "literal" not in form.encoding.pieces:
                form.encoding = form.encoding.extended("literal:32")
            return None
        if token == "vcc":
            if format_ not in ("vop3", "vop3sd"):
                return self._vcc(form, role)
            token, bank = "m", "s"
        if token == "address":
            return self._address_slot(form)
        if form.kind.endswith("tfe"):  # one more register, for the status of the fetch
            token = f"b{operand_type(token.lstrip('?'), self.wave).bits + 32}"
        if token == "m" and format_ == "vopc":
            return self._vcc(form, role)
        if "f8f6f4" in row_name and role in ("a", "b") and form.format.startswith("mfma"):
            token = f"b32x{_F8F6F4_REGISTERS[int(form.kind.split()[1 if role == 'a' else 2])]}"
        type_ = operand_type(token, self.wave)
        field_, place = self._place(form, role)
        if bank is not None:
            place = "agpr_src" if bank == "a" and place == "src" else BANKS[bank]
        elif type_.base == "m":
            place = "ssrc" if place == "src" else "sgpr"
        if place == "src" and role in ("b", "c") and form.kind == "sgpr_only":
            place = "ssrc"
        return self._make_slot(form, role, type_, place, field_)

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
            if form.format in ("vop3", "vinterp") and role in OP_SEL_BIT and "op_sel" in encoding.pieces:
                op_sel = encoding.pieces["op_sel"][0]
                half_style, extra = "extra", op_sel.shift + OP_SEL_BIT[role]
                extra_at = 8 if place == "vgpr" else 9
            elif form.format in ("vop1", "vop2", "vopc") and self.split_halves:
                half_style = "code"
        if place == "sdwa":
            extra = encoding.pieces["s0" if role == "a" else "s1"][0].shift
            extra_at, flip, place, half_style = 8, 1, "src", "none"
        if place in ("vgpr", "av") and form.format in ("ds", "flat", "global", "scratch", "mubuf", "mtbuf"):
            place = "vgpr"
            holds_data = role in ("d", "data", "data2") or "_gws_" in form.name
            if "acc" in encoding.pieces and holds_data:
                place, extra, extra_at = "av8", encoding.pieces["acc"][0].shift, 8
        elif place == "av":
            name, bit = ("acc_cd", 0) if role in ("c", "d") else ("acc", "ab".index(role))
            extra = encoding.pieces[name][0].shift + bit
            place, extra_at = ("av8", 8) if role == "d" else ("av9", 9)
        table = self.table(place, type_, half_style)
        scale = {"sbase": 1, "srsrc": 2}.get(field_, 0)
        return Slot(role, type_, table, field_, piece.shift, piece.mask, scale, extra, extra_at, flip)

    def _vcc(self, form: Form, role: str) -> Slot | None:
        """VCC where a 32-bit form names it: an operand of no field, or SDWA's own."""
        type_ = operand_type("m", self.wave)
        table = self.table("sgpr", type_, "none")
        vcc = table[106]
        assert vcc is not None
        if form.kind == "sdwa" and "sdst" in form.encoding.pieces and role == "d":
            sdst, sd = (form.encoding.pieces[name][0].shift for name in ("sdst", "sd"))
            return Slot(role, type_, [vcc] * 128 + list(table), "sdst", sdst, 127, 0, sd, 7)
        form.fixed = {**form.fixed, role: vcc}
        return None

    def scalar(self, code: int) -> Operand | None:
        """The single scalar register with this number."""
        return self.table("sgpr", operand_type("b32", self.wave), "none")[code]

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

    def _pick_flat(self, form: Form):  # type: ignore[no-untyped-def]
        """FLAT's scalar base is absent, or present; scratch's vector offset as well."""
        encoding = form.encoding
        saddr = encoding.pieces["saddr"][0]
        absent = (0x7F,) if self.family in ("gfx9", "gfx90a", "gfx942", "gfx950") else (0x7F, 0x7D)
        if self.split_halves:
            absent = (0x7C,)
        sve = encoding.pieces.get("sve")
        if form.format == "flat" and "gfx1250" not in self.lineage:
            return None
        scratch = form.format == "scratch"

        def pick(word: int) -> str | None:
            has_base = (word >> saddr.shift & saddr.mask) not in absent
            if scratch:
                has_vector = bool(word >> sve[0].shift & 1) if sve else not has_base
                if has_base:
                    return "saddr" if has_vector else "saddr_noaddr"
                return None if has_vector else "noaddr"
            return "saddr" if has_base else None

        return pick

    def _pick_scalar(self, encoding: Encoding):  # type: ignore[no-untyped-def]
        """Scalar memory takes a register offset where its field is not null, or its bit is set."""
        soffset = encoding.pieces["soffset"][0]
        enable = encoding.pieces.get("soffset_en")
        null = 124 if self.split_halves else 125

        def pick(word: int) -> str | None:
            if enable is not None:
                return "soffset" if word >> enable[0].shift & 1 else None
            return "soffset" if word >> soffset.shift & soffset.mask != null else None

        return pick

    def table(self, place: str, type_: OperandType, half_style: str) -> Table:
        key = (place, type_.token, half_style)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = self._build_table(place, type_, half_style)
        return found

    def _build_table(self, place: str, type_: OperandType, half_style: str) -> Table:
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
            table.append(_LITERAL_MARK if code == LITERAL else constant(code, type_))
        return table

    # Decoding.

    def decode(self, data: bytes | memoryview, offset: int = 0) -> MachineInstruction:
        """The instruction at `offset`. Raises `DecodeError` for what is none of this family."""
        word = int.from_bytes(data[offset : offset + 4], "little")
        form = self._dispatch.find(word)
        if form is None or len(data) - offset < 4:
            raise self._refusal(data, offset, "no instruction has these bits")
        if not form.ready:
            self._complete(form)
        if form.format == "vopd":
            return self._decode_vopd(form, data, offset)
        size = form.encoding.bits >> 3
        if size > 4:
            word = int.from_bytes(data[offset : offset + size], "little")
        if form.pick is not None:
            while form.pick is not None and (key := form.pick(word)) is not None:
                form = self._variant(form, key)
                if not form.ready:
                    self._complete(form)
            size = form.encoding.bits >> 3
            word &= (1 << form.encoding.bits) - 1
        elif form.format in _HAS_SOURCES:
            extension = self._extension(form, word)
            if extension is not None:
                form = self._variant(form, extension)
                size = form.encoding.bits >> 3
                word = int.from_bytes(data[offset : offset + size], "little")
        if len(data) - offset < size:
            raise self._refusal(data, offset, f"{form.name} has {size} bytes; the code ends before")
        return MachineInstruction(form, word, self._operands(form, word, data, offset))

    def _operands(
        self, form: Form, word: int, data: bytes | memoryview, offset: int
    ) -> dict[str, Operand]:
        operands = dict(form.fixed)
        for slot in form.slots:
            at = (word >> slot.shift & slot.mask) << slot.scale
            if slot.extra is not None:
                at |= ((word >> slot.extra & 1) ^ slot.flip) << slot.extra_at
            operand = slot.table[at] if at < len(slot.table) else None
            if operand is None:
                raise self._refusal(data, offset, f"{form.name}: {slot.field} has no operand {at}")
            if operand is _LITERAL_MARK:
                if form.literal_field is None:
                    raise self._refusal(data, offset, f"{form.name} takes no literal")
                operand = literal(form.encoding.get(word, form.literal_field), slot.type)
            operands[slot.role] = operand
        if form.literal_field is not None and any(
            token == "k" for _, _, token in parse_operands(form.row.operands, form.row.format)
        ):
            token = "f16" if form.row.name.endswith("f16") else "b32"
            operands["k"] = literal(
                form.encoding.get(word, form.literal_field), operand_type(token, self.wave)
            )
        return operands

    def _extension(self, form: Form, word: int) -> str | None:
        """The extension dwords that the sources ask for."""
        format_ = form.format
        if format_ in ("vop1", "vop2", "vopc"):
            code = word & 0x1FF
            if code == LITERAL:
                return "literal"
            extension = SOURCE_EXTENSIONS.get(code)
            return extension if extension and self._allows(form, extension) else None
        if format_[:3] == "sop":
            if "sendmsg_rtn" in form.row.operands:
                return None
            if (word & 0xFF) == LITERAL or (format_ in ("sop2", "sopc") and (word >> 8 & 0xFF) == LITERAL):
                return "literal"
            return None
        code = word >> 32 & 0x1FF
        if code in SOURCE_EXTENSIONS and "gfx11" in self.lineage and code != 0xF9:
            return SOURCE_EXTENSIONS[code]
        if "gfx10" in self.lineage:
            for slot in form.slots:
                if slot.mask == 0x1FF and (word >> slot.shift & 0x1FF) == LITERAL:
                    return "literal"
        return None

    def _allows(self, form: Form, extension: str) -> bool:
        return formats.extension(extension, self.lineage) is not None

    def _variant(self, form: Form, key: str) -> Form:
        """The variant of `form` that `key` names, made at first use."""
        made = form.variants.get(key)
        if made is not None:
            return made
        if key.startswith("op "):
            raise DecodeError(f"{self.family}: {form.format} has no opcode {key[3:]}")
        encoding, kind, literal_field = form.encoding, form.kind, form.literal_field
        if key == "literal":
            if literal_field is None:
                encoding, literal_field = encoding.extended("literal:32"), "literal"
        elif key in ("dpp", "dpp8", "sdwa"):
            compares = key == "sdwa" and form.format == "vopc"
            picture = formats.extension("sdwa_compare" if compares else key, self.lineage)
            assert picture is not None
            encoding = encoding.extended(picture)
            kind = f"e64_{key}" if form.format.startswith("vop3") else key
        else:
            kind = key
        row = form.row
        if form.format == "mfma_scale":
            row = self._scaled[int(key.split()[0])]
        made = Form(row, self._name(row), form.format, kind, encoding, (), {})
        made.literal_field = literal_field
        self._complete(made)
        made.pick = None
        form.variants[key] = made
        return made

    def _decode_vopd(self, form: Form, data: bytes | memoryview, offset: int) -> MachineInstruction:
        word = int.from_bytes(data[offset : offset + 8], "little")
        get = form.encoding.get
        rows = [
            self._vopd[side].get(get(word, f"op{side}")) for side in ("x", "y")
        ]
        if None in rows:
            raise self._refusal(data, offset, "no dual instruction has these opcodes")
        with_literal = (
            any("k" in row.operands.split() for row in rows if row is not None)
            or LITERAL in (get(word, "srcx0"), get(word, "srcy0"))
        )
        literal_value = None
        size = 12 if with_literal else 8
        if len(data) - offset < size:
            raise self._refusal(data, offset, f"a dual instruction of {size} bytes; the code ends before")
        whole = form
        if with_literal:
            whole = self._vopd_literal(form)
            word = int.from_bytes(data[offset : offset + 12], "little")
            literal_value = word >> 64
        vdst = {"x": get(word, "vdstx")}
        vdst["y"] = get(word, "vdsty") << 1 | (~vdst["x"] & 1)
        parts = []
        for side, row in zip("xy", rows, strict=True):
            assert row is not None
            operands: dict[str, Operand] = {}
            for role, _, token in parse_operands(row.operands, "vop2"):
                if token == "k":
                    assert literal_value is not None
                    operands[role] = literal(literal_value, operand_type("b32", self.wave))
                elif token == "vcc":
                    vcc = self.table("sgpr", operand_type("m", self.wave), "none")[106]
                    assert vcc is not None
                    operands["c"] = vcc
                else:
                    type_ = operand_type(token, self.wave)
                    code = {"d": vdst[side], "a": get(word, f"src{side}0"), "b": get(word, f"vsrc{side}1")}[role]
                    operand = self.table("src" if role == "a" else "vgpr", type_, "none")[code]
                    if operand is _LITERAL_MARK:
                        assert literal_value is not None
                        operand = literal(literal_value, type_)
                    if operand is None:
                        raise self._refusal(data, offset, f"{row.name}: no operand {code}")
                    operands[role] = operand
            part_form = Form(row, row.name, "vopd", side, form.encoding, (), {})
            parts.append(MachineInstruction(part_form, word, operands))
        return MachineInstruction(whole, word, {}, tuple(parts))

    def _vopd_literal(self, form: Form) -> Form:
        made = form.variants.get("literal")
        if made is None:
            made = Form(form.row, form.name, "vopd", "", form.encoding.extended("literal:32"), (), {})
            made.ready, made.literal_field = True, "literal"
            form.variants["literal"] = made
        return made

    def _refusal(self, data: bytes | memoryview, offset: int, why: str) -> DecodeError:
        found = bytes(data[offset : offset + 12]).hex()
        return DecodeError(f"{self.family}: {why}: {found} at offset {offset:#x}")


_HAS_SOURCES = frozenset(
    ("vop1", "vop2", "vopc", "vop3", "vop3sd", "vop3p", "sop1", "sop2", "sopc", "vinterp", "mfma")
)


_F8F6F4_REGISTERS = (8, 8, 6, 6, 4, 8, 8, 8)
"""Registers of 32 values, by the type that `cbsz` or `blgp` chooses: fp8, bf8, fp6, bf6, fp4."""


def _pick_widths(encoding: Encoding):  # type: ignore[no-untyped-def]
    def pick(word: int) -> str | None:
        return f"0 {encoding.get(word, 'cbsz')} {encoding.get(word, 'blgp')}"

    return pick


def _pick_buffer(encoding: Encoding):  # type: ignore[no-untyped-def]
    offen, idxen = encoding.pieces["offen"][0].shift, encoding.pieces["idxen"][0].shift
    tfe = encoding.pieces["tfe"][0].shift if "tfe" in encoding.pieces else None

    def pick(word: int) -> str | None:
        key = ("off", "one", "one", "both")[(word >> offen & 1) + 2 * (word >> idxen & 1)]
        return f"{key}_tfe" if tfe is not None and word >> tfe & 1 else key

    return pick


@cache
def decoder_for(family: str, wave: int) -> Decoder:
    """The decoder of a family; made once."""
    return Decoder(family, wave)
