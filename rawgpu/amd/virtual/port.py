"""The `KernelPort` of one process in a virtual AMD machine.

Descriptors are the port's own numbers. What the CPU maps is real memory of the host at real
addresses, so programs store to it as they do on a real machine.
"""

from __future__ import annotations

import errno
import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from rawgpu.amd.virtual import render, sysfs
from rawgpu.amd.virtual.dispatch import NotModelled
from rawgpu.amd.virtual.hdp import MODELLED_BYTES, Bar, available
from rawgpu.amd.virtual.kernel import Kernel
from rawgpu.amd.virtual.kfd_memory import release
from rawgpu.amd.virtual.kfd_queues import remove
from rawgpu.amd.virtual.machine import Machine
from rawgpu.amd.virtual.process import Buffer, KernelError, Process, RenderFile
from rawgpu.describe.abi import root_of
from rawgpu.describe.request import Request
from rawgpu.ioctl import kfd
from rawgpu.ioctl.kfd import AllocFlags, MmapType
from rawgpu.ioctl.port import (
    OPEN_FLAGS,
    READ_WRITE,
    Call,
    Protection,
    open_refused,
    refused,
)
from rawgpu.virtual.memory import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_FIXED_NOREPLACE,
    MAP_NORESERVE,
    MAP_PRIVATE,
    Extent,
    map_host,
    page_up,
    poke,
    unmap_host,
)

R = TypeVar("R", bound=Request)
F = TypeVar("F", bound=Callable[..., Any])
FIRST_FD = 1 << 20
DOORBELL_STEPS = 8
"""At most so many steps run inside a doorbell store."""
INTERRUPTS, AGAINS = 10_000, 100
"""How often a request that was interrupted, or told to try again, is made again: as on a host."""


def _alone(call: F) -> F:
    """Hold the machine during a call: a threaded one runs beside it."""

    @functools.wraps(call)
    def held(self: Port, *args: Any, **named: Any) -> Any:
        with self.machine.changed:
            return call(self, *args, **named)

    return cast(F, held)


@dataclass(eq=False)
class KfdFile:
    """An open /dev/kfd: the process's first context, or one of its own."""

    kernel: Kernel


@dataclass(eq=False)
class HostMapping:
    """What the CPU has mapped of the machine."""

    address: int
    size_bytes: int
    extent: Extent
    offset: int = 0
    bar: Bar | None = None

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


