"""The safetensors format: both ways against the reference package, and files that lie.

A damaged file must be refused by BadSafetensors and by nothing else. The reference is the judge of
what is damaged: what it refuses, we refuse.
"""

from __future__ import annotations

import json
import os
import random
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend import Tensor
from frontend import dtype as dt
from frontend import safetensors as ours
from rawgpu.errors import BadFile, BadSafetensors, DTypeError, OperationError

reference: Any = pytest.importorskip("safetensors", reason="the reference package is absent")
reference_numpy: Any = pytest.importorskip("safetensors.numpy")

Array = np.ndarray[Any, Any]

NUMPY_TYPES: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """The bytes of a file; `header` is JSON text, or what becomes it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(code: str, shape: list[Any], start: Any, end: Any) -> dict[str, Any]:
    return {"dtype": code, "shape": shape, "data_offsets": [start, end]}


def arrays() -> dict[str, Array]:
    """A tensor of every dtype, and the odd shapes."""
    rng = np.random.default_rng(1)
    out = {
        name: rng.integers(0, 2, (2, 3)).astype(NUMPY_TYPES.get(name, name)) for name in dt.BY_NAME
    }
    out["scalar"] = np.array(1.5, np.float32)
    out["empty"] = np.zeros((3, 0, 2), np.int64)
    out['näme with ☃ and "quotes"'] = np.arange(4, dtype=np.uint8)
    return out


def bytes_of(tensor: Tensor) -> bytes:
    tensor.realize()
    return bytes(ours.to_bytes(tensor))


def as_tensors(given: dict[str, Array]) -> dict[str, Tensor]:
    return {
        name: ours.from_bytes(a.tobytes(), a.shape, dt.of(a.dtype), "cpu:0")
        for name, a in given.items()
    }


# -- both ways


def test_what_the_reference_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    given = arrays()
    reference_numpy.save_file(given, path, metadata={"made by": "the reference"})
    found = ours.load(path)
    assert set(found) == set(given)
    for name, array in given.items():
        assert found[name].shape == array.shape
        assert found[name].dtype is dt.of(array.dtype)
        assert bytes_of(found[name]) == array.tobytes(), name
    with ours.File(path) as file:
        assert file.metadata == {"made by": "the reference"}


def test_what_we_wrote_is_read_by_the_reference_and_is_the_same_to_the_byte(tmp_path: Path) -> None:
    given = arrays()
    ours.save(as_tensors(given), tmp_path / "ours", {"made by": "us"})
    reference_numpy.save_file(given, tmp_path / "theirs", metadata={"made by": "us"})
    whole = (tmp_path / "ours").read_bytes()
    found = reference.deserialize(whole)
    assert {name: bytes(about["data"]) for name, about in found} == {
        name: a.tobytes() for name, a in given.items()
    }
    assert whole == (tmp_path / "theirs").read_bytes()


def test_nothing_is_a_file_too(tmp_path: Path) -> None:
    ours.save({}, tmp_path / "none")
    assert ours.load(tmp_path / "none") == {}
    assert reference_numpy.load_file(tmp_path / "none") == {}


def test_values_come_back_whatever_they_were_computed_from(tmp_path: Path) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    ours.save({"turned": x.T * 2.0, "x": x, "half": x.astype("bfloat16")}, tmp_path / "f")
    found = ours.load(tmp_path / "f")
    assert found["turned"].tolist() == [[2.0, 6.0], [4.0, 8.0]]
    assert found["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert found["half"].dtype is dt.bfloat16
    assert found["half"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_an_open_file_reads_only_what_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "f"
    ours.save({"a": Tensor([1, 2]), "b": Tensor([3])}, path)
    with ours.File(path) as file:
        assert sorted(file) == ["a", "b"]
        assert len(file) == 2
        kept = file["a"]
        assert bytes(file.raw("b")) == struct.pack("<q", 3)
        with pytest.raises(KeyError):
            file["c"]
    with pytest.raises(OperationError, match="closed"):
        file["a"]
    path.unlink()
    assert kept.tolist() == [1, 2]


def test_a_file_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    ours.save({"a": Tensor([1])}, path)
    before = path.read_bytes()

    def fail(tensor: Tensor) -> memoryview:
        raise OSError("the disk is full")

    monkeypatch.setattr(ours, "to_bytes", fail)
    with pytest.raises(OSError, match="disk"):
        ours.save({"a": Tensor([2])}, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    assert not stat.S_IMODE(path.stat().st_mode) & 0o111


@pytest.mark.parametrize(
    ("tensors", "metadata", "error"),
    [
        ({"__metadata__": Tensor([1])}, None, OperationError),
        ({1: Tensor([1])}, None, OperationError),
        ({"a": np.zeros(3)}, None, DTypeError),
        ({"\ud800": Tensor([1])}, None, OperationError),
        ({}, {"a": 1}, OperationError),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(
    tensors: Any, metadata: Any, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        ours.save(tensors, tmp_path / "f", metadata)
    assert list(tmp_path.iterdir()) == []


# -- files that lie

F32 = entry("F32", [1], 0, 4)

DAMAGED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "0 bytes"),
    "half a length": (b"\x08\x00\x00", "3 bytes"),
    "a header beyond the end": (file_of(b"{}", length=100), "header of 100 bytes"),
    "a huge header": (file_of(b"{}", length=100_000_001), "100 MB"),
    "the largest length": (file_of(b"{}", length=2**64 - 1), "100 MB"),
    "no brace": (file_of(b" {}"), "does not begin"),
    "an empty header": (file_of(b""), "does not begin"),
    "a list": (file_of(b"[]"), "does not begin"),
    "half of JSON": (file_of(b'{"a": '), "not JSON"),
    "something behind": (file_of(b"{} x"), "not JSON"),
    "no UTF-8": (file_of(b'{"\xff": 1}'), "not UTF-8"),
    "half of a character": (file_of(b'{"\\ud800": 1}'), "Unicode"),
    "nesting": (file_of(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "nested"),
    "a number too long": (file_of(b'{"a":' + b"1" * 10_000 + b"}"), "not JSON"),
    "NaN": (file_of(b'{"a": NaN}'), "NaN"),
    "no object": (file_of({"a": 1}), "not described"),
    "a part missing": (file_of({"a": {"dtype": "F32", "shape": []}}), "not described"),
    "no dtype": (file_of({"a": entry("F99", [], 0, 0)}), "F99"),
    "a dtype that is none": (file_of({"a": entry(3, [], 0, 0)}), "no dtype"),  # type: ignore[arg-type]
    "a shape below 0": (file_of({"a": entry("U8", [-1], 0, 1)}, b"x"), "shape"),
    "a shape of fractions": (file_of({"a": entry("U8", [1.0], 0, 1)}, b"x"), "shape"),
    "a shape of truths": (file_of({"a": entry("U8", [True], 0, 1)}, b"x"), "shape"),
    "a shape too large": (file_of({"a": entry("F32", [2**62], 0, 0)}), "64 bits"),
    "an overflow times zero": (file_of({"a": entry("U8", [2**63, 2, 0], 0, 0)}), "64 bits"),
    "offsets that fall": (file_of({"a": entry("F32", [1], 4, 0)}, bytes(4)), "rising"),
    "offsets below 0": (file_of({"a": entry("F32", [1], -4, 0)}, bytes(4)), "rising"),
    "three offsets": (
        file_of({"a": {**F32, "data_offsets": [0, 2, 4]}}, bytes(4)),
        "data_offsets",
    ),
    "another length": (file_of({"a": entry("F32", [2], 0, 4)}, bytes(4)), "takes 8 bytes"),
    "beyond the end": (file_of({"a": entry("F32", [2], 0, 8)}, bytes(4)), "the file at"),
    "far beyond the end": (
        file_of({"a": entry("U8", [2**63], 2**63, 2**64 - 1)}),
        "takes",
    ),
    "a gap": (file_of({"a": F32, "b": entry("F32", [1], 8, 12)}, bytes(12)), "gap"),
    "a gap at the start": (file_of({"a": entry("F32", [1], 4, 8)}, bytes(8)), "gap"),
    "an overlap": (file_of({"a": F32, "b": entry("F32", [1], 2, 6)}, bytes(6)), "overlaps"),
    "the same bytes twice": (file_of({"a": F32, "b": F32}, bytes(4)), "overlaps"),
    "bytes left over": (file_of({"a": F32}, bytes(5)), "the file at"),
    "a name twice": (
        file_of(f'{{"a":{json.dumps(F32)},"a":{json.dumps(F32)}}}'.encode(), bytes(4)),
        "twice",
    ),
    "metadata of numbers": (file_of({"__metadata__": {"a": 1}}), "no string"),
    "metadata that is text": (file_of({"__metadata__": "a"}), "no object"),
    "a bool of 2": (file_of({"a": entry("BOOL", [2], 0, 2)}, b"\x01\x02"), "neither 0 nor 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_with_its_name_and_what_is_wrong(
    name: str, tmp_path: Path
) -> None:
    content, says = DAMAGED[name]
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadSafetensors) as caught:
        ours.load(path)
    assert isinstance(caught.value, BadFile)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_an_error_knows_the_place(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(file_of({"a": F32, "b": entry("F32", [1], 8, 12)}, bytes(12)))
    with pytest.raises(BadSafetensors, match="at byte") as caught:
        ours.load(path)
    assert caught.value.offset == path.stat().st_size - 8


def test_spaces_behind_the_header_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(file_of(json.dumps({"a": F32}).encode() + b"   ", struct.pack("<f", 2.5)))
    assert ours.load(path)["a"].tolist() == [2.5]


def test_a_missing_file_and_a_folder_are_the_systems_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ours.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        ours.load(tmp_path)


# -- random damage


def whole_file() -> bytes:
    given = arrays()
    del given["bool"]  # the reference does not look at the bytes of a bool
    data: bytes = reference_numpy.save(given, metadata={"made by": "the reference"})
    return data


def mutated(chance: random.Random, whole: bytes) -> bytes:
    """`whole` with one to four small accidents, most of them in the header."""
    data = bytearray(whole)
    header_end = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(
            min(len(data), header_end) if chance.random() < 0.8 else len(data) or 1
        )
        kind = chance.randrange(8)
        if kind == 0 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 2:
            del data[at : at + chance.randint(1, 8)]
        elif kind == 3:
            data[at:at] = data[max(0, at - chance.randint(1, 40)) : at]
        elif kind == 4:
            digits = [i for i in range(8, min(header_end, len(data))) if 48 <= data[i] <= 57]
            if digits:
                data[chance.choice(digits)] = 48 + chance.randrange(10)
        elif kind == 5:
            data[:8] = struct.pack("<Q", chance.choice([0, 1, 2**63, chance.randrange(2000)]))
        elif kind == 6:
            data[at:at] = chance.choice(
                [b"-", b"9" * 20, b'"', b"{", b"]", b"\\u0000", b"1e5", b","]
            )
        else:
            del data[len(data) - chance.randint(0, min(20, len(data))) :]
        if not data:
            return b""
    return bytes(data)


def judge(data: bytes) -> bool:
    """Read a header; check its promises and ask the reference. True if it was accepted."""
    try:
        header = ours.read_header(data)
    except BadSafetensors:
        return False
    at = 8 + int.from_bytes(data[:8], "little")
    for found in sorted(header.entries.values(), key=lambda e: (e.start, e.end)):
        assert found.start == at, (found, at)
        assert found.end - found.start == int(np.prod(found.shape, dtype=object)) * (
            found.dtype.size_bytes
        )
        at = found.end
    assert at == len(data)
    described = reference.deserialize(data)  # raises where the reference refuses
    assert {name for name, _ in described} == set(header.entries)
    for name, about in described:
        mine = header.entries[name]
        assert tuple(about["shape"]) == mine.shape
        assert ours.CODES[about["dtype"]] is mine.dtype
        assert bytes(about["data"]) == data[mine.start : mine.end]
    return True


def sweep(seeds: range) -> None:
    whole = whole_file()
    assert judge(whole)
    accepted = 0
    for seed in seeds:
        try:
            accepted += judge(mutated(random.Random(seed), whole))
        except Exception as error:
            raise AssertionError(f"mutation of seed {seed}: {error!r}") from error
    assert 0 < accepted < len(seeds)


def test_two_thousand_damaged_files_are_refused_or_right() -> None:
    sweep(range(2_500))


@pytest.mark.full
def test_many_damaged_files_are_refused_or_right() -> None:
    sweep(range(10_000, 40_000))


@given(st.binary(max_size=200))
def test_noise_is_refused_or_right(noise: bytes) -> None:
    judge(noise)
    judge(file_of(b"{" + noise))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*ours.CODES, "F4", "C64"]) | VALUES,
        "shape": st.lists(st.integers(-1, 5) | st.just(2**62), max_size=3) | VALUES,
        "data_offsets": st.lists(st.integers(0, 40), min_size=2, max_size=2) | VALUES,
    }
)


@given(st.dictionaries(st.text(max_size=4), ENTRIES | VALUES, max_size=3), st.integers(0, 40))
def test_headers_of_the_right_form_are_refused_or_right(
    header: dict[str, Any], size_bytes: int
) -> None:
    judge(file_of(header, bytes(size_bytes)))


def test_a_loaded_file_is_no_larger_than_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that reach a device are the tensors' own: nothing before, nothing behind."""
    path = tmp_path / "f"
    path.write_bytes(file_of({"a": F32, "b": entry("U8", [3], 4, 7)}, b"\x00\x00\x80\x3fxyz"))
    seen: list[bytes] = []
    made: Callable[..., Tensor] = ours.from_bytes
    monkeypatch.setattr(
        ours, "from_bytes", lambda data, *rest: seen.append(bytes(data)) or made(data, *rest)
    )
    assert set(ours.load(path)) == {"a", "b"}
    assert seen == [b"\x00\x00\x80\x3f", b"xyz"]


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link to pipe"
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(OperationError, match="no regular file"):
            ours.save({"a": Tensor([1.0])}, path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    with pytest.raises(IsADirectoryError):
        ours.save({"a": Tensor([1.0])}, tmp_path)


def test_a_link_stays_and_its_file_is_replaced_with_its_rights(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to("real")
    ours.save({"a": Tensor([1.0])}, link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert ours.load(real)["a"].tolist() == [1.0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_more_axes_than_arrays_have_are_refused() -> None:
    with pytest.raises(BadSafetensors, match="200 axes"):
        ours.read_header(file_of({"a": entry("F32", [1] * 200, 0, 4)}, bytes(4)))
