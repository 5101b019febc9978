"""A small kernel: memory, events, and a device that writes a fence two pauses after a doorbell."""

from __future__ import annotations

import errno
from typing import TypeVar

from rawgpu.describe.request import Request
from rawgpu.ioctl import amdgpu, kfd
from rawgpu.ioctl.host import HostPort
from rawgpu.ioctl.memory import peek, poke
from rawgpu.ioctl.port import OPEN_FLAGS, READ_WRITE, Protection, open_refused, refused

R = TypeVar("R", bound=Request)


class FakePort:
    def __init__(self) -> None:
        self.memory = HostPort()
        self.fence = 0
        self.countdown = 0
        self.events = 0
        self.now = 0

    def open(self, path: str, flags: int = OPEN_FLAGS) -> int:
        if path == "/dev/dri/renderD200":
            raise open_refused(path, errno.EACCES, hint="join the group")
        return 40 if path == "/dev/kfd" else 41

    def close(self, fd: int) -> None:
        pass

    def ioctl(self, fd: int, request: R) -> R:
        changes: dict[str, object] = {}
        match request:
            case kfd.GetVersion():
                changes = {"major_version": 1, "minor_version": 17}
            case kfd.CreateEvent():
                self.events += 1
                changes = {"event_id": self.events, "event_slot_index": self.events}
            case kfd.WaitEvents(events_ptr=address):
                event = kfd.EventData.decode(peek(address, 48) or b"")
                age = kfd.SignalEventData(last_event_age=9)
                poke(
                    address, event.replace(payload=kfd.EventPayload(signal_event_data=age)).encode()
                )
                changes = {"wait_result": kfd.WaitResult.COMPLETE, "timeout": 3}
            case kfd.MapMemoryToGpu(n_devices=0):
                raise refused(request, errno.EINVAL)
            case amdgpu.GemCreate():
                changes = {"out": amdgpu.GemCreateOut(handle=5)}
        return request.replace(**changes)

    def mmap(
        self,
        size_bytes: int,
        *,
        fd: int = -1,
        offset: int = 0,
        address: int = 0,
        protection: Protection = READ_WRITE,
        replace: bool = False,
    ) -> int:
        return self.memory.mmap(size_bytes, address=address, protection=protection, replace=replace)

    def munmap(self, address: int, size_bytes: int) -> None:
        self.memory.munmap(address, size_bytes)

    def read(self, path: str) -> bytes:
        if path.endswith("missing"):
            raise refused(_Missing(), errno.ENOENT)
        return b"gpu_id 77\n"

    def list(self, path: str) -> tuple[str, ...]:
        return ("0", "1")

    def store_doorbell(self, address: int, value: int, bits: int = 64) -> None:
        self.countdown = 2

    def pause(self) -> None:
        self.countdown -= 1
        if self.countdown == 0:
            poke(self.fence, (41).to_bytes(8, "little"))

    def now_ns(self) -> int:
        self.now += 1
        return self.now


class _Missing:
    name = "read"
