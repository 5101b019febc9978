"""What a recorder wrote, a replayer answers, and `show` prints."""

from __future__ import annotations

import io
import json
import struct

import pytest

from rawgpu.errors import BadFile, DevicePermission, KernelCallFailed
from rawgpu.ioctl import amdgpu, kfd
from rawgpu.ioctl.host import HostPort
from rawgpu.ioctl.memory import peek, poke
from rawgpu.ioctl.port import KernelPort, Protection
from rawgpu.trace.record import FORMAT, Recorder
from rawgpu.trace.replay import Replayer, ReplayMismatch
from rawgpu.trace.show import kind_of, show_recording
from tests.trace.fake_port import FakePort

RING = 4096


def drive(
    port: KernelPort, fake: FakePort | None = None, *, data: int = 7, wait: int = 5
) -> list[object]:
    """A small driver; returns all that it learned."""
    learned: list[object] = []
    with pytest.raises(DevicePermission, match="EACCES"):
        port.open("/dev/dri/renderD200")
    fd = port.open("/dev/kfd")
    learned.append(port.list("/sys/nodes"))
    learned.append(port.read("/sys/nodes/0/gpu_id"))
    with pytest.raises(KernelCallFailed, match="ENOENT"):
        port.read("/sys/nodes/0/missing")
    learned.append(port.ioctl(fd, kfd.GetVersion()))
    learned.append(port.ioctl(fd, amdgpu.GemCreate(bo_size=1, domains=amdgpu.GemDomain.GTT)))
    reserved = port.mmap(8 * RING, protection=Protection.NONE)
    ring = port.mmap(2 * RING, fd=fd, offset=1 << 63, address=reserved, replace=True)
    if fake is not None:
        fake.fence = ring + RING
    if isinstance(port, Recorder):
        port.watch(ring, RING, "ring")
        port.watch(ring + RING, 64, "fence")
    with pytest.raises(KernelCallFailed, match="EINVAL"):
        port.ioctl(fd, kfd.MapMemoryToGpu(handle=3, device_ids_array_ptr=0, n_devices=0))
    poke(ring + 2 * RING - 8, struct.pack("<II", 77, 78))
    ids = ring + 2 * RING - 8
    port.ioctl(fd, kfd.MapMemoryToGpu(handle=3, device_ids_array_ptr=ids, n_devices=2))
    poke(ring, struct.pack("<QQ", 1, data))
    port.store_doorbell(ring + RING + 64, 2)
    for _ in range(10):
        if peek(ring + RING, 8) == (41).to_bytes(8, "little"):
            break
        port.pause()
    learned.append(peek(ring + RING, 8))
    events = ring + RING + 1024
    poke(events, kfd.EventData(event_id=1).encode())
    learned.append(port.ioctl(fd, kfd.WaitEvents(events_ptr=events, num_events=1, timeout=wait)))
    learned.append(peek(events, 48))
    port.munmap(reserved, 8 * RING)
    port.close(fd)
    return learned


def record(**options: int) -> tuple[list[str], list[object]]:
    fake, file = FakePort(), io.StringIO()
    learned = drive(Recorder(fake, file), fake, **options)
    return file.getvalue().splitlines(keepends=True), learned


def test_a_replay_teaches_the_driver_what_the_kernel_did() -> None:
    lines, learned = record()
    replayer = Replayer(lines, HostPort())
    assert drive(replayer) == learned
    assert learned[4] == (41).to_bytes(8, "little")
    assert replayer.left == 0


def test_every_line_is_json_with_bytes_and_names() -> None:
    lines, _ = record()
    entries = [json.loads(line) for line in lines]
    assert entries[0] == FORMAT
    version = next(e for e in entries if e.get("request") == "GetVersion")
    assert version["number"] == "0x80084b01"
    assert version["sent"] == "00" * 8
    assert version["got"] == "0100000011000000"
    assert version["reply"] == {"major_version": 1, "minor_version": 17}
    wait = next(e for e in entries if e.get("request") == "WaitEvents")
    assert wait["memory"][0]["field"] == "events_ptr"
    assert wait["memory"][0]["sent"] != wait["memory"][0]["got"]
    written = [(e["by"], e["label"]) for e in entries[1:] if e["call"] == "memory"]
    assert written == [("driver", "ring"), ("device", "fence")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": 8}, "the driver wrote something else to ring, from byte 0x8 on"),
        ({"wait": 6}, "WaitEvents: timeout was 5, is 6"),
    ],
)
def test_a_driver_that_does_something_else_is_told_what(
    options: dict[str, int], message: str
) -> None:
    lines, _ = record()
    with pytest.raises(ReplayMismatch, match=message) as caught:
        drive(Replayer(lines, HostPort()), **options)
    assert caught.value.line > 5


