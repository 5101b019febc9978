"""Stages that measure. They begin with a small, recorded piece of work that is checked.

Sizes double until one takes long enough to be timed, or the stage has used its time: a virtual
device and a fast one run the same code.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rawgpu.contract import Kernel, Timestamp
from rawgpu.hwcheck.check import Check

LONG_ENOUGH_NS = 5_000_000
BUDGET_S = 2.0
"""Of the host's time for one series; what was begun is finished."""
SMALL_BYTES, LARGEST_BYTES = 64 << 10, 512 << 20
ITEMS = 64
SMALL_N, LARGEST_N = 32, 2048
UNIT_ROUNDOFF = 2.0**-24


def _timed(queue: Any, name: str, *arguments: Any, **named: Any) -> int:
    """Nanoseconds on the device's clock between before and after a queue's method `name`."""
    before: Timestamp = queue.timestamp()
    getattr(queue, name)(*arguments, **named)
    after: Timestamp = queue.timestamp()
    queue.submit()
    queue.synchronize()
    return max(after.ns - before.ns, 1)


def bandwidth(check: Check) -> None:
    """Bytes per second: host to device, device to host, and a kernel within the device."""
    device = check.device
    kernel = check.kernel("copy", ITEMS)
    compute, copies = device.queue(), check.copies()
    size, end = SMALL_BYTES, time.monotonic() + BUDGET_S
    most = min(LARGEST_BYTES, max(device.properties.memory_bytes // 4, SMALL_BYTES))
    while size <= most:
        took = _in_across_out(check, kernel, compute, copies, size)
        if time.monotonic() > end or took >= LONG_ENOUGH_NS:
            break
        check.unrecorded()
        size *= 4


def _in_across_out(check: Check, kernel: Kernel, compute: Any, copies: Any, size: int) -> int:
    """Time `size` bytes on each way; the shortest of the times in nanoseconds."""
    device = check.device
    data = np.arange(size // 4, dtype=np.uint32) * np.uint32(2654435761)
    source, _ = check.pinned(data)
    target, view = check.pinned(np.zeros(size // 4, np.uint32))
    first, second = device.alloc(size), device.alloc(size)
    shape = {"grid": size // (16 * ITEMS), "block": ITEMS if check.blocks_have_items else 1}
    inwards = _timed(copies, "copy", first, source, size)
    inside = _timed(compute, "launch", kernel, [first, second], **shape)
    outwards = _timed(copies, "copy", target, second, size)
    check.same(f"{size} bytes in, across and out", view, data, 0)
    check.say(
        bytes=size,
        host_to_device_gb_s=round(size / inwards, 3),
        device_to_host_gb_s=round(size / outwards, 3),
        kernel_copy_gb_s=round(2 * size / inside, 3),
    )
    for buffer in (source, target, first, second):
        buffer.close()
    return min(inwards, inside, outwards)


def matmul(check: Check) -> None:
    """C = A B in float32, each element by one work-item; the result is compared with NumPy."""
    kernel = check.kernel("matmul", ITEMS)
    queue = check.device.queue()
    n, end = SMALL_N, time.monotonic() + BUDGET_S
    generator = np.random.default_rng(5)
    while n <= LARGEST_N:
        a, b = (generator.uniform(-1, 1, (n, n)).astype(np.float32) for _ in range(2))
        took = _product(check, kernel, queue, a, b)
        check.say(n=n, gflop_s=round(2 * n**3 / took, 3))
        if time.monotonic() > end or took >= LONG_ENOUGH_NS:
            break
        check.unrecorded()
        n *= 2


def _product(check: Check, kernel: Kernel, queue: Any, a: Any, b: Any) -> int:
    """Compute and compare one product; how long it took, in nanoseconds."""
    n = a.shape[0]
    left, right = check.pinned(a)[0], check.pinned(b)[0]
    out, view = check.pinned(np.zeros(n * n, np.float32))
    if n > SMALL_N:  # where it is fast; the small one needs no copies
        left, right = check.device.alloc(a.nbytes), check.device.alloc(b.nbytes)
        left.write(a)
        right.write(b)
    shape = {"grid": n * n // ITEMS, "block": ITEMS if check.blocks_have_items else 1}
    took = _timed(queue, "launch", kernel, [out, left, right, np.uint32(n)], **shape)
    _compare(check, a, b, view.reshape(n, n))
    return took


def _compare(check: Check, a: Any, b: Any, got: Any) -> None:
    """Within what a float32 sum of n products in order can be off by."""
    n = a.shape[0]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = n * UNIT_ROUNDOFF * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    off = np.abs(got - exact)
    wrong = np.argwhere(~(off <= bound))
    if wrong.size:
        i, j = (int(x) for x in wrong[0])
        check.fail(
            "wrong-data",
            f"a product of {n} by {n}: {len(wrong)} elements are wrong, the first at ({i}, {j}): "
            f"{got[i, j]} for {exact[i, j]}",
        )
    check.say(largest_error=float(off.max()))
