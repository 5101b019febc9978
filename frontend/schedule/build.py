"""Groups to kernels: loop nests over buffers.

Axes get names by their place in the nest, so that equal work gives equal text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from frontend.graph.node import Node, Op
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.expr import Expr
from frontend.loops.index import Index, Var, flatten, unflatten
from frontend.loops.simplify import simplify
from frontend.schedule.blocks import blocks_kernel
from frontend.schedule.body import Body, Part, Ref
from frontend.schedule.group import Group
from frontend.schedule.slots import Rename, Slots, name_of, named, reduction_of, values_of

_ARG = (Op.ARGMAX, Op.ARGMIN)


@dataclass
class Launch:
    """A kernel and the nodes behind its buffers, in argument order."""

    kernel: ln.Kernel
    buffers: list[Node]


@dataclass
class Sort:
    """Stable argsort of `source` along one axis, which no loop nest says well."""

    node: Node
    source: Node

    @property
    def name(self) -> str:
        return "argsort_" + "_".join(map(str, self.node.shape))


@dataclass
class Transfer:
    """Copy `source` to the node's device."""

    node: Node
    source: Node


Task = Launch | Sort | Transfer


def build(group: Group, external: Callable[[Node], bool]) -> list[Task]:
    """The group's kernels. `external`: whether a member's value is needed outside the group."""
    first = group.members[0]
    op = first.node.op
    if op is Op.COPY and first.node.src[0].device is not None:
        return [Transfer(first.node, _kept_source(first))]
    if op is Op.ARGSORT:
        return [Sort(first.node, _kept_source(first))]
    if op is Op.CONCAT:
        return [_concat(first, part) for part in first.parts]
    if op is Op.SCATTER:
        return _scatter(first)
    if op is Op.SCAN:
        return [_scan(first)]
    if group.block:
        kernel, nodes = blocks_kernel(group.members, group.rows or (), group.block, external)
        return [Launch(kernel, nodes)]
    if group.rows is None:
        return [_same_points(group, external)]
    return [_Rows(group, external).kernel()]


def _kept_source(body: Body) -> Node:
    assert isinstance(body.value, Ref), body
    return body.value.node


def _kernel(name: str, slots: Slots, nest: ln.Nest) -> Launch:
    nest = simplify(nest)
    return Launch(ln.Kernel(name, tuple(slots.slots), (), (nest,)), slots.nodes)


def _concat(body: Body, part: Part) -> Launch:
    node, slots = body.node, Slots()
    axes = named(part.axes, "i")
    rename = Rename(values_of(part.axes, axes), slots)
    out = slots.outside(node, ln.Role.OUTPUT)
    indices = [Index.of(v) + (part.offset if i == node.arg else 0) for i, v in enumerate(axes)]
    store = ln.Store(out, flatten(indices, node.shape), rename(part.value))
    name = name_of("concat", [v.extent for v in axes])
    return _kernel(name, slots, ln.Nest(axes, stores=(store,)))


def _scatter(body: Body) -> list[Task]:
    """The target's copy, then the updates in order along the axis."""
    node, part = body.node, body.parts[0]
    axis, kind = node.arg
    slots = Slots()
    axes = named(body.axes, "i")
    rename = Rename(values_of(body.axes, axes), slots)
    out = slots.outside(node, ln.Role.OUTPUT)
    store = ln.Store(out, flatten(list(map(Index.of, axes)), node.shape), rename(body.value))
    tasks: list[Task] = [
        _kernel(name_of("copy", node.shape), slots, ln.Nest(axes, stores=(store,)))
    ]
    if math.prod(v.extent for v in part.axes) == 0 or part.position is None:
        return tasks
    slots = Slots()
    axes = named(part.axes, "u")
    rename = Rename(values_of(part.axes, axes), slots)
    out = slots.outside(node, ln.Role.OUTPUT)
    var = Var("at", node.shape[axis])
    indices = [Index.of(var) if i == axis else Index.of(v) for i, v in enumerate(axes)]
    where = flatten(indices, node.shape)
    add = kind == "add"
    value, position = rename(part.value), rename(part.position)
    store = ln.Store(out, where, value, add=add, var=var, position=position)
    nest = ln.Nest(axes, stores=(store,), ordered=(axes[axis],))
    shape = [v.extent for v in part.axes]
    tasks.append(_kernel(name_of(f"scatter_{kind}", shape), slots, nest))
    return tasks


