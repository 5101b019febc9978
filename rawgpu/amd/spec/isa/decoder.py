"""From bytes to instructions and back, by the tables of this package.

    decoder = decoder_for("gfx11", wave=32)
    instruction = decoder.decode(code, offset)
    instruction.name, instruction.format        "v_add_f32", "vop2"
    instruction.operands["a"]                   Operand(kind="sgpr", index=3, bits=32, …)
    instruction.meaning                         "f32(a) + f32(b)"
    instruction.encode()                        the same bytes

A row of the tables has a *form* for each way to write it: VOP2 in 32 bits or in the 64 of VOP3,
with a literal, with DPP or SDWA behind it. Forms are made when first met. Text: `decode/disasm.py`.
"""

from __future__ import annotations

from functools import cache

from rawgpu.amd.spec.isa import formats, names
from rawgpu.amd.spec.isa.forms import Layout
from rawgpu.amd.spec.isa.machine import Form, MachineInstruction
from rawgpu.amd.spec.isa.notation import parse_operands
from rawgpu.amd.spec.isa.operand_tables import LITERAL64_MARK, LITERAL_MARK
from rawgpu.amd.spec.isa.operands import LITERAL, Operand, literal
from rawgpu.amd.spec.isa.tables import ROWS
from rawgpu.describe.encoding import Dispatch, Encoding, Instruction
from rawgpu.errors import DecodeError

SOURCE_EXTENSIONS = {0xFA: "dpp", 0xE9: "dpp8", 0xEA: "dpp8", 0xF9: "sdwa"}
"""What follows an instruction whose first source has this code."""

LITERAL64 = 254
"""The source code of a literal of 64 bits, in families that have them."""

VOP3_OF = {"vopc": 0x000, "vop2": 0x100, "vop1": 0x140}
"""Where the 64-bit twins of 32-bit vector instructions begin in VOP3's opcodes."""

VOP3_OF_VOP1_GFX10 = 0x180
"""Where those of VOP1 begin from gfx10 on."""

_SELECTS = {
    "dst_sel": names.SDWA_SELECT,
    "dst_unused": names.SDWA_UNUSED,
    "src0_sel": names.SDWA_SELECT,
    "src1_sel": names.SDWA_SELECT,
}
_LOW = (1 << 32) - 1
_HAS_SOURCES = frozenset(
    ("vop1", "vop2", "vopc", "vop3", "vop3sd", "vop3p", "sop1", "sop2", "sopc", "vinterp", "mfma")
)


