"""KFD's requests, their checks and error numbers, over kernel versions."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator

import pytest

from rawgpu.errors import DeviceNotFound, DevicePermission, KernelCallFailed
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags, MmapType, QueueType
from rawgpu.ioctl.port import Protection
from rawgpu.virtual.memory import PAGE_BYTES, peek
from rawgpu.virtual.room import Room
from tests.amd.virtual.client import (
    COARSE,
    FINE,
    TOPOLOGY,
    VRAM,
    Client,
    client_of,
    keep,
    refusal,
    write,
)

ENOTSUPP = 524


@pytest.fixture
def client() -> Iterator[Client]:
    with Room("gfx1100*2", kernel="6.12") as room:
        yield client_of(room)


# CREATE_QUEUE: each rule of the kernel, broken one at a time.

Change = Callable[[Client, kfd.CreateQueue], kfd.CreateQueue]


def _second_page_pointer(client: Client, request: kfd.CreateQueue) -> kfd.CreateQueue:
    two_pages = client.alloc(2 * PAGE_BYTES)
    return request.replace(write_pointer_address=two_pages.va)


def _inside_a_larger_ring(client: Client, request: kfd.CreateQueue) -> kfd.CreateQueue:
    large = client.alloc(0x10000)
    return request.replace(ring_base_address=large.va, ring_size=0x4000)


def _not_at_the_start(client: Client, request: kfd.CreateQueue) -> kfd.CreateQueue:
    large = client.alloc(0x8000)
    return request.replace(ring_base_address=large.va + 0x4000, ring_size=0x4000)


def _unmapped_ring(client: Client, request: kfd.CreateQueue) -> kfd.CreateQueue:
    return request.replace(ring_base_address=client.alloc(0x4000, map_gpu=False).va)


def _larger_save_area(client: Client, request: kfd.CreateQueue) -> kfd.CreateQueue:
    _, save, debug = client.save_sizes()
    area = client.alloc(save + debug + 2 * PAGE_BYTES & -PAGE_BYTES, COARSE, map_cpu=False)
    size = area.size - (debug + PAGE_BYTES - 1 & -PAGE_BYTES)
    return request.replace(ctx_save_restore_address=area.va, ctx_save_restore_size=size)


def _short_save_mapping(client: Client, request: kfd.CreateQueue) -> kfd.CreateQueue:
    _, save, _ = client.save_sizes()
    return request.replace(ctx_save_restore_address=client.alloc(save, COARSE, map_cpu=False).va)


def _larger_eop(client: Client, request: kfd.CreateQueue) -> kfd.CreateQueue:
    eop = client.alloc(0x2000, COARSE, map_cpu=False)
    return request.replace(eop_buffer_address=eop.va, eop_buffer_size=0x2000)


def changed(**fields: int) -> Change:
    return lambda client, request: request.replace(**fields)


ALWAYS = ("6.1", "6.6", "6.12", "6.12.107", "1.22")
SINCE_6_12 = ("6.12", "6.12.107", "1.22")
FIRST_6_12 = ("6.12",)
RULES: list[tuple[str, Change, tuple[str, ...], int]] = [
    ("percentage", changed(queue_percentage=101), ALWAYS, errno.EINVAL),
    ("priority", changed(queue_priority=16), ALWAYS, errno.EINVAL),
    ("ring size", changed(ring_size=0x3000), ALWAYS, errno.EINVAL),
    ("kernel address", changed(write_pointer_address=1 << 62), ALWAYS, errno.EFAULT),
    ("type", changed(queue_type=9), ALWAYS, ENOTSUPP),
    ("gpu", changed(gpu_id=0x7777), ALWAYS, errno.EINVAL),
    ("pointer mapping", _second_page_pointer, SINCE_6_12, errno.EINVAL),
    ("pointer unmapped", changed(read_pointer_address=0x5000), SINCE_6_12, errno.EINVAL),
    ("ring sub-allocated", _inside_a_larger_ring, SINCE_6_12, errno.EINVAL),
    ("ring not first", _not_at_the_start, SINCE_6_12, errno.EINVAL),
    ("ring unmapped", _unmapped_ring, SINCE_6_12, errno.EINVAL),
    ("control stack", changed(ctl_stack_size=0x1000), SINCE_6_12, errno.EINVAL),
    ("save area small", changed(ctx_save_restore_size=0x1000), SINCE_6_12, errno.EINVAL),
    ("save area mapping", _short_save_mapping, SINCE_6_12, errno.EINVAL),
    ("save area large", _larger_save_area, FIRST_6_12, errno.EINVAL),
    ("eop small", changed(eop_buffer_size=0x800), SINCE_6_12, errno.EINVAL),
    ("eop large", _larger_eop, FIRST_6_12, errno.EINVAL),
    ("eop not a mapping", changed(eop_buffer_address=0x9000), SINCE_6_12, errno.EINVAL),
    ("no eop", changed(eop_buffer_address=0, eop_buffer_size=0), (), 0),
    ("small ring", changed(queue_percentage=50), (), 0),
]


@pytest.mark.parametrize("kernel", ALWAYS)
@pytest.mark.parametrize("rule", RULES, ids=[rule[0] for rule in RULES])
def test_a_rule_of_create_queue(
    kernel: str, rule: tuple[str, Change, tuple[str, ...], int]
) -> None:
    _, change, kernels, expected = rule
    with Room("gfx1100", kernel=kernel) as room:
        client = client_of(room)
        request = change(client, client.queue_request())
        got = refusal(lambda: client.create(request))
        assert got == (expected if kernel in kernels else 0)
        if not got:
            return
        # A refused queue left nothing behind: all its buffers can be freed.
        for region in list(client.regions):
            if region.va == request.eop_buffer_address:
                client.free(region, mapped_cpu=False)


def test_a_good_queue_is_made_on_every_kernel_and_family() -> None:
    for kernel in ALWAYS:
        for name in ("gfx90a", "gfx1030", "gfx1100", "gfx1201"):
            with Room(name, kernel=kernel) as room:
                made = client_of(room).queue().made
                kind, gpu_id, _ = kfd.split_mmap_offset(made.doorbell_offset)
                assert (kind, gpu_id) == (MmapType.DOORBELL, made.gpu_id)


def test_queues_before_acquire_vm_are_refused() -> None:
    with Room("gfx1100") as room:
        client = Client(room.port("amd"))
        request = client.abi[kfd.CreateQueue](
            ring_base_address=0x1000,
            write_pointer_address=0x2000,
            read_pointer_address=0x2000,
            ring_size=0x1000,
            gpu_id=client.gpu_id,
            queue_type=QueueType.COMPUTE,
        )
        assert refusal(lambda: client.create(request)) == errno.ESRCH
        memory = kfd.AllocMemoryOfGpu(va_addr=1 << 36, size=4096, gpu_id=client.gpu_id, flags=FINE)
        assert refusal(lambda: client.port.ioctl(client.fd, memory)) == errno.ENODEV
        trap = kfd.SetTrapHandler(tba_addr=0, tma_addr=0, gpu_id=client.gpu_id)
        assert refusal(lambda: client.port.ioctl(client.fd, trap)) == errno.ESRCH
        scratch = kfd.SetScratchBackingVa(va_addr=0, gpu_id=client.gpu_id)
        assert refusal(lambda: client.port.ioctl(client.fd, scratch)) == errno.ENODEV


def test_sdma_queues_run_out() -> None:
    with Room("gfx1103") as room:
        client = client_of(room)
        made = [client.queue(QueueType.SDMA) for _ in range(6)]
        assert len({queue.doorbell for queue in made}) == 6
        assert refusal(lambda: client.queue(QueueType.SDMA)) == errno.ENOMEM
        made[2].destroy()
        client.queue(QueueType.SDMA)


def test_an_sdma_engine_that_is_not_there_is_refused(client: Client) -> None:
    request = client.queue_request(QueueType.SDMA_BY_ENG_ID)
    assert refusal(lambda: client.create(request.replace(sdma_engine_id=2))) == errno.EINVAL
    client.create(request.replace(sdma_engine_id=1))


def test_a_process_has_a_limit_of_queues() -> None:
    with Room("gfx1100", kernel="6.1") as room:
        client = client_of(room)
        request = client.queue_request()
        for _ in range(127):
            client.create(request)
        assert refusal(lambda: client.create(request)) == errno.ENOSPC


def test_buffers_of_a_queue_stay_until_it_is_destroyed(client: Client) -> None:
    queue = client.queue()
    ring = next(r for r in client.regions if r.va == queue.made.ring_base_address)
    assert refusal(lambda: client.unmap(ring)) == errno.EBUSY
    queue.destroy()
    client.free(ring)
    assert refusal(queue.destroy) == errno.EINVAL


# Requests and versions.


@pytest.mark.parametrize(
    ("kernel", "number"), [("6.1", (1, 11)), ("6.6", (1, 14)), ("6.12", (1, 17))]
)
def test_short_and_long_structs_are_taken_by_every_version(
    kernel: str, number: tuple[int, int]
) -> None:
    with Room("gfx1100", kernel=kernel) as room:
        client = client_of(room)
        version = client.port.ioctl(client.fd, kfd.GetVersion())
        assert (version.major_version, version.minor_version) == number
        old = client.queue_request()
        fields = {name: getattr(old, name) for name in kfd.CreateQueue.field_names()}
        for kind in (kfd.CreateQueue, kfd.CreateQueue17, kfd.CreateQueue22):
            made = client.create(kind(**fields))
            assert type(made) is kind
            client.port.ioctl(client.fd, kfd.DestroyQueue(queue_id=made.queue_id))


def test_unknown_requests() -> None:
    with Room("gfx1100", kernel="6.1") as room:
        client = client_of(room)
        export = kfd.ExportDmabuf(handle=0)
        assert refusal(lambda: client.port.ioctl(client.fd, export)) == errno.ENOTTY
    with Room("gfx1100", kernel="6.12") as room:
        client = client_of(room)
        assert refusal(lambda: client.port.ioctl(client.fd, kfd.CreateProcess())) == errno.ENOTTY
        assert refusal(lambda: client.port.ioctl(7, kfd.GetVersion())) == errno.EBADF


def test_a_second_file_of_a_gpu_is_busy(client: Client) -> None:
    client.acquire()
    other = client.port.open("/dev/dri/renderD128")
    request = kfd.AcquireVm(drm_fd=other, gpu_id=client.gpu_id)
    assert refusal(lambda: client.port.ioctl(client.fd, request)) == errno.EBUSY
    for fd in (client.fd, 12345):
        request = kfd.AcquireVm(drm_fd=fd, gpu_id=Client(client.port, 1).gpu_id)
        assert refusal(lambda r=request: client.port.ioctl(client.fd, r)) == errno.EINVAL


def test_apertures_are_counted_and_told(client: Client) -> None:
    asked = client.port.ioctl(client.fd, kfd.GetProcessAperturesNew())
    assert asked.num_of_nodes == 2
    _kept, address = keep(bytes(112))
    request = kfd.GetProcessAperturesNew(
        kfd_process_device_apertures_ptr=address, num_of_nodes=asked.num_of_nodes
    )
    client.port.ioctl(client.fd, request)
    row = kfd.ProcessDeviceApertures.decode(peek(address, 56))
    assert row.gpu_id == client.gpu_id
    assert (row.lds_base, row.scratch_base) == (1 << 48, 2 << 48)
    request = request.replace(kfd_process_device_apertures_ptr=0x1000)
    assert refusal(lambda: client.port.ioctl(client.fd, request)) == errno.EFAULT


def test_clocks_xnack_policy_and_runtime(client: Client) -> None:
    port, fd = client.port, client.fd
    clocks = port.ioctl(fd, kfd.GetClockCounters(gpu_id=client.gpu_id))
    assert clocks.gpu_clock_counter == clocks.cpu_clock_counter // 10
    assert clocks.system_clock_freq == 10**9
    assert port.ioctl(fd, kfd.GetClockCounters(gpu_id=1)).gpu_clock_counter == 0
    assert port.ioctl(fd, kfd.SetXnackMode(xnack_enabled=-1)).xnack_enabled == 0
    assert refusal(lambda: port.ioctl(fd, kfd.SetXnackMode(xnack_enabled=1))) == errno.EPERM
    port.ioctl(fd, kfd.SetMemoryPolicy(gpu_id=client.gpu_id))
    enable = kfd.RuntimeEnable(mode_mask=kfd.RuntimeMode.ENABLE)
    port.ioctl(fd, enable)
    assert refusal(lambda: port.ioctl(fd, enable)) == errno.EBUSY
    port.ioctl(fd, kfd.RuntimeEnable(mode_mask=kfd.RuntimeMode(0)))
    client.queue()
    assert refusal(lambda: port.ioctl(fd, enable)) == errno.EEXIST
    assert refusal(lambda: port.ioctl(fd, kfd.SetXnackMode(xnack_enabled=0))) == errno.EBUSY


def test_compute_unit_masks(client: Client) -> None:
    queue = client.queue()
    _kept, address = keep(struct.pack("<2I", 0xFF, 0))
    for count, number, expected in ((0, 0, 22), (33, 0, 22), (64, 99, 14), (64, 0, 0)):
        request = kfd.SetCuMask(queue_id=number, num_cu_mask=count, cu_mask_ptr=address)
        assert refusal(lambda r=request: client.port.ioctl(client.fd, r)) == expected
    bad = kfd.SetCuMask(queue_id=queue.made.queue_id, num_cu_mask=32, cu_mask_ptr=0x10)
    assert refusal(lambda: client.port.ioctl(client.fd, bad)) == errno.EFAULT


def test_wave_state_is_told_of_stopped_queues_only(client: Client) -> None:
    queue = client.queue()
    ask = kfd.GetQueueWaveState(ctl_stack_address=0, queue_id=queue.made.queue_id)
    assert refusal(lambda: client.port.ioctl(client.fd, ask)) == errno.EINVAL
    made = queue.made
    stop = kfd.UpdateQueue(
        ring_base_address=made.ring_base_address,
        queue_id=made.queue_id,
        ring_size=made.ring_size,
        queue_percentage=0,
        queue_priority=7,
    )
    client.port.ioctl(client.fd, stop)
    client.port.ioctl(client.fd, ask)
    assert refusal(lambda: client.port.ioctl(client.fd, stop.replace(queue_id=9))) == errno.EFAULT


# Memory.


def alloc_request(client: Client, **changes: int) -> kfd.AllocMemoryOfGpu:
    fields = {"va_addr": client.take_va(4096), "size": 4096, "gpu_id": client.gpu_id, "flags": FINE}
    return kfd.AllocMemoryOfGpu(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"size": 0}, errno.EINVAL),
        ({"gpu_id": 5}, errno.EINVAL),
        ({"flags": AllocFlags.WRITABLE}, errno.EINVAL),
        ({"flags": AllocFlags.DOORBELL}, errno.EINVAL),
        ({"flags": AllocFlags.DOORBELL, "size": 8192}, 0),
        ({"flags": AllocFlags.MMIO_REMAP, "size": 8192}, errno.EINVAL),
        ({"flags": AllocFlags.MMIO_REMAP}, 0),
        ({"flags": AllocFlags.USERPTR}, errno.EINVAL),
        ({"flags": AllocFlags.USERPTR, "mmap_offset": 0x1234}, errno.EINVAL),
        ({"flags": AllocFlags.USERPTR, "mmap_offset": 0x5000}, errno.EFAULT),
        ({"flags": VRAM, "size": 100 << 30}, errno.ENOMEM),
        ({"flags": VRAM, "va_addr": 0}, 0),
        ({"flags": VRAM}, 0),
    ],
)
def test_a_rule_of_alloc(client: Client, changes: dict[str, int], expected: int) -> None:
    request = alloc_request(client, **changes)
    assert refusal(lambda: client.port.ioctl(client.fd, request)) == expected


def test_public_memory_needs_a_large_bar() -> None:
    with Room("gfx1100", large_bar=False) as room:
        client = client_of(room)
        request = alloc_request(client, flags=VRAM)
        assert refusal(lambda: client.port.ioctl(client.fd, request)) == errno.EINVAL
        private = alloc_request(client, flags=AllocFlags.VRAM)
        made = client.port.ioctl(client.fd, private)
        client.port.mmap(4096, fd=client.render, offset=made.mmap_offset)


def test_vram_that_is_left_is_told(client: Client) -> None:
    ask = kfd.AvailableMemory(gpu_id=client.gpu_id)
    before = client.port.ioctl(client.fd, ask).available
    region = client.alloc(1 << 30, VRAM, map_cpu=False)
    assert before - client.port.ioctl(client.fd, ask).available == 1 << 30
    client.free(region, mapped_cpu=False)
    assert client.port.ioctl(client.fd, ask).available == before


def test_map_and_unmap_rules(client: Client) -> None:
    region = client.alloc(4096, map_gpu=False)
    good = client.gpu_id
    port, fd = client.port, client.fd
    zero = kfd.MapMemoryToGpu(handle=region.handle, device_ids_array_ptr=0, n_devices=0)
    assert refusal(lambda: port.ioctl(fd, zero)) == errno.EINVAL
    assert refusal(lambda: port.ioctl(fd, zero.replace(n_devices=1))) == errno.EFAULT
    assert refusal(lambda: client.map(region, good, done=2)) == errno.EINVAL
    assert refusal(lambda: client.map(region, 0x1111)) == errno.EINVAL
    other = Client(port, 1)
    assert refusal(lambda: client.map(region, good, other.gpu_id)) == errno.ENODEV
    assert refusal(lambda: client.unmap(region)) == 0  # the first of the two was mapped
    assert refusal(lambda: client.unmap(region)) == errno.EINVAL
    missing = region.handle + 77
    region.handle, kept = missing, region.handle
    assert refusal(lambda: client.map(region)) == errno.ENOMEM
    region.handle = kept
    assert client.map(region).n_success == 1
    assert client.map(region).n_success == 1
    free = kfd.FreeMemoryOfGpu(handle=region.handle)
    assert refusal(lambda: port.ioctl(fd, free)) == errno.EBUSY
    client.unmap(region)
    port.ioctl(fd, free)
    assert refusal(lambda: port.ioctl(fd, free)) == errno.EINVAL


def test_addresses_conflict_where_they_are_mapped_not_where_they_are_allocated(
    client: Client,
) -> None:
    first = client.alloc(0x4000)
    second = client.alloc(0x1000, map_gpu=False, map_cpu=False, va=first.va + 0x1000)
    assert refusal(lambda: client.map(second)) == errno.EINVAL
    client.free(first)
    client.map(second)


def test_the_event_page_is_never_freed(client: Client) -> None:
    page = client.alloc(0x8000)
    client.event(kfd.EventType.SIGNAL, page.handle)
    client.unmap(page)
    request = kfd.FreeMemoryOfGpu(handle=page.handle)
    assert refusal(lambda: client.port.ioctl(client.fd, request)) == errno.EPERM


def test_user_memory_is_shared_with_the_gpu(client: Client) -> None:
    mine = client.port.mmap(2 * PAGE_BYTES)
    va = client.take_va(PAGE_BYTES)
    flags = AllocFlags.USERPTR | AllocFlags.WRITABLE
    request = alloc_request(client, va_addr=va, flags=flags, mmap_offset=mine + PAGE_BYTES)
    made = client.port.ioctl(client.fd, request)
    assert made.mmap_offset == mine + PAGE_BYTES
    from tests.amd.virtual.client import Region

    client.map(Region(va, PAGE_BYTES, made.handle, 0))
    queue = client.queue()
    queue.submit(write(va + 8, 0x11223344))
    queue.drain()
    assert peek(mine + PAGE_BYTES + 8, 4) == bytes.fromhex("44332211")


def test_memory_of_malloc_is_lent_and_given_back(client: Client) -> None:
    import mmap

    from rawgpu.native.system import ffi
    from tests.amd.virtual.client import Region

    own = mmap.mmap(-1, 2 * PAGE_BYTES)
    own[:5] = b"hello"
    address = int(ffi.cast("uintptr_t", ffi.from_buffer(own)))
    va = client.take_va(PAGE_BYTES)
    flags = AllocFlags.USERPTR | AllocFlags.WRITABLE
    made = client.port.ioctl(
        client.fd, alloc_request(client, va_addr=va, flags=flags, mmap_offset=address)
    )
    region = Region(va, PAGE_BYTES, made.handle, 0)
    client.regions.append(region)
    client.map(region)
    queue = client.queue()
    queue.submit(write(va + 8, 0x41414141))
    queue.drain()
    assert own[:12] == b"hello\0\0\0AAAA"
    client.free(region, mapped_cpu=False)
    assert own[:12] == b"hello\0\0\0AAAA"
    own[0:1] = b"j"


def test_mmap_rules(client: Client) -> None:
    port = client.port
    region = client.alloc(0x2000, map_cpu=False)
    doorbells = kfd.mmap_offset(MmapType.DOORBELL, client.gpu_id)
    mmio = kfd.mmap_offset(MmapType.MMIO, client.gpu_id)
    other = port.open("/dev/dri/renderD128")
    for size, fd, offset, expected in (
        (0x3000, client.render, region.mmap_offset, errno.EINVAL),
        (0x1000, client.render, 0x123000, errno.EINVAL),
        (0x1000, other, region.mmap_offset, errno.EINVAL),
        (0x1000, client.fd, doorbells, errno.EINVAL),
        (0x2000, client.fd, doorbells, 0),
        (0x2000, client.fd, mmio, errno.EINVAL),
        (0x1000, client.fd, mmio, 0),
        (0x1000, client.fd, kfd.mmap_offset(MmapType.EVENTS), errno.EINVAL),
        (0x1000, 99, 0, errno.EBADF),
    ):
        call = lambda s=size, f=fd, o=offset: port.mmap(s, fd=f, offset=o)  # noqa: E731
        assert refusal(call) == expected, (size, fd, offset)


def test_a_range_that_is_taken_is_not_mapped_over(client: Client) -> None:
    port = client.port
    taken = port.mmap(0x4000, address=1 << 35, protection=Protection.NONE)
    assert refusal(lambda: port.mmap(0x1000, address=taken)) == errno.EEXIST
    assert port.mmap(0x1000, address=taken, replace=True) == taken
    port.munmap(taken, 0x4000)
    port.mmap(0x1000, address=taken)


def test_dma_bufs_carry_memory_to_another_gpu() -> None:
    with Room("gfx1100*2") as room:
        first, second = client_of(room), client_of(room, 1)
        region = first.alloc(0x1000, VRAM)
        shared = first.port.ioctl(first.fd, kfd.ExportDmabuf(handle=region.handle))
        request = kfd.ImportDmabuf(
            va_addr=second.take_va(0x1000), gpu_id=second.gpu_id, dmabuf_fd=shared.dmabuf_fd
        )
        made = second.port.ioctl(second.fd, request)
        assert made.handle >> 32 == second.gpu_id
        bad = request.replace(dmabuf_fd=second.render)
        assert refusal(lambda: second.port.ioctl(second.fd, bad)) == errno.EINVAL


# Nodes and files.


def test_topology_is_as_the_kernel_writes_it() -> None:
    with Room("gfx1100*2,gfx942", kernel="1.22") as room:
        port = room.port("amd")
        assert port.list(TOPOLOGY) == ("0", "1", "2", "3")
        assert port.read(f"{TOPOLOGY}/0/gpu_id") == b"0\n"
        assert Client(port, 2).properties["num_xcc"] == 8
        assert Client(port, 0).properties["cwsr_size"] == Client(port, 0).save_sizes()[1]
        assert "renderD130" in port.list("/dev/dri")
        link = port.read(f"{TOPOLOGY}/1/p2p_links/0/properties").decode()
        assert "node_from 1\n" in link
        base = "/sys/class/drm/renderD128/device/ip_discovery/die/0/11/0"
        assert (port.read(f"{base}/major"), port.read(f"{base}/minor")) == (b"11\n", b"0\n")
    with Room("gfx1100", kernel="6.12", links=False) as room:
        port = room.port("amd")
        assert "cwsr_size" not in Client(port).properties
        assert "p2p_links" not in port.list(f"{TOPOLOGY}/1")


def test_hidden_nodes_are_refused() -> None:
    with Room("gfx1100*2", hidden=(0,)) as room:
        port = room.port("amd")
        assert refusal(lambda: port.read(f"{TOPOLOGY}/1/gpu_id")) == errno.EPERM
        with pytest.raises(DevicePermission):
            port.open("/dev/dri/renderD128")
        client = client_of(room, 1)
        assert client.port.ioctl(client.fd, kfd.GetProcessAperturesNew()).num_of_nodes == 1


def test_missing_files_are_refused(client: Client) -> None:
    with pytest.raises(DeviceNotFound):
        client.port.open("/dev/dri/renderD140")
    with pytest.raises(KernelCallFailed):
        client.port.read(f"{TOPOLOGY}/9/gpu_id")
    with pytest.raises(KernelCallFailed):
        client.port.list("/nowhere")
