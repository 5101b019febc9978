"""Stable argsort of rows, as instructions: runs of indices, merged from the bottom up.

Arguments: keys, result (int64), and a second int64 buffer of the result's size; each pass merges
from one of the two into the other, and the last ends in the result. One grid block sorts one row.
NaN sorts last either way; equal keys keep their order.
"""

from __future__ import annotations

import math

from frontend.dtype import DType
from frontend.graph.node import Shape
from frontend.instructions.ir import BITS, Builder, Region, Value
from frontend.instructions.memory import from_memory, memory_kind


def lower_sort(shape: Shape, axis: int, dtype: DType, *, descending: bool) -> tuple[Region, int]:
    """The instructions and the number of grid blocks."""
    count, inner = shape[axis], math.prod(shape[axis + 1 :])
    rows = math.prod(shape) // max(1, count)
    sorter = _Sorter(count, inner, dtype, descending=descending)
    sorter.run()
    return sorter.b.finish(), rows


class _Sorter:
    def __init__(self, count: int, inner: int, dtype: DType, *, descending: bool) -> None:
        self.b = Builder()
        self.count, self.inner, self.dtype, self.descending = count, inner, dtype, descending
        b = self.b
        row = b.grid_index()
        outer = b.op("mul", b.op("udiv", row, self.n(inner)), self.n(count * inner))
        self.first = b.op("add", outer, b.op("urem", row, self.n(inner)))

    def n(self, number: int) -> Value:
        return self.b.const("i64", number)

    def _element(self, slot: int, position: Value, size: int) -> Value:
        b = self.b
        index = b.op("add", self.first, b.op("mul", position, self.n(self.inner)))
        return b.address(b.pointer(slot), index, size)

    def _index(self, slot: int, position: Value) -> Value:
        return self.b.load("i64", 1, self._element(slot, position, 8), align=8)

    def _key(self, position: Value) -> Value:
        kind = memory_kind(self.dtype)
        size = BITS[kind] // 8
        raw = self.b.load(kind, 1, self._element(0, position, size), align=size)
        return from_memory(self.b, raw, self.dtype)

    def _keeps(self, left: Value, right: Value) -> Value:
        """Whether `left` may stay before `right`: not right < left, in the order asked for."""
        b = self.b
        x, y = (left, right) if not self.descending else (right, left)
        if self.dtype.is_float:
            after = b.compare("fcmp", "olt", y, x)
            left_nan, right_nan = (b.compare("fcmp", "uno", v, v) for v in (left, right))
            number_after = b.op("and", left_nan, b.op("xor", right_nan, b.const("i1", 1)))
            after = b.op("or", after, number_after)
        else:
            after = b.compare("icmp", "slt" if self.dtype.kind == "i" else "ult", y, x)
        return b.op("xor", after, b.const("i1", 1))

    def run(self) -> None:
        b, count = self.b, self.count
        passes = max(0, (count - 1).bit_length())
        source = 1 if passes % 2 == 0 else 2
        with b.loop(self.n(0), self.n(count), 1) as loop:
            b.store(loop.index, self._element(source, loop.index, 8), align=8)
        width = 1
        while width < count:
            self._merge_pass(source, 3 - source, width)
            source, width = 3 - source, 2 * width

    def _merge_pass(self, source: int, target: int, width: int) -> None:
        """Merge neighbouring runs of `width`; one output element a round."""
        b, n = self.b, self.n
        zero = n(0)
        with b.loop(zero, n(self.count), 1, [zero, zero]) as loop:
            at = loop.index
            start = b.op("mul", b.op("udiv", at, n(2 * width)), n(2 * width))
            fresh = b.compare("icmp", "eq", at, start)
            middle = b.op("smin", b.op("add", start, n(width)), n(self.count))
            end = b.op("smin", b.op("add", start, n(2 * width)), n(self.count))
            left = b.select(fresh, start, loop.carried[0])
            right = b.select(fresh, middle, loop.carried[1])
            left_done = b.compare("icmp", "sge", left, middle)
            right_done = b.compare("icmp", "sge", right, end)
            last = n(self.count - 1)
            i = self._index(source, b.op("smin", left, last))
            j = self._index(source, b.op("smin", right, last))
            stays = self._keeps(self._key(i), self._key(j))
            open_left = b.op("xor", left_done, b.const("i1", 1))
            take = b.op("or", right_done, b.op("and", open_left, stays))
            b.store(b.select(take, i, j), self._element(target, at, 8), align=8)
            step = b.cast("zext", take, "i64")
            loop.next = [b.op("add", left, step), b.op("add", right, b.op("sub", n(1), step))]
