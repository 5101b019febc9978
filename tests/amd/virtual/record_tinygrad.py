"""Records what tinygrad's driver puts into queues. Arguments: the stream, and the file to write.

    DEV=AMD python -m tests.amd.virtual.record_tinygrad gfx1100 tests/data/amd/streams/gfx1100.jsonl

The steps are those of `streams.STEPS`, with the kernels of `foreign_objects.py`, by tinygrad's own
queue classes.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.amd.driver.foreign_objects import kept
from tests.amd.virtual import streams
from tests.amd.virtual.foreign_tinygrad import start

GRID, BLOCK = (streams.GRID, 1, 1), (streams.BLOCK, 1, 1)
SIGNAL_BYTES = 8


class Client:
    """tinygrad's device, with the memory and the programs of all steps."""

    def __init__(self, gpu: str, recorder: streams.Recorder) -> None:
        from tinygrad import Device, dtypes
        from tinygrad.device import BufferSpec, TinyELF
        from tinygrad.runtime.ops_amd import AMDProgram

        self.recorder = recorder
        self.device: Any = Device["AMD"]
        # Its argument packer takes whole numbers only: the float goes in by its bits.
        signature = tuple((name, i, dtypes.int32, ()) for i, name in enumerate("an"))
        self.programs: dict[str, Any] = {}
        for name in ("plain", "local", "stack"):
            image = kept(f"{name}-{gpu}.so")
            row = signature[1:] if name == "stack" else signature
            elf = TinyELF(lib=image, name=name, target=None, signature=row)
            self.programs[name] = AMDProgram(self.device, elf)
        self.x, self.y = (
            self.device.allocator.alloc(streams.COPY_BYTES, BufferSpec()) for _ in range(2)
        )
        self.stamps = [self.device.new_signal(value=0) for _ in range(2)]
        self.signal = self.device.new_signal(value=0)
        self.device.synchronize()

    def begin(self, name: str) -> None:
        """A step; what was submitted before is done."""
        device = self.device
        self.settle()
        step = self.recorder.begin(name)
        program = self.programs[OBJECTS.get(name, "plain")]
        step.event = device.queue_event.event_id
        timeline = device.timeline_signal.value_addr
        step.places += [
            ("timeline", timeline, SIGNAL_BYTES, device.timeline_value - 1),
            ("slot", device.queue_event_mailbox_ptr, 8, None),
            ("signal", self.signal.value_addr, SIGNAL_BYTES, None),
            ("arena", device.kernargs_buf.va_addr, device.kernargs_buf.size, None),
            ("code", program.lib_gpu.va_addr, program.lib_gpu.size, None),
            ("x", self.x.va_addr, streams.COPY_BYTES, None),
            ("y", self.y.va_addr, streams.COPY_BYTES, None),
            ("scratch", device.scratch.va_addr, device.scratch.size, None),
            ("ring", device.compute_queue.ring.addr, device.compute_queue.ring.nbytes, None),
        ]
        step.places += [
            (f"stamp {i}", stamp.timestamp_addr, 8, None) for i, stamp in enumerate(self.stamps)
        ]
        if device.is_aql:
            step.places.append(("arena", device.pm4_ibs.va_addr, device.pm4_ibs.size, None))

    def settle(self) -> None:
        """Wait for the end of what was submitted; a signal comes ahead of the last packets."""
        self.device.synchronize()
        while not self.recorder.idle:
            time.sleep(0.001)

    def compute(self) -> Any:
        queue = self.device.hw_compute_queue_t()
        return queue.wait(self.device.timeline_signal, self.device.timeline_value - 1)

    def copies(self) -> Any:
        queue = self.device.hw_copy_queue_t()
        return queue.wait(self.device.timeline_signal, self.device.timeline_value - 1)

    def end(self, queue: Any) -> None:
        queue.signal(self.device.timeline_signal, self.device.next_timeline()).submit(self.device)

    def saxpy(self, queue: Any) -> Any:
        values = (streams.TWO, streams.ELEMENTS)
        return self.run(queue, "plain", (self.x, self.y), values)

    def run(
        self, queue: Any, name: str, buffers: tuple[Any, ...], values: tuple[Any, ...] = ()
    ) -> Any:
        program = self.programs[name]
        return queue.exec(program, program.fill_kernargs(buffers, values), GRID, BLOCK)


OBJECTS = {"local": "local", "scratch": "stack"}


def launch(client: Client) -> None:
    client.programs["plain"](
        client.x, client.y, global_size=GRID, local_size=BLOCK, vals=(streams.TWO, streams.ELEMENTS)
    )


def two_launches(client: Client) -> None:
    queue = client.compute().memory_barrier()
    client.end(client.saxpy(client.saxpy(queue)))


def local(client: Client) -> None:
    client.programs["local"](client.y, global_size=GRID, local_size=BLOCK)


def scratch(client: Client) -> None:
    queue = client.compute().memory_barrier()
    client.end(client.run(queue, "stack", (client.y,), (streams.TURNS,)))


def timed(client: Client) -> None:
    queue = client.compute().memory_barrier().timestamp(client.stamps[0])
    client.end(client.saxpy(queue).timestamp(client.stamps[1]))


def copy(client: Client) -> None:
    client.end(client.copies().copy(client.y, client.x, streams.COPY_BYTES))


def timed_copy(client: Client) -> None:
    queue = client.copies().timestamp(client.stamps[0])
    client.end(queue.copy(client.y, client.x, 4096).timestamp(client.stamps[1]))


def copy_then_launch(client: Client) -> None:
    queue = client.copies().copy(client.y, client.x, 4096)
    client.end(queue.signal(client.signal, 1))
    client.end(client.saxpy(client.compute().wait(client.signal, 1).memory_barrier()))


def bound(client: Client) -> None:
    queue = client.device.hw_compute_queue_t().memory_barrier()
    queue.wait(client.device.timeline_signal, client.device.timeline_value - 1)
    queue = client.saxpy(client.saxpy(queue))
    queue.signal(client.device.timeline_signal, client.device.next_timeline())
    queue.bind(client.device)
    step, page = client.recorder.steps[-1], queue.hw_page
    step.places.append(("arena", page.va_addr, page.size, None))
    queue.submit(client.device)


PROGRAMS: dict[str, Callable[[Client], None]] = {
    "launch": launch,
    "two launches": two_launches,
    "local": local,
    "scratch": scratch,
    "timed": timed,
    "copy": copy,
    "timed copy": timed_copy,
    "copy then launch": copy_then_launch,
    "recorded": bound,
}


def main(stream: str, path: str) -> None:
    gpu, options = streams.STREAMS[stream]
    recorder = streams.Recorder()
    start(gpu, runner=recorder.runner, **options)
    with recorder.listening():
        client = Client(gpu, recorder)
        for name in streams.STEPS:
            client.begin(name)
            PROGRAMS[name](client)
            client.settle()
        version = importlib.metadata.version("tinygrad")
        command = f"DEV=AMD python -m tests.amd.virtual.record_tinygrad {stream} PATH"
        head = {"driver": f"tinygrad {version}", "gpu": gpu, "command": command}
        streams.save(Path(path), head, recorder.steps)
    print("recorded", len(recorder.steps), flush=True)
    os._exit(0)  # its finalizers would outlive the room


if __name__ == "__main__":
    main(*sys.argv[1:])