def _scan(body: Body) -> Launch:
    node, slots = body.node, Slots()
    kind, axis = node.arg
    axes, steps = named(body.axes, "i"), named(body.reduce, "k")
    rename = Rename(values_of(body.axes, axes) | values_of(body.reduce, steps), slots)
    out = slots.outside(node, ln.Role.OUTPUT)
    every = [*map(Index.of, axes)]
    every.insert(axis, Index.of(steps[0]))
    reduction = ln.Reduction(kind, rename(body.value), node.dtype)
    store = ln.Store(out, flatten(every, node.shape), ex.Accumulated(0, node.dtype))
    nest = ln.Nest(axes, steps, (reduction,), inner=(store,), ordered=steps)
    return _kernel(name_of(f"scan_{kind.name.lower()}", node.shape), slots, nest)


def _same_points(group: Group, external: Callable[[Node], bool]) -> Launch:
    """One nest: at most one reduction, first, and stores at its points."""
    slots = Slots()
    axes = named(group.members[0].axes, "i")
    own = tuple(map(Index.of, axes))
    done: dict[Node, Expr] = {}
    reduce: tuple[Var, ...] = ()
    reductions: tuple[ln.Reduction, ...] = ()
    stores = []
    for body in group.members:
        values = values_of(body.axes, axes)
        if body.reduce:
            reduce = named(body.reduce, "k")
            values |= values_of(body.reduce, reduce)
        rename = Rename(values, slots, lambda ref, _: done.get(ref.node))
        value = rename(body.value)
        if body.reduce:
            reductions = (reduction_of(body, value, reduce),)
            folded = ex.Accumulated(0, (body.fold or body.node).dtype)
            value = folded if body.after is None else rename(body.after)
        done[body.node] = value
        if external(body.node):
            out = slots.outside(body.node, ln.Role.OUTPUT)
            stores.append(ln.Store(out, flatten(own, body.node.shape), value))
    first = group.members[0]
    word = (first.fold or first.node).op.name.lower() if reduce else "map"
    name = name_of(
        word, [v.extent for v in axes], *([[v.extent for v in reduce]] if reduce else [])
    )
    return _kernel(name, slots, ln.Nest(axes, reduce, reductions, tuple(stores)))


@dataclass
class _Pending:
    """A nest of a row kernel that later members may still join."""

    axes: tuple[Var, ...]
    reduce: tuple[Var, ...]
    reductions: list[ln.Reduction] = field(default_factory=list)
    stores: list[ln.Store] = field(default_factory=list)
    inner: list[ln.Store] = field(default_factory=list)
    map_of: Body | None = None
    """The map that this nest is, as long as it is nothing else."""
    makes: set[Node] = field(default_factory=set)
    live: dict[Node, Expr] = field(default_factory=dict)
    """Values of the map at the point that a fold has reached."""

    def nest(self) -> ln.Nest:
        return ln.Nest(
            self.axes, self.reduce, tuple(self.reductions), tuple(self.stores), tuple(self.inner)
        )


