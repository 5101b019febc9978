"""What each graph node means, in NumPy: the oracle that the code generator is tested against.

`evaluate(node)` gives the node's value as an array. Every operation is a few plain lines, written
from the text at the top of `frontend/graph/node.py` and sharing no code with the generator.

Results are in NumPy's type of the same name; bfloat16 and fp8 use `ml_dtypes`. With `wide=True`
every float is computed in float64 instead, so that what is left of a difference is the generator's
rounding. `storage_of` turns a result into the bytes a device would hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op

Array = np.ndarray[Any, Any]

EXOTIC: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def numpy_type(dtype: DType) -> np.dtype[Any]:
    """The NumPy type that computes in `dtype`."""
    return np.dtype(EXOTIC.get(dtype.name, dtype.name))


def storage_of(array: Array, dtype: DType) -> Array:
    """`array`, whose values are of `dtype`, as that type's storage (uint16 for bfloat16)."""
    exact = np.ascontiguousarray(array.astype(numpy_type(dtype), copy=False)).view(dtype.numpy)
    return exact.reshape(array.shape)  # scalars had become vectors


def from_storage(array: Array, dtype: DType) -> Array:
    return array if dtype.is_native else array.view(numpy_type(dtype))


def evaluate(node: Node, *, wide: bool = False) -> Array:
    """The value of `node`.

    Leaves must have storage: a NumPy array, or what `engine.to_host` reads.
    """
    (value,) = evaluate_all([node], wide=wide)
    return value


def evaluate_all(nodes: Sequence[Node], *, wide: bool = False) -> list[Array]:
    values: dict[Node, Array] = {}
    with np.errstate(all="ignore"):
        for node in g.topological(nodes):
            if node.storage is not None or node.op is Op.BUFFER:
                value = from_storage(_leaf(node), node.dtype)
            elif node.size == 0:
                value = np.zeros(node.shape, numpy_type(node.dtype))
            else:
                value = _apply(node, [values[s] for s in node.src], wide)
            value = np.asarray(value)
            assert value.shape == node.shape, (node, value.shape)
            values[node] = value.astype(_compute_type(node.dtype, wide), copy=False)
        return [_returned(values[node], node.dtype, wide) for node in nodes]


def _returned(value: Array, dtype: DType, wide: bool) -> Array:
    return value if wide else value.astype(numpy_type(dtype), copy=False)


def _compute_type(dtype: DType, wide: bool) -> np.dtype[Any]:
    """Narrow floats are computed in float32 and rounded where they are cast or stored."""
    if not dtype.is_float:
        return numpy_type(dtype)
    return np.dtype(np.float64) if wide else np.dtype(f"float{max(dtype.bits, 32)}")


def _leaf(node: Node) -> Array:
    if isinstance(node.storage, np.ndarray):
        return node.storage
    from frontend import engine

    return np.asarray(engine.to_host(node))


def _erf(x: Array) -> Array:
    flat = [math.erf(v) for v in x.astype(np.float64).ravel().tolist()]
    return np.array(flat, np.float64).reshape(x.shape)


UNARY: dict[Op, Callable[[Array], Array]] = {
    Op.NEG: lambda x: -x if x.dtype.kind != "u" else np.negative(x),
    Op.ABS: np.abs,
    Op.NOT: np.invert,
    Op.FLOOR: np.floor,
    Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc,
    Op.ROUND: np.rint,
    Op.SQRT: np.sqrt,
    Op.EXP: np.exp,
    Op.EXP2: np.exp2,
    Op.EXPM1: np.expm1,
    Op.LOG: np.log,
    Op.LOG2: np.log2,
    Op.LOG10: np.log10,
    Op.LOG1P: np.log1p,
    Op.SIN: np.sin,
    Op.COS: np.cos,
    Op.TAN: np.tan,
    Op.ASIN: np.arcsin,
    Op.ACOS: np.arccos,
    Op.ATAN: np.arctan,
    Op.SINH: np.sinh,
    Op.COSH: np.cosh,
    Op.TANH: np.tanh,
    Op.ASINH: np.arcsinh,
    Op.ACOSH: np.arccosh,
    Op.ATANH: np.arctanh,
    Op.ERF: _erf,
}

BINARY: dict[Op, Callable[[Array, Array], Array]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.FLOORDIV: np.floor_divide,
    Op.MOD: np.remainder,
    Op.FMOD: np.fmod,
    Op.POW: np.power,
    Op.ATAN2: np.arctan2,
    Op.COPYSIGN: np.copysign,
    Op.MAXIMUM: np.maximum,
    Op.MINIMUM: np.minimum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.SHL: np.left_shift,
    Op.SHR: np.right_shift,
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
}

REDUCE: dict[Op, Callable[..., Array]] = {
    Op.SUM: np.add.reduce,
    Op.PROD: np.multiply.reduce,
    Op.MAX: np.maximum.reduce,
    Op.MIN: np.minimum.reduce,
}

SCAN: dict[Op, np.ufunc] = {
    Op.SUM: np.add,
    Op.PROD: np.multiply,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
}


