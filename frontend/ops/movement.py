"""Operations that move elements and compute nothing: they cost no kernel of their own.

The result is a value, as every tensor is: writing to it never changes what it came from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from frontend import dtype as dt
from frontend.graph import node as g
from frontend.graph.node import Node, Op, Shape
from frontend.ops import arithmetic
from frontend.ops import common as c
from frontend.ops.common import Axes, Operand, Scalar
from rawgpu.errors import AxisError, DTypeError, OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


# -- shape


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The elements in row-major order with another shape, given as numbers or one tuple.

    One extent may be -1 and is worked out. Raises ShapeError if the sizes differ.
    """
    target = c.as_shape("reshape", shape)
    if -1 in target:
        known = math.prod(n for n in target if n != -1)
        if target.count(-1) > 1 or known == 0 or x.size % known:
            raise ShapeError(f"reshape: {x.shape} does not fit {target}: {_why(x, target, known)}")
        target = tuple(x.size // known if n == -1 else n for n in target)
    if any(n < 0 for n in target) or math.prod(target) != x.size:
        raise ShapeError(
            f"reshape: {x.shape} has {x.size} elements and {target} has {math.prod(target)}"
        )
    return x._derive(g.reshape(x.node, target))


def _why(x: Tensor, target: Shape, known: int) -> str:
    if target.count(-1) > 1:
        return "only one extent may be -1"
    if known == 0:
        return "-1 beside a 0 could be anything"
    return f"{x.size} elements are no multiple of {known}"


def flatten(x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Axes `start` to `end`, both included, merged into one; a scalar becomes one element."""
    if x.ndim == 0:
        return reshape(x, 1)
    first, last = c.normal_axis("flatten", start, x.ndim), c.normal_axis("flatten", end, x.ndim)
    if first > last:
        raise AxisError(f"flatten: axis {start} comes after axis {end} in {x.shape}")
    merged = math.prod(x.shape[first : last + 1])
    return reshape(x, (*x.shape[:first], merged, *x.shape[last + 1 :]))


def unflatten(x: Tensor, axis: int, shape: Sequence[int]) -> Tensor:
    """`axis` split into `shape`, of which one extent may be -1."""
    axis = c.normal_axis("unflatten", axis, x.ndim)
    extents = c.as_shape("unflatten", (shape,))
    part = reshape(x._derive(c.full(0, (x.shape[axis],), x.dtype)), extents).shape
    return reshape(x, (*x.shape[:axis], *part, *x.shape[axis + 1 :]))


def squeeze(x: Tensor, axis: Axes = None) -> Tensor:
    """Without the extent-1 axes named, or without all of them.

    Raises ShapeError for other extents.
    """
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    axes = c.normal_axes("squeeze", axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise ShapeError(f"squeeze: axis {a} of {x.shape} has extent {x.shape[a]}, not 1")
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


def expand_dims(x: Tensor, axis: Axes = 0) -> Tensor:
    """With an extent-1 axis at `axis` (or several) of the result."""
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = c.normal_axes("expand_dims", axis, x.ndim + count)
    extents = iter(x.shape)
    shape = tuple(1 if i in axes else next(extents) for i in range(x.ndim + count))
    return reshape(x, shape)


def broadcast_to(x: Tensor, *shape: Any) -> Tensor:
    """Extent-1 and missing leading axes repeated to `shape`; -1 keeps an extent.

    Raises ShapeError.
    """
    target = c.as_shape("broadcast_to", shape)
    offset = len(target) - x.ndim
    target = tuple(
        x.shape[i - offset] if n == -1 and i >= offset else n for i, n in enumerate(target)
    )
    fits = offset >= 0 and all(n >= 0 for n in target)
    if not fits or any(a not in (b, 1) for a, b in zip(x.shape, target[offset:], strict=True)):
        raise ShapeError(f"broadcast_to: {x.shape} does not broadcast to {target}")
    return x._derive(c.broadcast_to(x.node, target))


# -- order of axes


def permute(x: Tensor, *axes: Any) -> Tensor:
    """Axes in the order given; without arguments reversed.

    Raises AxisError unless each is named once.
    """
    if not axes:
        order = tuple(reversed(range(x.ndim)))
    else:
        named = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        order = c.normal_axes("permute", tuple(named), x.ndim)
    if len(order) != x.ndim:
        raise AxisError(f"permute: {order} does not name all {x.ndim} axes of {x.shape}")
    return x._derive(g.permute(x.node, order))


def swapaxes(x: Tensor, axis1: int, axis2: int) -> Tensor:
    """With two axes exchanged."""
    a, b = c.normal_axis("swapaxes", axis1, x.ndim), c.normal_axis("swapaxes", axis2, x.ndim)
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return x._derive(g.permute(x.node, order))


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Axes moved to new places; the others keep their order."""
    here = c.normal_axes("moveaxis", source, x.ndim)
    there = c.normal_axes("moveaxis", destination, x.ndim)
    if len(here) != len(there):
        raise AxisError(f"moveaxis: {len(here)} axes do not go to {len(there)} places")
    order = [a for a in range(x.ndim) if a not in here]
    for place, axis in sorted(zip(there, here, strict=True)):
        order.insert(place, axis)
    return x._derive(g.permute(x.node, order))


def matrix_transpose(x: Tensor) -> Tensor:
    """With the last two axes exchanged. Raises ShapeError below two axes."""
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: {x.shape} has no two axes")
    return swapaxes(x, -1, -2)


# -- repetition and shifts


def flip(x: Tensor, axis: Axes = None) -> Tensor:
    """Reversed along `axis`, some, or all."""
    node = x.node
    for a in c.normal_axes("flip", axis, x.ndim):
        node = c.reverse(node, a)
    return x._derive(node)


def roll(x: Tensor, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
    """Shifted with what falls off the end coming back at the start.

    None rolls the flattened tensor.
    """
    several = isinstance(shift, (tuple, list))
    if axis is None:
        if several:
            raise OperationError("roll: several shifts need their axes")
        return reshape(roll(flatten(x), shift, 0), x.shape)
    axes: Sequence[Any] = axis if isinstance(axis, (tuple, list)) else (axis,)
    listed: Sequence[Any] = shift if several else (shift,) * len(axes)  # type: ignore[assignment]
    shifts = [c.whole("roll", "a shift", by) for by in listed]
    if len(shifts) != len(axes):
        raise OperationError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    node = x.node
    for a, by in zip(axes, shifts, strict=True):
        node = _roll(node, c.normal_axis("roll", a, x.ndim), by)
    return x._derive(node)


def _roll(node: Node, axis: int, by: int) -> Node:
    extent = node.shape[axis]
    by = by % extent if extent else 0
    if by == 0:
        return node
    tail = c.narrow(node, axis, extent - by, by)
    return g.concat([tail, c.narrow(node, axis, 0, extent - by)], axis)


def tile(x: Tensor, *repeats: Any) -> Tensor:
    """The whole tensor repeated along each axis, axes added in front as needed."""
    counts = c.checked_shape("tile", repeats)
    ndim = max(len(counts), x.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    node = g.reshape(x.node, tuple(n for extent in shape for n in (1, extent)))
    node = g.expand(node, tuple(n for pair in zip(counts, shape, strict=True) for n in pair))
    return x._derive(g.reshape(node, tuple(r * n for r, n in zip(counts, shape, strict=True))))


def repeat(x: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Each element `repeats` times in a row along `axis`, or of the flattened tensor."""
    if axis is None:
        return repeat(flatten(x), repeats, 0)
    axis = c.normal_axis("repeat", axis, x.ndim)
    count = c.extent("repeat", "the number of repeats", repeats)
    node = c.insert_axis(x.node, axis + 1)
    node = g.expand(node, tuple(count if i == axis + 1 else n for i, n in enumerate(node.shape)))
    shape = tuple(n * count if i == axis else n for i, n in enumerate(x.shape))
    return x._derive(g.reshape(node, shape))


# -- joining and splitting


def concat(tensors: Sequence[Operand], axis: int | None = 0) -> Tensor:
    """Joined along `axis`; None joins flattened tensors.

    Dtypes are promoted; other extents must agree. Arrays among the tensors are copied to them.
    """
    parts = c.tensors("concat", tensors)
    if not parts:
        raise OperationError("concat: needs at least one tensor")
    if axis is None:
        return concat([flatten(t) for t in parts], 0)
    first = parts[0]
    axis = c.normal_axis("concat", axis, first.ndim)
    c.same_device("concat", *parts)
    dtype = first.dtype
    for tensor in parts[1:]:
        same = tensor.ndim == first.ndim and all(
            i == axis or a == b
            for i, (a, b) in enumerate(zip(tensor.shape, first.shape, strict=True))
        )
        if not same:
            raise ShapeError(f"concat: {first.shape} and {tensor.shape} differ beside axis {axis}")
        dtype = arithmetic.common_dtype("concat", dtype, tensor.dtype)
    nodes = [g.cast(t.node, dtype) for t in parts]
    return first._derive(g.concat(nodes, axis), *parts[1:])


def stack(tensors: Sequence[Operand], axis: int = 0) -> Tensor:
    """Joined along a new axis at `axis`; all shapes are the same. Raises ShapeError."""
    parts = c.tensors("stack", tensors)
    if not parts:
        raise OperationError("stack: needs at least one tensor")
    first = parts[0]
    for tensor in parts:
        if tensor.shape != first.shape:
            raise ShapeError(f"stack: shapes {first.shape} and {tensor.shape} differ")
    axis = c.normal_axis("stack", axis, first.ndim + 1)
    return concat([expand_dims(t, axis) for t in parts], axis)


def split(x: Tensor, sizes: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Parts along `axis`, of `sizes` elements each (the last may be short) or as listed."""
    axis = c.normal_axis("split", axis, x.ndim)
    extent = x.shape[axis]
    if not isinstance(sizes, (tuple, list)):
        size = c.whole("split", "a part's size", sizes)
        if size <= 0:
            raise ShapeError(f"split: parts of {size} elements")
        sizes = [min(size, extent - start) for start in range(0, max(extent, 1), size)]
    sizes = [c.whole("split", "a part's size", n) for n in sizes]
    if sum(sizes) != extent or any(n < 0 for n in sizes):
        raise ShapeError(f"split: sizes {list(sizes)} do not add up to axis {axis} of {x.shape}")
    parts, start = [], 0
    for size in sizes:
        parts.append(x._derive(c.narrow(x.node, axis, start, size)))
        start += size
    return parts


def chunk(x: Tensor, count: int, axis: int = 0) -> list[Tensor]:
    """At most `count` parts of equal size along `axis`; the last may be short."""
    count = c.whole("chunk", "the number of parts", count)
    if count <= 0:
        raise ShapeError(f"chunk: {count} parts")
    extent = x.shape[c.normal_axis("chunk", axis, x.ndim)]
    return split(x, max(-(-extent // count), 1), axis)


def unbind(x: Tensor, axis: int = 0) -> list[Tensor]:
    """One tensor for each index of `axis`, which is gone from them."""
    axis = c.normal_axis("unbind", axis, x.ndim)
    return [squeeze(part, axis) for part in split(x, 1, axis)] if x.shape[axis] else []


# -- padding

PadWidths = Sequence[int | tuple[int, int]]
MODES = ("constant", "reflect", "edge", "wrap")
MODE_ALIASES = {"replicate": "edge", "circular": "wrap"}


def pad(
    x: Tensor, widths: Sequence[tuple[int, int]], mode: str = "constant", value: Scalar = 0
) -> Tensor:
    """Elements added before and after each axis.

    `widths` has a (before, after) pair for each axis, or for the last axes; negative numbers crop.
    mode: "constant" adds `value`; "reflect" mirrors without repeating the edge; "edge" (or
    "replicate") repeats it; "wrap" (or "circular") goes on from the other side. The last three add
    less than, or (wrap) at most, the axis's extent. Raises ShapeError.
    """
    mode = MODE_ALIASES.get(mode, mode) if isinstance(mode, str) else mode
    if not isinstance(mode, str) or mode not in MODES:
        raise OperationError(f"pad: mode {mode!r} is none of {', '.join(MODES)}")
    pairs = _width_pairs(widths)
    if len(pairs) > x.ndim:
        raise ShapeError(f"pad: {len(pairs)} pairs of widths for the {x.ndim} axes of {x.shape}")
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    node = _crop(x.node, pairs)
    pairs = [(max(lo, 0), max(hi, 0)) for lo, hi in pairs]
    if mode == "constant":
        number = c.real("pad", "the value", value)
        fill = c.scalar("pad", bool(number) if x.dtype is dt.bool_ else number, x.dtype, ())
        if fill.dtype is not x.dtype:
            raise DTypeError(f"pad: {value!r} is no value of {x.dtype}")
        return x._derive(g.pad(node, [(lo, 0, hi) for lo, hi in pairs], fill))
    for axis, (lo, hi) in enumerate(pairs):
        if lo or hi:
            node = _extend(node, axis, lo, hi, mode)
    return x._derive(node)


def _width_pairs(widths: Any) -> list[tuple[int, int]]:
    if not isinstance(widths, (tuple, list)) or not all(
        isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in widths
    ):
        raise ShapeError(f"pad: widths are (before, after) pairs, not {c.shown(widths)}")
    return [(c.whole("pad", "a width", lo), c.whole("pad", "a width", hi)) for lo, hi in widths]


def _crop(node: Node, pairs: Sequence[tuple[int, int]]) -> Node:
    ranges = []
    for n, (lo, hi) in zip(node.shape, pairs, strict=True):
        start, count = max(-lo, 0), n + min(lo, 0) + min(hi, 0)
        if count < 0:
            raise ShapeError(f"pad: widths {(lo, hi)} crop more than the {n} elements there are")
        ranges.append((start if count else 0, count, 1))
    return g.slice_(node, ranges)


def _extend(node: Node, axis: int, lo: int, hi: int, mode: str) -> Node:
    extent = node.shape[axis]
    limit = extent if mode == "wrap" else extent - 1
    if extent == 0 or (mode != "edge" and max(lo, hi) > limit):
        raise ShapeError(f"pad: {mode} adds at most {limit} to axis {axis} of {node.shape}")
    if mode == "wrap":
        before, after = c.narrow(node, axis, extent - lo, lo) if lo else None, None
        after = c.narrow(node, axis, 0, hi) if hi else None
    elif mode == "reflect":
        before = c.narrow(node, axis, lo, lo, -1) if lo else None
        after = c.narrow(node, axis, extent - 2, hi, -1) if hi else None
    else:
        before = _repeated(node, axis, 0, lo) if lo else None
        after = _repeated(node, axis, extent - 1, hi) if hi else None
    return g.concat([part for part in (before, node, after) if part is not None], axis)


def _repeated(node: Node, axis: int, index: int, count: int) -> Node:
    one = c.narrow(node, axis, index, 1)
    return g.expand(one, tuple(count if i == axis else n for i, n in enumerate(one.shape)))


# -- diagonals and triangles


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The last two axes as matrices, zero above the given diagonal."""
    return _triangle(x, diagonal, "tril", lower=True)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The last two axes as matrices, zero below the given diagonal."""
    return _triangle(x, diagonal, "triu", lower=False)


def _triangle(x: Tensor, diagonal: int, name: str, *, lower: bool) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{name}: {x.shape} has no two axes")
    rows, columns = x.shape[-2:]
    diagonal = c.whole(name, "the diagonal", diagonal)
    keep = band((rows, columns), max(min(diagonal, columns), -rows), lower=lower)
    node = x.node
    return x._derive(g.where(c.broadcast_to(keep, node.shape), node, c.like(0, node)))


def band(shape: Shape, diagonal: int, *, lower: bool) -> Node:
    """A bool matrix, True where column - row is at most (lower) or at least `diagonal`."""
    row = g.iota(shape, 0, dt.int64)
    column = g.iota(shape, 1, dt.int64)
    edge = g.binary(Op.ADD, row, c.like(diagonal, row))
    return g.binary(Op.LE, *((column, edge) if lower else (edge, column)))


def diagonal(x: Tensor, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The elements whose index on `axis2` is `offset` more than on `axis1`, as a last axis."""
    a, b = c.normal_axis("diagonal", axis1, x.ndim), c.normal_axis("diagonal", axis2, x.ndim)
    if a == b:
        raise AxisError(f"diagonal: both axes are axis {a}")
    offset = c.whole("diagonal", "the offset", offset)
    others = [i for i in range(x.ndim) if i not in (a, b)]
    node = g.permute(x.node, [*others, a, b])
    rows, columns = node.shape[-2:]
    first_row, first_column = max(-offset, 0), max(offset, 0)
    count = max(min(rows - first_row, columns - first_column), 0)
    lead = node.shape[:-2]
    if count == 0:
        return x._derive(c.full(0, (*lead, 0), x.dtype))
    node = c.narrow(node, node.ndim - 2, first_row, count)
    node = c.narrow(node, node.ndim - 1, first_column, count)
    # in a square of side n laid out flat, the diagonal is every (n+1)-th element
    node = g.reshape(node, (*lead, count * count))
    return x._derive(c.narrow(node, node.ndim - 1, 0, count, count + 1))


def diag(x: Tensor) -> Tensor:
    """A matrix with the vector x on its diagonal, or the diagonal of a matrix."""
    if x.ndim == 2:
        return diagonal(x)
    if x.ndim != 1:
        raise ShapeError(f"diag: takes a vector or a matrix, not {x.shape}")
    (n,) = x.shape
    if n == 0:
        return x._derive(c.full(0, (0, 0), x.dtype))
    # n elements, n zeros between neighbours: n² in all, one for each row and column
    return x._derive(g.reshape(c.pad_with(x.node, [(0, n, 0)]), (n, n)))


def meshgrid(*tensors: Operand, indexing: str = "xy") -> list[Tensor]:
    """Coordinate tensors of the grid that the vectors span; "xy" exchanges the first two axes."""
    if not isinstance(indexing, str) or indexing not in ("xy", "ij"):
        raise OperationError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    vectors = c.tensors("meshgrid", tensors)
    if any(v.ndim > 1 for v in vectors):
        raise ShapeError(f"meshgrid: takes vectors, not {[v.shape for v in vectors]}")
    count = len(vectors)
    shape = tuple(v.size for v in vectors)
    grids = []
    for i, vector in enumerate(vectors):
        column = reshape(vector, tuple(-1 if j == i else 1 for j in range(count)))
        grids.append(broadcast_to(column, shape))
    if indexing == "xy" and count > 1:
        return [swapaxes(grid, 0, 1) for grid in grids]
    return grids
