"""Every declared list of bits and numbers comes out of the vendors' headers again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from rawgpu.runtime.ledger import PATTERN, enumerations
from tools import bit_lists


def test_every_list_is_what_the_headers_give() -> None:
    assert bit_lists.differences() == []
    checked = [kind for kind in enumerations() if PATTERN.search(kind.__doc__ or "")]
    assert len(checked) > 35
    known = bit_lists.constants()
    assert all(bit_lists.derived(k, known) for k in checked if k.__name__ != "Protection")


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    """A reason that explains nothing any more goes."""
    known = bit_lists.constants()
    kinds = {kind.__name__: kind for kind in enumerations() if PATTERN.search(kind.__doc__ or "")}
    for name, (pattern, reason) in bit_lists.PARTIAL.items():
        theirs = bit_lists.derived(kinds[name], known)
        assert reason and any(re.fullmatch(pattern, constant) for constant in theirs), name


@pytest.mark.parametrize(
    ("constant", "value", "said"),
    [
        ("KFD_IOC_ALLOC_MEM_FLAGS_COHERENT", 1 << 25, "AllocFlags.COHERENT is 67108864"),
        ("KFD_IOC_ALLOC_MEM_FLAGS_NEW", 1 << 9, "AllocFlags lacks NEW, 512"),
    ],
)
def test_a_planted_constant_is_seen(constant: str, value: int, said: str, tmp_path: Path) -> None:
    for file in bit_lists.LAYOUTS.glob("*.json"):
        shutil.copy(file, tmp_path)
    facts = json.loads((tmp_path / "kfd.json").read_text())
    facts["constants"][constant] = value
    (tmp_path / "kfd.json").write_text(json.dumps(facts))
    found = bit_lists.differences(tmp_path)
    assert len(found) == 1 and said in found[0]