class _Rows:
    """A kernel whose members run one after another in one loop over rows."""

    def __init__(self, group: Group, external: Callable[[Node], bool]) -> None:
        assert group.rows is not None
        self.group, self.external = group, external
        self.depth = len(group.rows)
        self.row = Var("row", math.prod(group.rows))
        self.rows = unflatten(Index.of(self.row), group.rows)
        self.slots = Slots()
        self.place: dict[Node, int] = {}
        self.nests: list[_Pending] = []
        self.live: dict[Node, Expr] = {}

    def kernel(self) -> Launch:
        for body in self.group.members:
            if body.reduce:
                self._fold(body)
            else:
                self._map(body)
        nests = tuple(simplify(p.nest()) for p in self.nests)
        shapes = [self.group.rows or (), self._widest()]
        words = [b.node.op.name.lower() for b in self.group.members if b.reduce]
        outer = (self.row,) if self.row.extent > 1 else ()
        name = name_of("rows_" + "_".join(words[:3]), *shapes)
        return Launch(ln.Kernel(name, tuple(self.slots.slots), outer, nests), self.slots.nodes)

    def _widest(self) -> list[int]:
        inner = [[v.extent for v in (*b.axes[self.depth :], *b.reduce)] for b in self.group.members]
        return max(inner, key=math.prod)

    def _rename(self, body: Body, axes: Sequence[Var], reduce: Sequence[Var]) -> Rename:
        values = dict(zip(body.axes[: self.depth], self.rows, strict=True))
        values |= values_of(body.axes[self.depth :], axes) | values_of(body.reduce, reduce)
        return Rename(values, self.slots, self._inside)

    def _inside(self, ref: Ref, indices: tuple[Index, ...]) -> Expr | None:
        """A member's value: a register, or read from the row's scratch or its own output."""
        if ref.node in self.live:
            return self.live[ref.node]
        slot = self.place.get(ref.node)
        if slot is None:
            return None
        role = self.slots.slots[slot].role
        if role is ln.Role.OUTPUT:
            return ex.Load(slot, flatten(indices, ref.node.shape), ref.dtype)
        inner = flatten(indices[self.depth :], ref.node.shape[self.depth :])
        return ex.Load(slot, inner, ref.dtype)

    def _stores(self, body: Body, axes: Sequence[Var], value: Expr) -> list[ln.Store]:
        """Where a member's value goes; notes the place later members read it from."""
        node, stores = body.node, []
        inner = [Index.of(v) for v in axes]
        if self.external(node):
            out = self.slots.outside(node, ln.Role.OUTPUT)
            stores.append(ln.Store(out, flatten([*self.rows, *inner], node.shape), value))
            self.place[node] = out
        if not axes:
            register = self.slots.local(ln.Role.REGISTER, node.dtype, 1)
            stores.append(ln.Store(register, Index(), value))
            self.place[node] = register
        elif not self.external(node):
            shape = node.shape[self.depth :]
            scratch = self.slots.local(ln.Role.SCRATCH, node.dtype, math.prod(shape))
            stores.append(ln.Store(scratch, flatten(inner, shape), value))
            self.place[node] = scratch
        return stores

    def _map(self, body: Body) -> None:
        axes = named(body.axes[self.depth :], "i")
        value = self._rename(body, axes, ())(body.value)
        pending = _Pending(axes, (), map_of=body, makes={body.node})
        pending.stores = self._stores(body, axes, value)
        pending.live[body.node] = value
        self.nests.append(pending)

    def _fold(self, body: Body) -> None:
        joined = self._shared_pass(body)
        axes = named(body.axes[self.depth :], "i")
        if joined is None:
            joined = _Pending(axes, named(body.reduce, "k"))
            self.nests.append(joined)
        self.live = joined.live
        value = self._rename(body, axes, joined.reduce)(body.value)
        self.live = {}
        number = len(joined.reductions)
        joined.reductions.append(reduction_of(body, value, joined.reduce))
        assert body.after is None, body
        joined.stores += self._stores(body, axes, ex.Accumulated(number, body.node.dtype))
        joined.makes.add(body.node)

    def _shared_pass(self, body: Body) -> _Pending | None:
        """The last nest, if this fold can run along with it, element by element of the row."""
        if not self.nests or body.axes[self.depth :]:
            return None
        last = self.nests[-1]
        extents = [v.extent for v in body.reduce]
        if last.map_of is not None and last.axes and [v.extent for v in last.axes] == extents:
            own = (*body.axes, *body.reduce)
            if all(
                r.indices == tuple(map(Index.of, own)) for r in body.refs() if r.node in last.makes
            ):
                return self._turned_to_fold(last)
            return None
        plain = last.reductions and not last.axes and body.node.op not in _ARG
        if plain and [v.extent for v in last.reduce] == extents:
            if not any(r.node in last.makes for r in body.refs()):
                return last
        return None

    def _turned_to_fold(self, last: _Pending) -> _Pending:
        """A map whose elements the fold consumes as they are made."""
        reduce = tuple(Var(v.name.replace("i", "k"), v.extent) for v in last.axes)
        change = values_of(last.axes, reduce)
        substitute = ex.Substitution(change)
        last.inner = [
            replace(s, index=s.index.substitute(change), value=substitute(s.value))
            for s in last.stores
        ]
        last.live = {node: substitute(value) for node, value in last.live.items()}
        last.axes, last.reduce, last.stores, last.map_of = (), reduce, [], None
        return last
