"""Relocation kinds as rows: which value a kind computes and which bits it fills.

`KINDS[machine][number]` is the row; its `bits` check the range and write. Letters are the psABI's:
S symbol, A addend, P place, G the symbol's GOT slot, GOT the table's start, L the symbol or its
stub, Page(x) 4 KiB page.

Source: psABI x86-64 1.0, table 4.9; AAELF64 2024Q3, tables 5.7.4 to 5.7.9. Compared with ld.lld in
the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from rawgpu.native.elf import Machine

U64 = (1 << 64) - 1


class OutOfRange(Exception):
    """A value that its bits cannot hold; the caller adds the place and raises BadElf."""


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses a relocation may ask for. `slot` and `stub` are 0 where the kind needs none."""

    symbol: int
    addend: int
    place: int
    slot: int
    stub: int
    got: int


Value = Callable[[Places], int]
Store = Callable[[bytearray, int, int], None]


@dataclass(frozen=True, slots=True)
class Bits:
    """Where a value goes: `put(data, offset, value)` checks it and changes `size_bytes`."""

    size_bytes: int
    put: Store


@dataclass(frozen=True, slots=True)
class Kind:
    """One relocation kind."""

    name: str
    value: Value
    bits: Bits
    needs_slot: bool = False
    needs_stub: bool = False
    """The symbol may be reached through a stub: it is called, not addressed."""


def page(address: int) -> int:
    return address & ~0xFFF


# --- values ------------------------------------------------------------------------------------


def absolute(p: Places) -> int:
    return p.symbol + p.addend


def relative(p: Places) -> int:
    return p.symbol + p.addend - p.place


def call(p: Places) -> int:
    return p.stub + p.addend - p.place


def call_from_got(p: Places) -> int:
    return p.stub + p.addend - p.got


def slot_relative(p: Places) -> int:
    return p.slot + p.addend - p.place


def slot_from_got(p: Places) -> int:
    return p.slot + p.addend - p.got


def from_got(p: Places) -> int:
    return p.symbol + p.addend - p.got


def got_relative(p: Places) -> int:
    return p.got + p.addend - p.place


def page_relative(p: Places) -> int:
    return page(p.symbol + p.addend) - page(p.place)


def slot_address(p: Places) -> int:
    return p.slot + p.addend


def slot_page_relative(p: Places) -> int:
    return page(p.slot + p.addend) - page(p.place)


def slot_from_got_page(p: Places) -> int:
    return p.slot + p.addend - page(p.got)


def nothing(p: Places) -> int:
    return 0


# --- bits --------------------------------------------------------------------------------------


def _signed(value: int, bits: int) -> None:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OutOfRange(f"{value:#x} does not fit in {bits} signed bits")


def _keep(data: bytearray, offset: int, value: int) -> None:
    """R_*_NONE."""


keep = Bits(0, _keep)


def word(code: str, low: int, high: int) -> Bits:
    """A whole little-endian integer that takes `low` to `high`."""
    packer = struct.Struct(code)
    mask = (1 << 8 * packer.size) - 1

    def store(data: bytearray, offset: int, value: int) -> None:
        if not low <= value <= high:
            raise OutOfRange(f"{value:#x} does not fit in {packer.size} bytes")
        packer.pack_into(data, offset, value & mask)

    return Bits(packer.size, store)


word64 = word("<Q", -(1 << 63), U64)
signed32 = word("<I", -(1 << 31), (1 << 31) - 1)
unsigned32 = word("<I", 0, (1 << 32) - 1)
either32 = word("<I", -(1 << 31), (1 << 32) - 1)
either16 = word("<H", -(1 << 15), (1 << 16) - 1)


def _patch(data: bytearray, offset: int, mask: int, bits: int) -> None:
    """Replace the `mask` bits of the AArch64 instruction at `offset`."""
    if offset % 4:
        raise OutOfRange("an AArch64 instruction is 4-byte aligned")
    old = int.from_bytes(data[offset : offset + 4], "little")
    data[offset : offset + 4] = (old & ~mask | bits & mask).to_bytes(4, "little")


def branch(bits: int, shift: int) -> Bits:
    """A distance in instructions, `bits` wide, from bit `shift`."""

    def store(data: bytearray, offset: int, value: int) -> None:
        if value % 4:
            raise OutOfRange(f"{value:#x} is not a multiple of 4")
        _signed(value, bits + 2)
        _patch(data, offset, (1 << bits) - 1 << shift, value >> 2 << shift)

    return Bits(4, store)


def _adr(data: bytearray, offset: int, value: int) -> None:
    low, high = value & 3, value >> 2 & 0x7FFFF
    _patch(data, offset, 0x60FFFFE0, low << 29 | high << 5)


def _adr_near(data: bytearray, offset: int, value: int) -> None:
    _signed(value, 21)
    _adr(data, offset, value)


