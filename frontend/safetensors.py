"""The safetensors format: named tensors in one file, without code and without surprises.

    u64, little-endian   N, the header's length in bytes, at most 100,000,000
    N bytes of JSON      {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
    the rest             the tensors' bytes, little-endian and row-major, each once and without gaps

`"__metadata__"` may map strings to strings. Offsets count from the end of the header. A file from
outside is believed in nothing: `read_header` checks every number against the file's real length
before a byte of data is touched, and raises BadSafetensors that says what is wrong and where.

Source: https://github.com/huggingface/safetensors, README and safetensors/src/tensor.rs, 0.8.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.ops import common as c
from frontend.ops.common import MAX_AXES
from frontend.ops.convert import placed
from frontend.tensor import Tensor
from rawgpu.errors import BadSafetensors, DTypeError, OperationError

LENGTH_BYTES = 8
HEADER_LIMIT_BYTES = 100_000_000
METADATA = "__metadata__"
ALIGN_BYTES = 8

CODES: dict[str, DType] = {
    "BOOL": dt.bool_,
    "U8": dt.uint8,
    "I8": dt.int8,
    "F8_E5M2": dt.float8_e5m2,
    "F8_E4M3": dt.float8_e4m3,
    "I16": dt.int16,
    "U16": dt.uint16,
    "F16": dt.float16,
    "BF16": dt.bfloat16,
    "I32": dt.int32,
    "U32": dt.uint32,
    "F32": dt.float32,
    "F64": dt.float64,
    "I64": dt.int64,
    "U64": dt.uint64,
}
"""The format's names of the dtypes that there are here, in the order that writers sort by."""

CODE_OF = {dtype: code for code, dtype in CODES.items()}
RANK = {dtype: place for place, dtype in enumerate(CODES.values())}


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies: `start` and `end` are offsets in the file."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a file says about itself, after every check."""

    entries: dict[str, Entry]
    metadata: dict[str, str]


# -- reading the header


def read_header(data: bytes | memoryview | mmap.mmap) -> Header:
    """The header of a whole file's bytes. Raises BadSafetensors; reads nothing but the header."""
    total = len(data)
    if total < LENGTH_BYTES:
        raise BadSafetensors(f"the file has {total} bytes; a header's length alone takes 8")
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if length > HEADER_LIMIT_BYTES:
        raise BadSafetensors(f"a header of {length} bytes; at most 100 MB are allowed", offset=0)
    begin = LENGTH_BYTES + length
    if begin > total:
        raise BadSafetensors(f"a header of {length} bytes in a file of {total}", offset=0)
    pairs = _parse(bytes(data[LENGTH_BYTES:begin]))
    metadata = _metadata(pairs.pop(METADATA, {}))
    entries = {name: _entry(name, value, begin) for name, value in pairs.items()}
    _check_cover(entries, begin, total)
    return Header(entries, metadata)


def _parse(raw: bytes) -> dict[str, Any]:
    if raw[:1] != b"{":
        raise BadSafetensors("the header does not begin with '{'", offset=LENGTH_BYTES)
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        where = LENGTH_BYTES + error.start
        raise BadSafetensors("the header is not UTF-8", offset=where) from None
    except json.JSONDecodeError as error:
        where = LENGTH_BYTES + len(text[: error.pos].encode())
        raise BadSafetensors(f"the header is not JSON: {error.msg}", offset=where) from None
    except RecursionError:
        raise BadSafetensors("the header's JSON is nested too deeply") from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise BadSafetensors(f"the header is not JSON: {error}") from None
    assert isinstance(value, dict), value  # it began with a brace
    for name in value:
        _check_text("a tensor's name", name)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadSafetensors(f"the header has the key {_short(key)} twice")
            seen.add(key)
    return out


def _no_constant(name: str) -> NoReturn:
    raise BadSafetensors(f"the header holds {name}, which is not JSON")


def _short(name: str) -> str:
    """A name from outside, fit for a message."""
    return ascii(name if len(name) <= 100 else name[:97] + "...")


