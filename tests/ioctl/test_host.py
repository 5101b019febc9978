"""The real kernel port: restarts, errors that say what was asked, mappings."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rawgpu.errors import DeviceNotFound, DevicePermission, KernelCallFailed
from rawgpu.ioctl import declare, host, kfd
from rawgpu.ioctl.host import HostPort, advice
from rawgpu.ioctl.memory import peek, poke
from rawgpu.ioctl.port import KernelPort, Protection
from tests.ioctl.fake_libc import FakeLibc

PAGE = os.sysconf("SC_PAGESIZE")
MAP = kfd.MapMemoryToGpu(handle=1, device_ids_array_ptr=0x1000, n_devices=2)


def test_the_host_port_is_a_kernel_port() -> None:
    port: KernelPort = HostPort()
    assert port.now_ns() <= port.now_ns()
    port.pause()


def test_a_reply_is_what_the_kernel_left_in_the_struct() -> None:
    def answer(data: Any) -> int:
        data[:] = struct.pack("<II", 1, 17)
        return 0

    libc = FakeLibc(answer)
    reply = HostPort(libc).ioctl(3, kfd.GetVersion())
    assert reply == kfd.GetVersion(major_version=1, minor_version=17)
    assert libc.calls == [("ioctl", 3, 0x80084B01, bytes(8))]


def test_an_interrupted_ioctl_is_made_again_with_what_the_kernel_wrote() -> None:
    def progress(data: Any) -> int:
        data[20:24] = struct.pack("<I", 1)  # n_success
        return errno.EINTR

    libc = FakeLibc(progress, errno.EINTR, 0)
    assert HostPort(libc).ioctl(3, MAP).n_success == 1
    assert [call[3][20:24] for call in libc.calls] == [bytes(4), b"\1\0\0\0", b"\1\0\0\0"]


def test_interrupts_without_end_end() -> None:
    libc = FakeLibc(*[errno.EINTR] * (host.INTERRUPTS + 10))
    with pytest.raises(KernelCallFailed, match="EINTR"):
        HostPort(libc).ioctl(3, MAP)
    assert len(libc.calls) == host.INTERRUPTS + 1


def test_a_kernel_that_says_try_again_is_asked_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "AGAIN_S", 0)
    libc = FakeLibc(errno.EAGAIN, errno.EINTR, errno.EAGAIN, 0)
    assert HostPort(libc).ioctl(3, MAP) == MAP
    assert len(libc.calls) == 4
    libc = FakeLibc(*[errno.EAGAIN] * 1000)
    with pytest.raises(KernelCallFailed, match="EAGAIN"):
        HostPort(libc).ioctl(3, MAP)
    assert len(libc.calls) == host.AGAINS + 2


@pytest.mark.parametrize(
    "number", [errno.ENOMEM, errno.EBUSY, errno.EINVAL, errno.ENODEV, errno.EPERM]
)
def test_a_refused_ioctl_carries_the_request_and_the_errno(number: int) -> None:
    with pytest.raises(KernelCallFailed) as caught:
        HostPort(FakeLibc(number)).ioctl(3, MAP)
    assert caught.value.errno == number
    assert caught.value.request == MAP
    text = str(caught.value)
    assert f"MapMemoryToGpu failed: {errno.errorcode[number]}" in text
    assert "MapMemoryToGpu(handle=1, device_ids_array_ptr=4096, n_devices=2, n_success=0)" in text


def test_what_the_kernel_finished_before_it_refused_is_said() -> None:
    def some(data: Any) -> int:
        data[20:24] = struct.pack("<I", 1)
        return errno.ENOMEM

    with pytest.raises(KernelCallFailed, match="n_success is 1 by now"):
        HostPort(FakeLibc(some)).ioctl(3, MAP)


def test_errors_that_only_kernels_know_have_names() -> None:
    with pytest.raises(KernelCallFailed, match="ENOTSUPP 524"):
        HostPort(FakeLibc(524)).ioctl(3, MAP)


def test_a_real_ioctl_on_dev_null_is_enotty() -> None:
    port = HostPort()
    fd = port.open("/dev/null")
    try:
        with pytest.raises(KernelCallFailed, match="ENOTTY") as caught:
            port.ioctl(fd, kfd.GetVersion())
        assert caught.value.errno == errno.ENOTTY
        assert os.get_inheritable(fd) is False
    finally:
        port.close(fd)
    with pytest.raises(KernelCallFailed, match="EBADF"):
        port.close(fd)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENXIO, errno.ENODEV])
def test_a_missing_node_is_not_found(number: int) -> None:
    with pytest.raises(DeviceNotFound, match="/dev/kfd"):
        HostPort(FakeLibc(number)).open("/dev/kfd")


def test_a_forbidden_node_names_the_group(tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.touch(mode=0o660)
    with pytest.raises(DevicePermission, match="EACCES") as caught:
        HostPort(FakeLibc(errno.EACCES)).open(str(node))
    assert caught.value.hint
    assert "group" in caught.value.hint or "usermod" in caught.value.hint


def test_advice_fits_the_error(tmp_path: Path) -> None:
    assert "container" in (advice("/no/such/node", errno.EACCES) or "")
    assert "device rules" in (advice(str(tmp_path), errno.EPERM) or "")
    assert "load the kernel driver" in (advice("/dev/kfd", errno.ENOENT) or "")
    assert "dmesg" in (advice("/dev/kfd", errno.ENOMEM) or "")
    assert "container" in (advice("/dev/kfd", errno.EINVAL) or "")
    assert advice("/dev/kfd", errno.EIO) is None


def test_other_errors_of_open_carry_the_path() -> None:
    with pytest.raises(KernelCallFailed, match=r"ENOMEM.*\n.*open\('/dev/kfd'\)"):
        HostPort(FakeLibc(errno.ENOMEM)).open("/dev/kfd")


def test_open_is_made_again_when_interrupted_and_close_is_not() -> None:
    libc = FakeLibc(errno.EINTR, 0, errno.EINTR)
    port = HostPort(libc)
    assert port.open("/dev/kfd") == 7
    port.close(7)
    assert [call[0] for call in libc.calls] == ["open", "open", "close"]


def test_memory_is_mapped_where_it_was_asked_for_and_never_over_something() -> None:
    port = HostPort()
    at = port.mmap(16 * PAGE, protection=Protection.NONE)
    try:
        with pytest.raises(KernelCallFailed, match=r"EEXIST.*something is mapped there"):
            port.mmap(PAGE, address=at + PAGE)
        assert port.mmap(PAGE, address=at + PAGE, replace=True) == at + PAGE
        assert poke(at + PAGE, b"abc")
        assert peek(at + PAGE, 4) == b"abc\0"
        port.store_doorbell(at + PAGE + 8, 0x1_0000_0002)
        port.store_doorbell(at + PAGE + 16, 3, bits=32)
        assert peek(at + PAGE + 8, 12) == struct.pack("<QI", 0x1_0000_0002, 3)
    finally:
        port.munmap(at, 16 * PAGE)
    assert peek(at, 1) is None
    assert poke(at, b"x") is False


def test_files_are_mapped_shared(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE))
    port = HostPort()
    fd = port.open(str(path))
    at = port.mmap(PAGE, fd=fd)
    poke(at, b"shared")
    port.munmap(at, PAGE)
    port.close(fd)
    assert path.read_bytes()[:6] == b"shared"
    with pytest.raises(KernelCallFailed, match=r"EBADF(.|\n)*mmap\(fd=99, "):
        port.mmap(PAGE, fd=99)


def test_offsets_with_the_top_bit_set_reach_the_kernel() -> None:
    libc = FakeLibc()
    offset = kfd.mmap_offset(kfd.MmapType.DOORBELL, 0x1234)
    HostPort(libc).mmap(8192, fd=3, offset=offset)
    name, *_, fd, signed = libc.calls[0]
    assert (name, fd, signed & (1 << 64) - 1) == ("mmap", 3, offset)
    assert libc.calls[1] == ("madvise", 0x10000, 8192, host.MADV_DONTFORK)


def test_a_mapping_that_cannot_be_kept_from_children_is_given_back() -> None:
    libc = FakeLibc(0, errno.EINVAL)
    with pytest.raises(KernelCallFailed, match="MADV_DONTFORK"):
        HostPort(libc).mmap(PAGE)
    assert [call[0] for call in libc.calls] == ["mmap", "madvise", "munmap"]


def test_children_do_not_inherit_mappings() -> None:
    """In a process of its own: this one has threads."""
    script = (
        "import os\n"
        "from rawgpu.ioctl.host import HostPort\n"
        "from rawgpu.ioctl.memory import peek\n"
        "at = HostPort().mmap(4096)\n"
        "assert peek(at, 1) == b'\\0'\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if peek(at, 1) is None else 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root, timeout=60)


def test_a_refused_unmap_is_said() -> None:
    with pytest.raises(KernelCallFailed, match="munmap failed: EINVAL"):
        HostPort().munmap(1, PAGE)


def test_sysfs_is_read_and_listed(tmp_path: Path) -> None:
    port = HostPort()
    (tmp_path / "b").write_bytes(b"gpu_id 3\n")
    (tmp_path / "a").touch()
    assert port.list(str(tmp_path)) == ("a", "b")
    assert port.read(str(tmp_path / "b")) == b"gpu_id 3\n"
    with pytest.raises(KernelCallFailed, match="ENOENT") as caught:
        port.read(str(tmp_path / "c"))
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(KernelCallFailed, match="ENOTDIR"):
        port.list(str(tmp_path / "a"))


def test_the_parsed_declarations_are_up_to_date() -> None:
    path = Path(declare.__file__).with_name("_libc.py")
    assert path.read_text(encoding="utf-8") == declare.generate()
