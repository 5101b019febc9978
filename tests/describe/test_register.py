"""Registers: bits, offsets, tables, and what each refuses."""

from __future__ import annotations

from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawgpu.describe.field import DecodeError, EncodingError
from rawgpu.describe.register import Register, RegisterSet, at, register
from rawgpu.describe.value import DeclarationError

SOURCE = "a made-up manual"


class Mode(IntEnum):
    ROUND = 0
    FLOOR = 2


class RSRC(Register, offset=0xB848, source=SOURCE):
    VGPRS: int = at(5, 0)
    SGPRS: int = at(9, 6)
    MODE: Mode = at(13, 12, default=Mode.ROUND)
    PRIV: bool = at(20, default=False)


class RSRC_NEW(RSRC, offset=0xB84C, source=SOURCE):
    VGPRS: int = at(4, 0)


OLD = RegisterSet(
    "old",
    [
        RSRC,
        register("DIM", 0xB804, "X 15:0, READY 16", source=SOURCE, module=__name__),
        register("START", 0xB810, source=SOURCE, module=__name__),
    ],
)
NEW = OLD.evolve("new", put=[RSRC_NEW], drop=[OLD.named("START")])


def test_a_register_is_its_fields() -> None:
    value = RSRC(VGPRS=3, MODE=Mode.FLOOR, PRIV=True)
    assert value.encode() == 1 << 20 | 2 << 12 | 3
    assert RSRC.decode(value.encode()) == value
    assert RSRC.mask_of("SGPRS", "PRIV") == 1 << 20 | 0x3C0
    assert repr(value) == "RSRC(VGPRS=3, SGPRS=0, MODE=Mode.FLOOR, PRIV=True)"


def test_tables_declare_registers_in_a_line_each() -> None:
    dim = OLD.named("DIM")
    assert dim(X=7, READY=1).encode() == 1 << 16 | 7
    assert OLD.named("START")(value=9).encode() == 9
    assert OLD.at(0xB804) is dim
    assert OLD.offset("DIM") == OLD.offset(dim) == 0xB804


def test_a_generation_moves_a_register_and_keeps_its_name() -> None:
    assert NEW.named("RSRC") is RSRC_NEW
    assert (OLD.offset(RSRC), NEW.offset(RSRC)) == (0xB848, 0xB84C)
    assert NEW.changes() == ([RSRC_NEW], [OLD.named("START")])
    with pytest.raises(DecodeError, match="new has no register at 0xb810"):
        NEW.at(0xB810)
    with pytest.raises(DeclarationError, match="drops START, which new lacks"):
        NEW.evolve("newer", drop=[OLD.named("START")])
    with pytest.raises(DeclarationError, match="puts RSRC_NEW, which new has"):
        NEW.evolve("newer", put=[RSRC_NEW])


def test_refusals() -> None:
    with pytest.raises(EncodingError, match=r"RSRC\.VGPRS is 64, and 6 bits hold 0 to 63"):
        RSRC(VGPRS=64).encode()
    with pytest.raises(DecodeError, match="no field names: 0x80000000"):
        RSRC.decode(1 << 31)
    assert RSRC.decode(1 << 31 | 5, strict=False).VGPRS == 5
    with pytest.raises(DecodeError, match=r"RSRC\.MODE is 0x1, no Mode"):
        RSRC.decode(1 << 12)
    assert RSRC.decode(1 << 12, strict=False).MODE == 1
    with pytest.raises(DecodeError, match="32 bits"):
        RSRC.decode(1 << 32)


def test_bad_declarations_fail_at_import() -> None:
    with pytest.raises(DeclarationError, match="overlaps A"):
        register("BAD", 0, "A 3:0, B 7:3", source=SOURCE, module=__name__)
    with pytest.raises(DeclarationError, match="outside 32 bits"):
        register("BAD", 0, "A 32", source=SOURCE, module=__name__)
    with pytest.raises(DeclarationError, match="is no field like"):
        register("BAD", 0, "A=3", source=SOURCE, module=__name__)
    with pytest.raises(DeclarationError, match="needs an offset"):

        class NoOffset(Register, source=SOURCE):
            A: int = at(0)

    with pytest.raises(DeclarationError, match="in one place"):
        RegisterSet("twice", [RSRC, RSRC_NEW])


@given(st.integers(0, 63), st.integers(0, 15), st.sampled_from(Mode), st.booleans())
def test_decode_undoes_encode(vgprs: int, sgprs: int, mode: Mode, priv: bool) -> None:
    value = RSRC(VGPRS=vgprs, SGPRS=sgprs, MODE=mode, PRIV=priv)
    assert RSRC.decode(value.encode()) == value