def test_other_calls_are_refused() -> None:
    lines, _ = record()
    with pytest.raises(ReplayMismatch, match="open came then, and now close"):
        Replayer(lines, HostPort()).close(3)
    with pytest.raises(ReplayMismatch, match="path='/dev/dri/renderD200', and now '/dev/kfd'"):
        Replayer(lines, HostPort()).open("/dev/kfd")
    with pytest.raises(ReplayMismatch, match="it has ended, and now comes list"):
        Replayer(lines[:1], HostPort()).list("/")
    port = Replayer([lines[0], *(line for line in lines if '"GetVersion"' in line)], HostPort())
    with pytest.raises(ReplayMismatch, match=r"GetVersion was sent then, and now DestroyQueue\("):
        port.ioctl(40, kfd.DestroyQueue(queue_id=1))
    port = Replayer([lines[0], *(line for line in lines if '"GetVersion"' in line)], HostPort())
    with pytest.raises(ReplayMismatch, match="went to fd 40, and now to 41"):
        port.ioctl(41, kfd.GetVersion())


def test_pointers_are_compared_by_what_they_point_to() -> None:
    lines, _ = record()
    [line] = [text for text in lines if '"MapMemoryToGpu"' in text and "errno" not in text]
    ids = HostPort().mmap(RING)
    request = kfd.MapMemoryToGpu(handle=3, device_ids_array_ptr=ids, n_devices=2)
    poke(ids, struct.pack("<II", 77, 78))
    reply = Replayer([lines[0], line], HostPort()).ioctl(40, request)
    assert reply.device_ids_array_ptr == ids
    poke(ids, struct.pack("<II", 77, 79))
    with pytest.raises(ReplayMismatch, match="device_ids_array_ptr pointed to 4d0000004e000000"):
        Replayer([lines[0], line], HostPort()).ioctl(40, request)
    HostPort().munmap(ids, RING)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "empty"),
        (["{}\n"], "the first line of a recording is"),
        (["nonsense\n", "more\n"], "line 1 of the recording is no JSON"),
        ([json.dumps(FORMAT) + "\n", "[]\n"], "line 2 of the recording names no call"),
        ([json.dumps(FORMAT) + "\n", "{\n", "{}\n"], "line 2 of the recording is no JSON"),
        (["[" * 100_000 + "\n"], "nested too deeply"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(BadFile, match=message):
        Replayer(lines, HostPort())


def test_a_recording_that_a_crash_cut_off_is_still_one() -> None:
    lines, _ = record()
    assert Replayer([*lines[:4], lines[4][:10]], HostPort()).left == 3


def test_a_recording_is_printed_through_the_declarations() -> None:
    lines, _ = record()
    text = "\n".join(show_recording(lines))
    for part in (
        "open('/dev/dri/renderD200') failed: forbidden",
        "open('/dev/kfd') = 40",
        "list('/sys/nodes') = 0, 1",
        "read('/sys/nodes/0/gpu_id') = 10 bytes",
        "read('/sys/nodes/0/missing') failed: ENOENT 2",
        "GetVersion(major_version=0, minor_version=0)) → major_version=1, minor_version=17",
        "device_ids_array_ptr=0, n_devices=0, n_success=0)) failed: EINVAL",
        "with device_ids_array_ptr → (77, 78)",
        "→ out=GemCreateOut(handle=5, _pad=0)",
        "driver wrote ring: 4096 bytes at 0x",
        "device wrote fence: 64 bytes at 0x",
        "left events_ptr → (EventData(payload=EventPayload(09",
        "doorbell 0x",
        "munmap(address=0x",
        "close(fd=40)",
    ):
        assert part in text, part


def test_requests_are_recognised_by_number_and_size() -> None:
    assert kind_of(0xC0584B02) is kfd.CreateQueue
    assert kind_of(0xC0604B02) is kfd.CreateQueue17
    assert kind_of(0xC0FF4B02) is not None
    assert kind_of(0x40406448) is amdgpu.GemVaTimeline
    assert kind_of(0x5413) is None
    [line] = show_recording(
        [
            json.dumps(FORMAT) + "\n",
            '{"call":"ioctl","fd":3,"number":"0xc0085413","sent":"","errno":25}\n',
        ]
    )
    assert line == (
        "ioctl(3, RW 'T' 0x13 of 8 bytes, undeclared) failed: "
        "ENOTTY 25 (Inappropriate ioctl for device)"
    )


def test_memory_that_is_not_there_does_not_hurt_the_recorder() -> None:
    file = io.StringIO()
    port = Recorder(FakePort(), file)
    port.watch(0x10, 64, "nowhere")
    port.pause()
    port.ioctl(1, kfd.MapMemoryToGpu(handle=1, device_ids_array_ptr=0x10, n_devices=1))
    port.unwatch(0x10)
    assert "memory" not in file.getvalue()
