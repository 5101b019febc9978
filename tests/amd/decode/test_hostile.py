"""Whatever a file holds, the readers of files end in their result or in an error of ours."""

from __future__ import annotations

import contextlib
import io
import random
import time

import pytest

from rawgpu.amd.decode import entry, log
from rawgpu.errors import DecodeError
from tests.amd.decode.hostile import attack
from tests.amd.decode.vectors import printer, read


def test_damaged_files_end_in_a_result_or_a_typed_error() -> None:
    done = attack(500, seed=3)
    assert sum(done.values()) >= 500
    assert {"read", "BadElf", "BadFile"} <= done.keys()


@pytest.mark.full
def test_twenty_thousand_damaged_files_end_in_a_result_or_a_typed_error() -> None:
    done = attack(20_000, seed=11)
    print(f"20000 inputs: {done}")
    assert sum(done.values()) >= 20_000
    assert done["read"] > 2000 and done["BadElf"] > 1000


@pytest.mark.parametrize("family", ["gfx90a", "gfx10", "gfx11", "gfx12"])
def test_flipped_bits_of_instructions_print_or_are_refused(family: str) -> None:
    chance = random.Random(9)
    printed = 0
    group = "cdna" if family == "gfx90a" else family
    for vector in read(group, every=3 if group == "cdna" else 61):
        prints = printer(vector.family, vector.wave, vector.true16)
        flipped = bytearray(vector.code + bytes(8))
        for _ in range(2):
            bit = chance.randrange(8 * len(vector.code))
            flipped[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(DecodeError):
            assert prints.text(prints.decoder.decode(bytes(flipped)))
            printed += 1
    assert printed > 100


def test_reserved_selections_of_sub_dwords_are_refused() -> None:
    code = bytes.fromhex("f9040a1001160606")  # v_mul_f32_sdwa, all selections DWORD
    prints = printer("gfx10", 32, False)
    assert "dst_sel:DWORD" in prints.text(prints.decoder.decode(code))
    with pytest.raises(DecodeError, match="selects what is reserved"):
        prints.decoder.decode(bytes.fromhex("f9040a1001170606"))


@pytest.mark.parametrize("kind", [kind for kind in entry.KINDS if kind != "trace"])
def test_noise_is_printed_to_its_end(kind: str) -> None:
    """How time grows with size is printed, for people."""
    data = random.Random(5).randbytes(1 << 16)
    if kind == "registers":
        data = b"".join(b"0x%x 0x%x\n" % (4 * i, i) for i in range(4000))
    elif kind == "descriptor":
        data = bytes(1 << 16)
    quarter = data[: len(data) // 4]
    quarter = quarter[: quarter.rfind(b"\n") + 1] if kind == "registers" else quarter
    took, counts = [], []
    for part in (quarter, quarter, data):  # the first time also makes what is made once
        began = time.process_time()
        counts.append(sum(1 for _ in entry.decode(part, kind, "gfx1100").text()))
        took.append(time.process_time() - began)
    print(f"{kind}: {took[1]:.3f} s for a quarter, {took[2]:.3f} s for all")
    assert counts[0] == counts[1] > 0
    assert counts[2] >= counts[1]


def test_a_line_without_end_is_read_in_bounded_memory_and_time() -> None:
    noise = b"page fault (src_id:" * 400_000
    assert log.explain(io.BytesIO(noise)).events == []
