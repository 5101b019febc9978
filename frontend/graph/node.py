"""Graph nodes: what a tensor is before anything is computed.

A node is an operation, its sources, and an argument; shape and dtype follow. Nodes are
hash-consed: asking twice for the same operation on the same sources gives the same object, so
equality is identity and common subexpressions meet by themselves. The functions below are the only
way to make nodes; they check with `assert`, since `Tensor` has already checked on the user's behalf
and said it in the user's words.

The operations, n-dimensional, sources in brackets:

    leaves       BUFFER(), CONST(value), IOTA(axis)
    elementwise  the same shape in and out: UNARY, BINARY, COMPARE; CAST and BITCAST(dtype);
                 WHERE[condition, a, b]
    reductions   SUM PROD MAX MIN(axes): the axes disappear;
                 ARGMAX ARGMIN((axis,)): int64, the first wins
    scans        SCAN((kind, axis)): running SUM, PROD, MAX or MIN, the own element included
    index maps   RESHAPE PERMUTE EXPAND PAD SLICE WINDOW SCATTER_WINDOW: no arithmetic, and never
                 a copy of their own
    selection    CONCAT(axis)[a, b, …]; GATHER(axis)[data, index];
                 SCATTER((axis, kind))[target, index, updates]
    order        ARGSORT((axis, descending)): stable, NaN last
    boundaries   CONTIGUOUS: a buffer of its own; DETACH: the same value without a derivative;
                 COPY(device)

WINDOW(axis, window_axis, stride, dilation): the source has an axis `window_axis` of extent K, and

    out[.., o, .., k, ..] = in[.., o*stride + k*dilation, .., k, ..]

Convolutions, pools and correlations are a WINDOW of an EXPANDed source. SCATTER_WINDOW, with the
same argument, undoes it: out[i, k] = in[(i - k*dilation)/stride, k] where that is whole and in
range, else zero. Each of the two is the other's derivative.

GATHER: out[o] = data[o with o[axis] := index[o]]. The index has the output's shape, and its extents
off the axis are the data's. An index outside the axis reads as zero.

SCATTER: out = target; then, for each u in row-major order, out[u with u[axis] := index[u]] = or +=
updates[u]. An index outside the axis is dropped.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any

from frontend import dtype as dt
from frontend.dtype import DType


class Op(Enum):
    """Every operation of level 1."""

    BUFFER = auto()
    CONST = auto()
    IOTA = auto()
    # one source
    NEG = auto()
    ABS = auto()
    NOT = auto()
    FLOOR = auto()
    CEIL = auto()
    TRUNC = auto()
    ROUND = auto()
    SQRT = auto()
    EXP = auto()
    EXP2 = auto()
    EXPM1 = auto()
    LOG = auto()
    LOG2 = auto()
    LOG10 = auto()
    LOG1P = auto()
    SIN = auto()
    COS = auto()
    TAN = auto()
    ASIN = auto()
    ACOS = auto()
    ATAN = auto()
    SINH = auto()
    COSH = auto()
    TANH = auto()
    ASINH = auto()
    ACOSH = auto()
    ATANH = auto()
    ERF = auto()
    CAST = auto()
    BITCAST = auto()
    # two sources
    ADD = auto()
    SUB = auto()
    MUL = auto()
    DIV = auto()
    FLOORDIV = auto()
    MOD = auto()
    FMOD = auto()
    POW = auto()
    ATAN2 = auto()
    COPYSIGN = auto()
    MAXIMUM = auto()
    MINIMUM = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()
    SHR = auto()
    LT = auto()
    LE = auto()
    EQ = auto()
    NE = auto()
    # three sources
    WHERE = auto()
    # reductions and scans
    SUM = auto()
    PROD = auto()
    MAX = auto()
    MIN = auto()
    ARGMAX = auto()
    ARGMIN = auto()
    SCAN = auto()
    # index maps
    RESHAPE = auto()
    PERMUTE = auto()
    EXPAND = auto()
    PAD = auto()
    SLICE = auto()
    WINDOW = auto()
    SCATTER_WINDOW = auto()
    # selection and order
    CONCAT = auto()
    GATHER = auto()
    SCATTER = auto()
    ARGSORT = auto()
    # boundaries
    CONTIGUOUS = auto()
    DETACH = auto()
    COPY = auto()

    __hash__ = object.__hash__  # members are singletons; Enum's own hash goes through the name


def _range(first: Op, last: Op) -> frozenset[Op]:
    return frozenset(op for op in Op if first.value <= op.value <= last.value)


UNARY = _range(Op.NEG, Op.ERF)
FLOAT_UNARY = _range(Op.SQRT, Op.ERF)  # floats in, floats out
BINARY = _range(Op.ADD, Op.SHR)
COMPARE = _range(Op.LT, Op.NE)
ELEMENTWISE = _range(Op.NEG, Op.WHERE)
REDUCE = _range(Op.SUM, Op.ARGMIN)
INDEX_MAPS = _range(Op.RESHAPE, Op.SCATTER_WINDOW)
BITWISE = frozenset({Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR})
FLOAT_ONLY = FLOAT_UNARY | {Op.DIV, Op.POW, Op.ATAN2, Op.COPYSIGN, Op.FMOD}

Shape = tuple[int, ...]


class Node:
    """One operation. Compare with `is`. `storage` is set once its value lies in device memory."""

    __slots__ = ("__weakref__", "arg", "device", "dtype", "op", "shape", "src", "storage")

    op: Op
    src: tuple[Node, ...]
    arg: Any
    shape: Shape
    dtype: DType
    device: str | None
    """Name of the device the value lives or will be computed on; None for values that need none."""
    storage: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        argument = "" if self.arg is None or self.op is Op.BUFFER else f" {self.arg}"
        return f"<{self.op.name}{argument} {self.dtype}{list(self.shape)}>"


_nodes: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()


def make(op: Op, src: tuple[Node, ...], arg: Any, shape: Shape, dtype: DType) -> Node:
    """The node with these parts, found or made. Callers in this module have checked them."""
    key = (op, src, arg, shape, dtype)
    node = _nodes.get(key)
    if node is not None:
        return node
    node = Node()
    node.op, node.src, node.arg, node.shape, node.dtype = op, src, arg, shape, dtype
    node.storage = None
    node.device = None
    for s in src:
        if s.device is not None:
            assert node.device is None or node.device == s.device, (op, node.device, s.device)
            node.device = s.device
    _nodes[key] = node
    return node


def buffer(shape: Shape, dtype: DType, device: str, storage: Any = None) -> Node:
    """A leaf for device memory; each call makes a new one. `storage` may be bound later."""
    node = Node()
    node.op, node.src, node.arg, node.shape, node.dtype = Op.BUFFER, (), None, shape, dtype
    node.storage = storage
    node.device = device
    return node


def const(value: bool | int | float, shape: Shape, dtype: DType) -> Node:
    """A tensor filled with one value.

    Integers wrap to the dtype's width; a float keeps every digit until it is computed with.
    """
    if dtype.kind == "b":
        value = bool(value)
    elif dtype.is_float:
        value = float(value)
    else:
        value = int(value) & ((1 << dtype.bits) - 1)
        if dtype.kind == "i" and value >> (dtype.bits - 1):
            value -= 1 << dtype.bits
    # repr keeps -0.0 from 0.0 and makes every NaN one NaN; both compare wrongly as dictionary keys
    return make(Op.CONST, (), repr(value), shape, dtype)


def number(argument: str, dtype: DType) -> bool | int | float:
    """The value that a CONST node's argument, or a PAD node's fill, writes down."""
    if dtype.kind == "b":
        return argument == "True"
    return float(argument) if dtype.is_float else int(argument)


def const_value(node: Node) -> bool | int | float:
    """The value of a CONST node."""
    assert node.op is Op.CONST, node
    return number(node.arg, node.dtype)


def iota(shape: Shape, axis: int, dtype: DType) -> Node:
    """Each element is its own index along `axis`."""
    assert 0 <= axis < len(shape), (shape, axis)
    return make(Op.IOTA, (), axis, shape, dtype)


def unary(op: Op, x: Node) -> Node:
    assert op in UNARY and op not in (Op.CAST, Op.BITCAST), op
    assert op not in FLOAT_UNARY or x.dtype.is_float, (op, x)
    return make(op, (x,), None, x.shape, x.dtype)


def cast(x: Node, dtype: DType) -> Node:
    """Values converted; to bool is `!= 0`.

    Float to integer truncates; what is out of range becomes the nearest integer there is, NaN 0.
    """
    return x if x.dtype is dtype else make(Op.CAST, (x,), dtype, x.shape, dtype)


def bitcast(x: Node, dtype: DType) -> Node:
    assert x.dtype.bits == dtype.bits and "b" not in (x.dtype.kind, dtype.kind), (x, dtype)
    return x if x.dtype is dtype else make(Op.BITCAST, (x,), dtype, x.shape, dtype)


def binary(op: Op, a: Node, b: Node) -> Node:
    """Both sources have the same shape and dtype; comparisons give bool."""
    assert op in BINARY or op in COMPARE, op
    assert a.shape == b.shape and a.dtype is b.dtype, (op, a, b)
    assert op not in FLOAT_ONLY or a.dtype.is_float, (op, a)
    assert op not in BITWISE or not a.dtype.is_float, (op, a)
    return make(op, (a, b), None, a.shape, dt.bool_ if op in COMPARE else a.dtype)


def where(condition: Node, a: Node, b: Node) -> Node:
    assert condition.dtype is dt.bool_ and a.dtype is b.dtype, (condition, a, b)
    assert condition.shape == a.shape == b.shape, (condition, a, b)
    return make(Op.WHERE, (condition, a, b), None, a.shape, a.dtype)


def reduce(op: Op, x: Node, axes: Sequence[int]) -> Node:
    """Fold `axes`, which disappear from the shape.

    SUM and PROD keep the dtype; widen first where that matters.
    """
    axes = tuple(sorted(axes))
    assert op in REDUCE and len(set(axes)) == len(axes), (op, axes)
    assert all(0 <= a < x.ndim for a in axes), (op, x, axes)
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if op in (Op.ARGMAX, Op.ARGMIN):
        assert len(axes) == 1 and x.shape[axes[0]] > 0, (op, x, axes)
        return make(op, (x,), axes, shape, dt.int64)
    return make(op, (x,), axes, shape, x.dtype) if axes else x


def scan(kind: Op, x: Node, axis: int) -> Node:
    assert kind in (Op.SUM, Op.PROD, Op.MAX, Op.MIN) and 0 <= axis < x.ndim, (kind, x, axis)
    return make(Op.SCAN, (x,), (kind, axis), x.shape, x.dtype)


def reshape(x: Node, shape: Shape) -> Node:
    assert math.prod(shape) == x.size, (x, shape)
    if shape == x.shape:
        return x
    if x.op is Op.RESHAPE:
        return reshape(x.src[0], shape)
    if x.op is Op.CONST:
        return make(Op.CONST, (), x.arg, shape, x.dtype)
    return make(Op.RESHAPE, (x,), None, shape, x.dtype)


def permute(x: Node, order: Sequence[int]) -> Node:
    """out.shape[i] = x.shape[order[i]]."""
    order = tuple(order)
    assert sorted(order) == list(range(x.ndim)), (x, order)
    if order == tuple(range(x.ndim)):
        return x
    shape = tuple(x.shape[i] for i in order)
    if x.op is Op.PERMUTE:
        return permute(x.src[0], tuple(x.arg[i] for i in order))
    if x.op is Op.CONST:
        return make(Op.CONST, (), x.arg, shape, x.dtype)
    return make(Op.PERMUTE, (x,), order, shape, x.dtype)


def expand(x: Node, shape: Shape) -> Node:
    """Repeat extent-1 axes; the number of axes stays."""
    assert len(shape) == x.ndim, (x, shape)
    assert all(a in (b, 1) for a, b in zip(x.shape, shape, strict=True)), (x, shape)
    if shape == x.shape:
        return x
    if x.op is Op.EXPAND:
        return expand(x.src[0], shape)
    if x.op is Op.CONST:
        return make(Op.CONST, (), x.arg, shape, x.dtype)
    return make(Op.EXPAND, (x,), None, shape, x.dtype)


def pad(x: Node, widths: Sequence[tuple[int, int, int]], fill: Node) -> Node:
    """Put the scalar CONST `fill` around and between elements.

    `widths` says, for each axis, how many go (before, between neighbours, after); none is negative.
    """
    widths = tuple(widths)
    assert len(widths) == x.ndim and all(w >= 0 for three in widths for w in three), (x, widths)
    assert fill.op is Op.CONST and fill.dtype is x.dtype and fill.shape == (), fill
    if not any(any(three) for three in widths):
        return x
    shape = tuple(
        lo + n + max(n - 1, 0) * mid + hi for n, (lo, mid, hi) in zip(x.shape, widths, strict=True)
    )
    return make(Op.PAD, (x,), (widths, fill.arg), shape, x.dtype)


def slice_(x: Node, ranges: Sequence[tuple[int, int, int]]) -> Node:
    """For each axis (first, count, step): out[i] = x[first + i*step]. The step may be negative."""
    ranges = tuple(ranges)
    assert len(ranges) == x.ndim, (x, ranges)
    for n, (first, count, step) in zip(x.shape, ranges, strict=True):
        assert step != 0 and count >= 0, (x, ranges)
        assert count == 0 or (0 <= first < n and 0 <= first + (count - 1) * step < n), (x, ranges)
    shape = tuple(count for _, count, _ in ranges)
    if shape == x.shape and all(step == 1 for n, _, step in ranges if n > 1):
        if all(first == 0 for first, _, _ in ranges):
            return x
    return make(Op.SLICE, (x,), ranges, shape, x.dtype)


def window(x: Node, axis: int, window_axis: int, stride: int, dilation: int, count: int) -> Node:
    """See the module's text."""
    taps = x.shape[window_axis]
    assert axis != window_axis, (x, axis)
    assert stride > 0 and dilation > 0 and count >= 0, (stride, dilation, count)
    reach = (count - 1) * stride + (taps - 1) * dilation
    assert count == 0 or taps == 0 or reach < x.shape[axis], (x, reach)
    shape = tuple(count if i == axis else n for i, n in enumerate(x.shape))
    return make(Op.WINDOW, (x,), (axis, window_axis, stride, dilation), shape, x.dtype)


