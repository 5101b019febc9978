"""Machine code as LLVM prints it: `disassemble(code, "gfx11")`.

Text is made from the decoded instruction and nothing else: names, registers and fields come from
`spec/isa`. 16-bit registers have two spellings: `v1.l` and `v1.h` (`true16=True`, what LLVM 22
prints for gfx11 by default), and plain `v1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rawgpu.amd.decode.words import (
    delay_name,
    export_target,
    short,
    swizzle,
    table_number,
    temporal_hint,
)
from rawgpu.amd.spec.isa import names
from rawgpu.amd.spec.isa.decoder import Decoder, decoder_for
from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.spec.isa.notation import parse_operands
from rawgpu.amd.spec.isa.operands import Operand
from rawgpu.amd.spec.isa.spelling import SPELLINGS


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction at `offset` bytes from the start of the code; `text` as LLVM prints it."""

    offset: int
    instruction: MachineInstruction
    text: str


def disassemble(
    code: bytes, family: str, *, wave: int = 32, true16: bool = True, offset: int = 0
) -> Iterator[Line]:
    """Every instruction of `code` in order. Raises `DecodeError` at bytes that are none."""
    printer = Printer(family, wave=wave, true16=true16)
    decoder = printer.decoder
    while offset < len(code):
        instruction = decoder.decode(code, offset)
        yield Line(offset, instruction, printer.text(instruction))
        offset += instruction.size


