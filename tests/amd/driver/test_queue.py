"""What stands in the rings: packets in the order that works on hardware, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawgpu.amd.driver.stencil import Stencil
from rawgpu.amd.spec import aql, pm4, sdma
from rawgpu.contract import QueueKind
from rawgpu.describe.packet import Packet, PacketSet
from rawgpu.ioctl.memory import peek
from tests.amd.driver.objects import SAXPY
from tests.amd.driver.rooms import Engine, opened

pytestmark = pytest.mark.virtual
REGISTERS = (0xB830, 0xB848, 0xB8A0, 0xB860, 0xB840, 0xB86C, 0xB900, 0xB854, 0xB810)
"""PGM_LO, RSRC1 and 2, RSRC3, TMPRING, SCRATCH_BASE, RESTART, USER_DATA, LIMITS, START."""


def ring_of(queue: Any, start: int = 0) -> bytes:
    ring = queue.ring
    assert ring.written <= ring.size_bytes
    return peek(ring.ring.address + start, ring.written - start)


def packets_of(queue: Any, packets: PacketSet, start: int = 0) -> list[Packet]:
    return list(packets.decode(ring_of(queue, start)))


def names(packets: list[Packet]) -> list[str]:
    return [type(p).__name__ for p in packets]


def one_launch(gpu: Any, engine: Engine) -> Any:
    kernel = engine.load(gpu, SAXPY, "saxpy")
    x = gpu.array(np.zeros(64, np.float32))
    kernel(x, x, np.float32(1), np.int32(64), grid=3, block=(32, 2))
    gpu.synchronize()
    return gpu.own_queue()


def test_a_launch_on_gfx11() -> None:
    engine = Engine()
    with opened("gfx1100", engine) as gpu:
        queue = one_launch(gpu, engine)
        found = packets_of(queue, gpu.hardware.pm4)
        assert names(found) == [
            "WaitRegMem", "WaitRegMem", "AcquireMem10", "AcquireMem10", *["SetShReg"] * 9,
            "DispatchDirect", "EventWrite", "ReleaseMem10", "ReleaseMem10",
        ]  # fmt: skip
        previous, flush, everything, between = found[:4]
        assert isinstance(previous, pm4.WaitRegMem) and previous.reference == 0
        assert previous.address == queue.timeline.address
        assert flush.encode()[1:] == [0x45, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4]
        assert everything.encode()[-1] == 0xC3F1 and between.encode()[-1] == 0x3F0
        writes = [p for p in found if isinstance(p, pm4.SetShReg)]
        assert tuple(p.register for p in writes) == REGISTERS
        assert writes[-1].values == (0, 0, 0, 32, 2, 1, 0, 0)
        launch = found[-4]
        assert isinstance(launch, pm4.DispatchDirect)
        assert (launch.x, launch.y, launch.z, launch.initiator) == (3, 1, 1, 0x8005)
        done, wake = found[-2], found[-1]
        assert done.encode()[1:3] == [0x70F514, 1 << 29]
        assert wake.encode()[1:3] == [0x514, 1 << 29 | 2 << 24]
        assert wake.encode()[-1] == gpu.event.id


def test_a_launch_on_gfx90a_has_gfx9_s_caches_and_a_context_of_0() -> None:
    engine = Engine()
    with opened("gfx90a", engine) as gpu:
        found = packets_of(one_launch(gpu, engine), gpu.hardware.pm4)
        assert found[2].encode()[1] == 0x28C40000 and found[3].encode()[1] == 0x08400000
        assert found[-2].encode()[1] == 0x88514 and found[-1].encode()[-1] == 0
        assert "SetUconfigReg" not in names(found)
        launch = next(p for p in found if isinstance(p, pm4.DispatchDirect))
        assert launch.initiator == 0x5


def test_a_launch_on_gfx10_delays_its_cache_flushes() -> None:
    engine = Engine()
    with opened("gfx1030", engine) as gpu:
        found = packets_of(one_launch(gpu, engine), gpu.hardware.pm4)
        offset = gpu.hardware.registers.offset("CP_COHER_START_DELAY")
        assert pm4.SetUconfigReg(register=offset, values=(0x20,)) in found


def test_a_launch_on_gfx942_is_an_aql_packet_between_two_that_run_pm4() -> None:
    engine = Engine()
    with opened("gfx942", engine) as gpu:
        queue = one_launch(gpu, engine)
        found = packets_of(queue, aql.AQL)
        assert names(found) == ["VendorPm4", "KernelDispatch", "VendorPm4"]
        assert [p.encode()[0] for p in found] == [0x11500, 0x21502, 0x11500]
        inside = []
        for packet in (found[0], found[2]):
            assert isinstance(packet, aql.VendorPm4)
            words = packet.encode()
            ib = pm4.IndirectBuffer.decode(words[1:5])
            inside.append(list(gpu.hardware.pm4.decode(peek(ib.address, 4 * ib.size_dwords))))
            assert words[5] == 10 and not any(words[6:])
        assert names(inside[0]) == ["WaitRegMem", "WaitRegMem", "AcquireMem"]
        assert names(inside[1]) == ["PredExec", "ReleaseMem", "ReleaseMem"]
        assert inside[1][0] == pm4.PredExec(xcc_mask=1, exec_count=16)
        dispatch = found[1]
        assert isinstance(dispatch, aql.KernelDispatch)
        assert (dispatch.grid_size_x, dispatch.grid_size_y, dispatch.dimensions) == (96, 2, 2)


def test_a_wait_inside_a_submit_acquires_again() -> None:
    engine = Engine()
    with opened("gfx1100", engine) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x = gpu.array(np.zeros(64, np.float32))
        queue, signal = gpu.queue(), gpu.new_signal()
        for value in (1, 2):
            queue.launch(kernel, [x, x, np.float32(1), np.int32(64)], block=64)
            queue.signal(signal, value)
            queue.wait(signal, value)
        queue.launch(kernel, [x, x, np.float32(1), np.int32(64)], block=64)
        queue.submit()
        queue.synchronize()
        found = packets_of(queue, gpu.hardware.pm4)
        full = [i for i, p in enumerate(found) if p.encode() == gpu.boundaries.acquire_all]
        launches = [i for i, p in enumerate(found) if isinstance(p, pm4.DispatchDirect)]
        assert len(full) == 3 and all(a < b for a, b in zip(full, launches, strict=True))


def test_a_submit_that_only_signals_flushes_nothing() -> None:
    with opened("gfx1100") as gpu:
        queue = gpu.queue()
        queue.signal(gpu.new_signal(), 1)
        queue.submit()
        queue.synchronize()
        found = packets_of(queue, gpu.hardware.pm4)
        assert names(found) == ["WaitRegMem", *["ReleaseMem10"] * 3]


def test_a_replay_is_one_indirect_buffer_with_the_first_row_first() -> None:
    engine = Engine()
    with opened("gfx1100", engine) as gpu:
        kernel = engine.load(gpu, SAXPY, "saxpy")
        x = gpu.array(np.zeros(64, np.float32))
        queue = gpu.queue()
        recording = queue.record()
        for _ in range(20):
            recording.launch(kernel, [x, x, np.float32(1), np.int32(64)], block=64)
        recording.replay()
        queue.synchronize()
        found = packets_of(queue, gpu.hardware.pm4)
        assert names(found) == [
            "WaitRegMem", "AcquireMem10", "WaitRegMem", "IndirectBuffer", "ReleaseMem10",
            "ReleaseMem10",
        ]  # fmt: skip
        assert len(engine.dispatches) == 20


@pytest.mark.parametrize(
    ("arch", "copy", "polls"),
    [("gfx90a", "CopyLinear", 2), ("gfx942", "CopyLinear", 1), ("gfx1100", "CopyLinear6", 1),
     ("gfx1201", "CopyLinear6", 1)],
)  # fmt: skip
def test_a_copy_larger_than_one_packet(arch: str, copy: str, polls: int) -> None:
    with opened(arch) as gpu:
        size = sdma.COPY_BYTES + 12
        a, b = gpu.alloc(size), gpu.alloc(size)
        queue = gpu.queue(QueueKind.COPY)
        queue.copy(b, a, size)
        queue.submit()
        queue.synchronize()
        found = packets_of(queue, gpu.hardware.sdma)
        shapes = names(found)
        assert shapes[:polls] == [shapes[0]] * polls and shapes[0].startswith("PollRegmem")
        assert shapes[polls : polls + 2] == [copy, copy]
        assert [n[:5] for n in shapes[polls + 2 :]] == ["Fence", "Fence", "Trap"]
        sizes = [p.size_bytes for p in found if isinstance(p, sdma.CopyLinear)]
        assert sizes == [sdma.COPY_BYTES, 12]
        assert all(len(p.encode()) == 7 for p in found if isinstance(p, sdma.CopyLinear))


def test_packets_of_a_copy_ring_never_cross_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rawgpu.amd.driver.copyqueue.RING_BYTES", 4096)
    with opened("gfx1100") as gpu:
        a, b = gpu.alloc(256), gpu.alloc(256)
        a.write(bytes(range(256)))
        queue = gpu.queue(QueueKind.COPY)
        ring, places = queue.ring, []
        write = ring.write

        def watched(data: bytes) -> None:
            places.append((ring.written % ring.size_bytes, data))
            write(data)

        monkeypatch.setattr(ring, "write", watched)
        for _ in range(150):
            queue.copy(b, a, 256)
            queue.submit()
        queue.synchronize()
        assert ring.written > 3 * 4096
        assert all(at + len(data) <= 4096 for at, data in places)
        fillers = [data for _, data in places if not any(data)]
        assert fillers and all(len(data) < 28 for data in fillers)
        assert b.read() == bytes(range(256))


def test_a_stencil_is_the_packet() -> None:
    packet = pm4.WaitRegMem(
        function=pm4.Function.EQUAL, mem_space=pm4.Space.MEMORY, address=0, reference=0
    )
    made = Stencil(packet, "address", "reference")(0x12_3456_7890, 77)
    assert made == packet.replace(address=0x12_3456_7890, reference=77).encode()
    with pytest.raises(AssertionError):
        Stencil(sdma.Fence(address=0, data=0), "address")(6)
    with pytest.raises(AssertionError):
        Stencil(packet, "function")