class Port:
    """One process's way to the virtual kernel."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.process = machine.new_process()
        self.processes = [self.process]
        """The process, and further contexts of it."""
        self.kernel = Kernel(machine, self.process, self._file)
        self.files: dict[int, object] = {}
        self.mapped: dict[int, HostMapping] = {}
        self.reserved: dict[int, int] = {}
        """Sizes of address ranges without memory."""
        self._next_fd = FIRST_FD
        self._chance = machine.chance.fork(f"port {self.process.number}")
        machine.ports.append(self)

    def _file(self, fd: int) -> object | None:
        return self.files.get(fd)

    def add_file(self, file: object) -> int:
        """A new descriptor."""
        self._next_fd += 1
        self.files[self._next_fd] = file
        return self._next_fd

    # Files.

    @_alone
    def open(self, path: str, flags: int = OPEN_FLAGS) -> int:
        del flags
        refusal = self.machine.faults.refuse("open")
        if refusal:
            raise open_refused(path, refusal)
        if path == sysfs.KFD_PATH and self.machine.gpus:
            return self.add_file(KfdFile(self.kernel))
        for gpu in self.machine.gpus:
            if path == gpu.place.path:
                if gpu.place.hidden:
                    raise open_refused(path, errno.EPERM)
                return self.add_file(RenderFile(gpu))
        raise open_refused(path, errno.ENOENT)

    @_alone
    def close(self, fd: int) -> None:
        file = self.files.pop(fd, None)
        if file is None:
            raise refused(Call(name="close", fd=fd), errno.EBADF)
        if isinstance(file, Buffer) and file.extent is not None:
            file.extent.release()
        further = isinstance(file, KfdFile) and file.kernel is not self.kernel
        if isinstance(file, KfdFile) and further and file.kernel.process in self.processes:
            self._end(file.kernel.process)
        taken = [t for p in self.processes for t in p.taken.values() if t.file is file]
        if isinstance(file, RenderFile) and file.view is not None and not taken:
            file.view.close()

    def read(self, path: str) -> bytes:
        call = Call(name="read", path=path)
        refusal = self.machine.faults.refuse("read") or self._hidden(path)
        if refusal:
            raise refused(call, refusal)
        text = self.machine.files.get(path.rstrip("/"))
        if text is None:
            raise refused(call, errno.ENOENT)
        return text

    def _hidden(self, path: str) -> int:
        """EPERM for the files of a GPU that a container hides."""
        for place in self.machine.places:
            if place.hidden and path.startswith(f"{sysfs.TOPOLOGY}/nodes/{place.node}/"):
                return errno.EPERM
        return 0

    def list(self, path: str) -> tuple[str, ...]:
        head = path.rstrip("/") + "/"
        nodes = [sysfs.KFD_PATH, *(p.path for p in self.machine.places if not p.hidden)]
        paths = [*self.machine.files, *nodes]
        names = {p[len(head) :].split("/", 1)[0] for p in paths if p.startswith(head)}
        if not names:
            raise refused(Call(name="list", path=path), errno.ENOENT)
        return tuple(sorted(names))

    # Requests.

    @_alone
    def ioctl(self, fd: int, request: R) -> R:
        file = self.files.get(fd)
        if file is None:
            raise refused(request, errno.EBADF)
        refusal = self._planted(root_of(type(request)).__name__)
        if refusal:
            raise refused(request, refusal, why="a planted fault")
        try:
            if isinstance(file, KfdFile):
                if isinstance(request, kfd.CreateProcess):
                    self._create_context(file)
                return file.kernel.ioctl(request)
            if isinstance(file, RenderFile):
                return render.ioctl(self.machine, file, request)
        except KernelError as error:
            raise refused(request, error.errno, why=error.why) from None
        raise refused(request, errno.ENOTTY)

    def _planted(self, name: str) -> int:
        """The errno that a planted fault leaves when the call was made again as often as it may."""
        again = 0
        refusal = 0
        for _ in range(INTERRUPTS):
            refusal = self.machine.faults.refuse(name)
            if refusal == errno.EAGAIN and again < AGAINS:
                again += 1
            elif refusal != errno.EINTR:
                break
        return refusal

    def _create_context(self, file: KfdFile) -> None:
        """Give a descriptor a context of its own, as if another process had opened it."""
        if not self.machine.kernel.abi.has(kfd.CreateProcess):
            return
        if file.kernel is not self.kernel:
            raise KernelError(errno.EINVAL, "the descriptor has a context of its own already")
        process = self.machine.new_process()
        self.processes.append(process)
        file.kernel = Kernel(self.machine, process, self._file)

    # Memory.

    @_alone
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
        call = Call(name="mmap", fd=fd, offset=offset, address=address, size_bytes=size_bytes)
        refusal = self.machine.faults.refuse("mmap")
        try:
            if refusal:
                raise KernelError(refusal, "a planted fault")
            if fd < 0 and not protection:
                return self._reserve(size_bytes, address, replace)
            extent, private = self._what(size_bytes, fd, offset)
            return self._map(extent, size_bytes, address, protection, replace, private)
        except KernelError as error:
            raise refused(call, error.errno, why=error.why) from None
        except OSError as error:
            raise refused(call, error.errno or errno.EINVAL, why=str(error)) from None

    def _reserve(self, size_bytes: int, address: int, replace: bool) -> int:
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        if address:
            flags |= MAP_FIXED if replace else MAP_FIXED_NOREPLACE
        found = map_host(address, size_bytes, 0, flags, -1, 0)
        self._forget(found, size_bytes)
        if not replace:
            self.reserved[found] = size_bytes
        return found

    def _what(self, size_bytes: int, fd: int, offset: int) -> tuple[Extent, RenderFile | None]:
        """What a mapping shows, retained; with the render file if it is VRAM behind the BAR."""
        if fd < 0:
            return self.machine.system.alloc(size_bytes), None
        file = self.files.get(fd)
        if isinstance(file, KfdFile):
            return self._kfd_pages(file.kernel.process, size_bytes, offset).retain(), None
        if not isinstance(file, RenderFile):
            raise KernelError(errno.EBADF)
        for taken in [t for p in self.processes for t in p.taken.values()]:
            for buffer in taken.buffers.values():
                if taken.file is file and buffer.mmap_offset == offset and buffer.extent:
                    if size_bytes > buffer.size_bytes:
                        raise KernelError(errno.EINVAL, f"the buffer has {buffer.size_bytes} bytes")
                    # VRAM without PUBLIC may be mapped as well: working drivers do so.
                    vram = bool(buffer.flags & AllocFlags.VRAM)
                    return buffer.extent.retain(), file if vram else None
        raise KernelError(errno.EINVAL, f"no buffer of this file has the offset {offset:#x}")

    def _kfd_pages(self, process: Process, size_bytes: int, offset: int) -> Extent:
        kind, gpu_id, _ = kfd.split_mmap_offset(offset)
        if kind is MmapType.EVENTS:
            extent = self.machine.event_pages.get(process)
            if extent is None or size_bytes > extent.size_bytes:
                raise KernelError(errno.EINVAL, "no event page of this size")
            process.events.slots = size_bytes // 8
            return extent
        taken = process.on(gpu_id)
        if taken is None:
            raise KernelError(errno.ENODEV, f"no GPU {gpu_id:#x}")
        if kind is MmapType.DOORBELL:
            if size_bytes != kfd.DOORBELL_BYTES:
                raise KernelError(errno.EINVAL, f"doorbells are {kfd.DOORBELL_BYTES} bytes long")
            return self.machine.doorbells(taken)
        if kind is MmapType.MMIO:
            if size_bytes != kfd.MMIO_REMAP_BYTES:
                raise KernelError(errno.EINVAL, f"the page is {kfd.MMIO_REMAP_BYTES} bytes long")
            return self.machine.mmio(taken.gpu)
        raise NotModelled("mmap of KFD's reserved memory")

    def _map(
        self,
        extent: Extent,
        size_bytes: int,
        address: int,
        protection: Protection,
        replace: bool,
        behind: RenderFile | None,
    ) -> int:
        private = behind is not None and self._shadowed(behind, size_bytes)
        try:
            found = extent.map_at(
                address, page_up(size_bytes), int(protection), replace=replace, private=private
            )
        except OSError:
            extent.release()
            raise
        self._forget(found, page_up(size_bytes))
        bar = None
        if private and behind is not None:
            bar = Bar(found, page_up(size_bytes), extent, 0)
            behind.gpu.bars.append(bar)
        self.mapped[found] = HostMapping(found, page_up(size_bytes), extent, 0, bar)
        return found

    def _shadowed(self, file: RenderFile, size_bytes: int) -> bool:
        """Whether the CPU's writes to this VRAM are held back until a flush."""
        held = sum(bar.size_bytes for bar in file.gpu.bars)
        fits = held + size_bytes <= MODELLED_BYTES
        return self.machine.strict and self.machine.one_thread and fits and available()

    @_alone
    def munmap(self, address: int, size_bytes: int) -> None:
        call = Call(name="munmap", address=address, size_bytes=size_bytes)
        refusal = self.machine.faults.refuse("munmap")
        if refusal:
            raise refused(call, refusal)
        try:
            unmap_host(address, size_bytes)
        except OSError as error:
            raise refused(call, error.errno or errno.EINVAL) from None
        size_bytes = page_up(size_bytes)
        self._forget(address, size_bytes)
        for start in [a for a in self.reserved if address <= a < address + size_bytes]:
            del self.reserved[start]

    def _forget(self, address: int, size_bytes: int) -> None:
        """The range shows something else from now on."""
        for mapping in list(self.mapped.values()):
            if mapping.address >= address + size_bytes or mapping.end <= address:
                continue
            if mapping.address < address or mapping.end > address + size_bytes:
                raise NotModelled("munmap of part of a mapping")
            if mapping.bar is not None:
                for gpu in self.machine.gpus:
                    if mapping.bar in gpu.bars:
                        gpu.bars.remove(mapping.bar)
            del self.mapped[mapping.address]
            mapping.extent.release()

    def pages_at(self, address: int, size_bytes: int) -> tuple[Extent, int] | None:
        """The memory behind a range that this port mapped, and where in it."""
        for mapping in self.mapped.values():
            if mapping.address <= address and address + size_bytes <= mapping.end:
                return mapping.extent, mapping.offset + address - mapping.address
        return None

    # Time.

    def store_doorbell(self, address: int, value: int, bits: int = 64) -> None:
        poke(address, struct.pack("<Q" if bits == 64 else "<I", value))
        if not self.machine.threaded:
            with self.machine.changed:  # another thread may be running the GPUs
                self.machine.run(self._chance.below(DOORBELL_STEPS))

    @_alone
    def pause(self) -> None:
        self.machine.pause()

    def now_ns(self) -> int:
        return self.machine.clock.now_ns()

    # The process ends.

    def exit(self) -> None:
        """What the kernel does when the process ends: give everything back."""
        for address, mapping in list(self.mapped.items()):
            unmap_host(address, mapping.size_bytes)
            self._forget(address, mapping.size_bytes)
        for address, size_bytes in self.reserved.items():
            unmap_host(address, size_bytes)
        self.reserved.clear()
        for process in list(self.processes):
            self._end(process)
        for fd in list(self.files):
            self.close(fd)

    def _end(self, process: Process) -> None:
        """The kernel's clean-up of a context."""
        for queue in list(process.queues.values()):
            remove(queue)
        for taken in process.taken.values():
            if taken.view is not None:
                taken.view.close()
            taken.file = None
            for buffer in list(taken.buffers.values()):
                release(buffer)
            if taken.doorbells is not None:
                taken.doorbells.release()
        self.processes.remove(process)
        self.machine.gone(process)
