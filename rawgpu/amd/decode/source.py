"""What a file to decode holds: bytes as they are, numbers written in text, or a recording.

Text is taken for numbers where nothing in it is anything else: hexadecimal, `#` and `//` begin
comments. A number with `0x` is a dword, or two if it has more than 8 digits, low half first, as
programs print them; digits without are bytes in order, as `xxd -p` prints them. A line may begin
with an offset and a colon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rawgpu.errors import BadFile
from rawgpu.trace.record import FORMAT

MAX_BYTES = 1 << 28
_COMMENT = re.compile(r"(?:#|//).*")
_OFFSET = re.compile(r"^\s*(?:0x)?[0-9A-Fa-f]+:")
_WORD = re.compile(r"0[xX][0-9A-Fa-f]{1,16}$")
_BYTES = re.compile(r"(?:[0-9A-Fa-f]{2})+$")
_DIGITS = re.compile(r"[0-9A-Fa-f]+$")
_TEXT = frozenset(range(0x20, 0x7F)) | {0x09, 0x0A, 0x0D}
DWORD_DIGITS = 8


def is_recording(data: bytes) -> bool:
    """Whether `data` begins as the recorder begins a file."""
    head = data[:200].split(b"\n")[0]
    try:
        return bool(json.loads(head) == FORMAT)
    except (ValueError, RecursionError):
        return False


def numbers(data: bytes) -> bytes:
    """`data`, or the bytes that it writes down in hexadecimal. BadFile for text of another kind."""
    if len(data) > MAX_BYTES:
        raise BadFile(f"{len(data)} bytes are more than the {MAX_BYTES} that are decoded at once")
    if not data or not _TEXT.issuperset(data):
        return data
    return b"".join(_line(text, at) for at, text in enumerate(data.decode().splitlines(), 1))


def _line(text: str, number: int) -> bytes:
    bare = _OFFSET.sub("", _COMMENT.sub("", text), count=1).replace(",", " ")
    return b"".join(_number(token, number) for token in bare.split())


def _number(token: str, line: int) -> bytes:
    if _WORD.match(token):
        size = 4 if len(token) - 2 <= DWORD_DIGITS else 8
        return int(token, 16).to_bytes(size, "little")
    if _BYTES.match(token):
        return bytes.fromhex(token)
    odd = _DIGITS.match(token) is not None
    raise BadFile(
        f"line {line}: {token[:40]!r} "
        + ("has an odd number of digits, and no 0x" if odd else "is no hexadecimal number"),
        hint="with 0x it is a dword, 0xffc0000a, or two, of up to 16 digits; without, bytes in "
        "order, two digits each: 0a00c0ff. Or give a file of raw bytes",
    )


def dwords(data: bytes) -> bytes:
    """`data`, which must be whole dwords."""
    if len(data) % 4:
        raise BadFile(f"{len(data)} bytes are no whole number of dwords")
    return data


_PAIR = re.compile(r"\s*(\w+)\s*(?:=|:|\s)\s*(0[xX][0-9A-Fa-f]{1,16}|\d{1,20})\s*$")


def register_pairs(data: bytes) -> Iterator[tuple[str | int, int]]:
    """Name or byte offset, and value, of each line `COMPUTE_PGM_LO = 0x1` or `0xb830 0x1`.

    Bytes that are no text are pairs of dwords: offset, value.
    """
    if len(data) > MAX_BYTES:
        raise BadFile(f"{len(data)} bytes are more than the {MAX_BYTES} that are decoded at once")
    if not _TEXT.issuperset(data):
        words = memoryview(dwords(data))
        for at in range(0, len(words) - 7, 8):
            yield (
                int.from_bytes(words[at : at + 4], "little"),
                int.from_bytes(words[at + 4 : at + 8], "little"),
            )
        return
    for number, text in enumerate(data.decode().splitlines(), 1):
        bare = _COMMENT.sub("", text)
        if not bare.strip():
            continue
        found = _PAIR.match(bare) if len(bare) < 400 else None
        if found is None:
            raise BadFile(
                f"line {number}: {bare.strip()[:40]!r} is no register and value",
                hint="COMPUTE_PGM_RSRC1 = 0xac0000, or 0xb848 0xac0000",
            )
        name, value = found.groups()
        where = int(name, 16) if _WORD.match(name) else name
        yield where, int(value, 0) if value[:2] in ("0x", "0X") else int(value)
