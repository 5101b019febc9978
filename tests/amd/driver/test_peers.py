"""Copies from one GPU's memory to another's: over the link, in order, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rawgpu.amd.virtual
from rawgpu.amd.driver import device as driver
from rawgpu.amd.driver.device import AmdDevice
from rawgpu.amd.driver.transfer import Transfer
from rawgpu.contract import PeerCopy
from rawgpu.virtual.room import Room
from tests.amd.driver.objects import SAXPY, build

assert rawgpu.amd.virtual.VENDOR == "amd"
pytestmark = pytest.mark.virtual
N = 1024


@contextlib.contextmanager
def two(spec: str = "gfx1100*2", **options: Any) -> Iterator[tuple[AmdDevice, AmdDevice]]:
    with (
        Room(spec, **options),
        driver.open_device("amd:0") as one,
        driver.open_device("amd:1") as other,
    ):
        yield one, other


@pytest.mark.parametrize("spec", ["gfx1100*2", "gfx942*2", "gfx1201,gfx1100"])
def test_copies_run_between_what_was_submitted_before_and_after(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        with two(spec, seed=seed) as (one, other):
            arch = one.hardware.name
            scale = one.load(build(SAXPY, arch))["saxpy"]
            x, y = one.array(np.ones(N, np.float32)), one.array(np.zeros(N, np.float32))
            target = other.alloc(8 * N)
            to, whence = other.queue(), one.queue()
            size = (N // 64, 64)
            copies = [PeerCopy(target, 4 * N, y.buffer, 0, 4 * N)]
            assert to.pull(whence, [PeerCopy(target, 0, x.buffer, 0, 4)])  # tries the link
            with monkeypatch.context() as patch:
                patch.setattr(Transfer, "read", None)
                for turn in range(1, 4):
                    whence.launch(scale, [x, y, np.float32(1), np.int32(N)], grid=size[0], block=64)
                    whence.submit()
                    copies[0] = PeerCopy(target, 4 * N * (turn % 2), y.buffer, 0, 4 * N)
                    assert to.pull(whence, copies)
                # the source is overwritten as soon as it may be
                recording = whence.record()
                recording.launch(scale, [x, y, np.float32(7), np.int32(N)], grid=size[0], block=64)
                recording.replay()
            got = np.frombuffer(target.read(), np.float32).reshape(2, N)
            np.testing.assert_array_equal(got, [[2.0] * N, [3.0] * N])
            np.testing.assert_array_equal(y.numpy(), np.full(N, 10.0))


@pytest.mark.parametrize("options", [{"links": False}, {"large_bar": False}])
def test_without_a_link_nothing_is_submitted(options: dict[str, Any]) -> None:
    with two(**options) as (one, other):
        x, y = one.array(np.ones(N, np.float32)), other.alloc(4 * N)
        to, whence = other.queue(), one.queue()
        assert not to.pull(whence, [PeerCopy(y, 0, x.buffer, 0, 4 * N)])
        assert (to.submitted, whence.submitted) == (0, 0)


def test_a_link_that_corrupts_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with two() as (one, other):
        x, y = one.array(np.ones(N, np.float32)), other.alloc(4 * N)
        real = Transfer.read

        def flipped(self: Transfer, *arguments: Any) -> bytes:
            data = real(self, *arguments)
            return bytes([data[0] ^ 1]) + data[1:]

        with monkeypatch.context() as patch:
            patch.setattr(Transfer, "read", flipped)
            assert not other.queue().pull(one.queue(), [PeerCopy(y, 0, x.buffer, 0, 4 * N)])
        assert not other.queue().pull(one.queue(), [PeerCopy(y, 0, x.buffer, 0, 4 * N)])


def test_a_replay_comes_after_what_its_queue_was_given() -> None:
    with Room("gfx1100"), driver.open_device("amd:0") as gpu:
        kernel = gpu.load(build(SAXPY, "gfx1100"))["saxpy"]
        x, y = gpu.array(np.ones(N, np.float32)), gpu.array(np.zeros(N, np.float32))
        z = gpu.array(np.zeros(N, np.float32))
        queue = gpu.queue()
        recording = queue.record()
        recording.launch(kernel, [y, z, np.float32(1), np.int32(N)], grid=N // 64, block=64)
        queue.launch(kernel, [x, y, np.float32(5), np.int32(N)], grid=N // 64, block=64)
        recording.replay()
        queue.synchronize()
        np.testing.assert_array_equal(z.numpy(), np.full(N, 5.0))
