"""Reading and writing by index, with NumPy's rules.

Integers, slices of any step, `...` and None only move elements. Integer lists, arrays and tensors
select: they broadcast to one shape, which stands where they stood, or first if something stood
between them. A bool mask selects where it is true: how many that is must be computed, so a mask
realises.

Indices known on the host (numbers, lists, NumPy arrays) are checked at the call; those in a tensor
are not: outside the axis they read zero and write nothing. Negative ones count from the end in
either case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from frontend import dtype as dt
from frontend.graph import node as g
from frontend.graph.node import Node, Op, Shape
from frontend.ops import arithmetic, movement
from frontend.ops import common as c
from frontend.ops.common import Operand
from rawgpu.errors import DTypeError, IndexOutOfRange, OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class Selection:
    """A selecting index: int64 from 0 for `axis`. `checked` if none of it can be outside."""

    axis: int
    index: Node
    checked: bool


@dataclass
class Plan:
    """An index, taken apart.

    `ranges` slices every axis; an integer is a range of one. `kept` says where the result's axes
    come from: the number of an axis, None for a new one, or a Selection.
    """

    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    kept: list[int | Selection | None] = field(default_factory=list)
    ellipsis: int = 0
    """Where in `kept` the ellipsis stood: it parts selections even if it stands for no axis."""

    @property
    def selections(self) -> list[Selection]:
        return [entry for entry in self.kept if isinstance(entry, Selection)]


def getitem(x: Tensor, key: Any) -> Tensor:
    """x[key]; see the module's text. Raises IndexOutOfRange, DTypeError, ShapeError."""
    plan = _plan(x, key, "getitem")
    node = g.slice_(x.node, plan.ranges)
    if plan.selections:
        return x._derive(_select(node, plan))
    return x._derive(g.reshape(node, _basic_shape(plan)))


def _basic_shape(plan: Plan) -> Shape:
    return tuple(
        1 if a is None else plan.ranges[a][1] for a in plan.kept if not isinstance(a, Selection)
    )


# -- taking an index apart


def _plan(x: Tensor, key: Any, name: str) -> Plan:
    items, ellipsis = _items(x, list(key) if isinstance(key, tuple) else [key], name)
    selects = any(not isinstance(item, (slice, int)) and item is not None for item in items)
    plan = Plan()
    for number, item in enumerate(items):
        if number == ellipsis:
            plan.ellipsis = len(plan.kept)
        axis = len(plan.ranges)
        if item is None:
            plan.kept.append(None)
        elif isinstance(item, slice):
            plan.ranges.append(_range(item, x.shape[axis], name))
            plan.kept.append(axis)
        elif isinstance(item, int) and not selects:
            plan.ranges.append((checked(item, axis, x.shape, name), 1, 1))
        else:  # beside selecting indices an integer is one of them: it too decides where they stand
            plan.ranges.append((0, x.shape[axis], 1))
            plan.kept.append(_selection(x, item, axis, name))
    return plan


def _items(x: Tensor, key: list[Any], name: str) -> tuple[list[Any], int]:
    """One item for each axis or new axis, masks as indices, and where the ellipsis began."""
    before: list[Any] = []
    after: list[Any] | None = None
    used = 0
    for item in key:
        if item is Ellipsis:
            if after is not None:
                raise OperationError(f"{name}: an index has one '...' at most")
            after = []
            continue
        axis = used if after is None else None
        found = _item(x, item, axis, name)
        used += sum(entry is not None for entry in found)
        (before if after is None else after).extend(found)
    if used > x.ndim:
        raise IndexOutOfRange(f"{name}: {used} indices for the {x.ndim} axes of shape {x.shape}")
    filling = [slice(None)] * (x.ndim - used)
    return before + filling + (after or []), -1 if after is None else len(before)


def _item(x: Tensor, item: Any, axis: int | None, name: str) -> list[Any]:
    """A key's item as plain ones: slice, int, None, an int64 array, or a tensor of integers."""
    if item is None or isinstance(item, slice):
        return [item]
    if isinstance(item, bool):
        raise OperationError(f"{name}: True and False are no index", hint="None adds an axis")
    if isinstance(item, (int, np.integer)):
        return [int(item)]
    if not isinstance(item, type(x)):
        array = _index_array(item, name)
        if array.dtype.kind != "b":
            return [array]
        item = type(x)(array, device=x.device)
    c.same_device(name, x, item)
    if item.dtype is not dt.bool_:
        _needs_index(name, item)
        return [item]
    end = x.ndim if axis is None else axis + item.ndim
    if item.ndim == 0 or (axis is not None and x.shape[axis:end] != item.shape):
        raise IndexOutOfRange(f"{name}: a mask of shape {item.shape} on axis {axis} of {x.shape}")
    return list(nonzero(item))


