"""Runs graphs: devices, storage, and plans that are made once and replayed.

`realize` finds the plan for a graph's form (in memory, on disk, or by making it), allocates the
results, and replays the plan's recording with the addresses of this call. Everything that computes
is a generated kernel; this file moves bytes and addresses.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

import rawgpu
from frontend import profile, tracing
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.schedule.plan import Code, Plan, Step, form_text, make_plan, signature
from frontend.target import Target, target_of
from rawgpu.compiler_bridge import llvm
from rawgpu.compiler_bridge.cache import cache
from rawgpu.compiler_bridge.workers import pool
from rawgpu.contract import Binding, Buffer, Device, Kernel, PeerCopy, Puller, Recording
from rawgpu.errors import DeviceNotFound, OperationError
from rawgpu.runtime import rooms

# --- devices -------------------------------------------------------------------------------------


class Loaded:
    """A kernel on its device. Whoever runs it holds this; when nobody does, its code goes."""

    __slots__ = ("__weakref__", "kernel")

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    @property
    def name(self) -> str:
        return self.kernel.name


class Opened:
    """An open device with what the engine keeps for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.device: Device = rawgpu.open(name)
        self.target: Target = target_of(self.device)
        self.virtual = any(info.virtual for info in rawgpu.devices() if info.name == name)
        self.queue = self.device.queue()
        self.kernels: WeakValueDictionary[str, Loaded] = WeakValueDictionary()
        """What is loaded, by its text."""
        self.deferred = not name.startswith("cpu:")
        """Whether work may still run when a replay has returned."""
        self._in_use: list[Any] = []

    def alloc(self, size_bytes: int) -> Buffer:
        return self.device.alloc(max(1, size_bytes))

    def hold(self, *memory: Any) -> None:
        """Keep what submitted work uses until it is done; waits when there is much of it."""
        self._in_use.append(memory)
        if len(self._in_use) > IN_FLIGHT:
            self.settle()

    def settle(self) -> None:
        """Wait for all work, and let go of the memory it used."""
        self.queue.synchronize()
        self._in_use.clear()

    def close(self) -> None:
        self.queue.close()
        self._in_use.clear()
        self.device.close()


IN_FLIGHT = 32
"""Replays that may be under way on one device before the next one waits."""
_opened: dict[str, Opened] = {}
_lock = threading.RLock()
"""Held while a plan is made or run, and while a device is opened: threads take turns."""


def opened(name: str) -> Opened:
    """The open device of this name; opens it on first use."""
    found = _opened.get(name)
    if found is None:
        with _lock:
            found = _opened.get(name)
            if found is None:
                found = Opened(name)
                if not _opened:  # after whatever the device itself set up, so closed before it
                    atexit.unregister(close)
                    atexit.register(close)
                _opened[name] = found
    return found


def default_device() -> str:
    """RAWGPU_DEVICE, or the CPU."""
    wanted = os.environ.get("RAWGPU_DEVICE") or "cpu:0"
    try:
        return check_device(wanted)
    except DeviceNotFound as error:
        raise DeviceNotFound(f"RAWGPU_DEVICE: {error.message}", hint=error.hint) from None


_names: dict[str, str] = {}


def check_device(name: str) -> str:
    """The full name of a device, `cpu` as `cpu:0`. Raises DeviceNotFound."""
    if not isinstance(name, str):
        raise OperationError(f"a device is named by text such as 'cpu:0', not {name!r}")
    known = _names.get(name)
    if known is None:
        full = name if ":" in name else f"{name}:0"
        names = [info.name for info in rawgpu.devices()]
        if full not in names:
            raise DeviceNotFound(f"no device {name!r}; there are: {', '.join(names)}")
        known = _names[name] = full
    return known


def _forget_names() -> None:
    """A virtual room was entered or is left: names of GPUs mean other ones."""
    with _lock:
        _runs.clear()
        _names.clear()
        gpus = [name for name in _opened if not name.startswith("cpu:")]
        there = [*_elsewhere, *(_opened.pop(name) for name in gpus)]
        _elsewhere[:] = [opened for opened in there if not opened.device.closed]


