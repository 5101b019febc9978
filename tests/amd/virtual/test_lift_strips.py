"""What strips of lanes must not mix up: registers written in front of a loop that needs the old."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawgpu.amd.spec.isa.machine import MachineInstruction
from rawgpu.amd.virtual.lift_strips import MOST_ROWS
from tests.amd.virtual import wave_batch
from tests.amd.virtual.wave_one import made, run

CHIPS = ["gfx90a", "gfx942"]
LANES = 64
VCC = 106
FULL = (1 << LANES) - 1
LONG = 16
"""Instructions of a sequence: enough for several runs of strips."""


def _v(number: int) -> int:
    """A vector register as a source."""
    return 256 + number


def _both(code: list[MachineInstruction], chip: str, **given: Any) -> tuple[Any, Any]:
    """The state after the code, interpreted and lifted."""
    slow, fast = (run(code, chip, LANES, lifted=on, **given) for on in (False, True))
    assert np.array_equal(slow.s[:108], fast.s[:108])
    assert np.array_equal(slow.v[:32], fast.v[:32])
    return slow, fast


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("bits", [FULL, FULL & ~0x8000_0400_0020_0001])
def test_loads_into_a_register_that_is_still_read(chip: str, bits: int) -> None:
    """v2 is added up between loads into it, more of them than have rows of their own."""
    code = [
        made("ds_write_b32", chip, LANES, addr=0, data0=1),
        made("v_mov_b32", chip, LANES, vdst=3, src0=128),
    ]
    for number in range(MOST_ROWS + 3):
        code += [
            made("v_add_u32", chip, LANES, vdst=3, src0=_v(3), vsrc1=2),
            made("ds_read_b32", chip, LANES, vdst=2, addr=0, offset0=4 * (number % 40)),
            made("v_xor_b32", chip, LANES, vdst=4, src0=_v(2), vsrc1=3),
        ]
    lanes = np.arange(LANES, dtype=np.uint32)
    given = {0: 4 * lanes, 1: lanes * 0x9E3779B1, 2: lanes + 7, 4: lanes}
    slow, _ = _both(code, chip, v=given, exec_bits=bits, lds_bytes=1024)
    if bits == FULL:
        words = np.zeros(256, np.uint32)
        words[:LANES] = given[1]
        loaded = sum(words[lanes + n % 40] for n in range(MOST_ROWS + 2))
        assert np.array_equal(slow.v[3], (given[2] + loaded).astype(np.uint32))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("bits", [FULL, 0x1234_5678_9ABC_DEF1])
def test_lane_masks_pass_from_strip_to_scalar(chip: str, bits: int) -> None:
    """A carry made and used in strips, then read by scalar instructions, then written by them."""
    code = [
        made("v_add_co_u32", chip, LANES, vdst=2, src0=_v(0), vsrc1=1),
        made("v_addc_co_u32", chip, LANES, vdst=3, src0=_v(0), vsrc1=0),
        made("v_cndmask_b32", chip, LANES, vdst=4, src0=_v(0), vsrc1=1),
        made("s_mov_b64", chip, LANES, sdst=10, ssrc0=VCC),
        made("s_not_b64", chip, LANES, sdst=VCC, ssrc0=VCC),
        made("v_cndmask_b32", chip, LANES, vdst=5, src0=_v(0), vsrc1=1),
        made("v_cmp_lt_u32", chip, LANES, src0=_v(0), vsrc1=1),
        made("s_mov_b32", chip, LANES, sdst=VCC, ssrc0=128),
        made("v_cndmask_b32", chip, LANES, vdst=6, src0=_v(0), vsrc1=1),
    ]
    rng = np.random.default_rng(5)
    given = {i: rng.integers(0, 1 << 32, LANES, dtype=np.uint32) for i in range(7)}
    slow, _ = _both(code, chip, v=given, exec_bits=bits)
    first, second = (given[i].astype(np.uint64) for i in (0, 1))
    carries = (first + first + ((first + second) >> 32)) >> 32
    want = sum(int(c) << i for i, c in enumerate(carries)) & bits
    assert int(slow.s[10]) | int(slow.s[11]) << 32 == want


@pytest.mark.parametrize("chip", CHIPS)
def test_what_crosses_lanes_comes_between_strips(chip: str) -> None:
    """The first lane of what a strip makes, and a strip that uses it."""
    code: list[MachineInstruction] = []
    for number in range(3):
        code += [
            made("v_add_u32", chip, LANES, vdst=2, src0=_v(2), vsrc1=0),
            made("v_readfirstlane_b32", chip, LANES, vdst=20 + number, src0=_v(2)),
            made("v_add_u32", chip, LANES, vdst=2, src0=20 + number, vsrc1=2),
        ]
    own = np.arange(LANES, dtype=np.uint32)
    slow, _ = _both(code, chip, v={0: own + 5, 2: own * 3})
    want, firsts = own * 3, []
    for _ in range(3):
        want = want + own + 5
        firsts.append(int(want[0]))
        want = want + want[0]
    assert np.array_equal(slow.v[2], want)
    assert [int(s) for s in slow.s[20:23]] == firsts


@pytest.mark.parametrize("chip", CHIPS)
def test_longer_random_sequences(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave_batch, "LENGTH", LONG)
    report = wave_batch.run(chip, chip, LANES, range(30))
    assert not report.wrong, "\n".join(report.wrong)
    assert report.ran == 30
    assert report.open <= 3, report.open
