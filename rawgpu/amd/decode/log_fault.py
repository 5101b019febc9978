"""A page fault put together from the lines about it, and what its status word means.

The word's layout is declared in `rawgpu/amd/spec/vm_fault.py`, by the name that the kernel prints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rawgpu.amd.spec.vm_fault import (
    CLIENTS_BY_NAME,
    HUBS_BY_NAME,
    STATUS_BY_NAME,
    VM_CONTEXT1_PROTECTION_FAULT_STATUS,
    Permission,
)

PAGE_SHIFT = 12
STATUS_SUFFIX = "_PROTECTION_FAULT_STATUS"
ORDER = (
    "kind", "bdf", "hub", "die", "node_id", "src_id", "ih_ring", "vmid", "pasid", "process",
    "pid", "thread", "tid", "fault_page", "fault_address", "access", "client", "client_id",
    "status_register", "status", "decoded", "derived",
)  # fmt: skip


@dataclass
class Fault:
    """A page fault whose lines are still coming."""

    event: dict[str, Any]
    printed: dict[str, int] = field(default_factory=dict)
    """Fields of the status word as the kernel printed them."""
    interrupt: str = ""
    """The interrupt's client in words: UTCL2, VMC."""


def page_address(event: dict[str, Any]) -> None:
    """The byte address of the page that a fault names by number."""
    event["fault_address"] = f"{int(event['fault_page']) << PAGE_SHIFT:#018x}"
    event["derived"] = sorted({*event.get("derived", ()), "fault_address"})


def decode_status(fault: Fault) -> None:
    """What the status word says, and the hub and the access that follow from it.

    Where the word is 0 an earlier fault has used it up, and it says nothing of this one. Where the
    kernel printed a field differently, the kernel knew the layout and we do not: its word counts.
    """
    event = fault.event
    name = str(event["status_register"])
    word = int(str(event["status"]), 16)
    if name == VM_CONTEXT1_PROTECTION_FAULT_STATUS.about.name:
        _decode_old(event, word)
        return
    hub = HUBS_BY_NAME.get((name, fault.interrupt))
    if "hub" not in event and hub is not None:
        event["hub"] = hub
    if word == 0:
        event.pop("client", None)
        event.pop("client_id", None)
        return
    decoded = dict(_fields(name, word)) if name in STATUS_BY_NAME else {}
    decoded.update(fault.printed)
    if not decoded:
        return
    event["decoded"] = decoded
    if "vmid" in decoded:
        event.setdefault("vmid", decoded["vmid"])
    derived = ["decoded"]
    if "permission_faults" in decoded and "rw" in decoded:
        event["access"] = _access(decoded)
        derived.insert(0, "access")
    if "client" not in event and "cid" in decoded:
        known = CLIENTS_BY_NAME.get(name, {}).get(decoded["cid"])
        if known is not None and "mmhub" not in str(event.get("hub", "")):
            event["client"] = known
            derived.append("client")
        event.setdefault("client_id", hex(decoded["cid"]))
        derived.append("client_id")
    event["derived"] = derived


@lru_cache(256)
def _fields(name: str, word: int) -> dict[str, int]:
    layout = STATUS_BY_NAME[name]
    if word >> layout.about.width:
        return {}
    found = layout.decode(word & layout.about.known, strict=False)
    names = ("MORE_FAULTS", "WALKER_ERROR", "PERMISSION_FAULTS", "MAPPING_ERROR", "CID", "RW",
             "ATOMIC", "VMID")  # fmt: skip
    return {name.lower(): int(getattr(found, name)) for name in names}


def _access(decoded: dict[str, int]) -> str:
    if decoded["permission_faults"] & Permission.EXECUTE:
        return "exec"
    if decoded.get("atomic"):
        return "atomic"
    return "write" if decoded["rw"] else "read"


def _decode_old(event: dict[str, Any], word: int) -> None:
    if not word or word >> 32:
        return
    status = VM_CONTEXT1_PROTECTION_FAULT_STATUS.decode(word, strict=False)
    event["decoded"] = {
        "protections": status.PROTECTIONS,
        "cid": status.MEMORY_CLIENT_ID,
        "rw": status.MEMORY_CLIENT_RW,
        "vmid": status.VMID,
    }
    derived = {*event.get("derived", ()), "decoded"}
    if "access" not in event:
        event["access"] = "write" if status.MEMORY_CLIENT_RW else "read"
        derived.add("access")
    if "vmid" not in event:
        event["vmid"] = status.VMID
        derived.add("vmid")
    event["derived"] = sorted(derived)