def _needs_index(name: str, item: Tensor) -> None:
    if not item.dtype.is_integer:
        raise DTypeError(f"{name}: an index is of integers or bool, not {item.dtype}")


def _index_array(item: Any, name: str) -> Array:
    try:
        array = np.asarray(item)
    except ValueError:
        raise ShapeError(f"{name}: index lists of unequal length") from None
    if array.size == 0 and isinstance(item, (list, tuple)):
        return array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise DTypeError(f"{name}: an index is of integers or bool, not {c.shown(item)}")
    return array


def _range(item: slice, extent: int, name: str) -> tuple[int, int, int]:
    try:
        start, stop, step = item.indices(extent)
    except (TypeError, ValueError) as error:
        raise OperationError(f"{name}: {item}: {error}") from None
    count = len(range(start, stop, step))
    return (start if count else 0, count, step)


def checked(index: int, axis: int, shape: Shape, name: str) -> int:
    """`index` counted from 0. Raises IndexOutOfRange."""
    extent = shape[axis]
    if not -extent <= index < extent:
        raise IndexOutOfRange(
            f"{name}: index {c.shown(index)} is outside axis {axis} of extent {extent} of {shape}"
        )
    return index % extent


def _selection(x: Tensor, item: Any, axis: int, name: str) -> Selection:
    if isinstance(item, int):
        index = checked(item, axis, x.shape, name)
        return Selection(axis, c.full(index, (), dt.int64), checked=True)
    if isinstance(item, np.ndarray):
        flat = [checked(i, axis, x.shape, name) for i in item.ravel().tolist()]
        array = np.array(flat, np.int64).reshape(item.shape)
        return Selection(axis, type(x)(array, device=x.device).node, checked=True)
    return Selection(axis, wrap_negative(item.node, x.shape[axis]), checked=False)


def index_tensor(
    name: str,
    indices: Any,
    device: str | None,
    extent: int,
    *,
    low: int | None = None,
    spared: int | None = None,
) -> Tensor:
    """Indices of an axis of `extent` as a tensor; those known on the host are checked.

    `low` is the least that is allowed, -extent unless it is given; `spared` is allowed too. Raises
    IndexOutOfRange, DTypeError.
    """
    from frontend.tensor import Tensor

    if isinstance(indices, Tensor):
        return indices
    array = _index_array(indices, name)
    if array.dtype.kind == "b":
        raise DTypeError(f"{name}: takes indices, not bool")
    first = -extent if low is None else low
    for index in array.ravel().tolist():
        if not first <= index < extent and index != spared:
            raise IndexOutOfRange(f"{name}: index {index} is outside an axis of extent {extent}")
    return Tensor(array, device=device)


def wrap_negative(index: Node, extent: int) -> Node:
    """As int64, with -1 made the last index."""
    signed = index.dtype.is_signed
    index = g.cast(index, dt.int64)
    if not signed:
        return index
    behind = g.binary(Op.ADD, index, c.like(extent, index))
    return g.where(g.binary(Op.LT, index, c.like(0, index)), behind, index)


# -- selecting


def _select(node: Node, plan: Plan) -> Node:
    """GATHER from the selected axes merged into one, then that axis to its place."""
    chosen = plan.selections
    shape = c.broadcast_shapes("getitem", *(s.index.shape for s in chosen))
    axes = [s.axis for s in chosen]
    rest = [axis for axis in plan.kept if isinstance(axis, int)]
    moved = g.permute(node, [*axes, *rest])
    extents, tail = moved.shape[: len(axes)], moved.shape[len(axes) :]
    flat = g.reshape(moved, (c.count_of(extents, range(len(axes))), *tail))
    index = _linear(chosen, shape, extents)
    count = index.size
    column = g.reshape(index, (count, *(1 for _ in tail)))
    picked = g.gather(flat, g.expand(column, (count, *tail)), 0)
    return _arranged(g.reshape(picked, (*shape, *tail)), plan, len(shape))