_elsewhere: list[Opened] = []
"""Devices of outer rooms, whose names mean others now."""


rooms.watchers.append(_forget_names)


def close() -> None:
    """Close every device; tensors that live there can no longer be read."""
    _runs.clear()
    while _opened:
        _opened.popitem()[1].close()
    while _elsewhere:
        _elsewhere.pop().close()
    pool().close()


if os.environ.get("RAWGPU_PROFILE"):
    _whole = profile.Profile()
    profile.active.append(_whole)
    atexit.register(lambda: sys.stderr.write(_whole.table() + "\n"))


# --- storage -------------------------------------------------------------------------------------


class Storage:
    """Device memory that holds a realised node: contiguous, row-major. Never written again."""

    __slots__ = ("__weakref__", "address", "buffer", "size_bytes")

    def __init__(self, buffer: Buffer, size_bytes: int) -> None:
        self.buffer = buffer
        self.address = buffer.address
        self.size_bytes = size_bytes

    def copy(self, device: str) -> Storage:
        """The same bytes in memory of their own."""
        made = Storage(opened(device).alloc(self.size_bytes), self.size_bytes)
        if self.size_bytes:
            queue = opened(device).queue
            queue.copy(made.buffer, self.buffer, self.size_bytes)
            queue.submit()
        return made


def from_host(
    array: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: DType, device: str
) -> Node:
    """A leaf with a copy of `array`, which is C-contiguous with `dtype`'s bytes."""
    size_bytes = array.nbytes
    buffer = opened(device).alloc(size_bytes)
    if size_bytes:
        buffer.write(array)
    return g.buffer(shape, dtype, device, Storage(buffer, size_bytes))


def to_host(node: Node) -> np.ndarray[Any, Any]:
    """The node's value, computed if need be, as a fresh array of the storage dtype."""
    if tracing.state.trace is not None:
        realize([node])  # says why not
    if node.storage is None:
        realize([node])
    storage: Storage = node.storage
    data = bytearray(storage.buffer.read(storage.size_bytes)) if storage.size_bytes else bytearray()
    return np.frombuffer(data, dtype=node.dtype.numpy).reshape(node.shape)


# --- realize -------------------------------------------------------------------------------------

_SAME_STORAGE = (Op.RESHAPE, Op.DETACH, Op.CONTIGUOUS)
KEPT_FORMS = 1024
"""Graph forms that stay ready to run; beyond that, the quarter used longest ago goes."""
_runs: dict[tuple[object, ...], Run] = {}
_clock = itertools.count()


def base(node: Node) -> Node:
    """The node whose storage holds this node's value too."""
    while node.storage is None and node.op in _SAME_STORAGE:
        node = node.src[0]
    return node


def realize(nodes: Sequence[Node]) -> None:
    """Compute the nodes: afterwards each has storage.

    Ctrl-C is raised once the running replay has ended, so that values are whole or not there.
    Raises OutOfMemory, CompileError, KernelFault.
    """
    if tracing.state.trace is not None:
        raise OperationError(
            "a value is asked for inside a recorded function, whose inputs have none yet",
            hint="return the tensor and read it outside, or leave jit away",
        )
    wanted = [n for n in nodes if n.storage is None]
    roots = [n for n in dict.fromkeys(base(n) for n in wanted) if n.storage is None]
    if roots:
        form, leaves = signature(roots)
        with _lock:
            made = run_of(form, roots)([leaf.storage for leaf in leaves])
        for node, storage in zip(roots, made, strict=True):
            node.storage = storage
    for node in wanted:
        node.storage = base(node).storage


def find_plan(
    form: tuple[object, ...],
    roots: Sequence[Node],
    replaced: Sequence[tuple[int, int]] = (),
) -> Plan:
    """The plan for `roots`, from the disk cache or made now; `replaced` as `make_plan` takes it."""
    names = {n.device for n in g.topological(roots) if n.device is not None}
    targets = {name: opened(name).target for name in sorted(names)}
    if os.environ.get("RAWGPU_SHOW"):
        return make_plan(roots, targets, replaced)
    facts = ({name: t.key for name, t in targets.items()}, list(replaced))
    key = form_text(form) + repr(facts)
    data = cache().get_or_build("plan", key, lambda: make_plan(roots, targets, replaced).to_json())
    return Plan.from_json(data)


