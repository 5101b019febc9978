"""Stages of queues: doorbells, fences, clocks, interrupts, several queues, recordings."""

from __future__ import annotations

import numpy as np

from rawgpu.contract import Binding
from rawgpu.hwcheck.check import Check, NotHere

FENCES = 50
PASS_MS = 20
CLOCK_FACTOR = 2
"""How far the device's clock may seem to be from the host's before that is a failure."""
N = 1024
REPLAYS = 12


def doorbell(check: Check) -> None:
    """A queue reads a packet that does nothing, with no fence and no cache flushed."""
    check.hook(
        check.probe.empty_packet(check.device), "a submit on this device is a call, not a doorbell"
    )


def fence(check: Check) -> None:
    """Values are written to memory, in order, and waits for them end."""
    device = check.device
    queue, signal = device.queue(), device.new_signal()
    check.expect("wrong-data", signal.value == 0, f"a new signal is at {signal.value}")
    for value in range(1, FENCES + 1):
        queue.signal(signal, value)
        queue.submit()
        check.reach(signal, value)
        check.expect("wrong-data", signal.value == value, f"at {signal.value}, not {value}")
    queue.signal(signal, FENCES + 1)
    queue.signal(signal, FENCES + 9)
    queue.submit()
    check.reach(signal, FENCES + 9)


def timestamp(check: Check) -> None:
    """The device's clock goes forward, and about as fast as the host's."""
    device = check.device
    queue = device.queue()
    first, again = queue.timestamp(), queue.timestamp()
    queue.submit()
    queue.synchronize()
    start_ns = check.probe.now_ns(device)
    check.expect("clock", first.ns > 0, "the slot was not filled")
    check.expect("clock", again.ns >= first.ns, f"from {first.ns} ns back to {again.ns}")
    check.let_pass(PASS_MS)
    last = queue.timestamp()
    queue.submit()
    queue.synchronize()
    host_ns, device_ns = check.probe.now_ns(device) - start_ns, last.ns - again.ns
    ratio = device_ns / max(host_ns, 1)
    check.say(host_ns=host_ns, device_ns=device_ns, clock_ratio=round(ratio, 4))
    check.expect(
        "clock",
        1 / CLOCK_FACTOR < ratio < CLOCK_FACTOR,
        f"{device_ns} ns on the device's clock in {host_ns} ns of the host's",
    )


def events(check: Check) -> None:
    """A thread that sleeps in the kernel is woken by the device."""
    check.hook(check.probe.event_wake(check.device), "nothing sleeps in a kernel on this device")


def two_queues(check: Check) -> None:
    """A consumer that is submitted first waits for its producer, many times, in both directions."""
    device = check.device
    kernel = check.kernel("saxpy", check.device.properties.lanes)
    items = device.properties.lanes
    left, right, signal = device.queue(), device.queue(), device.new_signal()
    x, _ = check.pinned(np.ones(N, np.float32))
    y, view = check.pinned(np.zeros(N, np.float32))
    block = items if check.blocks_have_items else 1
    turns = 4
    for turn in range(turns):
        for queue, awaited in ((right, 2 * turn + 1), (left, 2 * turn)):
            queue.wait(signal, awaited)
            queue.launch(kernel, [x, y, np.float32(1 + turn)], grid=N // items, block=block)
            queue.signal(signal, awaited + 1)
            queue.submit()
    check.reach(signal, 2 * turns)
    check.same("sums of two queues", view, np.full(N, 2 * sum(range(1, turns + 1)), np.float32))


def recording(check: Check) -> None:
    """Encoded once, replayed with other addresses, patched, replayed again."""
    device = check.device
    items = device.properties.lanes
    if items > N:
        raise NotHere("its waves are wider than the test's data")
    kernel = check.kernel("saxpy", items)
    block = items if check.blocks_have_items else 1
    x, _ = check.pinned(np.arange(N, dtype=np.float32))
    y, y_view = check.pinned(np.zeros(N, np.float32))
    z, z_view = check.pinned(np.zeros(N, np.float32))
    made = device.queue().record()
    shape = {"grid": N // items, "block": block}
    first = made.launch(kernel, [x, Binding(0), np.float32(1)], **shape)
    made.launch(kernel, [x, Binding(1), np.float32(2)], **shape)
    words = np.array([y.address, z.address], np.uint64)
    for _ in range(REPLAYS):
        made.replay(words)
    check.settle()
    ramp = np.arange(N, dtype=np.float32)
    check.same("replays, first binding", y_view, REPLAYS * ramp)
    check.same("replays, second binding", z_view, 2 * REPLAYS * ramp)
    y_view[:], z_view[:] = 0, 0
    words[:] = z.address
    made.patch(first, 2, np.float32(100))
    made.replay(words)
    check.settle()
    check.same("after a patch", z_view, 102 * ramp)
    check.same("an address that is bound no more", y_view, np.zeros(N, np.float32))
    made.close()