def _linear(chosen: list[Selection], shape: Shape, extents: Shape) -> Node:
    """Row-major index into the merged axes; -1 where one of several is outside its own."""
    total: Node | None = None
    outside: Node | None = None
    for selection, extent in zip(chosen, extents, strict=True):
        index = c.broadcast_to(selection.index, shape)
        if total is None:
            total = index
        else:
            total = g.binary(Op.ADD, g.binary(Op.MUL, total, c.like(extent, total)), index)
        if len(chosen) > 1 and not selection.checked:
            low = g.binary(Op.LT, index, c.like(0, index))
            wrong = g.binary(Op.OR, low, g.binary(Op.LE, c.like(extent, index), index))
            outside = wrong if outside is None else g.binary(Op.OR, outside, wrong)
    assert total is not None, chosen
    return total if outside is None else g.where(outside, c.like(-1, total), total)


def _arranged(node: Node, plan: Plan, count: int) -> Node:
    """The `count` leading axes, which the selections made, moved to where NumPy puts them.

    New axes added.
    """
    places = [i for i, entry in enumerate(plan.kept) if isinstance(entry, Selection)]
    parted = places[0] < plan.ellipsis <= places[-1]
    together = not parted and places[-1] - places[0] == len(places) - 1
    at = places[0] if together else -1
    made: list[int | None] = list(range(count))
    order: list[int | None] = [] if together else list(made)
    seen = count
    for i, entry in enumerate(plan.kept):
        if isinstance(entry, Selection):
            order.extend(made if i == at else [])
        else:
            order.append(None if entry is None else seen)
            seen += entry is not None
    node = g.permute(node, [axis for axis in order if axis is not None])
    extents = iter(node.shape)
    return g.reshape(node, tuple(1 if axis is None else next(extents) for axis in order))


# -- writing


def setitem(x: Tensor, key: Any, value: Operand) -> None:
    """x[key] = value: x takes a new value; tensors that share its elements keep theirs.

    `value` broadcasts to the shape of x[key] and is cast. Of several values for one element the
    last stays.
    """
    x._become(with_item(x, key, value), "setitem")


def with_item(x: Tensor, key: Any, value: Operand) -> Tensor:
    """A tensor like x with x[key] = value."""
    other = value if isinstance(value, type(x)) else c.made("setitem", value, x.device)
    c.same_device("setitem", x, other)
    if _is_mask(key) and other.size == 1:
        return _fill_mask(x, key, other)
    plan = _plan(x, key, "setitem")
    if plan.selections:
        node = _scattered(x, plan, g.cast(other.node, x.dtype))
    else:
        node = _placed(x.node, plan, g.cast(other.node, x.dtype))
    return x._derive(node, other)


def _is_mask(key: Any) -> bool:
    from frontend.tensor import Tensor

    if isinstance(key, Tensor):
        return key.dtype is dt.bool_
    return isinstance(key, np.ndarray) and key.dtype.kind == "b"


def _fill_mask(x: Tensor, key: Any, value: Tensor) -> Tensor:
    """One value for all that a mask selects needs no indices."""
    mask: Tensor = key if isinstance(key, type(x)) else type(x)(key, device=x.device)
    c.same_device("setitem", x, mask)
    if mask.ndim > x.ndim or x.shape[: mask.ndim] != mask.shape:
        raise IndexOutOfRange(f"setitem: a mask of shape {mask.shape} on {x.shape}")
    wide = g.reshape(mask.node, (*mask.shape, *(1 for _ in x.shape[mask.ndim :])))
    one = g.reshape(g.cast(value.node, x.dtype), (1,) * x.ndim)
    node = g.where(g.expand(wide, x.shape), g.expand(one, x.shape), x.node)
    return x._derive(node, value)


def _fitted(value: Node, shape: Shape) -> Node:
    """`value` broadcast to the indexed shape.

    Leading extents of 1 too many are dropped, as in NumPy.
    """
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = g.reshape(value, value.shape[1:])
    offset = len(shape) - value.ndim
    if offset < 0 or any(n not in (1, shape[offset + i]) for i, n in enumerate(value.shape)):
        raise ShapeError(f"setitem: a value of shape {value.shape} does not fit {shape}")
    return c.broadcast_to(value, shape)


