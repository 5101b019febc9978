"""A recording as text: one call a line, requests and memory through the declarations.

open('/dev/kfd') = 3
ioctl(3, CreateEvent(event_type=EventType.SIGNAL, …)) → event_id=1, event_slot_index=1
doorbell 0x7f0000001000 = 0x40
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rawgpu.describe.abi import Abi
from rawgpu.describe.request import Request, split_number
from rawgpu.describe.value import show
from rawgpu.ioctl import amdgpu, kfd
from rawgpu.ioctl.port import errno_name
from rawgpu.trace.replay import load

ABIS: tuple[Abi, ...] = (
    kfd.KFD_1_11,
    kfd.KFD_OUT_OF_TREE,
    kfd.KFD_1_22,
    amdgpu.AMDGPU_2022,
    amdgpu.AMDGPU_2025,
)
"""Where requests are looked up, older versions first: the size in a number tells them apart."""


def kind_of(number: int) -> type[Request] | None:
    """The declaration with this ioctl number, or else the newest of the same `nr`; None if none."""
    found = None
    for abi in ABIS:
        kind = abi.by_number(number)
        if kind is not None:
            found = kind
            if kind.about.number == number:
                return kind
    return found


def show_recording(lines: Iterable[str]) -> Iterator[str]:
    """The recording's calls as text. BadFile if it is no recording."""
    for _, entry in load(lines):
        yield show_entry(entry)


def show_entry(entry: dict[str, Any]) -> str:
    """One entry of a recording."""
    match entry["call"]:
        case "ioctl":
            return _ioctl(entry)
        case "doorbell":
            return f"doorbell {entry['address']:#x} = {entry['value']:#x}"
        case "memory":
            size = len(entry["data"]) // 2
            return f"{entry['by']} wrote {entry['label']}: {size} bytes at {entry['address']:#x}"
        case "open" | "read" | "list":
            call = f"{entry['call']}({entry['path']!r})"
        case call_name:
            inner = [f"{k}={show(v)}" for k, v in entry.items() if k not in _RESULTS]
            call = f"{call_name}({', '.join(inner)})"
    return call + _result(entry)


_RESULTS = ("call", "fd_result", "result", "names", "data", "errno", "refused", "why")


def _result(entry: dict[str, Any]) -> str:
    if "errno" in entry:
        return f" failed: {errno_name(entry['errno'])}"
    if "refused" in entry:
        return f" failed: {entry['refused']}"
    if entry["call"] == "open":
        return f" = {entry['fd']}"
    if "result" in entry:
        return f" = {entry['result']:#x}"
    if "names" in entry:
        return f" = {', '.join(entry['names'])}"
    if "data" in entry:
        return f" = {len(entry['data']) // 2} bytes"
    return ""


def _ioctl(entry: dict[str, Any]) -> str:
    number = int(entry["number"], 16)
    kind = kind_of(number)
    if kind is None:
        direction, magic, nr, size = split_number(number)
        name = f"{direction or 'no'} {chr(magic)!r} {nr:#x} of {size} bytes, undeclared"
        return f"ioctl({entry['fd']}, {name}){_result(entry)}"
    sent = kind.decode(bytes.fromhex(entry["sent"]))
    text = f"ioctl({entry['fd']}, {sent!r}){_result(entry)}"
    if "got" in entry:
        got = sent.answered(bytes.fromhex(entry["got"]))
        parts = []
        for field in kind.field_names():
            before, after = getattr(sent, field), getattr(got, field)
            if before != after:
                parts.append(f"{field}={show(after)}")
        text += f" → {', '.join(parts)}"
    for item in entry.get("memory", ()):
        points = next((m.points for m in kind.about.members if m.name == item["field"]), None)
        if points is None:
            continue
        for key, arrow in (("sent", "with"), ("got", "left")):
            if key in item:
                held = points.decode(bytes.fromhex(item[key]))
                text += f"\n    {arrow} {item['field']} → {show(held)}"
    return text
