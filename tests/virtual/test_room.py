"""Rooms: how they are asked for, who builds them, and what decides in them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rawgpu
import rawgpu.amd.virtual
from rawgpu.amd.virtual.boards import BOARDS
from rawgpu.errors import RawGpuError, UnsupportedDevice
from rawgpu.virtual.clock import SteppedClock
from rawgpu.virtual.faults import Faults, Strike
from rawgpu.virtual.room import Room, current, parse, ports
from rawgpu.virtual.schedule import Chance

assert rawgpu.amd.virtual.VENDOR == "amd"


def test_a_rooms_text() -> None:
    assert parse("gfx1100*2, gfx942,") == ["gfx1100", "gfx1100", "gfx942"]
    assert parse("") == []
    for bad in ("gfx1100*0", "gfx 1", "*2", "gfx1100*x"):
        with pytest.raises(UnsupportedDevice):
            parse(bad)


def test_an_unknown_gpu_or_kernel_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedDevice, match="gfx9999"):
        Room("gfx9999").__enter__()
    with pytest.raises(UnsupportedDevice, match=r"no kernel '2\.4'"):
        Room("gfx1100", kernel="2.4").__enter__()
    assert current() is None


def test_what_a_room_does_not_know_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnsupportedDevice, match=r"no option 'foo'.*seed, strict.*kernel, la"):
        rawgpu.room("gfx1100", foo=3)
    with pytest.raises(UnsupportedDevice, match="not by 3"):
        rawgpu.room(3)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedDevice) as refusal:
        rawgpu.room("gfx1099")
    assert all(name in refusal.value.message for name in BOARDS)
    assert current() is None


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("RAWGPU_SEED", "abc", "RAWGPU_SEED is 'abc'"),
        ("RAWGPU_STRICT", "no", "RAWGPU_STRICT is 'no', which is neither 0 nor 1"),
        ("RAWGPU_VIRTUAL", "gfx1", "RAWGPU_VIRTUAL: no virtual GPU is called 'gfx1'"),
        ("RAWGPU_VIRTUAL", "gfx1100*x", "RAWGPU_VIRTUAL: 'gfx1100*x' names no virtual GPU"),
    ],
)
def test_a_bad_variable_is_named(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAWGPU_VIRTUAL", "gfx1100")
    monkeypatch.setenv(variable, value)
    with pytest.raises(RawGpuError) as refusal:
        rawgpu.devices()
    assert refusal.value.message.startswith(says)


def test_rooms_nest_and_the_innermost_counts() -> None:
    assert ports("amd") == []
    with Room("gfx1100") as outer:
        with Room("gfx942") as inner:
            assert ports("amd") == [inner.port("amd")]
            assert current() is inner
        assert ports("amd") == [outer.port("amd")]
        assert ports("nv") == []
    assert ports("amd") == []


def test_the_environment_makes_a_room() -> None:
    code = (
        "import rawgpu.amd.virtual as v; from rawgpu.virtual.room import ports, current;"
        "(port,) = ports('amd'); assert ports('amd') == [port];"
        "print(len(port.list('/dev/dri')), current().seed, current().strict)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "RAWGPU_VIRTUAL": "gfx1100*3",
            "RAWGPU_SEED": "17",
            "RAWGPU_STRICT": "0",
            "PYTHONPATH": ":".join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("3 17 False\n", "")


def test_chance_repeats_and_its_forks_are_apart() -> None:
    one, two = Chance(5), Chance(5)
    assert [one.below(100) for _ in range(20)] == [two.below(100) for _ in range(20)]
    assert one.fork("a").word() == two.fork("a").word()
    assert one.fork("a").word() != one.fork("b").word()
    assert Chance(6).bytes(16) != Chance(7).bytes(16)
    assert sorted(one.shuffled(range(9))) == list(range(9))


def test_a_stepped_clock_moves_by_work_only() -> None:
    clock = SteppedClock()
    begin = clock.now_ns()
    assert clock.now_ns() == begin
    clock.advance(7)
    assert clock.now_ns() == begin + 7


def test_planted_faults_count_and_strike_once() -> None:
    faults = Faults()
    faults.fail("mmap", errno=12, nth=3)
    assert [faults.refuse("mmap") for _ in range(5)] == [0, 0, 12, 0, 0]
    assert faults.refuse("open") == 0
    faults.hang(gpu=1, packet=2)
    assert [faults.at_packet(0) for _ in range(3)] == [None] * 3
    assert [faults.at_packet(1) for _ in range(3)] == [None, Strike.HANG, None]
    faults.lose_interrupt(nth=1, times=2)
    faults.delay_interrupt(nth=4, steps=9)
    struck = [faults.at_interrupt(0) for _ in range(5)]
    lost = (Strike.LOSE_INTERRUPT, 0)
    assert struck == [lost, lost, None, (Strike.DELAY_INTERRUPT, 9), None]
    assert list(faults.pending()) == []