def _placed(node: Node, plan: Plan, value: Node) -> Node:
    """The slice's adjoint: `value` padded to the whole shape, chosen where it lies."""
    value = g.reshape(_fitted(value, _basic_shape(plan)), tuple(n for _, n, _ in plan.ranges))
    widths = []
    for axis, (extent, (first, count, step)) in enumerate(
        zip(node.shape, plan.ranges, strict=True)
    ):
        if count == 0:
            return node
        last = first + (count - 1) * step
        if step < 0:
            value = c.reverse(value, axis)
            first, last = last, first
        widths.append((first, abs(step) - 1 if count > 1 else 0, extent - 1 - last))
    if not any(any(three) for three in widths):
        return value
    here = c.pad_with(c.full(True, value.shape, dt.bool_), widths, False)
    return g.where(here, c.pad_with(value, widths), node)


def _scattered(x: Tensor, plan: Plan, value: Node) -> Node:
    """SCATTER into the flattened tensor, at the places that the same index reads from a ramp."""
    n = x.size
    # from 1, so that an index outside reads 0 and, less 1, is outside again
    ramp = g.binary(Op.ADD, g.iota((n,), 0, dt.int64), c.full(1, (n,), dt.int64))
    places = _select(g.slice_(g.reshape(ramp, x.shape), plan.ranges), plan)
    index = g.binary(Op.SUB, places, c.like(1, places))
    updates = _fitted(value, index.shape)
    flat = g.reshape(x.node, (n,))
    index, updates = g.reshape(index, (index.size,)), g.reshape(updates, (index.size,))
    return g.reshape(g.scatter(flat, index, updates, 0, add=False), x.shape)


# -- along one axis


def take(x: Tensor, indices: Any, axis: int | None = None) -> Tensor:
    """The elements (or slices) of `axis` at `indices`, whose axes take its place.

    None flattens first.
    """
    if axis is None:
        return take(movement.flatten(x), indices, 0)
    axis = c.normal_axis("take", axis, x.ndim)
    return getitem(x, (*(slice(None) for _ in range(axis)), indices))


def index_select(x: Tensor, axis: int, index: Any) -> Tensor:
    """`take` with torch's order of arguments."""
    return take(x, index, axis)


def take_along_axis(x: Tensor, indices: Any, axis: int = -1) -> Tensor:
    """out[i] = x[i with i[axis] := indices[i]], x and indices broadcast on the other axes."""
    axis = c.normal_axis("take_along_axis", axis, x.ndim)
    index = index_tensor("take_along_axis", indices, x.device, x.shape[axis])
    axis = _along("take_along_axis", x, index, axis)
    others = c.broadcast_shapes(
        "take_along_axis", _without(x.shape, axis), _without(index.shape, axis)
    )
    data = c.broadcast_to(x.node, (*others[:axis], x.shape[axis], *others[axis:]))
    wide = c.broadcast_to(index.node, (*others[:axis], index.shape[axis], *others[axis:]))
    return x._derive(g.gather(data, wrap_negative(wide, x.shape[axis]), axis), index)


def gather(x: Tensor, axis: int, index: Any) -> Tensor:
    """out[i] = x[i with i[axis] := index[i]].

    Beside `axis`, index may be smaller than x, as in torch.
    """
    axis = c.normal_axis("gather", axis, x.ndim)
    index = index_tensor("gather", index, x.device, x.shape[axis])
    axis = _along("gather", x, index, axis)
    data = x.node
    for a, (have, want) in enumerate(zip(x.shape, index.shape, strict=True)):
        if a != axis and want > have:
            raise ShapeError(f"gather: index {index.shape} is larger than {x.shape} on axis {a}")
        data = data if a == axis else c.narrow(data, a, 0, want)
    return x._derive(g.gather(data, wrap_negative(index.node, x.shape[axis]), axis), index)


def scatter(x: Tensor, axis: int, index: Any, source: Operand) -> Tensor:
    """x with out[i with i[axis] := index[i]] = source[i].

    Of several for one place the last stays.
    """
    return _scatter(x, axis, index, source, "scatter", add=False)


def scatter_add(x: Tensor, axis: int, index: Any, source: Operand) -> Tensor:
    """x with out[i with i[axis] := index[i]] += source[i], in the order of i."""
    return _scatter(x, axis, index, source, "scatter_add", add=True)