class Printer:
    """Prints instructions of one family, wave size and 16-bit spelling."""

    def __init__(self, family: str, *, wave: int = 32, true16: bool = True) -> None:
        self.decoder: Decoder = decoder_for(family, wave)
        self.family, self.wave = family, wave
        self.spelling = SPELLINGS[family]
        self.true16 = true16 and self.spelling.true16
        self._hwregs = self._latest(names.HWREGS)
        self._messages = self._latest(names.MESSAGES)
        self._formats = self._latest(names.BUFFER_FORMATS)

    def _latest(self, tables: Mapping[str, Mapping[int, str]]) -> Mapping[int, str]:
        return next((tables[g] for g in self.decoder.lineage if g in tables), {})

    def text(self, instruction: MachineInstruction) -> str:
        """The instruction in LLVM's assembly."""
        if instruction.parts:
            return " :: ".join(self._dual(part) for part in instruction.parts)
        format_ = instruction.format
        if format_ in ("ds", "flat", "global", "scratch", "mubuf", "mtbuf", "smem"):
            return self._memory(instruction)
        if format_.startswith("vop") or format_ in ("mfma", "mfma_scale", "vinterp"):
            return self._vector(instruction)
        if format_ in ("ldsdir", "exp"):
            return self._graphics(instruction)
        return self._scalar(instruction)

    # Operands.

    def _register(self, operand: Operand, plain: bool = False) -> str:
        if operand.half is not None and operand.kind == "vgpr" and not plain:
            if self.true16:
                return operand.text + (".h" if operand.half else ".l")
            return f"v{operand.code}"
        return operand.text

    def _parsed(self, instruction: MachineInstruction) -> tuple[tuple[str, str | None, str], ...]:
        return parse_operands(instruction.row.operands, instruction.row.format)

    # Scalar instructions.

    def _scalar(self, instruction: MachineInstruction) -> str:
        parts = []
        for role, _, token in self._parsed(instruction):
            printer = _IMMEDIATES.get(token)
            if printer is not None:
                text = printer(self, instruction.get("simm16"))
                if text:
                    parts.append(text)
            elif token == "sendmsg_rtn":
                parts.append(self._sendmsg(instruction.get("ssrc0")))
            else:
                parts.append(self._register(instruction.operands[role]))
        return f"{instruction.name} {', '.join(parts)}".rstrip()

    def _hwreg(self, value: int) -> str:
        register, offset, size = value & 63, value >> 6 & 31, (value >> 11) + 1
        name = self._hwregs.get(register, str(register))
        if register not in self._hwregs and self.spelling.numbers_of_unknown_registers:
            return f"{value:#x}"
        return f"hwreg({name})" if (offset, size) == (0, 32) else f"hwreg({name}, {offset}, {size})"

    def _sendmsg(self, value: int) -> str:
        if self.spelling.message_bits == 8:
            name = self._messages.get(value & 0xFF)
            if name and value <= 0xFF:
                return f"sendmsg({name})"
            return f"sendmsg({value & 0xFF}, 0, 0)" if value <= 0xFF else str(value)
        message, operation, stream = value & 15, value >> 4 & 7, value >> 8 & 3
        name = self._messages.get(message)
        if value & ~0x37F:
            return str(value)
        if name == "MSG_SYSMSG":
            op = _SYSTEM_OPERATIONS.get(operation)
            if op and not stream:
                return f"sendmsg({name}, {op})"
        elif name in ("MSG_GS", "MSG_GS_DONE"):
            op = _GEOMETRY_OPERATIONS.get(operation)
            if op == "GS_OP_NOP" and name == "MSG_GS_DONE" and not stream:
                return f"sendmsg({name}, {op})"
            if op and op != "GS_OP_NOP":
                return f"sendmsg({name}, {op}, {stream})"
        elif name and not operation and not stream:
            return f"sendmsg({name})"
        return f"sendmsg({message}, {operation}, {stream})"

    def _waitcnt(self, value: int) -> str:
        counters = self.spelling.waits.counters(value)
        every = all(count == most for _, count, most in counters)
        shown = (f"{name}({count})" for name, count, most in counters if every or count != most)
        return " ".join(shown)

    def _delay(self, value: int) -> str:
        first, skip, second = value & 15, value >> 4 & 7, value >> 7 & 15
        if value == 0:
            return "0"
        out = []
        if first:
            out.append(f"instid0({delay_name(first)})")
        if skip:
            out.append(f"instskip({_SKIPS[skip] if skip < len(_SKIPS) else skip})")
        if second:
            out.append(f"instid1({delay_name(second)})")
        return " | ".join(out)

    def _depctr(self, value: int) -> str:
        fields = [
            ("hold_cnt", value >> 7 & 1, 1),
            ("sa_sdst", value & 1, 1),
            ("va_vdst", value >> 12 & 15, 15),
            ("va_sdst", value >> 9 & 7, 7),
            ("va_ssrc", value >> 8 & 1, 1),
            ("va_vcc", value >> 1 & 1, 1),
            ("vm_vsrc", value >> 2 & 7, 7),
        ]
        if not self.spelling.hold_counter:
            fields = fields[1:]
        elif value & 0x60:  # bits of no counter
            return f"{value:#x}"
        shown = [f for f in fields if f[1] != f[2]] or fields
        return " ".join(f"depctr_{name}({count})" for name, count, _ in shown)

    # Vector instructions.

    def _mnemonic(self, instruction: MachineInstruction) -> str:
        kind = instruction.kind
        if kind.startswith("e64_"):
            return f"{instruction.name}_e64_dpp"
        if kind in ("dpp", "dpp8"):
            return (
                instruction.name
                if instruction.format == "vopc" and self.spelling.bare_compare_dpp
                else f"{instruction.name}_dpp"
            )
        if (
            "bare" in instruction.row.flags
            and kind in ("e32", "e64")
            and (kind == "e32" or self.spelling.bare_nop_e64)
        ):
            return instruction.name
        if not kind or instruction.format in ("mfma", "mfma_scale"):
            return instruction.name
        return f"{instruction.name}_{kind}"

    def _vector(self, instruction: MachineInstruction) -> str:
        get = instruction.get
        operands = instruction.operands
        parsed = self._parsed(instruction)
        parts = []
        sources = []
        vop3p = instruction.format in ("vop3p", "mfma", "mfma_scale")
        neg, abs_ = (0, 0) if vop3p else (get("neg"), get("abs"))
        if instruction.name.startswith("v_bitop3"):
            neg = abs_ = 0  # these bits hold its table
        if "_mix" in instruction.name:
            neg, abs_ = get("neg"), get("neg_hi")
        for role, _, token in parsed:
            if token == "k":
                parts.append(operands["k"].text)
                continue
            operand = operands.get(role)
            if operand is None:
                continue
            text = self._register(operand, plain=vop3p)
            if role in "abc":
                at = "abc".index(role)
                sources.append(role)
                if instruction.kind in ("dpp", "sdwa"):
                    text = self._modified(text, operand, get(f"src{at}_neg"), get(f"src{at}_abs"))
                    if get(f"src{at}_sext"):
                        text = f"sext({text})"
                elif _is_number(instruction, role):
                    text = self._modified(text, operand, neg >> at & 1, abs_ >> at & 1)
                elif neg >> at & 1 and self.spelling.signed_sources:
                    text = f"sext({text})"  # no instruction of these families means it
            parts.append(text)
        text = f"{self._mnemonic(instruction)} {', '.join(parts)}".rstrip()
        return text + "".join(f" {m}" for m in self._vector_modifiers(instruction, sources))

    def _modified(self, text: str, operand: Operand, negated: int, absolute: int) -> str:
        if absolute:
            text = f"|{text}|"
        if negated:
            text = (
                f"neg({text})"
                if operand.kind in ("constant", "literal") and not absolute
                else f"-{text}"
            )
        return text

    def _vector_modifiers(
        self, instruction: MachineInstruction, sources: list[str]
    ) -> Iterator[str]:
        get = instruction.get
        format_, kind = instruction.format, instruction.kind
        if format_ in ("mfma", "mfma_scale"):
            yield from self._mfma_modifiers(instruction)
            return
        if format_ == "vop3p":
            yield from self._packed_modifiers(instruction, sources)
        elif format_ in ("vop3", "vinterp"):
            yield from self._op_sel(instruction, sources)
        if instruction.name.startswith("v_bitop3"):
            table = _truth_table(instruction)
            if table:
                yield f"bitop3:{table_number(table)}"
            return
        if get("clamp"):
            yield "clamp"
        omod = get("omod")
        if omod:
            yield ("", "mul:2", "mul:4", "div:2")[omod]
        if kind == "sdwa":
            yield from self._sdwa_modifiers(instruction, sources)
        elif kind.endswith("dpp"):
            yield from self._dpp_modifiers(instruction)
        elif kind.endswith("dpp8"):
            lanes = get("dpp_lanes")
            yield f"dpp8:[{','.join(str(lanes >> 3 * i & 7) for i in range(8))}]"
            if get("src0") == 0xEA:
                yield "fi:1"
        if format_ == "vinterp":
            yield f"wait_exp:{get('wait_exp')}"

    def _op_sel(self, instruction: MachineInstruction, sources: list[str]) -> Iterator[str]:
        op_sel, name = instruction.get("op_sel"), instruction.name
        if not op_sel or (
            self.true16 and (name == "v_cndmask_b16" or instruction.format == "vinterp")
        ):
            return
        bits = [op_sel >> "abc".index(role) & 1 for role in sources]
        if self.spelling.byte_select and name in _BYTE_SELECT_SOURCE:
            yield f"byte_sel:{(op_sel & 1) << 1 | op_sel >> 1 & 1}"
            return
        if self.spelling.byte_select and name in _BYTE_SELECT_RESULT:
            yield f"byte_sel:{op_sel >> 2}"
            return
        if name in ("v_permlane16_swap_b32", "v_permlane32_swap_b32"):
            if op_sel & 2:
                yield "bound_ctrl:1"
            if op_sel & 1:
                yield "fi:1"
            return
        if name in _FOUR_SELECTS:
            bits = [op_sel >> i & 1 for i in range(4)]
        elif name.startswith("v_permlane"):
            bits = bits[:2]
        elif instruction.row.format != "vopc" or not (
            name.startswith("v_cmpx") or "dpp" in instruction.kind
        ):
            bits.append(op_sel >> 3)
        yield f"op_sel:[{','.join(map(str, bits))}]"

    def _dpp_modifiers(self, instruction: MachineInstruction) -> Iterator[str]:
        get = instruction.get
        yield names.dpp_control(get("dpp_ctrl"), self.spelling.row_share)
        yield f"row_mask:{get('row_mask'):#x}"
        yield f"bank_mask:{get('bank_mask'):#x}"
        if get("bound_ctrl"):
            yield "bound_ctrl:1"
        if get("fi"):
            yield "fi:1"

    def _sdwa_modifiers(self, instruction: MachineInstruction, sources: list[str]) -> Iterator[str]:
        get = instruction.get
        narrow = "_fp8" in instruction.name or "_bf8" in instruction.name
        if instruction.row.format != "vopc" and "d" in instruction.operands and not narrow:
            yield f"dst_sel:{names.SDWA_SELECT[get('dst_sel')]}"
            yield f"dst_unused:{names.SDWA_UNUSED[get('dst_unused')]}"
        for at in range(min(2, len([s for s in sources if s in "ab"]))):
            yield f"src{at}_sel:{names.SDWA_SELECT[get(f'src{at}_sel')]}"

    def _packed_modifiers(
        self, instruction: MachineInstruction, sources: list[str]
    ) -> Iterator[str]:
        count = len(sources)

        def bits(name: str) -> list[int]:
            return [instruction.get(name) >> i & 1 for i in range(count)]

        mixed = "_mix" in instruction.name
        default_hi = 0 if mixed else 1
        for name, default in (
            ("op_sel", 0),
            ("op_sel_hi", default_hi),
            ("neg", 0),
            ("neg_hi", 0),
        ):
            if mixed and name.startswith("neg"):
                continue
            values = bits(name)
            if any(v != default for v in values):
                shown = "neg_lo" if name == "neg" else name
                yield f"{shown}:[{','.join(map(str, values))}]"

    def _mfma_modifiers(self, instruction: MachineInstruction) -> Iterator[str]:
        if instruction.format == "mfma_scale":
            for name, default in (("op_sel", 0), ("op_sel_hi", 1)):
                values = [instruction.get(name) >> i & 1 for i in range(3)]
                if any(v != default for v in values):
                    yield f"{name}:[{','.join(map(str, values))}]"
        double = "_f64" in instruction.name and self.spelling.double_negation
        for name in ("cbsz", "abid", "blgp"):
            value = instruction.get(name)
            if name == "blgp" and value and double:
                yield f"neg:[{','.join(str(value >> i & 1) for i in range(3))}]"
            elif value and not (name == "abid" and instruction.format == "mfma_scale"):
                yield f"{name}:{value}"

    def _dual(self, part: MachineInstruction) -> str:
        parts = []
        negated = part.get(f"neg{part.format[-1]}")
        for role, _, token in parse_operands(part.row.operands, "vop2"):
            if token == "vcc" and part.kind != "vopd3":
                continue  # LLVM leaves it out here
            operand = part.operands[role]
            minus = role in "abc" and negated >> "abc".index(role) & 1
            parts.append(self._modified(operand.text, operand, minus, 0))
        text = f"{part.name} {', '.join(parts)}"
        if "bitop" in part.name:
            table = part.get(f"vsrc{part.format[-1]}2")
            text += f" bitop3:{table_number(table)}" if table else ""
        return text

    # Memory instructions.

    def _memory(self, instruction: MachineInstruction) -> str:
        format_ = instruction.format
        if format_ == "smem":
            return self._smem(instruction)
        if format_ == "ds":
            return self._ds(instruction)
        if format_ in ("mubuf", "mtbuf"):
            return self._buffer(instruction)
        return self._flat(instruction)

    def _smem(self, instruction: MachineInstruction) -> str:
        if not instruction.row.operands:
            return instruction.name
        operands = instruction.operands
        parts = []
        for role, _, _ in self._parsed(instruction):
            parts.append(operands[role].text)
        if "prefetch" in instruction.name:
            return self._prefetch(instruction, parts)
        if "atc_probe" in instruction.name:
            parts.insert(0, str(instruction.get("sdata")))
        text = f"{instruction.name} {', '.join(parts)}"
        if "base" in operands:
            text += self._smem_offset(instruction)
        return text + self._cache_bits(instruction)

    def _prefetch(self, instruction: MachineInstruction, parts: list[str]) -> str:
        register = self.decoder.tables.scalar(instruction.get("soffset"))
        assert register is not None
        offset = instruction.offset
        shown = f"-{-offset:#x}" if offset < 0 else f"{offset:#x}"
        parts += [shown, register.text, str(instruction.get("sdata"))]
        return f"{instruction.name} {', '.join(parts)}"

    def _smem_offset(self, instruction: MachineInstruction) -> str:
        get, offset = instruction.get, instruction.offset
        shown = f"-{-offset:#x}" if offset < 0 else f"{offset:#x}"
        register = instruction.operands.get("soffset")
        if "soffset_en" in instruction.form.encoding.pieces:
            if not get("imm") and not get("soffset_en"):
                register, offset = self.decoder.tables.scalar(get("offset") & 127), 0
            elif not get("imm"):
                offset = 0
            elif register is not None:
                return f", {register.text} offset:{shown}"
            if not get("imm"):
                return f", {register.text}" if register else ""
        always = self.spelling.scalar_offset_always
        if register is None:
            return ", null" if not offset and self.spelling.scalar_offset_null else f", {shown}"
        return f", {register.text}" + (f" offset:{shown}" if offset or always else "")

    def _ds(self, instruction: MachineInstruction) -> str:
        get, operands = instruction.get, instruction.operands
        parts = [operands[role].text for role, _, _ in self._parsed(instruction)]
        text = f"{instruction.name} {', '.join(parts)}".rstrip()
        if (
            "2addr" in instruction.name
            or "read2" in instruction.name
            or "write2" in instruction.name
            or "xchg2" in instruction.name
        ):
            for i in (0, 1):
                if get(f"offset{i}"):
                    text += f" offset{i}:{get(f'offset{i}')}"
        else:
            offset = get("offset0") | get("offset1") << 8
            if offset:
                text += (
                    f" {swizzle(offset)}" if "swizzle" in instruction.name else f" offset:{offset}"
                )
        return text + (" gds" if get("gds") else "")

    def _flat(self, instruction: MachineInstruction) -> str:
        get, operands = instruction.get, instruction.operands
        parts = []
        for role, _, token in self._parsed(instruction):
            operand = operands.get(role)
            if token == "lds" or (role == "d" and (operand is None or get("lds"))):
                continue
            parts.append("off" if operand is None else operand.text)
        if "base" in operands:
            parts.append(operands["base"].text)
        elif instruction.format != "flat" and parts:
            parts.append("off")
        text = f"{instruction.name} {', '.join(parts)}".rstrip()
        offset = instruction.offset
        if offset:
            text += f" offset:{offset}"
        return text + self._cache_bits(instruction)

    def _cache_bits(self, instruction: MachineInstruction) -> str:
        get = instruction.get
        pieces = instruction.form.encoding.pieces
        if "th" in pieces:
            return self._temporal(instruction)
        out = ""
        order = ("sc0", "nt", "sc1") if "sc0" in pieces else ("glc", "slc", "dlc", "scc")
        for name in order:
            if get(name):
                out += f" {name}"
        if get("lds"):
            out += " lds"
        if get("nv"):
            out += " nv"
        if get("tfe"):
            out += " tfe"
        return out

    def _temporal(self, instruction: MachineInstruction) -> str:
        th, scope = instruction.get("th"), instruction.get("scope")
        out = " scale_offset" if instruction.get("scale_offset") else ""
        if th:
            out += f" th:{temporal_hint(instruction.name, th, scope)}"
        if scope:
            out += f" scope:{('', 'SCOPE_SE', 'SCOPE_DEV', 'SCOPE_SYS')[scope]}"
        if instruction.get("nv"):
            out += " nv"
        if instruction.get("tfe"):
            out += " tfe"
        return out

    def _buffer(self, instruction: MachineInstruction) -> str:
        get, operands = instruction.get, instruction.operands
        if not instruction.row.operands:
            return instruction.name + self._cache_bits(instruction)
        parts = []
        if "data" in operands or "d" in operands:
            parts.append((operands.get("data") or operands["d"]).text)
        address = operands.get("address")
        parts += ["off" if address is None else address.text]
        parts += [operands["base"].text, operands["soffset"].text]
        text = f"{instruction.name} {', '.join(parts)}"
        if instruction.format == "mtbuf":
            text += self._format(instruction)
        for name in ("idxen", "offen"):
            if get(name):
                text += f" {name}"
        if instruction.offset:
            text += f" offset:{instruction.offset}"
        return text + self._cache_bits(instruction)

    def _format(self, instruction: MachineInstruction) -> str:
        get = instruction.get
        if "dfmt" in instruction.form.encoding.pieces:
            data, number = get("dfmt"), get("nfmt")
            shown = []
            if data != 1:
                shown.append(f"BUF_DATA_FORMAT_{names.DATA_FORMATS[data]}")
            if number:
                shown.append(f"BUF_NUM_FORMAT_{names.NUMBER_FORMATS[number]}")
            return f" format:[{','.join(shown)}]" if shown else ""
        value = get("format")
        if value == 1:
            return ""
        name = self._formats.get(value)
        return f" format:[{name}]" if name else f" format:{value}"

    def _graphics(self, instruction: MachineInstruction) -> str:
        get, operands = instruction.get, instruction.operands
        if instruction.format == "ldsdir":
            text = f"{instruction.name} {operands['d'].text}"
            if "param" in instruction.name:
                text += f", attr{get('attr')}.{'xyzw'[get('attr_chan')]}"
            for name in ("wait_vdst", "wait_va_vdst", "wait_vm_vsrc"):
                if name in instruction.form.encoding.pieces:
                    text += f" {name}:{get(name)}"
            return text
        enabled = get("en")
        order = "aabb" if get("compr") else "abce"  # compressed: two halves a register
        sources = [
            operands[role].text if enabled >> at & 1 else "off" for at, role in enumerate(order)
        ]
        text = f"{instruction.name} {export_target(get('target'))} {', '.join(sources)}"
        for name, word in (("done", "done"), ("compr", "compr"), ("vm", "vm"), ("row", "row_en")):
            if get(name):
                text += f" {word}"
        return text