def _adrp(data: bytearray, offset: int, value: int) -> None:
    _signed(value, 33)
    _adr(data, offset, value >> 12)


def _adrp_unchecked(data: bytearray, offset: int, value: int) -> None:
    _adr(data, offset, value >> 12)


adr = Bits(4, _adr_near)
adrp = Bits(4, _adrp)
adrp_unchecked = Bits(4, _adrp_unchecked)


def low12(scale: int, bits: int = 12) -> Bits:
    """The low 12 (or 15) bits of an address, in units of `1 << scale`, as an imm12."""

    def store(data: bytearray, offset: int, value: int) -> None:
        if bits > 12 and not 0 <= value < 1 << bits:
            raise OutOfRange(f"{value:#x} does not fit in {bits} bits")
        low = value & ((1 << bits) - 1)
        if low & ((1 << scale) - 1):
            raise OutOfRange(f"{value:#x} is not a multiple of {1 << scale}")
        _patch(data, offset, 0xFFF << 10, low >> scale << 10)

    return Bits(4, store)


def movw(group: int, check: bool) -> Bits:
    """Sixteen bits of an unsigned value."""

    def store(data: bytearray, offset: int, value: int) -> None:
        if check and not 0 <= value < 1 << 16 * (group + 1):
            raise OutOfRange(f"{value:#x} does not fit in {16 * (group + 1)} unsigned bits")
        _patch(data, offset, 0xFFFF << 5, (value >> 16 * group & 0xFFFF) << 5)

    return Bits(4, store)


def movw_signed(group: int, check: bool = True) -> Bits:
    """Sixteen bits of a signed value; turns MOVZ into MOVN where it is negative, unless MOVK."""

    def store(data: bytearray, offset: int, value: int) -> None:
        if check:
            _signed(value, 16 * (group + 1) + 1)
            shown = ~value if value < 0 else value
            _patch(data, offset, 1 << 30, 0 if value < 0 else 1 << 30)
        else:
            shown = value
        _patch(data, offset, 0xFFFF << 5, (shown >> 16 * group & 0xFFFF) << 5)

    return Bits(4, store)


# --- tables ------------------------------------------------------------------------------------

# fmt: off
X86_64: dict[int, Kind] = {
    0:  Kind("R_X86_64_NONE", nothing, keep),
    1:  Kind("R_X86_64_64", absolute, word64),
    2:  Kind("R_X86_64_PC32", relative, signed32),
    3:  Kind("R_X86_64_GOT32", slot_from_got, signed32, needs_slot=True),
    4:  Kind("R_X86_64_PLT32", call, signed32, needs_stub=True),
    9:  Kind("R_X86_64_GOTPCREL", slot_relative, signed32, needs_slot=True),
    10: Kind("R_X86_64_32", absolute, unsigned32),
    11: Kind("R_X86_64_32S", absolute, signed32),
    24: Kind("R_X86_64_PC64", relative, word64),
    25: Kind("R_X86_64_GOTOFF64", from_got, word64),
    26: Kind("R_X86_64_GOTPC32", got_relative, signed32),
    27: Kind("R_X86_64_GOT64", slot_from_got, word64, needs_slot=True),
    28: Kind("R_X86_64_GOTPCREL64", slot_relative, word64, needs_slot=True),
    29: Kind("R_X86_64_GOTPC64", got_relative, word64),
    31: Kind("R_X86_64_PLTOFF64", call_from_got, word64, needs_stub=True),
    41: Kind("R_X86_64_GOTPCRELX", slot_relative, signed32, needs_slot=True),
    42: Kind("R_X86_64_REX_GOTPCRELX", slot_relative, signed32, needs_slot=True),
    43: Kind("R_X86_64_CODE_4_GOTPCRELX", slot_relative, signed32, needs_slot=True),
}