def _scatter(
    x: Tensor, axis: int, indices: Any, source: Operand, name: str, *, add: bool
) -> Tensor:
    axis = c.normal_axis(name, axis, x.ndim)
    index = index_tensor(name, indices, x.device, x.shape[axis])
    axis = _along(name, x, index, axis)
    other = c.as_tensor(source, x, name)
    c.same_device(name, x, other)
    updates = g.cast(other.node, x.dtype)
    if updates.ndim == 0:
        updates = c.broadcast_to(updates, index.shape)
    fits = updates.ndim == x.ndim and all(
        (a == axis or i <= n) and i <= u
        for a, (i, n, u) in enumerate(zip(index.shape, x.shape, updates.shape, strict=True))
    )
    if not fits:
        raise ShapeError(f"{name}: index {index.shape} and source {other.shape} for {x.shape}")
    where = wrap_negative(index.node, x.shape[axis])
    for a, extent in enumerate(x.shape):
        updates = c.narrow(updates, a, 0, index.shape[a])
        missing = 0 if a == axis else extent - index.shape[a]
        if missing:  # indices of -1 write nothing
            widths = [(0, 0, missing if i == a else 0) for i in range(x.ndim)]
            where, updates = c.pad_with(where, widths, -1), c.pad_with(updates, widths)
    return x._derive(g.scatter(x.node, where, updates, axis, add=add), other)


def index_add(x: Tensor, axis: int, index: Any, source: Operand) -> Tensor:
    """x with slice `index[i]` of `axis` increased by slice i of `source`."""
    axis = c.normal_axis("index_add", axis, x.ndim)
    index = index_tensor("index_add", index, x.device, x.shape[axis])
    source = c.as_tensor(source, x, "index_add")
    _needs_index("index_add", index)
    c.same_device("index_add", x, index, source)
    want = tuple(index.size if i == axis else n for i, n in enumerate(x.shape))
    if index.ndim != 1 or source.shape != want:
        raise ShapeError(f"index_add: index {index.shape} and source {source.shape} for {x.shape}")
    column = g.reshape(index.node, tuple(index.size if i == axis else 1 for i in range(x.ndim)))
    where = wrap_negative(g.expand(column, want), x.shape[axis])
    updates = g.cast(source.node, x.dtype)
    return x._derive(g.scatter(x.node, where, updates, axis, add=True), source)


def _along(name: str, x: Tensor, index: Tensor, axis: int) -> int:
    _needs_index(name, index)
    c.same_device(name, x, index)
    if index.ndim != x.ndim:
        raise ShapeError(f"{name}: index {index.shape} and tensor {x.shape} differ in rank")
    return c.normal_axis(name, axis, x.ndim)


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


# -- by a mask


def nonzero(x: Tensor) -> tuple[Tensor, ...]:
    """One int64 vector per axis: the indices of elements that differ from zero.

    Realises their count.
    """
    if x.ndim == 0:
        raise ShapeError("nonzero: a scalar has no axes")
    flat = _flat_nonzero(x)
    found = []
    below = x.size
    for extent in x.shape:
        below = below // extent if extent else 0
        place = arithmetic.floor_divide(flat, max(below, 1))
        found.append(arithmetic.remainder(place, max(extent, 1)))
    return tuple(found)


def _flat_nonzero(x: Tensor) -> Tensor:
    """Each true element writes its index to the place that the count of those before it gives."""
    mask = g.reshape(g.cast(x.node, dt.bool_), (x.size,))
    running = g.scan(Op.SUM, g.cast(mask, dt.int64), 0)
    count = int(x._new(g.reduce(Op.SUM, g.cast(mask, dt.int64), (0,)), x.device).item())
    place = g.where(mask, g.binary(Op.SUB, running, c.like(1, running)), c.like(-1, running))
    own = g.iota((x.size,), 0, dt.int64)
    found = g.scatter(c.full(0, (count,), dt.int64), place, own, 0, add=False)
    return x._new(found, x.device).realize()


def masked_select(x: Tensor, mask: Operand) -> Tensor:
    """The elements of x where `mask` holds, as a vector; both broadcast. Realises their count."""
    mask = c.as_tensor(mask, x, "masked_select")
    if mask.dtype is not dt.bool_:
        raise DTypeError(f"masked_select: the mask is {mask.dtype}, not bool")
    shape = c.broadcast_shapes("masked_select", x.shape, mask.shape)
    wide, where = movement.broadcast_to(x, shape), movement.broadcast_to(mask, shape)
    return getitem(movement.flatten(wide), _flat_nonzero(where))
