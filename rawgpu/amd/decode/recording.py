"""A recording of a driver and its kernel, with the memory that was watched taken for what it is.

Requests are printed by `rawgpu/trace/show.py`. Watched memory is printed as packets where the label
that the recorder was given has one of the words `pm4`, `aql` or `sdma` in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rawgpu.amd.decode import stream
from rawgpu.amd.spec.aql import PACKET_BYTES
from rawgpu.amd.spec.hardware import Hardware
from rawgpu.errors import BadFile
from rawgpu.trace.replay import load
from rawgpu.trace.show import show_entry


def _entries(data: bytes) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Line, entry and text of each call. BadFile for entries that lack what their call has."""
    for number, entry in load(data.decode("utf-8", "replace").splitlines(keepends=True)):
        try:
            text = show_entry(entry)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadFile(f"line {number} of the recording is damaged: {error!r}") from None
        yield number, entry, text


def _packets(entry: dict[str, Any], hardware: Hardware | None) -> list[stream.Item]:
    if entry["call"] != "memory" or hardware is None:
        return []
    raw = bytes.fromhex(entry["data"]).rstrip(b"\0")
    raw += bytes(-len(raw) % 4)
    words = str(entry["label"]).lower().replace("-", " ").split()
    if "aql" in words:
        return list(stream.aql(raw + bytes(-len(raw) % PACKET_BYTES), hardware))
    for kind, packets in (("pm4", hardware.pm4), ("sdma", hardware.sdma)):
        if kind in words:
            return list(stream.ring(raw, packets, hardware))
    return []


def recording_text(data: bytes, hardware: Hardware | None) -> Iterator[str]:
    """The recording for people. Packets need to know whose they are: `hardware`."""
    for _, entry, text in _entries(data):
        yield text
        for item in _packets(entry, hardware):
            yield f"    {item.offset:06x}  {item.text}"
            yield from (f"{'':14}{line}" for line in item.inside)


def recording_rows(data: bytes, hardware: Hardware | None) -> dict[str, Any]:
    """The recording for programs."""
    found = []
    for number, entry, text in _entries(data):
        row: dict[str, Any] = {"line": number, "call": entry["call"], "text": text}
        packets = [item.row() for item in _packets(entry, hardware)]
        found.append(row | ({"packets": packets} if packets else {}))
    return {"calls": found}