AARCH64: dict[int, Kind] = {
    0:   Kind("R_AARCH64_NONE", nothing, keep),
    256: Kind("R_AARCH64_NONE_256", nothing, keep),
    257: Kind("R_AARCH64_ABS64", absolute, word64),
    258: Kind("R_AARCH64_ABS32", absolute, either32),
    259: Kind("R_AARCH64_ABS16", absolute, either16),
    260: Kind("R_AARCH64_PREL64", relative, word64),
    261: Kind("R_AARCH64_PREL32", relative, either32),
    262: Kind("R_AARCH64_PREL16", relative, either16),
    263: Kind("R_AARCH64_MOVW_UABS_G0", absolute, movw(0, True)),
    264: Kind("R_AARCH64_MOVW_UABS_G0_NC", absolute, movw(0, False)),
    265: Kind("R_AARCH64_MOVW_UABS_G1", absolute, movw(1, True)),
    266: Kind("R_AARCH64_MOVW_UABS_G1_NC", absolute, movw(1, False)),
    267: Kind("R_AARCH64_MOVW_UABS_G2", absolute, movw(2, True)),
    268: Kind("R_AARCH64_MOVW_UABS_G2_NC", absolute, movw(2, False)),
    269: Kind("R_AARCH64_MOVW_UABS_G3", absolute, movw(3, False)),
    270: Kind("R_AARCH64_MOVW_SABS_G0", absolute, movw_signed(0)),
    271: Kind("R_AARCH64_MOVW_SABS_G1", absolute, movw_signed(1)),
    272: Kind("R_AARCH64_MOVW_SABS_G2", absolute, movw_signed(2)),
    273: Kind("R_AARCH64_LD_PREL_LO19", relative, branch(19, 5)),
    274: Kind("R_AARCH64_ADR_PREL_LO21", relative, adr),
    275: Kind("R_AARCH64_ADR_PREL_PG_HI21", page_relative, adrp),
    276: Kind("R_AARCH64_ADR_PREL_PG_HI21_NC", page_relative, adrp_unchecked),
    277: Kind("R_AARCH64_ADD_ABS_LO12_NC", absolute, low12(0)),
    278: Kind("R_AARCH64_LDST8_ABS_LO12_NC", absolute, low12(0)),
    279: Kind("R_AARCH64_TSTBR14", call, branch(14, 5), needs_stub=True),
    280: Kind("R_AARCH64_CONDBR19", call, branch(19, 5), needs_stub=True),
    282: Kind("R_AARCH64_JUMP26", call, branch(26, 0), needs_stub=True),
    283: Kind("R_AARCH64_CALL26", call, branch(26, 0), needs_stub=True),
    284: Kind("R_AARCH64_LDST16_ABS_LO12_NC", absolute, low12(1)),
    285: Kind("R_AARCH64_LDST32_ABS_LO12_NC", absolute, low12(2)),
    286: Kind("R_AARCH64_LDST64_ABS_LO12_NC", absolute, low12(3)),
    287: Kind("R_AARCH64_MOVW_PREL_G0", relative, movw_signed(0)),
    288: Kind("R_AARCH64_MOVW_PREL_G0_NC", relative, movw_signed(0, False)),
    289: Kind("R_AARCH64_MOVW_PREL_G1", relative, movw_signed(1)),
    290: Kind("R_AARCH64_MOVW_PREL_G1_NC", relative, movw_signed(1, False)),
    291: Kind("R_AARCH64_MOVW_PREL_G2", relative, movw_signed(2)),
    292: Kind("R_AARCH64_MOVW_PREL_G2_NC", relative, movw_signed(2, False)),
    293: Kind("R_AARCH64_MOVW_PREL_G3", relative, movw(3, False)),
    299: Kind("R_AARCH64_LDST128_ABS_LO12_NC", absolute, low12(4)),
    307: Kind("R_AARCH64_GOTREL64", from_got, word64),
    308: Kind("R_AARCH64_GOTREL32", from_got, signed32),
    309: Kind("R_AARCH64_GOT_LD_PREL19", slot_relative, branch(19, 5), needs_slot=True),
    310: Kind("R_AARCH64_LD64_GOTOFF_LO15", slot_from_got, low12(3, 15), needs_slot=True),
    311: Kind("R_AARCH64_ADR_GOT_PAGE", slot_page_relative, adrp, needs_slot=True),
    312: Kind("R_AARCH64_LD64_GOT_LO12_NC", slot_address, low12(3), needs_slot=True),
    313: Kind("R_AARCH64_LD64_GOTPAGE_LO15", slot_from_got_page, low12(3, 15), needs_slot=True),
    314: Kind("R_AARCH64_PLT32", call, signed32, needs_stub=True),
    315: Kind("R_AARCH64_GOTPCREL32", slot_relative, signed32, needs_slot=True),
}
# fmt: on

KINDS: dict[Machine, dict[int, Kind]] = {Machine.X86_64: X86_64, Machine.AARCH64: AARCH64}


# --- stubs -------------------------------------------------------------------------------------

STUB_BYTES = 16


def stub(machine: Machine, place: int, slot: int) -> bytes:
    """Code at `place` that jumps to the address in `slot`. Takes x16 on AArch64, as stubs may."""
    if machine is Machine.X86_64:
        distance = slot - (place + 6)
        if not -(1 << 31) <= distance < 1 << 31:
            raise OutOfRange(f"stub to slot distance {distance:#x}")
        return b"\xff\x25" + struct.pack("<i", distance) + b"\xcc" * 10  # jmp *slot(%rip)
    code = bytearray(struct.pack("<4I", 0x90000010, 0xF9400210, 0xD61F0200, 0xD4200000))
    adrp.put(code, 0, page(slot) - page(place))  # adrp x16, slot
    low12(3).put(code, 4, slot)  # ldr x16, [x16, :lo12:slot]; br x16; brk 0
    return bytes(code)