def scatter_window(
    x: Node, axis: int, window_axis: int, stride: int, dilation: int, extent: int
) -> Node:
    """Adjoint of `window` before the sum over taps; `extent` is the axis's length in the result."""
    shape = tuple(extent if i == axis else n for i, n in enumerate(x.shape))
    return make(Op.SCATTER_WINDOW, (x,), (axis, window_axis, stride, dilation), shape, x.dtype)


def concat(parts: Iterable[Node], axis: int) -> Node:
    parts = tuple(parts)
    first = parts[0]
    assert parts and 0 <= axis < first.ndim, (parts, axis)
    for part in parts:
        assert part.dtype is first.dtype and part.ndim == first.ndim, parts
        assert all(
            i == axis or a == b
            for i, (a, b) in enumerate(zip(part.shape, first.shape, strict=True))
        )
    if len(parts) == 1:
        return first
    total = sum(part.shape[axis] for part in parts)
    shape = tuple(total if i == axis else n for i, n in enumerate(first.shape))
    return make(Op.CONCAT, parts, axis, shape, first.dtype)


def gather(data: Node, index: Node, axis: int) -> Node:
    """See the module's text. Negative indices are outside; wrap them first."""
    assert index.dtype.is_integer and index.ndim == data.ndim, (data, index)
    assert 0 <= axis < data.ndim, (data, axis)
    assert all(
        i == axis or a == b for i, (a, b) in enumerate(zip(data.shape, index.shape, strict=True))
    )
    return make(Op.GATHER, (data, index), axis, index.shape, data.dtype)


