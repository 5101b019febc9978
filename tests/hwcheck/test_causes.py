"""No failure is told without a likely cause and a next step."""

from __future__ import annotations

import inspect
import re

import pytest

from rawgpu import errors
from rawgpu.amd.driver.hwcheck_causes import CAUSES
from rawgpu.hwcheck.causes import KINDS, ROWS, lookup
from rawgpu.hwcheck.plan import BY_NAME

ERRORS = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.RawGpuError)
}


@pytest.mark.parametrize("rows", [ROWS, CAUSES], ids=["general", "amd"])
def test_every_row_is_of_a_stage_and_kind_that_there_are(
    rows: tuple[tuple[str, str, str, str, str], ...],
) -> None:
    for stage, kind, pattern, cause, try_next in rows:
        assert stage in ("*", *BY_NAME)
        assert kind in KINDS or kind in ERRORS, kind
        re.compile(pattern)
        assert cause and try_next
    keys = [row[:3] for row in rows]
    assert len(set(keys)) == len(keys)


def test_every_failure_of_every_stage_has_a_cause() -> None:
    for stage in BY_NAME:
        for kind in KINDS:
            assert all(lookup(stage, [kind], "", CAUSES))
        for error in ERRORS.values():
            kinds = [c.__name__ for c in error.__mro__ if issubclass(c, errors.RawGpuError)]
            assert all(lookup(stage, kinds, "", CAUSES))


def test_special_rows_win() -> None:
    text = "CreateQueue failed: EINVAL 22 (Invalid argument)"
    assert "context save area" in lookup("fence", ["KernelCallFailed"], text, CAUSES)[0]
    assert "refused a request" in lookup("fence", ["KernelCallFailed"], "SetEvent", CAUSES)[0]
    assert "LDS_SIZE" in lookup("local", ["FenceTimeout", "DeviceLost"], "", CAUSES)[0]
    assert "did not end" in lookup("matmul", ["FenceTimeout", "DeviceLost"], "", CAUSES)[0]