_BYTE_SELECT_SOURCE = frozenset(
    ("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_f16_fp8", "v_cvt_f16_bf8")
)
_BYTE_SELECT_RESULT = frozenset(
    ("v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32", "v_cvt_sr_fp8_f16", "v_cvt_sr_bf8_f16")
)
"""Conversions whose op_sel bits choose one of four bytes."""
_FOUR_SELECTS = frozenset(
    (
        "v_cvt_sr_fp8_f32",
        "v_cvt_sr_bf8_f32",
        "v_cvt_scalef32_pk_fp4_f16",
        "v_cvt_scalef32_pk_fp4_bf16",
    )
)
"""Conversions of two sources whose op_sel is printed with the third's place."""
_SKIPS = ("SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")
_SYSTEM_OPERATIONS = {
    1: "SYSMSG_OP_ECC_ERR_INTERRUPT",
    2: "SYSMSG_OP_REG_RD",
    3: "SYSMSG_OP_HOST_TRAP_ACK",
    4: "SYSMSG_OP_TTRACE_PC",
}
_GEOMETRY_OPERATIONS = {0: "GS_OP_NOP", 1: "GS_OP_CUT", 2: "GS_OP_EMIT", 3: "GS_OP_EMIT_CUT"}


def _is_number(instruction: MachineInstruction, role: str) -> bool:
    """Whether a source may be negated: floats, and masks and bits that LLVM prints so."""
    type_ = instruction.form.types.get(role)
    return type_ is None or not type_.base.startswith(("i", "u"))


def _truth_table(instruction: MachineInstruction) -> int:
    """The 8 bits of a bitop3, that stand where other instructions have modifiers."""
    get = instruction.get
    return get("neg") | get("abs") << 3 | get("omod") << 6


_IMMEDIATES: Mapping[str, Callable[[Printer, int], str]] = {
    "simm": lambda _, v: str(v - (v >> 15 << 16)),
    "uimm": lambda _, v: short(v),
    "himm": lambda _, v: hex(v),
    "k16": lambda _, v: hex(v),
    "uk16": lambda _, v: hex(v),
    "label": lambda _, v: str(v),
    "endpgm": lambda _, v: str(v) if v else "",
    "hwreg": Printer._hwreg,
    "sendmsg": Printer._sendmsg,
    "waitcnt": Printer._waitcnt,
    "delay": Printer._delay,
    "depctr": Printer._depctr,
}