class Decoder:
    """Decodes for one family ("gfx11") and wave size. Take it from `decoder_for`."""

    def __init__(self, family: str, wave: int) -> None:
        self.family, self.wave = family, wave
        self.lineage = formats.LINEAGE[family]
        self.layout = Layout(self.lineage, wave)
        self.tables = self.layout.tables
        self.rows: dict[str, tuple[Instruction, int]] = {}
        self._dispatch: Dispatch[Form] = Dispatch()
        self._late: dict[tuple[int, int], Form] = {}  # opcodes with bits in the second dword
        self._scaled: dict[int, Instruction] = {}
        self._halves: dict[tuple[str, str, int], Form] = {}  # of dual instructions
        for row in ROWS:
            column = row.opcodes.at(self.lineage)
            if column is not None and column.opcode is not None:
                self._add_row(row, self.layout.name(row), column.opcode)
        if self._scaled:
            self._add_scaled()

    # Building the tables.

    def _add_row(self, row: Instruction, name: str, opcode: int) -> None:
        self.rows[f"{row.format}:{name}"] = row, opcode
        if row.format.startswith("vopd"):
            self._add_half(row, name, opcode)
        elif row.format == "mfma_scale":
            self._scaled[opcode] = row
        elif row.name != "v_mfma_ld_scale_b32":  # shares its first dword with the scaled multiplies
            self._add_forms(row, name, opcode)

    def _add_forms(self, row: Instruction, name: str, opcode: int) -> None:
        has_twin = "e64" in row.flags
        carries = any(role == "co" for role, _, _ in parse_operands(row.operands, row.format))
        format_ = "vop3sd" if row.format == "vop3" and carries else row.format
        self._add_form(row, name, format_, "e32" if has_twin else "", opcode)
        if has_twin:
            base = VOP3_OF[row.format]
            if row.format == "vop1" and "gfx10" in self.lineage:
                base = VOP3_OF_VOP1_GFX10
            self._add_form(row, name, "vop3sd" if carries else "vop3", "e64", base + opcode)

    def _add_form(self, row: Instruction, name: str, format_: str, kind: str, opcode: int) -> None:
        encoding = formats.picture(format_, self.lineage)
        assert encoding is not None, (row.name, format_, self.family)
        mask, value = encoding.fixed_mask, encoding.fixed_value
        for piece in encoding.pieces.get("op", ()):
            mask |= piece.mask << piece.shift
            value |= (opcode >> piece.at & piece.mask) << piece.shift
        form = Form(row, name, format_, kind, encoding, (), {})
        place = mask & _LOW, value & _LOW
        shifts = [piece.shift for piece in encoding.pieces.get("op", ())]
        if not shifts or max(shifts) < 32:
            self._dispatch.add(*place, form)
            return
        late = self._late.get(place)
        if late is None:
            late = self._late[place] = Form(row, name, format_, kind, encoding, (), {}, ready=True)
            late.pick = lambda word: f"op {encoding.get(word, 'op')}"
            self._dispatch.add(*place, late)
        late.variants[f"op {opcode}"] = form

    def _add_half(self, row: Instruction, name: str, opcode: int) -> None:
        """A half of a dual instruction; the first of its format enters the whole as well."""
        encoding = formats.picture(row.format, self.lineage)
        assert encoding is not None
        if not any(format_ == row.format for format_, _, _ in self._halves):
            whole = Form(row, "v_dual", row.format, "", encoding, (), {}, ready=True)
            self._dispatch.add(encoding.fixed_mask & _LOW, encoding.fixed_value & _LOW, whole)
        for side in row.flags:
            half = Form(row, name, f"vopd {side}", row.format, encoding, (), {})
            self._halves[row.format, side, opcode] = half

    def _add_scaled(self) -> None:
        """Scaled matrix multiplies: the first dword says only that; the opcode is in the third."""
        encoding = formats.picture("mfma_scale", self.lineage)
        assert encoding is not None
        row = next(iter(self._scaled.values()))
        form = Form(row, row.name, "mfma_scale", "", encoding, (), {}, ready=True)
        form.pick = lambda word: self._scaled_key(encoding, word)
        alone, _ = self.rows["vop3p:v_mfma_ld_scale_b32"]
        picture = formats.picture("vop3p", self.lineage)
        assert picture is not None
        form.variants["alone"] = Form(alone, alone.name, "vop3p", "", picture, (), {})
        self._dispatch.add(encoding.fixed_mask & _LOW, encoding.fixed_value & _LOW, form)

    def _scaled_key(self, encoding: Encoding, word: int) -> str:
        opcode = encoding.get(word, "op")
        if opcode not in self._scaled or not encoding.matches(word):
            return "alone"
        return f"{opcode} {encoding.get(word, 'cbsz')} {encoding.get(word, 'blgp')}"

    # Decoding.

    def decode(self, data: bytes | memoryview, offset: int = 0) -> MachineInstruction:
        """The instruction at `offset`. Raises `DecodeError` for what is none of this family."""
        word = int.from_bytes(data[offset : offset + 4], "little")
        form = self._dispatch.find(word)
        if form is None or len(data) - offset < 4:
            raise self._refusal(data, offset, "no instruction has these bits")
        if not form.ready:
            self.layout.complete(form)
        if form.format in ("vopd", "vopd3"):
            return self._decode_dual(form, data, offset)
        size = form.encoding.bits >> 3
        if size > 4:
            word = int.from_bytes(data[offset : offset + size], "little")
        if form.pick is not None:
            while form.pick is not None and (key := form.pick(word)) is not None:
                form = self._variant(form, key)
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
        if word & ~form.encoding.known_mask:
            raise self._refusal(data, offset, f"{form.name} has set bits that no field names")
        if form.kind == "sdwa" and _reserved_select(form.encoding, word):
            raise self._refusal(data, offset, f"{form.name} selects what is reserved")
        return MachineInstruction(form, word, self._operands(form, word, data, offset))

    def _operands(
        self, form: Form, word: int, data: bytes | memoryview, offset: int
    ) -> dict[str, Operand]:
        operands = dict(form.fixed)
        for slot in form.slots:
            if slot.only_if is not None and not word >> slot.only_if & 1:
                continue
            at = (word >> slot.shift & slot.mask) << slot.scale
            if slot.extra is not None:
                at |= ((word >> slot.extra & 1) ^ slot.flip) << slot.extra_at
            operand = slot.table[at] if at < len(slot.table) else None
            if operand is None:
                raise self._refusal(data, offset, f"{form.name}: {slot.field} has no operand {at}")
            if operand is LITERAL_MARK or operand is LITERAL64_MARK:
                if form.literal_field is None:
                    raise self._refusal(data, offset, f"{form.name} takes no literal")
                operand = literal(form.encoding.get(word, form.literal_field), slot.type)
            operands[slot.role] = operand
        if form.literal_type is not None:
            assert form.literal_field is not None
            operands["k"] = literal(form.encoding.get(word, form.literal_field), form.literal_type)
        return operands

    def _extension(self, form: Form, word: int) -> str | None:
        """The extension dwords that the sources ask for."""
        format_ = form.format
        if format_ in ("vop1", "vop2", "vopc"):
            code = word & 0x1FF
            extension = SOURCE_EXTENSIONS.get(code)
            if extension and formats.extension(extension, self.lineage):
                return extension
            return self._literal_of(code)
        if format_[:3] == "sop":
            if "sendmsg_rtn" in form.row.operands:
                return None
            found = self._literal_of(word & 0xFF)
            if found is None and format_ != "sop1":
                found = self._literal_of(word >> 8 & 0xFF)
            return found
        code = word >> 32 & 0x1FF
        if code in SOURCE_EXTENSIONS and "gfx11" in self.lineage and code != 0xF9:
            return SOURCE_EXTENSIONS[code]
        if "gfx10" in self.lineage:
            for slot in form.slots:
                if slot.mask == 0x1FF and (word >> slot.shift & 0x1FF) == LITERAL:
                    return "literal"
        return None

    def _literal_of(self, code: int) -> str | None:
        if code == LITERAL:
            return "literal"
        return "literal64" if code == LITERAL64 and self.tables.wide_literals else None

    def _variant(self, form: Form, key: str) -> Form:
        """The variant of `form` that `key` names, made at first use."""
        made = form.variants.get(key)
        if made is None:
            if key.startswith("op "):
                raise DecodeError(f"{self.family}: {form.format} has no opcode {key[3:]}")
            row = form.row
            if form.format == "mfma_scale":
                row = self._scaled[int(key.split()[0])]
            made = form.variants[key] = self.layout.variant(form, row, key)
        if not made.ready:
            self.layout.complete(made)
        return made

    def _decode_dual(self, form: Form, data: bytes | memoryview, offset: int) -> MachineInstruction:
        size = form.encoding.size_bytes
        word = int.from_bytes(data[offset : offset + size], "little")
        get = form.encoding.get
        halves = []
        for side in ("x", "y"):
            half = self._halves.get((form.format, side, get(word, f"op{side}")))
            if half is None:
                raise self._refusal(data, offset, "no dual instruction has these opcodes")
            if not half.ready:
                self.layout.complete(half)
            halves.append(half)
        whole = form
        if any(half.literal_type for half in halves) or LITERAL in (
            get(word, "srcx0"),
            get(word, "srcy0"),
        ):
            whole = form.variants.get("literal") or self._dual_with_literal(form)
            size = whole.encoding.size_bytes
            word = int.from_bytes(data[offset : offset + size], "little")
        if len(data) - offset < size:
            raise self._refusal(data, offset, f"it has {size} bytes; the code ends before")
        if word & ~whole.encoding.known_mask:
            raise self._refusal(data, offset, "it has set bits that no field names")
        parts = []
        for half in halves:
            part = half
            if whole is not form and not half.literal_type:
                part = half.variants.get("literal") or self._half_with_literal(half)
            operands = self._operands(part, word, data, offset)
            parts.append(MachineInstruction(part, word, operands))
        return MachineInstruction(whole, word, {}, tuple(parts))

    def _dual_with_literal(self, form: Form) -> Form:
        encoding = form.encoding.extended("literal:32")
        made = Form(form.row, form.name, form.format, "", encoding, (), {}, ready=True)
        made.literal_field = "literal"
        form.variants["literal"] = made
        return made

    def _half_with_literal(self, half: Form) -> Form:
        encoding = half.encoding.extended("literal:32")
        made = Form(half.row, half.name, half.format, half.kind, encoding, (), {})
        made.literal_field = "literal"
        self.layout.complete(made)
        half.variants["literal"] = made
        return made

    def _refusal(self, data: bytes | memoryview, offset: int, why: str) -> DecodeError:
        found = bytes(data[offset : offset + 12]).hex()
        return DecodeError(f"{self.family}: {why}: {found} at offset {offset:#x}")


def _reserved_select(encoding: Encoding, word: int) -> bool:
    """Whether a sub-dword selection has a number without meaning; LLVM's printer dies of those."""
    return any(
        encoding.get(word, field) >= len(table)
        for field, table in _SELECTS.items()
        if field in encoding.pieces
    )


@cache
def decoder_for(family: str, wave: int) -> Decoder:
    """The decoder of a family; made once."""
    return Decoder(family, wave)
