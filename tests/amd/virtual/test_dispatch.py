"""From packets to a Dispatch: what PM4 registers and AQL packets tell the shader engine."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from rawgpu.amd.spec import aql, pm4
from rawgpu.amd.spec.descriptor import KernelDescriptor, Properties
from rawgpu.amd.virtual.dispatch import (
    Access,
    Dispatch,
    GpuMemory,
    GpuPageFault,
    HaltCause,
    Misuse,
    Pause,
    Running,
    Services,
    WaveHalted,
)
from rawgpu.ioctl.kfd import AllocFlags, EventType, QueueType, WaitResult
from rawgpu.virtual.memory import poke
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import (
    FINE,
    Client,
    HostQueue,
    Region,
    client_of,
    signal,
    until,
    wait_equal,
    write,
)

CODE = AllocFlags.GTT | AllocFlags.WRITABLE | AllocFlags.EXECUTABLE


class Recorder:
    """A runner that takes `slices` steps, then writes to the address in its first two SGPRs."""

    def __init__(self, slices: int = 3) -> None:
        self.slices = slices
        self.seen: list[Dispatch] = []
        self.order: list[str] = []
        self.wrong: Exception | None = None

    def __call__(self, dispatch: Dispatch, memory: GpuMemory, services: Services) -> Running:
        number = len(self.seen)
        self.seen.append(dispatch)
        memory.code(dispatch.entry_va, 4)
        for _ in range(self.slices):
            self.order.append(f"step {number}")
            yield Pause.SLICE
        if self.wrong is not None:
            raise self.wrong
        if len(dispatch.user_sgprs) >= 2:
            low, high = dispatch.user_sgprs[:2]
            memory.write(high << 32 | low, struct.pack("<I", number + 1))
        self.order.append(f"end {number}")


class Setup:
    def __init__(self, room: Room, runner: Recorder, kind: QueueType) -> None:
        self.room, self.runner = room, runner
        self.client: Client = client_of(room)
        self.queue: HostQueue = self.client.queue(kind)
        self.page: Region = self.client.alloc(0x1000)
        self.page.write(bytes(0x100))
        self.code: Region = self.client.alloc(0x4000, CODE)


def setup_for(name: str, kind: QueueType = QueueType.COMPUTE, slices: int = 3) -> Any:
    runner = Recorder(slices)
    return runner, Room(name, runner=runner, seed=4)


@pytest.fixture
def one() -> Iterator[Setup]:
    runner, room = setup_for("gfx1100")
    with room:
        yield Setup(room, runner, QueueType.COMPUTE)


def registers(setup: Setup, **values: int) -> list[pm4.SetShReg]:
    table = setup.client.hardware.registers
    return [
        pm4.SetShReg(register=table.offset(f"COMPUTE_{name}"), values=(value,))
        for name, value in values.items()
    ]


def launch(setup: Setup, target: int, **more: int) -> list[pm4.Pm4]:
    """The packets of a small launch whose first user SGPRs hold `target`."""
    values = {
        "PGM_LO": setup.code.va >> 8,
        "PGM_HI": setup.code.va >> 40,
        "PGM_RSRC1": 1,
        "PGM_RSRC2": 2 << 1 | 1 << 7,
        "NUM_THREAD_X": 64,
        "NUM_THREAD_Y": 1,
        "NUM_THREAD_Z": 1,
        "USER_DATA_0": target & 0xFFFFFFFF,
        "USER_DATA_1": target >> 32,
    } | more
    initiator = values.pop("initiator", 1 | 1 << 2 | 1 << 15)
    x = values.pop("x", 5)
    return [
        *registers(setup, **values),
        pm4.DispatchDirect(x=x, y=2, z=1, initiator=initiator),
    ]


PARTIAL_FLUSH = pm4.EventWrite(
    event_type=pm4.EventType.CS_PARTIAL_FLUSH, event_index=pm4.EventIndex.PARTIAL_FLUSH
)


def test_registers_become_a_dispatch(one: Setup) -> None:
    rsrc1 = 3 | 0xC0 << 12 | 1 << 21 | 1 << 23 | 1 << 26
    rsrc2 = 1 | 2 << 1 | 1 << 7 | 1 << 9 | 1 << 10 | 2 << 11 | 3 << 15
    packets = launch(
        one,
        one.page.va,
        PGM_RSRC1=rsrc1,
        PGM_RSRC2=rsrc2,
        TMPRING_SIZE=4 | 2 << 12,
        DISPATCH_SCRATCH_BASE_LO=0x1234,
        NUM_THREAD_X=60,
    )
    one.queue.submit(*packets, signal(one.client, one.page.va + 64, 1))
    until(one.client, one.page.va + 64, 1)
    (seen,) = one.runner.seen
    assert (seen.groups, seen.group_size, seen.wave_size) == ((5, 2, 1), (60, 1, 1), 32)
    assert seen.entry_va == seen.kernel_va == one.code.va
    assert (seen.vgprs, seen.sgprs, seen.float_mode) == (32, 106, 0xC0)
    assert (seen.ieee, seen.dx10_clamp, seen.fp16_overflow) == (True, True, True)
    assert seen.group_id_sgprs == (True, False, True)
    assert (seen.group_info_sgpr, seen.item_ids, seen.lds_bytes) == (True, 2, 1536)
    assert seen.user_sgprs == (one.page.va & 0xFFFFFFFF, one.page.va >> 32)
    assert (seen.scratch_enabled, seen.scratch_wave_bytes) == (True, 512)
    assert (seen.scratch_base, seen.scratch_waves) == (0x123400, 24)
    assert (seen.waves_per_group, seen.total_groups) == (2, 10)
    assert struct.unpack("<I", one.page.read(4))[0] == 1


def test_sizes_in_work_items_leave_a_partial_group(one: Setup) -> None:
    use_items = 1 | 1 << 2 | 1 << 5 | 1 << 15
    packets = launch(one, one.page.va, initiator=use_items, x=130, NUM_THREAD_Y=2)
    one.queue.submit(*packets, signal(one.client, one.page.va + 64, 1))
    until(one.client, one.page.va + 64, 1)
    (seen,) = one.runner.seen
    assert (seen.groups, seen.partial) == ((3, 1, 1), (2, 0, 0))


def test_a_release_waits_for_the_waves_before_it_and_packets_do_not() -> None:
    runner, room = setup_for("gfx1100", slices=400)
    with room:
        one = Setup(room, runner, QueueType.COMPUTE)
        one.queue.submit(
            *launch(one, one.page.va),
            write(one.page.va + 128, 1),
            signal(one.client, one.page.va + 64, 1),
        )
        until(one.client, one.page.va + 128, 1)
        assert "end 0" not in runner.order
        until(one.client, one.page.va + 64, 1)
        assert runner.order[-1] == "end 0"


def test_dispatches_overlap_unless_a_partial_flush_stands_between(one: Setup) -> None:
    first, second = launch(one, one.page.va), launch(one, one.page.va + 4)
    end = signal(one.client, one.page.va + 64, 1)
    one.queue.submit(*first, PARTIAL_FLUSH, *second, end)
    until(one.client, one.page.va + 64, 1)
    assert one.runner.order.index("end 0") < one.runner.order.index("step 1")
    one.runner.slices = 100
    one.queue.submit(*first, *second, end.replace(data=2))
    until(one.client, one.page.va + 64, 2)
    assert one.runner.order.index("step 3") < one.runner.order.index("end 2")


def test_an_empty_grid_runs_nothing(one: Setup) -> None:
    one.queue.submit(*launch(one, one.page.va, x=0), signal(one.client, one.page.va, 7))
    until(one.client, one.page.va, 7)
    assert not one.runner.seen


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"NUM_THREAD_X": 2048}, "2048 x 1 x 1 items"),
        ({"NUM_THREAD_Z": 0}, "work-group of"),
        ({"PGM_RSRC2": 200 << 15}, "bytes of LDS"),
        ({"PGM_RSRC2": 1}, "SCRATCH_EN"),
        ({"initiator": 1 << 2}, "COMPUTE_SHADER_EN"),
    ],
)
def test_launches_that_hardware_gets_wrong_raise(
    one: Setup, changes: dict[str, int], text: str
) -> None:
    packets = launch(one, one.page.va, **changes)
    with pytest.raises(Misuse, match=text):
        submit_and_pause(one, *packets)


def submit_and_pause(setup: Setup, *packets: Any) -> None:
    setup.queue.submit(*packets)
    for _ in range(20):
        setup.client.port.pause()


def test_code_that_may_not_be_executed_faults(one: Setup) -> None:
    one.code = one.client.alloc(0x1000, FINE)
    memory = one.client.event(EventType.MEMORY)
    one.queue.submit(*launch(one, one.page.va))
    result, entries = one.client.wait(memory.event_id)
    assert result is WaitResult.COMPLETE
    failure = entries[0].payload.memory_exception_data.failure
    assert (failure.NoExecute, failure.NotPresent) == (1, 0)
    log = "\n".join(one.room.machines["amd"].log)  # type: ignore[attr-defined]
    assert "SQC (inst) (0x9)" in log


def test_a_wave_that_faults_is_reported_with_its_page(one: Setup) -> None:
    one.runner.wrong = GpuPageFault(0x12345678, Access.WRITE)
    memory = one.client.event(EventType.MEMORY)
    one.queue.submit(*launch(one, one.page.va))
    _, entries = one.client.wait(memory.event_id)
    assert entries[0].payload.memory_exception_data.va == 0x12345000


def test_a_halted_wave_tells_the_log_only_and_the_queue_hangs(one: Setup) -> None:
    one.runner.wrong = WaveHalted(HaltCause.ILLEGAL_INSTRUCTION, one.code.va + 8)
    memory = one.client.event(EventType.MEMORY)
    one.queue.submit(*launch(one, one.page.va), signal(one.client, one.page.va + 64, 1))
    assert one.client.wait(memory.event_id, timeout=500)[0] is WaitResult.TIMEOUT
    assert one.page.read(4, 64) == bytes(4)
    log = "\n".join(one.room.machines["amd"].log)  # type: ignore[attr-defined]
    assert "sq_intr: error" in log
    assert "type 1" in log
    one.queue.destroy()


def test_an_endless_kernel_meets_a_time_limit_in_few_steps() -> None:
    runner, room = setup_for("gfx1100", slices=10**9)
    with room:
        one = Setup(room, runner, QueueType.COMPUTE)
        one.queue.submit(*launch(one, one.page.va), signal(one.client, one.page.va + 64, 1))
        event = one.client.event(EventType.MEMORY)
        assert one.client.wait(event.event_id, timeout=30_000)[0] is WaitResult.TIMEOUT
        assert 100 < len(runner.order) < 20_000
        one.queue.destroy()


# AQL.


class AqlSetup(Setup):
    def __init__(self, room: Room, runner: Recorder) -> None:
        super().__init__(room, runner, QueueType.COMPUTE_AQL)
        made = self.queue.made
        head = aql.AmdQueue(
            base_address=made.ring_base_address,
            size=made.ring_size // 64,
            group_segment_aperture_base_hi=1 << 16,
            private_segment_aperture_base_hi=2 << 16,
            max_cu_id=1,
            max_wave_id=1,
            compute_tmpring_size=8 | 1 << 12,
            scratch_resource_descriptor=(1, 2, 3, 4),
            scratch_backing_memory_location=0x5000_0000,
            scratch_wave64_lane_byte_size=16,
            queue_properties=aql.QueueProperties.IS_PTR64,
        )
        poke(made.write_pointer_address - 0x38, head.encode())
        self.queue.put(b"")
        invalid = struct.pack("<I", 1) + bytes(60)
        poke(made.ring_base_address, invalid * (made.ring_size // 64))
        self.descriptor = self.code.va + 0x100
        self.describe()

    def describe(self, **changes: Any) -> None:
        fields = {
            "group_segment_fixed_size": 0,
            "private_segment_fixed_size": 0,
            "kernarg_size": 16,
            "kernel_code_entry_byte_offset": 0x300,
            "compute_pgm_rsrc1": 3,
            "compute_pgm_rsrc2": 2 << 1 | 1 << 7,
            "compute_pgm_rsrc3": 0,
            "kernel_code_properties": Properties.ENABLE_SGPR_KERNARG_SEGMENT_PTR,
        } | changes
        poke(self.descriptor, KernelDescriptor(**fields).encode())

    def packet(self, **changes: Any) -> aql.KernelDispatch:
        fields = {
            "dimensions": 2,
            "workgroup_size_x": 64,
            "workgroup_size_y": 1,
            "workgroup_size_z": 1,
            "grid_size_x": 130,
            "grid_size_y": 3,
            "grid_size_z": 1,
            "private_segment_size": 0,
            "group_segment_size": 600,
            "kernel_object": self.descriptor,
            "kernarg_address": self.page.va,
            "completion_signal": self.page.va + 0x80,
        } | changes
        return aql.KernelDispatch(**fields)

    def signal(self, value: int = 1, **fields: int) -> None:
        self.page.write(aql.AmdSignal(value=value, **fields).encode(), 0x80)

    def signal_value(self) -> int:
        return int(struct.unpack("<q", self.page.read(8, 0x88))[0])

    def finish(self) -> None:
        for _ in range(3000):
            if self.signal_value() == 0:
                return
            self.client.port.pause()
        raise AssertionError(f"the signal stays at {self.signal_value()}")


@pytest.fixture(params=["gfx942", "gfx1100"])
def packets(request: pytest.FixtureRequest) -> Iterator[AqlSetup]:
    runner, room = setup_for(request.param)
    with room:
        yield AqlSetup(room, runner)


def test_an_aql_packet_becomes_a_dispatch_on_every_xcc(packets: AqlSetup) -> None:
    packets.signal()
    packets.queue.submit(packets.packet())
    packets.finish()
    xccs = packets.client.properties["num_xcc"]
    assert sorted(d.xcc for d in packets.runner.seen) == list(range(xccs))
    seen = next(d for d in packets.runner.seen if d.xcc == 0)
    assert (seen.groups, seen.partial, seen.group_size) == ((3, 3, 1), (2, 0, 0), (64, 1, 1))
    assert seen.entry_va == packets.descriptor + 0x300
    assert seen.kernel_va == packets.descriptor
    assert seen.lds_bytes == 1024
    assert seen.wave_size == 64
    assert seen.user_sgprs == (packets.page.va & 0xFFFFFFFF, packets.page.va >> 32)
    assert seen.scratch_base == 0x5000_0000
    start, end = struct.unpack("<2Q", packets.page.read(16, 0xA0))
    assert 0 < start <= end


def test_user_registers_come_in_the_descriptors_order(packets: AqlSetup) -> None:
    wants = Properties
    packets.describe(
        compute_pgm_rsrc2=15 << 1,
        kernel_code_properties=wants.ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER
        | wants.ENABLE_SGPR_DISPATCH_PTR
        | wants.ENABLE_SGPR_QUEUE_PTR
        | wants.ENABLE_SGPR_KERNARG_SEGMENT_PTR
        | wants.ENABLE_SGPR_DISPATCH_ID
        | wants.ENABLE_SGPR_FLAT_SCRATCH_INIT
        | wants.ENABLE_SGPR_PRIVATE_SEGMENT_SIZE,
    )
    packets.runner.seen.clear()
    packets.signal()
    target = packets.client.alloc(0x1000)
    words_of_target = struct.pack("<2I", target.va & 0xFFFFFFFF, target.va >> 32)
    poke(packets.queue.made.write_pointer_address - 0x38 + 0x90, words_of_target)
    packets.queue.submit(packets.packet(private_segment_size=48))
    packets.finish()
    words = packets.runner.seen[0].user_sgprs
    made = packets.queue.made

    def pair(value: int) -> tuple[int, int]:
        return value & 0xFFFFFFFF, value >> 32

    assert words == (
        *pair(target.va), 3, 4,
        *pair(made.ring_base_address),
        *pair(made.write_pointer_address - 0x38),
        *pair(packets.page.va),
        0, 0,
        *pair(0x5000_0000),
        48,
    )  # fmt: skip


def test_preloaded_arguments_come_last_and_skip_the_prologue() -> None:
    runner, room = setup_for("gfx942")
    with room:
        packets = AqlSetup(room, runner)
        packets.describe(compute_pgm_rsrc2=5 << 1, kernarg_preload=3 | 1 << 7)
        packets.page.write(struct.pack("<4I", 10, 11, 12, 13))
        packets.signal()
        packets.queue.submit(packets.packet())
        packets.finish()
        seen = runner.seen[0]
        assert seen.user_sgprs[2:] == (11, 12, 13)
        assert seen.entry_va == packets.descriptor + 0x300 + 256


def test_a_slot_waits_until_its_header_is_valid(packets: AqlSetup) -> None:
    packets.signal()
    body = packets.packet().pack()
    packets.queue.put(struct.pack("<I", 1) + body[4:])
    packets.queue.store_pointer()
    packets.queue.ring()
    for _ in range(30):
        packets.client.port.pause()
    assert packets.signal_value() == 1
    poke(packets.queue.made.ring_base_address, body[:4])
    packets.finish()


def test_barriers_wait_for_signals(packets: AqlSetup) -> None:
    packets.signal()
    other = packets.client.alloc(0x1000)
    other.write(aql.AmdSignal(value=1).encode())
    packets.queue.submit(
        aql.BarrierAnd(dep_signal_0=other.va, completion_signal=packets.page.va + 0x80)
    )
    for _ in range(30):
        packets.client.port.pause()
    assert packets.signal_value() == 1
    other.write(struct.pack("<q", 0), 8)
    packets.finish()


def test_a_completion_signal_wakes_who_waits_for_its_event(packets: AqlSetup) -> None:
    client = packets.client
    page = client.alloc(0x8000)
    made = client.event(EventType.SIGNAL, page.handle)
    mailbox = page.va + 8 * made.event_slot_index
    packets.signal(event_mailbox_ptr=mailbox, event_id=made.event_id)
    packets.queue.submit(packets.packet())
    assert client.wait(made.event_id)[0] is WaitResult.COMPLETE
    assert packets.signal_value() == 0


def test_pm4_in_a_vendor_packet_runs_on_every_xcc(packets: AqlSetup) -> None:
    client, buffer, page = packets.client, packets.client.alloc(0x1000), packets.page
    xccs = client.properties["num_xcc"]
    code: list[pm4.Pm4] = []
    for xcc in range(xccs):
        one = write(page.va + 0x200 + 4 * xcc, xcc + 1)
        code += [pm4.PredExec(exec_count=one.dwords, xcc_mask=1 << xcc), one]
    buffer.write(b"".join(packet.pack() for packet in code))
    inner = pm4.IndirectBuffer(address=buffer.va, size_dwords=sum(p.dwords for p in code))
    names = [f"indirect_buffer_{i}" for i in range(4)]
    packets.signal()
    packets.queue.submit(
        aql.VendorPm4(
            completion_signal=page.va + 0x80, **dict(zip(names, inner.encode(), strict=True))
        )
    )
    packets.finish()
    assert struct.unpack(f"<{xccs}I", page.read(4 * xccs, 0x200)) == tuple(range(1, xccs + 1))


def test_without_the_barrier_bit_packets_overlap(packets: AqlSetup) -> None:
    for barrier in (True, False):
        packets.runner.order.clear()
        packets.runner.seen.clear()
        packets.signal(value=8)
        packets.queue.submit(*[packets.packet(barrier=barrier) for _ in range(8)])
        packets.finish()
        order = packets.runner.order
        xccs = packets.client.properties["num_xcc"]
        begins = [order.index(f"step {n}") for n in range(8 * xccs)]
        ends = [order.index(f"end {n}") for n in range(8 * xccs)]
        overlap = any(
            min(begins[n : n + xccs]) < max(ends[n - xccs : n]) for n in range(xccs, 8 * xccs, xccs)
        )
        assert overlap is not barrier


def test_kernels_after_one_another_on_two_queues_meet_through_memory(one: Setup) -> None:
    other = one.client.queue()
    other.submit(
        wait_equal(one.page.va + 64, 3),
        *launch(one, one.page.va + 8),
        signal(one.client, one.page.va + 72, 1),
    )
    one.queue.submit(*launch(one, one.page.va), signal(one.client, one.page.va + 64, 3))
    until(one.client, one.page.va + 72, 1)
    assert one.runner.order.index("end 0") < one.runner.order.index("step 1")