def scatter(target: Node, index: Node, updates: Node, axis: int, *, add: bool) -> Node:
    """See the module's text."""
    assert index.dtype.is_integer and index.shape == updates.shape, (index, updates)
    assert updates.dtype is target.dtype and index.ndim == target.ndim, (target, updates)
    assert all(
        i == axis or a == b for i, (a, b) in enumerate(zip(target.shape, index.shape, strict=True))
    )
    kind = "add" if add else "set"
    return make(Op.SCATTER, (target, index, updates), (axis, kind), target.shape, target.dtype)


def argsort(x: Node, axis: int, *, descending: bool = False) -> Node:
    assert 0 <= axis < x.ndim, (x, axis)
    return make(Op.ARGSORT, (x,), (axis, descending), x.shape, dt.int64)


def contiguous(x: Node) -> Node:
    if x.op in (Op.BUFFER, Op.CONTIGUOUS):
        return x
    return make(Op.CONTIGUOUS, (x,), None, x.shape, x.dtype)


def detach(x: Node) -> Node:
    """The same value, where gradients stop.

    A BUFFER is wrapped like anything else, since it may be a gradient's target.
    """
    if x.op in (Op.CONST, Op.IOTA) or (x.op is Op.DETACH and x.arg is None):
        return x
    return make(Op.DETACH, (x,), None, x.shape, x.dtype)


