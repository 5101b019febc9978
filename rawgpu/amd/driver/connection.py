"""The process's one connection to KFD, and what outlives devices.

KFD's state belongs to the process: queues, events, memory, and for each GPU the one render file
whose address space it took. So a connection is kept per kernel port and never closed while the
process lives; opening and closing devices many times leaks nothing above it. A child process gets
its own.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from rawgpu.amd.driver.events import Events
from rawgpu.amd.driver.fault import NEW_PROCESS, Report
from rawgpu.amd.driver.reserve import AddressSpace
from rawgpu.amd.driver.topology import Node, gpu_nodes
from rawgpu.describe.abi import Abi
from rawgpu.errors import KernelCallFailed, ProcessMustRestart, UnsupportedDevice
from rawgpu.ioctl import kfd
from rawgpu.ioctl.port import KernelPort, R

KFD_PATH = "/dev/kfd"


class Gpu:
    """One GPU of a connection: its render file and where it sees what."""

    def __init__(self, node: Node, render_fd: int, name: str) -> None:
        self.node = node
        self.name = name
        """As its devices are called, `amd:0`."""
        self.render_fd = render_fd
        self.reports: list[Report] = []
        """What the kernel said about this GPU, oldest first; a device takes what came after it."""
        self.evicted = False
        """After a page fault no queue of this context gets on the hardware again."""


class Connection:
    """An open /dev/kfd."""

    def __init__(self, port: KernelPort, *, context: bool = False) -> None:
        """With `context`, one of its own beside the process's first, which closing ends."""
        # Weak, because the table of connections must not keep a room's port; devices keep it.
        self.port: KernelPort = weakref.proxy(port)
        self.context = context
        self.users = 0
        """Open devices."""
        self.closed = False
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.nodes = gpu_nodes(port)
        self.fd = port.open(KFD_PATH)
        try:
            self.abi = _row(port.ioctl(self.fd, kfd.GetVersion()))
            if context:
                port.ioctl(self.fd, self.new(kfd.CreateProcess))
            self._switch_debugger_off()
        except BaseException:
            port.close(self.fd)
            raise
        self.addresses = AddressSpace(self.port)
        self._owed: list[Callable[[], None]] = []
        """What the kernel has refused to take back so far, oldest first."""
        self.gpus: dict[int, Gpu] = {}
        """By gpu_id; those whose address space was taken."""
        self.events = Events(self)

    def _switch_debugger_off(self) -> None:
        """As tinygrad does: on parts with MES firmware an old debug state would matter."""
        if self.abi.has(kfd.RuntimeEnable):
            request = self.new(kfd.RuntimeEnable, mode_mask=kfd.RuntimeMode(0))
            with contextlib.suppress(KernelCallFailed):  # another library has it switched on
                self.ioctl(request)

    def ioctl(self, request: R) -> R:
        """A request in the form that this kernel's version has."""
        return self.port.ioctl(self.fd, request)

    def new(self, kind: type[R], **fields: Any) -> R:
        """A request of `kind` as this kernel's row declares it."""
        return self.abi[kind](**fields)

    def gpu(self, node: Node, name: str) -> Gpu:
        """The GPU with its address space taken; done once in a process's life."""
        with self.lock:
            gpu = self.gpus.get(node.gpu_id)
            if gpu is None:
                gpu = self.gpus[node.gpu_id] = self._take(node, name)
            gpu.name = name
            self.events.reach(gpu)
            return gpu

    def _take(self, node: Node, name: str) -> Gpu:
        """Open the render node and give its address space to KFD, which keeps it for good."""
        fd = self.port.open(node.render_path)
        try:
            self.ioctl(self.new(kfd.AcquireVm, drm_fd=fd, gpu_id=node.gpu_id))
        except KernelCallFailed as error:
            self.port.close(fd)
            if error.errno == errno.EBUSY:
                raise ProcessMustRestart(
                    f"{name}: this process gave KFD another file of {node.render_path} before"
                    f"\n  {error.message}",
                    hint="a new process; and no other library that opens the GPU in this one",
                ) from error
            raise
        except BaseException:
            self.port.close(fd)
            raise
        return Gpu(node, fd, name)

    def give_back(self, step: Callable[[], None]) -> None:
        """Return something to the kernel. Refused, it is owed, and `settle` tries again."""
        try:
            step()
        except KernelCallFailed:
            with self.lock:
                self._owed.append(step)

    def settle(self) -> None:
        """Return what is owed. Raises the kernel's refusal if something is owed still."""
        refusal: KernelCallFailed | None = None
        with self.lock:
            owed, self._owed = self._owed, []
            for step in owed:
                try:
                    step()
                except KernelCallFailed as error:
                    self._owed.append(step)
                    refusal = refusal or error
        if refusal is not None:
            raise KernelCallFailed(
                f"the kernel does not take back {len(self._owed)} things; {refusal.message}",
                errno=refusal.errno,
                request=refusal.request,
                hint="nothing to do: it is tried again at the next close, and when the process "
                "ends the kernel takes all",
            ) from refusal

    def leave(self) -> None:
        """A device was closed. A further context that is spent ends with its last device."""
        with self.lock:
            self.users -= 1
            self.end_if_spent()

    def end_if_spent(self) -> None:
        """Close a further context that nobody uses and that runs nothing any more.

        With its descriptor the kernel drops all that it has: events, buffers, what is owed.
        """
        if self.closed or self.users or not self.context or not self.spent:
            return
        self.closed = True
        self._owed.clear()
        for address in self.addresses.reserved:
            self.give_back(functools.partial(self.addresses.release, address))
        try:
            self.settle()
        finally:
            for gpu in self.gpus.values():
                self.port.close(gpu.render_fd)
            self.gpus.clear()
            self.port.close(self.fd)

    @property
    def can_go_on(self) -> bool:
        """Whether this kernel gives a process a further context after a page fault."""
        return self.abi.has(kfd.CreateProcess)

    @property
    def spent(self) -> bool:
        """Whether a GPU of it runs nothing any more."""
        return any(gpu.evicted for gpu in self.gpus.values())


def _row(version: kfd.GetVersion) -> Abi:
    found = kfd.row_for(version.major_version, version.minor_version)
    if found is None:
        raise UnsupportedDevice(
            f"KFD speaks version {version.major_version}.{version.minor_version}, and the oldest "
            f"we know is {kfd.OLDEST[0]}.{kfd.OLDEST[1]}",
            hint="a kernel of version 6.1 or later",
        )
    return found


_connections: weakref.WeakKeyDictionary[Any, Connection] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def connect(port: KernelPort, node: Node, name: str) -> Connection:
    """This process's connection through `port`, for one more device, `name`, on `node`.

    After a page fault a further context is made, where the kernel knows such; on older kernels
    ProcessMustRestart.
    """
    with _lock:
        found = _connections.get(port)
        if found is None or found.pid != os.getpid():
            found = _connections[port] = Connection(port)
        if not found.closed:
            found.events.look()
        gpu = found.gpus.get(node.gpu_id)
        if found.closed or (gpu is not None and gpu.evicted):
            if not found.can_go_on:
                raise ProcessMustRestart(
                    f"{name}: after a page fault the kernel driver (KFD {found.abi.name}) runs "
                    f"nothing more for this process on {name}",
                    hint=f"{NEW_PROCESS}; kernel drivers from KFD 1.19 on let a process go on",
                )
            found.end_if_spent()
            found = _connections[port] = Connection(port, context=True)
        with contextlib.suppress(KernelCallFailed):  # the next close says so, if need be
            found.settle()
        found.users += 1
        return found
