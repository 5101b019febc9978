"""Context save areas: what is written is read, and what is no save area gives no waves."""

from __future__ import annotations

import random

import pytest

from rawgpu.amd.spec import savearea
from rawgpu.amd.spec.savearea import WaveRecords, WaveToSave, saved, waves_of

CONTROL = 0x2000
RECORDS = (savearea.RECORDS_GFX9, savearea.RECORDS_GFX10, savearea.RECORDS_GFX12)


def wave(number: int, records: WaveRecords, lanes: int) -> WaveToSave:
    vgprs = 24 * (1 + number % 3)
    return WaveToSave(
        pc=0x12_3456_7000 + 4 * number,
        exec=(1 << lanes) - 1 - number,
        lanes=lanes,
        sgprs=bytes(4 * (128 if records.sgprs is None else 48)),
        vgprs=bytes(4 * lanes * vgprs),
        lds=bytes(1024),
        first=number % 4 == 0,
        status=1 << 13,
        exceptions=1 << records.illegal_instruction if number == 3 else 0,
    )


@pytest.mark.parametrize("records", RECORDS, ids=["gfx9", "gfx10", "gfx12"])
def test_waves_come_back_in_order(records: WaveRecords) -> None:
    for lanes in records.vgpr_units:
        waves = [wave(number, records, lanes) for number in range(9)]
        found = waves_of(saved(waves, CONTROL, records), CONTROL, records)
        assert [w.pc for w in found] == [w.pc for w in waves]
        assert [w.exec for w in found] == [w.exec for w in waves]
        assert [w.illegal_instruction for w in found] == [n == 3 for n in range(9)]
        assert not any(w.memory_violation for w in found)
    assert waves_of(saved([], CONTROL, records), CONTROL, records) == []


@pytest.mark.parametrize("records", RECORDS, ids=["gfx9", "gfx10", "gfx12"])
def test_damaged_areas_give_no_waves_or_some_and_never_an_error(records: WaveRecords) -> None:
    chance, none = random.Random(5), 0
    area = saved([wave(n, records, 64) for n in range(5)], CONTROL, records)
    for _ in range(500):
        image = bytearray(area)
        for _ in range(3):
            at = chance.choice((chance.randrange(40), chance.randrange(CONTROL - 80, CONTROL)))
            image[at] = chance.randrange(256)
        none += not waves_of(bytes(image[: chance.choice((len(image), 60))]), CONTROL, records)
    assert none > 100