_leaf_serial = itertools.count()


def leaf(x: Node) -> Node:
    """A DETACH that no one else has, for a parameter whose value is still to be computed.

    Its argument is a serial number, which gives it its identity and means nothing to the value.
    """
    return make(Op.DETACH, (x,), next(_leaf_serial), x.shape, x.dtype)


def copy_to(x: Node, device: str) -> Node:
    """The same value on another device."""
    if x.device == device:
        return x
    key = (Op.COPY, (x,), device, x.shape, x.dtype)
    node = _nodes.get(key)
    if node is None:
        node = Node()
        node.op, node.src, node.arg, node.shape, node.dtype = key[0], (x,), device, x.shape, x.dtype
        node.storage, node.device = None, device
        _nodes[key] = node
    return node


def placed(x: Node, device: str) -> Node:
    """A constant of its own that lies on a device; each call makes a new one."""
    assert x.device is None and not x.src, x
    node = Node()
    node.op, node.src, node.arg, node.shape, node.dtype = x.op, (), x.arg, x.shape, x.dtype
    node.storage, node.device = None, device
    return node


def topological(roots: Iterable[Node], *, through_storage: bool = False) -> list[Node]:
    """Every node the roots need, sources first.

    Stops, unless told to go `through_storage`, at nodes that have storage and at those without
    elements, which need nothing. Iterative, because the graph of a training run is deeper than
    Python's stack.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if through_storage or (node.storage is None and 0 not in node.shape):
                stack.extend((s, False) for s in reversed(node.src) if s not in seen)
    return order