def _apply(node: Node, src: list[Array], wide: bool) -> Array:
    op, arg = node.op, node.arg
    compute = _compute_type(node.dtype, wide)
    if op is Op.CONST:
        return np.full(node.shape, g.const_value(node), compute)
    if op is Op.IOTA:
        along = [-1 if i == arg else 1 for i in range(node.ndim)]
        return np.broadcast_to(np.arange(node.shape[arg]).reshape(along), node.shape)
    if op is Op.CAST:
        if node.dtype.kind == "b":
            return src[0] != 0
        return src[0].astype(compute if wide else numpy_type(node.dtype))
    if op is Op.BITCAST:
        exact = np.ascontiguousarray(src[0].astype(numpy_type(node.src[0].dtype)))
        return exact.view(numpy_type(node.dtype)).reshape(node.shape)
    if op in UNARY:
        return UNARY[op](src[0])
    if op in BINARY:
        return BINARY[op](src[0], src[1])
    if op is Op.WHERE:
        return np.where(src[0], src[1], src[2])
    if op in g.REDUCE:
        return _reduce(node, src[0])
    if op is Op.SCAN:
        kind, axis = arg
        return SCAN[kind].accumulate(src[0], axis=axis, dtype=src[0].dtype)
    return OTHER[op](node, *src)


def _reduce(node: Node, x: Array) -> Array:
    axes = node.arg
    if node.op is Op.ARGMAX:
        return np.asarray(np.argmax(x, axis=axes[0]))
    if node.op is Op.ARGMIN:
        return np.asarray(np.argmin(x, axis=axes[0]))
    extra: dict[str, Any] = {}
    if node.op in (Op.MAX, Op.MIN) and x.size == 0:
        lowest, highest = _limits(x.dtype)
        extra["initial"] = lowest if node.op is Op.MAX else highest
    return np.asarray(REDUCE[node.op](x, axis=axes, dtype=x.dtype, **extra))


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return -np.inf, np.inf


def _pad(node: Node, x: Array) -> Array:
    widths, fill = node.arg
    value = g.const_value(g.make(Op.CONST, (), fill, (), node.dtype))
    out = np.full(node.shape, value, x.dtype)
    if x.size:
        inner = tuple(
            slice(lo, lo + (n - 1) * (mid + 1) + 1, mid + 1)
            for n, (lo, mid, _) in zip(x.shape, widths, strict=True)
        )
        out[inner] = x
    return out


def _slice(node: Node, x: Array) -> Array:
    for axis, (first, count, step) in enumerate(node.arg):
        x = np.take(x, [first + i * step for i in range(count)], axis=axis)
    return x


def _open_grid(shape: tuple[int, ...]) -> list[Array]:
    """One index array per axis; together they broadcast to `shape`."""
    return [
        np.arange(n).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        for axis, n in enumerate(shape)
    ]


def _window(node: Node, x: Array) -> Array:
    axis, window_axis, stride, dilation = node.arg
    grid = _open_grid(node.shape)
    grid[axis] = grid[axis] * stride + grid[window_axis] * dilation
    return np.broadcast_to(x[tuple(grid)], node.shape)


def _scatter_window(node: Node, x: Array) -> Array:
    axis, window_axis, stride, dilation = node.arg
    grid = _open_grid(x.shape)
    grid[axis] = grid[axis] * stride + grid[window_axis] * dilation
    reach = max(int(grid[axis].max(initial=0)) + 1, node.shape[axis])
    out = np.zeros([reach if i == axis else n for i, n in enumerate(node.shape)], x.dtype)
    out[tuple(grid)] = x
    return np.take(out, range(node.shape[axis]), axis=axis)


def _gather(node: Node, data: Array, index: Array) -> Array:
    axis, extent = node.arg, data.shape[node.arg]
    if extent == 0:
        return np.zeros(node.shape, data.dtype)
    inside = (index >= 0) & (index < extent)
    taken = np.take_along_axis(data, np.where(inside, index, 0).astype(np.int64), axis=axis)
    return np.where(inside, taken, np.zeros((), data.dtype))


def _scatter(node: Node, target: Array, index: Array, updates: Array) -> Array:
    axis, kind = node.arg
    out = target.copy()
    inside = (index >= 0) & (index < target.shape[axis])
    place = [np.broadcast_to(part, index.shape)[inside] for part in _open_grid(index.shape)]
    place[axis] = index[inside].astype(np.int64)
    if kind == "add":
        np.add.at(out, tuple(place), updates[inside])
    else:  # NumPy promises that the last of several values for one place stays
        out[tuple(place)] = updates[inside]
    return out


def _argsort(node: Node, x: Array) -> Array:
    """Stable; NaN last in either order.

    Rank the values, then sort ranks, which negate without harm.
    """
    axis, descending = node.arg
    flat = x.ravel()
    values, ranks = np.unique(flat, return_inverse=True)
    ranks = ranks.reshape(x.shape).astype(np.int64)
    if descending:
        ranks = -ranks
    if x.dtype.kind not in "biu":
        ranks[np.isnan(x)] = len(values) + 1
    return np.argsort(ranks, axis=axis, kind="stable")


OTHER: dict[Op, Callable[..., Array]] = {
    Op.RESHAPE: lambda node, x: x.reshape(node.shape),
    Op.PERMUTE: lambda node, x: x.transpose(node.arg),
    Op.EXPAND: lambda node, x: np.broadcast_to(x, node.shape),
    Op.PAD: _pad,
    Op.SLICE: _slice,
    Op.WINDOW: _window,
    Op.SCATTER_WINDOW: _scatter_window,
    Op.CONCAT: lambda node, *parts: np.concatenate(parts, axis=node.arg),
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.ARGSORT: _argsort,
    Op.CONTIGUOUS: lambda node, x: x,
    Op.DETACH: lambda node, x: x,
    Op.COPY: lambda node, x: x,
}