def run_of(form: tuple[object, ...], roots: Sequence[Node]) -> Run:
    """The plan for `roots`, of this form, ready to run; made once and kept while it is used."""
    found = _runs.get(form)
    if found is None:
        found = _runs[form] = Run(find_plan(form, roots))
        if len(_runs) > KEPT_FORMS:
            used = sorted(_runs, key=lambda form: _runs[form].used)
            for old in used[: max(1, KEPT_FORMS // 4)]:
                del _runs[old]
    found.used = next(_clock)
    return found


class Run:
    """A plan made ready to run: kernels loaded, recordings encoded."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.used = next(_clock)
        """When it was last found; larger is later."""
        self._kernels = load_kernels(plan)
        self._binding: list[int] = []
        self._arena: dict[str, int] = {}
        self._number_bindings()
        self._words = np.zeros(max(1, self._count), np.uint64)
        self._steps_of: dict[int, list[Step]] = {}
        self._segments = self._record()
        places = list(enumerate(plan.places))
        self._leaves = [(p.number, self._binding[i]) for i, p in places if p.kind == "leaf"]
        self._results = [
            (p.number, self._binding[i], p.size_bytes, p.inside, opened(p.device))
            for i, p in places
            if p.kind == "result"
        ]
        self._arenas = [(self._arena[d], size, opened(d)) for d, size in plan.arenas.items()]
        used = dict.fromkeys(p.device for p in plan.places)
        self._deferred = [opened(d) for d in used if opened(d).deferred]

    def _number_bindings(self) -> None:
        """One binding for each leaf, result and arena."""
        count = 0
        for p in self.plan.places:
            shared = self._arena.get(p.device) if p.kind == "temporary" else None
            if shared is None:
                shared = count
                count += 1
                if p.kind == "temporary":
                    self._arena[p.device] = shared
            self._binding.append(shared)
        self._count = count

    def _record(self) -> list[Any]:
        """Steps as recordings, cut where bytes move between devices, which are lists of steps."""
        segments: list[Any] = []
        device, recording = "", None
        for step in self.plan.steps:
            if step.code < 0:
                last = segments[-1] if segments else None
                if isinstance(last, list) and self._ends(last[-1]) == self._ends(step):
                    last.append(step)
                else:
                    segments.append([step])
                device = ""
                continue
            if step.device != device:
                device = step.device
                recording = opened(device).queue.record()
                segments.append(recording)
            assert recording is not None
            places = self.plan.places
            arguments = [Binding(self._binding[b], places[b].offset) for b in step.buffers]
            code = self.plan.codes[step.code]
            kernel = self._kernels[step.device, step.code].kernel
            block = opened(device).target.machine.block_lanes or 1
            recording.launch(kernel, arguments, grid=code.blocks, block=block, work_ns=step.work_ns)
            self._steps_of.setdefault(id(recording), []).append(step)
        return segments

    def _ends(self, step: Step) -> tuple[str, str]:
        """Where a transfer goes, and whence."""
        target, source = (self.plan.places[b].device for b in step.buffers)
        return target, source

    def __call__(self, leaves: Sequence[Storage]) -> list[Storage]:
        """Run with these leaves, in plan order; the results' storage.

        A result that takes over a leaf's memory is that leaf's storage, which nobody else may read.
        """
        with _lock:  # one set of words serves every thread
            return self._run(leaves)

    def _run(self, leaves: Sequence[Storage]) -> list[Storage]:
        words = self._words.copy() if self._deferred else self._words
        for number, binding in self._leaves:
            words[binding] = leaves[number].address
        results: list[Any] = [None] * len(self._results)
        for number, binding, size_bytes, inside, device in self._results:
            if inside >= 0:
                storage = leaves[inside]
            else:
                storage = Storage(device.alloc(size_bytes), size_bytes)
            results[number] = storage
            words[binding] = storage.address
        arenas = []
        for binding, size_bytes, device in self._arenas:
            arenas.append(device.alloc(size_bytes))
            words[binding] = arenas[-1].address
        for segment in self._segments:
            if isinstance(segment, list):
                self._transfer(segment, leaves, results, arenas)
            elif profile.active:
                self._timed(segment, words)
            else:
                segment.replay(words)
        if self._deferred:
            # The memory and not the storages: who is a storage's only holder may overwrite it.
            memory = [storage.buffer for storage in (*leaves, *results)]
            for device in self._deferred:
                device.hold(words, memory, arenas)
        return results

    def _timed(self, recording: Recording, words: Any) -> None:
        """Replay with timings, and tell the profiles."""
        recording.replay(words, timings=True)
        steps = self._steps_of[id(recording)]
        opened(steps[0].device).queue.synchronize()
        for step, ns in zip(steps, recording.timings_ns(), strict=True):
            code = self.plan.codes[step.code]
            virtual = opened(step.device).virtual
            row = profile.Row(code.name, step.device, 1, ns, code.flops, code.bytes_moved, virtual)
            for p in profile.active:
                p.rows.append(row)

    def _transfer(
        self,
        steps: Sequence[Step],
        leaves: Sequence[Storage],
        results: Sequence[Storage],
        arenas: Sequence[Buffer],
    ) -> None:
        """Move bytes from one device to another, after what writes them and uses their place."""
        places = self.plan.places
        copies = []
        for step in steps:
            ranges = [self._range(b, leaves, results, arenas) for b in step.buffers]
            (target, to, size_bytes), (source, at, _) = ranges
            if size_bytes:
                copies.append(PeerCopy(target, to, source, at, size_bytes))
        target_queue, source_queue = (opened(places[b].device).queue for b in steps[0].buffers)
        if not copies:
            return
        if isinstance(target_queue, Puller) and target_queue.pull(source_queue, copies):
            return
        data = [copy.source.read(copy.size_bytes, copy.source_offset) for copy in copies]
        target_queue.synchronize()
        for copy, part in zip(copies, data, strict=True):
            copy.target.write(part, copy.target_offset)

    def _range(
        self,
        number: int,
        leaves: Sequence[Storage],
        results: Sequence[Storage],
        arenas: Sequence[Buffer],
    ) -> tuple[Buffer, int, int]:
        p = self.plan.places[number]
        if p.kind == "temporary":
            names = list(self.plan.arenas)
            return arenas[names.index(p.device)], p.offset, p.size_bytes
        held = (leaves if p.kind == "leaf" else results)[p.number]
        return held.buffer, 0, p.size_bytes


def load_kernels(plan: Plan) -> dict[tuple[str, int], Loaded]:
    """Every kernel of the plan on its device; compiled here, or taken from the disk cache."""
    loaded: dict[tuple[str, int], Loaded] = {}
    missing: dict[str, list[int]] = {}
    for device, code in dict.fromkeys((s.device, s.code) for s in plan.steps if s.code >= 0):
        known = opened(device).kernels.get(plan.codes[code].text)
        if known is not None:
            loaded[device, code] = known
        else:
            missing.setdefault(device, []).append(code)
    for device, codes in missing.items():
        where = opened(device)
        images = compile_codes([plan.codes[c] for c in codes], where.target)
        for c, image in zip(codes, images, strict=True):
            made = Loaded(where.device.load(image)[plan.codes[c].name])
            where.kernels[plan.codes[c].text] = loaded[device, c] = made
    return loaded


def compile_codes(codes: Sequence[Code], target: Target) -> list[bytes]:
    """An object for each kernel; what the disk cache lacks is compiled side by side."""
    keys = [f"{target.key}\n{code.text}" for code in codes]
    found = [cache().get("object", key) for key in keys]
    absent = [i for i, image in enumerate(found) if image is None]
    jobs = [llvm.Job(codes[i].text, target.llvm, "none", 2) for i in absent]
    own = not any(codes[i].foreign for i in absent)
    for i, image in zip(absent, llvm.compile_many(jobs, own=own), strict=True):
        cache().put("object", keys[i], image)
        found[i] = image
    return [image for image in found if image is not None]