def _check_text(what: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadSafetensors(f"{what}, {_short(text)}, is not valid Unicode") from None


def _metadata(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadSafetensors(f"{METADATA} is no object of strings")
    for key, text in value.items():
        if not isinstance(text, str):
            raise BadSafetensors(f"{METADATA}: the value of {_short(key)} is no string")
        _check_text(f"{METADATA}: a key", key)
        _check_text(f"{METADATA}: a value", text)
    return dict(value)


def _entry(name: str, value: Any, begin: int) -> Entry:
    """One tensor's description, right in itself."""
    where = f"tensor {_short(name)}"
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise BadSafetensors(f"{where} is not described by dtype, shape and data_offsets")
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(code, str) or code not in CODES:
        raise BadSafetensors(f"{where}: no dtype {_short(str(code))}", hint=", ".join(CODES))
    if not _naturals(shape):
        raise BadSafetensors(f"{where}: the shape is no list of numbers from 0")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BadSafetensors(f"{where}: data_offsets are no pair of rising numbers from 0")
    if len(shape) > MAX_AXES:
        raise BadSafetensors(f"{where}: {len(shape)} axes; at most {MAX_AXES} are read")
    size_bytes = CODES[code].size_bytes
    for extent in shape:
        # as the reference does, overflow on the way counts, even if a later extent is 0
        size_bytes *= extent
        if size_bytes >= 1 << 64:
            raise BadSafetensors(f"{where}: shape {_short(str(shape))} is beyond 64 bits")
    if offsets[1] - offsets[0] != size_bytes:
        raise BadSafetensors(
            f"{where}: {code} of shape {shape} takes {size_bytes} bytes, its offsets "
            f"{offsets} hold {offsets[1] - offsets[0]}"
        )
    return Entry(CODES[code], tuple(shape), begin + offsets[0], begin + offsets[1])


def _naturals(value: Any) -> bool:
    """A list of whole numbers from 0 to below 2**64; JSON's true is none."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 64 for n in value)


def _check_cover(entries: Mapping[str, Entry], begin: int, total: int) -> None:
    """The tensors fill what is behind the header: no gap, no overlap, nothing left over."""
    at = begin
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != at:
            kind = "overlaps the one before it" if entry.start < at else "comes after a gap"
            raise BadSafetensors(f"tensor {_short(name)} {kind}, which ends at {at}", offset=at)
        at = entry.end
    if at != total:
        raise BadSafetensors(f"the tensors end at {at}, the file at {total}", offset=min(at, total))


# -- reading


class File(Mapping[str, Tensor]):
    """An open safetensors file: a mapping from names to tensors, each read when it is asked for.

    The file is mapped into memory, so a tensor's bytes are copied once, to the device. It must not
    shrink while it is open. A context manager. Raises BadSafetensors, OSError, DeviceNotFound.
    """

    def __init__(self, path: str | os.PathLike[str], device: str | None = None) -> None:
        self.path = os.fspath(path)
        self.device = c.resolved_device(device)
        self._map: mmap.mmap | bytes = b""
        self._closed = False
        try:
            with open(self.path, "rb") as stream:
                if os.fstat(stream.fileno()).st_size:  # an empty file cannot be mapped
                    self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self.header = read_header(self._map)
        except BadSafetensors as error:
            self.close()
            named = BadSafetensors(f"{self.path}: {error.message}", hint=error.hint)
            named.offset = error.offset  # which the message has already
            raise named from None

    @property
    def metadata(self) -> dict[str, str]:
        """The strings under `__metadata__`."""
        return dict(self.header.metadata)

    def raw(self, name: str) -> np.ndarray[Any, Any]:
        """A copy of a tensor's bytes as uint8. Raises KeyError."""
        return np.frombuffer(bytes(self._view(self.header.entries[name])), np.uint8)

    def __getitem__(self, name: str) -> Tensor:
        entry = self.header.entries[name]
        data = self._view(entry)
        if entry.dtype is dt.bool_ and bytes(data).translate(None, b"\x00\x01"):
            raise BadSafetensors(
                f"{self.path}: tensor {_short(name)}: a bool is neither 0 nor 1",
                offset=entry.start,
            )
        return from_bytes(data, entry.shape, entry.dtype, self.device)

    def _view(self, entry: Entry) -> memoryview:
        if self._closed:
            raise OperationError(f"{self.path}: the file was closed")
        return memoryview(self._map)[entry.start : entry.end]

    def __iter__(self) -> Iterator[str]:
        return iter(self.header.entries)

    def __len__(self) -> int:
        return len(self.header.entries)

    def close(self) -> None:
        """Unmap the file; tensors that were read stay."""
        self._closed = True
        if isinstance(self._map, mmap.mmap):
            with suppress(BufferError):  # an error's traceback holds a view: unmapped with it
                self._map.close()
        self._map = b""

    def __enter__(self) -> File:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def from_bytes(
    data: bytes | memoryview, shape: tuple[int, ...], dtype: DType, device: str
) -> Tensor:
    """A tensor of little-endian, row-major bytes; their number is right."""
    from frontend import engine

    stored = np.frombuffer(data, dtype.numpy.newbyteorder("<")).reshape(shape)
    if sys.byteorder == "big":
        stored = stored.astype(dtype.numpy)
    return c.new(engine.from_host(stored, shape, dtype, device), device)


def load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
    """Every tensor of a safetensors file. See `File`, which reads only what is asked for."""
    with File(path, device) as file:
        return dict(file)


# -- writing


def save(
    tensors: Mapping[str, Tensor],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write named tensors as a safetensors file, which appears whole or not at all.

    Computes what is still to be computed, in one go. The bytes are those the reference writer makes
    of the same tensors. Raises OperationError for names or metadata that are no strings, DTypeError
    for what is no tensor, OSError.
    """
    _check_saved(tensors, metadata or {})
    if tensors:
        first, *others = tensors.values()
        first.realize(*others)
    order = sorted(tensors, key=lambda name: (-RANK[tensors[name].dtype], name.encode()))
    described: dict[str, Any] = {} if metadata is None else {METADATA: dict(metadata)}
    at = 0
    for name in order:
        tensor = tensors[name]
        end = at + tensor.nbytes
        described[name] = {
            "dtype": CODE_OF[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGN_BYTES)
    if len(text) > HEADER_LIMIT_BYTES:
        raise OperationError(f"save: a header of {len(text)} bytes; at most 100 MB are allowed")
    parts = (to_bytes(tensors[name]) for name in order)
    _write_whole(os.fspath(path), len(text).to_bytes(LENGTH_BYTES, "little") + text, parts)


def to_bytes(tensor: Tensor) -> memoryview:
    """A realised tensor's elements, little-endian and row-major."""
    from frontend import engine

    array = np.ascontiguousarray(engine.to_host(placed(tensor.node, tensor.device)))
    if sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data


def _check_saved(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == METADATA:
            raise OperationError(f"save: a tensor cannot be named {name!r}")
        if not isinstance(tensor, Tensor):
            raise DTypeError(f"save: {name!r} is a {type(tensor).__name__}, not a tensor")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise OperationError(f"save: metadata maps strings to strings, not {key!r}: {value!r}")
    for text in (*tensors, *metadata, *metadata.values()):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise OperationError(f"save: {text!a} is not valid Unicode") from None


def _write_whole(path: str, head: bytes, parts: Iterator[memoryview]) -> None:
    """Write beside `path`, then rename: a reader sees the old file or the new one.

    A link stays, and the file that it leads to is replaced. Raises OperationError for a device
    node, a pipe or a socket, which no file may take the place of.
    """
    mode = None
    if os.path.exists(path):
        found = os.stat(path).st_mode
        if stat.S_ISDIR(found):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(found):
            raise OperationError(f"save: {path} is no regular file, and would be replaced by one")
        mode = stat.S_IMODE(found)
    path = os.path.realpath(path)
    spare = f"{path}.{os.urandom(6).hex()}.tmp"
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(head)
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(spare, path)
    except BaseException:
        os.unlink(spare)
        raise
